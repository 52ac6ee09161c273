//! Final verification (A12): which checks a run must pass, and which fixes are tried before its model is called
//! again.
//!
//! Checks are the pinned ones, plus the pinned linters whose files the run changed. If a check fails that can be
//! fixed mechanically (a linter's), its own fix and then patterns are tried once, and all checks run again; what
//! still fails goes to the model. If the run's settings say so, changed files must still parse, with or without a
//! linter. Tests that fail because of a missing import get it added. Pure.

use docket_schema::{
    content::{Content, WorkspacePath},
    message::CallId,
    run::{
        BlockedReason, CheckFix, FailureKind, GateSpec, GateStep, LinterSpec, RunPhase, RunStarted, RunState,
        UndecidedCheck, UnverifiedPolicy, UnverifiedReason,
    },
    snapshot::EntryKind,
};

use super::escalation;
use crate::engine::core::decision::{Action, Decision, PlannedGate};
use crate::{lint, syntax, tools};

/// Files passed to a linter at the end, and bytes of their names: more make a command line too long. A run that
/// changes more has generated them.
const FILES_MAX: usize = 200;
const FILE_NAMES_BYTES_MAX: usize = 16 * 1024;

/// Returns all checks for the current state, linters first: they are quick, and their findings are soon fixed.
pub(in crate::engine) fn final_checks(run: &RunState, pins: &RunStarted) -> Vec<GateSpec> {
    let linters =
        pins.linters.iter().filter(|linter| linter.gates && !run.linters_missing.contains(&linter.name));
    let linters = linters.filter_map(|linter| linter_check(run, linter));
    let parses = pins.settings.syntax_check && files_that_must_parse(run).next().is_some();
    let syntax = parses.then(tools::syntax_gate);
    let others = pins.gates.iter().cloned().chain(new_tests_check(run, pins));
    let others = others.map(|gate| GateSpec { mend: import_fix(run, pins, &gate), ..gate });
    syntax.into_iter().chain(linters).chain(others).collect()
}

/// Whether any check can show the runtime that the work is right: a linter alone cannot.
pub(in crate::engine) fn has_meaningful_check(run: &RunState, pins: &RunStarted) -> bool {
    !pins.gates.is_empty() || new_tests_check(run, pins).is_some()
}

/// Returns the fix for failing tests: a missing import found by a linter, even one that the project did not
/// configure. Configured linters are separate checks.
fn import_fix(run: &RunState, pins: &RunStarted, gate: &GateSpec) -> Option<CheckFix> {
    if pins.settings.mend_rules == 0 || gate.name != TESTS_CHECK {
        return gate.mend.clone();
    }
    let mut files = Vec::new();
    let mut lines = Vec::new();
    for linter in pins.linters.iter().filter(|linter| !linter.gates) {
        let known =
            run.linters_missing.contains(&linter.name) || run.lint_timeouts.contains_key(&linter.name);
        let own = if known { None } else { linter_check(run, linter) };
        let Some(GateSpec { command, mend: Some(mend), .. }) = own else { continue };
        if mend.files.iter().any(lint::can_add_imports) {
            lines.push(format!("({command})"));
            files.extend(mend.files.into_iter().filter(lint::can_add_imports));
        }
    }
    files.sort_unstable();
    files.dedup();
    (!lines.is_empty()).then(|| CheckFix { command: None, files, imports: Some(lines.join("; ")) })
}

/// Returns the files that the run changed or created in languages whose parsers are reliable enough.
pub(crate) fn files_that_must_parse(run: &RunState) -> impl Iterator<Item = &WorkspacePath> {
    let files =
        run.overlay.iter().filter(|(_, entry)| entry.is_some_and(|entry| entry.kind == EntryKind::File));
    files.map(|(path, _)| path).filter(|path| syntax::must_parse(&path.to_string())).take(FILES_MAX)
}

/// Returns a check that runs the tests the run wrote, if there were none to pin when it began.
fn new_tests_check(run: &RunState, pins: &RunStarted) -> Option<GateSpec> {
    if pins.gates.iter().any(|gate| gate.name == TESTS_CHECK) {
        return None;
    }
    let there = run.overlay.iter().filter(|(_, entry)| entry.is_some());
    let command =
        tools::test_command_by_names(there.map(|(path, _)| path.as_bytes()), pins.settings.check_rules)?;
    Some(GateSpec { name: TESTS_CHECK.to_owned(), command, mend: None })
}

/// The check that runs tests.
const TESTS_CHECK: &str = "tests";

fn linter_check(run: &RunState, linter: &LinterSpec) -> Option<GateSpec> {
    let files: Vec<WorkspacePath> = run
        .overlay
        .iter()
        .filter(|(_, entry)| entry.is_some_and(|entry| entry.kind == EntryKind::File))
        .map(|(path, _)| path.clone())
        .filter(|path| lint::applies_to(linter, path))
        .take(FILES_MAX)
        .scan(0, |bytes, path| {
            *bytes += path.as_bytes().len();
            (*bytes <= FILE_NAMES_BYTES_MAX).then_some(path)
        })
        .collect();
    if files.is_empty() {
        return None;
    }
    let command = lint::render_command(linter.project.as_ref().unwrap_or(&linter.check), &files);
    let fix = linter.fix.as_ref().map(|fix| lint::render_command(fix, &files));
    Some(GateSpec {
        name: linter.name.clone(),
        command,
        mend: Some(CheckFix { command: fix, files, imports: None }),
    })
}

