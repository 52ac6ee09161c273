//! Linters and final checks in whole runs: what a model sees after an edit, what is mended without it, what
//! goes back to it, and where all of that is pinned.

mod runners;
mod tests_not_run;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::RunId,
    run::{GateStep, RunEvent, RunOutcome, ToolFinished},
    tool::LintStatus,
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, has_python_modules,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};

/// A linter of shell: it refuses `BAD` and trailing blanks, and mends `BAD` itself.
const OWN_LINTER: &str = r#"
[tests]
command = "test ! -e broken"

[lint.own]
extensions = ["txt"]
check = "s=0; for f in {files}; do grep -n 'BAD' $f /dev/null && s=1; grep -n ' $' $f /dev/null | sed 's/^\\([^:]*:[0-9]*\\):.*/\\1:1: W291 trailing/'; ! grep -q ' $' $f || s=1; done; exit $s"
fix = "sed -i s/BAD/GOOD/ {files}"
"#;

/// The longest limit a linter can have: one that works must end before it on the busiest machine.
const PATIENT: &str = "[run]\nlint_timeout_ms = 600000\n";

/// What became of a run.
pub(super) struct CheckedRun {
    pub(super) history: RunHistory,
    /// Bodies of the requests, as the model's server got them.
    pub(super) asked: Vec<String>,
}

/// A coordinator and a worker, on which runs are played one after the other.
pub(super) struct CheckFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
}

impl CheckFixture {
    pub(super) async fn new(settings: &str) -> Result<Self> {
        Self::with_failpoints(settings, Vec::new()).await
    }

    /// With a worker whose run processes die at these places.
    async fn with_failpoints(settings: &str, failpoints: Vec<Failpoint>) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let settings = settings.to_owned();
        let options = WorkerOptions { settings, failpoints, ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        Ok(Self { coordinator, worker })
    }

    /// Plays a script on a project, once.
    pub(super) async fn play_script(
        &self,
        name: &str,
        files: &[(&str, &str)],
        script: &str,
    ) -> Result<CheckedRun> {
        let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
        let sample = SampleRepository::new(files)?;
        let args = ["--model", "openai:template", "--queue", "template", "--attempts", "1"];
        let (template, spec) = sample.submit(&self.coordinator, &args).await?;
        self.coordinator.client().cancel(template, "a template").await?;
        let task = self
            .coordinator
            .submit_like(&spec, &name.parse()?, server.model_ref(ModelProvider::Anthropic, "x"))
            .await?;
        let view = self.coordinator.wait_until_ended(task).await.with_context(|| self.worker.log_tail())?;
        let history = self.coordinator.run_history(view.task.last_run.context("a run")?).await?;
        history.verify(self.coordinator.client()).await.with_context(|| name.to_owned())?;
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        Ok(CheckedRun {
            history,
            asked: server.requests().iter().map(|request| text(&request.body)).collect(),
        })
    }

