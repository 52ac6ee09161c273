//! A coordinator with a worker on which tasks of every engine are played to their ends, and on from there.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::TaskId, run::RunEvent, task::TaskState};
use docket_tests::system::{Coordinator, History, LeaseTime, Place, Sample, Worker, WorkerOptions, until};

use super::FILES;

/// See the module.
pub(super) struct Stage {
    pub(super) coordinator: Coordinator,
    pub(super) worker: Worker,
}

impl Stage {
    pub(super) async fn set(settings: &str) -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
        let options = WorkerOptions { settings: settings.to_owned(), slots: 2, ..WorkerOptions::default() };
        let worker = Worker::start(&coordinator, &options).await?;
        Ok(Self { coordinator, worker })
    }

    /// A task on the usual files, and the number that `f` must give at least.
    pub(super) async fn submit(
        &self,
        engine: &str,
        script: &str,
        least: &str,
        more: &[&str],
    ) -> Result<TaskId> {
        let files = [&FILES[..], &[("least", least), (".gitignore", "__pycache__/\nhere\n")]].concat();
        let sample = Sample::new(&files)?;
        let script = sample.script(script)?;
        let script = script.to_str().context("UTF-8")?;
        let args = ["--model", "scripted:x", "--script", script, "--engine", engine, "--attempts", "1"];
        Ok(sample.submit(&self.coordinator, &[&args[..], more].concat()).await?.0)
    }

    /// Waits for the end; gives the history, which is verified, once it is as it should be.
    pub(super) async fn ends(&self, task: TaskId, state: TaskState) -> Result<History> {
        let view = self.coordinator.ended(task).await.with_context(|| self.worker.tail())?.task;
        let history = self.coordinator.history(view.last_run.context("a run")?).await?;
        ensure!(view.state == state, "{:?}: {:?}; {}", view.state, view.message, history.kinds());
        history.verify(self.coordinator.client()).await?;
        Ok(history)
    }

    /// Waits until a person is asked.
    pub(super) async fn asks(&self, task: TaskId) -> Result<()> {
        let view = until("a task that rests or ends", async || {
            let view = self.coordinator.client().task(task).await.ok()?.task;
            (view.state == TaskState::Blocked || view.state.is_ended()).then_some(view)
        });
        let view = view.await.with_context(|| self.worker.tail())?;
        ensure!(view.state == TaskState::Blocked, "{:?}: {:?}", view.state, view.message);
        Ok(())
    }

    pub(super) async fn docket(&self, args: &[&str]) -> Result<String> {
        self.coordinator.docket(args).await?.ok()
    }

    /// What `f` gives in the end.
    pub(super) async fn gives(&self, task: TaskId, number: u32) -> Result<()> {
        let cat = self.coordinator.docket(&["cat", &task.to_string(), "a.py"]).await?.ok()?;
        ensure!(cat.contains(&format!("return {number}")), "{cat}");
        Ok(())
    }

    pub(super) async fn end(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

/// What a run that goes on from another did by itself.
pub(super) fn own(history: &History) -> Result<&[RunEvent]> {
    let forked = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)));
    Ok(&history.events[forked.context("it stands on another")?..])
}
