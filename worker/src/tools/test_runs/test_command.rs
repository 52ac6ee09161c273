//! `run_tests`: runs the project's test runner and returns counts and only the first failure.

use docket_schema::tool::{NotRun, NotRunCause};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    missing_dependency, not_run, test_files,
    test_output::parse_tests,
    test_runner::{NO_PATH, select_runner},
};
use crate::calls::{TEST_PATH_PLACEHOLDER, parse_folder_path, parse_workspace_path};
use crate::{
    shell::{quote, with_pipefail},
    tools::{
        commands::run_command::{format_output, outcome_from_end},
        context::{
            runner::{CommandEnd, CommandOutput, CommandSpec},
            tool_context::{TimeLimit, ToolContext, ToolOutcome},
        },
        text::output::{cut_middle, printable_text},
    },
};

pub(crate) const NAME: &str = "run_tests";
pub(crate) const DESCRIPTION: &str = "Runs the project's tests with the runner the project uses and answers with how many \
    passed, failed and were skipped, and with the first failure. Give test_path to run one file or test.";

/// Most characters shown of the first failure.
const FAILURE_CHARS_MAX: usize = 3000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTestsArgs {
    /// A test file, folder or test, as the runner names it: tests/test_api.py, tests/test_api.py::test_get.
    #[serde(default)]
    test_path: Option<String>,
    /// Show the runner's whole output instead of the first failure.
    #[serde(default)]
    verbose: Option<bool>,
}

/// A test command to run.
struct TestPlan {
    shell: String,
    /// Note if the runner does not support all of the path.
    unsupported_path_note: Option<&'static str>,
}

pub(crate) async fn run(context: ToolContext<'_>, args: RunTestsArgs) -> ToolOutcome {
    let plan = match plan_tests(context, &args) {
        Ok(plan) => plan,
        Err(text) => return ToolOutcome::error(NAME, text),
    };
    let limit = context.settings.time_limit(context.settings.command_timeout_ms_max);
    let spec =
        CommandSpec { shell: with_hang_report(&plan.shell, limit.ms), cwd: None, timeout_ms: limit.ms };
    match context.runner.run(spec).await {
        Ok(output) => to_outcome(context, &args, &plan, &output, limit),
        Err(error) => {
            let own = error.output.as_ref().map(|output| to_outcome(context, &args, &plan, output, limit));
            ToolOutcome::from_runner_error(NAME, &error, own)
        }
    }
}

/// Makes pytest show where a test hangs, well before the time limit: other tests may have used part of it.
fn with_hang_report(shell: &str, limit_ms: u64) -> String {
    let seconds = limit_ms as f64 / 2000.0;
    format!(
        "export PYTEST_ADDOPTS=\"${{PYTEST_ADDOPTS:+$PYTEST_ADDOPTS }}-o faulthandler_timeout={seconds:.1}\"; {}",
        with_pipefail(shell)
    )
}

fn plan_tests(context: ToolContext<'_>, args: &RunTestsArgs) -> Result<TestPlan, String> {
    let path = args.test_path.as_deref().map(str::trim).filter(|path| !path.is_empty());
    if let Some(path) = path {
        check_test_path(path)?;
    }
    if let Some(config) = context.test_runner {
        let shell = config.command.replace(TEST_PATH_PLACEHOLDER, &path.map(quote).unwrap_or_default());
        let is_taken = path.is_none() || config.command.contains(TEST_PATH_PLACEHOLDER);
        return Ok(TestPlan { shell, unsupported_path_note: (!is_taken).then_some(NO_PATH) });
    }
    let runner = select_runner(context.root, path)
        .ok_or("no test runner was found: there is no Cargo.toml, go.mod, package.json with a test script or a runner, \
                Python test, Makefile with a test target, tests/run.sh or test.sh. Use run_command; a person can set \
                [tests] command in the project's docket.toml")?;
    Ok(TestPlan { shell: runner.shell_line(), unsupported_path_note: runner.unsupported_path_note() })
}