    /// Runs the program beside its coordinator; what it says.
    pub(super) async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout()
    }

    pub(super) async fn shut_down(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

impl CheckedRun {
    /// Which run it was.
    pub(super) fn run_id(&self) -> Result<RunId> {
        match self.history.events.first() {
            Some(RunEvent::RunStarted(started)) => Ok(started.run),
            _ => anyhow::bail!("no run: {}", self.history.format_kinds()),
        }
    }

    pub(super) fn tool_results(&self) -> Vec<&ToolFinished> {
        let mut results = Vec::new();
        for event in &self.history.events {
            if let RunEvent::ToolFinished(result) = event {
                results.push(result);
            }
        }
        results
    }

    /// What each result says of its linter.
    fn lint_statuses(&self) -> Vec<Option<LintStatus>> {
        self.tool_results().iter().map(|result| result.facts.lint.first().map(|seen| seen.status)).collect()
    }

    /// Each final check in order: its name, and whether it passed, or that it was mended.
    pub(super) fn final_checks(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut checks = Vec::new();
        for event in &self.history.events {
            match event {
                RunEvent::GateRequested(asked) => names.push((asked.call.clone(), asked.gate.name.clone())),
                RunEvent::GateFinished(done) => {
                    let name =
                        names.iter().find(|(call, _)| *call == done.call).map_or("?", |(_, name)| name);
                    let word = match (done.step, done.passed) {
                        (GateStep::Check, true) => "passed",
                        (GateStep::Check, false) => "failed",
                        (GateStep::Mend, _) => "mended",
                    };
                    checks.push(format!("{name} {word}"));
                }
                _ => {}
            }
        }
        checks
    }

    pub(super) fn result_text(result: &ToolFinished) -> String {
        String::from_utf8_lossy(&result.content.inline_bytes().unwrap_or_default()).into_owned()
    }

    pub(super) fn assert_succeeded(&self) -> Result<()> {
        let ended = self.history.events.iter().find_map(|event| match event {
            RunEvent::RunEnded(ended) => Some(ended.result.clone()),
            _ => None,
        });
        ensure!(ended == Some(RunOutcome::Succeeded), "{ended:?}: {}", self.history.format_kinds());
        Ok(())
    }
}

/// A finding is seen in the result of the batch that made it, and mended by the model.
async fn finding_is_fixed_by_the_model(house: &CheckFixture) -> Result<()> {
    let script = r#"
[[turns]]
calls = [
  { name = "create_file", args = { path = "a.txt", content = "BAD\n" } },
  { name = "create_file", args = { path = "b.txt", content = "fine\n" } },
  { name = "list_files" },
]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "BAD", replace = "better" }] } }]
[[turns]]
text = "Done."
"#;
    let played = house.play_script("seen", &[("docket.toml", OWN_LINTER)], script).await?;
    played.assert_succeeded()?;
    let lint = [None, Some(LintStatus::Findings), None, Some(LintStatus::Clean)];
    ensure!(
        played.lint_statuses() == lint,
        "once a batch, with its last change: {:?}",
        played.lint_statuses()
    );
    let said = CheckedRun::result_text(played.tool_results()[1]);
    ensure!(said.starts_with("created b.txt") && said.ends_with("\nown finds:\na.txt:1:BAD\n"), "{said}");
    ensure!(played.asked[1].contains("a.txt:1:BAD"), "the model reads it");
    ensure!(played.final_checks() == ["own passed", "tests passed"], "{:?}", played.final_checks());
    Ok(())
}

const MENDED: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "BAD\nblank \n" } }]
[[turns]]
text = "Done."
"#;

/// What can be mended without thought is, and the model is not asked again.
async fn finding_is_fixed_without_the_model(house: &CheckFixture) -> Result<()> {
    let played =
        house.play_script("mended", &[("docket.toml", OWN_LINTER), ("old.txt", "BAD \n")], MENDED).await?;
    played.assert_succeeded()?;
    ensure!(played.asked.len() == 2, "{} requests", played.asked.len());
    let checks = ["own failed", "tests passed", "own mended", "own passed", "tests passed"];
    ensure!(played.final_checks() == checks, "{:?}", played.final_checks());
    let mended = played.history.events.iter().find_map(|event| match event {
        RunEvent::GateFinished(done) if !done.step.is_check() => Some(done.content.clone()),
        _ => None,
    });
    let said = mended.and_then(|content| content.inline_bytes()).context("a mending")?;
    let said = String::from_utf8(said)?;
    ensure!(
        said.contains("sed -i s/BAD/GOOD/ a.txt") && said.contains("a.txt, line 2: trailing white space"),
        "{said}"
    );
    let changed: Vec<String> = played
        .history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::SnapshotTaken(taken) => {
                Some(taken.changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>())
            }
            _ => None,
        })
        .flatten()
        .collect();
    ensure!(changed == ["a.txt", "a.txt"], "what the run did not write is left alone: {changed:?}");
    Ok(())
}

