//! Batches: tasks that were submitted together, and how they stand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StateCount;
use crate::{
    ids::{BatchId, TaskId, Timestamp},
    system::{Budget, Spending},
    task::{TaskBlockedWhy, TaskState},
};

/// `GET /v1/batches/{id}`: how a batch stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchView {
    /// The batch.
    pub id: BatchId,
    /// What its submitter calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its tasks, with those that are archived.
    pub tasks: u64,
    /// Those of them that are archived.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived: u64,
    /// By state.
    pub states: Vec<StateCount>,
    /// Its blocked ones, by what they wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<BlockedCount>,
    /// Pending ones that wait, at whatever remove, for a task that failed: until somebody retries that one, or lets
    /// them go without it.
    #[serde(default)]
    pub behind_failed: u64,
    /// Pending ones that wait likewise for a task that waits for a person.
    #[serde(default)]
    pub behind_blocked: u64,
    /// What its runs may use together, if that is set.
    #[serde(default, skip_serializing_if = "BatchBudget::is_none")]
    pub budget: BatchBudget,
    /// What its runs have used, as far as it is counted: the coordinator that answers counts first.
    #[serde(default)]
    pub used: Spending,
    /// Runs begun.
    pub runs: u64,
    /// Runs that failed, of tasks as they stand now: a retry begins to count again.
    pub failures: u64,
    /// Run-process crashes, likewise.
    pub crashes: u64,
    /// What tasks that are not done say, the most frequent first; at most
    /// [`BATCH_MESSAGES_MAX`](super::BATCH_MESSAGES_MAX).
    pub messages: Vec<MessageCount>,
    /// The task whose present run began first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running: Option<OldestRunning>,
    /// When its first task was submitted.
    pub first_submitted_at: Timestamp,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
    /// When the first of those that have ended did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ended_at: Option<Timestamp>,
    /// When the last of them did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<Timestamp>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl BatchView {
    /// Tasks that do not go on before somebody does something: blocked ones, those that wait for them or for one
    /// that failed, and those that no budget pays for.
    pub fn waiting_for_people(&self) -> u64 {
        let asks = |why| match why {
            TaskBlockedWhy::Person
            | TaskBlockedWhy::Paused
            | TaskBlockedWhy::Provider
            | TaskBlockedWhy::Budget => true,
            TaskBlockedWhy::Child | TaskBlockedWhy::Outage => false,
        };
        let blocked = self.blocked.iter().filter(|blocked| asks(blocked.why)).map(|blocked| blocked.count);
        let available =
            || self.states.iter().filter(|of| of.state == TaskState::Available).map(|of| of.count);
        // None of them begins before the budget is raised.
        let unpaid = if self.budget.spent.is_some() { available().sum() } else { 0 };
        blocked.sum::<u64>() + self.behind_failed + self.behind_blocked + unpaid
    }
}

/// What the runs of a batch may use together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BatchBudget {
    /// What is set.
    pub budget: Budget,
    /// Why it does not pay for the next call: no task of the batch begins, and those that run rest before theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<String>,
}

impl BatchBudget {
    /// For serde: nothing is set.
    pub const fn is_none(&self) -> bool {
        self.budget.is_none()
    }
}

/// `POST /v1/batches/{id}/budget`: sets what a batch's runs may use together; what waits for that goes on by itself. The
/// batch need not have a task yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBudgetRequest {
    /// The amounts.
    pub budget: Budget,
    /// What becomes of the rest.
    #[serde(default, skip_serializing_if = "SetBudget::is_all")]
    pub how: SetBudget,
}

/// What naming amounts of a budget sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetBudget {
    /// All of it: what is not named has no budget any more.
    #[default]
    All,
    /// What is named; the rest stays as it is.
    Named,
    /// All of it, unless a person has set something for the batch: so a file that is imported again undoes nothing. The
    /// answer says what is set then.
    OfFile,
}

impl SetBudget {
    /// For serde: it is the usual one.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// What is set for a batch, and what was used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    /// The batch.
    pub batch: BatchId,
    /// What is set.
    pub budget: BatchBudget,
    /// What its runs have used.
    pub used: Spending,
}

/// How many tasks are blocked for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCount {
    /// For what.
    pub why: TaskBlockedWhy,
    /// How many.
    pub count: u64,
}

/// How often tasks say something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageCount {
    /// What they say.
    pub message: String,
    /// How many.
    pub count: u64,
    /// One of them.
    pub task: TaskId,
}

/// A task that has been running for the longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OldestRunning {
    /// The task.
    pub task: TaskId,
    /// When its run began.
    pub since: Timestamp,
}

/// `GET /v1/batches`: the batches of the newest tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchList {
    /// At most [`BATCHES_MAX`](super::BATCHES_MAX), the one with the newest task first.
    pub batches: Vec<BatchSummary>,
    /// There are more.
    pub more: bool,
}

/// A batch in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchSummary {
    /// The batch.
    pub id: BatchId,
    /// What its submitter calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its tasks.
    pub tasks: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
}
