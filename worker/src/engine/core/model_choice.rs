//! Which model is asked (A21): a cheap one to look around, the main one to change, and one that stands in for a
//! model that stays overloaded. Pure: all of it follows from the pins and the recorded state.
//!
//! **Exploring.** The explore model is asked from the first turn on, while all of this holds: the main model was
//! never asked, no file was written, the last answer of it called tools, the request fits its window, and half of
//! the turns are left. It neither changes nor ends: a call of it that by its looks writes is refused and says so, an
//! answer without a call is no claim to be done. Both hand over to the main model, and for good: two models that
//! take turns would lose both their providers' caches.
//!
//! An explore model that is refused for good (it does not exist, say) is done without.
//!
//! **Standing in.** After `fallback_after` outages in one turn (overloads alone by the first rules) the same turn is
//! asked of the fallback; of the main model where only the explore model has none. It then answers `fallback_turns`
//! turns, and more while the other one wants to be left alone; the turn after those tries the model itself again,
//! once: where that fails likewise, the stand-in is asked at once.

use docket_schema::{
    message::ModelRef,
    run::{ModelTerms, RunPhase, RunStarted, RunState, is_outage, is_overload},
};

use super::{
    call_options::current_role,
    request_size::{RequestSize, is_context_too_long},
};

/// The model to be asked.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ChosenModel<'a> {
    pub(in crate::engine) model: &'a ModelRef,
    pub(in crate::engine) terms: &'a ModelTerms,
    /// It stands in for another one.
    pub(in crate::engine) is_fallback: bool,
}

/// Which one is asked next.
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

/// How large a request of that model would be.
pub(in crate::engine) fn request_size(run: &RunState, pins: &RunStarted) -> RequestSize {
    RequestSize::for_model(run, pins, choose_model(run, pins).terms)
}

/// Whether the model that explores is still the one to ask.
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

/// Whether nobody but an explore model, or what stood in for it, has answered.
pub(in crate::engine) fn only_explore_model_answered(run: &RunState, pins: &RunStarted) -> bool {
    // Who has a role does what the role says.
    run.engine_state.role.is_none() && pins.models.explore.is_some() && !run.model_attempts.main_asked
}

/// Whether requests of this model were refused for good.
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
        // Not tried in this turn: it is where its time has come, or where the other one is away by now, too.
        return run.model_attempts.is_in_backoff(own, settings.fallback_turns) && of_other.outages < after;
    }
    let passes = |failure| if all { is_outage(failure) } else { is_overload(failure) };
    let given_up = run.last_failure.as_ref().is_some_and(|failure| {
        run.model_attempts.last_failed.as_ref() == Some(own)
            && passes(failure)
            && failure.retry_in_ms.is_none()
    });
    // Whoever stands in does so until it has answered.
    let stands_in = of_other.attempts > 0;
    let count = if all { failures.outages } else { failures.overloads };
    given_up || stands_in || count >= if stood_in { 1 } else { after }
}