/// Decides what happens if the work is reported done and final checks did not run: a person is asked, or the run
/// fails.
pub(in crate::engine) fn resolve_undecided_checks(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    if !run.undecided_due || run.transcript.has_notes() {
        return None;
    }
    let (first, UnverifiedReason { reason, .. }) = (run.undecided.first()?, unverified_reason(run, pins)?);
    match pins.settings.unverified {
        UnverifiedPolicy::Fail => {
            let message = format!(
                "the result is unverified: {reason}; another run would end likewise. Have the check run, or set \
                 run.unverified to ask or complete, then `docket retry`"
            );
            Some(Decision::fail_run(run, FailureKind::Configuration, &message))
        }
        // The fold leaves nothing due if such a run completes.
        UnverifiedPolicy::Ask | UnverifiedPolicy::Complete => {
            let question = format!(
                "The result is unverified: {reason}.\n\nThe work is said to be done, and is kept. Answer `accept` to \
                 complete the task as unverified. Or make the check run where the worker is (commands see the \
                 system's folders and those of cargo, rustup and pyenv, and have no network) and answer `again`: the \
                 checks run once more. Any other answer goes to the model, which continues. To have such tasks run, submit \
                 them with `--setup` and a line that installs from packages in the repository, or with `--tests` and \
                 a line that can run; `run.unverified = \"complete\"` completes them without asking. The check's \
                 line: `{}`",
                escalation::excerpt_first_line(&first.gate.command)
            );
            Some(Decision::block_run(run, Content::Text(question), BlockedReason::Unverified))
        }
    }
}

/// Returns why a run that succeeds now is unverified; `None` if its checks show that its work is right.
pub(crate) fn unverified_reason(run: &RunState, pins: &RunStarted) -> Option<UnverifiedReason> {
    if !run.undecided.is_empty() {
        let reason = |check: &UndecidedCheck| {
            let (name, why) = (&check.gate.name, &check.why);
            let part = if why.partly { "a part of the" } else { "the" };
            let before = match run.known_failures.base_result(name) {
                Some(base) if base.result.not_run().is_some() => ", nor did it before the work",
                Some(base) if !base.same_worker => ", though it ran on another worker before the work",
                Some(_) | None => "",
            };
            format!("{part} final check `{name}` did not run: {}{before}", why.reason)
        };
        let reason = run.undecided.iter().map(reason).collect::<Vec<_>>().join("; ");
        let checks = run.undecided.iter().map(|check| check.gate.name.clone()).collect();
        return Some(UnverifiedReason { reason, checks });
    }
    // Files that parse prove nothing about the work.
    let has_none = || final_checks(run, pins).iter().all(tools::is_syntax_gate);
    (pins.settings.role_rules > 0 && has_none()).then(UnverifiedReason::without_checks)
}

/// Returns the end message of a run whose checks still fail and that has no corrections left.
pub(in crate::engine) fn still_failing_message(run: &RunState, pins: &RunStarted) -> String {
    let rounds = run.counted_corrections().saturating_sub(1);
    if pins.settings.check_rules > 0 {
        let after = match rounds {
            0 => "the final checks fail".to_owned(),
            1 => "the final checks still fail after 1 round of correction".to_owned(),
            rounds => format!("the final checks still fail after {rounds} rounds of correction"),
        };
        return format!("{after}: {}", run.failed_checks.join("; "));
    }
    let mut message = format!("the final checks still fail after {rounds} rounds of correction");
    let failing = run.known_failures.format_last_round();
    if !failing.is_empty() {
        message.push_str(&format!("; failing: {failing}"));
    }
    message
}

/// Runs all checks.
pub(in crate::engine) fn run_checks(run: &RunState, pins: &RunStarted, checks: Vec<GateSpec>) -> Decision {
    let first = run.corrections as usize * pins.gates.len() + run.gates_in_turn as usize;
    plan_gates(run, first, checks, GateStep::Check)
}

/// Fixes the failed checks that can be fixed, if there are any.
pub(in crate::engine) fn fix_checks(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    if run.fixes_due.is_empty() {
        return None;
    }
    let first = run.corrections as usize * pins.gates.len() + run.gates_in_turn as usize;
    Some(plan_gates(run, first, run.fixes_due.clone(), GateStep::Mend))
}

fn plan_gates(run: &RunState, first: usize, gates: Vec<GateSpec>, step: GateStep) -> Decision {
    let gates = gates.into_iter().enumerate().map(|(at, gate)| PlannedGate {
        call: CallId::for_gate(run.turn, first + at),
        gate,
        step,
    });
    Decision { phase: RunPhase::Verifying, act: Action::RunGates(gates.collect()) }
}
