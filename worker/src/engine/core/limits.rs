//! Requests and limits that end or halt a run before any rule of its engine: requests of people, exhausted budgets,
//! commands that use too much; and the number of turns it may have. Pure.

use std::collections::BTreeSet;

use docket_schema::{
    ids::Turn,
    run::{BlockedReason, FailureKind, LimitKind, RunOutcome, RunSettings, RunState},
};

use super::decision::{Action, Decision};

/// Returns the decision that is due regardless of the engine's rules.
pub(in crate::engine) fn decide_requests_and_limits(run: &RunState) -> Option<Decision> {
    if run.cancel_requested {
        return Some(Decision::end_run(run, RunOutcome::Cancelled));
    }
    if run.limit == Some(LimitKind::Batch) {
        let said = run.limit_message.as_deref().unwrap_or("its batch has used up what it may");
        let rests = || Decision::block_run(run, said.into(), BlockedReason::Budget);
        return run.pending_calls.is_empty().then(rests);
    }
    if let (Some(LimitKind::Money), Some(said)) = (run.limit, &run.limit_message) {
        // Fails only this run, not its batch: no budget can cover a model without a price.
        return Some(Decision::fail_run(run, FailureKind::Configuration, said));
    }
    if let Some(limit) = run.limit {
        let which = match limit {
            LimitKind::Time => "time",
            LimitKind::Tokens => "tokens",
            LimitKind::Money => "money",
            LimitKind::Batch => "its batch",
        };
        return Some(Decision::fail_run(
            run,
            FailureKind::Limit,
            &format!("the budget of {which} is used up"),
        ));
    }
    if let Some(message) = resource_limit_message(run) {
        return Some(Decision::fail_run(run, FailureKind::Limit, &message));
    }
    // A pause waits until the current batch is done, so that no call is left without its result.
    (run.pause_requested && run.pending_calls.is_empty())
        .then_some(Decision { phase: run.phase, act: Action::Pause })
}

/// Returns the message if commands were killed for resource use in so many turns that the run must stop.
fn resource_limit_message(run: &RunState) -> Option<String> {
    let max = run.pins.as_ref()?.settings.exceeded_max as usize;
    let turns: BTreeSet<Turn> = run.exceeded.iter().map(|(turn, _)| *turn).collect();
    if max == 0 || turns.len() < max || !run.pending_calls.is_empty() {
        return None;
    }
    let mut nouns: Vec<&str> = run.exceeded.iter().map(|(_, what)| what.as_noun()).collect();
    nouns.sort_unstable();
    nouns.dedup();
    let nouns = nouns.join(", ");
    Some(format!(
        "in {} turns commands were ended for using more than they may ({nouns}); raise the limit in [worker] if the \
         work needs it",
        turns.len()
    ))
}

/// Returns the turn limit, including the turns that each correction round adds.
pub(in crate::engine) const fn turns_allowed(run: &RunState, settings: &RunSettings) -> u32 {
    let (turns, corrections) = (run.before_fork.0.0, run.corrections.saturating_sub(run.before_fork.1));
    let more = turns.saturating_add(corrections.saturating_mul(settings.correction_turns));
    settings.turns_max.saturating_add(more)
}