/// What is not mended goes back to the model, which reads what was changed under it.
async fn unfixed_finding_returns_to_the_model(house: &CheckFixture) -> Result<()> {
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "BAD BAD BAD\nblank \n" } }]
[[turns]]
text = "Done."
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "GOOD BAD", replace = "best" }] } }]
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
calls = [
  { name = "edit_file", args = { path = "a.txt", edits = [{ search = "GOOD BAD", replace = "best" }] } },
  { name = "run_command", args = { command = "echo > docket.toml; rm docket.toml" } },
]
[[turns]]
text = "Done now."
"#;
    let played = house.play_script("back", &[("docket.toml", OWN_LINTER)], script).await?;
    played.assert_succeeded()?;
    let checks = [
        "own failed",
        "tests passed",
        "own mended",
        "own failed",
        "tests passed",
        "own passed",
        "tests passed",
    ];
    ensure!(
        played.final_checks() == checks,
        "the pinned checks, whatever became of the file: {:?}",
        played.final_checks()
    );
    let third = &played.asked[2];
    ensure!(third.matches("The final check `own`").count() == 1, "told once: {third}");
    ensure!(
        third.contains("mended without you") && third.contains("Read again before you edit: a.txt"),
        "{third}"
    );
    let refused = played.tool_results()[1];
    ensure!(
        CheckedRun::result_text(refused).contains("changed on disk since it was read"),
        "{}",
        CheckedRun::result_text(refused)
    );
    Ok(())
}

/// A linter that is not installed is reported once and judges nothing.
async fn missing_linter_is_reported_once(house: &CheckFixture) -> Result<()> {
    let settings = "[lint.none]\nextensions = [\"txt\"]\ncheck = \"no-such-linter {files}\"\n";
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "create_file", args = { path = "b.txt", content = "b\n" } }]
[[turns]]
text = "Done."
"#;
    let played = house.play_script("missing", &[("docket.toml", settings)], script).await?;
    played.assert_succeeded()?;
    let told: Vec<bool> = played
        .tool_results()
        .iter()
        .map(|result| CheckedRun::result_text(result).contains("none is not installed"))
        .collect();
    ensure!(told == [true, false], "{told:?}");
    ensure!(played.lint_statuses() == [Some(LintStatus::Missing), None], "{:?}", played.lint_statuses());
    ensure!(played.final_checks().is_empty(), "{:?}", played.final_checks());
    // What only a command wrote meets its linter at the end for the first time.
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "echo a > a.txt" } }]
[[turns]]
text = "Done."
"#;
    let played = house.play_script("absent", &[("docket.toml", settings)], script).await?;
    played.assert_succeeded()?;
    let run = played.run_id()?.to_string();
    for args in [&["replay", &run][..], &["logs", &run]] {
        let shown = house.docket_output(args).await?;
        ensure!(shown.contains("not installed"), "{args:?}: {shown}");
    }
    Ok(())
}

/// A linter that hangs is ended at its limit, and the result says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_linter_is_ended_at_its_limit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    // No other linter runs in this house: on a busy machine one that works could reach so short a limit as well.
    let house = CheckFixture::new("[run]\nlint_timeout_ms = 800\n").await?;
    let settings = "[lint.slow]\nextensions = [\"md\"]\ncheck = \"sleep 600\"\ngates = false\n[lint.ruff]\nenabled = false\n";
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "c.md", content = "c\n" } }]
[[turns]]
text = "Done."
"#;
    let played = house.play_script("hanging", &[("docket.toml", settings)], script).await?;
    played.assert_succeeded()?;
    ensure!(played.lint_statuses() == [Some(LintStatus::TimedOut)], "{:?}", played.lint_statuses());
    let slow = CheckedRun::result_text(played.tool_results()[0]);
    ensure!(slow.contains("slow did not end within 0.8 s"), "{slow}");
    ensure!(played.final_checks().is_empty(), "{:?}", played.final_checks());
    house.shut_down().await
}

