//! What an evaluation asks, waits for and looks at, in suites of one task: models by role, work that was given away,
//! results that would fool their checks.

use anyhow::Context as _;
use docket_schema::{
    report::{Metric, MetricTally},
    run::BlockedReason,
};

use super::*;

/// The suite of one task with a script of its own.
fn scripted_suite(home: &Path, script: &str, changes: &[(&str, &str)]) -> Result<TestSuite> {
    let own = home.join("script.toml");
    std::fs::write(&own, script)?;
    let from = format!("script = \"{}/scripts/busy-provider.react.toml\"", samples_folder().display());
    let to = format!("script = \"{}\"", own.display());
    TestSuite::new(&[&[(from.as_str(), to.as_str())], changes].concat())
}

async fn evaluate_suite(home: &Path, suite: &TestSuite, flags: &[&str]) -> Result<EvalReport> {
    let flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
    let args = [&["eval".as_ref(), suite.suite_path(), "--json".as_ref()], &flags[..]].concat();
    let said = run_docket(home, &args).await?;
    let report = parse_report(&said)?;
    let code = i32::from(report.all.passed != report.all.tasks);
    ensure!(said.code() == Some(code) && report.results.len() == 1, "{said:?}");
    Ok(report)
}

/// Names and words of the checks that failed.
fn failed_checks(report: &EvalReport) -> Vec<(&str, &str)> {
    let checks = report.results[0].checks.iter().filter(|check| !check.passed);
    checks.map(|check| (check.what.as_str(), check.said.as_deref().unwrap_or_default())).collect()
}

const REVIEWED: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '["count all shelves"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [{ name = "read_file", args = { path = "cellar.py" } }]
[[talks.turns]]
calls = [{ name = "edit_file", args = { path = "cellar.py", edits = [{ search = "    for shelf in shelves[1:]:", replace = "    for shelf in shelves:" }] } }]
[[talks.turns]]
text = '{"success": true, "output": "all shelves are counted"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "the goal is reached"}'
"#;

