//! Two reports of the same tasks: what got better, what got worse.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    outcome::{EvalKind, EvalOutcome},
    result::{EvalReport, EvalResult, EvalTotals},
};
use crate::message::ModelRef;

/// What became of a task with an engine, from one report to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalChange {
    /// It passed, and does not any more.
    Regressed,
    /// It did not pass, and does now.
    Mended,
    /// It passes still.
    Passes,
    /// It does not pass, as before.
    Fails,
    /// Only the earlier report has it.
    Gone,
    /// Only the later report has it.
    New,
}

impl EvalChange {
    /// Its name everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Mended => "mended",
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::Gone => "gone",
            Self::New => "new",
        }
    }

    const fn from_passed(before: Option<bool>, after: Option<bool>) -> Self {
        match (before, after) {
            (Some(true), Some(false)) => Self::Regressed,
            (Some(false), Some(true)) => Self::Mended,
            (Some(true), Some(true)) => Self::Passes,
            (Some(false), Some(false)) => Self::Fails,
            (_, None) => Self::Gone,
            (None, Some(_)) => Self::New,
        }
    }
}

/// One report's word on a task with an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalSide {
    /// The model.
    pub model: ModelRef,
    /// Whether it passed.
    pub passed: bool,
    /// How it ended.
    pub outcome: EvalOutcome,
    /// Checks that did not pass.
    pub failed_checks: Vec<String>,
    /// Turns.
    pub turns: u64,
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// Nano-dollars; none where a price is not known.
    pub cost_nusd: Option<u64>,
    /// How long models, tools and checks took, in milliseconds.
    pub worked_ms: u64,
}

impl EvalSide {
    fn from_result(result: &EvalResult) -> Self {
        let failed = result.checks.iter().filter(|check| !check.passed);
        Self {
            model: result.model.clone(),
            passed: result.passed,
            outcome: result.outcome,
            failed_checks: failed.map(|check| format!("{} {}", check.what.as_str(), check.name)).collect(),
            turns: result.turns,
            tokens: result.total_tokens(),
            cost_nusd: result.cost_nusd(),
            worked_ms: result.worked_ms,
        }
    }
}

/// A task with an engine in both reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalTaskComparison {
    /// The task.
    pub task: String,
    /// What it is there to show.
    pub kind: EvalKind,
    /// The engine.
    pub engine: String,
    /// What became of it.
    pub change: EvalChange,
    /// The earlier report's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EvalSide>,
    /// The later report's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<EvalSide>,
}

/// Two reports, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalComparison {
    /// The earlier report's suite.
    pub suite_before: String,
    /// The later report's suite.
    pub suite_after: String,
    /// Each task with each engine that either report has; what regressed comes first.
    pub tasks: Vec<EvalTaskComparison>,
    /// How many of each.
    pub counts: BTreeMap<EvalChange, u64>,
    /// Sums over what both reports have, in the earlier one.
    pub before: EvalTotals,
    /// Sums over what both reports have, in the later one.
    pub after: EvalTotals,
}

impl EvalComparison {
    /// Compares them.
    pub fn from_reports(before: &EvalReport, after: &EvalReport) -> Self {
        let find = |report: &'_ EvalReport, of: &EvalResult| {
            let same = |one: &&EvalResult| one.task == of.task && one.engine == of.engine;
            report.results.iter().find(same).cloned()
        };
        let mut pairs: Vec<(Option<EvalResult>, Option<EvalResult>)> = Vec::new();
        pairs.extend(before.results.iter().map(|one| (Some(one.clone()), find(after, one))));
        let new = after.results.iter().filter(|one| find(before, one).is_none());
        pairs.extend(new.map(|one| (None, Some(one.clone()))));
        let both = |pair: &&(Option<EvalResult>, Option<EvalResult>)| pair.0.is_some() && pair.1.is_some();
        let (sum_before, sum_after) = (
            EvalTotals::from_results(pairs.iter().filter(both).filter_map(|pair| pair.0.as_ref())),
            EvalTotals::from_results(pairs.iter().filter(both).filter_map(|pair| pair.1.as_ref())),
        );
        let mut tasks: Vec<EvalTaskComparison> = pairs.iter().filter_map(compare_task).collect();
        // Stable: within one kind of change the order of the reports stays.
        tasks.sort_by_key(|task| task.change);
        let mut counts = BTreeMap::new();
        for task in &tasks {
            *counts.entry(task.change).or_default() += 1;
        }
        let (suite_before, suite_after) = (before.suite.clone(), after.suite.clone());
        Self { suite_before, suite_after, tasks, counts, before: sum_before, after: sum_after }
    }

    /// How many changed so.
    pub fn count(&self, change: EvalChange) -> u64 {
        self.counts.get(&change).copied().unwrap_or(0)
    }
}

fn compare_task((before, after): &(Option<EvalResult>, Option<EvalResult>)) -> Option<EvalTaskComparison> {
    let of = after.as_ref().or(before.as_ref())?;
    let passed = |side: &Option<EvalResult>| side.as_ref().map(|result| result.passed);
    Some(EvalTaskComparison {
        task: of.task.clone(),
        kind: of.kind,
        engine: of.engine.clone(),
        change: EvalChange::from_passed(passed(before), passed(after)),
        before: before.as_ref().map(EvalSide::from_result),
        after: after.as_ref().map(EvalSide::from_result),
    })
}