/// A test path is passed to the runner as an argument: it must not be read as an option or lead outside.
fn check_test_path(path: &str) -> Result<(), String> {
    let file = path.split("::").next().unwrap_or(path);
    if path.starts_with('-') || path.contains('\0') {
        return Err("`test_path` must not begin with `-`".to_owned());
    }
    if file.contains('/') {
        parse_workspace_path(file).map_err(|error| format!("`test_path`: {error}"))?;
    }
    parse_folder_path(Some(file)).map(|_| ()).map_err(|error| format!("`test_path`: {error}"))
}

fn to_outcome(
    context: ToolContext<'_>,
    args: &RunTestsArgs,
    plan: &TestPlan,
    output: &CommandOutput,
    limit: TimeLimit,
) -> ToolOutcome {
    let text = format_output(output, &context.settings.redactor);
    let joined =
        printable_text(&output.stdout.to_bytes()) + "\n" + &printable_text(&output.stderr.to_bytes());
    let report = parse_tests(&joined);
    let mut outcome = outcome_from_end(output.ended, limit, report.first_failure.as_deref().unwrap_or(&text));
    let mut out =
        format!("{}\n{}{}", plan.shell, outcome.text(), plan.unsupported_path_note.unwrap_or_default());
    match report.counts {
        Some(counts) => out.push_str(&format!(
            "{} passed, {} failed, {} errors, {} skipped\n",
            counts.passed, counts.failed, counts.errors, counts.skipped
        )),
        None if outcome.facts.exit.is_some() => {
            out.push_str("the runner's counts could not be read: its exit status decides\n");
        }
        None => out.push_str("the runner's counts could not be read\n"),
    }
    let passed = output.ended == CommandEnd::Exit(0);
    let mut stopped = not_run::detect_not_run(context.root, output.ended, &plan.shell, &report, &joined);
    if report.counts.is_some_and(|counts| counts.total() == 0) {
        let whole = args.test_path.as_deref().is_none_or(|path| path.trim().is_empty());
        let (words, unrun) = describe_unrun_tests(context, plan, &joined, passed && whole);
        out.push_str(&words);
        let lacks = || unrun.needs_pytest.then(|| NotRun::for_missing(NotRunCause::RunnerMissing, "pytest"));
        stopped = stopped
            .or_else(lacks)
            .or_else(|| not_run::ran_no_tests(&unrun.files, report.counts.unwrap_or_default()));
        outcome.facts.unrun = unrun.files;
    }
    if let Some(what) = stopped.as_ref().and_then(|why| why.missing.as_ref()) {
        out.push_str(&missing_dependency::describe_missing(what));
    }
    let hung = output.ended == CommandEnd::TimedOut;
    let running = report.running.filter(|_| hung);
    if let Some(running) = &running {
        out.push_str(&format!(
            "it was running, when it was ended:\n{}\n",
            cut_middle(running, FAILURE_CHARS_MAX).0
        ));
    }
    match report.first_failure.filter(|_| !passed) {
        Some(failure) if args.verbose != Some(true) => {
            let which = if hung { "first failure of the tests that had ended" } else { "first failure" };
            out.push_str(&format!("{which}:\n{}\n", cut_middle(&failure, FAILURE_CHARS_MAX).0));
        }
        None if (passed && report.counts.is_some() || running.is_some()) && args.verbose != Some(true) => {}
        Some(_) | None => out.push_str(&cut_middle(&text, context.settings.output_chars_max).0),
    }
    outcome.content = out.into_bytes();
    outcome.full_output = (!text.is_empty()).then(|| text.into_bytes());
    outcome.facts.tests = report.counts;
    outcome.facts.failing = if passed { Vec::new() } else { report.failing };
    outcome.facts.not_run = stopped;
    outcome
}

