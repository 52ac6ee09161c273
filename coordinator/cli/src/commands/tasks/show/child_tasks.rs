//! What runs gave away: the children of a task, as `docket show` lists them.

use crate::output::task_rows;
use docket_schema::{
    api::ChildView,
    ids::{RunId, TaskId},
    message::CallId,
};
use serde::Serialize;

use crate::{
    context::CliContext,
    output::display::{self, TableCell, TextStyle, TextTable},
};

/// A child as `--json` shows it.
#[derive(Debug, Serialize)]
pub(super) struct ChildRow {
    call: CallId,
    task: TaskId,
    state: &'static str,
    writes: bool,
    run: Option<RunId>,
    title: String,
}

/// All of them, for `--json`.
pub(super) fn child_rows(children: &[ChildView]) -> Vec<ChildRow> {
    let row = |child: &ChildView| ChildRow {
        call: child.call.clone(),
        task: child.view.task.id,
        state: child.view.task.state.as_str(),
        writes: child.view.task.delegated_by.as_ref().is_some_and(|by| by.writes),
        run: child.view.task.last_run,
        title: child.view.task.spec.title.clone(),
    };
    children.iter().map(row).collect()
}

/// Lists them, if there are any.
pub(super) fn print_children(cx: &CliContext, children: &[ChildView]) {
    if children.is_empty() {
        return;
    }
    let mut table = TextTable::new(&["CHILD", "STATE", "CHANGES", "TITLE"]);
    for child in children {
        let task = &child.view.task;
        let writes = task.delegated_by.as_ref().is_some_and(|by| by.writes);
        table.add_row(vec![
            TableCell::new(task.id.to_string()),
            TableCell::new(task_rows::state_label(task)),
            TableCell::new(if writes { "merged" } else { "dropped" }),
            TableCell::new(&task.spec.title),
        ]);
    }
    display::print_line("");
    display::print_line(&cx.screen.paint(TextStyle::Bold, "gave away"));
    display::print_line(&table.render(cx.screen));
}
