//! What becomes of a task's result: how it is to be delivered, what was done of that, and what a person says of it.
//!
//! Delivering is no work of a worker: it is done where the source repository is, after the run. So the task is
//! completed before, and these events change its state in one case alone: a result that was asked for and cannot
//! be delivered blocks its task until it is, or until a person says otherwise. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// Most paths that an event names of those that conflict.
pub const CONFLICTS_NAMED_MAX: usize = 100;
/// Longest text of a delivery's event, in bytes: a hook's output, a message.
pub const DELIVERY_TEXT_BYTES_MAX: usize = 16 * 1024;

/// What a finished task gives by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryMode {
    /// Nothing but its patch, which `docket diff` shows.
    Patch,
    /// A branch in the source repository.
    Branch,
    /// That branch, pushed to the repository's remote.
    Push,
}

impl DeliveryMode {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Branch => "branch",
            Self::Push => "push",
        }
    }
}

/// Longest line of a hook's output that its task's message repeats, in characters.
const HOOK_LINE_CHARS_MAX: usize = 200;
/// Longest time that whoever delivers a result may claim at once.
pub const DELIVERY_CLAIM_MS_MAX: u64 = 10 * 60 * 1000;

/// Somebody is about to deliver a result, alone: written only where nothing was written since they looked. It holds until
/// what they are about to do is told, or for `term_ms` after it was last written; whoever waits counts that by a clock
/// of their own, from when they first saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryClaimed {
    /// The run whose result it is.
    pub run: RunId,
    /// Who: one at a time bears this name.
    pub deliverer: String,
    /// How long it holds unless it is written again.
    pub term_ms: u64,
    /// They are going to push.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub push: bool,
    /// They are going to run their user's hook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hook: bool,
    /// By which token.
    #[serde(default)]
    pub by: String,
}

/// There is nothing to deliver: the run changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskNeededNoDelivery {
    /// The run.
    pub run: RunId,
    /// Who found that.
    #[serde(default)]
    pub by: String,
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
pub enum DeliveryBlockedReason {
    /// The branch that the task started from has moved, and what came there conflicts with the result.
    Conflict,
    /// A branch of that name holds other work, here or at the remote.
    Taken,
    /// The remote is not there, refuses, or stays away.
    Remote,
    /// The repository is not there, or git or docket fails in it.
    Repository,
}

/// A result could not be delivered as it was to be. Nothing is lost: it stands in the log, and on a branch of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryBlocked {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch that was wanted.
    pub branch: String,
    /// Why not.
    pub why: DeliveryBlockedReason,
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

impl TaskDeliveryHookRan {
    /// What went wrong, in a line for people; none where it ended well.
    pub fn failure_message(&self) -> Option<String> {
        let how = match self.exit {
            Some(0) => return None,
            Some(exit) => format!("exit {exit}"),
            None => "no exit status".to_owned(),
        };
        let last = self.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.trim().chars().take(HOOK_LINE_CHARS_MAX).collect();
        let said = if last.is_empty() { last } else { format!(": {last}") };
        Some(format!("it is delivered, and the hook after that did not end well ({how}{said})"))
    }
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