/// Describes that no test ran; for the whole project, with the files that contain tests.
fn describe_unrun_tests(
    context: ToolContext<'_>,
    plan: &TestPlan,
    said: &str,
    whole: bool,
) -> (String, test_files::UnrunTests) {
    let mut text = "no test was run: this says nothing about the work\n".to_owned();
    let unrun = if whole {
        test_files::find_unrun_tests(context.root, &plan.shell, said)
    } else {
        test_files::UnrunTests::empty()
    };
    if !unrun.files.is_empty() {
        let names: Vec<String> = unrun.files.iter().map(ToString::to_string).collect();
        text.push_str(&format!("yet there are tests in {}", names.join(", ")));
        text.push_str(if unrun.needs_pytest {
            ": they are written for pytest\n"
        } else {
            ": the runner does not look there. It finds files by their names and folders (unittest: test*.py; node: \
             *.test.js), or by the project's settings; `[tests] command` in docket.toml or a task's `--tests` name \
             another line\n"
        });
    }
    (text, unrun)
}

#[cfg(test)]
mod tests {
    use docket_schema::tool::TestCounts;
    use serde_json::json;

    use super::*;
    use crate::tools::{
        TestRunnerConfig,
        testing::{TestWorkspace, has_program},
    };

    #[test]
    fn python_tests_are_counted_and_the_first_failure_is_shown() {
        if !has_program("python3") {
            return;
        }
        let mut w = TestWorkspace::new(&[(
            "test_sum.py",
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\n    \
             def test_b(self):\n        self.assertEqual(1, 2)\n    def test_c(self):\n        self.assertEqual(3, 4)\n    \
             @unittest.skip('no')\n    def test_d(self): pass\n",
        )]);
        let out = w.call_tool(NAME, json!({}));
        assert_eq!(
            out.facts.tests,
            Some(TestCounts { passed: 1, failed: 2, errors: 0, skipped: 1 }),
            "{}",
            out.text()
        );
        let text = out.text();
        assert!(text.contains("1 != 2") && !text.contains("3 != 4"), "{text}");
        assert_eq!((out.facts.exit, out.is_error), (Some(1), false));
        let out = w.call_tool(NAME, json!({"test_path": "test_sum.py::T::test_a"}));
        assert_eq!(
            out.facts.tests.map(|counts| (counts.passed, counts.failed)),
            Some((1, 0)),
            "{}",
            out.text()
        );
    }

    #[test]
    fn exit_status_decides_not_the_text() {
        let mut w = TestWorkspace::new(&[("test.sh", "echo '5 passed in 0.1s'; exit 1\n")]);
        let out = w.call_tool(NAME, json!({}));
        assert_eq!(out.facts.exit, Some(1));
        assert!(out.text().contains("exit status 1") && out.facts.error_signature.is_some());
    }

    #[test]
    fn failed_tests_keep_their_result_if_the_workspace_cannot_be_restored() {
        for (line, partly) in [("echo '1 failed, 2 passed in 0.1s'; exit 1\n", true), ("exit 0\n", false)] {
            let mut w = TestWorkspace::new(&[("test.sh", line)]);
            w.fail_restore();
            let out = w.call_tool(NAME, json!({}));
            let why = out.facts.not_run.clone().expect("it says why");
            assert_eq!((why.cause, why.partly), (NotRunCause::Workspace, partly), "{}", out.text());
            assert!(out.is_error && out.text().contains("folders nest too deep"), "{}", out.text());
            let failed = out.facts.tests.map(|tests| tests.failed);
            assert_eq!(failed, partly.then_some(1), "{}", out.text());
        }
        let mut w = TestWorkspace::new(&[("test.sh", "exit 1\n")]);
        w.lose_sandbox();
        let why = w.call_tool(NAME, json!({})).facts.not_run.expect("it says why");
        assert_eq!(why.cause, NotRunCause::Sandbox);
    }

    #[test]
    fn configured_command_wins() {
        let mut w = TestWorkspace::new(&[("test.sh", "exit 1\n")]);
        w.test_runner = Some(TestRunnerConfig { command: "echo \"ran {path}\"".to_owned() });
        let out = w.call_tool(NAME, json!({"test_path": "a.py", "verbose": true}));
        assert!(out.text().contains("ran a.py") && out.facts.exit == Some(0), "{}", out.text());
    }

