//! A coordinator with a worker on which tasks of every engine are played to their ends, and on from there.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::TaskId, run::RunEvent, task::TaskState};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
    WorkerProcess, wait_until,
};

use super::FILES;

/// See the module.
pub(super) struct EngineFixture {
    pub(super) coordinator: CoordinatorProcess,
    pub(super) worker: WorkerProcess,
}

impl EngineFixture {
    pub(super) async fn new(settings: &str) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let options = WorkerOptions { settings: settings.to_owned(), slots: 2, ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        Ok(Self { coordinator, worker })
    }

    /// A task on the usual files, and the number that `f` must give at least.
    pub(super) async fn submit_task(
        &self,
        engine: &str,
        script: &str,
        least: &str,
        more: &[&str],
    ) -> Result<TaskId> {
        let files = [&FILES[..], &[("least", least), (".gitignore", "__pycache__/\nhere\n")]].concat();
        let sample = SampleRepository::new(&files)?;
        let script = sample.write_script(script)?;
        let script = script.to_str().context("UTF-8")?;
        let args = ["--model", "scripted:x", "--script", script, "--engine", engine, "--attempts", "1"];
        Ok(sample.submit(&self.coordinator, &[&args[..], more].concat()).await?.0)
    }

    /// Waits for the end; gives the history, which is verified, once it is as it should be.
    pub(super) async fn wait_for_verified_end(&self, task: TaskId, state: TaskState) -> Result<RunHistory> {
        let view =
            self.coordinator.wait_until_ended(task).await.with_context(|| self.worker.log_tail())?.task;
        let history = self.coordinator.run_history(view.last_run.context("a run")?).await?;
        ensure!(view.state == state, "{:?}: {:?}; {}", view.state, view.message, history.format_kinds());
        history.verify(self.coordinator.client()).await?;
        Ok(history)
    }

    /// Waits until a person is asked.
    pub(super) async fn wait_until_blocked(&self, task: TaskId) -> Result<()> {
        let view = wait_until("a task that rests or ends", async || {
            let view = self.coordinator.client().get_task(task).await.ok()?.task;
            (view.state == TaskState::Blocked || view.state.is_ended()).then_some(view)
        });
        let view = view.await.with_context(|| self.worker.log_tail())?;
        ensure!(view.state == TaskState::Blocked, "{:?}: {:?}", view.state, view.message);
        Ok(())
    }

    pub(super) async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout()
    }

    /// What `f` gives in the end.
    pub(super) async fn assert_result(&self, task: TaskId, number: u32) -> Result<()> {
        let cat = self.coordinator.run_docket(&["cat", &task.to_string(), "a.py"]).await?.into_stdout()?;
        ensure!(cat.contains(&format!("return {number}")), "{cat}");
        Ok(())
    }

    pub(super) async fn shut_down(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

/// What a run that goes on from another did by itself.
pub(super) fn own_events(history: &RunHistory) -> Result<&[RunEvent]> {
    let forked = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)));
    Ok(&history.events[forked.context("it stands on another")?..])
}
