//! Events of the stream `system/audit`: administrative actions and refused calls.
//!
//! An action over the API is recorded before it is carried out, so none is missing; one that fails afterward
//! is recorded as well. A direct change to the database is recorded afterward. These events never contain a
//! token or any part of one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token_events::{TokenName, TokenRole};
use crate::{
    ids::{IncarnationId, NotificationId, QueueName, RunId, StreamId, TaskId, Timestamp},
    problem_code::ProblemCode,
};

/// An administrative action. Recorded in `system/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdminActed {
    /// Who did it: the name of the token.
    pub by: String,
    /// The caller's address; none if it was done on the coordinator's machine without the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The action.
    pub act: AdminAct,
}

/// An administrative action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdminAct {
    /// Created a token.
    CreateToken {
        /// The token's name.
        name: TokenName,
        /// The token's role.
        role: TokenRole,
    },
    /// Revoked a token.
    RevokeToken {
        /// The token's name.
        name: TokenName,
    },
    /// Changed the policy of a running task.
    ChangePolicy {
        /// The run.
        run: RunId,
    },
    /// Imported a run from another installation.
    Import {
        /// The run.
        run: RunId,
        /// Its task.
        task: TaskId,
    },
    /// Counted or deleted unreferenced blobs.
    CollectGarbage {
        /// Whether they were deleted.
        delete: bool,
    },
    /// Archived tasks that ended long ago.
    Archive {
        /// Minimum time since they ended, in milliseconds.
        older_than_ms: u64,
        /// The queue; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<QueueName>,
    },
    /// Restored a task from the archive, with everything that shares history with it.
    Restore {
        /// The requested stream.
        stream: StreamId,
    },
    /// Migrated the database's schema.
    Migrate {
        /// The version of the build.
        version: String,
    },
    /// Told a worker to drain.
    DrainWorker {
        /// The worker.
        incarnation: IncarnationId,
    },
    /// Dropped an inbox row that could not become a task.
    DropInboxRow {
        /// The row's id, as the application wrote it.
        row: String,
    },
    /// Changed the rate limits of a model provider.
    SetLimit {
        /// The provider.
        provider: String,
    },
    /// Deleted a memory.
    ForgetMemory {
        /// The key.
        key: String,
    },
    /// Retried a notification that a target did not accept.
    RetryNotification {
        /// The notification.
        id: NotificationId,
    },
    /// Dropped a notification.
    DropNotification {
        /// The notification.
        id: NotificationId,
    },
    /// Sent a test notification.
    TestNotification {
        /// The target; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// Rebuilt every table from the log.
    Rebuild {
        /// Number of values that did not match the log.
        differences: u64,
    },
}

/// Number of calls from one address within a time that were refused because of their token. Written at a
/// limited rate. Recorded in `system/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallsRefused {
    /// The address.
    pub from: String,
    /// The error code.
    pub code: ProblemCode,
    /// Number of calls.
    pub count: u64,
    /// Time of the first call.
    pub since: Timestamp,
}
