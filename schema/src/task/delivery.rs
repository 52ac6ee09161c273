//! What becomes of a task's result: how it is to be delivered, what was done of that, and what a person says of it.
//!
//! Delivering is no work of a worker: it is done where the source repository is, after the run. So the task is
//! completed before, and these events change its state in one case alone: a result that was asked for and cannot
//! be delivered blocks its task until it is, or until a person says otherwise. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::TaskEvent;
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::RunId,
};

/// Most paths that an event names of those that conflict.
pub const CONFLICTS_NAMED_MAX: usize = 100;
/// Longest text of a delivery's event, in bytes: a hook's output, a message.
pub const DELIVERY_TEXT_BYTES_MAX: usize = 16 * 1024;

/// What a finished task gives by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Nothing but its patch, which `docket diff` shows.
    Patch,
    /// A branch in the source repository.
    Branch,
    /// That branch, pushed to the repository's remote.
    Push,
}

impl Delivery {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Branch => "branch",
            Self::Push => "push",
        }
    }
}

/// A push is about to be made. A push without a result behind it may have been made or not: the remote knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryRequested {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The commit that it is to be at.
    pub commit: String,
    /// The remote: its name, or its address without any user or password.
    pub remote: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// A branch holds the result: of the source repository, or of its remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDelivered {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The commit that it is at.
    pub commit: String,
    /// The remote, where it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// Why a result could not be delivered as it was to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryBlockedWhy {
    /// The branch that the task started from has moved, and what came there conflicts with the result.
    Conflict,
    /// A branch of that name holds other work, here or at the remote.
    Taken,
    /// The remote is not there, refuses, or stays away.
    Remote,
}

/// A result could not be delivered as it was to be. Nothing is lost: it stands in the log, and on a branch of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryBlocked {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch that was wanted.
    pub branch: String,
    /// Why not.
    pub why: DeliveryBlockedWhy,
    /// Paths that conflict, at most [`CONFLICTS_NAMED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The branch that keeps the result, on the commit that the task started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What a person is told, with what helps.
    pub message: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// The user's own command ran after a delivery. Whatever it came to, the delivery stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryHookRan {
    /// The run whose result was delivered.
    pub run: RunId,
    /// The commit that was delivered.
    pub commit: String,
    /// Its exit status; none = it could not be started, was killed, or ran out of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The end of what it wrote, or why it did not end.
    #[serde(default)]
    pub output: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// A person took the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskAccepted {
    /// The run whose result it is.
    pub run: RunId,
    /// Who.
    pub by: String,
    /// What they say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// A person did not take the result. A `TaskResumed` follows, whose run is told the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRejected {
    /// The run whose result it is.
    pub run: RunId,
    /// Who.
    pub by: String,
    /// Why: stands in the next prompt.
    pub comment: String,
}

/// What a person said of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// They took it.
    Accepted(TaskAccepted),
    /// They did not.
    Rejected(TaskRejected),
}

/// Everything that became of a task's results: the fold of its stream, for people and for whoever delivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deliveries {
    /// What was delivered, oldest first.
    pub delivered: Vec<TaskDelivered>,
    /// The push that was begun last, and of which no result is known.
    pub open: Option<TaskDeliveryRequested>,
    /// Why the last delivery did not come to be, while none has since.
    pub blocked: Option<TaskDeliveryBlocked>,
    /// What the hook came to, last.
    pub hook: Option<TaskDeliveryHookRan>,
    /// What a person said last.
    pub judged: Option<Judged>,
}

impl Deliveries {
    /// Folds a task's stream; what is no delivery is passed over.
    ///
    /// # Errors
    /// An event that this build cannot read.
    pub fn of(events: &[Envelope]) -> Result<Self, DecodeError> {
        let mut found = Self::default();
        for event in events {
            found.apply(TaskEvent::decode(&event.kind, event.version, event.payload.as_str())?);
        }
        Ok(found)
    }

    fn apply(&mut self, event: TaskEvent) {
        match event {
            TaskEvent::TaskDeliveryRequested(e) => self.open = Some(e),
            TaskEvent::TaskDelivered(e) => {
                if self.open.as_ref().is_some_and(|open| e.remote.is_some() && open.commit == e.commit) {
                    self.open = None;
                }
                self.blocked = None;
                self.delivered.push(e);
            }
            TaskEvent::TaskDeliveryBlocked(e) => {
                self.open = None;
                self.blocked = Some(e);
            }
            TaskEvent::TaskDeliveryHookRan(e) => self.hook = Some(e),
            TaskEvent::TaskAccepted(e) => {
                self.blocked = None;
                self.judged = Some(Judged::Accepted(e));
            }
            TaskEvent::TaskRejected(e) => {
                self.blocked = None;
                self.judged = Some(Judged::Rejected(e));
            }
            TaskEvent::TaskSubmitted(_)
            | TaskEvent::TaskMadeAvailable(_)
            | TaskEvent::TaskLeased(_)
            | TaskEvent::TaskReleased(_)
            | TaskEvent::TaskLeaseExpired(_)
            | TaskEvent::TaskRunCrashed(_)
            | TaskEvent::TaskRunFailed(_)
            | TaskEvent::TaskBlocked(_)
            | TaskEvent::TaskUnblocked(_)
            | TaskEvent::TaskCompleted(_)
            | TaskEvent::TaskCancelled(_)
            | TaskEvent::TaskDiscarded(_)
            | TaskEvent::TaskRetried(_)
            | TaskEvent::TaskResumed(_)
            | TaskEvent::TaskReprioritized(_)
            | TaskEvent::TaskPaused(_)
            | TaskEvent::TaskDependencyEnded(_) => {}
        }
    }

    /// The commits that docket put onto branches for this task: those it may put another on top of.
    pub fn commits(&self) -> Vec<String> {
        self.delivered.iter().map(|one| one.commit.clone()).collect()
    }

    /// Whether the hook ran well for this commit.
    pub fn is_hooked(&self, commit: &str) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.commit == commit && hook.exit == Some(0))
    }
}
