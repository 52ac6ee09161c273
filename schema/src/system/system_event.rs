//! The events of all system streams, and what an import brings.

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

/// A run came from another installation (`docket import`). Stands in `system/imports`; what it says of
/// the run's place in its task is all that the run's own stream does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunImported {
    /// The run that was asked for; its parents came with it.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// Who imported it.
    pub by: String,
    /// What made the file: `docket 0.1.0`.
    pub made_by: String,
    /// What was written, stream by stream, in this order.
    pub streams: Vec<StreamImported>,
}

/// A stream that an import began or continued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamImported {
    /// Which.
    pub stream: StreamId,
    /// Its first event that is from the import: 1, unless an earlier import had brought a part of it.
    pub from: Seq,
    /// Its last event that is from the import.
    pub head: Head,
    /// For a run: which task it is a try of, and how manieth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_of: Option<TaskRunRef>,
}
