//! Several processes in one home: any number of `docket run` and one `docket up`. One of them serves the home, and
//! whichever that is may end.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    DocketTerminal, FinishedProcess, RunningProcess, SampleRepository, Signal, TestProgram,
    acquire_scenario_slot, is_running, poll_until, run_program, send_signal, wait_until,
};
use serde_json::Value;

/// A home, and a repository that tasks come from.
struct SharedHome {
    folder: tempfile::TempDir,
    sample: SampleRepository,
}

impl SharedHome {
    fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, sample: SampleRepository::new(&[("keep.txt", "kept\n")])? })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a script whose second turn waits until its gate is opened.
    fn gated_script(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(format!("{name}.toml"));
        let command = format!("touch middle-{name}; until test -e go; do sleep 0.05; done");
        let script = format!(
            r#"
[[turns]]
calls = [{{ name = "create_file", args = {{ path = "{name}.txt", content = "{name}\n" }} }}]
[[turns]]
calls = [{{ name = "run_command", args = {{ command = "{command}" }} }}]
[[turns]]
text = "Done."
"#
        );
        std::fs::write(&path, script)?;
        Ok(path)
    }

    /// The arguments of `docket run`, or `submit`, for a task that waits at its gate.
    fn task_args(&self, command: &str, name: &str) -> Result<Vec<String>> {
        let script = self.gated_script(name)?;
        let repo = self.sample.path().to_str().context("UTF-8")?;
        let (title, model) = (format!("Task {name}"), format!("scripted:{name}"));
        let script = script.to_str().context("UTF-8")?;
        let args = [command, &title, "--repo", repo, "--model", &model, "--script", script];
        Ok(args.map(str::to_owned).to_vec())
    }

    fn start_run(&self, name: &str) -> Result<DocketTerminal> {
        let env = [("DOCKET_HOME", self.path().as_os_str())];
        DocketTerminal::start(self.path(), &env, &self.task_args("run", name)?)
    }

    async fn start_up(&self) -> Result<(RunningProcess, Value)> {
        self.start_up_at("127.0.0.1:0").await
    }

    async fn start_up_at(&self, listen: &str) -> Result<(RunningProcess, Value)> {
        let args = ["up", "-v", "--json", "--slots", "2", "--listen", listen];
        let (process, line) = RunningProcess::start_docket("up", self.path(), &[], &args).await?;
        Ok((process, serde_json::from_str(&line)?))
    }

    /// Whether a coordinator of this home answers there, as clients elsewhere ask it.
    async fn check_answers_at(&self, listen: &str) -> Result<()> {
        let (url, elsewhere) = (format!("http://{listen}"), tempfile::tempdir()?);
        let token = std::fs::read_to_string(self.path().join("token"))?;
        let env = [
            ("DOCKET_HOME", elsewhere.path().as_os_str()),
            ("DOCKET_URL", OsStr::new(&url)),
            ("DOCKET_TOKEN", OsStr::new(token.trim())),
        ];
        let rows = run_program(TestProgram::Docket, elsewhere.path(), &env, &["ps", "--json"])
            .await?
            .into_stdout()?;
        ensure!(rows.contains("Task one"), "{rows}");
        Ok(())
    }

    async fn run_docket<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<FinishedProcess> {
        run_program(TestProgram::Docket, self.path(), &[("DOCKET_HOME", self.path().as_os_str())], args).await
    }

    /// The workspace of the task that waits at its gate.
    fn task_workspace(&self, name: &str) -> Option<PathBuf> {
        let folders = |of: PathBuf| std::fs::read_dir(of).into_iter().flatten().flatten().map(|at| at.path());
        let runs = folders(self.path().join("scratch")).flat_map(folders).map(|run| run.join("workspace"));
        runs.into_iter().find(|workspace| workspace.join(format!("middle-{name}")).exists())
    }

    async fn wait_for_gate(&self, name: &str) -> Result<PathBuf> {
        poll_until(&format!("task {name} at its gate"), || self.task_workspace(name)).await
    }

    async fn open_gate(&self, name: &str) -> Result<()> {
        std::fs::write(self.wait_for_gate(name).await?.join("go"), "")?;
        Ok(())
    }

    /// What the process says of itself that serves the home.
    fn announced_owner(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.path().join("docket.lock")).ok()?;
        let owner: Value = serde_json::from_str(&text).ok()?;
        owner["address"].is_string().then_some(owner)
    }

    /// The process that serves the home; not `before`.
    async fn wait_for_new_owner(&self, before: i32) -> Result<i32> {
        poll_until("a process that serves the home", || {
            let owner = self.announced_owner()?;
            let pid = i32::try_from(owner["pid"].as_i64()?).ok()?;
            (pid != before && is_running(pid)).then_some(pid)
        })
        .await
    }

    /// The task's row of `docket ps`.
    async fn task_row(&self, name: &str) -> Result<Value> {
        let rows = self.run_docket(&["ps", "--json"]).await?.into_stdout()?;
        let mut rows = rows.lines().filter_map(|row| serde_json::from_str::<Value>(row).ok());
        rows.find(|row| row["title"] == format!("Task {name}")).with_context(|| format!("task {name}"))
    }

    /// The kinds of the task's events, and the workers that leased it.
    async fn task_log(&self, name: &str) -> Result<(Vec<String>, Vec<String>)> {
        let row = self.task_row(name).await?;
        let id = row["id"].as_str().context("an id")?;
        let (mut kinds, mut workers) = (Vec::new(), Vec::new());
        for line in self.run_docket(&["logs", id, "--json"]).await?.into_stdout()?.lines() {
            let event: Value = serde_json::from_str(line)?;
            kinds.push(event["kind"].as_str().context("a kind")?.to_owned());
            workers.extend(event["payload"]["worker_name"].as_str().map(str::to_owned));
        }
        Ok((kinds, workers))
    }

    /// Whether its own `docket run` carried the task out from its beginning to its end.
    async fn check_undisturbed(&self, name: &str) -> Result<()> {
        let (kinds, workers) = self.task_log(name).await?;
        ensure!(kinds == ["TaskSubmitted", "TaskLeased", "TaskCompleted"], "{name}: {kinds:?}");
        ensure!(workers == ["run"], "{name}: {workers:?}");
        Ok(())
    }
}

