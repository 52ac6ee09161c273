//! What runs gave away: the children of a task, as `docket show` lists them.

use crate::output::task_rows;
use docket_schema::{
    ids::{RunId, TaskId},
    message::CallId,
    wire::ChildView,
};
use serde::Serialize;

use crate::{
    context::Context,
    output::display::{self, Cell, Style, Table},
};

/// A child as `--json` shows it.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    call: CallId,
    task: TaskId,
    state: &'static str,
    writes: bool,
    run: Option<RunId>,
    title: String,
}

/// All of them, for `--json`.
pub(super) fn rows(children: &[ChildView]) -> Vec<Row> {
    let row = |child: &ChildView| Row {
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
pub(super) fn say(cx: &Context, children: &[ChildView]) {
    if children.is_empty() {
        return;
    }
    let mut table = Table::new(&["CHILD", "STATE", "CHANGES", "TITLE"]);
    for child in children {
        let task = &child.view.task;
        let writes = task.delegated_by.as_ref().is_some_and(|by| by.writes);
        table.row(vec![
            Cell::new(task.id.to_string()),
            Cell::new(task_rows::word(task)),
            Cell::new(if writes { "merged" } else { "dropped" }),
            Cell::new(&task.spec.title),
        ]);
    }
    display::say("");
    display::say(&cx.screen.paint(Style::Bold, "gave away"));
    display::say(&table.render(cx.screen));
}
