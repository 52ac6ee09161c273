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
    run::{ModelTerms, Phase, RunStarted, RunState, is_outage, is_overload},
};

use super::{
    call_options::role_of,
    request_size::{RequestSize, is_too_long},
};

/// The model to be asked.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Chosen<'a> {
    pub(in crate::engine) model: &'a ModelRef,
    pub(in crate::engine) terms: &'a ModelTerms,
    /// It stands in for another one.
    pub(in crate::engine) stands_in: bool,
}

/// Which one is asked next.
pub(in crate::engine) fn chosen<'a>(run: &RunState, pins: &'a RunStarted) -> Chosen<'a> {
    let models = &pins.models;
    let role = role_of(run, pins);
    let own = match (role, &models.explore) {
        (Some(role), _) => (&role.model, models.terms_of(&role.model)),
        (None, Some(explore)) if explores(run, pins, &explore.terms) => (&explore.model, &explore.terms),
        (None, Some(_) | None) => (&models.main, &models.terms),
    };
    let other = match &models.fallback {
        Some(fallback) if !is_refused(run, pins, &fallback.model) => (&fallback.model, &fallback.terms),
        Some(_) | None => (&models.main, &models.terms),
    };
    let (model, terms) = if other.0 != own.0 && is_away(run, pins, own.0, other.0) { other } else { own };
    Chosen { model, terms, stands_in: model != own.0 }
}

/// How large a request of that model would be.
pub(in crate::engine) fn request_size(run: &RunState, pins: &RunStarted) -> RequestSize {
    RequestSize::for_model(run, pins, chosen(run, pins).terms)
}

/// Whether the model that explores is still the one to ask.
fn explores(run: &RunState, pins: &RunStarted, terms: &ModelTerms) -> bool {
    let looks = matches!(run.phase, Phase::Exploring | Phase::Planning | Phase::Testing);
    let refused = run.last_failure.as_ref().is_some_and(is_too_long);
    looks
        && only_explored(run, pins)
        && run.files_written.is_empty()
        && run.asking.stop.is_none()
        && run.turn.0 < pins.settings.turns_max / 2
        && !refused
        && !pins.models.explore.as_ref().is_some_and(|explore| is_refused(run, pins, &explore.model))
        && RequestSize::for_model(run, pins, terms).fits()
}

/// Whether nobody but an explore model, or what stood in for it, has answered.
pub(in crate::engine) fn only_explored(run: &RunState, pins: &RunStarted) -> bool {
    // Who has a role does what the role says.
    run.work.role.is_none() && pins.models.explore.is_some() && !run.asking.main_asked
}

/// Whether requests of this model were refused for good.
pub(in crate::engine) fn is_refused(run: &RunState, pins: &RunStarted, model: &ModelRef) -> bool {
    pins.settings.model_rules > 0 && run.asking.was_refused(model)
}

fn is_away(run: &RunState, pins: &RunStarted, own: &ModelRef, other: &ModelRef) -> bool {
    let settings = &pins.settings;
    let after = settings.fallback_after;
    if after == 0 {
        return false;
    }
    let all = settings.model_rules > 0;
    let stood_in = run.asking.answered_by.as_ref() == Some(other);
    let (failures, of_other) = (run.asking.failures_of(own), run.asking.failures_of(other));
    if settings.fallback_turns > 0 && stood_in && failures.attempts == 0 {
        // Not tried in this turn: it is where its time has come, or where the other one is away by now, too.
        return run.asking.is_left_alone(own, settings.fallback_turns) && of_other.outages < after;
    }
    let passes = |failure| if all { is_outage(failure) } else { is_overload(failure) };
    let given_up = run.last_failure.as_ref().is_some_and(|failure| {
        run.asking.failed.as_ref() == Some(own) && passes(failure) && failure.retry_in_ms.is_none()
    });
    // Whoever stands in does so until it has answered.
    let stands_in = of_other.attempts > 0;
    let count = if all { failures.outages } else { failures.overloads };
    given_up || stands_in || count >= if stood_in { 1 } else { after }
}
