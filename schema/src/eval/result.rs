//! A report: each task with each engine, and sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::outcome::{EvalExpectation, EvalKind, EvalOutcome};
use crate::{
    ids::{RunId, TaskId, Timestamp},
    message::ModelRef,
    report::{CostSums, MetricTally, MetricView, Ratio},
};

/// What is looked at once a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalCheckKind {
    /// A command in a clean checkout of the result ends with status 0.
    Command,
    /// Each path that differs from the base is one that one of these globs means.
    Changes,
    /// No path that this glob means differs from the base.
    Unchanged,
    /// Nothing that stands in files that this glob means was shown to a model, of the run or of what it gave away.
    Unread,
    /// This file is there.
    File,
    /// The run left this artifact.
    Artifact,
    /// This rule denied a call, of the run or of what it gave away.
    Denied,
}

impl EvalCheckKind {
    /// Its name everywhere.
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

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvalCheck {
    /// What was looked at.
    pub what: EvalCheckKind,
    /// The command, the glob or globs, the path, the artifact or the rule.
    pub name: String,
    /// Whether it is as it should be.
    pub passed: bool,
    /// Why not, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// How long a command took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// A task of a suite with an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalResult {
    /// The task's name in its suite.
    pub task: String,
    /// What it is there to show.
    pub kind: EvalKind,
    /// Its title.
    pub title: String,
    /// The engine.
    pub engine: String,
    /// The model.
    pub model: ModelRef,
    /// The commit that it started from; none where it started from an empty folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The task in the queue.
    pub id: TaskId,
    /// Its last run, where it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How it was to end.
    pub expected: EvalExpectation,
    /// How it ended.
    pub outcome: EvalOutcome,
    /// Why, where it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was looked at afterwards.
    pub checks: Vec<EvalCheck>,
    /// All checks passed, and there was a run that could be checked.
    pub accepted: bool,
    /// It ended as expected, and was accepted.
    pub passed: bool,
    /// Turns of its run, and of what it gave away.
    pub turns: u64,
    /// What its runs' model calls cost, and those of what it gave away.
    pub cost: CostSums,
    /// How long models, tools and checks took, in milliseconds.
    pub worked_ms: u64,
    /// From the first lease to the end, in milliseconds.
    pub wall_ms: u64,
    /// Files and artifacts that are there, of those that the task expects or its engine owes.
    pub artifacts: Ratio,
    /// All twelve metrics of the task. Edits, errors, denials and violations are counted with those of what it gave away.
    pub metrics: Vec<MetricView>,
}

impl EvalResult {
    /// Tokens of requests and answers.
    pub const fn total_tokens(&self) -> u64 {
        let usage = self.cost.usage;
        usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.output_tokens
    }

    /// What it cost in nano-dollars; none where a price is not known.
    pub fn cost_nusd(&self) -> Option<u64> {
        self.cost.is_fully_priced().then_some(self.cost.cost_nusd)
    }
}

/// A task that was not tried with an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedEval {
    /// The task.
    pub task: String,
    /// The engine; none where it is left out with any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Why.
    pub why: String,
}

/// Sums over results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EvalTotals {
    /// How many.
    pub tasks: u64,
    /// Those that ended as expected and were accepted.
    pub passed: u64,
    /// Those whose run succeeded.
    pub succeeded: u64,
    /// Those whose checks passed.
    pub accepted: u64,
    /// Turns.
    pub turns: u64,
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// Nano-dollars; none where a price is not known.
    pub cost_nusd: Option<u64>,
    /// How long models, tools and checks took, in milliseconds.
    pub worked_ms: u64,
    /// Files and artifacts that are there, of those that should be.
    pub artifacts: Ratio,
    /// All twelve metrics of these tasks together.
    pub metrics: Vec<MetricView>,
}

impl EvalTotals {
    /// Of these.
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

    /// Of a hundred, how many passed; none of none.
    pub const fn passed_percent(&self) -> Option<u64> {
        (self.passed * 100 + self.tasks / 2).checked_div(self.tasks)
    }
}

/// Sums over the results of one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalEngineTotals {
    /// The engine.
    pub engine: String,
    /// Its sums.
    pub sum: EvalTotals,
}

/// Sums over the results of one kind of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalKindTotals {
    /// The kind.
    pub kind: EvalKind,
    /// Its sums.
    pub sum: EvalTotals,
}

/// What `docket eval` came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// The suite's name.
    pub suite: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The version of docket.
    pub docket: String,
    /// When it began.
    pub began_at: Timestamp,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Runs at once.
    pub workers: u32,
    /// Each task with each engine, in the order of the suite.
    pub results: Vec<EvalResult>,
    /// What was not tried.
    pub left_out: Vec<SkippedEval>,
    /// By engine, in the order in which they were first tried.
    pub engines: Vec<EvalEngineTotals>,
    /// Names of the tasks that all engines were tried with: only over these is one engine comparable with another.
    pub common: Vec<String>,
    /// By engine, over those.
    pub common_engines: Vec<EvalEngineTotals>,
    /// By kind.
    pub kinds: Vec<EvalKindTotals>,
    /// All of them.
    pub all: EvalTotals,
}

/// What is known of an evaluation beside its results.
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
    /// Sums up.
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

    /// Whether some engines were tried with tasks that others were not.
    pub fn has_partial_coverage(&self) -> bool {
        self.results.iter().any(|result| !self.common.contains(&result.task))
    }

    /// Whether every task with every engine passed.
    pub const fn is_passed(&self) -> bool {
        self.all.passed == self.all.tasks
    }
}
