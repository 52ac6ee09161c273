//! `docket up` as the one process of a machine: killed and started again, and what it makes of `--branch`.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::TaskQuery, task::TaskState};
use docket_tests::system::{
    CoordinatorProcess, DocketTerminal, FinishedProcess, LeaseDuration, RunningProcess, SampleRepository,
    Signal, StoreLocation, TestProgram, WorkerOptions, WorkerProcess, acquire_scenario_slot, run_program,
    send_signal, wait_until,
};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "chmod 755 tool && ln -s a.txt link" } }]
[[turns]]
text = "Done."
"#;

/// A home, and a repository that tasks come from.
struct UpHome {
    home: tempfile::TempDir,
    sample: SampleRepository,
}

impl UpHome {
    fn new() -> Result<Self> {
        let sample = SampleRepository::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
        Ok(Self { home: tempfile::tempdir()?, sample })
    }

    /// Starts `docket up` with the usual lease of half a minute, dying where `failpoints` say.
    async fn start_up(&self, failpoints: &Value) -> Result<RunningProcess> {
        let failpoints = failpoints.to_string();
        let env = [("DOCKET_FAILPOINTS", OsStr::new(&failpoints))];
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(RunningProcess::start_docket("up", self.home.path(), &env, &args).await?.0)
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let home = self.home.path();
        run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    }

    async fn submit_task(&self, more: &[&str]) -> Result<String> {
        let script = self.sample.write_script(SCRIPT)?;
        let repo = self.sample.path().to_str().context("UTF-8")?;
        let script = script.to_str().context("UTF-8")?;
        let args =
            ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:up", "--script", script];
        let row: Value =
            serde_json::from_str(&self.run_docket(&[&args[..], more].concat()).await?.into_stdout()?)?;
        Ok(row["id"].as_str().context("an id")?.to_owned())
    }

    async fn wait_until_ended(&self, task: &str) -> Result<Value> {
        wait_until("the end of a task", async || {
            let row = self.run_docket(&["show", task, "--json"]).await.ok()?.into_stdout().ok()?;
            let row: Value = serde_json::from_str(&row).ok()?;
            ["completed", "discarded", "cancelled"].contains(&row["state"].as_str()?).then_some(row)
        })
        .await
    }

    async fn run_git(&self, args: &[&str]) -> Result<FinishedProcess> {
        run_program(TestProgram::Git, self.sample.path(), &[], args).await
    }
}

/// The kinds of a task's events, in order.
fn event_kinds(log: &str) -> Result<Vec<String>> {
    let kind =
        |line: &str| Ok(serde_json::from_str::<Value>(line)?["kind"].as_str().context("a kind")?.to_owned());
    log.lines().map(kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_a_killed_predecessor_are_reclaimed_at_once() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = UpHome::new()?;
    // The run process kills `docket up` and itself, in the middle of the run.
    let mut killed =
        house.start_up(&json!([{ "seq": 6, "when": "after", "epoch": 1, "whom": "supervisor" }])).await?;
    let task = house.submit_task(&[]).await?;
    let status = killed.wait().await?;
    ensure!(status.code().is_none(), "it was killed: {status}\n{}", killed.log_tail());

    let next = house.start_up(&json!([])).await?;
    let row = house.wait_until_ended(&task).await.with_context(|| next.log_tail())?;
    ensure!(row["state"] == "completed" && row["epoch"] == 2, "{row}");
    ensure!(row["failures"] == 0 && row["crashes"] == 0, "nobody is blamed: {row}");
    let log = house.run_docket(&["logs", &task, "--json"]).await?.into_stdout()?;
    let expected = ["TaskSubmitted", "TaskLeased", "TaskReleased", "TaskLeased", "TaskCompleted"];
    // A lease that was waited out would have left `TaskLeaseExpired`.
    ensure!(event_kinds(&log)? == expected, "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requested_branch_is_created_on_completion() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = UpHome::new()?;
    let up = house.start_up(&json!([])).await?;
    let plain = house.submit_task(&[]).await?;
    let branched = house.submit_task(&["--branch", "fix/it"]).await?;
    let (plain, branched) = (house.wait_until_ended(&plain).await?, house.wait_until_ended(&branched).await?);
    ensure!(plain["state"] == "completed" && branched["state"] == "completed", "{plain} {branched}");
    let commit = wait_until("the branch", async || {
        let done = house.run_git(&["rev-parse", "--verify", "--quiet", "refs/heads/fix/it"]).await.ok()?;
        done.success().then(|| done.stdout.trim().to_owned())
    });
    let commit = commit.await.with_context(|| up.log_tail())?;
    let id = branched["id"].as_str().context("an id")?;
    let message = house.run_git(&["log", "-1", "--format=%B", &commit]).await?.into_stdout()?;
    ensure!(message.contains(&format!("Docket-Task: {id}")), "{message}");
    let changed = house.run_git(&["diff", "--name-status", "main", &commit]).await?.into_stdout()?;
    ensure!(changed == "A\ta.txt\nA\tlink\nM\ttool\n", "{changed}");
    let branches = house.run_git(&["for-each-ref", "--format=%(refname)"]).await?.into_stdout()?;
    ensure!(branches == "refs/heads/fix/it\nrefs/heads/main\n", "only what was asked for: {branches}");
    let nowhere = house.run_docket(&["apply", id, "--repo", "/does/not/exist"]).await?;
    let told = nowhere.stderr.contains("/does/not/exist") && nowhere.stderr.contains("check that it exists");
    ensure!(nowhere.code() == Some(4) && told, "{nowhere:?}");
    ensure!(
        house.run_git(&["status", "--porcelain"]).await?.into_stdout()?.is_empty(),
        "the work tree stays as it is"
    );
    ensure!(!Path::new(house.sample.path()).join("a.txt").exists(), "the work tree stays as it is");
    Ok(())
}

/// `docket run` for a coordinator elsewhere that has no worker: it says what it waits for, and, interrupted, where the
/// task is; a worker that comes later does it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_without_a_worker_says_so_and_reports_on_interrupt() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Do it", "--repo", repo, "--model", "scripted:run", "--script", script];
    let home = tempfile::tempdir()?;
    let env = [
        ("DOCKET_HOME", home.path().as_os_str()),
        ("DOCKET_URL", OsStr::new(coordinator.address())),
        ("DOCKET_TOKEN", OsStr::new(coordinator.token())),
    ];
    let mut terminal = DocketTerminal::start(home.path(), &env, &args)?;
    terminal
        .wait_for_text("is available in queue default; no worker has taken it yet; start one with")
        .await?;
    send_signal(terminal.pid()?, Signal::SIGINT);
    let status = terminal.wait().await?;
    terminal.wait_for_text("waits for a worker").await?;
    ensure!(status.code() == Some(1), "{status}: {}", terminal.full_output());

    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let tasks = coordinator.client().list_tasks(&TaskQuery::default()).await?.tasks;
    let [task] = &tasks[..] else { anyhow::bail!("one task: {tasks:?}") };
    let view = coordinator.wait_until_ended(task.id).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task);
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// In a home whose coordinator has no worker, `docket run` works by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_in_a_served_home_needs_no_other_worker() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Do it", "--repo", repo, "--model", "scripted:run", "--script", script];
    let done = coordinator.run_docket(&args).await?;
    ensure!(done.success() && done.stdout.contains("+++ b/a.txt"), "{done:?}");
    ensure!(done.stderr.contains("`docket serve` (process"), "{done:?}");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_a_killed_docket_run_are_reclaimed_at_once() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = UpHome::new()?;
    let script = house.sample.write_script(
        r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "touch middle; sleep 3" } }]
