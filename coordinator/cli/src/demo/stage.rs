//! The demo's stage: repositories of the sample projects, their tasks in the queue, two workers.

use crate::history::blobs;
use std::{path::Path, time::Duration};

use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::{IncarnationId, TaskId},
    message::ModelRef,
    snapshot::Base,
    task::{Backoff, SettingsPatch, TaskSpec},
    wire::SubmitRequest,
};
use docket_worker::{
    client::Client,
    process::ChildHandle,
    workspace::{BlobSink as _, Source},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{say, staging};
use crate::{
    context::Context,
    output::fail::{Exit, Failure, Outcome},
    samples::{
        fixture,
        projects::{self, Project, SampleTask},
    },
    services::{supervise, worker},
};

/// A task of the demo in the queue.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    pub(super) id: TaskId,
    pub(super) project: String,
    pub(super) sample: SampleTask,
}

/// What stands on the stage.
pub(super) struct Stage {
    pub(super) tasks: Vec<Staged>,
    pub(super) left_out: Vec<String>,
}

/// Makes the repositories and submits their tasks, slow ones first.
pub(super) async fn prepare(cx: &Context, client: &Client) -> Outcome<Stage> {
    let repositories = cx.home.folder("demo")?;
    let (mut specs, mut staged, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let scratch = cx.home.folder("scratch")?;
    let made = supervise::sandbox_of((cx.config.sandbox, cx.config.limits), scratch).await;
    let (sandbox, _folder) =
        made.map_err(|why| Failure::new(Exit::Failed, format!("cannot make a sandbox: {why}")))?;
    for project in projects::all().iter().rev() {
        let missing = project.missing_programs(&sandbox).await?;
        if !missing.is_empty() {
            let text = format!(
                "{} is left out: {} does not work in a sandbox here",
                project.name,
                missing.join(", ")
            );
            say(cx, &text);
            left_out.push(text);
            continue;
        }
        let base = repository(cx, client, project, &repositories).await?;
        for sample in &project.tasks {
            specs.push(spec(client, project, sample, base.clone()).await?);
            let id = TaskId(docket_coordinator::clock::new_id());
            staged.push(Staged { id, project: project.name.clone(), sample: sample.clone() });
        }
        say(cx, &format!("{}: {}, {} tasks", project.name, project.what, project.tasks.len()));
    }
    let ids = staged.iter().map(|task| task.id).collect();
    client.submit(&SubmitRequest { tasks: specs, ids: Some(ids) }).await?;
    Ok(Stage { tasks: staged, left_out })
}

async fn repository(cx: &Context, client: &Client, project: &Project, parent: &Path) -> Outcome<Base> {
    let folder = parent.join(&project.name);
    // A home that was kept: the repository of the last demo is still there.
    if !folder.exists() {
        project.write_tree(parent)?;
        fixture::commit_all(&folder).await?;
    }
    fixture::pinned(cx, client, Source::Local(folder), None).await
}

async fn spec(client: &Client, project: &Project, sample: &SampleTask, base: Base) -> Outcome<TaskSpec> {
    let script = project.script(sample);
    let blob = BlobRef::of(script);
    let mut upload = blobs::Upload::new(client);
    staging(upload.put(blob, script.to_vec()).await, "store a script")?;
    staging(upload.flush().await, "store a script")?;
    let model: ModelRef = staging(format!("scripted:{}", sample.name).parse(), "name its model")?;
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
        requires: sample.requires.iter().filter_map(|path| WorkPath::new(path.as_str())).collect(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::Conditions::default(),
    })
}

/// The two workers, as processes of their own.
pub(super) struct Workers {
    running: Vec<(String, ChildHandle)>,
}

impl Workers {
    /// Starts them, one run at a time each.
    pub(super) async fn start(cx: &Context, address: &str) -> Outcome<Self> {
        let mut running = Vec::new();
        for name in ["one", "two"] {
            let child = worker::start_process(cx, address, name, 1).await?;
            say(cx, &format!("worker {name} is process {}", child.pid()));
            running.push((name.to_owned(), child));
        }
        Ok(Self { running })
    }

    /// Kills a worker's only run process; its id.
    pub(super) fn kill_run_of(&self, name: &str) -> Option<i32> {
        let (_, worker) = self.running.iter().find(|(worker, _)| worker == name)?;
        let run = worker::run_process_of(worker.pid())?;
        kill(Pid::from_raw(run), Signal::SIGKILL).ok().map(|()| run)
    }

    /// Kills a worker; its id.
    pub(super) fn kill_worker(&mut self, name: &str) -> Option<i32> {
        let (_, worker) = self.running.iter().find(|(worker, _)| worker == name)?;
        kill(Pid::from_raw(worker.pid()), Signal::SIGKILL).ok().map(|()| worker.pid())
    }

    /// Ends those that are left.
    pub(super) async fn end(self, grace: Duration) {
        for (_, mut worker) in self.running {
            // Whatever it says: it is reaped.
            drop(worker.terminate(grace).await);
        }
    }
}

/// The name of the worker with this incarnation.
pub(super) async fn name_of(client: &Client, worker: IncarnationId) -> Outcome<Option<String>> {
    let status = client.status().await?;
    Ok(status.workers.into_iter().find(|known| known.incarnation == worker).map(|known| known.name))
}
