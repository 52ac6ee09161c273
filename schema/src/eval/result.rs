//! Evaluation reports: results per task and engine, and totals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::outcome::{EvalExpectation, EvalKind, EvalOutcome};
use crate::{
    ids::{RunId, TaskId, Timestamp},
    message::ModelRef,
    report::{CostSums, MetricTally, MetricView, Ratio},
};

/// Kind of check made after a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalCheckKind {
    /// A command in a clean checkout of the result exits with status 0.
    Command,
    /// Every changed path matches one of these globs.
    Changes,
    /// No path that matches this glob changed.
    Unchanged,
    /// No content of files that match this glob was shown to a model, by the run or its delegated runs.
    Unread,
    /// This file exists.
    File,
    /// The run left this artifact.
    Artifact,
    /// This rule denied a call of the run or of its delegated runs.
    Denied,
}

impl EvalCheckKind {
    /// Returns the kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Changes => "changes",
            Self::Unchanged => "unchanged",
            Self::Unread => "unread",
            Self::File => "file",
            Self::Artifact => "artifact",
            Self::Denied => "denied",
        }
    }
}

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvalCheck {
    /// The kind of check.
    pub what: EvalCheckKind,
    /// The command, the glob or globs, the path, the artifact or the rule.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// Why it failed, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// Duration of a command, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// The result of a task with an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalResult {
    /// The task's name in its suite.
    pub task: String,
    /// What the task demonstrates.
    pub kind: EvalKind,
    /// The task's title.
    pub title: String,
    /// The engine.
    pub engine: String,
    /// The model.
    pub model: ModelRef,
    /// The commit it started from; none if it started from an empty folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The task's id in the queue.
    pub id: TaskId,
    /// Its last run, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The expected outcome.
    pub expected: EvalExpectation,
    /// The actual outcome.
    pub outcome: EvalOutcome,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The checks made after the run.
    pub checks: Vec<EvalCheck>,
    /// Whether there was a run to check and all checks passed.
    pub accepted: bool,
    /// Whether it was accepted with the expected outcome.
    pub passed: bool,
    /// Turns of its run and of delegated runs.
    pub turns: u64,
    /// Cost of the model calls of its runs and of delegated runs.
    pub cost: CostSums,
    /// Time spent in models, tools and checks, in milliseconds.
    pub worked_ms: u64,
    /// Time from the first lease to the end, in milliseconds.
    pub wall_ms: u64,
    /// Present files and artifacts out of those that the task or its engine requires.
    pub artifacts: Ratio,
    /// All twelve metrics of the task. Edits, errors, denials and violations include those of delegated runs.
    pub metrics: Vec<MetricView>,
}

impl EvalResult {
    /// Returns the number of tokens of requests and replies.
    pub const fn total_tokens(&self) -> u64 {
        let usage = self.cost.usage;
        usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.output_tokens
    }

    /// Returns the cost in nano-dollars; none if a price is unknown.
    pub fn cost_nusd(&self) -> Option<u64> {
        self.cost.is_fully_priced().then_some(self.cost.cost_nusd)
    }
}

/// A task that was not evaluated with an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedEval {
    /// The task.
    pub task: String,
    /// The engine; none if the task is skipped for all engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Why it was skipped.
    pub why: String,
}

/// Totals over results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EvalTotals {
    /// Number of tasks.
    pub tasks: u64,
    /// Accepted tasks with the expected outcome.
    pub passed: u64,
    /// Tasks whose run succeeded.
    pub succeeded: u64,
    /// Tasks whose checks passed.
    pub accepted: u64,
    /// Number of turns.
    pub turns: u64,
    /// Tokens of requests and replies.
    pub tokens: u64,
    /// Cost in nano-dollars; none if a price is unknown.
    pub cost_nusd: Option<u64>,
    /// Time spent in models, tools and checks, in milliseconds.
    pub worked_ms: u64,
    /// Present files and artifacts out of the required ones.
    pub artifacts: Ratio,
    /// All twelve metrics over these tasks.
    pub metrics: Vec<MetricView>,
}

