//! The events of the system's streams: what happens to an installation and belongs to no task.

mod archive;
mod audit;
mod budgets;
mod limits;
mod memory;
mod notices;
mod notifications;
mod schedules;
mod tokens;
mod topic;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Head, typed_events},
    ids::{RunId, Seq, StreamId, TaskId},
};

pub use archive::{ArchivedTask, StreamArchived, StreamsArchived, StreamsRestored};
pub use audit::{AdminAct, AdminActed, CallsRefused};
pub use budgets::{Budget, BudgetSet, BudgetSpent, CallCost, Spending};
pub use limits::{LIMITS_MAX, LimitRemoved, LimitSet, Limits, PermitCost, ProviderLimits, Rate, is_provider};
pub use memory::{
    MEMORY_BEGIN_CHARS, MEMORY_KEY_CHARS_MAX, MEMORY_KEYS_MAX, MEMORY_REPOSITORY_BYTES_MAX,
    MEMORY_VALUE_BYTES_MAX, Memories, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, Remembered,
    is_memory_key, memory_begin,
};
pub use notices::{
    BlockKind, EndCounts, FAILED_CHARS_MAX, NOTICE_TEXT_CHARS_MAX, Notice, NoticeBatch, NoticeSource,
    NoticeTask, NotificationDeadLettered, NotificationDelivered, NotificationDropped, NotificationFailed,
    NotificationKind, NotificationRaised, NotificationRetried, NotificationsFollowed, TARGET_BYTES_MAX,
    failed_words, is_target,
};
pub use notifications::{
    DEAD_KEPT_MAX, DUE_KEPT_MAX, DeliveryCounts, DeliveryRecord, NotificationRecord, Notifications,
    SETTLED_KEPT_MAX, Telling,
};
pub use schedules::{
    Fired, Missed, Overlap, SCHEDULE_NAME_BYTES_MAX, SCHEDULES_MAX, Schedule, ScheduleFired, ScheduleName,
    SchedulePaused, ScheduleRecord, ScheduleRemoved, ScheduleSet, Schedules, SkippedWhy,
};
pub use tokens::{
    Role, TOKEN_NAME_BYTES_MAX, TOKENS_MAX, TokenCreated, TokenName, TokenRecord, TokenRevoked, Tokens,
};
pub use topic::{TopicError, TopicFold, decode_topic_event};

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
    pub run_of: Option<RunOf>,
}

/// A run's place in its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunOf {
    /// The task.
    pub task: TaskId,
    /// How manieth run of it, from 1.
    pub attempt: u32,
}
