//! The events that announce a decision. Pure, and the only place that creates them.
//!
//! The run executor appends them before it acts; verification recreates them and compares them with the log, field by
//! field.

use docket_schema::{
    ids::{DecisionHash, Turn},
    run::{
        BlockedReason, Compacted, Concluded, GateRequested, ModelRequested, PhaseChanged, RoleBegan,
        RunBlocked, RunEnded, RunEvent, RunOutcome, RunPaused, RunState, ToolRequested, is_outage,
    },
};

use crate::{
    engine::{
        Action, Decision, EngineUpdate, ModelCall, RoleStart, default_output_tokens, unverified_reason,
    },
    model::{RenderedRequest, request_hash},
};

/// The record of a rendered request in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestProof {
    /// BLAKE3 of the body.
    pub hash: DecisionHash,
    /// Size of the body in bytes.
    pub bytes: u64,
}

impl RequestProof {
    /// Creates the proof of a request.
    pub fn from_rendered(rendered: &RenderedRequest) -> Self {
        Self { hash: request_hash(&rendered.body), bytes: rendered.body.len() as u64 }
    }
}

/// Returns the events that announce `decision`, made in `state`, in order, each with its turn. `request` proves the
/// request of a model call; without it, such a decision announces nothing.
pub fn intent_events(
    state: &RunState,
    decision: &Decision,
    request: Option<RequestProof>,
) -> Vec<(Turn, RunEvent)> {
    let hash = decision.hash();
    let turn = match &decision.act {
        Action::CallModel(call) => call.turn,
        Action::RunTools(_)
        | Action::RunGates(_)
        | Action::Compact(_)
        | Action::Conclude(_)
        | Action::Pause
        | Action::Block { .. }
        | Action::End { .. } => state.turn,
    };
    let mut events: Vec<RunEvent> = Vec::new();
    if decision.phase != state.phase {
        events.push(PhaseChanged { phase: decision.phase }.into());
    }
    match &decision.act {
        Action::CallModel(call) => {
            let Some(request) = request else { return Vec::new() };
            events.push(model_requested_event(state, call, request, hash).into());
        }
        Action::RunTools(batch) => events.extend(batch.iter().map(|tool| {
            RunEvent::from(ToolRequested {
                call: tool.call.clone(),
                tool: tool.tool.clone(),
                class: tool.class,
                policy: tool.policy.clone(),
                labels: tool.labels.clone(),
                decision: hash,
            })
        })),
        Action::RunGates(gates) => events.extend(gates.iter().map(|planned| {
            let (call, gate, step) = (planned.call.clone(), planned.gate.clone(), planned.step);
            RunEvent::from(GateRequested { call, gate, step, decision: hash })
        })),
        Action::Compact(compacted) => {
            events.push(Compacted { decision: Some(hash), ..Compacted::clone(compacted) }.into());
        }
        Action::Conclude(conclusion) => {
            let EngineUpdate { facts, begins } = EngineUpdate::clone(conclusion);
            if !facts.is_empty() {
                events.push(Concluded { facts, decision: hash }.into());
            }
            if let Some(RoleStart { role, about, opening }) = begins {
                events.push(RoleBegan { role, about, opening, decision: hash }.into());
            }
        }
        Action::Pause => events.push(RunPaused { decision: hash }.into()),
        Action::Block { question, why, about } => {
            let (question, outages) = (question.clone(), consecutive_outages(state, *why));
            events.push(
                RunBlocked { question, why: *why, outages, about: about.clone(), decision: hash }.into(),
            );
        }
        Action::End { result, summary } => {
            let (result, summary) = (result.clone(), summary.clone());
            let pins = state.pins.as_deref().filter(|_| result == RunOutcome::Succeeded);
            let unverified = pins.and_then(|pins| unverified_reason(state, pins));
            let (tree, decision) = (state.tree, Some(hash));
            events.push(RunEnded { result, summary, tree, unverified, decision }.into());
        }
    }
    events.into_iter().map(|event| (turn, event)).collect()
}

/// Counts the consecutive rests of a run because its provider is unavailable; 0 for other reasons, or if its rules
/// have no clock.
fn consecutive_outages(state: &RunState, why: BlockedReason) -> u32 {
    let by_clock = state.pins.as_ref().is_some_and(|pins| pins.settings.model_rules > 0);
    let away = state.last_failure.as_ref().is_some_and(|failure| !failure.needs_person && is_outage(failure));
    if why == BlockedReason::Provider && by_clock && away {
        state.model_attempts.outages.saturating_add(1)
    } else {
        0
    }
}

fn model_requested_event(
    state: &RunState,
    call: &ModelCall,
    request: RequestProof,
    decision: DecisionHash,
) -> ModelRequested {
    // Bytes bound tokens from above: no tokenizer produces more tokens than bytes.
    let pins = state.pins.as_deref();
    let prices = pins.map(|pins| pins.models.terms_for(&call.model).prices).unwrap_or_default();
    let usual = pins.map(|pins| default_output_tokens(pins, call.purpose, &call.model));
    let worst_case_nusd = request
        .bytes
        .saturating_mul(prices.input_nusd.max(prices.cache_write_nusd))
        .saturating_add(u64::from(call.output_tokens_max).saturating_mul(prices.output_nusd));
    ModelRequested {
        call: call.call.clone(),
        purpose: call.purpose,
        model: call.model.clone(),
        role: call.role.clone(),
        attempt: call.attempt,
        decision,
        request: request.hash,
        request_bytes: request.bytes,
        nudge: call.nudge.clone(),
        worst_case_nusd,
        output_tokens_max: usual
            .filter(|usual| *usual != call.output_tokens_max)
            .map(|_| call.output_tokens_max),
    }
}