async fn check_ends_well(run: &mut DocketTerminal) -> Result<()> {
    let status = run.wait().await?;
    ensure!(status.success(), "{status}: {}", run.full_output());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_continue_when_the_home_owner_is_killed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut runs = Vec::new();
    for name in ["one", "two", "three"] {
        runs.push((name, home.start_run(name)?));
    }
    for (name, run) in &runs {
        home.wait_for_gate(name).await.with_context(|| run.full_output())?;
    }
    let owner = home.wait_for_new_owner(0).await?;
    let at =
        runs.iter().position(|(_, run)| run.pid().ok() == Some(owner)).context("one of the runs owns it")?;
    let (killed, mut run) = runs.remove(at);
    send_signal(owner, Signal::SIGKILL);
    let status = run.wait().await?;
    ensure!(status.code().is_none(), "{status}");

    let next = home.wait_for_new_owner(owner).await?;
    ensure!(runs.iter().any(|(_, run)| run.pid().ok() == Some(next)), "one of the others owns it: {next}");
    for (name, run) in &mut runs {
        home.open_gate(name).await?;
        check_ends_well(run).await?;
    }
    for (name, _) in &runs {
        home.check_undisturbed(name).await?;
    }
    // What was killed is released at once, and the next `docket up` continues it.
    let (up, _) = home.start_up().await?;
    let row = wait_until("the end of the killed task", async || {
        if let Some(workspace) = home.task_workspace(killed) {
            std::fs::write(workspace.join("go"), "").ok()?;
        }
        home.task_row(killed).await.ok().filter(|row| row["state"] == "completed")
    });
    let row = row.await.with_context(|| up.log_tail())?;
    ensure!(row["failures"] == 0 && row["crashes"] == 0 && row["epoch"] == 2, "{row}");
    let (kinds, _) = home.task_log(killed).await?;
    ensure!(!kinds.contains(&"TaskLeaseExpired".to_owned()), "{kinds:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_continue_when_the_home_owner_ends_or_is_interrupted() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut runs = Vec::new();
    for name in ["one", "two", "three"] {
        runs.push((name, home.start_run(name)?));
        home.wait_for_gate(name).await?;
    }
    // The first one, which owns the home, comes to its end.
    let first = home.wait_for_new_owner(0).await?;
    ensure!(runs[0].1.pid()? == first, "the first one owns the home");
    home.open_gate("one").await?;
    check_ends_well(&mut runs[0].1).await?;
    // The second owner is interrupted at the gate: in order, and then at once.
    let second = home.wait_for_new_owner(first).await?;
    let at =
        runs.iter().position(|(_, run)| run.pid().ok() == Some(second)).context("one of the runs owns it")?;
    send_signal(second, Signal::SIGINT);
    send_signal(second, Signal::SIGINT);
    let status = runs[at].1.wait().await?;
    ensure!(status.code() == Some(1), "{status}: {}", runs[at].1.full_output());
    // The third is the last.
    let third = home.wait_for_new_owner(second).await?;
    let at =
        runs.iter().position(|(_, run)| run.pid().ok() == Some(third)).context("the last one owns it")?;
    let name = runs[at].0;
    home.open_gate(name).await?;
    check_ends_well(&mut runs[at].1).await?;
    home.check_undisturbed("one").await?;
    home.check_undisturbed(name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_joins_a_run_and_a_run_joins_up() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut first = home.start_run("one")?;
    home.wait_for_gate("one").await?;
    let owner = first.pid()?;
    // The run hands the home over to `docket up`, which says so; a second one is refused.
    let (mut up, said) = home.start_up().await?;
    ensure!(said["served_by"].is_null() && said["pid"] == up.pid(), "{said}");
    ensure!(home.wait_for_new_owner(owner).await? == up.pid());
    let refused = home.run_docket(&["up", "--listen", "127.0.0.1:0"]).await?;
    ensure!(
        refused.code() == Some(4) && refused.stderr.contains("(docket up) already serves"),
        "{refused:?}"
    );
    home.run_docket(&home.task_args("submit", "submitted")?).await?.into_stdout()?;
    home.open_gate("submitted").await.with_context(|| up.log_tail())?;
    wait_until("the end of what was submitted", async || {
        home.task_row("submitted").await.ok().filter(|row| row["state"] == "completed")
    })
    .await?;
    // A further run does its own task, although the workers of `docket up` serve all queues.
    let mut second = home.start_run("two")?;
    home.open_gate("two").await?;
    check_ends_well(&mut second).await?;
    home.check_undisturbed("two").await?;
    // The run that served the home at first comes to its end.
    home.open_gate("one").await?;
    check_ends_well(&mut first).await?;
    let mut third = home.start_run("three")?;
    third.wait_for_text("`docket up` (process").await?;
    home.wait_for_gate("three").await?;
    // `docket up` ends in order, and the run serves the home to its own end.
    send_signal(up.pid(), Signal::SIGTERM);
    ensure!(up.wait().await?.success(), "{}", up.log_tail());
    ensure!(home.wait_for_new_owner(up.pid()).await? == third.pid()?);
    home.open_gate("three").await?;
    check_ends_well(&mut third).await?;
    for name in ["one", "three"] {
        home.check_undisturbed(name).await?;
    }
    Ok(())
}

/// An address that nobody listens at.
fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_takes_over_the_listen_address_while_runs_continue() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut runs = Vec::new();
    for name in ["one", "two"] {
        runs.push((name, home.start_run(name)?));
        home.wait_for_gate(name).await?;
    }
    let first = home.wait_for_new_owner(0).await?;
    ensure!(runs[0].1.pid()? == first, "the first one owns the home");
    // An address that another program has is refused, and the run is left alone.
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let refused = home.run_docket(&["up", "--listen", &taken.local_addr()?.to_string()]).await?;
    ensure!(refused.code() == Some(1) && refused.stderr.contains("is in use"), "{refused:?}");
    ensure!(home.wait_for_new_owner(0).await? == first, "the run still serves");

    let listen = free_address()?;
    let (mut up, said) = home.start_up_at(&listen).await?;
    ensure!(said["address"] == format!("http://{listen}") && said["pid"] == up.pid(), "{said}");
    home.check_answers_at(&listen).await.with_context(|| up.log_tail())?;
    // It is killed: a run serves until it comes back, and then it listens there again.
    up.kill().await?;
    let next = home.wait_for_new_owner(up.pid()).await?;
    ensure!(runs.iter().any(|(_, run)| run.pid().ok() == Some(next)), "one of the runs owns it: {next}");
    home.run_docket(&home.task_args("submit", "submitted")?).await?.into_stdout()?;
    let (mut up, said) = home.start_up_at(&listen).await?;
    ensure!(said["address"] == format!("http://{listen}"), "{said}");
    home.check_answers_at(&listen).await.with_context(|| up.log_tail())?;
    home.open_gate("submitted").await.with_context(|| up.log_tail())?;
    wait_until("the end of what was submitted", async || {
        home.task_row("submitted").await.ok().filter(|row| row["state"] == "completed")
    })
    .await?;
    for (name, run) in &mut runs {
        home.open_gate(name).await?;
        check_ends_well(run).await?;
    }
    for (name, _) in &runs {
        home.check_undisturbed(name).await?;
    }
    send_signal(up.pid(), Signal::SIGTERM);
    ensure!(up.wait().await?.success(), "{}", up.log_tail());
    Ok(())
}

/// A `docket up` that is stopped when it was handed the home does not leave the home unserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_serves_again_if_up_does_not_take_the_home() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut first = home.start_run("one")?;
    home.wait_for_gate("one").await?;
    let owner = first.pid()?;
    let before = home.announced_owner().context("an owner")?;
    // The run cannot answer, so the request stands; then its sender cannot take what it is given.
    send_signal(owner, Signal::SIGSTOP);
    let mut up = tokio::process::Command::from(TestProgram::Docket.command());
    up.args(["up", "-v", "--listen", "127.0.0.1:0"]).env("DOCKET_HOME", home.path()).kill_on_drop(true);
    let mut up = up.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
    let pid = up.id().context("it runs")?.cast_signed();
    poll_until("a request for the home", || {
        let text = std::fs::read_to_string(home.path().join("up.lock")).ok()?;
        text.contains("\"id\"").then_some(())
    })
    .await?;
    send_signal(pid, Signal::SIGSTOP);
    send_signal(owner, Signal::SIGCONT);
    poll_until("the run, which serves again elsewhere", || {
        let owner = home.announced_owner()?;
        (owner["pid"] == before["pid"] && owner["address"] != before["address"]).then_some(())
    })
    .await
    .with_context(|| first.full_output())?;
    home.task_row("one").await?;
    // Once it goes on, it gets the home after all.
    send_signal(pid, Signal::SIGCONT);
    ensure!(home.wait_for_new_owner(owner).await? == pid);
    home.open_gate("one").await?;
    check_ends_well(&mut first).await?;
    home.check_undisturbed("one").await?;
    send_signal(pid, Signal::SIGTERM);
    ensure!(up.wait().await?.success());
    Ok(())
}

/// A worker that was started beside a run stays with the home when the run has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn home_worker_follows_the_next_owner() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = SharedHome::new()?;
    let mut first = home.start_run("one")?;
    home.wait_for_gate("one").await?;
    let args = ["worker", "-v", "--json", "--slots", "1"];
    let (mut worker, _) = RunningProcess::start_docket("worker", home.path(), &[], &args).await?;
    home.open_gate("one").await?;
    check_ends_well(&mut first).await?;
    let mut second = home.start_run("two")?;
    home.wait_for_gate("two").await?;
    home.run_docket(&home.task_args("submit", "submitted")?).await?.into_stdout()?;
    home.open_gate("submitted").await.with_context(|| worker.log_tail())?;
    wait_until("the end of what was submitted", async || {
        home.task_row("submitted").await.ok().filter(|row| row["state"] == "completed")
    })
    .await
    .with_context(|| worker.log_tail())?;
    home.open_gate("two").await?;
    check_ends_well(&mut second).await?;
    send_signal(worker.pid(), Signal::SIGTERM);
    worker.wait().await?;
    Ok(())
}
