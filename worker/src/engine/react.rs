//! Engine `react`, version 1: a hybrid ReAct loop. The model decides each step on what it sees;
//! the engine holds the loop, its caps, and the end (A1).
//!
//! Rules, in this order: wishes of people and limits; children that are out; calls that wait; failed checks that can be
//! mended without a model, or that cannot run; a compaction that has begun; a failed, cut or empty answer is asked again; an answer
//! without a tool call is a refusal, a blocker or the claim to be done, which the gates check, as they do where all
//! that the task requires is there and tested; else a model is asked (`models` says which), up to the turn cap, once
//! its request fits, unless it does not get on and a person is; and no call is made that the budgets do not pay for.

use docket_schema::{
    content::Content,
    message::StopReason,
    run::{BlockedWhy, EngineRef, FailureKind, RunOutcome, RunStarted, RunState, is_cut},
};

use super::{
    core::{decision::Decision, definition::Engine, models, nudges},
    early_end,
    rules::{
        blockers::blocked_question,
        budget,
        due_first::due_first,
        next_request::{ask_again, ask_next_turn, too_often_cut, too_often_empty},
        planning, verification,
    },
};

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct React;

impl Engine for React {
    fn id(&self) -> EngineRef {
        EngineRef { name: "react".to_owned(), version: 1 }
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins))
    }
}

/// What is next, whatever it costs.
fn next(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(decision) = due_first(run, pins, pins.settings.time_max_ms) {
        return decision;
    }
    if let Some(failure) = &run.last_failure {
        return ask_again(run, pins, failure);
    }
    let unheeded = stopped(run, pins);
    if let Some(Unheeded::Ends(decision)) = unheeded {
        return *decision;
    }
    if unheeded.is_none() && run.answered_without_tools && !run.transcript.has_notes() {
        return said_it_is_done(run, pins);
    }
    if let Some(decision) = early_end::decision(run, pins) {
        return decision;
    }
    if let Some(decision) = too_often_empty(run, pins) {
        return decision;
    }
    if run.corrections_counted() > pins.settings.corrections_max {
        return Decision::fail(run, FailureKind::Gates, &verification::still_failing(run, pins));
    }
    let nudge = match unheeded {
        Some(Unheeded::AskedAgain(nudge)) => Some(nudge),
        Some(Unheeded::Ends(_)) | None if run.empty_answers > 0 => Some(nudges::EMPTY),
        Some(Unheeded::Ends(_)) | None => planning::reminder(run, pins),
    };
    ask_next_turn(run, pins, nudge.map(str::to_owned))
}

/// An answer without a tool call that is no claim to be done.
enum Unheeded {
    Ends(Box<Decision>),
    /// With these words.
    AskedAgain(&'static str),
}

/// Whether the last answer was no claim to be done: a refusal, cut, or of a model that only explores.
fn stopped(run: &RunState, pins: &RunStarted) -> Option<Unheeded> {
    let stop = run.asking.stop.as_ref()?;
    let ends = |decision| Some(Unheeded::Ends(Box::new(decision)));
    if pins.settings.heed_stops && is_cut(stop) {
        return too_often_cut(run, pins).map_or(Some(Unheeded::AskedAgain(nudges::CUT)), ends);
    }
    if models::only_explored(run, pins) {
        return Some(Unheeded::AskedAgain(nudges::TAKE_OVER));
    }
    if planning::stopped_early(run, pins) && blocked_question(run.last_text.as_ref(), true).is_none() {
        return Some(Unheeded::AskedAgain(planning::STOPPED_EARLY));
    }
    if *stop != StopReason::Refusal
        && let Some(words) = planning::nothing_done(run, pins)
        && blocked_question(run.last_text.as_ref(), true).is_none()
    {
        return Some(Unheeded::AskedAgain(words));
    }
    if pins.settings.heed_stops && *stop == StopReason::Refusal && !run.transcript.has_notes() {
        let asked = models::chosen(run, pins).model;
        if run.asking.answered_by.as_ref().is_some_and(|answered| answered != asked) {
            return Some(Unheeded::AskedAgain(nudges::REFUSED));
        }
        let words = match &run.last_text {
            Some(Content::Text(text)) if run.answered_without_tools => format!(": {}", text.trim()),
            Some(_) | None => ", without a word of why".to_owned(),
        };
        let question = Content::Text(format!("The model refuses to go on with the task{words}"));
        return ends(Decision::block(run, question, BlockedWhy::Escalated));
    }
    None
}

fn said_it_is_done(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(question) = blocked_question(run.last_text.as_ref(), pins.settings.heed_stops) {
        return Decision::block(run, question, BlockedWhy::Model);
    }
    let checks = verification::checks(run, pins);
    if run.gates_passed || checks.is_empty() {
        return Decision::end(run, RunOutcome::Succeeded);
    }
    verification::check(run, pins, checks)
}
