//! Model calls: sending the request, enforcing its limits, and turning the outcome into events.

use std::time::Instant;

use docket_schema::{
    redact::Redactor,
    run::{CallPurpose, ModelFailed, RunState},
};

use super::{model_answer::answer_events, model_clients::ModelClients};
use crate::run::{
    log::{blob_cache::BlobCache, pending_append::PendingAppend},
    time_limits::{SILENCE_TIME_MAX, time_budget_deadline},
    tool_calls::tool_executor::ToolExecutor,
};
use crate::{
    clock,
    engine::ModelCall,
    model::{AttemptNumber, ModelError, RenderedRequest, ReplyDelta, TimeoutKind, next_delay},
    progress::ProgressNote,
};

/// Runs effects: model calls and tools.
pub(in crate::run) struct EffectRunner {
    pub(in crate::run) model_clients: ModelClients,
    pub(in crate::run) executor: ToolExecutor,
}

impl EffectRunner {
    /// Calls the model and returns the result as an event.
    pub(in crate::run) async fn call_model(
        &self,
        call: &ModelCall,
        rendered: &RenderedRequest,
        state: &RunState,
        material: &BlobCache,
        progress: &ProgressNote,
    ) -> PendingAppend {
        let attempt = AttemptNumber(call.attempt);
        let started = Instant::now();
        let mut on_delta = |_: ReplyDelta<'_>| progress.set_step_limit(SILENCE_TIME_MAX);
        let asked = self.model_clients.call(rendered, attempt, &mut on_delta);
        // The run's time budget bounds the call as well; the next decision reports that it is exhausted.
        let answer = match time_budget_deadline(state) {
            None => asked.await,
            Some(at) => match tokio::time::timeout_at(at.into(), asked).await {
                Ok(answer) => answer,
                Err(_) => {
                    let after_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    Err(ModelError::Timeout { which: TimeoutKind::Budget, after_ms })
                }
            },
        };
        match answer {
            Ok(answer) => answer_events(
                call,
                answer,
                rendered.body.len() as u64,
                state,
                &self.executor.redactor,
                material,
            ),
            Err(error) => failure_events(call, &error, state, &self.executor.redactor, started),
        }
    }
}

/// Records a failed attempt as an event.
fn failure_events(
    call: &ModelCall,
    error: &ModelError,
    state: &RunState,
    redactor: &Redactor,
    started: Instant,
) -> PendingAppend {
    // Attempts of this model only: they do not use up the retries of another.
    let attempt = state.model_attempts.failures_for(&call.model).attempts + 1;
    let retry_in = next_delay(attempt, error, clock::random_jitter());
    let (message, retry_in) = match call.purpose {
        CallPurpose::Decide | CallPurpose::Plan | CallPurpose::Review => (error.to_string(), retry_in),
        // A summary is requested only once, because the rule-based one is always available.
        CallPurpose::Compact => (error.without_retry("the summary is made by rule"), None),
    };
    let event = ModelFailed {
        call: call.call.clone(),
        error: error.kind().to_owned(),
        message: redactor.redact_text(&message).into_owned(),
        retry_in_ms: retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        retry_after_ms: error.retry_after_ms(),
        needs_person: error.needs_user_action(),
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    let mut out = PendingAppend::default();
    out.push(call.turn, event);
    out
}
