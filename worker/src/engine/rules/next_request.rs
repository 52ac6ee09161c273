//! The next request of a model, under every engine: of the next turn, or once more where an attempt failed; and what follows
//! where none is to be made. Pure.

use docket_schema::{
    ids::Turn,
    message::CallId,
    run::{BlockedWhy, FailureKind, ModelFailed, Purpose, RunStarted, RunState, is_outage},
};

use super::{
    super::{
        compaction,
        core::{
            call_options::{answer_tokens_max, manner_of, role_of, texts_of},
            decision::{Act, Decision, ModelCall},
            limits::turns_allowed,
            models,
            request_size::RequestSize,
        },
    },
    blockers, escalation,
};

/// Asks for the next turn, with these words at the end, unless the run is not to go on.
pub(in crate::engine) fn ask_next_turn(run: &RunState, pins: &RunStarted, nudge: Option<String>) -> Decision {
    let cap = turns_allowed(run, &pins.settings);
    if run.turn.0 >= cap {
        return Decision::fail(run, FailureKind::TurnLimit, &format!("the cap of {cap} turns is reached"));
    }
    let question = blockers::question(run, &pins.settings);
    if let Some(question) = question.or_else(|| escalation::question(run, &pins.settings)) {
        return Decision::block(run, question, BlockedWhy::Escalated);
    }
    if let Some(decision) = compaction::due(run, pins) {
        return decision;
    }
    ask(run, pins, Asking { turn: run.turn.next(), wait_ms: 0, nudge })
}

/// The end of a run whose model said nothing too often, unless a person says what it has not heard yet.
pub(in crate::engine) fn too_often_empty(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let is_over = run.empty_counted() >= pins.settings.empty_answers_max && run.work.heard.is_empty();
    is_over.then(|| {
        let message = format!("{} empty answers in a row", run.empty_answers);
        Decision::fail(run, FailureKind::EmptyAnswers, &message)
    })
}

/// The end of a run whose model was cut too often.
pub(in crate::engine) fn too_often_cut(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    (run.asking.cuts >= pins.settings.empty_answers_max).then(|| {
        let message = format!(
            "{} answers in a row were cut at the limit of {} tokens; raise run.output_tokens_max or split the task",
            run.asking.cuts,
            answer_tokens_max(pins, models::chosen(run, pins).terms)
        );
        Decision::fail(run, FailureKind::Model, &message)
    })
}

/// A request of a model.
struct Asking {
    turn: Turn,
    wait_ms: u64,
    nudge: Option<String>,
}

fn ask(run: &RunState, pins: &RunStarted, asking: Asking) -> Decision {
    let attempt = run.failed_attempts + 1;
    let chosen = models::chosen(run, pins);
    let messages = run.transcript.conversation(asking.nudge.as_deref());
    let (system, tools) = texts_of(run, pins);
    let call = ModelCall {
        call: CallId::model(asking.turn, attempt),
        purpose: Purpose::Decide,
        turn: asking.turn,
        attempt,
        model: chosen.model.clone(),
        role: run.work.role.clone(),
        system,
        tools,
        nudge: asking.nudge,
        output_tokens_max: answer_tokens_max(pins, chosen.terms),
        wait_ms: asking.wait_ms,
        manner: manner_of((pins, role_of(run, pins)), Purpose::Decide, chosen.model, &messages),
        messages,
    };
    Decision { phase: run.phase, act: Act::CallModel(Box::new(call)) }
}

/// What follows a failed attempt: a person, another attempt of this model or of the one that stands in, a shorter
/// request, or the end.
pub(in crate::engine) fn ask_again(run: &RunState, pins: &RunStarted, failure: &ModelFailed) -> Decision {
    if failure.needs_person {
        return Decision::block(run, failure.message.as_str().into(), BlockedWhy::Provider);
    }
    let chosen = models::chosen(run, pins);
    let (turn, nudge) = (run.turn, None);
    if pins.models.are_several() && run.asking.failed.as_ref().is_some_and(|failed| failed != chosen.model) {
        // It is not the one that failed: nothing is gained by waiting.
        let fits = RequestSize::for_model(run, pins, chosen.terms).fits();
        let shorter = if fits { None } else { compaction::due(run, pins) };
        return shorter.unwrap_or_else(|| ask(run, pins, Asking { turn, wait_ms: 0, nudge }));
    }
    let Some(wait_ms) = failure.retry_in_ms else {
        if let Some(decision) = compaction::due(run, pins) {
            return decision;
        }
        return given_up(run, pins, failure, &failure.message);
    };
    let attempts = if chosen.stands_in {
        run.asking.failures_of(chosen.model).attempts
    } else {
        run.failed_attempts - run.forgiven_attempts
    };
    if attempts >= pins.settings.model_attempts_max {
        let message = format!("{attempts} attempts failed; the last one: {}", failure.message);
        return given_up(run, pins, failure, &message);
    }
    ask(run, pins, Asking { turn, wait_ms, nudge })
}

/// No attempt is left. Where the provider is only away the run rests: another one would pay again for what this
/// one knows.
fn given_up(run: &RunState, pins: &RunStarted, failure: &ModelFailed, message: &str) -> Decision {
    if pins.settings.rest_at_outage && is_outage(failure) {
        return Decision::block(run, message.into(), BlockedWhy::Provider);
    }
    // Who never answered in this run would refuse the next one likewise.
    if pins.settings.model_rules > 0
        && !is_outage(failure)
        && run.asking.failed.is_some()
        && run.asking.failed != run.asking.answered_by
    {
        let message = format!("{message}; another run would meet the same: mend it, then `docket retry`");
        return Decision::fail(run, FailureKind::Configuration, &message);
    }
    Decision::fail(run, FailureKind::Model, message)
}
