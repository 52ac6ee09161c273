//! Fold of a task's events and those of its runs into the metrics. It defines what each metric counts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    artifact_tracker::ArtifactTracker,
    iso_week::IsoWeek,
    metrics::{Metric, MetricTally, MetricView, Ratio},
    tree_verification::{ReworkState, TreeVerification},
};
use crate::{
    content::WorkspacePath,
    ids::{TaskId, Timestamp, Turn},
    run::{
        ChangeAttribution, Concluded, EngineFact, PolicyVerdict, RunEvent, SandboxLayers, ToolFinished,
        ToolStatus,
    },
    task::TaskEvent,
    tool::ToolFacts,
};

/// Tools whose call is an edit: a change to a file's text that applies or does not.
const EDIT_TOOLS: [&str; 6] =
    ["edit_file", "create_file", "write_file", "append_file", "replace_in_file", "apply_patch"];

/// Calls by which the runtime shows a role its input. The model did not make them, so they are not counted.
const DISPLAY_TOOLS: [&str; 3] = ["show_file", "show_changes", "survey"];

/// The name engines use for a reply that had to be a patch.
const PATCH_ANSWER: &str = "patch";

/// The provider of scripted models: their results say nothing about a model.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    Completed,
    Discarded,
    Cancelled,
}

/// Counts over the runs' own events.
#[derive(Debug, Clone, Default)]
struct RunCounts {
    edits: u64,
    applied_edits: u64,
    /// Applied edits by file: a person who changes a file by hand reverts its edits.
    applied_by_file: BTreeMap<WorkspacePath, u64>,
    calls: u64,
    errors: u64,
    denials: u64,
    violations: u64,
}

/// Folds a task's events and, run by run, those of its runs, each in order. See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct TaskMetricsFold {
    begun_at: Option<Timestamp>,
    end: Option<(Timestamp, TaskEnd)>,
    accepted: bool,
    rejected: bool,
    /// Completed without verification of the result.
    unverified: bool,
    /// Final checks of the last run did not run.
    checks_did_not_run: bool,
    runs: u32,
    scripted: bool,
    counts: RunCounts,
    rework: ReworkState,
    plan_ms: Option<u64>,
    /// The last edit was a failed call, and no fact was recorded since.
    edit_failed: bool,
    sandbox: SandboxCoverage,
    attribution: ChangeAttribution,
    tree: TreeVerification,
    artifacts: ArtifactTracker,
}

/// Whether the commands of the runs were sandboxed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SandboxCoverage {
    #[default]
    Unknown,
    Full,
    /// Some commands ran without a sandbox, so violations are unknown.
    Partial,
}

/// The measurement of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskMeasurement {
    /// Whether one of its runs was scripted.
    pub scripted: bool,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// Completed without verification of the result.
    pub unverified: bool,
    /// Its metrics.
    pub tally: MetricTally,
}

impl TaskMetricsFold {
    /// Applies the next event of the task's stream.
    pub fn apply_task_event(&mut self, at: Timestamp, event: &TaskEvent) {
        match event {
            TaskEvent::TaskLeased(_) => {
                self.begun_at.get_or_insert(at);
            }
            TaskEvent::TaskCompleted(done) => {
                self.end = Some((at, TaskEnd::Completed));
                self.unverified = done.unverified.is_some();
            }
            TaskEvent::TaskDiscarded(_) => self.end = Some((at, TaskEnd::Discarded)),
            TaskEvent::TaskCancelled(_) => self.end = Some((at, TaskEnd::Cancelled)),
            TaskEvent::TaskRetried(_) | TaskEvent::TaskResumed(_) => {
                self.end = None;
                (self.accepted, self.unverified) = (false, false);
            }
            TaskEvent::TaskAccepted(_) => self.accepted = true,
            TaskEvent::TaskRejected(_) => self.rejected = true,
            TaskEvent::TaskSubmitted(_)
            | TaskEvent::TaskMadeAvailable(_)
            | TaskEvent::TaskReleased(_)
            | TaskEvent::TaskLeaseExpired(_)
            | TaskEvent::TaskRunCrashed(_)
            | TaskEvent::TaskRunFailed(_)
            | TaskEvent::TaskBlocked(_)
            | TaskEvent::TaskUnblocked(_)
            | TaskEvent::TaskReprioritized(_)
            | TaskEvent::TaskPaused(_)
            | TaskEvent::TaskDependencyEnded(_)
            | TaskEvent::TaskDelegated(_)
            | TaskEvent::TaskDeliveryRequested(_)
            | TaskEvent::TaskDelivered(_)
            | TaskEvent::TaskDeliveryBlocked(_)
            | TaskEvent::TaskDeliveryHookRan(_)
            | TaskEvent::TaskDeliveryClaimed(_)
            | TaskEvent::TaskNeededNoDelivery(_) => {}
        }
    }

