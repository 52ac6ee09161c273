//! A check that did not run verifies nothing: whatever the engine, such a run asks a person and completes only as
//! unverified; a check that ran before the work and does not run after it fails the run.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::TaskView,
    ids::{RunId, TaskId},
    run::{RunEnded, RunEvent, RunOutcome},
    task::{TaskBlockedReason, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    scripted_talks::{ENGINES, command_script},
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, is_installed, run_program, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

/// A runner that exists on no machine.
const NO_RUNNER: &str = "[lint.ruff]\nenabled = false\n[tests]\ncommand = \"no-such-runner --all\"\n";
/// The only check is the tests, whatever linters this machine has.
const NO_LINTER: &str = "[lint.ruff]\nenabled = false\n";
/// pytest, of a Python that sees no installed module.
const NO_PYTEST: &str = "[lint.ruff]\nenabled = false\n[tests]\ncommand = \"python3 -S -m pytest -q\"\n";
const MODULE: &str = "def f():\n    return 1\n";
/// Passes while `f` returns 1.
const TEST: &str = "import unittest\n\nfrom a import f\n\n\nclass T(unittest.TestCase):\n    def test_f(self):\n        \
                    self.assertEqual(f(), 1)\n";
const IGNORE: (&str, &str) = (".gitignore", "__pycache__\n");

/// A coordinator and a worker that runs the checks of a run's base, as workers do by default.
struct VerdictFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
}

impl VerdictFixture {
    async fn start(settings: &str) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let settings = settings.to_owned();
        let options = WorkerOptions { settings, base_checks: true, ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        Ok(Self { coordinator, worker })
    }

    /// Submits a task of these files whose model follows a script.
    async fn submit_task(
        &self,
        files: &[(&str, &str)],
        script: &str,
        engine: &str,
    ) -> Result<(SampleRepository, TaskId)> {
        let sample = SampleRepository::new(files)?;
        let script = sample.write_script(script)?;
        let script = script.to_str().context("UTF-8")?;
        let flags = ["--model", "scripted:s", "--script", script, "--engine", engine, "--attempts", "1"];
        let (task, _) = sample.submit(&self.coordinator, &flags).await?;
        Ok((sample, task))
    }

    /// The task once no worker has it and none will, with this many checks in its run's log that did not run.
    async fn wait_until_resting(&self, task: TaskId, checks: usize) -> Result<TaskView> {
        let rests = wait_until("a task that rests", async || {
            let view = self.coordinator.client().get_task(task).await.ok()?;
            if view.task.state.is_ended() {
                return Some(view);
            }
            let history = self.coordinator.run_history(view.task.last_run?).await.ok()?;
            let did_not_run = |event: &&RunEvent| matches!(event, RunEvent::GateFinished(end) if end.facts.not_run.is_some());
            let is_done = view.task.state == TaskState::Blocked
                && history.events.iter().filter(did_not_run).count() == checks;
            is_done.then_some(view)
        });
        rests.await.with_context(|| self.worker.log_tail())
    }

    async fn run_end(&self, run: RunId) -> Result<RunEnded> {
        let history = self.coordinator.run_history(run).await?;
        history.verify(self.coordinator.client()).await?;
        let kinds = history.format_kinds();
        let ended = history.events.into_iter().find_map(|event| match event {
            RunEvent::RunEnded(ended) => Some(ended),
            _ => None,
        });
        ended.with_context(|| format!("an end: {kinds}"))
    }

    async fn answer_task(&self, task: TaskId, words: &str) -> Result<String> {
        self.coordinator.run_docket(&["answer", &task.to_string(), words]).await?.into_stdout()
    }