    #[test]
    fn runner_without_path_support_or_tests_is_reported() {
        if !has_program("make") {
            return;
        }
        let mut w = TestWorkspace::new(&[("Makefile", "test:\n\t@echo ran; echo 'no tests ran in 0.01s'\n")]);
        let out = w.call_tool(NAME, json!({"test_path": "tests/a.c"}));
        assert!(
            out.text().contains("takes no path") && out.text().contains("no test was run"),
            "{}",
            out.text()
        );
        w.test_runner = Some(TestRunnerConfig { command: "true".to_owned() });
        assert!(w.call_tool(NAME, json!({"test_path": "a"})).text().contains("takes no path"));
    }

    #[test]
    fn time_limit_is_reported_and_counts_are_not_invented() {
        let mut w = TestWorkspace::new(&[("test.sh", "echo begun; sleep 60\n")]);
        w.settings.command_timeout_ms_max = 1000;
        let out = w.call_tool(NAME, json!({}));
        assert!(out.facts.timed_out && out.is_error && out.facts.tests.is_none(), "{}", out.text());
        assert!(out.text().contains("time limit of 1 s") && out.text().contains("begun"), "{}", out.text());
    }

    #[test]
    fn node_tests_are_counted() {
        if !has_program("node") {
            return;
        }
        let test = "const { test } = require('node:test');\nconst assert = require('node:assert');\n\
                    test('good', () => {});\ntest('bad', () => assert.equal(1, 2));\n";
        let mut w = TestWorkspace::new(&[("package.json", "{}"), ("sum.test.js", test)]);
        let out = w.call_tool(NAME, json!({}));
        assert_eq!(
            out.facts.tests,
            Some(TestCounts { passed: 1, failed: 1, errors: 0, skipped: 0 }),
            "{}",
            out.text()
        );
        assert!(out.text().contains("1 == 2"), "{}", out.text());
    }

    #[test]
    fn pytest_is_counted() {
        if !has_program("pytest") {
            return;
        }
        let test = "import pytest\n\ndef test_a():\n    assert 1 == 1\n\ndef test_b():\n    assert 1 == 2\n\n\
                    @pytest.mark.skip\ndef test_c(): pass\n";
        let mut w = TestWorkspace::new(&[("test_it.py", test)]);
        let out = w.call_tool(NAME, json!({}));
        assert_eq!(
            out.facts.tests,
            Some(TestCounts { passed: 1, failed: 1, errors: 0, skipped: 1 }),
            "{}",
            out.text()
        );
        assert!(out.text().contains("E       assert 1 == 2"), "{}", out.text());
        let one = w.call_tool(NAME, json!({"test_path": "test_it.py::test_a"}));
        assert_eq!(one.facts.tests.map(TestCounts::total), Some(1), "{}", one.text());
    }

    #[test]
    fn quiet_flag_of_the_project_does_not_hide_the_counts() {
        if !has_program("pytest") {
            return;
        }
        let test = "def test_ok(): assert 1\ndef test_b(): assert 0\n";
        for own in ["", "-q", "-qq", "-v", "-vv", "-ra", "-q --tb=short -rA --no-header", "-qq -rN"] {
            let ini = format!("[pytest]\naddopts = {own}\n");
            let out =
                TestWorkspace::new(&[("pytest.ini", &ini), ("test_a.py", test)]).call_tool(NAME, json!({}));
            let counts = Some(TestCounts { passed: 1, failed: 1, errors: 0, skipped: 0 });
            assert_eq!(out.facts.tests, counts, "{own}: {}", out.text());
            assert_eq!(out.facts.exit, Some(1), "{own}");
            if own != "-qq -rN" {
                assert_eq!(out.facts.failing, ["test_a.py::test_b"], "{own}: {}", out.text());
            }
        }
    }

