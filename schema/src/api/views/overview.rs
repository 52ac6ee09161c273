//! Bodies of `GET /v1/overview` and `GET /v1/cost/days`: the dashboard's start page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{
    admin::queue::QueueView,
    tasks::{
        batch::{BatchBudget, BlockedCount},
        task::{StateCount, WorkerView},
    },
};
use crate::{
    ids::{BatchId, IncarnationId, QueueName, RunId, TaskId, Timestamp},
    message::ModelRef,
    report::CostSums,
    system::BatchSpending,
    task::{ForkedFrom, TaskBlockedReason, TaskRecord, TaskState},
};

/// Maximum number of tasks in each list of the overview.
pub const OVERVIEW_TASKS_MAX: u32 = 50;
/// Maximum number of batches whose budget is nearly spent.
pub const OVERVIEW_BUDGETS_MAX: u32 = 20;
/// Maximum number of queues.
pub const OVERVIEW_QUEUES_MAX: u32 = 100;
/// A budget is reported once this fraction of it, or less, is left: a fifth.
pub const BUDGET_WARNING_FRACTION: u64 = 5;
/// Number of hours covered.
pub const OVERVIEW_HOURS: u32 = 7 * 24;
/// Maximum length of a task's message in a list, in characters.
pub const SUMMARY_MESSAGE_CHARS_MAX: usize = 300;

/// `GET /v1/overview`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OverviewQuery {
    /// Tasks that ended at or after this time count as recently ended; a day ago by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// State of the whole installation; what needs a person comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverviewResponse {
    /// When the overview was created.
    pub at: Timestamp,
    /// Since when ended tasks count as recently ended.
    pub since: Timestamp,
    /// Version of the coordinator's build.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// Tasks that need a person to continue, newest first; at most [`OVERVIEW_TASKS_MAX`].
    pub asks: Vec<TaskSummary>,
    /// Number of blocked tasks by reason.
    pub blocked: Vec<BlockedCount>,
    /// Discarded tasks, regardless of when they ended, latest first; at most [`OVERVIEW_TASKS_MAX`].
    pub discarded: Vec<TaskSummary>,
    /// Total number of discarded tasks.
    #[serde(default)]
    pub discarded_count: u64,
    /// Batches that have used most of their budget.
    pub budgets: Vec<NearlySpentBudget>,
    /// Number of dead letters (undeliverable notifications). None while it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications_dead: Option<u64>,
    /// Running tasks, longest-running first; at most [`OVERVIEW_TASKS_MAX`].
    pub running: Vec<TaskSummary>,
    /// Tasks that ended since `since`, latest first; at most [`OVERVIEW_TASKS_MAX`].
    pub ended: Vec<TaskSummary>,
    /// Number of tasks that ended since `since`, by state.
    pub ended_counts: Vec<StateCount>,
    /// Number of tasks that are not archived, by state.
    pub tasks: Vec<StateCount>,
    /// The queues, by name; if there are more than [`OVERVIEW_QUEUES_MAX`], the busiest ones.
    pub queues: Vec<QueueView>,
    /// Number of queues that are omitted.
    #[serde(default)]
    pub queues_left_out: u64,
    /// Workers that hold leases or were seen within the last three lease durations.
    pub workers: Vec<WorkerView>,
    /// Tasks that ended in each of the last [`OVERVIEW_HOURS`] hours, oldest first; hours without any are
    /// omitted.
    pub hours: Vec<HourlyEndCount>,
    /// Tasks that were submitted in each of these hours, oldest first; hours without any are omitted.
    /// Together with `hours` and the current counts, this gives the length of the backlog over time.
    #[serde(default)]
    pub submitted: Vec<HourlySubmitCount>,
}

/// Number of tasks submitted within an hour, by the timestamp in their ids; archived tasks are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourlySubmitCount {
    /// Start of the hour.
    pub at: Timestamp,
    /// Number of tasks.
    pub count: u64,
}

/// Number of tasks that ended within an hour, by their current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourlyEndCount {
    /// Start of the hour.
    pub at: Timestamp,
    /// The state they ended in.
    pub state: TaskState,
    /// Number of tasks.
    pub count: u64,
}

/// A batch that has used most of its budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NearlySpentBudget {
    /// The batch.
    pub batch: BatchId,
    /// The budget.
    pub budget: BatchBudget,
    /// What its runs have used, as far as counted.
    pub used: BatchSpending,
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSummary {
    /// The task.
    pub id: TaskId,
    /// Its title.
    pub title: String,
    /// Its state.
    pub state: TaskState,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedReason>,
    /// Its question, or why it failed; at most [`SUMMARY_MESSAGE_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// If its work is done but nothing verified it: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// The task's queue.
    pub queue: QueueName,
    /// The task's engine.
    pub engine: String,
    /// The task's model.
    pub model: ModelRef,
    /// The task's batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// For a fork: where its first run starts. A fork has no start of its own, so it is resumed and never
    /// retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The latest run, current or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<IncarnationId>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Since when it has been leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl TaskSummary {
    /// Builds the summary from a task's record.
    pub fn from_record(record: TaskRecord) -> Self {
        let TaskRecord { id, state, spec, blocked_why, message, unverified, run, last_run, worker, .. } =
            record;
        let cut = |text: String| match text.char_indices().nth(SUMMARY_MESSAGE_CHARS_MAX) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        };
        Self {
            id,
            title: spec.title,
            state,
            blocked_why,
            message: message.map(cut),
            unverified: unverified.map(cut),
            queue: spec.queue,
            engine: spec.engine,
            model: spec.model,
            batch: spec.batch,
            forked_from: record.forked_from,
            run,
            last_run,
            worker,
            submitted_at: record.submitted_at,
            leased_at: record.leased_at,
            ended_at: record.ended_at,
        }
    }
}

/// `GET /v1/cost/days`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CostDaysQuery {
    /// Includes calls that ended at or after this time. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Includes calls that ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The next page: the `next` of the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of tasks per page; 100 by default, at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Cost of model calls per day. To combine several pages, add the sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostDaysPage {
    /// Cost per UTC day and model, in order.
    pub days: Vec<CostDay>,
    /// Number of runs included in this page.
    pub runs: u64,
    /// Where the next page starts; none on the last page. Pages start with the newest tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: all calls later than this are in this page or an earlier one, so only days up to this
    /// time can still grow. None if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}

/// Cost of a model's calls in a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostDay {
    /// Start of the day in UTC.
    pub at: Timestamp,
    /// The model.
    pub model: ModelRef,
    /// The sums.
    pub sums: CostSums,
}
