//! What keeps a task from running, through the binary: dependencies, keys, labels, paused and drained queues, drained
//! workers, and `docket why` at each of them.

use anyhow::{Context as _, Result, ensure};
use docket_schema::task::TaskState;
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot, wait_until,
};
use serde_json::Value;

/// Waits until somebody lets it go on.
const WAITS: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "until [ -e go ]; do sleep 0.02; done; rm go" }
[[turns]]
text = "Done."
"#;

const QUICK: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
[[turns]]
text = "Done."
"#;

struct BlockingFixture {
    coordinator: CoordinatorProcess,
    sample: SampleRepository,
}

impl BlockingFixture {
    async fn submit_task(&self, script: &str, args: &[&str]) -> Result<String> {
        let script = self.sample.write_script(script)?;
        let (repo, script) =
            (self.sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
        let common = [
            "submit",
            "task",
            "--repo",
            repo,
            "--model",
            "scripted:s",
            "--script",
            script,
            "--tests",
            "true",
        ];
        let all: Vec<&str> = common.iter().chain(args).copied().collect();
        Ok(self.coordinator.run_docket(&all).await?.into_stdout()?.trim().to_owned())
    }

    async fn why_output(&self, task: &str) -> Result<(String, String)> {
        let said = self.coordinator.run_docket(&["why", task, "--json"]).await?.into_stdout()?;
        let why: Value = serde_json::from_str(&said)?;
        let text = self.coordinator.run_docket(&["why", task]).await?.into_stdout()?;
        ensure!(text.trim().lines().count() == 1, "one line: {text}");
        Ok((why["kind"].as_str().context("a kind")?.to_owned(), text))
    }

    async fn assert_kept_by(&self, task: &str, kind: &str, words: &str) -> Result<()> {
        let (found, text) = self.why_output(task).await?;
        ensure!(found == kind && text.contains(words), "{kind}, {words}: {found}, {text}");
        Ok(())
    }

    async fn wait_for_state(&self, task: &str, state: TaskState) -> Result<()> {
        let id = task.parse()?;
        let reached = wait_until("a state", async || {
            let view = self.coordinator.client().get_task(id).await.ok()?;
            (view.task.state == state).then_some(())
        });
        match reached.await {
            Ok(()) => Ok(()),
            Err(error) => {
                Err(error.context(format!("{task} is not {state}: {}", self.why_output(task).await?.1)))
            }
        }
    }

    /// Lets the one run that waits go on.
    async fn release_run(&self, worker: &WorkerProcess) -> Result<()> {
        let folder = wait_until("a workspace", async || worker.workspaces().into_iter().next()).await?;
        Ok(std::fs::write(folder.join("go"), "")?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_the_blocker_in_one_line_and_its_remedy_works() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let stage = BlockingFixture { coordinator, sample: SampleRepository::new(&[("a.txt", "a\n")])? };
    let docket = async |args: &[&str]| stage.coordinator.run_docket(args).await?.into_stdout();

    let first = stage.submit_task(WAITS, &["--key", "branch/main"]).await?;
    stage.assert_kept_by(&first, "no_worker", "docket worker").await?;
    let env = vec![("DOCKET_LABELS".to_owned(), "gpu=a100".to_owned())];
    let worker = WorkerProcess::start(
        &stage.coordinator,
        &WorkerOptions { slots: 2, env, ..WorkerOptions::default() },
    )
    .await?;
    stage.wait_for_state(&first, TaskState::Running).await?;
    stage.assert_kept_by(&first, "runs", "is running on worker").await?;

    let second = stage.submit_task(QUICK, &["--key", "branch/main"]).await?;
    stage.assert_kept_by(&second, "key_full", "branch/main").await?;
    let after = stage.submit_task(QUICK, &["--after", &second]).await?;
    stage.assert_kept_by(&after, "dependencies", &second).await?;
    let elsewhere = stage.submit_task(QUICK, &["--selector", "gpu=h100"]).await?;
    stage.assert_kept_by(&elsewhere, "none_serves", "gpu=h100").await?;
    let labelled = stage.submit_task(QUICK, &["--selector", "gpu=a100"]).await?;
    stage.wait_for_state(&labelled, TaskState::Completed).await?;
    let later = stage.submit_task(QUICK, &["--at", "2999-01-01T00:00:00Z"]).await?;
    stage.assert_kept_by(&later, "schedule", "2999").await?;

    // A key that is free, and what waited for its holder in turn.
    stage.release_run(&worker).await?;
    for task in [&first, &second, &after] {
        stage.wait_for_state(task, TaskState::Completed).await?;
    }
    stage.assert_kept_by(&after, "ended", "completed").await?;

    // A queue that is paused, limited, drained.
    ensure!(docket(&["queue", "pause", "slow"]).await?.contains("is paused"));
    let paused = stage.submit_task(WAITS, &["--queue", "slow"]).await?;
    stage.assert_kept_by(&paused, "queue_paused", "docket queue unpause slow").await?;
    docket(&["queue", "set", "slow", "--max", "1"]).await?;
    docket(&["queue", "unpause", "slow"]).await?;
    stage.wait_for_state(&paused, TaskState::Running).await?;
    let full = stage.submit_task(QUICK, &["--queue", "slow"]).await?;
    stage.assert_kept_by(&full, "queue_full", "the limit is 1").await?;
    let listed = docket(&["queue"]).await?;
    ensure!(listed.contains("slow") && listed.contains("MAX"), "{listed}");
    let drained = stage.coordinator.run_docket(&["queue", "drain", "slow", "--timeout", "1s"]).await?;
    ensure!(drained.code() == Some(1) && drained.stderr.contains("still running"), "{drained:?}");
    stage.release_run(&worker).await?;
    docket(&["queue", "drain", "slow"]).await?;
    stage.assert_kept_by(&full, "queue_paused", "slow").await?;
    docket(&["queue", "unpause", "slow"]).await?;
    stage.wait_for_state(&full, TaskState::Completed).await?;
    let logged = docket(&["logs", "queue/slow"]).await?;
    ensure!(logged.matches("QueueSet").count() >= 5, "{logged}");

    // A worker that has no room, and one that is told to end.
    let busy = [stage.submit_task(WAITS, &[]).await?, stage.submit_task(WAITS, &[]).await?];
    for task in &busy {
        stage.wait_for_state(task, TaskState::Running).await?;
    }
    let waiting = stage.submit_task(QUICK, &[]).await?;
    let kept = wait_until("no room", async || {
        stage.assert_kept_by(&waiting, "no_room", "slots are taken").await.ok()
    });
    kept.await?;
    let workers = docket(&["workers"]).await?;
    ensure!(workers.contains("gpu=a100") && workers.contains("slots are taken"), "{workers}");
    let listed = docket(&["workers", "--json"]).await?;
    let known: Value = serde_json::from_str(listed.lines().next().context("a worker")?)?;
    let incarnation = known["incarnation"].as_str().context("its id")?.to_owned();
    docket(&["workers", "drain", &incarnation]).await?;
    for folder in worker.workspaces() {
        std::fs::write(folder.join("go"), "")?;
    }
    worker.wait_for_exit().await?;
    for task in &busy {
        let view = stage.coordinator.client().get_task(task.parse()?).await?;
        ensure!(
            matches!(view.task.state, TaskState::Available | TaskState::Completed),
            "{:?}",
            view.task.state
        );
        ensure!((view.task.failures, view.task.crashes) == (0, 0), "nothing is counted");
    }
    let nobody = stage.coordinator.run_docket(&["workers", "drain", "nobody"]).await?;
    ensure!(nobody.code() == Some(3), "{nobody:?}");
    let audit = docket(&["logs", "system/audit"]).await?;
    ensure!(audit.contains(&format!("drained worker {incarnation}")), "{audit}");
    stage.coordinator.end_and_check().await
}