[[turns]]
text = "Done."
"#,
    )?;
    let (repo, script) = (house.sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Do it", "--repo", repo, "--model", "scripted:run", "--script", script];
    let env = [("DOCKET_HOME", house.home.path().as_os_str())];
    let mut terminal = DocketTerminal::start(house.home.path(), &env, &args)?;
    terminal.wait_for_text("turn 1").await?;
    send_signal(terminal.pid()?, Signal::SIGKILL);
    terminal.wait().await?;

    let next = house.start_up(&json!([])).await?;
    // One task, on one line.
    let row: Value = serde_json::from_str(&house.run_docket(&["ps", "--json"]).await?.into_stdout()?)?;
    let task = row["id"].as_str().context("an id")?;
    let row = house.wait_until_ended(task).await.with_context(|| next.log_tail())?;
    ensure!(row["state"] == "completed" && row["epoch"] == 2, "{row}");
    let log = house.run_docket(&["logs", task, "--json"]).await?.into_stdout()?;
    let expected = ["TaskSubmitted", "TaskLeased", "TaskReleased", "TaskLeased", "TaskCompleted"];
    ensure!(event_kinds(&log)? == expected, "{log}");
    Ok(())
}

/// Somebody elsewhere drains its worker: what waits is not left without a coordinator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_up_continues_as_a_coordinator() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = UpHome::new()?;
    let mut up = house.start_up(&json!([])).await?;
    let worker = wait_until("its worker", async || {
        let listed = house.run_docket(&["workers", "--json"]).await.ok()?.into_stdout().ok()?;
        serde_json::from_str::<Value>(listed.lines().next()?).ok()
    });
    let worker = worker.await?;
    let name = worker["name"].as_str().context("a name")?;
    house.run_docket(&["workers", "drain", name, "--wait"]).await?.into_stdout()?;
    wait_until("its word", async || up.read_log().contains("continues as a coordinator").then_some(()))
        .await?;
    let task = house.submit_task(&[]).await?;
    let why = house.run_docket(&["why", &task]).await?.into_stdout()?;
    ensure!(why.contains("no worker has been heard from recently"), "{why}");
    let (mut other, _) =
        RunningProcess::start_docket("worker", house.home.path(), &[], &["worker", "--slots", "1"]).await?;
    let row = house.wait_until_ended(&task).await.with_context(|| other.log_tail())?;
    ensure!(row["state"] == "completed", "{row}");
    for process in [&mut other, &mut up] {
        send_signal(process.pid(), Signal::SIGTERM);
        ensure!(process.wait().await?.success(), "{}", process.log_tail());
    }
    Ok(())
}