/// A mistake in a project's settings ends the run with the field's name.
async fn invalid_settings_end_the_run(house: &CheckFixture) -> Result<()> {
    let settings = "[lint.ruff]\nextensions = \"py\"\n";
    let server = ModelServer::start(ScriptedModel::parse(b"[[turns]]\ntext = \"Done.\"\n")?).await?;
    let sample = SampleRepository::new(&[("docket.toml", settings)])?;
    let args = ["--model", "openai:template", "--queue", "wrong-template", "--attempts", "1"];
    let (template, spec) = sample.submit(&house.coordinator, &args).await?;
    house.coordinator.client().cancel(template, "a template").await?;
    let model = server.model_ref(ModelProvider::OpenAi, "x");
    let task = house.coordinator.submit_like(&spec, &"wrong".parse()?, model).await?;
    let view = house.coordinator.wait_until_ended(task).await?;
    let shown = house.coordinator.run_docket(&["show", &task.to_string()]).await?.into_stdout()?;
    ensure!(
        server.call_count() == 0 && shown.contains("`lint.ruff.extensions` must be a list of extensions"),
        "{shown}"
    );
    ensure!(view.task.failures == 1, "{:?}", view.task);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_findings_are_fixed_or_returned_to_the_model() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = CheckFixture::new(PATIENT).await?;
    finding_is_fixed_by_the_model(&house).await?;
    finding_is_fixed_without_the_model(&house).await?;
    unfixed_finding_returns_to_the_model(&house).await?;
    missing_linter_is_reported_once(&house).await?;
    invalid_settings_end_the_run(&house).await?;
    house.shut_down().await
}

/// The process dies with the files mended and nothing of it recorded: the next one restores them and mends
/// them again, and the log reads as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_fix_is_repeated_after_a_crash() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let quiet = CheckFixture::new(PATIENT).await?;
    let plain = quiet.play_script("plain", &[("docket.toml", OWN_LINTER)], MENDED).await?;
    quiet.shut_down().await?;
    let mended = |event: &RunEvent| matches!(event, RunEvent::GateFinished(done) if !done.step.is_check());
    let seq = plain.history.events.iter().position(mended).context("a mending")? as u64 + 1;
    let dies = Failpoint { seq, when: FailpointTiming::Before, epoch: 1, whom: FailpointTarget::Run };
    let house = CheckFixture::with_failpoints(PATIENT, vec![dies]).await?;
    let played = house.play_script("mended", &[("docket.toml", OWN_LINTER)], MENDED).await?;
    played.assert_succeeded()?;
    ensure!(played.history.count_kind("RunRecovered") == 1, "{}", played.history.format_kinds());
    ensure!(
        played.final_checks() == plain.final_checks()
            && played.history.final_tree() == plain.history.final_tree()
    );
    house.shut_down().await
}

/// Whether tests that need ruff can be run.
pub(super) async fn is_ruff_available() -> bool {
    has_python_modules("ruff").await
}

/// A new Python project under the real ruff: an error is seen and mended by the model, an unused import at
/// the end by ruff itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ruff_is_detected_and_used() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    if !is_ruff_available().await {
        return Ok(());
    }
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "store.py", content = "def load(path):\n    return json.loads(path.read_text())\n" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "store.py", edits = [{ search = "def load(path):", replace = "import json\n\n\ndef load(path):" }] } }]
[[turns]]
calls = [{ name = "create_file", args = { path = "report.py", content = "import os\n\n\ndef total(rows):\n    return sum(rows)\n" } }]
[[turns]]
text = "Done."
"#;
    let house = CheckFixture::new(PATIENT).await?;
    let played = house.play_script("ruff", &[("README.md", "A store.\n")], script).await?;
    played.assert_succeeded()?;
    let lint = [Some(LintStatus::Findings), Some(LintStatus::Clean), Some(LintStatus::Findings)];
    ensure!(
        played.lint_statuses() == lint,
        "{:?}: {}",
        played.lint_statuses(),
        CheckedRun::result_text(played.tool_results()[0])
    );
    ensure!(played.asked[1].contains("F821"), "{}", played.asked[1]);
    let checks = ["syntax passed", "ruff failed", "ruff mended", "syntax passed", "ruff passed"];
    ensure!(played.final_checks() == checks, "{:?}", played.final_checks());
    ensure!(played.asked.len() == 4, "the model was not asked again");
    house.shut_down().await
}

