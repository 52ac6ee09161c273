//! The fold that the metrics come from: a task's events, and those of its runs. What each metric counts stands here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    artifacts::Artifacts,
    metrics::{Metric, MetricView, Ratio, Tally},
    standing::{Again, Standing},
    week::Week,
};
use crate::{
    content::WorkPath,
    ids::{TaskId, Timestamp, Turn},
    run::{Concluded, Fact, Hands, RunEvent, SandboxLayers, ToolFinished, ToolStatus, Verdict},
    task::TaskEvent,
    tool::ToolFacts,
};

/// Tools whose call is an edit: it gives a change of a file's text, which applies or does not.
const EDITS: [&str; 6] =
    ["edit_file", "create_file", "write_file", "append_file", "replace_in_file", "apply_patch"];

/// Calls by which the runtime shows a role what it is to see: nobody asked for them, and they are no measure of anybody.
const LOOKS: [&str; 3] = ["show_file", "show_changes", "survey"];

/// What engines call an answer that was to be a patch.
const PATCH: &str = "patch";

/// The provider of models that follow a script: what runs with them came to says nothing of a model.
pub const SCRIPTED: &str = "scripted";

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Discarded,
    Cancelled,
}

/// What was counted of the runs' own events.
#[derive(Debug, Clone, Default)]
struct Counts {
    edits: u64,
    applied: u64,
    /// Of these, by file: a person who changes one by hand takes them back.
    applied_to: BTreeMap<WorkPath, u64>,
    calls: u64,
    errors: u64,
    denials: u64,
    violations: u64,
}

/// See the module. Shown a task's events and, run after run, those of its runs, each in its own order.
#[derive(Debug, Clone, Default)]
pub struct TaskFold {
    begun_at: Option<Timestamp>,
    end: Option<(Timestamp, End)>,
    accepted: bool,
    rejected: bool,
    /// It was completed, and nothing verified the result.
    unverified: bool,
    /// Final checks of its last run did not run.
    unchecked: bool,
    runs: u32,
    scripted: bool,
    counts: Counts,
    again: Again,
    plan_ms: Option<u64>,
    /// The last edit was a call that failed, and nothing was concluded since.
    edit_failed: bool,
    walls: Walls,
    hands: Hands,
    standing: Standing,
    artifacts: Artifacts,
}

/// Whether walls stood around the commands of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Walls {
    #[default]
    Unknown,
    Stood,
    /// At times there were none, and nobody knows what they would have stopped.
    Missing,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// One of its runs followed a script.
    pub scripted: bool,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// It was completed, and nothing verified the result.
    pub unverified: bool,
    /// Its metrics.
    pub tally: Tally,
}

