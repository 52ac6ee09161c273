//! Batches: tasks that were submitted together, and how they stand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::StateCount;
use crate::{
    event::is_zero,
    ids::{BatchId, TaskId, Timestamp},
    system::{BatchSpending, Budget},
    task::{TaskBlockedReason, TaskState},
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
    /// Pending ones that wait likewise for a task of the batch that waits for its children, and for no other of these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind_children: u64,
    /// What its runs may use together, if that is set.
    #[serde(default, skip_serializing_if = "BatchBudget::is_none")]
    pub budget: BatchBudget,
    /// What its runs have used, as far as it is counted: the coordinator that answers counts first.
    #[serde(default)]
    pub used: BatchSpending,
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

impl BatchView {
    /// Tasks that do not go on before somebody does something: blocked ones, those that wait for them or for one
    /// that failed, and those that no budget pays for.
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
        // None of them begins before the budget is raised.
        let unpaid = if self.budget.spent.is_some() { available().sum() } else { 0 };
        blocked.sum::<u64>() + self.behind_failed + self.behind_blocked + unpaid
    }

    /// Whether none of its tasks goes on by itself: each has ended or waits for somebody, or for its own children,
    /// which are of the batch as well and do not go on either.
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
    #[serde(default, skip_serializing_if = "BudgetUpdateMode::is_all")]
    pub how: BudgetUpdateMode,
}

/// What naming amounts of a budget sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUpdateMode {
    /// All of it: what is not named has no budget any more.
    #[default]
    All,
    /// What is named; the rest stays as it is.
    Named,
    /// All of it, unless a person has set something for the batch: so a file that is imported again undoes nothing. The
    /// answer says what is set then.
    OfFile,
}

impl BudgetUpdateMode {
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
    pub used: BatchSpending,
}

/// How many tasks are blocked for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCount {
    /// For what.
    pub why: TaskBlockedReason,
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
            // Whoever waits for it does not go on either.
            let parents = [(why, 1), (Child, 2)];
            assert!(view(&[(Blocked, 3)], &parents).is_settled(), "{why:?}");
            assert!(!view(&[(Blocked, 3), (Running, 1)], &parents).is_settled(), "{why:?}");
        }
        assert!(!view(&[(Blocked, 2)], &[(Outage, 1), (Child, 1)]).is_settled(), "it asks again by itself");
        // Behind what failed, or what waits.
        let behind = BatchView { behind_failed: 1, behind_blocked: 1, ..view(&[(Pending, 2)], &[]) };
        assert!(behind.is_settled());
        // Behind a parent whose child waits; not while that child works.
        let parents = [(Person, 1), (Child, 1)];
        let behind = |states| BatchView { behind_children: 1, ..view(states, &parents) };
        assert!(behind(&[(Blocked, 2), (Pending, 1)]).is_settled());
        assert!(!behind(&[(Blocked, 2), (Pending, 1), (Running, 1)]).is_settled());
        let unpaid = BatchBudget { spent: Some("used up".to_owned()), ..BatchBudget::default() };
        assert!(BatchView { budget: unpaid, ..view(&[(Available, 2)], &[]) }.is_settled());
    }
}
