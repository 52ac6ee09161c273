//! The events of the system's streams: what happens to an installation and belongs to no task.

mod archive;
mod audit;
mod budgets;
mod event;
mod limit_events;
mod limits;
mod memory;
mod memory_events;
mod notices;
mod notifications;
mod schedule_events;
mod schedules;
mod token_events;
mod tokens;
mod topic;

pub use archive::{ArchivedTask, RunOf, StreamArchived, StreamsArchived, StreamsRestored};
pub use audit::{AdminAct, AdminActed, CallsRefused};
pub use budgets::{Budget, BudgetSet, BudgetSpent, CallCost, Spending};
pub use event::{RunImported, StreamImported, SystemEvent};
pub use limit_events::{LIMITS_MAX, LimitRemoved, LimitSet, PermitCost, ProviderLimits, Rate, is_provider};
pub use limits::Limits;
pub use memory::{Memories, Remembered};
pub use memory_events::{
    MEMORY_BEGIN_CHARS, MEMORY_KEY_CHARS_MAX, MEMORY_KEYS_MAX, MEMORY_REPOSITORY_BYTES_MAX,
    MEMORY_VALUE_BYTES_MAX, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, is_memory_key,
    memory_begin,
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
pub use schedule_events::{
    Fired, Missed, Overlap, SCHEDULE_NAME_BYTES_MAX, SCHEDULES_MAX, Schedule, ScheduleFired, ScheduleName,
    SchedulePaused, ScheduleRemoved, ScheduleSet, SkippedWhy,
};
pub use schedules::{ScheduleRecord, Schedules};
pub use token_events::{Role, TOKEN_NAME_BYTES_MAX, TOKENS_MAX, TokenCreated, TokenName, TokenRevoked};
pub use tokens::{TokenRecord, Tokens};
pub use topic::{TopicError, TopicFold, decode_topic_event};