/// Events of the kept run.
async fn run_events(home: &Path, report: &EvalReport) -> Result<Vec<Value>> {
    let run = report.results[0].run.context("a run")?.to_string();
    let log = run_docket(home, &["logs", &run, "--json"]).await?.into_stdout()?;
    Ok(log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Each role with the models that were asked in it, in order.
fn requested_models(events: &[Value]) -> Vec<(String, String)> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let calls = events.iter().filter(|event| event["kind"] == "ModelRequested");
    let mut asked: Vec<_> = calls
        .map(|event| (text(&event["payload"]["role"]), text(&event["payload"]["model"]["name"])))
        .collect();
    asked.dedup();
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_use_the_models_of_settings_and_flags() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    // What follows no script is left out where the task follows one.
    let settings = "[task]\nfallback_model = \"scripted:spare\"\nexplore_model = \"openai:real\"\n\
                    [roles.planner]\nmodel = \"scripted:strong\"\n[roles.reviewer]\nmodel = \"openai:real\"\n";
    std::fs::write(home.path().join("docket.toml"), settings)?;
    let suite = scripted_suite(home.path(), REVIEWED, &[("[limits]", "engines = [\"review\"]\n[limits]")])?;
    for (flags, models, has_fallback) in [
        (&["--keep"][..], ["strong", "x", "x"], true),
        (&["--keep", "--role", "reviewer=scripted:judge"], ["strong", "x", "judge"], true),
        (&["--keep", "--model", "scripted:only"], ["only"; 3], false),
    ] {
        let report = evaluate_suite(home.path(), &suite, flags).await?;
        ensure!(report.all.passed == 1, "{flags:?}: {report:#?}");
        let events = run_events(home.path(), &report).await?;
        let roles = ["planner", "executor", "reviewer"].map(str::to_owned);
        let wanted: Vec<_> = roles.into_iter().zip(models.map(str::to_owned)).collect();
        ensure!(requested_models(&events) == wanted, "{flags:?}: {:?}", requested_models(&events));
        let started = events.iter().find(|event| event["kind"] == "RunStarted").context("a start")?;
        let models = &started["payload"]["models"];
        ensure!(models["fallback"].is_null() != has_fallback && models["explore"].is_null(), "{models}");
    }
    for (flags, says) in [
        (&["--role", "planner=openai:real"][..], "--role planner=openai:real: the models of a task must all"),
        (&["--role", "tester=scripted:a"], "there is no role `tester`; the engine `review` has"),
        (&["--model", "scripted:a", "--role", "planner=scripted:b"], "--model applies to every role"),
        (&["--role", "planner"], "it must be NAME=MODEL"),
    ] {
        let flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
        let said =
            run_docket(home.path(), &[&["eval".as_ref(), suite.suite_path()], &flags[..]].concat()).await?;
        ensure!(said.code() == Some(2) && said.stderr.contains(says), "{flags:?}: {said:?}");
    }
    // A budget of money is kept by the prices of all of them: told before anything is started.
    let settings = "[roles.planner]\nmodel = \"openai:nobody-knows-its-price\"\n";
    std::fs::write(home.path().join("docket.toml"), settings)?;
    let changes = [
        ("[limits]", "engines = [\"review\"]\nmodel = \"openai:gpt-4.1\"\n[limits]"),
        ("turns = 9", "cost = \"1\""),
    ];
    let suite = scripted_suite(home.path(), REVIEWED, &changes)?;
    let said = run_docket(home.path(), &["eval".as_ref(), suite.suite_path()]).await?;
    let says = ["`limits.cost`", "no price is known for openai:nobody-knows-its-price"];
    ensure!(said.code() == Some(2) && says.iter().all(|word| said.stderr.contains(word)), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore_model_is_asked_first() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("docket.toml"), "[task]\nexplore_model = \"scripted:cheap\"\n")?;
    let suite = TestSuite::new(&[])?;
    for (flags, first) in [(&["--keep"][..], "cheap"), (&["--keep", "--model", "scripted:only"], "only")] {
        let report = evaluate_suite(home.path(), &suite, flags).await?;
        let asked = requested_models(&run_events(home.path(), &report).await?);
        ensure!(asked.first().is_some_and(|(_, model)| model == first), "{flags:?}: {asked:?}");
    }
    Ok(())
}

const ASKS: &str = r#"
[[turns]]
when = { any_contains = "Find the way to the cellar." }
text = "BLOCKED: Which way?"
or = [{ calls = [{ name = "delegate", args = { title = "Find", instructions = "Find the way to the cellar." } }] }]
[[turns]]
text = "Found."
"#;

/// The parent waits for its child, and the child for a person: nothing of it goes on, so the evaluation ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_asks_a_person_ends_the_evaluation() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("docket.toml"), "[run]\ndelegation_depth_max = 1\n")?;
    let suite = scripted_suite(
        home.path(),
        ASKS,
        &[
            ("commands = [\"grep -q 'in shelves:' cellar.py\"]", "commands = []"),
            ("outcome = \"succeeded\"", "outcome = \"blocked: child\""),
        ],
    )?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    let one = &report.results[0];
    ensure!(one.passed && one.outcome == EvalOutcome::Blocked(BlockedReason::Child), "{one:#?}");
    ensure!(one.message.as_deref().is_some_and(|said| said.contains("Which way?")), "{one:#?}");
    Ok(())
}