    async fn docket_row(&self, args: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.coordinator.run_docket(args).await?.into_stdout()?)?)
    }

    async fn shut_down(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

/// Whether it asks a person about checks that did not run, for this reason.
fn check_asks_about_checks(view: &TaskView, reason: &str) -> Result<()> {
    let task = &view.task;
    ensure!(
        task.state == TaskState::Blocked && task.blocked_why == Some(TaskBlockedReason::Person),
        "{reason}: {task:?}"
    );
    let why = task.unverified.as_deref().unwrap_or_default();
    ensure!(why.starts_with("The result is unverified: ") && why.contains(reason), "{task:?}");
    ensure!(task.message.as_deref().is_some_and(|message| message.starts_with(why)), "{task:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_engine_asks_a_person_if_its_checks_did_not_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = VerdictFixture::start("").await?;
    let files = [("a.py", MODULE), ("docket.toml", NO_RUNNER), IGNORE];
    for engine in ENGINES {
        let (_sample, task) = house.submit_task(&files, &command_script(engine, 7), engine).await?;
        let view = house.wait_until_resting(task, 1).await?;
        check_asks_about_checks(
            &view,
            "the final check `tests` did not run: no-such-runner is not there, nor did it before the work",
        )
        .context(engine)?;
        let told = house.answer_task(task, "accept").await?;
        ensure!(told.contains("answered"), "{engine}: {told}");
        let view = house.coordinator.wait_until_ended(task).await.with_context(|| house.worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed, "{engine}: {:?}", view.task);
        let why = view.task.unverified.as_deref().unwrap_or_default();
        ensure!(why.contains("no-such-runner is not there"), "{engine}: {:?}", view.task);
        let end = house.run_end(view.task.last_run.context("a run")?).await.context(engine)?;
        ensure!(end.result == RunOutcome::Succeeded, "{engine}: {end:?}");
        ensure!(end.unverified.is_some_and(|why| why.checks == ["tests"]), "{engine}");
    }
    house.shut_down().await
}

/// What `docket run` ends with, in a home of its own.
async fn run_in_own_home(
    home: &std::path::Path,
    files: &[(&str, &str)],
    settings: &str,
) -> Result<FinishedProcess> {
    let sample = SampleRepository::new(files)?;
    std::fs::write(home.join("docket.toml"), settings)?;
    let script = sample.write_script(&command_script("react", 7))?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Let f return 2", "--repo", repo, "--script", script, "--model", "scripted:x"];
    let args = [&args[..], &["--attempts", "1"]].concat();
    run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], &args).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_without_a_runner_are_shown_as_unverified() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let home = folder.path();
    let docket = async |args: &[&str]| {
        run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    };
    let files = [("a.py", MODULE), ("test_a.py", TEST), ("docket.toml", NO_PYTEST), IGNORE];
    let said = run_in_own_home(home, &files, "").await?;
    ensure!(said.code() == Some(1) && said.stdout.is_empty(), "no patch, and a failure: {said:?}");
    for words in [
        "before the run: check tests did not run: pytest is not there",
        "blocked, unverified",
        " accept` completes",
    ] {
        ensure!(said.stderr.contains(words), "{words}: {said:?}");
    }
    let listed = docket(&["ps"]).await?.into_stdout()?;
    ensure!(listed.contains("blocked, unverified") && listed.contains("pytest is not there"), "{listed}");
    let row: Value = serde_json::from_str(docket(&["ps", "--json"]).await?.into_stdout()?.trim())?;
    ensure!(row["state"] == "blocked" && row["blocked_why"] == "person", "{row}");
    ensure!(row["unverified"].as_str().is_some_and(|why| why.contains("pytest is not there")), "{row}");
    let run_id = row["run"].as_str().context("a run")?;
    let shown: Value = serde_json::from_str(&docket(&["show", run_id, "--json"]).await?.into_stdout()?)?;
    let check = &shown["work"]["checks"]["tests"];
    ensure!(check["verdict"] == "unverified" && check["not_run"]["cause"] == "runner_missing", "{shown}");
    let text = docket(&["show", run_id]).await?.into_stdout()?;
    ensure!(text.contains("unverified, did not run (pytest is not there)"), "{text}");
    let metrics = docket(&["metrics", "--scripted", "--json"]).await?.into_stdout()?;
    let metrics: Value = serde_json::from_str(&metrics)?;
    for name in ["test_pass_rate", "task_success_rate"] {
        let view = metrics["all"].as_array().into_iter().flatten().find(|view| view["metric"] == name);
        let view = view.with_context(|| format!("{name}: {metrics}"))?;
        ensure!(view["value"].is_null() && view["ratio"]["all"] == 0, "{name} is not measured: {view}");
    }
    Ok(())
}