    /// Starts the next run; its inherited events come before its own.
    pub fn begin_run(&mut self) {
        self.rework = self.rework.max(self.tree.rework_state());
        self.tree = TreeVerification::default();
        self.artifacts = ArtifactTracker::default();
        self.attribution = ChangeAttribution::default();
        self.checks_did_not_run = false;
        self.runs += 1;
    }

    /// Applies an event of the history shared with an ancestor: it determines the state of the tree, but the
    /// work counts for the ancestor.
    pub fn apply_shared_event(&mut self, turn: Turn, event: &RunEvent) {
        self.track_event(turn, event);
    }

    /// Applies the next of the run's own events.
    pub fn apply_run_event(&mut self, at: Timestamp, turn: Turn, event: &RunEvent) {
        if let RunEvent::RunStarted(started) = event {
            self.record_sandbox(&started.sandbox);
        } else if let RunEvent::RunRecovered(recovered) = event {
            self.record_sandbox(&recovered.sandbox);
        } else if let RunEvent::ToolRequested(asked) = event {
            self.counts.denials += u64::from(matches!(asked.policy, PolicyVerdict::Deny { .. }));
        } else if let RunEvent::ToolFinished(finished) = event {
            self.count_tool_call(finished);
        } else if let RunEvent::Concluded(concluded) = event {
            self.count_refused_patches(concluded);
        } else if let RunEvent::GateFinished(finished) = event {
            self.counts.violations += count_violations(&finished.facts);
        } else if let RunEvent::RunEnded(ended) = event {
            self.checks_did_not_run = ended.unverified.as_ref().is_some_and(|why| !why.checks.is_empty());
        } else if let RunEvent::SnapshotTaken(snapshot) = event
            && self.attribution.person().is_some()
        {
            for change in &snapshot.changes {
                let undone = self.counts.applied_by_file.remove(&change.path).unwrap_or(0);
                self.counts.applied_edits = self.counts.applied_edits.saturating_sub(undone);
            }
        }
        let planned = self.artifacts.has_plan();
        self.track_event(turn, event);
        if !planned && self.artifacts.has_plan() && self.plan_ms.is_none() {
            self.plan_ms = self.begun_at.map(|begun| at.ms_since(begun));
        }
    }

    fn track_event(&mut self, turn: Turn, event: &RunEvent) {
        self.attribution.attribute_event(event);
        if let RunEvent::RunStarted(started) = event {
            self.scripted |= started.models.main.provider == SCRIPTED_PROVIDER;
            self.artifacts.begin_run(started);
        } else if let RunEvent::Forked(forked) = event {
            self.scripted |=
                forked.models.as_ref().is_some_and(|models| models.main.provider == SCRIPTED_PROVIDER);
            forked.engine.iter().for_each(|engine| self.artifacts.set_engine(engine));
        } else if let RunEvent::GateFinished(finished) = event
            && self.tree.gate_name(&finished.call) == Some("requires")
        {
            self.artifacts.record_path_check(finished);
        }
        self.artifacts.record_plan(event);
        if self.tree.apply_event(turn, event) {
            self.artifacts.mark_tree_changed();
        }
    }

    fn record_sandbox(&mut self, sandbox: &SandboxLayers) {
        let none = sandbox.backend.is_empty() || sandbox.backend == "none";
        self.sandbox = match (self.sandbox, none) {
            (_, true) | (SandboxCoverage::Partial, false) => SandboxCoverage::Partial,
            (SandboxCoverage::Unknown | SandboxCoverage::Full, false) => SandboxCoverage::Full,
        };
    }