/// An ordinary project, which never asked for a linter: what was wrong before the run is not counted, what the run
/// adds is named, and an import that its tests miss is added without the model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_imports_are_fixed_and_old_findings_ignored() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    if !is_ruff_available().await {
        return Ok(());
    }
    let script = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "calc.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "calc.py", edits = [{ search = "LAST = 1", replace = "LAST = 2" }] } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "calc.py", edits = [{ search = "return a - b", replace = "return json.loads(str(a + b))" }] } }]
[[turns]]
text = "Done."
"#;
    let calc = "import os\n\nLAST = 1\n\n\ndef add(a, b):\n    return a - b\n";
    let test = "import unittest\n\nfrom calc import add\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
                self.assertEqual(add(1, 2), 3)\n";
    let files = [("calc.py", calc), ("test_calc.py", test), (".gitignore", "__pycache__\n")];
    let house = CheckFixture::new(PATIENT).await?;
    let played = house.play_script("ordinary", &files, script).await?;
    played.assert_succeeded()?;
    let lint = [None, Some(LintStatus::Clean), Some(LintStatus::Findings)];
    ensure!(played.lint_statuses() == lint, "{:?}", played.lint_statuses());
    let said: Vec<String> = played.tool_results().into_iter().map(CheckedRun::result_text).collect();
    ensure!(said[1].contains("ruff finds nothing new (1 from before this run"), "{}", said[1]);
    ensure!(said[2].contains("F821") && !said[2].contains("F401"), "{}", said[2]);
    let checks = ["syntax passed", "tests failed", "tests mended", "syntax passed", "tests passed"];
    ensure!(played.final_checks() == checks, "{:?}", played.final_checks());
    ensure!(played.asked.len() == 4, "the model was not asked again");
    house.shut_down().await
}

/// No linter is asked for here, and none is needed: what the run made must parse, and what was broken before may
/// stay so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_parse_are_returned_to_the_model() -> Result<()> {
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "b.py", content = "def f(:\n    pass\n" } }]
[[turns]]
calls = [{ name = "read_file", args = { path = "old.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "old.py", edits = [{ search = "x = 1", replace = "x = 2" }] } }]
[[turns]]
text = "Done."
[[turns]]
calls = [{ name = "edit_file", args = { path = "b.py", edits = [{ search = "def f(:", replace = "def f():" }] } }]
[[turns]]
text = "Mended."
"#;
    let house = CheckFixture::new(PATIENT).await?;
    let old = "def broken(:\n    pass\n\n\nx = 1\n";
    let played = house.play_script("syntax", &[("old.py", old)], script).await?;
    played.assert_succeeded()?;
    ensure!(played.final_checks() == ["syntax failed", "syntax passed"], "{:?}", played.final_checks());
    let told = &played.asked[4];
    ensure!(
        told.contains("b.py has 1 error (Python), at line 1") && !told.contains("old.py gained"),
        "{told}"
    );
    house.shut_down().await
}

/// A check of tests that docket found is not failed by what failed before the first change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_that_failed_before_the_run_do_not_fail_it() -> Result<()> {
    docket_tests::needs!("python3");
    let script = r#"
[[turns]]
calls = [{ name = "run_tests", args = {} }]
[[turns]]
calls = [{ name = "create_file", args = { path = "b.txt", content = "b\n" } }]
[[turns]]
text = "Done."
"#;
    let tests = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_old(self):\n        self.fail('old')\n\n    \
                 def test_ok(self):\n        pass\n";
    let house = CheckFixture::new(PATIENT).await?;
    let played =
        house.play_script("before", &[("test_a.py", tests), (".gitignore", "__pycache__\n")], script).await?;
    played.assert_succeeded()?;
    ensure!(played.final_checks() == ["tests failed"], "{:?}", played.final_checks());
    ensure!(played.asked.len() == 3, "the model was not asked again");
    house.shut_down().await
}