/// Lines of checks that ran no test, and why: a pipe must not hide it, nor that a module is no known runner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_and_unknown_runners_do_not_hide_that_no_test_ran() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let house = VerdictFixture::start("").await?;
    let files = |line: &str| format!("[lint.ruff]\nenabled = false\n[tests]\ncommand = \"{line}\"\n");
    for (line, missing) in [
        ("python3 -S -m pytest -q 2>&1 | tail -5", "pytest"),
        ("env A=1 timeout 60 python3 -m nosuchpytest", "nosuchpytest"),
    ] {
        let settings = files(line);
        let files = [("a.py", MODULE), ("test_a.py", TEST), ("docket.toml", settings.as_str()), IGNORE];
        let (_sample, task) = house.submit_task(&files, &command_script("react", 7), "react").await?;
        let view = house.wait_until_resting(task, 1).await?;
        check_asks_about_checks(
            &view,
            &format!("did not run: {missing} is not there, nor did it before the work"),
        )
        .context(line)?;
        let run = view.task.last_run.context("a run")?;
        let history = house.coordinator.run_history(run).await?;
        let is_as_written =
            |event: &RunEvent| matches!(event, RunEvent::GateRequested(asked) if asked.gate.command == line);
        ensure!(history.events.iter().any(is_as_written), "{line}: recorded as written");
        house.answer_task(task, "accept").await?;
        let view = house.coordinator.wait_until_ended(task).await.with_context(|| house.worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed && view.task.unverified.is_some(), "{:?}", view.task);
        // The metrics say so as well.
        let id = task.to_string();
        let metrics = house.docket_row(&["metrics", &id, "--scripted", "--json"]).await?;
        let mut views = metrics["all"].as_array().into_iter().flatten();
        let success = views.find(|view| view["metric"] == "task_success_rate").context("a rate")?;
        ensure!(success["ratio"]["of"] == 0 && success["ratio"]["all"] == 1, "no success: {metrics}");
        ensure!(metrics["unverified"] == 1 && metrics["tasks"][0]["unverified"] == true, "{metrics}");
        ensure!(metrics["weeks"][0]["unverified"] == 1, "{metrics}");
        let said = house.coordinator.run_docket(&["metrics", &id, "--scripted"]).await?.into_stdout()?;
        let row = said.lines().find(|row| row.starts_with("unverified")).context("a row")?;
        ensure!(row.trim_end().ends_with(" 1"), "{said}");
    }
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/metrics", house.coordinator.address());
    let told = http.get(url).bearer_auth(house.coordinator.token()).send().await?.text().await?;
    ensure!(told.contains("\ndocket_tasks_unverified 2\n"), "{told}");
    house.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unverified_setting_completes_or_fails_runs_without_asking() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let files = [("a.py", MODULE), ("test_a.py", TEST), ("docket.toml", NO_PYTEST), IGNORE];
    for (policy, code, words) in [
        (
            "complete",
            0,
            "this result is unverified: the final check `tests` did not run: pytest is not there",
        ),
        ("fail", 1, "the result is unverified: the final check `tests` did not run: pytest is not there"),
    ] {
        let folder = tempfile::tempdir()?;
        let settings = format!("[run]\nunverified = \"{policy}\"\n");
        let said = run_in_own_home(folder.path(), &files, &settings).await?;
        ensure!(said.code() == Some(code) && said.stderr.contains(words), "{policy}: {said:?}");
        ensure!(said.stdout.contains("+    return 7") == (code == 0), "{policy}: {said:?}");
        let env = [("DOCKET_HOME", folder.path().as_os_str())];
        let listed = run_program(TestProgram::Docket, folder.path(), &env, &["ps"]).await?.into_stdout()?;
        let state = if code == 0 { "completed, unverified" } else { "discarded" };
        ensure!(listed.contains(state), "{policy}: {listed}");
    }
    Ok(())
}

const BROKEN: (&str, &str) = ("test_broken.py", "import nowhere\n");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn module_that_was_never_importable_decides_nothing() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let house = VerdictFixture::start("").await?;
    // By pytest where it is installed, which then runs nothing; else by unittest, which runs the rest.
    let files = [("a.py", MODULE), ("test_a.py", TEST), BROKEN, IGNORE];
    let script = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"b.txt\", content = \"b\" } }]\n\
                  [[turns]]\ntext = \"Done.\"\n";
    let (_sample, task) = house.submit_task(&files, script, "react").await?;
    let view = house.wait_until_resting(task, 1).await?;
    check_asks_about_checks(&view, "test_broken")?;
    let run = view.task.last_run.context("a run")?;
    let calls = house.coordinator.run_history(run).await?.count_kind("ModelRequested");
    // The checks run once more without another question to the model; a person who says so again is asked again.
    house.answer_task(task, "again").await?;
    let view = house.wait_until_resting(task, 2).await?;
    check_asks_about_checks(&view, "test_broken")?;
    ensure!(house.coordinator.run_history(run).await?.count_kind("ModelRequested") == calls);
    house.answer_task(task, "accept").await?;
    let view = house.coordinator.wait_until_ended(task).await.with_context(|| house.worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed && view.task.unverified.is_some(), "{:?}", view.task);
    let history = house.coordinator.run_history(run).await?;
    ensure!(
        history.count_kind("GateFinished") == 2 && history.count_kind("ModelRequested") == calls,
        "{}",
        history.format_kinds()
    );
    ensure!(house.run_end(run).await?.unverified.is_some());
    let row = house.docket_row(&["show", &run.to_string(), "--json"]).await?;
    ensure!(row["unverified"].as_str().is_some_and(|why| why.contains("test_broken")), "{row}");
    house.shut_down().await
}

