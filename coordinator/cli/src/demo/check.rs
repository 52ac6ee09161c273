//! The demo's proof: every result made again from the log, and its tests run on it.

use crate::history::lineage;
use docket_sandbox::{CommandSpec, Ended};
use docket_schema::ids::{RunId, TaskId};
use docket_worker::client::Client;
use serde::Serialize;

use super::{stage::Staged, staging};
use crate::{
    context::Context,
    output::fail::{Exit, Failure, Outcome},
    samples::clean::Clean,
};

/// A task and what became of it.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    pub(super) project: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) id: TaskId,
    pub(super) run: RunId,
    pub(super) state: String,
    /// The project's tests pass on the tree that was made again.
    pub(super) green: bool,
    pub(super) leases: u64,
    pub(super) turns: u32,
}

/// Checks every task.
pub(super) async fn all(cx: &Context, client: &Client, tasks: &[Staged]) -> Outcome<Vec<Checked>> {
    let mut checked = Vec::new();
    for task in tasks {
        checked.push(one(cx, client, task).await?);
    }
    Ok(checked)
}

async fn one(cx: &Context, client: &Client, task: &Staged) -> Outcome<Checked> {
    let record = client.task(task.id).await?.task;
    let run = record
        .last_run
        .ok_or_else(|| Failure::new(Exit::Failed, format!("{} was never run", task.sample.name)))?;
    let state = lineage::fold(client, run).await?;
    let green = tests_pass(cx, client, task, &state).await?;
    Ok(Checked {
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
    cx: &Context,
    client: &Client,
    task: &Staged,
    state: &docket_schema::run::RunState,
) -> Outcome<bool> {
    let Some(pins) = state.pins.as_deref().filter(|_| state.tree.is_some()) else { return Ok(false) };
    let mut clean = Clean::of_base(cx, client, pins).await?;
    clean.go_to_result(client, pins, state).await?;
    let sandbox = clean.sandbox(cx).await?;
    let output = staging(sandbox.run(CommandSpec::shell(task.sample.tests.as_str())).await, "run the tests")?;
    Ok(output.ended == Ended::Exit(0))
}
