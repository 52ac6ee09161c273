//! Bodies about results: what whoever delivers them did, and what a person says of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{RunId, Seq},
    task::DeliveryBlockedReason,
};

/// `POST /v1/tasks/{id}/delivery`: a step of delivering a run's result, told by whoever does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryRequest {
    /// The run, one of the task's.
    pub run: RunId,
    /// What is done.
    pub step: DeliveryStep,
}

/// A step of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DeliveryStep {
    /// Whoever asks is about to deliver it, alone. Refused with `wrong_state` where the task's stream has gone on from
    /// where they looked at it.
    Claimed {
        /// Who: one at a time bears this name.
        deliverer: String,
        /// How long it holds unless it is sent again. At most ten minutes.
        term_ms: u64,
        /// The head of the task's stream as they saw it.
        expected: Seq,
        /// They are going to push.
        #[serde(default)]
        push: bool,
        /// They are going to run their user's hook.
        #[serde(default)]
        hook: bool,
    },
    /// The run changed nothing.
    Needless {},
    /// A push is about to be made.
    Requested {
        /// The branch.
        branch: String,
        /// The commit that it is to be at.
        commit: String,
        /// The remote, without any user or password.
        remote: String,
    },
    /// A branch holds the result.
    Delivered {
        /// The branch.
        branch: String,
        /// The commit that it is at.
        commit: String,
        /// The remote, where it was pushed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
    },
    /// It could not be delivered.
    Blocked {
        /// The branch that was wanted.
        branch: String,
        /// Why not.
        why: DeliveryBlockedReason,
        /// Paths that conflict.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
        /// The branch that keeps the result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
        /// What a person is told.
        message: String,
    },
    /// The user's own command ran after it.
    HookRan {
        /// The commit that was delivered.
        commit: String,
        /// Its exit status, if it had one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The end of what it wrote.
        #[serde(default)]
        output: String,
    },
}

/// `POST /v1/runs/{id}/accept`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AcceptRequest {
    /// What the person says.
    pub comment: String,
}

/// `POST /v1/runs/{id}/reject`: goes on from the last turn that ended, as a new run that is told the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectRequest {
    /// What is wrong. 1 to [`TELL_BYTES_MAX`](super::TELL_BYTES_MAX) bytes.
    pub comment: String,
    /// What the model is told behind it, as what the result conflicts with; both together have as many bytes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
}
