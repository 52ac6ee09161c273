//! Comparison of two evaluation reports of the same tasks: improvements and regressions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    outcome::{EvalKind, EvalOutcome},
    result::{EvalReport, EvalResult, EvalTotals},
};
use crate::message::ModelRef;

/// How the result of a task with an engine changed between two reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalChange {
    /// It passed before and does not now.
    Regressed,
    /// It did not pass before and does now.
    Mended,
    /// It passes in both reports.
    Passes,
    /// It fails in both reports.
    Fails,
    /// Only the earlier report contains it.
    Gone,
    /// Only the later report contains it.
    New,
}

impl EvalChange {
    /// Returns the change's name.
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

/// One report's result of a task with an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalSide {
    /// The model.
    pub model: ModelRef,
    /// Whether it passed.
    pub passed: bool,
    /// How it ended.
    pub outcome: EvalOutcome,
    /// Checks that failed.
    pub failed_checks: Vec<String>,
    /// Number of turns.
    pub turns: u64,
    /// Tokens of requests and replies.
    pub tokens: u64,
    /// Cost in nano-dollars; none if a price is unknown.
    pub cost_nusd: Option<u64>,
    /// Time spent in models, tools and checks, in milliseconds.
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

/// The results of a task with an engine in both reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalTaskComparison {
    /// The task.
    pub task: String,
    /// What the task demonstrates.
    pub kind: EvalKind,
    /// The engine.
    pub engine: String,
    /// How the result changed.
    pub change: EvalChange,
    /// The earlier report's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EvalSide>,
    /// The later report's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<EvalSide>,
}

/// A comparison of two reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalComparison {
    /// The earlier report's suite.
    pub suite_before: String,
    /// The later report's suite.
    pub suite_after: String,
    /// Every task with every engine that either report contains; regressions first.
    pub tasks: Vec<EvalTaskComparison>,
    /// Number of tasks per change.
    pub counts: BTreeMap<EvalChange, u64>,
    /// Totals over the tasks in both reports, from the earlier one.
    pub before: EvalTotals,
    /// Totals over the tasks in both reports, from the later one.
    pub after: EvalTotals,
}

impl EvalComparison {
    /// Compares two reports.
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
        // The sort is stable: tasks with the same change stay in report order.
        tasks.sort_by_key(|task| task.change);
        let mut counts = BTreeMap::new();
        for task in &tasks {
            *counts.entry(task.change).or_default() += 1;
        }
        let (suite_before, suite_after) = (before.suite.clone(), after.suite.clone());
        Self { suite_before, suite_after, tasks, counts, before: sum_before, after: sum_after }
    }

    /// Returns the number of tasks with this change.
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
