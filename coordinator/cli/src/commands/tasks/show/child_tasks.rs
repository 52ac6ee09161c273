//! The child tasks that a task's runs delegated to, for `docket show`.

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

/// A child in the output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct ChildRow {
    call: CallId,
    task: TaskId,
    state: &'static str,
    writes: bool,
    run: Option<RunId>,
    title: String,
}

/// Returns all children, for `--json`.
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

/// Prints the children, if there are any.
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
    display::print_line(&cx.screen.paint(TextStyle::Bold, "child tasks"));
    display::print_line(&table.render(cx.screen));
}