const CHILD_READS: &str = r#"
[[turns]]
when = { any_contains = "Say what the cellar is." }
calls = [{ name = "read_file", args = { path = "secrets/keys.txt" } }]
or = [{ calls = [{ name = "delegate", args = { title = "Look", instructions = "Say what the cellar is." } }] }]
[[turns]]
calls = [{ name = "read_file", args = { path = "cellar.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "cellar.py", edits = [{ search = "    for shelf in shelves[1:]:", replace = "    for shelf in shelves:" }] } }]
[[turns]]
text = "All shelves are counted."
"#;

/// What a child was shown was shown, and what it was denied was denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_actions_are_judged_with_the_parent() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("docket.toml"), "[run]\ndelegation_depth_max = 1\n")?;
    let unread = ("unchanged = [\"tests/**\"]", "unread = [\"secrets/**\"]");
    let suite = scripted_suite(home.path(), CHILD_READS, &[unread])?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    let failed = failed_checks(&report);
    ensure!(failed.len() == 1 && failed[0].0 == "unread", "{failed:?}");
    ensure!(failed[0].1.contains("secrets/keys.txt"), "{failed:?}");

    let policy = format!("policy = \"{}/policies/careful.toml\"\n[limits]", samples_folder().display());
    let denied = ("outcome = \"succeeded\"", "denied = [\"no-secrets\"]");
    let suite = scripted_suite(home.path(), CHILD_READS, &[unread, ("[limits]", &policy), denied])?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    ensure!(report.all.passed == 1, "{report:#?}");
    // One call of the child was denied, of three that each made.
    let tally = MetricTally::from_views(&report.results[0].metrics);
    ensure!(tally.get(Metric::PolicyDenialRate) == Ratio { of: 1, all: 1 }, "{tally:?}");
    ensure!(tally.get(Metric::ToolErrorRate) == Ratio { of: 1, all: 6 }, "{tally:?}");
    ensure!(tally.get(Metric::PatchApplyRate) == Ratio { of: 2, all: 2 }, "{tally:?}");
    ensure!(tally.get(Metric::TaskSuccessRate).all == 1, "it is one task");
    Ok(())
}

const SHADOWS: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "unittest.py", content = "pass\n" } }]
[[turns]]
text = "All tests pass."
"#;

const TESTED: &str = "python3 -m unittest tests.test_cellar";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_shadowing_the_tests_violates_allowed_changes() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let usual = [("[limits]", "tests = \"true\"\n[limits]"), ("grep -q 'in shelves:' cellar.py", TESTED)];
    let suite = scripted_suite(home.path(), SHADOWS, &usual)?;
    let fooled = evaluate_suite(home.path(), &suite, &[]).await?;
    ensure!(fooled.all.passed == 1, "the command alone is fooled: {fooled:#?}");
    let may = |globs: &'static str| [&usual[..], &[("outcome = \"succeeded\"", globs)]].concat();
    let suite = scripted_suite(home.path(), SHADOWS, &may("changes = [\"cellar.py\", \"*.md\"]"))?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    let words = "changed outside of these: unittest.py";
    ensure!(failed_checks(&report) == [("changes", words)], "{:?}", failed_checks(&report));
    ensure!(check_names(&report.results[0], EvalCheckKind::Changes) == ["cellar.py, *.md"]);
    ensure!(report.results[0].outcome == EvalOutcome::Succeeded && report.all.accepted == 0);
    let suite = scripted_suite(home.path(), SHADOWS, &may("changes = []"))?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    ensure!(failed_checks(&report) == [("changes", words)] && report.results[0].checks[0].name == "nothing");
    Ok(())
}

const BENDS: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "tests/test_cellar.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "tests/test_cellar.py", edits = [{ search = "        self.assertEqual(bottles([3, 4, 5]), 12)", replace = "        self.assertEqual(bottles([3, 4, 5]), 9)" }] } }]
[[turns]]
text = "All tests pass."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modified_test_is_replaced_by_the_suite_file() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let tests = format!("tests = \"{TESTED}\"\n[limits]");
    let usual = [
        ("[limits]", tests.as_str()),
        ("grep -q 'in shelves:' cellar.py", TESTED),
        ("unchanged = [\"tests/**\"]", "unchanged = []"),
    ];
    let bent = evaluate_suite(home.path(), &scripted_suite(home.path(), BENDS, &usual)?, &[]).await?;
    ensure!(bent.all.passed == 1, "the command alone is fooled: {bent:#?}");
    let suite = scripted_suite(
        home.path(),
        BENDS,
        &[&usual[..], &[("[accept]", "[accept]\nfiles = \"own\"")]].concat(),
    )?;
    std::fs::create_dir_all(suite.0.path().join("own/tests"))?;
    let real = samples_folder().join("fixtures/cellar/tests/test_cellar.py");
    std::fs::copy(real, suite.0.path().join("own/tests/test_cellar.py"))?;
    let report = evaluate_suite(home.path(), &suite, &[]).await?;
    let failed = failed_checks(&report);
    ensure!(failed.len() == 1 && failed[0].0 == "command" && failed[0].1.contains("9 != 12"), "{failed:?}");
    ensure!(report.results[0].outcome == EvalOutcome::Succeeded, "{report:#?}");
    Ok(())
}
