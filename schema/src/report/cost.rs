//! Cost of a run's model calls: one line per call, and sums by role and model.
//!
//! Costs are computed from the prices the run pinned and recorded in the log. A model without a price is not
//! free: its calls are counted separately and not included in the sum. A failed call has no cost in the log,
//! because providers report none; it is counted with its duration. The comparison shows what the same tokens
//! would have cost at the prices of the strong model, assuming the same turns, answers and cache hits. The
//! strong model is the run's main model; for delegated work it is that of the top-level run, which would have
//! done the work itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{RunId, TaskId, Timestamp, Turn},
    message::{CallId, ModelRef, TokenUsage},
    run::{CallPurpose, ModelRequested, RunEvent, RunModels},
};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelCallOutcome {
    /// It was answered.
    Answered,
    /// It failed; its cost is unknown.
    Failed,
    /// It has not ended, or its worker crashed; a retry counts as the same call.
    Open,
}

/// A model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCallCost {
    /// The call.
    pub call: CallId,
    /// The call's turn.
    pub turn: Turn,
    /// When it ended; for an open call, when it was requested.
    pub at: Timestamp,
    /// The calling role of the engine, or the purpose of the call.
    pub role: String,
    /// The model.
    pub model: ModelRef,
    /// How it ended.
    pub end: ModelCallOutcome,
    /// Tokens, if it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Cost in nano-dollars, if it was answered and its model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
    /// Cost in nano-dollars of the same tokens at the strong model's prices, if both prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strong_nusd: Option<u64>,
    /// Time from the request's first byte to the end, in milliseconds.
    #[serde(default)]
    pub latency_ms: u64,
}

/// Sums over model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CostSums {
    /// Answered calls.
    pub answered: u64,
    /// Failed calls; their cost is unknown.
    pub failed: u64,
    /// Calls that have not ended.
    pub open: u64,
    /// Answered calls whose model has no price; their cost is unknown as well.
    pub unpriced: u64,
    /// Tokens of the answered calls.
    pub usage: TokenUsage,
    /// Cost in nano-dollars of the answered calls with a price.
    pub cost_nusd: u64,
    /// Time of the answered and failed calls, in milliseconds.
    pub latency_ms: u64,
    /// Answered calls that can be compared with the main model.
    pub compared: u64,
    /// Cost of these.
    pub compared_nusd: u64,
    /// Cost of their tokens at the main model's prices.
    pub strong_nusd: u64,
}

impl CostSums {
    /// Adds a call.
    pub fn add_call(&mut self, call: &ModelCallCost) {
        match call.end {
            ModelCallOutcome::Answered => self.answered += 1,
            ModelCallOutcome::Failed => self.failed += 1,
            ModelCallOutcome::Open => self.open += 1,
        }
        if let Some(usage) = call.usage {
            self.usage = self.usage.plus(usage);
            self.unpriced += u64::from(call.cost_nusd.is_none());
        }
        self.cost_nusd = self.cost_nusd.saturating_add(call.cost_nusd.unwrap_or(0));
        self.latency_ms = self.latency_ms.saturating_add(call.latency_ms);
        if let (Some(cost), Some(strong)) = (call.cost_nusd, call.strong_nusd) {
            self.compared += 1;
            self.compared_nusd = self.compared_nusd.saturating_add(cost);
            self.strong_nusd = self.strong_nusd.saturating_add(strong);
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            failed: self.failed + other.failed,
            open: self.open + other.open,
            unpriced: self.unpriced + other.unpriced,
            usage: self.usage.plus(other.usage),
            cost_nusd: self.cost_nusd.saturating_add(other.cost_nusd),
            latency_ms: self.latency_ms.saturating_add(other.latency_ms),
            compared: self.compared + other.compared,
            compared_nusd: self.compared_nusd.saturating_add(other.compared_nusd),
            strong_nusd: self.strong_nusd.saturating_add(other.strong_nusd),
        }
    }

    /// Returns the number of calls, whatever their outcome.
    pub const fn call_count(&self) -> u64 {
        self.answered + self.failed + self.open
    }

    /// Whether the cost includes everything that was spent, as far as the log shows.
    pub const fn is_fully_priced(&self) -> bool {
        self.unpriced == 0
    }
}

/// Calls of one role to one model, in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// The role.
    pub role: String,
    /// The model.
    pub model: ModelRef,
    /// The sums of their calls.
    pub sums: CostSums,
}

/// Cost of a run's own calls, without those of the history it shares with another run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCost {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// The model that its calls are compared with; none if it has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strong: Option<ModelRef>,
    /// Sums by role and model, in order of their first calls.
    pub rows: Vec<CostRow>,
    /// Every call, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelCallCost>,
}

