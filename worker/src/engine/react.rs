//! Engine `react`, version 1: a hybrid ReAct loop. The model decides each step on what it sees; the engine controls
//! the loop, its limits, and the end (A1).
//!
//! Rules, in this order: requests of people and limits; running children; waiting calls; failed checks that can be
//! fixed without a model, or that cannot run; a compaction in progress; retry after a failed, truncated or empty
//! reply. A reply without a tool call is a refusal, a blocker or the claim to be done, which the gates check; they
//! also run once everything the task requires exists and is tested. Otherwise a model is called (`model_choice` says
//! which), up to the turn limit and once its request fits; a person is asked instead if it makes no progress. No call
//! exceeds the budgets.

use docket_schema::{
    content::Content,
    message::StopReason,
    run::{BlockedReason, EngineRef, FailureKind, RunOutcome, RunStarted, RunState, is_truncated},
};

use super::{
    core::{decision::Decision, definition::Engine, model_choice, nudges},
    early_end,
    rules::{
        blockers::blocked_question,
        budget,
        first_due::first_due_decision,
        next_request::{
            ask_next_turn, fail_too_many_cut_answers, fail_too_many_empty_answers, retry_after_failure,
        },
        planning, verification,
    },
};

/// The `react` engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReactEngine;

impl Engine for ReactEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "react".to_owned(), version: 1 }
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::decide_within_budget(run, |pins| next_decision(run, pins))
    }
}

/// Returns the next decision, before the budgets are applied.
fn next_decision(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(decision) = first_due_decision(run, pins, pins.settings.time_max_ms) {
        return decision;
    }
    if let Some(failure) = &run.last_failure {
        return retry_after_failure(run, pins, failure);
    }
    let unheeded = classify_non_final_answer(run, pins);
    if let Some(NonFinalAnswer::Ends(decision)) = unheeded {
        return *decision;
    }
    if unheeded.is_none() && run.answered_without_tools && !run.transcript.has_notes() {
        return verify_claimed_done(run, pins);
    }
    if let Some(decision) = early_end::early_end_decision(run, pins) {
        return decision;
    }
    if let Some(decision) = fail_too_many_empty_answers(run, pins) {
        return decision;
    }
    if run.counted_corrections() > pins.settings.corrections_max {
        return Decision::fail_run(run, FailureKind::Gates, &verification::still_failing_message(run, pins));
    }
    let nudge = match unheeded {
        Some(NonFinalAnswer::AskAgain(nudge)) => Some(nudge),
        Some(NonFinalAnswer::Ends(_)) | None if run.empty_answers > 0 => Some(nudges::EMPTY),
        Some(NonFinalAnswer::Ends(_)) | None => planning::plan_reminder(run, pins),
    };
    ask_next_turn(run, pins, nudge.map(str::to_owned))
}

/// A reply without a tool call that is not a claim to be done.
enum NonFinalAnswer {
    Ends(Box<Decision>),
    /// Ask again with this reminder.
    AskAgain(&'static str),
}

/// Returns how to treat the last reply if it is not a claim to be done: a refusal, truncated, or from an explore
/// model.
fn classify_non_final_answer(run: &RunState, pins: &RunStarted) -> Option<NonFinalAnswer> {
    let stop = run.model_attempts.stop_reason.as_ref()?;
    let ends = |decision| Some(NonFinalAnswer::Ends(Box::new(decision)));
    if pins.settings.heed_stops && is_truncated(stop) {
        return fail_too_many_cut_answers(run, pins)
            .map_or(Some(NonFinalAnswer::AskAgain(nudges::TRUNCATED)), ends);
    }
    if model_choice::only_explore_model_answered(run, pins) {
        return Some(NonFinalAnswer::AskAgain(nudges::TAKE_OVER));
    }
    if planning::has_stopped_early(run, pins) && blocked_question(run.last_text.as_ref(), true).is_none() {
        return Some(NonFinalAnswer::AskAgain(planning::STOPPED_EARLY));
    }
    if *stop != StopReason::Refusal
        && let Some(words) = planning::idle_end_nudge(run, pins)
        && blocked_question(run.last_text.as_ref(), true).is_none()
    {
        return Some(NonFinalAnswer::AskAgain(words));
    }
    if pins.settings.heed_stops && *stop == StopReason::Refusal && !run.transcript.has_notes() {
        let asked = model_choice::choose_model(run, pins).model;
        if run.model_attempts.answered_by.as_ref().is_some_and(|answered| answered != asked) {
            return Some(NonFinalAnswer::AskAgain(nudges::REFUSED));
        }
        let words = match &run.last_text {
            Some(Content::Text(text)) if run.answered_without_tools => format!(": {}", text.trim()),
            Some(_) | None => ", without a word of why".to_owned(),
        };
        let question = Content::Text(format!("The model refuses to go on with the task{words}"));
        return ends(Decision::block_run(run, question, BlockedReason::Escalated));
    }
    None
}

fn verify_claimed_done(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(question) = blocked_question(run.last_text.as_ref(), pins.settings.heed_stops) {
        return Decision::block_run(run, question, BlockedReason::Model);
    }
    let checks = verification::final_checks(run, pins);
    if run.gates_passed || checks.is_empty() {
        return Decision::end_run(run, RunOutcome::Succeeded);
    }
    verification::run_checks(run, pins, checks)
}
