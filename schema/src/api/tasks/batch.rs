//! Batches: groups of tasks submitted together, with their progress and budget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::StateCount;
use crate::{
    event::is_zero,
    ids::{BatchId, TaskId, Timestamp},
    system::{BatchSpending, Budget},
    task::{TaskBlockedReason, TaskState},
};

/// `GET /v1/batches/{id}`: a batch's progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchView {
    /// The batch's id.
    pub id: BatchId,
    /// The name its submitter gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of tasks, including archived ones.
    pub tasks: u64,
    /// Number of archived tasks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived: u64,
    /// Number of tasks by state.
    pub states: Vec<StateCount>,
    /// Number of blocked tasks by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<BlockedCount>,
    /// Pending tasks that depend, directly or indirectly, on a failed task. They wait until a person retries
    /// it or releases them without it.
    #[serde(default)]
    pub behind_failed: u64,
    /// Pending tasks that depend, directly or indirectly, on a task waiting for a person.
    #[serde(default)]
    pub behind_blocked: u64,
    /// Pending tasks that depend, directly or indirectly, on a task of the batch that waits for its children,
    /// and on none of the above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind_children: u64,
    /// The budget that its runs share, if one is set.
    #[serde(default, skip_serializing_if = "BatchBudget::is_none")]
    pub budget: BatchBudget,
    /// What its runs have used, as far as the coordinator has counted it.
    #[serde(default)]
    pub used: BatchSpending,
    /// Number of runs started.
    pub runs: u64,
    /// Failed runs of its tasks since each task's last retry.
    pub failures: u64,
    /// Crashed run processes of its tasks since each task's last retry.
    pub crashes: u64,
    /// Messages of tasks that are not done, most frequent first; at most
    /// [`BATCH_MESSAGES_MAX`](super::BATCH_MESSAGES_MAX).
    pub messages: Vec<MessageCount>,
    /// The task whose current run started first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running: Option<OldestRunning>,
    /// When its first task was submitted.
    pub first_submitted_at: Timestamp,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
    /// When the first of its ended tasks ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ended_at: Option<Timestamp>,
    /// When the last of its ended tasks ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<Timestamp>,
}

impl BatchView {
    /// Returns the number of tasks that need a person to continue: blocked tasks, tasks that depend on them
    /// or on a failed one, and tasks that the budget does not cover.
    pub fn waiting_for_people(&self) -> u64 {
        let asks = |why| match why {
            TaskBlockedReason::Person
            | TaskBlockedReason::Paused
            | TaskBlockedReason::Provider
            | TaskBlockedReason::Budget
            | TaskBlockedReason::WorkerFault => true,
            TaskBlockedReason::Child | TaskBlockedReason::Outage => false,
        };
        let blocked = self.blocked.iter().filter(|blocked| asks(blocked.why)).map(|blocked| blocked.count);
        let available =
            || self.states.iter().filter(|of| of.state == TaskState::Available).map(|of| of.count);
        // Available tasks do not start until the budget is raised.
        let unpaid = if self.budget.spent.is_some() { available().sum() } else { 0 };
        blocked.sum::<u64>() + self.behind_failed + self.behind_blocked + unpaid
    }

    /// Whether none of its tasks continues on its own: each has ended, waits for a person, or waits for
    /// children in the same batch that do not continue either.
    pub fn is_settled(&self) -> bool {
        let ended = self.states.iter().filter(|of| of.state.is_ended()).map(|of| of.count);
        let parents = self.blocked.iter().filter(|blocked| match blocked.why {
            TaskBlockedReason::Child => true,
            TaskBlockedReason::Person
            | TaskBlockedReason::Paused
            | TaskBlockedReason::Provider
            | TaskBlockedReason::Budget
            | TaskBlockedReason::WorkerFault
            | TaskBlockedReason::Outage => false,
        });
        let rest = ended.sum::<u64>() + self.waiting_for_people() + self.behind_children;
        rest + parents.map(|blocked| blocked.count).sum::<u64>() >= self.tasks
    }
}

/// The budget that the runs of a batch share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BatchBudget {
    /// The configured budget.
    pub budget: Budget,
    /// Why the budget does not cover the next call. No task of the batch starts, and running ones pause
    /// before their next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<String>,
}

impl BatchBudget {
    /// For serde: whether no budget is set.
    pub const fn is_none(&self) -> bool {
        self.budget.is_none()
    }
}

/// `POST /v1/batches/{id}/budget`: sets the budget that a batch's runs share. Tasks that wait for it continue
/// automatically. The batch does not need to have a task yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBudgetRequest {
    /// The amounts.
    pub budget: Budget,
    /// How the amounts combine with the current budget.
    #[serde(default, skip_serializing_if = "BudgetUpdateMode::is_all")]
    pub how: BudgetUpdateMode,
}

