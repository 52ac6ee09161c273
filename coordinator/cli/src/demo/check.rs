//! The demo's check: every result is rebuilt from the log, and its tests are run on it.

use crate::history::lineage;
use docket_sandbox::{CommandExit, CommandSpec};
use docket_schema::ids::{RunId, TaskId};
use docket_worker::client::CoordinatorClient;
use serde::Serialize;

use super::{map_setup_error, setup::DemoTask};
use crate::{
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind},
    samples::clean_checkout::CleanCheckout,
};

/// A task and its outcome.
#[derive(Debug, Serialize)]
pub(super) struct TaskCheck {
    pub(super) project: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) id: TaskId,
    pub(super) run: RunId,
    pub(super) state: String,
    /// Whether the project's tests pass on the rebuilt tree.
    pub(super) green: bool,
    pub(super) leases: u64,
    pub(super) turns: u32,
}

pub(super) async fn check_tasks(
    cx: &CliContext,
    client: &CoordinatorClient,
    tasks: &[DemoTask],
) -> CliResult<Vec<TaskCheck>> {
    let mut checked = Vec::new();
    for task in tasks {
        checked.push(check_task(cx, client, task).await?);
    }
    Ok(checked)
}

async fn check_task(cx: &CliContext, client: &CoordinatorClient, task: &DemoTask) -> CliResult<TaskCheck> {
    let record = client.get_task(task.id).await?.task;
    let run = record
        .last_run
        .ok_or_else(|| CliError::new(ExitKind::Failed, format!("{} never ran", task.sample.name)))?;
    let state = lineage::fold_run(client, run).await?;
    let green = tests_pass(cx, client, task, &state).await?;
    Ok(TaskCheck {
        project: task.project.clone(),
        name: task.sample.name.clone(),
        title: task.sample.title.clone(),
        id: task.id,
        run,
        state: record.state.to_string(),
        green: green && record.state == docket_schema::task::TaskState::Completed,
        leases: record.epoch.0,
        turns: state.turn.0,
    })
}

async fn tests_pass(
    cx: &CliContext,
    client: &CoordinatorClient,
    task: &DemoTask,
    state: &docket_schema::run::RunState,
) -> CliResult<bool> {
    let Some(pins) = state.pins.as_deref().filter(|_| state.tree.is_some()) else { return Ok(false) };
    let mut clean = CleanCheckout::from_base(cx, client, pins).await?;
    clean.restore_result(client, pins, state).await?;
    let sandbox = clean.prepare_sandbox(cx).await?;
    let output =
        map_setup_error(sandbox.run(CommandSpec::shell(task.sample.tests.as_str())).await, "run the tests")?;
    Ok(output.exit == CommandExit::Exit(0))
}
