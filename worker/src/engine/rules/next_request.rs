//! The next model request, under every engine: for the next turn or a retry; and what happens if none is to be made.
//! Pure.

use docket_schema::{
    ids::Turn,
    message::CallId,
    run::{BlockedReason, CallPurpose, FailureKind, ModelFailed, RunStarted, RunState, is_outage},
};

use super::{
    super::{
        compaction,
        core::{
            call_options::{answer_tokens_max, current_role, prompt_and_tools, sampling_options},
            decision::{Action, Decision, ModelCall},
            limits::turns_allowed,
            model_choice,
            request_size::RequestSize,
        },
    },
    blockers, escalation,
};

/// Requests the next turn with this reminder, unless the run must stop.
pub(in crate::engine) fn ask_next_turn(run: &RunState, pins: &RunStarted, nudge: Option<String>) -> Decision {
    let cap = turns_allowed(run, &pins.settings);
    if run.turn.0 >= cap {
        return Decision::fail_run(
            run,
            FailureKind::TurnLimit,
            &format!("the cap of {cap} turns is reached"),
        );
    }
    let question = blockers::blocker_question(run, &pins.settings);
    if let Some(question) = question.or_else(|| escalation::escalation_question(run, &pins.settings)) {
        return Decision::block_run(run, question, BlockedReason::Escalated);
    }
    if let Some(decision) = compaction::next_compaction(run, pins) {
        return decision;
    }
    call_model(run, pins, NextModelCall { turn: run.turn.next(), wait_ms: 0, nudge })
}

/// Fails a run whose model replied with nothing too often, unless a message from a person is unread.
pub(in crate::engine) fn fail_too_many_empty_answers(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let is_over = run.counted_empty_answers() >= pins.settings.empty_answers_max
        && run.engine_state.unread_messages.is_empty();
    is_over.then(|| {
        let message = format!("{} empty answers in a row", run.empty_answers);
        Decision::fail_run(run, FailureKind::EmptyAnswers, &message)
    })
}

/// Fails a run whose model's replies were truncated too often.
pub(in crate::engine) fn fail_too_many_cut_answers(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    (run.model_attempts.truncated_answers >= pins.settings.empty_answers_max).then(|| {
        let message = format!(
            "{} answers in a row were cut at the limit of {} tokens; raise run.output_tokens_max or split the task",
            run.model_attempts.truncated_answers,
            answer_tokens_max(pins, model_choice::choose_model(run, pins).terms)
        );
        Decision::fail_run(run, FailureKind::Model, &message)
    })
}

/// The next model call.
struct NextModelCall {
    turn: Turn,
    wait_ms: u64,
    nudge: Option<String>,
}

fn call_model(run: &RunState, pins: &RunStarted, asking: NextModelCall) -> Decision {
    let attempt = run.failed_attempts + 1;
    let chosen = model_choice::choose_model(run, pins);
    let messages = run.transcript.conversation(asking.nudge.as_deref());
    let (system, tools) = prompt_and_tools(run, pins);
    let call = ModelCall {
        call: CallId::for_model(asking.turn, attempt),
        purpose: CallPurpose::Decide,
        turn: asking.turn,
        attempt,
        model: chosen.model.clone(),
        role: run.engine_state.role.clone(),
        system,
        tools,
        nudge: asking.nudge,
        output_tokens_max: answer_tokens_max(pins, chosen.terms),
        wait_ms: asking.wait_ms,
        manner: sampling_options(
            (pins, current_role(run, pins)),
            CallPurpose::Decide,
            chosen.model,
            &messages,
        ),
        messages,
    };
    Decision { phase: run.phase, act: Action::CallModel(Box::new(call)) }
}

/// Returns what follows a failed attempt: a question to a person, another attempt with this model or its fallback, a
/// shorter request, or the end.
pub(in crate::engine) fn retry_after_failure(
    run: &RunState,
    pins: &RunStarted,
    failure: &ModelFailed,
) -> Decision {
    if failure.needs_person {
        return Decision::block_run(run, failure.message.as_str().into(), BlockedReason::Provider);
    }
    let chosen = model_choice::choose_model(run, pins);
    let (turn, nudge) = (run.turn, None);
    if pins.models.has_multiple()
        && run.model_attempts.last_failed.as_ref().is_some_and(|failed| failed != chosen.model)
    {
        // Not the model that failed, so waiting gains nothing.
        let fits = RequestSize::for_model(run, pins, chosen.terms).is_below_high_mark();
        let shorter = if fits { None } else { compaction::next_compaction(run, pins) };
        return shorter.unwrap_or_else(|| call_model(run, pins, NextModelCall { turn, wait_ms: 0, nudge }));
    }
    let Some(wait_ms) = failure.retry_in_ms else {
        if let Some(decision) = compaction::next_compaction(run, pins) {
            return decision;
        }
        return give_up(run, pins, failure, &failure.message);
    };
    let attempts = if chosen.is_fallback {
        run.model_attempts.failures_for(chosen.model).attempts
    } else {
        run.failed_attempts - run.forgiven_attempts
    };
    if attempts >= pins.settings.model_attempts_max {
        let message = format!("{attempts} attempts failed; the last one: {}", failure.message);
        return give_up(run, pins, failure, &message);
    }
    call_model(run, pins, NextModelCall { turn, wait_ms, nudge })
}

/// No attempt is left. If the provider is only unavailable the run rests: a new run would pay again for what this one
/// knows.
fn give_up(run: &RunState, pins: &RunStarted, failure: &ModelFailed, message: &str) -> Decision {
    if pins.settings.rest_at_outage && is_outage(failure) {
        return Decision::block_run(run, message.into(), BlockedReason::Provider);
    }
    // A provider that never replied in this run would refuse the next run likewise.
    if pins.settings.model_rules > 0
        && !is_outage(failure)
        && run.model_attempts.last_failed.is_some()
        && run.model_attempts.last_failed != run.model_attempts.answered_by
    {
        let message = format!("{message}; another run would meet the same: mend it, then `docket retry`");
        return Decision::fail_run(run, FailureKind::Configuration, &message);
    }
    Decision::fail_run(run, FailureKind::Model, message)
}
