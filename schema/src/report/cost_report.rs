//! Cost reports over several runs: grouped for people, compared with the strong model, and call by call for
//! other programs.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cost::{CostSums, ModelCallCost, RunCost};
use crate::{
    ids::{RunId, TaskId, Timestamp},
    message::ModelRef,
};

/// Grouping of a report's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostGrouping {
    /// By role and model.
    #[default]
    RoleModel,
    /// By role.
    Role,
    /// By model.
    Model,
    /// By run.
    Run,
    /// By task.
    Task,
    /// By call.
    Call,
}

/// A line of a report; fields that are not part of the grouping are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostLine {
    /// The task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ModelCallCost>,
    /// The sums.
    pub sums: CostSums,
}

/// Savings from using models other than the main one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostSavings {
    /// Main models of the compared runs.
    pub strong: Vec<String>,
    /// Number of compared calls.
    pub compared: u64,
    /// Calls that are not compared: they have no answer, or a price of their model or of the main model is
    /// unknown.
    pub not_compared: u64,
    /// Cost of the compared calls.
    pub cost_nusd: u64,
    /// Cost of the same tokens at the main model's prices.
    pub strong_nusd: u64,
    /// The difference; negative if the other models cost more.
    pub saved_nusd: i64,
    /// The difference as a percentage of the main model's cost; none if that is zero.
    pub saved_percent: Option<f64>,
    /// The assumptions of the comparison.
    pub assumes: String,
}

/// The assumptions of [`CostSavings`].
pub const SAVINGS_ASSUMPTIONS: &str = "the main model alone had used the same tokens: as many calls, requests and answers of \
                                  the same length, the same share found in its cache; each run is compared with its \
                                  own main model, also one that another gave away";

impl CostSavings {
    fn from_sums(sums: &CostSums, mut strong: Vec<String>) -> Self {
        strong.sort_unstable();
        strong.dedup();
        let saved = i128::from(sums.strong_nusd) - i128::from(sums.compared_nusd);
        let saved_nusd = i64::try_from(saved).unwrap_or(if saved < 0 { i64::MIN } else { i64::MAX });
        let percent = saved_nusd as f64 * 100.0 / sums.strong_nusd as f64;
        Self {
            strong,
            compared: sums.compared,
            not_compared: sums.call_count() - sums.compared,
            cost_nusd: sums.compared_nusd,
            strong_nusd: sums.strong_nusd,
            saved_nusd,
            saved_percent: (sums.strong_nusd > 0).then_some(percent),
            assumes: SAVINGS_ASSUMPTIONS.to_owned(),
        }
    }
}

/// Combined cost of several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostReport {
    /// The grouping of the lines.
    pub by: CostGrouping,
    /// The lines; calls ordered by end time, others by their first call.
    pub lines: Vec<CostLine>,
    /// The total.
    pub total: CostSums,
    /// Comparison with the main model.
    pub savings: CostSavings,
}

impl CostReport {
    /// Builds the report of these runs. A run that occurs twice counts once. For lines by call, the runs must
    /// include their calls.
    pub fn from_runs(runs: &[RunCost], by: CostGrouping) -> Self {
        let mut seen = HashSet::new();
        let runs: Vec<&RunCost> = runs.iter().filter(|run| seen.insert(run.run)).collect();
        let mut lines: Vec<CostLine> = Vec::new();
        let mut total = CostSums::default();
        for run in &runs {
            total = total.plus(run.total());
            if by == CostGrouping::Call {
                lines.extend(run.calls.iter().map(|call| call_line(run, call)));
                continue;
            }
            for row in &run.rows {
                let role =
                    matches!(by, CostGrouping::RoleModel | CostGrouping::Role).then(|| row.role.clone());
                let model =
                    matches!(by, CostGrouping::RoleModel | CostGrouping::Model).then(|| row.model.clone());
                let task = matches!(by, CostGrouping::Run | CostGrouping::Task).then_some(run.task);
                let run = (by == CostGrouping::Run).then_some(run.run);
                let same = |line: &&mut CostLine| {
                    line.role == role && line.model == model && line.task == task && line.run == run
                };
                match lines.iter_mut().find(same) {
                    Some(line) => line.sums = line.sums.plus(row.sums),
                    None => lines.push(CostLine { task, run, role, model, call: None, sums: row.sums }),
                }
            }
        }
        if by == CostGrouping::Call {
            lines.sort_by_key(|line| line.call.as_ref().map(|call| call.at));
        }
        let compared = runs.iter().filter(|run| run.total().compared > 0);
        let strong = compared.filter_map(|run| run.strong.as_ref().map(ToString::to_string)).collect();
        Self { by, lines, total, savings: CostSavings::from_sums(&total, strong) }
    }
}

fn call_line(run: &RunCost, call: &ModelCallCost) -> CostLine {
    let mut sums = CostSums::default();
    sums.add_call(call);
    CostLine {
        task: Some(run.task),
        run: Some(run.run),
        role: Some(call.role.clone()),
        model: Some(call.model.clone()),
        call: Some(call.clone()),
        sums,
    }
}

/// A call in the export for other programs, one JSON line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostExportLine {
    /// When it ended.
    pub ts: Timestamp,
    /// The role.
    pub role: String,
    /// The model.
    pub model: String,
    /// Tokens of the request, including cached ones; none if it was not answered.
    pub tokens_in: Option<u64>,
    /// Tokens of the reply.
    pub tokens_out: Option<u64>,
    /// Cost in dollars; none if unknown, which is not the same as 0.
    pub cost_usd: Option<f64>,
}

impl From<&ModelCallCost> for CostExportLine {
    fn from(call: &ModelCallCost) -> Self {
        Self {
            ts: call.at,
            role: call.role.clone(),
            model: call.model.to_string(),
            tokens_in: call.usage.map(crate::message::TokenUsage::request_tokens),
            tokens_out: call.usage.map(|usage| usage.output_tokens),
            cost_usd: call.cost_nusd.map(|nusd| nusd as f64 / 1e9),
        }
    }
}
