//! The demo's setup: repositories of the sample projects, their tasks in the queue, two workers.

use crate::history::blobs;
use std::{path::Path, time::Duration};

use docket_schema::{
    api::SubmitRequest,
    content::{BlobRef, WorkspacePath},
    ids::{IncarnationId, TaskId},
    message::ModelRef,
    snapshot::WorkspaceBase,
    task::{Backoff, SettingsPatch, TaskSpec},
};
use docket_worker::{
    client::CoordinatorClient,
    process::ChildHandle,
    workspace::{BaseSource, BlobSink as _},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{map_setup_error, print_line};
use crate::{
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind},
    samples::{
        fixture,
        projects::{self, SampleProject, SampleTask},
    },
    services::{worker, worker_supervisor},
};

/// A task of the demo in the queue.
#[derive(Debug, Clone)]
pub(super) struct DemoTask {
    pub(super) id: TaskId,
    pub(super) project: String,
    pub(super) sample: SampleTask,
}

/// The prepared demo.
pub(super) struct DemoSetup {
    pub(super) tasks: Vec<DemoTask>,
    pub(super) skipped_projects: Vec<String>,
}

/// Creates the repositories and submits their tasks, slow ones first.
pub(super) async fn prepare_demo(cx: &CliContext, client: &CoordinatorClient) -> CliResult<DemoSetup> {
    let repositories = cx.home.ensure_folder("demo")?;
    let (mut specs, mut staged, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let scratch = cx.home.ensure_folder("scratch")?;
    let made =
        worker_supervisor::prepare_sandbox((cx.config.sandbox, cx.config.sandbox_limits), scratch).await;
    let (sandbox, _folder) =
        made.map_err(|why| CliError::new(ExitKind::Failed, format!("cannot create a sandbox: {why}")))?;
    for project in projects::sample_projects().iter().rev() {
        let missing = project.missing_programs(&sandbox).await?;
        if !missing.is_empty() {
            let text = format!(
                "{} is left out: {} does not work in a sandbox here",
                project.name,
                missing.join(", ")
            );
            print_line(cx, &text);
            left_out.push(text);
            continue;
        }
        let base = prepare_repository(cx, client, project, &repositories).await?;
        for sample in &project.tasks {
            specs.push(build_task_spec(client, project, sample, base.clone()).await?);
            let id = TaskId(docket_coordinator::clock::new_id());
            staged.push(DemoTask { id, project: project.name.clone(), sample: sample.clone() });
        }
        print_line(cx, &format!("{}: {}, {} tasks", project.name, project.what, project.tasks.len()));
    }
    let ids = staged.iter().map(|task| task.id).collect();
    client.submit(&SubmitRequest { tasks: specs, ids: Some(ids) }).await?;
    Ok(DemoSetup { tasks: staged, skipped_projects: left_out })
}

async fn prepare_repository(
    cx: &CliContext,
    client: &CoordinatorClient,
    project: &SampleProject,
    parent: &Path,
) -> CliResult<WorkspaceBase> {
    let folder = parent.join(&project.name);
    // A home that was kept still contains the repository of the last demo.
    if !folder.exists() {
        project.write_tree(parent)?;
        fixture::commit_all(&folder).await?;
    }
    fixture::pin_fixture(cx, client, BaseSource::Local(folder), None).await
}

async fn build_task_spec(
    client: &CoordinatorClient,
    project: &SampleProject,
    sample: &SampleTask,
    base: WorkspaceBase,
) -> CliResult<TaskSpec> {
    let script = project.script_for(sample);
    let blob = BlobRef::for_bytes(script);
    let mut upload = blobs::BlobUpload::new(client);
    map_setup_error(upload.put(blob, script.to_vec()).await, "store a script")?;
    map_setup_error(upload.flush().await, "store a script")?;
    let model: ModelRef = map_setup_error(format!("scripted:{}", sample.name).parse(), "name its model")?;
    Ok(TaskSpec {
        title: sample.title.clone(),
        text: sample.text.clone(),
        queue: docket_schema::ids::QueueName::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 1,
        crashes_max: 5,
        backoff: Backoff::default(),
        base,
        engine: "react".to_owned(),
        model,
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: Some(blob),
        settings: SettingsPatch::default(),
        tests: Some(sample.tests.clone()),
        requires: sample.requires.iter().filter_map(|path| WorkspacePath::new(path.as_str())).collect(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::LeaseConditions::default(),
    })
}

/// The two workers, as separate processes.
pub(super) struct DemoWorkers {
    running: Vec<(String, ChildHandle)>,
}

impl DemoWorkers {
    /// Starts them with one slot each.
    pub(super) async fn start(cx: &CliContext, address: &str) -> CliResult<Self> {
        let mut running = Vec::new();
        for name in ["one", "two"] {
            let child = worker::start_worker_process(cx, address, name, 1).await?;
            print_line(cx, &format!("worker {name} is process {}", child.pid()));
            running.push((name.to_owned(), child));
        }
        Ok(Self { running })
    }

    /// Kills a worker's only run process and returns its id.
    pub(super) fn kill_run_process(&self, name: &str) -> Option<i32> {
        let (_, worker) = self.running.iter().find(|(worker, _)| worker == name)?;
        let run = worker::find_run_process(worker.pid())?;
        kill(Pid::from_raw(run), Signal::SIGKILL).ok().map(|()| run)
    }

    /// Kills a worker and returns its id.
    pub(super) fn kill_worker(&mut self, name: &str) -> Option<i32> {
        let (_, worker) = self.running.iter().find(|(worker, _)| worker == name)?;
        kill(Pid::from_raw(worker.pid()), Signal::SIGKILL).ok().map(|()| worker.pid())
    }

    /// Stops the remaining workers.
    pub(super) async fn stop(self, grace: Duration) {
        for (_, mut worker) in self.running {
            // The exit status does not matter; the process is reaped.
            drop(worker.terminate(grace).await);
        }
    }
}

/// Returns the name of the worker with this incarnation.
pub(super) async fn worker_name(
    client: &CoordinatorClient,
    worker: IncarnationId,
) -> CliResult<Option<String>> {
    let status = client.get_status().await?;
    Ok(status.workers.into_iter().find(|known| known.incarnation == worker).map(|known| known.name))
}