/// A turn that puts this in place of `a.py`, and one that says that all is done.
fn rewrite_script(text: &str) -> String {
    let command = format!("printf '%s' '{text}' > a.py");
    let call = format!(
        "{{ name = \"run_command\", args = {{ command = '''{}''' }} }}",
        command.replace('\n', "\\n")
    );
    let call = call.replace("printf '%s'", "printf '%b'");
    format!("[[turns]]\ncalls = [{call}]\n[[turns]]\ntext = \"Done.\"\n")
}

/// What a script of the engine `react` comes to, and the requests that its model got.
async fn play_script(
    house: &VerdictFixture,
    name: &str,
    files: &[(&str, &str)],
    script: &str,
) -> Result<(RunEnded, Vec<String>)> {
    let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
    let sample = SampleRepository::new(files)?;
    let args = ["--model", "openai:template", "--queue", "template", "--attempts", "1"];
    let (template, spec) = sample.submit(&house.coordinator, &args).await?;
    house.coordinator.client().cancel(template, "a template").await?;
    let model = server.model_ref(ModelProvider::OpenAi, "x");
    let task = house.coordinator.submit_like(&spec, &name.parse()?, model).await?;
    let view = house.coordinator.wait_until_ended(task).await.with_context(|| house.worker.log_tail())?;
    ensure!(view.task.unverified.is_none(), "{name}: {:?}", view.task);
    let end = house.run_end(view.task.last_run.context("a run")?).await?;
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    Ok((end, server.requests().iter().map(|request| text(&request.body)).collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_import_fails_the_run_instead_of_unverified() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let house =
        VerdictFixture::start("[run]\ncorrections_max = 1\nplan_asks_max = 0\nauto_lint = false\n").await?;
    let (breaks, fixes) = (rewrite_script("import nowhere\n"), rewrite_script("def f():\n    return 1\n"));
    let lost = "ran before your work and does not run now";
    // The tests passed before, or they failed: they ran.
    let failing = TEST.replace("f(), 1", "f(), 2");
    for (name, test, script, ends) in [
        ("fixed", TEST, format!("{breaks}{fixes}"), Some(())),
        ("left", TEST, format!("{breaks}[[turns]]\ntext = \"Done, I say.\"\n"), None),
        ("failing", failing.as_str(), format!("{breaks}[[turns]]\ntext = \"Done, I say.\"\n"), None),
    ] {
        let files = [("a.py", MODULE), ("test_a.py", test), IGNORE];
        let (end, asked) = play_script(&house, name, &files, &script).await?;
        ensure!(asked.get(2).is_some_and(|body| body.contains(lost)), "{name}: {asked:#?}");
        match ends {
            Some(()) => ensure!(end.result == RunOutcome::Succeeded, "{name}: {end:?}"),
            None => ensure!(
                matches!(&end.result, RunOutcome::Failed { message, .. } if message.contains("test_a")),
                "{name}: {end:?}"
            ),
        }
        ensure!(end.unverified.is_none(), "{name}: {end:?}");
    }
    // One module could not be imported before; now the other one cannot, either.
    let files = [("a.py", MODULE), ("test_a.py", TEST), BROKEN, IGNORE];
    let script = format!("{breaks}[[turns]]\ntext = \"Done, I say.\"\n");
    let (end, asked) = play_script(&house, "more", &files, &script).await?;
    let less = "came further before your work than it does now";
    ensure!(asked.get(2).is_some_and(|body| body.contains(less)), "{asked:#?}");
    ensure!(matches!(end.result, RunOutcome::Failed { .. }) && end.unverified.is_none(), "{end:?}");
    house.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_project_without_installed_packages_is_unverified() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = VerdictFixture::start("").await?;
    let package = r#"{"scripts":{"test":"vitest run"},"devDependencies":{"vitest":"3"}}"#;
    let files = [
        ("a.py", MODULE),
        ("docket.toml", NO_LINTER),
        ("package.json", package),
        ("a.test.js", "test('a', () => {});\n"),
    ];
    let (_sample, task) = house.submit_task(&files, &command_script("react", 7), "react").await?;
    let view = house.wait_until_resting(task, 1).await?;
    // Where npm is not installed either, that is what is missing.
    let lacks = if is_installed("npm") { "vitest is not there" } else { "npm is not there" };
    check_asks_about_checks(&view, lacks)?;
    house.coordinator.client().cancel(task, "enough").await?;
    house.shut_down().await
}