    /// Counts refused patches among an engine's facts. A patch that was refused for its content was never a
    /// call, and is a failed edit like any other; one whose call failed is counted with its call.
    fn count_refused_patches(&mut self, concluded: &Concluded) {
        let refused =
            |fact: &&EngineFact| matches!(fact, EngineFact::Invalid { what, .. } if what == PATCH_ANSWER);
        let refused = concluded.facts.iter().filter(refused).count() as u64;
        let uncounted = refused.saturating_sub(u64::from(std::mem::take(&mut self.edit_failed)));
        self.counts.edits += uncounted;
        self.counts.calls += uncounted;
        self.counts.errors += uncounted;
    }

    fn count_tool_call(&mut self, event: &ToolFinished) {
        self.counts.violations += count_violations(&event.facts);
        let went_well = match event.status {
            ToolStatus::Ok => true,
            // Refused by policy, a mode or a rule of the tool: the attempt failed.
            ToolStatus::Error | ToolStatus::Refused => false,
            // A crash happened in between, so the outcome is unknown.
            ToolStatus::Unknown => return,
        };
        let tool = self.tree.tool_call(&event.call).map(|tool| tool.name.as_str());
        if event.call.is_runtime() && tool.is_some_and(|tool| DISPLAY_TOOLS.contains(&tool)) {
            return;
        }
        let is_edit = tool.is_some_and(|tool| EDIT_TOOLS.contains(&tool));
        self.counts.calls += 1;
        self.counts.errors += u64::from(!went_well);
        if is_edit {
            self.edit_failed = !went_well;
            self.counts.edits += 1;
            self.counts.applied_edits += u64::from(went_well);
            // One call may change several files; it is reverted once.
            if let Some(path) = event.facts.changed.first().filter(|_| went_well) {
                *self.counts.applied_by_file.entry(path.clone()).or_default() += 1;
            }
        }
    }

    /// Returns the measurement.
    pub fn finish(&self) -> TaskMeasurement {
        let mut tally = MetricTally::default();
        let mut set = |metric, ratio| tally.set(metric, ratio);
        if self.runs > 0 {
            set(Metric::TaskSuccessRate, Ratio::from_bool(self.is_success()));
            set(Metric::PatchApplyRate, Ratio { of: self.counts.applied_edits, all: self.counts.edits });
            set(Metric::BuildPassRate, Ratio::from_bool(self.tree.build_passes()));
            set(Metric::TestPassRate, Ratio::from_bool(self.tree.tests_pass()));
            set(Metric::RegressionRate, Ratio::from_bool(self.tree.has_regression()));
            set(Metric::ReworkRate, Ratio::from_bool(self.has_rework()));
            set(Metric::TimeToPlanS, Ratio::from_amount(self.plan_ms));
            set(Metric::TimeToCompleteS, Ratio::from_amount(self.completion_ms()));
            set(Metric::ToolErrorRate, Ratio { of: self.counts.errors, all: self.counts.calls });
            set(Metric::PolicyDenialRate, Ratio::from_amount(Some(self.counts.denials)));
            let violations = (self.sandbox == SandboxCoverage::Full).then_some(self.counts.violations);
            set(Metric::SandboxViolationRate, Ratio::from_amount(violations));
            let (of, all) = self.artifacts.completeness().unwrap_or_default();
            set(Metric::ArtifactCompleteness, Ratio { of, all });
        }
        let ended_at = self.end.map(|(at, _)| at);
        TaskMeasurement { scripted: self.scripted, ended_at, unverified: self.unverified, tally }
    }

    /// Whether the task succeeded: completed, with a check that judged the final tree or a person who
    /// accepted it. A task completed although final checks did not run only succeeds if a person accepts it.
    /// Unknown for a completed task that nothing judged (files that parse say little about the work) and for
    /// a cancelled one.
    fn is_success(&self) -> Option<bool> {
        match self.end?.1 {
            TaskEnd::Completed if self.unverified && !self.accepted => {
                self.checks_did_not_run.then_some(false)
            }
            TaskEnd::Completed => (self.accepted || self.tree.is_judged()).then_some(true),
            TaskEnd::Discarded => Some(false),
            TaskEnd::Cancelled => None,
        }
    }

    /// Whether there was rework: a person rejected the result, or a check sent it back for something the run
    /// caused.
    fn has_rework(&self) -> Option<bool> {
        if self.rejected {
            return Some(true);
        }
        match self.rework.max(self.tree.rework_state()) {
            ReworkState::Yes => Some(true),
            ReworkState::No => Some(false),
            ReworkState::Unclear | ReworkState::Unjudged => None,
        }
    }

