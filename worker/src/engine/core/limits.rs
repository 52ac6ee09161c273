//! What ends or halts a run before any rule of its engine: wishes of people, budgets that are used up, commands that use too
//! much; and how many turns it has. Pure.

use std::collections::BTreeSet;

use docket_schema::{
    ids::Turn,
    run::{BlockedReason, FailureKind, LimitKind, RunOutcome, RunSettings, RunState},
};

use super::decision::{Action, Decision};

/// The decision that is due whatever the engine's rules say.
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
        // Not the run's own: its batch cannot pay for a model without a price.
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
    // A pause waits until the batch in hand is done, so that no call is left without its result.
    (run.pause_requested && run.pending_calls.is_empty())
        .then_some(Decision { phase: run.phase, act: Action::Pause })
}

/// What to say where commands were ended for using too much in so many turns that none should follow.
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

/// The cap of turns, with those that each round of correction adds.
pub(in crate::engine) const fn turns_allowed(run: &RunState, settings: &RunSettings) -> u32 {
    let (turns, corrections) = (run.before_fork.0.0, run.corrections.saturating_sub(run.before_fork.1));
    let more = turns.saturating_add(corrections.saturating_mul(settings.correction_turns));
    settings.turns_max.saturating_add(more)
}