    #[test]
    fn project_without_tests_does_not_fail() {
        if !has_program("python3") {
            return;
        }
        let mut none = TestWorkspace::new(&[("pytest.ini", "[pytest]\n"), ("a.py", "x = 1\n")]);
        let out = none.call_tool(NAME, json!({}));
        assert_eq!(out.facts.exit, Some(0), "{}", out.text());
        if has_program("pytest") {
            assert!(out.text().contains("no test was run"), "{}", out.text());
            // A request for a specific test file reports that it contains none.
            assert_ne!(none.call_tool(NAME, json!({"test_path": "a.py"})).facts.exit, Some(0));
        }
        let fails = TestWorkspace::new(&[("test_a.py", "import nowhere\n")]).call_tool(NAME, json!({}));
        assert!(fails.facts.exit.is_some_and(|exit| exit != 0), "{}", fails.text());
    }

    const UNITTEST_FILE: &str = "import unittest\nfrom calc import add\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
                            self.assertEqual(add(1, 2), 3)\n";

    fn missing_name(outcome: &ToolOutcome) -> Option<&str> {
        outcome.facts.not_run.as_ref().and_then(|why| why.missing.as_deref())
    }

    /// A project whose interpreter has no pytest.
    fn without_pytest(files: &[(&str, &str)]) -> TestWorkspace {
        let w = TestWorkspace::new(files);
        w.write_file(".venv/bin/python", "#!/bin/sh\nexec python3 -S \"$@\"\n");
        w.set_mode(".venv/bin/python", 0o755);
        w
    }

    #[test]
    fn unittest_finds_tests_outside_packages() {
        if !has_program("python3") {
            return;
        }
        let mut w = without_pytest(&[
            ("calc.py", "def add(a, b):\n    return a - b\n"),
            ("tests/test_calc.py", UNITTEST_FILE),
            ("tests/deep/test_more.py", UNITTEST_FILE),
            ("pack/__init__.py", ""),
            ("pack/tests/__init__.py", ""),
            ("pack/tests/test_pack.py", UNITTEST_FILE),
        ]);
        let counted = |args, w: &mut TestWorkspace| {
            let out = w.call_tool(NAME, args);
            assert_eq!(out.facts.exit, Some(1), "{}", out.text());
            out.facts.tests.map(|tests| (tests.passed, tests.failed, tests.errors))
        };
        assert_eq!(counted(json!({}), &mut w), Some((0, 3, 0)));
        assert_eq!(counted(json!({ "test_path": "tests" }), &mut w), Some((0, 2, 0)));
        assert_eq!(counted(json!({ "test_path": "tests/" }), &mut w), Some((0, 2, 0)));
        assert_eq!(counted(json!({ "test_path": "tests/deep" }), &mut w), Some((0, 1, 0)));
        assert_eq!(counted(json!({ "test_path": "pack/tests" }), &mut w), Some((0, 1, 0)));
        assert_eq!(counted(json!({ "test_path": "tests/test_calc.py" }), &mut w), Some((0, 1, 0)));
        assert_eq!(
            counted(json!({ "test_path": "tests/test_calc.py::T::test_add" }), &mut w),
            Some((0, 1, 0))
        );
        assert_eq!(counted(json!({ "test_path": "pack/tests/test_pack.py" }), &mut w), Some((0, 1, 0)));
    }

    #[test]
    fn tests_that_no_runner_ran_are_named() {
        if !has_program("python3") {
            return;
        }
        let mut bare = without_pytest(&[("test_calc.py", "def test_add():\n    assert 0\n")]);
        let out = bare.call_tool(NAME, json!({}));
        assert_eq!((out.facts.exit, missing_name(&out)), (Some(0), Some("pytest")), "{}", out.text());
        assert_eq!(out.facts.unrun.iter().map(ToString::to_string).collect::<Vec<_>>(), ["test_calc.py"]);
        assert!(
            out.text().contains("written for pytest") && out.text().contains("is not there"),
            "{}",
            out.text()
        );
        // A file that unittest does not discover.
        let mut other = without_pytest(&[("calc.py", "add = int\n"), ("calc_test.py", UNITTEST_FILE)]);
        let out = other.call_tool(NAME, json!({}));
        assert_eq!((missing_name(&out), out.facts.unrun.len()), (None, 1), "{}", out.text());
        assert_eq!(out.facts.not_run.as_ref().map(|why| why.cause), Some(NotRunCause::NoTests));
        assert!(out.text().contains("calc_test.py: the runner does not look there"), "{}", out.text());
        // Without any tests nothing is missed.
        let mut none = without_pytest(&[("pytest.ini", ""), ("test_help.py", "x = 1\n")]);
        let out = none.call_tool(NAME, json!({}));
        assert!(out.facts.unrun.is_empty() && out.facts.not_run.is_none(), "{}", out.text());
    }

