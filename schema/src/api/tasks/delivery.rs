//! Request and response bodies for results: steps of a delivery, and a person's acceptance or rejection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{RunId, Seq},
    task::DeliveryBlockedReason,
};

/// `POST /v1/tasks/{id}/delivery`: reports a step of the delivery of a run's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryRequest {
    /// The run; must belong to the task.
    pub run: RunId,
    /// The step.
    pub step: DeliveryStep,
}

/// A step of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DeliveryStep {
    /// The caller is about to deliver the result and claims it exclusively. Refused with `wrong_state` if the
    /// task's stream has changed since the caller read it.
    Claimed {
        /// The deliverer's name, unique among concurrent deliverers.
        deliverer: String,
        /// How long the claim is valid unless it is renewed, in milliseconds. At most ten minutes.
        term_ms: u64,
        /// The head of the task's stream that the caller read.
        expected: Seq,
        /// Whether the caller is going to push.
        #[serde(default)]
        push: bool,
        /// Whether the caller is going to run the user's hook.
        #[serde(default)]
        hook: bool,
    },
    /// The run changed nothing, so there is nothing to deliver.
    Needless {},
    /// A push is about to start.
    Requested {
        /// The branch.
        branch: String,
        /// The commit that the branch will point to.
        commit: String,
        /// The remote, without user name or password.
        remote: String,
    },
    /// The result was delivered to a branch.
    Delivered {
        /// The branch.
        branch: String,
        /// The branch's commit.
        commit: String,
        /// The remote, if it was pushed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
    },
    /// The result could not be delivered.
    Blocked {
        /// The target branch.
        branch: String,
        /// Why it could not be delivered.
        why: DeliveryBlockedReason,
        /// Conflicting paths.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
        /// The branch where the result was saved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
        /// The message for people.
        message: String,
    },
    /// The user's hook ran after the delivery.
    HookRan {
        /// The commit that was delivered.
        commit: String,
        /// The hook's exit status, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The end of the hook's output.
        #[serde(default)]
        output: String,
    },
}

/// `POST /v1/runs/{id}/accept`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AcceptRequest {
    /// The person's comment.
    pub comment: String,
}

/// `POST /v1/runs/{id}/reject`: continues from the last finished turn in a new run that receives the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectRequest {
    /// The problem to correct. 1 to [`TELL_BYTES_MAX`](super::TELL_BYTES_MAX) bytes.
    pub comment: String,
    /// Additional text for the model, for example what the result conflicts with. The size limit applies to
    /// both texts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
}
