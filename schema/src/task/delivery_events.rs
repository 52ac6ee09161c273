//! Events of result delivery: the claim and the steps of a delivery, and a person's review.
//!
//! A result is not delivered by a worker but on the machine with the source repository, after the run. The
//! task is therefore already completed, and these events change its state in one case only: if a requested
//! result cannot be delivered, the task is blocked until it is, or until a person decides otherwise. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// Maximum number of conflicting paths listed in an event.
pub const CONFLICTS_NAMED_MAX: usize = 100;
/// Maximum length of a text in a delivery event, in bytes: a hook's output, a message.
pub const DELIVERY_TEXT_BYTES_MAX: usize = 16 * 1024;

/// How a finished task delivers its result automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryMode {
    /// Only as a patch, which `docket diff` shows.
    Patch,
    /// As a branch in the source repository.
    Branch,
    /// As that branch, pushed to the repository's remote.
    Push,
}

impl DeliveryMode {
    /// Returns the mode's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Branch => "branch",
            Self::Push => "push",
        }
    }
}

/// Maximum length of the line of a hook's output that is repeated in the task's message, in characters.
const HOOK_LINE_CHARS_MAX: usize = 200;
/// Maximum duration of one delivery claim, in milliseconds.
pub const DELIVERY_CLAIM_MS_MAX: u64 = 10 * 60 * 1000;

/// A deliverer claimed the exclusive right to deliver a result. Only recorded if the stream has not changed
/// since the deliverer read it. The claim is valid until the result of the delivery is recorded, or for
/// `term_ms` after it was last renewed. Other deliverers measure that with their own clock, from when they
/// first saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryClaimed {
    /// The run whose result it is.
    pub run: RunId,
    /// The deliverer's name, unique among concurrent deliverers.
    pub deliverer: String,
    /// How long the claim is valid unless renewed, in milliseconds.
    pub term_ms: u64,
    /// Whether the deliverer is going to push.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub push: bool,
    /// Whether the deliverer is going to run the user's hook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hook: bool,
    /// The token used.
    #[serde(default)]
    pub by: String,
}

/// There is nothing to deliver because the run changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskNeededNoDelivery {
    /// The run.
    pub run: RunId,
    /// Who reported it.
    #[serde(default)]
    pub by: String,
}

/// A push is about to start. If no result follows, only the remote shows whether it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryRequested {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The commit that the branch will point to.
    pub commit: String,
    /// The remote: its name, or its address without user name or password.
    pub remote: String,
    /// Who is pushing.
    #[serde(default)]
    pub by: String,
}

/// A result was delivered to a branch of the source repository or its remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDelivered {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The branch's commit.
    pub commit: String,
    /// The remote, if it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Who delivered it.
    #[serde(default)]
    pub by: String,
}

/// Why a result could not be delivered as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryBlockedReason {
    /// The branch that the task started from has moved, and its new commits conflict with the result.
    Conflict,
    /// A branch of that name contains other work, locally or on the remote.
    Taken,
    /// The remote does not exist, refuses, or is unreachable.
    Remote,
    /// The repository does not exist, or git or docket failed in it.
    Repository,
}

/// A result could not be delivered as requested. Nothing is lost: it is in the log and on a separate branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryBlocked {
    /// The run whose result it is.
    pub run: RunId,
    /// The target branch.
    pub branch: String,
    /// Why it could not be delivered.
    pub why: DeliveryBlockedReason,
    /// Conflicting paths, at most [`CONFLICTS_NAMED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The branch where the result was saved, based on the commit that the task started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The message for people, with the remedy.
    pub message: String,
    /// Who tried to deliver it.
    #[serde(default)]
    pub by: String,
}

/// The user's hook ran after a delivery. Its outcome does not affect the delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryHookRan {
    /// The run whose result was delivered.
    pub run: RunId,
    /// The commit that was delivered.
    pub commit: String,
    /// The hook's exit status; none if it could not be started, was killed, or timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The end of its output, or why it did not finish.
    #[serde(default)]
    pub output: String,
    /// Who ran it.
    #[serde(default)]
    pub by: String,
}

impl TaskDeliveryHookRan {
    /// Returns what went wrong in one line for people; none if it succeeded.
    pub fn failure_message(&self) -> Option<String> {
        let how = match self.exit {
            Some(0) => return None,
            Some(exit) => format!("exit {exit}"),
            None => "no exit status".to_owned(),
        };
        let last = self.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.trim().chars().take(HOOK_LINE_CHARS_MAX).collect();
        let said = if last.is_empty() { last } else { format!(": {last}") };
        Some(format!("delivered, but the delivery hook failed ({how}{said})"))
    }
}

/// A person accepted the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskAccepted {
    /// The run whose result it is.
    pub run: RunId,
    /// Who accepted it.
    pub by: String,
    /// The person's comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// A person rejected the result. A `TaskResumed` follows, whose run receives the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRejected {
    /// The run whose result it is.
    pub run: RunId,
    /// Who rejected it.
    pub by: String,
    /// The reason; it is part of the next prompt.
    pub comment: String,
}