/// How the amounts of a request combine with the current budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUpdateMode {
    /// Replaces the budget: amounts that are not given become unlimited.
    #[default]
    All,
    /// Sets the given amounts and keeps the others.
    Named,
    /// Replaces the budget unless a person has set one, so that importing a file again does not undo their
    /// change. The response contains the budget in effect.
    OfFile,
}

impl BudgetUpdateMode {
    /// For serde: whether this is the default.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

/// A batch's budget and what was used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    /// The batch.
    pub batch: BatchId,
    /// The budget.
    pub budget: BatchBudget,
    /// What its runs have used.
    pub used: BatchSpending,
}

/// Number of tasks blocked for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCount {
    /// The reason.
    pub why: TaskBlockedReason,
    /// Number of tasks.
    pub count: u64,
}

/// Number of tasks with the same message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageCount {
    /// The message.
    pub message: String,
    /// Number of tasks.
    pub count: u64,
    /// One of these tasks.
    pub task: TaskId,
}

/// The task that has been running longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OldestRunning {
    /// The task.
    pub task: TaskId,
    /// When its run started.
    pub since: Timestamp,
}

/// `GET /v1/batches`: batches, those with the newest tasks first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchList {
    /// The batches, at most [`BATCHES_MAX`](super::BATCHES_MAX), the one with the newest task first.
    pub batches: Vec<BatchSummary>,
    /// Whether there are more.
    pub more: bool,
}

/// A batch in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchSummary {
    /// The batch's id.
    pub id: BatchId,
    /// The name its submitter gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of tasks.
    pub tasks: u64,
    /// Number of tasks that have ended.
    pub ended: u64,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(states: &[(TaskState, u64)], blocked: &[(TaskBlockedReason, u64)]) -> BatchView {
        BatchView {
            id: BatchId(uuid::Uuid::from_u128(1)),
            name: None,
            tasks: states.iter().map(|(_, count)| count).sum(),
            archived: 0,
            states: states.iter().map(|(state, count)| StateCount { state: *state, count: *count }).collect(),
            blocked: blocked.iter().map(|(why, count)| BlockedCount { why: *why, count: *count }).collect(),
            behind_failed: 0,
            behind_blocked: 0,
            behind_children: 0,
            budget: BatchBudget::default(),
            used: BatchSpending::default(),
            runs: 0,
            failures: 0,
            crashes: 0,
            messages: Vec::new(),
            oldest_running: None,
            first_submitted_at: Timestamp(0),
            last_submitted_at: Timestamp(0),
            first_ended_at: None,
            last_ended_at: None,
        }
    }

    #[test]
    fn batch_is_settled_when_no_task_continues_by_itself() {
        use TaskBlockedReason::{Budget, Child, Outage, Paused, Person, Provider};
        use TaskState::{
            Available, Blocked, Cancelled, Completed, Discarded, Pending, Retryable, Running, Scheduled,
        };
        let ended = [(Completed, 3), (Discarded, 1), (Cancelled, 1)];
        assert!(view(&ended, &[]).is_settled());
        for state in [Available, Running, Retryable, Scheduled, Pending] {
            assert!(!view(&[(Completed, 3), (state, 1)], &[]).is_settled(), "{state:?}");
        }
        for why in [Person, Provider, Paused, Budget] {
            assert!(view(&[(Completed, 3), (Blocked, 1)], &[(why, 1)]).is_settled(), "{why:?}");
            // A task that depends on a waiting one does not continue either.
            let parents = [(why, 1), (Child, 2)];
            assert!(view(&[(Blocked, 3)], &parents).is_settled(), "{why:?}");
            assert!(!view(&[(Blocked, 3), (Running, 1)], &parents).is_settled(), "{why:?}");
        }
        assert!(!view(&[(Blocked, 2)], &[(Outage, 1), (Child, 1)]).is_settled(), "it asks again by itself");
        // Pending tasks behind a failed or blocked one.
        let behind = BatchView { behind_failed: 1, behind_blocked: 1, ..view(&[(Pending, 2)], &[]) };
        assert!(behind.is_settled());
        // A task behind a parent whose child waits is settled; one whose child still works is not.
        let parents = [(Person, 1), (Child, 1)];
        let behind = |states| BatchView { behind_children: 1, ..view(states, &parents) };
        assert!(behind(&[(Blocked, 2), (Pending, 1)]).is_settled());
        assert!(!behind(&[(Blocked, 2), (Pending, 1), (Running, 1)]).is_settled());
        let unpaid = BatchBudget { spent: Some("used up".to_owned()), ..BatchBudget::default() };
        assert!(BatchView { budget: unpaid, ..view(&[(Available, 2)], &[]) }.is_settled());
    }
}
