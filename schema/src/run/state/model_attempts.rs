//! Which models were asked and how that went: what the choice of the next one, and a budget, depend on. Kept by
//! the fold; pure.

use super::{run_stage::RunStage, run_totals::RunTotals, transcript::tool_uses};
use crate::message::{ModelRef, StopReason, TokenUsage};
use crate::run::events::{
    control_events::BY_OUTAGE_TIMER,
    run_event::{RunEvent, RunStarted},
    turn_events::{CallPurpose, ModelAnswered, ModelFailed},
};

/// Failures that say that a model has too much to do, not that the request is wrong.
const OVERLOAD_ERRORS: [&str; 3] = ["rate_limited", "overloaded", "server"];

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelAttempts {
    /// The main model was asked for a decision: whoever only explores is done.
    pub main_asked: bool,
    /// Who gave the last answer.
    pub answered_by: Option<ModelRef>,
    /// Why the last answer ended, where it called no tool; none once a person has answered it.
    pub stop_reason: Option<StopReason>,
    /// What the provider counted of it.
    pub usage: TokenUsage,
    /// Answers in a row that were cut before they called a tool.
    pub truncated_answers: u32,
    /// Who failed last, while no answer has followed.
    pub last_failed: Option<ModelRef>,
    /// Failures at the decision now due, by model.
    failures: Vec<(ModelRef, ModelFailureCounts)>,
    /// Models whose last failure was an outage, and what has been since.
    fallbacks: Vec<(ModelRef, FallbackState)>,
    /// How often in a row the run rested at an outage, without an answer of a model or a person between.
    pub outages: u32,
    /// Models of which a request was refused for good, until a person has mended something.
    refused: Vec<ModelRef>,
    /// The wait that the last failure asked for, until it has been kept or nobody waits any more.
    wait_ms: u64,
    /// What model calls, waits, tools and checks took together, in milliseconds.
    pub worked_ms: u64,
    /// What a run that goes on from another had behind it when it began: its budgets are its own.
    pub spent_before_fork: RunSpending,
}

/// Failures of one model at one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelFailureCounts {
    /// All of them.
    pub attempts: u32,
    /// Those by overload.
    pub overloads: u32,
    /// Those by any outage: overload, no connection, silence, a cut answer.
    pub outages: u32,
}

/// A model that others stand in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FallbackState {
    /// Answers that others have given since.
    answers_since: u32,
    /// What is left of the time for which it wants to be left alone, as far as the log tells.
    retry_after_ms: u64,
}

/// What budgets are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunSpending {
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// Nano-dollars.
    pub cost_nusd: u64,
    /// Milliseconds.
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

/// Whether an answer was cut before its end, by a limit or by its provider.
pub const fn is_truncated(stop: &StopReason) -> bool {
    match stop {
        StopReason::MaxTokens => true,
        // Anthropic's words for an answer that filled the window and for one that it wants asked on; those of
        // gateways and of DeepSeek for one that broke off.
        StopReason::Other(other) => matches!(
            other.as_bytes(),
            b"model_context_window_exceeded" | b"pause_turn" | b"error" | b"insufficient_system_resource"
        ),
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence | StopReason::Refusal => false,
    }
}

impl ModelAttempts {
    /// Takes the next event, in the state before it.
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
            // Whoever stands in is asked at once.
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
        // What a failure itself tells to be waited for does not pass by being told.
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
            // What a person mended counts for nothing any more.
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

    /// Whether a model that was away is still to be left alone: fewer than `turns` answers of others came since, or
    /// the time for which it asked is not over.
    pub fn is_in_backoff(&self, model: &ModelRef, turns: u32) -> bool {
        let away = self.fallbacks.iter().find(|(of, _)| of == model);
        away.is_some_and(|(_, away)| away.answers_since < turns || away.retry_after_ms > 0)
    }

    /// Whether a request of this model was refused for good: it does not exist, or does not take what it is sent.
    pub fn is_permanently_refused(&self, model: &ModelRef) -> bool {
        self.refused.contains(model)
    }

    /// How a model failed at the decision now due.
    pub fn failures_for(&self, model: &ModelRef) -> ModelFailureCounts {
        self.failures.iter().find(|(of, _)| of == model).map(|(_, failures)| *failures).unwrap_or_default()
    }

    /// What the run has spent of its own budgets.
    pub fn spending(&self, totals: &RunTotals) -> RunSpending {
        let all = RunSpending::from_totals(totals, self.worked_ms);
        RunSpending {
            tokens: all.tokens.saturating_sub(self.spent_before_fork.tokens),
            cost_nusd: all.cost_nusd.saturating_sub(self.spent_before_fork.cost_nusd),
            worked_ms: all.worked_ms.saturating_sub(self.spent_before_fork.worked_ms),
        }
    }
}

/// Whether a failure is its provider's, or the way's there, and passes: nothing about the request is wrong.
pub fn is_outage(failure: &ModelFailed) -> bool {
    is_overload(failure) || matches!(failure.error.as_str(), "connect" | "timeout" | "cut_stream")
}

/// Whether a failure says that the model never takes such a request. One that is too long may be made shorter.
fn is_permanent_refusal(failure: &ModelFailed) -> bool {
    matches!(failure.error.as_str(), "invalid_request" | "protocol")
}

/// Whether a failure says that the model has too much to do.
pub fn is_overload(failure: &ModelFailed) -> bool {
    OVERLOAD_ERRORS.contains(&failure.error.as_str())
}
