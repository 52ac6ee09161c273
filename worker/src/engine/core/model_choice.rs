//! Chooses the model to call (A21): a cheap one to explore, the main one to make changes, and a fallback for a model
//! that stays overloaded. Pure: everything follows from the pins and the recorded state.
//!
//! **Exploring.** The explore model is used from the first turn on, while all of these hold: the main model was never
//! called, no file was written, its last reply called tools, the request fits its window, and half of the turns are
//! left. It neither makes changes nor ends the run: a call that looks like a write is refused with an explanation,
//! and a reply without a call does not count as done. Both hand over to the main model permanently: two alternating
//! models would lose both their providers' caches.
//!
//! An explore model that is permanently refused (because it does not exist, say) is skipped.
//!
//! **Fallback.** After `fallback_after` outages in one turn (overloads only, under the first rules) the same turn is
//! sent to the fallback, or to the main model if only the explore model has none. The fallback then serves
//! `fallback_turns` turns, and more while the original's retry delay lasts; the turn after those tries the original
//! again, once: if that fails in the same way, the fallback is used at once.

use docket_schema::{
    message::ModelRef,
    run::{ModelTerms, RunPhase, RunStarted, RunState, is_outage, is_overload},
};

use super::{
    call_options::current_role,
    request_size::{RequestSize, is_context_too_long},
};

/// The model to call.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ChosenModel<'a> {
    pub(in crate::engine) model: &'a ModelRef,
    pub(in crate::engine) terms: &'a ModelTerms,
    /// It is the fallback of another one.
    pub(in crate::engine) is_fallback: bool,
}

/// Returns the model to call next.
pub(in crate::engine) fn choose_model<'a>(run: &RunState, pins: &'a RunStarted) -> ChosenModel<'a> {
    let models = &pins.models;
    let role = current_role(run, pins);
    let own = match (role, &models.explore) {
        (Some(role), _) => (&role.model, models.terms_for(&role.model)),
        (None, Some(explore)) if uses_explore_model(run, pins, &explore.terms) => {
            (&explore.model, &explore.terms)
        }
        (None, Some(_) | None) => (&models.main, &models.terms),
    };
    let other = match &models.fallback {
        Some(fallback) if !is_model_refused(run, pins, &fallback.model) => (&fallback.model, &fallback.terms),
        Some(_) | None => (&models.main, &models.terms),
    };
    let (model, terms) =
        if other.0 != own.0 && should_use_fallback(run, pins, own.0, other.0) { other } else { own };
    ChosenModel { model, terms, is_fallback: model != own.0 }
}

/// Returns how large a request to that model would be.
pub(in crate::engine) fn request_size(run: &RunState, pins: &RunStarted) -> RequestSize {
    RequestSize::for_model(run, pins, choose_model(run, pins).terms)
}

/// Whether the explore model is still the one to call.
fn uses_explore_model(run: &RunState, pins: &RunStarted, terms: &ModelTerms) -> bool {
    let looks = matches!(run.phase, RunPhase::Exploring | RunPhase::Planning | RunPhase::Testing);
    let refused = run.last_failure.as_ref().is_some_and(is_context_too_long);
    looks
        && only_explore_model_answered(run, pins)
        && run.files_written.is_empty()
        && run.model_attempts.stop_reason.is_none()
        && run.turn.0 < pins.settings.turns_max / 2
        && !refused
        && !pins.models.explore.as_ref().is_some_and(|explore| is_model_refused(run, pins, &explore.model))
        && RequestSize::for_model(run, pins, terms).is_below_high_mark()
}

/// Whether only an explore model, or its fallback, has replied so far.
pub(in crate::engine) fn only_explore_model_answered(run: &RunState, pins: &RunStarted) -> bool {
    // A role follows its own instructions.
    run.engine_state.role.is_none() && pins.models.explore.is_some() && !run.model_attempts.main_asked
}

/// Whether requests to this model were permanently refused.
pub(in crate::engine) fn is_model_refused(run: &RunState, pins: &RunStarted, model: &ModelRef) -> bool {
    pins.settings.model_rules > 0 && run.model_attempts.is_permanently_refused(model)
}

fn should_use_fallback(run: &RunState, pins: &RunStarted, own: &ModelRef, other: &ModelRef) -> bool {
    let settings = &pins.settings;
    let after = settings.fallback_after;
    if after == 0 {
        return false;
    }
    let all = settings.model_rules > 0;
    let stood_in = run.model_attempts.answered_by.as_ref() == Some(other);
    let (failures, of_other) = (run.model_attempts.failures_for(own), run.model_attempts.failures_for(other));
    if settings.fallback_turns > 0 && stood_in && failures.attempts == 0 {
        // Not tried in this turn: it is tried when its time has come, or when the other one is unavailable as well.
        return run.model_attempts.is_in_backoff(own, settings.fallback_turns) && of_other.outages < after;
    }
    let passes = |failure| if all { is_outage(failure) } else { is_overload(failure) };
    let given_up = run.last_failure.as_ref().is_some_and(|failure| {
        run.model_attempts.last_failed.as_ref() == Some(own)
            && passes(failure)
            && failure.retry_in_ms.is_none()
    });
    // A fallback stays in use until it has replied.
    let stands_in = of_other.attempts > 0;
    let count = if all { failures.outages } else { failures.overloads };
    given_up || stands_in || count >= if stood_in { 1 } else { after }
}
