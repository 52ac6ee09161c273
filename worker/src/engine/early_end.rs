//! Early end (A23): the paths that the task requires exist and its tests pass, so the final checks run without
//! another model call.
//!
//! Only the log counts as evidence: each path was written or read in this run, and at least one was written, because
//! paths that all existed before say nothing about the work. A plan with open steps prevents it, and so does any
//! undelivered message. If a check fails, the model continues as usual.

use docket_schema::run::{RunOutcome, RunStarted, RunState};

use super::{core::decision::Decision, rules::verification};

/// Returns the end, or the checks before it; `None` while work is left.
pub(super) fn early_end_decision(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let asked_for = pins.settings.early_end && !pins.requires.is_empty();
    let said = run.transcript.has_notes() || run.ledger.has_open_steps();
    if !asked_for || !run.tests_passed || said || !has_required_paths(run, pins) {
        return None;
    }
    let checks = verification::final_checks(run, pins);
    Some(if run.gates_passed || checks.is_empty() {
        Decision::end_run(run, RunOutcome::Succeeded)
    } else {
        verification::run_checks(run, pins, checks)
    })
}

fn has_required_paths(run: &RunState, pins: &RunStarted) -> bool {
    let wrote = |path| run.overlay.get(path).is_some_and(Option::is_some);
    let there =
        |path| wrote(path) || (!run.overlay.contains_key(path) && run.known_hashes.contains_key(path));
    pins.requires.iter().all(there) && pins.requires.iter().any(wrote)
}
