//! The answer of a queue decision: what a command causes, or why it is refused.

use docket_schema::{
    api::LeaseLostReason,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, RunId, Seq, TaskId, Turn},
    run::{RunEnded, RunEvent, RunOutcome},
    task::{TaskEvent, TaskState, TaskSubmitted},
};

/// What a command causes: events of the task's stream and, in the same transaction, of its run's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandPlan {
    /// Events of the task's stream, in order. Empty = nothing changes.
    pub task_events: Vec<TaskEvent>,
    /// What happens to the run's stream.
    pub run_write: Option<RunWrite>,
    /// A run whose place another takes: it ends in the same transaction, before `run` is written.
    pub superseded_run: Option<RunWrite>,
    /// A run that tries again what `run` failed at: its stream is made after `run` was written.
    pub retry_run: Option<RunWrite>,
    /// A task that `run` gives away. Where it is there already all of this was done before, and nothing is done.
    pub delegated_task: Option<(TaskId, Box<TaskSubmitted>)>,
}

/// A write to a run's stream that belongs to a command.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWrite {
    /// The run. Its stream is made if it does not exist.
    pub run: RunId,
    /// Under which condition the events are appended.
    pub condition: RunCondition,
    /// Events, in order; may be empty.
    pub events: Vec<NewEvent>,
    /// The fence of the stream afterwards.
    pub fence: FenceAfter,
}

impl RunWrite {
    /// Nobody appends to `run` until the next lease.
    pub(super) const fn unlease(run: RunId) -> Self {
        Self { run, condition: RunCondition::AtHead, events: Vec::new(), fence: FenceAfter::Shut }
    }

    /// The coordinator ends `run`, whoever is at it.
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

/// The condition of an append to a run's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCondition {
    /// By the lease's holder: the head must be here, under this epoch.
    Holder(Seq, Epoch),
    /// By the coordinator, at whatever head the stream has.
    AtHead,
}

/// Who may append to a run's stream after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceAfter {
    /// As before.
    Unchanged,
    /// The holder of this epoch.
    Open(Epoch),
    /// No worker until the next lease; the inbox may.
    Shut,
    /// Nobody, ever: the run has ended.
    Closed,
}

/// A command that the task's state does not allow. Expected, and told to whoever asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRejection {
    /// The lease is not, or no longer, the asker's.
    #[error("the lease under epoch {asked} is no more: {}", describe_lost_lease(*why))]
    LeaseLost {
        /// The epoch the asker has.
        asked: Epoch,
        /// The epoch in force.
        current: Epoch,
        /// What became of it.
        why: LeaseLostReason,
    },
    /// The state does not allow it.
    #[error("the task is {state}; {remedy}")]
    WrongState {
        /// The state.
        state: TaskState,
        /// What helps.
        remedy: &'static str,
    },
}

const fn describe_lost_lease(why: LeaseLostReason) -> &'static str {
    match why {
        LeaseLostReason::Expired => "it expired; lease the task again",
        LeaseLostReason::Fenced => "another worker has the task",
        LeaseLostReason::Cancelled => "the task was cancelled",
        LeaseLostReason::Ended => "the task ended or moved on",
        LeaseLostReason::Unknown => "there is no such task",
    }
}
