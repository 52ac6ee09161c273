//! Result of a queue decision: the plan of a command, or its rejection.

use docket_schema::{
    api::LeaseLostReason,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, RunId, Seq, TaskId, Turn},
    run::{RunEnded, RunEvent, RunOutcome},
    task::{TaskEvent, TaskState, TaskSubmitted},
};

/// Effects of a command: events of the task's stream and, in the same transaction, of its run's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandPlan {
    /// Events of the task's stream, in order. Empty if nothing changes.
    pub task_events: Vec<TaskEvent>,
    /// Write to the current run's stream.
    pub run_write: Option<RunWrite>,
    /// Run that is replaced by another: it ends in the same transaction, before `run_write` is applied.
    pub superseded_run: Option<RunWrite>,
    /// Run that retries the failed one: its stream is created after `run_write` is applied.
    pub retry_run: Option<RunWrite>,
    /// Task that the run delegates. If it already exists, the whole plan was carried out before and nothing
    /// is written.
    pub delegated_task: Option<(TaskId, Box<TaskSubmitted>)>,
}

/// A write to a run's stream that belongs to a command.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWrite {
    /// The run. Its stream is created if it does not exist.
    pub run: RunId,
    /// Condition for the append.
    pub condition: RunCondition,
    /// Events, in order; may be empty.
    pub events: Vec<NewEvent>,
    /// Fence of the stream afterwards.
    pub fence: FenceAfter,
}

impl RunWrite {
    /// Closes the fence of `run` until the next lease.
    pub(super) const fn unlease(run: RunId) -> Self {
        Self { run, condition: RunCondition::AtHead, events: Vec::new(), fence: FenceAfter::Shut }
    }

    /// Ends `run` on behalf of the coordinator, whether or not a worker holds it.
    pub(super) fn ended_by_coordinator(run: RunId, result: RunOutcome) -> Self {
        let ended = RunEnded { result, summary: None, tree: None, unverified: None, decision: None };
        Self {
            run,
            condition: RunCondition::AtHead,
            events: vec![RunEvent::from(ended).encode(Turn(0))],
            fence: FenceAfter::Closed,
        }
    }
}

/// Condition of an append to a run's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCondition {
    /// By the lease holder: requires this head and this epoch.
    Holder(Seq, Epoch),
    /// By the coordinator, at any head of the stream.
    AtHead,
}

/// Who may append to a run's stream after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceAfter {
    /// Unchanged.
    Unchanged,
    /// The holder of this epoch.
    Open(Epoch),
    /// No worker until the next lease; inbox events are still accepted.
    Shut,
    /// No one: the run has ended.
    Closed,
}

/// A command that the task's state does not allow. Expected; returned to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRejection {
    /// The caller does not hold the lease, or no longer holds it.
    #[error("the lease under epoch {asked} is lost: {}", describe_lost_lease(*why))]
    LeaseLost {
        /// Epoch given by the caller.
        asked: Epoch,
        /// Current epoch.
        current: Epoch,
        /// Why the lease was lost.
        why: LeaseLostReason,
    },
    /// The task's state does not allow the command.
    #[error("the task is {state}; {remedy}")]
    WrongState {
        state: TaskState,
        /// What the caller can do instead.
        remedy: &'static str,
    },
}

const fn describe_lost_lease(why: LeaseLostReason) -> &'static str {
    match why {
        LeaseLostReason::Expired => "it expired; lease the task again",
        LeaseLostReason::Fenced => "another worker has the task",
        LeaseLostReason::Cancelled => "the task was cancelled",
        LeaseLostReason::Ended => "the task ended or moved on",
        LeaseLostReason::Unknown => "the task does not exist",
    }
}