impl TaskFold {
    /// Takes the next event of the task's stream.
    pub fn task_event(&mut self, at: Timestamp, event: &TaskEvent) {
        match event {
            TaskEvent::TaskLeased(_) => {
                self.begun_at.get_or_insert(at);
            }
            TaskEvent::TaskCompleted(done) => {
                self.end = Some((at, End::Completed));
                self.unverified = done.unverified.is_some();
            }
            TaskEvent::TaskDiscarded(_) => self.end = Some((at, End::Discarded)),
            TaskEvent::TaskCancelled(_) => self.end = Some((at, End::Cancelled)),
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

    /// The next run's events follow: before its own those of the history that it shares.
    pub fn begin_run(&mut self) {
        self.again = self.again.max(self.standing.again());
        self.standing = Standing::default();
        self.artifacts = Artifacts::default();
        self.hands = Hands::default();
        self.unchecked = false;
        self.runs += 1;
    }

    /// Takes an event of the history that the run shares with another: how the tree stands follows from it; what was
    /// done counts for the run that did it.
    pub fn share(&mut self, turn: Turn, event: &RunEvent) {
        self.know(turn, event);
    }

    /// Takes the next of the run's own events.
    pub fn take(&mut self, at: Timestamp, turn: Turn, event: &RunEvent) {
        if let RunEvent::RunStarted(started) = event {
            self.within(&started.sandbox);
        } else if let RunEvent::RunRecovered(recovered) = event {
            self.within(&recovered.sandbox);
        } else if let RunEvent::ToolRequested(asked) = event {
            self.counts.denials += u64::from(matches!(asked.policy, Verdict::Deny { .. }));
        } else if let RunEvent::ToolFinished(finished) = event {
            self.called(finished);
        } else if let RunEvent::Concluded(concluded) = event {
            self.concluded(concluded);
        } else if let RunEvent::GateFinished(finished) = event {
            self.counts.violations += violations(&finished.facts);
        } else if let RunEvent::RunEnded(ended) = event {
            self.unchecked = ended.unverified.as_ref().is_some_and(|why| !why.checks.is_empty());
        } else if let RunEvent::SnapshotTaken(snapshot) = event
            && self.hands.person().is_some()
        {
            for change in &snapshot.changes {
                let undone = self.counts.applied_to.remove(&change.path).unwrap_or(0);
                self.counts.applied = self.counts.applied.saturating_sub(undone);
            }
        }
        let planned = self.artifacts.has_plan();
        self.know(turn, event);
        if !planned && self.artifacts.has_plan() && self.plan_ms.is_none() {
            self.plan_ms = self.begun_at.map(|begun| at.ms_since(begun));
        }
    }

    fn know(&mut self, turn: Turn, event: &RunEvent) {
        self.hands.take(event);
        if let RunEvent::RunStarted(started) = event {
            self.scripted |= started.models.main.provider == SCRIPTED;
            self.artifacts.begin(started);
        } else if let RunEvent::Forked(forked) = event {
            self.scripted |= forked.models.as_ref().is_some_and(|models| models.main.provider == SCRIPTED);
            forked.engine.iter().for_each(|engine| self.artifacts.under(engine));
        } else if let RunEvent::GateFinished(finished) = event
            && self.standing.gate(&finished.call) == Some("requires")
        {
            self.artifacts.checked(finished);
        }
        self.artifacts.emits_plan(event);
        if self.standing.take(turn, event) {
            self.artifacts.changed();
        }
    }

    fn within(&mut self, sandbox: &SandboxLayers) {
        let none = sandbox.backend.is_empty() || sandbox.backend == "none";
        self.walls = match (self.walls, none) {
            (_, true) | (Walls::Missing, false) => Walls::Missing,
            (Walls::Unknown | Walls::Stood, false) => Walls::Stood,
        };
    }

    /// Takes what an engine concluded: a patch that was refused for what it says was never a call, and is an edit that
    /// failed like any other; the one whose call failed is counted with its call.
    fn concluded(&mut self, concluded: &Concluded) {
        let refused = |fact: &&Fact| matches!(fact, Fact::Invalid { what, .. } if what == PATCH);
        let refused = concluded.facts.iter().filter(refused).count() as u64;
        let uncounted = refused.saturating_sub(u64::from(std::mem::take(&mut self.edit_failed)));
        self.counts.edits += uncounted;
        self.counts.calls += uncounted;
        self.counts.errors += uncounted;
    }

    fn called(&mut self, event: &ToolFinished) {
        self.counts.violations += violations(&event.facts);
        let went_well = match event.status {
            ToolStatus::Ok => true,
            // Policy, a mode or a rule of the tool: it was asked for in vain.
            ToolStatus::Error | ToolStatus::Refused => false,
            // A crash came between: nobody knows.
            ToolStatus::Unknown => return,
        };
        let tool = self.standing.call(&event.call).map(|tool| tool.name.as_str());
        if event.call.is_own() && tool.is_some_and(|tool| LOOKS.contains(&tool)) {
            return;
        }
        let is_edit = tool.is_some_and(|tool| EDITS.contains(&tool));
        self.counts.calls += 1;
        self.counts.errors += u64::from(!went_well);
        if is_edit {
            self.edit_failed = !went_well;
            self.counts.edits += 1;
            self.counts.applied += u64::from(went_well);
            // One call may change several files; it is taken back once.
            if let Some(path) = event.facts.changed.first().filter(|_| went_well) {
                *self.counts.applied_to.entry(path.clone()).or_default() += 1;
            }
        }
    }

    /// What it comes to.
    pub fn finish(&self) -> Measured {
        let mut tally = Tally::default();
        let mut set = |metric, ratio| tally.set(metric, ratio);
        if self.runs > 0 {
            set(Metric::TaskSuccessRate, Ratio::known(self.succeeded()));
            set(Metric::PatchApplyRate, Ratio { of: self.counts.applied, all: self.counts.edits });
            set(Metric::BuildPassRate, Ratio::known(self.standing.builds()));
            set(Metric::TestPassRate, Ratio::known(self.standing.tests_pass()));
            set(Metric::RegressionRate, Ratio::known(self.standing.regresses()));
            set(Metric::ReworkRate, Ratio::known(self.reworked()));
            set(Metric::TimeToPlanS, Ratio::amount(self.plan_ms));
            set(Metric::TimeToCompleteS, Ratio::amount(self.complete_ms()));
            set(Metric::ToolErrorRate, Ratio { of: self.counts.errors, all: self.counts.calls });
            set(Metric::PolicyDenialRate, Ratio::amount(Some(self.counts.denials)));
            let violations = (self.walls == Walls::Stood).then_some(self.counts.violations);
            set(Metric::SandboxViolationRate, Ratio::amount(violations));
            let (of, all) = self.artifacts.there().unwrap_or_default();
            set(Metric::ArtifactCompleteness, Ratio { of, all });
        }
        let ended_at = self.end.map(|(at, _)| at);
        Measured { scripted: self.scripted, ended_at, unverified: self.unverified, tally }
    }

    /// Completed, with a check that judged the final tree or a person who took it. One that was completed although final
    /// checks did not run is no success before a person takes it. A task that was completed and that nobody judged says
    /// nothing (that files parse says little about the work), and so does one that was cancelled.
    fn succeeded(&self) -> Option<bool> {
        match self.end?.1 {
            End::Completed if self.unverified && !self.accepted => self.unchecked.then_some(false),
            End::Completed => (self.accepted || self.standing.is_judged()).then_some(true),
            End::Discarded => Some(false),
            End::Cancelled => None,
        }
    }

    /// A person did not take it; or a check sent it back, for something that is the run's own doing.
    fn reworked(&self) -> Option<bool> {
        if self.rejected {
            return Some(true);
        }
        match self.again.max(self.standing.again()) {
            Again::Yes => Some(true),
            Again::No => Some(false),
            Again::Perhaps | Again::Unasked => None,
        }
    }

    /// From the first lease on: how long the task waited in its queue is no doing of the agent's. All tries, and the
    /// waits for people between them, are in it.
    fn complete_ms(&self) -> Option<u64> {
        let (at, end) = self.end?;
        (end == End::Completed).then_some(())?;
        self.begun_at.map(|begun| at.ms_since(begun))
    }
}

/// What walls stopped: places that a command was refused, and commands that were ended for using too much. What a
/// command cannot see, as files outside, it is told is not there: that is in no log.
fn violations(facts: &ToolFacts) -> u64 {
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
    pub week: Option<Week>,
    /// Its model followed a script.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scripted: bool,
    /// It was completed, and nothing verified the result: its final checks did not run, or there are none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// All twelve, against their targets.
    pub metrics: Vec<MetricView>,
}

impl TaskMetrics {
    /// What came of `task`.
    pub fn of(task: TaskId, measured: &Measured) -> Self {
        let Measured { ended_at, scripted, unverified, tally } = measured;
        let (ended_at, scripted, unverified) = (*ended_at, *scripted, *unverified);
        Self { task, ended_at, week: ended_at.map(Week::of), scripted, unverified, metrics: tally.view() }
    }
}

/// The metrics of the tasks that ended in a week.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WeekMetrics {
    /// The week; none = those that have not ended.
    pub week: Option<Week>,
    /// How many tasks.
    pub tasks: u64,
    /// Of these, completed and verified by nothing.
    #[serde(default)]
    pub unverified: u64,
    /// All twelve, of these together, against their targets.
    pub metrics: Vec<MetricView>,
}

impl WeekMetrics {
    /// Of tasks, by week, the earliest first; those that have not ended come first.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskMetrics>) -> Vec<Self> {
        let mut weeks: BTreeMap<Option<Week>, (u64, u64, Tally)> = BTreeMap::new();
        for task in tasks {
            let (count, unverified, tally) = weeks.entry(task.week).or_default();
            *count += 1;
            *unverified += u64::from(task.unverified);
            *tally = tally.plus(Tally::of(&task.metrics));
        }
        let view = |(week, (tasks, unverified, tally)): (_, (u64, u64, Tally))| {
            let metrics = tally.view();
            Self { week, tasks, unverified, metrics }
        };
        weeks.into_iter().map(view).collect()
    }
}

/// What `docket metrics` tells: tasks, and what they come to together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsReport {
    /// Each task.
    pub tasks: Vec<TaskMetrics>,
    /// By the week in which they ended.
    pub weeks: Vec<WeekMetrics>,
    /// All twelve, of all tasks together.
    pub all: Vec<MetricView>,
    /// Tasks that were completed and that nothing verified: their final checks did not run, or they have none.
    #[serde(default)]
    pub unverified: u64,
    /// Tasks that are left out, for their model follows a script.
    pub scripted_left_out: u64,
}

impl MetricsReport {
    /// Of these tasks; one that comes twice counts once.
    pub fn of(mut tasks: Vec<TaskMetrics>, scripted_left_out: u64) -> Self {
        let mut seen = std::collections::HashSet::new();
        tasks.retain(|task| seen.insert(task.task));
        let sum = |all: Tally, task: &TaskMetrics| all.plus(Tally::of(&task.metrics));
        let all = tasks.iter().fold(Tally::default(), sum).view();
        let unverified = tasks.iter().filter(|task| task.unverified).count() as u64;
        Self { weeks: WeekMetrics::of(&tasks), all, unverified, tasks, scripted_left_out }
    }
}
