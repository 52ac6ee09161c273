//! What the model calls of a run cost: one line a call, and sums by role and model.
//!
//! Money is what the log says a call cost by the prices that the run pinned. A model without a price is no free one:
//! its calls are counted beside the sum, never into it. A call that failed has no bill in the log, for providers say
//! none; it is counted with the time it took. The comparison asks what the same tokens would have cost at the prices
//! of the strong model: as many turns, the same answers, the same share found in its cache. That is the run's main model;
//! of a piece of work that was given away it is that of the run at the top, which would have done it itself.

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
    /// With an answer.
    Answered,
    /// Without one; what its provider asks for it nobody says.
    Failed,
    /// Not yet, or its worker died: if it is asked again, that is the same call.
    Open,
}

/// A call of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCallCost {
    /// The call.
    pub call: CallId,
    /// Its turn.
    pub turn: Turn,
    /// When it ended; while it is open, when it was asked.
    pub at: Timestamp,
    /// Who asked: the engine's role, else what the call was for.
    pub role: String,
    /// Who was asked.
    pub model: ModelRef,
    /// How it ended.
    pub end: ModelCallOutcome,
    /// Tokens, where it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Nano-dollars, where it was answered and its model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
    /// Nano-dollars that the same tokens cost at the strong model's prices, where those and its own are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strong_nusd: Option<u64>,
    /// From the request's first byte to the end, in milliseconds.
    #[serde(default)]
    pub latency_ms: u64,
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CostSums {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed: what they cost is not known.
    pub failed: u64,
    /// Calls without an end.
    pub open: u64,
    /// Of the answered ones, those whose model has no price: what they cost is not known either.
    pub unpriced: u64,
    /// Tokens of the answered ones.
    pub usage: TokenUsage,
    /// Nano-dollars of the answered ones that have a price.
    pub cost_nusd: u64,
    /// Time of the answered and the failed ones, in milliseconds.
    pub latency_ms: u64,
    /// Answered calls that can be compared with the main model alone.
    pub compared: u64,
    /// What these cost.
    pub compared_nusd: u64,
    /// What their tokens cost at the main model's prices.
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

    /// Both together.
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

    /// Calls of whatever end.
    pub const fn call_count(&self) -> u64 {
        self.answered + self.failed + self.open
    }

    /// Whether the sum of money is all that was spent, as far as the log can know.
    pub const fn is_fully_priced(&self) -> bool {
        self.unpriced == 0
    }
}

/// What one role asked of one model, in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// The role.
    pub role: String,
    /// The model.
    pub model: ModelRef,
    /// Their calls.
    pub sums: CostSums,
}

/// What a run's own calls cost: not those of the history that it shares with another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCost {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// The model that its calls are compared with; none where it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strong: Option<ModelRef>,
    /// By role and model, in the order of their first calls.
    pub rows: Vec<CostRow>,
    /// Each call, where that was asked for.
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

    /// All of it.
    pub fn total(&self) -> CostSums {
        self.rows.iter().fold(CostSums::default(), |all, row| all.plus(row.sums))
    }
}

/// The kinds of events that the fold needs, of a run's own stream.
pub const COST_EVENT_KINDS: [&str; 5] =
    ["RunStarted", "Forked", "ModelRequested", "ModelAnswered", "ModelFailed"];

/// The fold: a run's own events, in order.
#[derive(Debug, Clone, Default)]
pub struct CostFold {
    models: Option<RunModels>,
    comparison_models: Option<RunModels>,
    open_call: Option<(Timestamp, Turn, Box<ModelRequested>)>,
    calls: Vec<ModelCallCost>,
}

impl CostFold {
    /// Takes the first event of a run whose history this one shares, the furthest first: it says which models.
    pub fn inherit_models(&mut self, event: &RunEvent) {
        if let RunEvent::RunStarted(started) = event {
            self.models = Some(started.models.clone());
        } else if let RunEvent::Forked(forked) = event
            && let Some(models) = &forked.models
        {
            self.models = Some(models.clone());
        }
    }

    /// Compares with the main model of these, whatever the run's own is.
    pub fn compare_with(&mut self, models: RunModels) {
        self.comparison_models = Some(models);
    }

    /// The models that the run has, as far as it was told.
    pub fn into_models(self) -> Option<RunModels> {
        self.models
    }

    /// Takes the next event.
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

    /// Terms of exactly this model: another's prices are not its own.
    fn model_terms(&self, model: &ModelRef) -> Option<crate::run::ModelTerms> {
        let models = self.models.as_ref()?;
        models.all().find(|(one, _)| *one == model).map(|(_, terms)| *terms)
    }

    fn close_open_call(&mut self) {
        if let Some((at, turn, asked)) = self.open_call.take() {
            self.calls.push(build_call_cost(at, turn, &asked, ModelCallOutcome::Open));
        }
    }

    /// All calls, and the model that they are compared with.
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

/// Whose call it is: what the engine says, else what it is for. `agent` is the one role of an engine that has one.
fn calling_role(asked: &ModelRequested) -> String {
    let of_purpose = match asked.purpose {
        CallPurpose::Decide => "agent",
        CallPurpose::Compact => "compact",
        CallPurpose::Plan => "plan",
        CallPurpose::Review => "review",
    };
    asked.role.clone().unwrap_or_else(|| of_purpose.to_owned())
}