impl EvalTotals {
    /// Computes the totals of these results.
    pub fn from_results<'a>(results: impl IntoIterator<Item = &'a EvalResult>) -> Self {
        let mut sum = Self { cost_nusd: Some(0), ..Self::default() };
        let mut tally = MetricTally::default();
        for result in results {
            sum.tasks += 1;
            sum.passed += u64::from(result.passed);
            sum.succeeded += u64::from(result.outcome == EvalOutcome::Succeeded);
            sum.accepted += u64::from(result.accepted);
            sum.turns += result.turns;
            sum.tokens += result.total_tokens();
            sum.cost_nusd = sum.cost_nusd.zip(result.cost_nusd()).map(|(all, one)| all.saturating_add(one));
            sum.worked_ms = sum.worked_ms.saturating_add(result.worked_ms);
            sum.artifacts.of += result.artifacts.of;
            sum.artifacts.all += result.artifacts.all;
            tally = tally.plus(MetricTally::from_views(&result.metrics));
        }
        Self { metrics: tally.to_views(), ..sum }
    }

    /// Returns the percentage that passed; none if there are no tasks.
    pub const fn passed_percent(&self) -> Option<u64> {
        (self.passed * 100 + self.tasks / 2).checked_div(self.tasks)
    }
}

/// Totals over the results of one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalEngineTotals {
    /// The engine.
    pub engine: String,
    /// Its totals.
    pub sum: EvalTotals,
}

/// Totals over the results of one kind of task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalKindTotals {
    /// The kind.
    pub kind: EvalKind,
    /// Its totals.
    pub sum: EvalTotals,
}

/// The report of `docket eval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// The suite's name.
    pub suite: String,
    /// The suite's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The version of docket.
    pub docket: String,
    /// When it started.
    pub began_at: Timestamp,
    /// Duration in milliseconds.
    pub took_ms: u64,
    /// Number of concurrent runs.
    pub workers: u32,
    /// Every task with every engine, in suite order.
    pub results: Vec<EvalResult>,
    /// Tasks that were not evaluated.
    pub left_out: Vec<SkippedEval>,
    /// Totals by engine, in the order in which they were first used.
    pub engines: Vec<EvalEngineTotals>,
    /// Names of the tasks evaluated with all engines; engines are only comparable over these.
    pub common: Vec<String>,
    /// Totals by engine over the common tasks.
    pub common_engines: Vec<EvalEngineTotals>,
    /// Totals by kind.
    pub kinds: Vec<EvalKindTotals>,
    /// Totals over all results.
    pub all: EvalTotals,
}

/// An evaluation's metadata, without its results.
#[derive(Debug, Clone)]
pub struct EvalMetadata {
    /// See [`EvalReport::suite`].
    pub suite: String,
    /// See [`EvalReport::about`].
    pub about: Option<String>,
    /// See [`EvalReport::docket`].
    pub docket: String,
    /// See [`EvalReport::began_at`].
    pub began_at: Timestamp,
    /// See [`EvalReport::took_ms`].
    pub took_ms: u64,
    /// See [`EvalReport::workers`].
    pub workers: u32,
}

impl EvalReport {
    /// Builds the report and its totals.
    pub fn from_results(head: EvalMetadata, results: Vec<EvalResult>, left_out: Vec<SkippedEval>) -> Self {
        let mut engines: Vec<&str> = Vec::new();
        for result in &results {
            if !engines.contains(&result.engine.as_str()) {
                engines.push(&result.engine);
            }
        }
        let tried = |task: &str, engine: &str| {
            results.iter().any(|result| result.task == task && result.engine == engine)
        };
        let mut common: Vec<String> = Vec::new();
        for EvalResult { task, .. } in &results {
            if !common.contains(task) && engines.iter().all(|engine| tried(task, engine)) {
                common.push(task.clone());
            }
        }
        let by_engine = |engine: &&str, is_meant: &dyn Fn(&EvalResult) -> bool| EvalEngineTotals {
            engine: (*engine).to_owned(),
            sum: EvalTotals::from_results(
                results.iter().filter(|result| result.engine == *engine && is_meant(result)),
            ),
        };
        let by_kind = |kind: EvalKind| EvalKindTotals {
            kind,
            sum: EvalTotals::from_results(results.iter().filter(|result| result.kind == kind)),
        };
        let kinds = EvalKind::ALL.into_iter().map(by_kind).filter(|kind| kind.sum.tasks > 0).collect();
        Self {
            engines: engines.iter().map(|engine| by_engine(engine, &|_| true)).collect(),
            common_engines: engines
                .iter()
                .map(|engine| by_engine(engine, &|result| common.contains(&result.task)))
                .collect(),
            common,
            kinds,
            all: EvalTotals::from_results(&results),
            suite: head.suite,
            about: head.about,
            docket: head.docket,
            began_at: head.began_at,
            took_ms: head.took_ms,
            workers: head.workers,
            results,
            left_out,
        }
    }

    /// Whether some tasks were evaluated with only some of the engines.
    pub fn has_partial_coverage(&self) -> bool {
        self.results.iter().any(|result| !self.common.contains(&result.task))
    }

    /// Whether every task passed with every engine.
    pub const fn is_passed(&self) -> bool {
        self.all.passed == self.all.tasks
    }
}
