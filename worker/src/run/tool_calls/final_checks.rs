//! Runs the final checks: which call each one makes, what its result adds, and whether it passed.
//!
//! Called by the tool executor. Everything found here is recorded with the result, so no decision depends on
//! unrecorded facts.

use std::{collections::BTreeMap, path::Path, time::Duration};

use docket_schema::{
    content::WorkspacePath,
    message::ToolUse,
    run::{GateRequested, GateSpec, GateStep, RunState},
    snapshot::EntryKind,
    tool::{LintResult, LintStatus, NotRun, NotRunCause},
};

use super::tool_executor::ToolExecutor;
use crate::{
    engine,
    tools::{self, TestRunnerConfig, ToolOutcome},
};

/// Exit status of a shell that does not find a program.
const EXIT_COMMAND_NOT_FOUND: i32 = 127;
/// Changed files inspected for removed tests, and how many of those are named.
const FILES_INSPECTED_MAX: usize = 2000;
const FILES_NAMED_MAX: usize = 10;

/// A completed check.
pub(in crate::run) struct CompletedCheck<'a> {
    pub(in crate::run) request: &'a GateRequested,
    pub(in crate::run) outcome: ToolOutcome,
    pub(in crate::run) duration: Duration,
}

/// Runs one check; `others` are the earlier checks of its round.
pub(in crate::run) async fn run_check(
    bench: &ToolExecutor,
    state: &RunState,
    open: &GateRequested,
    others: &[(usize, CompletedCheck<'_>)],
) -> ToolOutcome {
    if tools::is_syntax_gate(&open.gate) {
        let mut files = Vec::new();
        for path in engine::files_that_must_parse(state) {
            // If the base cannot be read, nothing is compared.
            if let Ok(before) = bench.workspace.base_objects().read_file(path).await {
                files.push((path.clone(), before));
            }
        }
        let nothing_read = BTreeMap::new();
        return tools::run_syntax_gate(
            bench.tool_context(&nothing_read, None),
            &files,
            &summarize_other_checks(others),
        )
        .await;
    }
    match open.step {
        GateStep::Check => {}
        GateStep::Mend => {
            return tools::fix_failed_check(bench.tool_context(&BTreeMap::new(), None), &open.gate).await;
        }
    }
    let (tool, tests) = check_call(open, bench.settings.command_timeout_ms_max);
    let mut outcome = bench.execute_tool(&tool, &BTreeMap::new(), tests.as_ref()).await;
    if tests.is_some() {
        annotate_tests(bench, state, open, &mut outcome).await;
    } else if open.gate.name == REQUIRES_CHECK && outcome.facts.exit != Some(0) {
        annotate_required_paths(bench, state, &mut outcome);
    } else if is_linter_missing(open, &outcome) {
        let name = &open.gate.name;
        let told = format!("{name} is not installed or cannot run here: nothing was checked\n");
        outcome.content.splice(0..0, told.into_bytes());
        outcome.facts.lint = vec![LintResult::without_findings(name, LintStatus::Missing)];
        let by_run = changed_test_setup(state);
        outcome.facts.not_run =
            Some(NotRun { by_run, ..NotRun::for_missing(NotRunCause::ProgramMissing, name) });
    }
    outcome
}

/// Summarizes the other checks for the syntax check.
fn summarize_other_checks(done: &[(usize, CompletedCheck<'_>)]) -> tools::OtherChecks {
    let mut others = tools::OtherChecks::default();
    for CompletedCheck { request: open, outcome, .. } in done.iter().map(|(_, done)| done) {
        let passed = has_passed(open, outcome);
        others.failed |= !passed && !is_linter_missing(open, outcome);
        if passed && outcome.facts.exit == Some(0) {
            let ran = outcome.facts.tests.is_none_or(|tests| tests.passed > 0);
            others.tests_passed |= open.gate.name == TESTS_CHECK && ran;
            let lints = open.gate.mend.as_ref().filter(|mend| mend.imports.is_none());
            others.linted_files.extend(lints.into_iter().flat_map(|mend| mend.files.iter().cloned()));
        }
    }
    others
}

/// Whether a linter's check could not run.
fn is_linter_missing(open: &GateRequested, outcome: &ToolOutcome) -> bool {
    open.step.is_check() && open.gate.is_linter() && outcome.facts.exit == Some(EXIT_COMMAND_NOT_FOUND)
}

const TESTS_CHECK: &str = "tests";
const REQUIRES_CHECK: &str = "requires";

/// Notes which tests were removed, and whether the run may have kept tests from running.
async fn annotate_tests(
    bench: &ToolExecutor,
    state: &RunState,
    open: &GateRequested,
    outcome: &mut ToolOutcome,
) {
    let removed = find_removed_tests(bench, state).await;
    if !removed.is_empty() {
        let names: Vec<String> = removed.iter().map(ToString::to_string).collect();
        let mut text = format!("this run removed the tests of: {}\n", names.join(", "));
        if ran_no_tests(outcome) {
            text.push_str("no test is left to run. Put them back, or write such as hold what they held\n");
        }
        outcome.content.splice(0..0, text.into_bytes());
        outcome.facts.removed_tests = removed;
    }
    if let Some(why) = &mut outcome.facts.not_run {
        let is_same = |gate: &GateSpec| gate.name == open.gate.name && gate.command == open.gate.command;
        let was_pinned = state.pins.as_ref().is_some_and(|pins| pins.gates.iter().any(is_same));
        why.by_run = !was_pinned || changed_test_setup(state) || is_changed_file_missing(state, why);
    }
}

/// Whether the run changed files that configure the project's tests.
fn changed_test_setup(state: &RunState) -> bool {
    state.overlay.keys().any(tools::is_test_config)
}

/// Whether the missing file belongs to the project and was changed or removed by the run.
fn is_changed_file_missing(state: &RunState, why: &NotRun) -> bool {
    let Some(missing) = why.missing.as_deref().map(Path::new) else { return false };
    let missing = missing.strip_prefix(".").unwrap_or(missing);
    state.overlay.keys().any(|path| {
        let path = path.to_string();
        // A command that ran in a subfolder names a part of the path; an interpreter names all of it.
        Path::new(&path).ends_with(missing) || missing.ends_with(&path)
    })
}

/// Finds files whose tests the run removed. A file moved elsewhere under the same name still exists.
async fn find_removed_tests(bench: &ToolExecutor, state: &RunState) -> Vec<WorkspacePath> {
    let is_there = |path: &WorkspacePath| tools::holds_tests_now(&bench.root, path);
    let name = |path: &WorkspacePath| path.components().last().map(<[u8]>::to_vec);
    let moved = |gone: &WorkspacePath| {
        let files =
            state.overlay.iter().filter(|(_, entry)| entry.is_some_and(|e| e.kind == EntryKind::File));
        files.filter(|(path, _)| name(path) == name(gone)).any(|(path, _)| is_there(path))
    };
    let mut removed = Vec::new();
    for path in state.overlay.keys().filter(|path| tools::may_hold_tests(path)).take(FILES_INSPECTED_MAX) {
        if removed.len() == FILES_NAMED_MAX {
            break;
        }
        // If the base cannot be read, nothing is compared.
        let before = bench.workspace.base_objects().read_file(path).await.ok().flatten();
        let held = before.is_some_and(|bytes| tools::holds_tests(path, &bytes));
        if held && !is_there(path) && !moved(path) {
            removed.push(path.clone());
        }
    }
    removed
}

/// Names the required paths that are missing, because the shell's own test prints nothing.
fn annotate_required_paths(bench: &ToolExecutor, state: &RunState, outcome: &mut ToolOutcome) {
    let required = state.pins.iter().flat_map(|pins| &pins.requires);
    let gone = required.map(ToString::to_string).filter(|path| bench.root.metadata(path).is_err());
    let gone: Vec<String> = gone.collect();
    if !gone.is_empty() {
        outcome.content.extend_from_slice(format!("not there: {}\n", gone.join(", ")).as_bytes());
    }
    outcome.facts.failing = gone;
}

fn ran_no_tests(outcome: &ToolOutcome) -> bool {
    outcome.facts.tests.is_some_and(|tests| tests.total() == 0)
}

/// Whether a check passed, or a fix changed anything. A linter that is not installed did not pass. If no tests ran
/// although some exist or existed, nothing was shown.
pub(in crate::run) fn has_passed(open: &GateRequested, outcome: &ToolOutcome) -> bool {
    let facts = &outcome.facts;
    let ended = !outcome.is_error && !facts.timed_out;
    match open.step {
        GateStep::Mend => ended && !facts.changed.is_empty(),
        GateStep::Check => {
            let in_vain =
                ran_no_tests(outcome) && !(facts.unrun.is_empty() && facts.removed_tests.is_empty());
            ended && facts.exit == Some(0) && !in_vain
        }
    }
}

/// Returns the call for a gate. It runs the line pinned at the start, whatever the workspace looks like now: a model
/// must not choose its own judge. A linter gets as much time as tests, because the first run on a project may build
/// all of it.
fn check_call(open: &GateRequested, timeout_ms_max: u64) -> (ToolUse, Option<TestRunnerConfig>) {
    let command = open.gate.command.clone();
    let (name, args, tests) = if open.gate.name == TESTS_CHECK {
        ("run_tests", serde_json::json!({}), Some(TestRunnerConfig { command }))
    } else if open.gate.mend.is_some() && timeout_ms_max >= 1000 {
        let command = tools::with_pipefail(&command);
        ("run_command", serde_json::json!({ "command": command, "timeout_s": timeout_ms_max / 1000 }), None)
    } else {
        ("run_command", serde_json::json!({ "command": tools::with_pipefail(&command) }), None)
    };
    (ToolUse { call: open.call.clone(), name: name.to_owned(), args, malformed: None }, tests)
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::{DecisionHash, Turn},
        message::CallId,
        tool::{TestCounts, ToolFacts},
    };

    use super::*;

    fn open_gate(name: &str) -> GateRequested {
        let gate = GateSpec { name: name.to_owned(), command: "make test".to_owned(), mend: None };
        let call = CallId::for_gate(Turn(3), 0);
        GateRequested { call, gate, step: GateStep::Check, decision: DecisionHash([0; 32]) }
    }

    #[test]
    fn gate_runs_the_pinned_command() {
        for (name, tool) in [("tests", "run_tests"), ("requires", "run_command")] {
            let (used, tests) = check_call(&open_gate(name), 300_000);
            let line = tests.map(|tests| tests.command);
            let line = line.or_else(|| used.args["command"].as_str().map(str::to_owned));
            assert_eq!((used.name.as_str(), line.as_deref()), (tool, Some("make test")));
        }
    }

    #[test]
    fn piped_check_fails_if_any_command_fails() {
        for mend in
            [None, Some(docket_schema::run::CheckFix { command: None, files: Vec::new(), imports: None })]
        {
            let mut piped = open_gate("mine");
            piped.gate = GateSpec { command: "lints | tail -5".to_owned(), mend, ..piped.gate };
            let (used, _) = check_call(&piped, 300_000);
            let line = used.args["command"].as_str().unwrap_or_default();
            assert!(line.contains("pipefail") && line.ends_with("; lints | tail -5"), "{line}");
        }
    }

    #[test]
    fn missing_linter_does_not_pass() {
        let mut linter = open_gate("ruff");
        linter.gate.mend =
            Some(docket_schema::run::CheckFix { command: None, files: Vec::new(), imports: None });
        for (exit, passes) in [(0, true), (1, false), (EXIT_COMMAND_NOT_FOUND, false)] {
            let facts = ToolFacts { exit: Some(exit), ..ToolFacts::default() };
            let outcome = ToolOutcome { facts, ..ToolOutcome::default() };
            assert_eq!(has_passed(&linter, &outcome), passes, "{exit}");
        }
    }

    #[test]
    fn missing_program_is_blamed_on_the_run_that_changed_it() {
        let mut state = RunState::default();
        state.overlay.insert(WorkspacePath::new("tools/check").expect("legal"), None);
        for (missing, is_own) in [
            ("tools/check", true),
            ("./tools/check", true),
            // In a subfolder, and as an interpreter names it.
            ("./check", true),
            ("/workspace/tools/check", true),
            ("pytest", false),
            ("heck", false),
            ("other/check", false),
        ] {
            let why = NotRun::for_missing(NotRunCause::ProgramMissing, missing);
            assert_eq!(is_changed_file_missing(&state, &why), is_own, "{missing}");
        }
        let unnamed = NotRun::new(NotRunCause::ProgramMissing, "a program cannot be executed");
        assert!(!is_changed_file_missing(&state, &unnamed));
    }

    #[test]
    fn check_without_tests_passes_only_if_none_exist() {
        let path = || vec![WorkspacePath::new("test_a.py").expect("legal")];
        let zero = || ToolFacts { exit: Some(0), tests: Some(TestCounts::default()), ..ToolFacts::default() };
        let ran = TestCounts { passed: 1, ..TestCounts::default() };
        for (facts, passes) in [
            (zero(), true),
            (ToolFacts { unrun: path(), ..zero() }, false),
            (ToolFacts { removed_tests: path(), ..zero() }, false),
            (ToolFacts { removed_tests: path(), tests: Some(ran), ..zero() }, true),
            (ToolFacts { removed_tests: path(), tests: None, ..zero() }, true),
        ] {
            let outcome = ToolOutcome { facts, ..ToolOutcome::default() };
            assert_eq!(has_passed(&open_gate("tests"), &outcome), passes, "{outcome:?}");
        }
    }
}