    /// Returns the time from the first lease, because waiting in the queue is not the agent's doing. It
    /// includes all attempts, and waits for people in between.
    fn completion_ms(&self) -> Option<u64> {
        let (at, end) = self.end?;
        (end == TaskEnd::Completed).then_some(())?;
        self.begun_at.map(|begun| at.ms_since(begun))
    }
}

/// Counts sandbox violations: refused destinations, and commands killed for excessive resource use. Hidden
/// files appear as missing to a command and are not in any log.
fn count_violations(facts: &ToolFacts) -> u64 {
    let refused =
        facts.network.iter().flat_map(|seen| &seen.refused).map(|place| u64::from(place.times.max(1)));
    refused.sum::<u64>() + u64::from(facts.exceeded.is_some())
}

/// The metrics of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMetrics {
    /// The task.
    pub task: TaskId,
    /// When it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The week in which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week: Option<IsoWeek>,
    /// Whether its model was scripted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scripted: bool,
    /// Completed without verification of the result: the final checks did not run, or there are none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// All twelve metrics, compared with their targets.
    pub metrics: Vec<MetricView>,
}

impl TaskMetrics {
    /// Builds the metrics of `task`.
    pub fn from_measurement(task: TaskId, measured: &TaskMeasurement) -> Self {
        let TaskMeasurement { ended_at, scripted, unverified, tally } = measured;
        let (ended_at, scripted, unverified) = (*ended_at, *scripted, *unverified);
        Self {
            task,
            ended_at,
            week: ended_at.map(IsoWeek::from_timestamp),
            scripted,
            unverified,
            metrics: tally.to_views(),
        }
    }
}

/// Metrics of the tasks that ended in a week.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WeekMetrics {
    /// The week; none for tasks that have not ended.
    pub week: Option<IsoWeek>,
    /// Number of tasks.
    pub tasks: u64,
    /// Number of these completed without verification.
    #[serde(default)]
    pub unverified: u64,
    /// All twelve metrics over these tasks, compared with their targets.
    pub metrics: Vec<MetricView>,
}

impl WeekMetrics {
    /// Groups tasks by week, earliest first; unfinished ones come before all weeks.
    pub fn group_by_week<'a>(tasks: impl IntoIterator<Item = &'a TaskMetrics>) -> Vec<Self> {
        let mut weeks: BTreeMap<Option<IsoWeek>, (u64, u64, MetricTally)> = BTreeMap::new();
        for task in tasks {
            let (count, unverified, tally) = weeks.entry(task.week).or_default();
            *count += 1;
            *unverified += u64::from(task.unverified);
            *tally = tally.plus(MetricTally::from_views(&task.metrics));
        }
        let view = |(week, (tasks, unverified, tally)): (_, (u64, u64, MetricTally))| {
            let metrics = tally.to_views();
            Self { week, tasks, unverified, metrics }
        };
        weeks.into_iter().map(view).collect()
    }
}

/// The report of `docket metrics`: tasks and their totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsReport {
    /// Each task.
    pub tasks: Vec<TaskMetrics>,
    /// Metrics by the week in which the tasks ended.
    pub weeks: Vec<WeekMetrics>,
    /// All twelve metrics over all tasks.
    pub all: Vec<MetricView>,
    /// Number of tasks completed without verification: final checks did not run, or there are none.
    #[serde(default)]
    pub unverified: u64,
    /// Number of tasks left out because their model is scripted.
    pub scripted_left_out: u64,
}

impl MetricsReport {
    /// Builds the report of these tasks; a task that occurs twice counts once.
    pub fn from_tasks(mut tasks: Vec<TaskMetrics>, scripted_left_out: u64) -> Self {
        let mut seen = std::collections::HashSet::new();
        tasks.retain(|task| seen.insert(task.task));
        let sum = |all: MetricTally, task: &TaskMetrics| all.plus(MetricTally::from_views(&task.metrics));
        let all = tasks.iter().fold(MetricTally::default(), sum).to_views();
        let unverified = tasks.iter().filter(|task| task.unverified).count() as u64;
        Self { weeks: WeekMetrics::group_by_week(&tasks), all, unverified, tasks, scripted_left_out }
    }
}
