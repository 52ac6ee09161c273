//! Model attempts of a run: what the choice of the next model and the budgets depend on. Part of the fold;
//! pure.

use super::{run_stage::RunStage, run_totals::RunTotals, transcript::tool_uses};
use crate::message::{ModelRef, StopReason, TokenUsage};
use crate::run::events::{
    control_events::BY_OUTAGE_TIMER,
    run_event::{RunEvent, RunStarted},
    turn_events::{CallPurpose, ModelAnswered, ModelFailed},
};

/// Failures that mean that a model is overloaded, not that the request is wrong.
const OVERLOAD_ERRORS: [&str; 3] = ["rate_limited", "overloaded", "server"];

/// Model attempts. See the module documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAttempts {
    /// Whether the main model was called for a decision: the exploring model is done then.
    pub main_asked: bool,
    /// The model that gave the last answer.
    pub answered_by: Option<ModelRef>,
    /// Why the last answer ended, if it called no tool; none once a person has answered it.
    pub stop_reason: Option<StopReason>,
    /// The provider's token counts of it.
    pub usage: TokenUsage,
    /// Consecutive answers that were truncated before they called a tool.
    pub truncated_answers: u32,
    /// The model that failed last, until an answer follows.
    pub last_failed: Option<ModelRef>,
    /// Failures at the pending decision, by model.
    failures: Vec<(ModelRef, ModelFailureCounts)>,
    /// Models whose last failure was an outage, and what happened since.
    fallbacks: Vec<(ModelRef, FallbackState)>,
    /// How many times in a row the run waited for an outage without an answer of a model or person in
    /// between.
    pub outages: u32,
    /// Models that permanently refused a request, until a person fixes something.
    refused: Vec<ModelRef>,
    /// The wait requested by the last failure, in milliseconds, until it has passed or is no longer needed.
    wait_ms: u64,
    /// Total time of model calls, waits, tools and checks, in milliseconds.
    pub worked_ms: u64,
    /// What a run that continues another one inherited: its budgets are its own.
    pub spent_before_fork: RunSpending,
}

/// Failures of one model at one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelFailureCounts {
    /// All failures.
    pub attempts: u32,
    /// Overload errors.
    pub overloads: u32,
    /// Outages of any kind: overload, no connection, no response, a truncated stream.
    pub outages: u32,
}

/// State of a model that is replaced by a fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FallbackState {
    /// Answers that other models have given since.
    answers_since: u32,
    /// What remains of the provider's requested wait, in milliseconds, as far as the log shows.
    retry_after_ms: u64,
}

/// Resources limited by budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunSpending {
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Working time in milliseconds.
    pub worked_ms: u64,
}

impl RunSpending {
    fn from_totals(totals: &RunTotals, worked_ms: u64) -> Self {
        let children = totals.children;
        let TokenUsage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, .. } =
            totals.usage;
        let parts = [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens];
        let tokens = parts.into_iter().fold(children.tokens, u64::saturating_add);
        Self {
            tokens,
            cost_nusd: totals.cost_nusd.saturating_add(children.cost_nusd),
            worked_ms: worked_ms.saturating_add(children.worked_ms),
        }
    }
}

/// Whether an answer was truncated by a limit or by its provider.
pub const fn is_truncated(stop: &StopReason) -> bool {
    match stop {
        StopReason::MaxTokens => true,
        // Anthropic's reasons for an answer that filled the window or should be continued; those of gateways
        // and DeepSeek for an interrupted one.
        StopReason::Other(other) => matches!(
            other.as_bytes(),
            b"model_context_window_exceeded" | b"pause_turn" | b"error" | b"insufficient_system_resource"
        ),
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence | StopReason::Refusal => false,
    }
}

impl ModelAttempts {
    /// Applies the next event, given the state before it.
    pub(in crate::run) fn apply_event(
        &mut self,
        event: &RunEvent,
        (stage, totals, pins): (&RunStage, &RunTotals, Option<&RunStarted>),
    ) {
        let took = if let RunEvent::ModelAnswered(e) = event {
            if let RunStage::Model(open) = stage
                && open.purpose == CallPurpose::Decide
            {
                self.record_answer(&open.model, e);
            }
            e.total_ms
        } else if let RunEvent::ModelFailed(e) = event {
            if let RunStage::Model(open) = stage
                && open.purpose == CallPurpose::Decide
            {
                self.record_failure(&open.model, e);
            }
            let wait_ms = e.retry_in_ms.unwrap_or(0);
            if pins.is_some_and(|pins| pins.settings.model_rules > 0) {
                self.wait_ms = wait_ms;
                e.duration_ms
            } else {
                e.duration_ms.saturating_add(wait_ms)
            }
        } else if let RunEvent::ModelRequested(e) = event {
            self.apply_other_event(event, totals, pins);
            // A fallback model is called at once.
            let waited = self.last_failed.as_ref() == Some(&e.model);
            std::mem::take(&mut self.wait_ms) * u64::from(waited)
        } else if let RunEvent::ToolFinished(e) = event {
            e.duration_ms
        } else if let RunEvent::GateFinished(e) = event {
            e.duration_ms
        } else if let RunEvent::SetupFinished(e) = event {
            e.duration_ms
        } else {
            self.apply_other_event(event, totals, pins);
            0
        };
        self.worked_ms = self.worked_ms.saturating_add(took);
        // Recording a failure does not itself use up the wait it requests.
        if !matches!(event, RunEvent::ModelFailed(_)) {
            for (_, away) in &mut self.fallbacks {
                away.retry_after_ms = away.retry_after_ms.saturating_sub(took);
            }
        }
    }

