//! Queue decisions: one file per command, each a plain function from a task's record (and the
//! command, and the time) to the events it causes, or a rejection. No IO, no clock, no randomness:
//! the store calls these inside its transaction and writes what they say.

mod answer;
mod budget;
mod cancel;
mod choose;
mod crash;
mod cron;
mod delegate;
mod deliver;
mod depend;
mod due;
mod expire;
mod fire;
mod fork;
mod lease;
mod notify;
mod pause;
mod release;
mod reprioritize;
mod resume;
mod retry;
mod settle;
mod standing;
mod submit;
mod unblock;
mod wanted;
mod why;

#[cfg(test)]
mod advice_tests;
#[cfg(test)]
mod deliver_tests;
#[cfg(test)]
mod goes_on_tests;
#[cfg(test)]
mod table;

pub use answer::{AskedRun, answer, answer_question};
pub use budget::{Afford, afford};
pub use cancel::cancel;
pub use choose::{Candidate, Choice, FairShares, FlowHead, Party, Running, Turns, choose};
pub use crash::crash;
pub use cron::{Timetable, TimetableError};
pub use delegate::{abandoned, child_ended, delegate};
pub use deliver::{ResultVerdict, accept, deliver, reject};
pub use depend::{dependency_ended, dependency_stands};
pub use due::{CLOCKS_APART_MS, make_available, waits_too_long};
pub use expire::expire;
pub use fire::{MISSED_AFTER_MS, fire, fired_until};
pub use fork::fork;
pub use lease::{Lessee, lease};
pub use notify::{
    RETRY_AFTER_MS_MAX, Retries, Seen, Sent, Tell, attempted, ends, given_up, holds_others, is_news, seen,
    waits_too_long_to_tell,
};
pub use pause::{pause, unpause};
pub use release::{release, release_for_fault};
pub use reprioritize::reprioritize;
pub use resume::resume;
pub use retry::{Dependencies, retry};
pub use settle::{Again, Settling, ending, settle};
pub use standing::lost_why;
pub use submit::submit;
pub use unblock::unblock;
pub use wanted::{LabelsOf, Waiting, WaitingPart, wanted};
pub use why::{Dependency, Standing, TakeUp, claim_ms, why};

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, RunId, Seq, TaskId, Turn},
    run::{RunEnded, RunEvent, RunOutcome},
    task::{TaskEvent, TaskState, TaskSubmitted},
    wire::LostWhy,
};

/// What a command causes: events of the task's stream and, in the same transaction, of its run's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Events of the task's stream, in order. Empty = nothing changes.
    pub task: Vec<TaskEvent>,
    /// What happens to the run's stream.
    pub run: Option<RunWrite>,
    /// A run whose place another takes: it ends in the same transaction, before `run` is written.
    pub superseded: Option<RunWrite>,
    /// A run that tries again what `run` failed at: its stream is made after `run` was written.
    pub next: Option<RunWrite>,
    /// A task that `run` gives away. Where it is there already all of this was done before, and nothing is done.
    pub child: Option<(TaskId, Box<TaskSubmitted>)>,
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
    const fn shut(run: RunId) -> Self {
        Self { run, condition: RunCondition::AtHead, events: Vec::new(), fence: FenceAfter::Shut }
    }

    /// The coordinator ends `run`, whoever is at it.
    fn ended_by_coordinator(run: RunId, result: RunOutcome) -> Self {
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
pub enum Rejection {
    /// The lease is not, or no longer, the asker's.
    #[error("the lease under epoch {asked} is no more: {}", lost_text(*why))]
    LeaseLost {
        /// The epoch the asker has.
        asked: Epoch,
        /// The epoch in force.
        current: Epoch,
        /// What became of it.
        why: LostWhy,
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

const fn lost_text(why: LostWhy) -> &'static str {
    match why {
        LostWhy::Expired => "it expired; lease the task again",
        LostWhy::Fenced => "another worker has the task",
        LostWhy::Cancelled => "the task was cancelled",
        LostWhy::Ended => "the task ended or moved on",
        LostWhy::Unknown => "there is no such task",
    }
}
