//! Asking a model: the call, its limits, and what comes of it as events.

use std::time::Instant;

use docket_schema::{
    redact::Redactor,
    run::{ModelFailed, Purpose, RunState},
};

use super::{model_answer::answered, voices::Voices};
use crate::run::{
    log::{material::Material, outgoing::Outgoing},
    time_limits::{SILENCE_AT_MOST, time_ends_at},
    tool_calls::workbench::Workbench,
};
use crate::{
    clock,
    engine::ModelCall,
    model::{Attempt, Delta, ModelError, Rendered, TimeoutKind, next_delay},
    progress::ProgressNote,
};

/// What acts: models and workbench.
pub(in crate::run) struct Hands {
    pub(in crate::run) voices: Voices,
    pub(in crate::run) bench: Workbench,
}

impl Hands {
    /// Asks the model; answers its result as an event.
    pub(in crate::run) async fn ask(
        &self,
        call: &ModelCall,
        rendered: &Rendered,
        state: &RunState,
        material: &Material,
        progress: &ProgressNote,
    ) -> Outgoing {
        let attempt = Attempt(call.attempt);
        let started = Instant::now();
        let mut on_delta = |_: Delta<'_>| progress.at_most(SILENCE_AT_MOST);
        let asked = self.voices.call(rendered, attempt, &mut on_delta);
        // A budget of time bounds the call, too; what is over is told by the next decision.
        let answer = match time_ends_at(state) {
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
            Ok(answer) => {
                answered(call, answer, rendered.body.len() as u64, state, &self.bench.redactor, material)
            }
            Err(error) => failed(call, &error, state, &self.bench.redactor, started),
        }
    }
}

/// A failed attempt as an event.
fn failed(
    call: &ModelCall,
    error: &ModelError,
    state: &RunState,
    redactor: &Redactor,
    started: Instant,
) -> Outgoing {
    // Of this model: another one's patience is not used up.
    let attempt = state.asking.failures_of(&call.model).attempts + 1;
    let retry_in = next_delay(attempt, error, clock::jitter());
    let (message, retry_in) = match call.purpose {
        Purpose::Decide | Purpose::Plan | Purpose::Review => (error.to_string(), retry_in),
        // A summary is asked for once: the rule's is at hand.
        Purpose::Compact => (error.without_retry("the summary is made by rule"), None),
    };
    let event = ModelFailed {
        call: call.call.clone(),
        error: error.kind().to_owned(),
        message: redactor.text(&message).into_owned(),
        retry_in_ms: retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        retry_after_ms: error.retry_after_ms(),
        needs_person: error.needs_person(),
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    let mut out = Outgoing::default();
    out.push(call.turn, event);
    out
}