    fn apply_other_event(&mut self, event: &RunEvent, totals: &RunTotals, pins: Option<&RunStarted>) {
        if let RunEvent::ModelRequested(e) = event {
            let is_main = pins.is_some_and(|pins| pins.models.main == e.model);
            self.main_asked |= e.purpose == CallPurpose::Decide && is_main;
        } else if let RunEvent::BlockerAnswered(e) = event {
            // Failures fixed by a person no longer count.
            self.stop_reason = None;
            self.truncated_answers = 0;
            self.failures.clear();
            self.fallbacks.clear();
            self.refused.clear();
            if e.by != BY_OUTAGE_TIMER {
                self.outages = 0;
            }
        } else if let RunEvent::RunBlocked(e) = event {
            self.outages = e.outages;
            self.wait_ms = 0;
        } else if let RunEvent::Forked(_) = event {
            self.outages = 0;
            self.spent_before_fork = RunSpending::from_totals(totals, self.worked_ms);
            self.truncated_answers = 0;
            self.fallbacks.clear();
            self.refused.clear();
        }
    }

    fn record_answer(&mut self, model: &ModelRef, event: &ModelAnswered) {
        self.answered_by = Some(model.clone());
        self.usage = event.usage;
        self.last_failed = None;
        self.failures.clear();
        self.outages = 0;
        self.fallbacks.retain(|(of, _)| of != model);
        self.fallbacks.iter_mut().for_each(|(_, away)| away.answers_since += 1);
        let calls = tool_uses(&event.parts).next().is_some();
        self.stop_reason = (!calls).then(|| event.stop.clone());
        self.truncated_answers =
            if self.stop_reason.as_ref().is_some_and(is_truncated) { self.truncated_answers + 1 } else { 0 };
    }

    fn record_failure(&mut self, model: &ModelRef, event: &ModelFailed) {
        self.last_failed = Some(model.clone());
        let at = match self.failures.iter().position(|(of, _)| of == model) {
            Some(at) => at,
            None => {
                self.failures.push((model.clone(), ModelFailureCounts::default()));
                self.failures.len() - 1
            }
        };
        let failures = &mut self.failures[at].1;
        failures.attempts += 1;
        failures.overloads += u32::from(is_overload(event));
        failures.outages += u32::from(is_outage(event));
        if is_outage(event) {
            self.fallbacks.retain(|(of, _)| of != model);
            let left_ms = event.retry_after_ms.unwrap_or(0);
            self.fallbacks.push((model.clone(), FallbackState { answers_since: 0, retry_after_ms: left_ms }));
        } else if is_permanent_refusal(event) && !self.refused.contains(model) {
            self.refused.push(model.clone());
        }
    }

    /// Whether a model with an outage should still be avoided: fewer than `turns` answers of other models
    /// came since, or its requested wait has not passed.
    pub fn is_in_backoff(&self, model: &ModelRef, turns: u32) -> bool {
        let away = self.fallbacks.iter().find(|(of, _)| of == model);
        away.is_some_and(|(_, away)| away.answers_since < turns || away.retry_after_ms > 0)
    }

    /// Whether this model permanently refused a request: it does not exist, or does not accept its input.
    pub fn is_permanently_refused(&self, model: &ModelRef) -> bool {
        self.refused.contains(model)
    }

    /// Returns the failures of a model at the pending decision.
    pub fn failures_for(&self, model: &ModelRef) -> ModelFailureCounts {
        self.failures.iter().find(|(of, _)| of == model).map(|(_, failures)| *failures).unwrap_or_default()
    }

    /// Returns what the run has spent of its own budgets.
    pub fn spending(&self, totals: &RunTotals) -> RunSpending {
        let all = RunSpending::from_totals(totals, self.worked_ms);
        RunSpending {
            tokens: all.tokens.saturating_sub(self.spent_before_fork.tokens),
            cost_nusd: all.cost_nusd.saturating_sub(self.spent_before_fork.cost_nusd),
            worked_ms: all.worked_ms.saturating_sub(self.spent_before_fork.worked_ms),
        }
    }
}

/// Whether a failure is a temporary one of the provider or the network: nothing is wrong with the request.
pub fn is_outage(failure: &ModelFailed) -> bool {
    is_overload(failure) || matches!(failure.error.as_str(), "connect" | "timeout" | "cut_stream")
}

/// Whether a failure means that the model never accepts such a request. One that is too long can be
/// shortened.
fn is_permanent_refusal(failure: &ModelFailed) -> bool {
    matches!(failure.error.as_str(), "invalid_request" | "protocol")
}

/// Whether a failure means that the model is overloaded.
pub fn is_overload(failure: &ModelFailed) -> bool {
    OVERLOAD_ERRORS.contains(&failure.error.as_str())
}
