//! `docket up` as the one process of a machine: killed and started again, and what it makes of `--branch`.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{task::TaskState, wire::TaskQuery};
use docket_tests::system::{
    Coordinator, Finished, LeaseTime, Place, Proc, Sample, Signal, Terminal, Tool, Worker, WorkerOptions,
    room, run, send, until,
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
struct House {
    home: tempfile::TempDir,
    sample: Sample,
}

impl House {
    fn new() -> Result<Self> {
        let sample = Sample::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
        Ok(Self { home: tempfile::tempdir()?, sample })
    }

    /// Starts `docket up` with the usual lease of half a minute, dying where `failpoints` say.
    async fn up(&self, failpoints: &Value) -> Result<Proc> {
        let failpoints = failpoints.to_string();
        let env = [("DOCKET_FAILPOINTS", OsStr::new(&failpoints))];
        let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
        Ok(Proc::start("up", self.home.path(), &env, &args).await?.0)
    }

    async fn docket(&self, args: &[&str]) -> Result<Finished> {
        let home = self.home.path();
        run(Tool::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    }

    async fn submit(&self, more: &[&str]) -> Result<String> {
        let script = self.sample.script(SCRIPT)?;
        let repo = self.sample.path().to_str().context("UTF-8")?;
        let script = script.to_str().context("UTF-8")?;
        let args =
            ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:up", "--script", script];
        let row: Value = serde_json::from_str(&self.docket(&[&args[..], more].concat()).await?.ok()?)?;
        Ok(row["id"].as_str().context("an id")?.to_owned())
    }

    async fn ended(&self, task: &str) -> Result<Value> {
        until("the end of a task", async || {
            let row = self.docket(&["show", task, "--json"]).await.ok()?.ok().ok()?;
            let row: Value = serde_json::from_str(&row).ok()?;
            ["completed", "discarded", "cancelled"].contains(&row["state"].as_str()?).then_some(row)
        })
        .await
    }

    async fn git(&self, args: &[&str]) -> Result<Finished> {
        run(Tool::Git, self.sample.path(), &[], args).await
    }
}

/// The kinds of a task's events, in order.
fn kinds(log: &str) -> Result<Vec<String>> {
    let kind =
        |line: &str| Ok(serde_json::from_str::<Value>(line)?["kind"].as_str().context("a kind")?.to_owned());
    log.lines().map(kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_predecessor_held_is_taken_back_at_once() -> Result<()> {
    let _room = room().await;
    let house = House::new()?;
    // The run process kills `docket up` and itself, in the middle of the run.
    let mut killed =
        house.up(&json!([{ "seq": 6, "when": "after", "epoch": 1, "whom": "supervisor" }])).await?;
    let task = house.submit(&[]).await?;
    let status = killed.wait().await?;
    ensure!(status.code().is_none(), "it was killed: {status}\n{}", killed.tail());

    let next = house.up(&json!([])).await?;
    let row = house.ended(&task).await.with_context(|| next.tail())?;
    ensure!(row["state"] == "completed" && row["epoch"] == 2, "{row}");
    ensure!(row["failures"] == 0 && row["crashes"] == 0, "nobody is blamed: {row}");
    let log = house.docket(&["logs", &task, "--json"]).await?.ok()?;
    let expected = ["TaskSubmitted", "TaskLeased", "TaskReleased", "TaskLeased", "TaskCompleted"];
    // A lease that was waited out would have left `TaskLeaseExpired`.
    ensure!(kinds(&log)? == expected, "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_was_asked_for_is_made_as_the_task_completes() -> Result<()> {
    let _room = room().await;
    let house = House::new()?;
    let up = house.up(&json!([])).await?;
    let plain = house.submit(&[]).await?;
    let branched = house.submit(&["--branch", "fix/it"]).await?;
    let (plain, branched) = (house.ended(&plain).await?, house.ended(&branched).await?);
    ensure!(plain["state"] == "completed" && branched["state"] == "completed", "{plain} {branched}");
    let commit = until("the branch", async || {
        let done = house.git(&["rev-parse", "--verify", "--quiet", "refs/heads/fix/it"]).await.ok()?;
        done.success().then(|| done.stdout.trim().to_owned())
    });
    let commit = commit.await.with_context(|| up.tail())?;
    let id = branched["id"].as_str().context("an id")?;
    let message = house.git(&["log", "-1", "--format=%B", &commit]).await?.ok()?;
    ensure!(message.contains(&format!("Docket-Task: {id}")), "{message}");
    let changed = house.git(&["diff", "--name-status", "main", &commit]).await?.ok()?;
    ensure!(changed == "A\ta.txt\nA\tlink\nM\ttool\n", "{changed}");
    let branches = house.git(&["for-each-ref", "--format=%(refname)"]).await?.ok()?;
    ensure!(branches == "refs/heads/fix/it\nrefs/heads/main\n", "only what was asked for: {branches}");
    let nowhere = house.docket(&["apply", id, "--repo", "/does/not/exist"]).await?;
    let told = nowhere.stderr.contains("/does/not/exist") && nowhere.stderr.contains("check that it exists");
    ensure!(nowhere.code() == Some(4) && told, "{nowhere:?}");
    ensure!(house.git(&["status", "--porcelain"]).await?.ok()?.is_empty(), "the work tree stays as it is");
    ensure!(!Path::new(house.sample.path()).join("a.txt").exists(), "the work tree stays as it is");
    Ok(())
}

/// `docket run` for a coordinator elsewhere that has no worker: it says what it waits for, and, interrupted, where the
/// task is; a worker that comes later does it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_no_worker_takes_says_so_and_an_interrupt_says_what_goes_on() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
    let script = sample.script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Do it", "--repo", repo, "--model", "scripted:run", "--script", script];
    let home = tempfile::tempdir()?;
    let env = [
        ("DOCKET_HOME", home.path().as_os_str()),
        ("DOCKET_URL", OsStr::new(coordinator.address())),
        ("DOCKET_TOKEN", OsStr::new(coordinator.token())),
    ];
    let mut terminal = Terminal::start(home.path(), &env, &args)?;
    terminal.shows("is available in queue default; no worker has taken it yet; start one with").await?;
    send(terminal.pid()?, Signal::SIGINT);
    let status = terminal.wait().await?;
    terminal.shows("waits there for a worker").await?;
    ensure!(status.code() == Some(1), "{status}: {}", terminal.all());

    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let tasks = coordinator.client().tasks(&TaskQuery::default()).await?.tasks;
    let [task] = &tasks[..] else { anyhow::bail!("one task: {tasks:?}") };
    let view = coordinator.ended(task.id).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task);
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// In a home whose coordinator has no worker, `docket run` works by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_in_a_served_home_needs_no_other_worker() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("keep.txt", "kept\n"), ("tool", "true\n")])?;
    let script = sample.script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Do it", "--repo", repo, "--model", "scripted:run", "--script", script];
    let done = coordinator.docket(&args).await?;
    ensure!(done.success() && done.stdout.contains("+++ b/a.txt"), "{done:?}");
    ensure!(done.stderr.contains("`docket serve` (process"), "{done:?}");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_run_held_is_taken_back_at_once() -> Result<()> {
    let _room = room().await;
    let house = House::new()?;
    let script = house.sample.script(
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
    let mut terminal = Terminal::start(house.home.path(), &env, &args)?;
    terminal.shows("turn 1").await?;
    send(terminal.pid()?, Signal::SIGKILL);
    terminal.wait().await?;

    let next = house.up(&json!([])).await?;
    // One task, on one line.
    let row: Value = serde_json::from_str(&house.docket(&["ps", "--json"]).await?.ok()?)?;
    let task = row["id"].as_str().context("an id")?;
    let row = house.ended(task).await.with_context(|| next.tail())?;
    ensure!(row["state"] == "completed" && row["epoch"] == 2, "{row}");
    let log = house.docket(&["logs", task, "--json"]).await?.ok()?;
    let expected = ["TaskSubmitted", "TaskLeased", "TaskReleased", "TaskLeased", "TaskCompleted"];
    ensure!(kinds(&log)? == expected, "{log}");
    Ok(())
}

/// Somebody elsewhere drains its worker: what waits is not left without a coordinator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_from_elsewhere_it_goes_on_as_a_coordinator() -> Result<()> {
    let _room = room().await;
    let house = House::new()?;
    let mut up = house.up(&json!([])).await?;
    let worker = until("its worker", async || {
        let listed = house.docket(&["workers", "--json"]).await.ok()?.ok().ok()?;
        serde_json::from_str::<Value>(listed.lines().next()?).ok()
    });
    let worker = worker.await?;
    let name = worker["name"].as_str().context("a name")?;
    house.docket(&["workers", "drain", name, "--wait"]).await?.ok()?;
    until("its word", async || up.log().contains("goes on as a coordinator").then_some(())).await?;
    let task = house.submit(&[]).await?;
    let why = house.docket(&["why", &task]).await?.ok()?;
    ensure!(why.contains("no worker has been heard of lately"), "{why}");
    let (mut other, _) = Proc::start("worker", house.home.path(), &[], &["worker", "--slots", "1"]).await?;
    let row = house.ended(&task).await.with_context(|| other.tail())?;
    ensure!(row["state"] == "completed", "{row}");
    for process in [&mut other, &mut up] {
        send(process.pid(), Signal::SIGTERM);
        ensure!(process.wait().await?.success(), "{}", process.tail());
    }
    Ok(())
}
