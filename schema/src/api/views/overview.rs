//! `GET /v1/overview` and `GET /v1/cost/days`: what a person looks at first.

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

/// Tasks of each list of the overview, at most.
pub const OVERVIEW_TASKS_MAX: u32 = 50;
/// Batches whose budget is nearly spent, at most.
pub const OVERVIEW_BUDGETS_MAX: u32 = 20;
/// Queues, at most.
pub const OVERVIEW_QUEUES_MAX: u32 = 100;
/// A budget is told of once this part of it, or less, is left: a fifth.
pub const BUDGET_WARNING_FRACTION: u64 = 5;
/// Hours that are counted.
pub const OVERVIEW_HOURS: u32 = 7 * 24;
/// Longest message of a task in a list, in characters.
pub const SUMMARY_MESSAGE_CHARS_MAX: usize = 300;

/// `GET /v1/overview`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OverviewQuery {
    /// Which tasks count as just ended: those that did at this instant or later; a day ago by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// How everything stands, what needs a person first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverviewResponse {
    /// When it was looked at.
    pub at: Timestamp,
    /// Since when tasks count as just ended.
    pub since: Timestamp,
    /// Version of the coordinator's build.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// Tasks that do not go on before a person does something, the newest first; at most [`OVERVIEW_TASKS_MAX`].
    pub asks: Vec<TaskSummary>,
    /// All blocked tasks, by what they wait for.
    pub blocked: Vec<BlockedCount>,
    /// Discarded tasks, whenever that was, the last first; as many at most.
    pub discarded: Vec<TaskSummary>,
    /// How many discarded tasks there are in all.
    #[serde(default)]
    pub discarded_count: u64,
    /// Batches that have used most of their budget.
    pub budgets: Vec<NearlySpentBudget>,
    /// Notifications that somebody did not take: dead letters. None while they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications_dead: Option<u64>,
    /// Tasks that run, the one that has for longest first; as many at most.
    pub running: Vec<TaskSummary>,
    /// Tasks that ended since, the last first; as many at most.
    pub ended: Vec<TaskSummary>,
    /// How many ended since, by state.
    pub ended_counts: Vec<StateCount>,
    /// All tasks that are not archived, by state.
    pub tasks: Vec<StateCount>,
    /// The queues, by name: where there are more than [`OVERVIEW_QUEUES_MAX`], those with the most to do.
    pub queues: Vec<QueueView>,
    /// How many queues there are beside those.
    #[serde(default)]
    pub queues_left_out: u64,
    /// Workers that hold leases or were heard of within three lease times.
    pub workers: Vec<WorkerView>,
    /// Tasks that ended in each of the last [`OVERVIEW_HOURS`] hours in which some did, the oldest first.
    pub hours: Vec<HourlyEndCount>,
    /// Tasks that were submitted in each of those hours in which some were, the oldest first: with `hours` and what
    /// stands now, how long the backlog was.
    #[serde(default)]
    pub submitted: Vec<HourlySubmitCount>,
}

/// How many tasks were submitted within an hour, by their ids' own time; those that are archived are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourlySubmitCount {
    /// When the hour began.
    pub at: Timestamp,
    /// How many.
    pub count: u64,
}

/// How many tasks ended within an hour, as they stand now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourlyEndCount {
    /// When the hour began.
    pub at: Timestamp,
    /// Into which state.
    pub state: TaskState,
    /// How many.
    pub count: u64,
}

/// A batch that has used most of what is set for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NearlySpentBudget {
    /// The batch.
    pub batch: BatchId,
    /// What is set.
    pub budget: BatchBudget,
    /// What its runs have used, as far as that is counted.
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
    /// For what it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedReason>,
    /// What it asks, or why it failed: at most [`BRIEF_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its work is done and nothing verified it: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// Queue.
    pub queue: QueueName,
    /// Engine.
    pub engine: String,
    /// Model.
    pub model: ModelRef,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// For a fork: where its first run begins. It has no start of its own, so it is resumed and never retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The run in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The last run, in hand or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<IncarnationId>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Since when a worker has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl TaskSummary {
    /// What a list tells of a task.
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
    /// Calls that ended at this instant or later. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// And before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The next page: what `next` of the one before says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Tasks of a page; 100 by default, 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What model calls cost by day: of several pages, add the sums up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostDaysPage {
    /// Days with calls, in UTC, and models, in order.
    pub days: Vec<CostDay>,
    /// Runs that this page is the sum of.
    pub runs: u64,
    /// Where the next page begins; none = this was the last. Pages begin with the newest tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: calls later than this are all in this page and those before it, so that of two pages' days only those
    /// up to this one's can still grow. None while that cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}

/// What a model's calls of a day cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostDay {
    /// When the day began, in UTC.
    pub at: Timestamp,
    /// The model.
    pub model: ModelRef,
    /// What it comes to.
    pub sums: CostSums,
}
