//! The demo's proof: every result made again from the log, and its tests run on it.

use docket_schema::ids::{RunId, TaskId};
use docket_worker::{
    client::Client,
    sandbox::{CommandSpec, Ended, Sandbox, SandboxConfig, workspace_owner},
    workspace::{Owner, RestoreTarget, WorkspaceOptions, materialize, restore},
};
use serde::Serialize;

use super::{stage::Staged, staging};
use crate::{
    context::Context,
    delivery::Remote,
    fail::{Exit, Failure, Outcome},
    show, supervise,
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
    let state = show::fold(client, run).await?;
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
    let (Some(pins), Some(tree)) = (&state.pins, state.tree) else { return Ok(false) };
    let blobs = Remote(client);
    let folder = staging(
        tempfile::Builder::new().prefix("check-").tempdir_in(cx.home.folder("scratch")?),
        "make a folder",
    )?;
    let owner = workspace_owner().map(|(uid, gid)| Owner { uid, gid });
    let options = WorkspaceOptions { owner, ..WorkspaceOptions::new(cx.home.folder("cache")?) };
    let root = folder.path().join("workspace");
    let mut workspace = staging(materialize(&root, &pins.base, &blobs, &options).await, "make a workspace")?;
    let target =
        RestoreTarget { overlay: &state.overlay, git_overlay: &state.git_overlay, left_out: &[], tree };
    staging(restore(&mut workspace, &target, &blobs).await, "make the result again")?;
    let config = SandboxConfig::new(supervise::backend(cx.config.sandbox), &root);
    let sandbox = staging(Sandbox::prepare(config).await, "make a sandbox")?;
    let output = staging(sandbox.run(CommandSpec::shell(task.sample.tests.as_str())).await, "run the tests")?;
    Ok(output.ended == Ended::Exit(0))
}