impl RunCost {
    /// Sums up `calls`.
    pub fn from_calls(
        (run, task): (RunId, TaskId),
        strong: Option<ModelRef>,
        calls: Vec<ModelCallCost>,
    ) -> Self {
        let mut rows: Vec<CostRow> = Vec::new();
        for call in &calls {
            let same = |row: &CostRow| row.role == call.role && row.model == call.model;
            let at = rows.iter().position(same).unwrap_or_else(|| {
                let (role, model) = (call.role.clone(), call.model.clone());
                rows.push(CostRow { role, model, sums: CostSums::default() });
                rows.len() - 1
            });
            if let Some(row) = rows.get_mut(at) {
                row.sums.add_call(call);
            }
        }
        Self { run, task, strong, rows, calls }
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> CostSums {
        self.rows.iter().fold(CostSums::default(), |all, row| all.plus(row.sums))
    }
}

/// The kinds of events that the fold needs from a run's own stream.
pub const COST_EVENT_KINDS: [&str; 5] =
    ["RunStarted", "Forked", "ModelRequested", "ModelAnswered", "ModelFailed"];

/// Folds a run's own events, in order.
#[derive(Debug, Clone, Default)]
pub struct CostFold {
    models: Option<RunModels>,
    comparison_models: Option<RunModels>,
    open_call: Option<(Timestamp, Turn, Box<ModelRequested>)>,
    calls: Vec<ModelCallCost>,
}

impl CostFold {
    /// Applies the first event of an ancestor run, starting with the root, to learn its models.
    pub fn inherit_models(&mut self, event: &RunEvent) {
        if let RunEvent::RunStarted(started) = event {
            self.models = Some(started.models.clone());
        } else if let RunEvent::Forked(forked) = event
            && let Some(models) = &forked.models
        {
            self.models = Some(models.clone());
        }
    }

    /// Compares with the main model of these instead of the run's own.
    pub fn compare_with(&mut self, models: RunModels) {
        self.comparison_models = Some(models);
    }

    /// Returns the run's models, as far as known.
    pub fn into_models(self) -> Option<RunModels> {
        self.models
    }

    /// Applies the next event.
    pub fn apply_event(&mut self, at: Timestamp, turn: Turn, event: RunEvent) {
        self.inherit_models(&event);
        if let RunEvent::ModelRequested(asked) = event {
            self.close_open_call();
            self.open_call = Some((at, turn, Box::new(asked)));
        } else if let RunEvent::ModelAnswered(answered) = event {
            let Some((_, turn, asked)) = self.open_call.take() else { return };
            let priced = self.model_terms(&asked.model).filter(|terms| terms.priced).is_some();
            let cost_nusd = priced.then_some(answered.cost_nusd);
            let strong = self.comparison_models.as_ref().or(self.models.as_ref()).map(|models| models.terms);
            let strong = strong.filter(|terms| terms.priced);
            let strong_nusd = strong.filter(|_| priced).map(|terms| terms.prices.cost_nusd(answered.usage));
            let call = build_call_cost(at, turn, &asked, ModelCallOutcome::Answered);
            let latency_ms = answered.total_ms;
            self.calls.push(ModelCallCost {
                usage: Some(answered.usage),
                cost_nusd,
                strong_nusd,
                latency_ms,
                ..call
            });
        } else if let RunEvent::ModelFailed(failed) = event {
            let Some((_, turn, asked)) = self.open_call.take() else { return };
            let call = build_call_cost(at, turn, &asked, ModelCallOutcome::Failed);
            self.calls.push(ModelCallCost { latency_ms: failed.duration_ms, ..call });
        }
    }

    /// Returns the terms of exactly this model; another model's prices do not apply.
    fn model_terms(&self, model: &ModelRef) -> Option<crate::run::ModelTerms> {
        let models = self.models.as_ref()?;
        models.all().find(|(one, _)| *one == model).map(|(_, terms)| *terms)
    }

    fn close_open_call(&mut self) {
        if let Some((at, turn, asked)) = self.open_call.take() {
            self.calls.push(build_call_cost(at, turn, &asked, ModelCallOutcome::Open));
        }
    }

    /// Returns all calls, and the model they are compared with.
    pub fn finish(mut self) -> (Vec<ModelCallCost>, Option<ModelRef>) {
        self.close_open_call();
        (self.calls, self.comparison_models.or(self.models).map(|models| models.main))
    }
}

fn build_call_cost(
    at: Timestamp,
    turn: Turn,
    asked: &ModelRequested,
    end: ModelCallOutcome,
) -> ModelCallCost {
    ModelCallCost {
        call: asked.call.clone(),
        turn,
        at,
        role: calling_role(asked),
        model: asked.model.clone(),
        end,
        usage: None,
        cost_nusd: None,
        strong_nusd: None,
        latency_ms: 0,
    }
}

/// Returns the calling role: the one given by the engine, or the purpose of the call. `agent` is the only
/// role of an engine without roles.
fn calling_role(asked: &ModelRequested) -> String {
    let of_purpose = match asked.purpose {
        CallPurpose::Decide => "agent",
        CallPurpose::Compact => "compact",
        CallPurpose::Plan => "plan",
        CallPurpose::Review => "review",
    };
    asked.role.clone().unwrap_or_else(|| of_purpose.to_owned())
}
