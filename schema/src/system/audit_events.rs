//! What the stream `system/audit` holds: administrative acts, and calls that were refused.
//!
//! An act that comes over the API is recorded before it is done, so that none is without its record; one that
//! fails after stands there too. What is done to the database past the API is recorded after. No token, and nothing of one, ever stands in these events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token_events::{TokenName, TokenRole};
use crate::{
    ids::{IncarnationId, NotificationId, QueueName, RunId, StreamId, TaskId, Timestamp},
    problem_code::ProblemCode,
};

/// An administrative act. Stands in `system/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdminActed {
    /// Who: the name of the token.
    pub by: String,
    /// From which address; none where it was done on the coordinator's own machine past the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What.
    pub act: AdminAct,
}

/// What an administrator did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdminAct {
    /// Made a token.
    CreateToken {
        /// Its name.
        name: TokenName,
        /// What it is good for.
        role: TokenRole,
    },
    /// Revoked a token.
    RevokeToken {
        /// Its name.
        name: TokenName,
    },
    /// Changed the policy of a run's task, while it works.
    ChangePolicy {
        /// The run.
        run: RunId,
    },
    /// Took in a run from another installation.
    Import {
        /// The run.
        run: RunId,
        /// Its task.
        task: TaskId,
    },
    /// Counted or dropped blobs that nothing names.
    CollectGarbage {
        /// They were dropped.
        delete: bool,
    },
    /// Moved tasks that ended long ago to the archive.
    Archive {
        /// How long ago they must have ended.
        older_than_ms: u64,
        /// Of which queue; none = of all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<QueueName>,
    },
    /// Brought a task back from the archive, with what shares history with it.
    Restore {
        /// What was asked for.
        stream: StreamId,
    },
    /// Brought the database's schema up to a build's.
    Migrate {
        /// The build's version.
        version: String,
    },
    /// Told a worker to take no more and to end.
    DrainWorker {
        /// Which.
        incarnation: IncarnationId,
    },
    /// Dropped what an application had put into the inbox and what is no task.
    DropInboxRow {
        /// Its id, as the application wrote it.
        row: String,
    },
    /// Changed how fast a model provider may be asked.
    SetLimit {
        /// Which.
        provider: String,
    },
    /// Forgot what is remembered under a key.
    ForgetMemory {
        /// The key.
        key: String,
    },
    /// Had a notification told once more to who did not take it.
    RetryNotification {
        /// Which.
        id: NotificationId,
    },
    /// Had a notification given up for good.
    DropNotification {
        /// Which.
        id: NotificationId,
    },
    /// Had targets told of something for a try.
    TestNotification {
        /// Which target; none = all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// Derived every table from the log again.
    Rebuild {
        /// How many values were not what the log says.
        differences: u64,
    },
}

/// Calls of one address that were refused for their token: how many, within some time. Written at a
/// bounded rate. Stands in `system/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallsRefused {
    /// The address.
    pub from: String,
    /// As what they were refused.
    pub code: ProblemCode,
    /// How many.
    pub count: u64,
    /// The first of them.
    pub since: Timestamp,
}
