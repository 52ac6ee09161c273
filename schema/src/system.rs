//! The events of the system's streams: what happens to an installation and belongs to no task.

mod archive;
mod audit;
mod budgets;
mod event;
mod limits;
mod memory;
mod notices;
mod notifications;
mod schedules;
mod tokens;
mod topic;

pub use archive::{ArchivedTask, RunOf, StreamArchived, StreamsArchived, StreamsRestored};
pub use audit::{AdminAct, AdminActed, CallsRefused};
pub use budgets::{Budget, BudgetSet, BudgetSpent, CallCost, Spending};
pub use event::{RunImported, StreamImported, SystemEvent};
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
    TokensError,
};
pub use topic::TopicError;
