//! Events of all system streams, and those of imports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    archive_events::{StreamsArchived, StreamsRestored, TaskRunRef},
    audit_events::{AdminActed, CallsRefused},
    budget_events::{BudgetSet, BudgetSpent},
    limit_events::{LimitRemoved, LimitSet},
    memory_events::{MemoryForgotten, MemorySaved},
    notification_events::{
        NotificationDeadLettered, NotificationDelivered, NotificationDropped, NotificationFailed,
        NotificationRaised, NotificationRetried, NotificationsFollowed,
    },
    schedule_events::{ScheduleFired, SchedulePaused, ScheduleRemoved, ScheduleSet},
    token_events::{TokenCreated, TokenRevoked},
};
use crate::{
    event::{Head, typed_events},
    ids::{RunId, Seq, StreamId, TaskId},
};

typed_events! {
    /// An event of a system stream.
    pub enum SystemEvent {
        RunImported 1,
        TokenCreated 1,
        TokenRevoked 1,
        AdminActed 1,
        CallsRefused 1,
        StreamsArchived 1,
        StreamsRestored 1,
        ScheduleSet 1,
        SchedulePaused 1,
        ScheduleRemoved 1,
        ScheduleFired 1,
        LimitSet 1,
        LimitRemoved 1,
        BudgetSet 1,
        BudgetSpent 1,
        MemorySaved 1,
        MemoryForgotten 1,
        NotificationsFollowed 1,
        NotificationRaised 1,
        NotificationDelivered 1,
        NotificationFailed 1,
        NotificationDeadLettered 1,
        NotificationRetried 1,
        NotificationDropped 1,
    }
}

/// A run was imported from another installation (`docket import`). Recorded in `system/imports`. The run's
/// position in its task is recorded only here, not in the run's own stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunImported {
    /// The requested run; its ancestors were imported with it.
    pub run: RunId,
    /// The run's task.
    pub task: TaskId,
    /// Who imported it.
    pub by: String,
    /// The program that created the file: `docket 0.1.0`.
    pub made_by: String,
    /// The streams that were written, in this order.
    pub streams: Vec<StreamImported>,
}

/// A stream that an import created or extended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamImported {
    /// The stream.
    pub stream: StreamId,
    /// The first imported event: 1, unless an earlier import had written a part of the stream.
    pub from: Seq,
    /// The last imported event.
    pub head: Head,
    /// For a run: its task, and its number within the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_of: Option<TaskRunRef>,
}