    #[test]
    fn missing_runner_is_named() {
        let mut w = TestWorkspace::new(&[("test.sh", "no-such-runner --all\n")]);
        let out = w.call_tool(NAME, json!({}));
        assert_eq!((out.facts.exit, missing_name(&out)), (Some(127), Some("no-such-runner")));
        assert!(out.text().contains("commands have no network"), "{}", out.text());
    }

    #[test]
    fn hanging_test_is_shown_with_its_location() {
        if !has_program("pytest") {
            return;
        }
        let test = "import time\n\ndef helper():\n    time.sleep(60)\n\ndef test_slow():\n    helper()\n";
        let mut w = TestWorkspace::new(&[("test_x.py", test)]);
        // Starting pytest on a busy machine may use up more than ten seconds of the limit.
        w.settings.command_timeout_ms_max = 30_000;
        let out = w.call_tool(NAME, json!({}));
        assert!(out.facts.timed_out, "{}", out.text());
        let text = out.text();
        assert!(text.contains("line 4 in helper") && text.contains("line 7 in test_slow"), "{text}");
        assert!(!text.contains("_pytest") && !text.contains("exit status"), "{text}");
    }

    #[test]
    fn subfolder_is_tested_by_its_own_runner() {
        if !has_program("python3") {
            return;
        }
        let mut w = TestWorkspace::new(&[
            ("back end/pyproject.toml", ""),
            ("back end/app.py", "x = 1\n"),
            (
                "back end/tests/test_a.py",
                "import unittest\nfrom app import x\nclass T(unittest.TestCase):\n    def test_x(self):\n        assert x\n",
            ),
        ]);
        for path in ["back end/tests", "back end/tests/test_a.py", "back end"] {
            let out = w.call_tool(NAME, json!({ "test_path": path }));
            assert_eq!(out.facts.exit, Some(0), "{path}: {}", out.text());
            assert_eq!(out.facts.tests.map(|tests| tests.passed), Some(1), "{path}: {}", out.text());
        }
    }

    #[test]
    fn tap_output_is_counted_and_silent_output_has_no_note() {
        if !has_program("make") {
            return;
        }
        let tap = "test:\n\t@printf '1..3\\nok 1 - a\\nnot ok 2 - b\\nok 3 # SKIP no\\n'; exit 1\n";
        let out = TestWorkspace::new(&[("Makefile", tap)]).call_tool(NAME, json!({}));
        let counts = TestCounts { passed: 1, failed: 1, errors: 0, skipped: 1 };
        assert_eq!(out.facts.tests, Some(counts), "{}", out.text());
        let mut quiet = TestWorkspace::new(&[]);
        quiet.test_runner = Some(TestRunnerConfig { command: "exit 3".to_owned() });
        assert_eq!(quiet.call_tool(NAME, json!({})).full_output, None);
        let call = docket_schema::message::CallId("t1-1".to_owned());
        assert!(crate::tools::full_output_note(&call, b"").is_empty());
    }

    #[test]
    fn invalid_path_is_refused() {
        let mut w = TestWorkspace::new(&[("test.sh", "")]);
        for path in ["--help", "../x", "/etc"] {
            assert!(w.call_tool(NAME, json!({"test_path": path})).is_error, "{path}");
        }
        assert!(
            TestWorkspace::new(&[]).call_tool(NAME, json!({})).text().contains("no test runner was found")
        );
    }
}
