//! Events of the system streams: what happens to an installation and does not belong to a task.

mod archive_events;
mod audit_events;
mod budget_events;
mod limit_events;
mod limits_fold;
mod memory_events;
mod memory_fold;
mod notification_events;
mod notifications_fold;
mod schedule_events;
mod schedules_fold;
mod system_event;
mod token_events;
mod tokens_fold;
mod topic_fold;

pub use archive_events::{ArchivedTask, StreamArchived, StreamsArchived, StreamsRestored, TaskRunRef};
pub use audit_events::{AdminAct, AdminActed, CallsRefused};
pub use budget_events::{BatchSpending, Budget, BudgetSet, BudgetSpent, MaxCallCost};
pub use limit_events::{
    LIMITS_MAX, LimitRemoved, LimitSet, PermitCost, ProviderLimits, RateLimit, is_provider_name,
};
pub use limits_fold::LimitsFold;
pub use memory_events::{
    MEMORY_KEY_CHARS_MAX, MEMORY_KEYS_MAX, MEMORY_PREVIEW_CHARS, MEMORY_REPOSITORY_BYTES_MAX,
    MEMORY_VALUE_BYTES_MAX, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, is_memory_key,
    memory_preview,
};
pub use memory_fold::{MemoryFold, MemoryRecord};
pub use notification_events::{
    BlockKind, DELIVERY_ERROR_CHARS_MAX, NOTIFICATION_TEXT_CHARS_MAX, NotificationBatch, NotificationContent,
    NotificationDeadLettered, NotificationDelivered, NotificationDropped, NotificationFailed,
    NotificationKind, NotificationRaised, NotificationRetried, NotificationSource, NotificationTask,
    NotificationsFollowed, TARGET_NAME_BYTES_MAX, TaskEndCounts, is_target_name, truncate_delivery_error,
};
pub use notifications_fold::{
    DEAD_KEPT_MAX, DUE_KEPT_MAX, DeliveryCounts, DeliveryRecord, DeliveryStatus, NotificationRecord,
    NotificationsFold, SETTLED_KEPT_MAX,
};
pub use schedule_events::{
    FiringResult, MissedFiringPolicy, OverlapPolicy, SCHEDULE_NAME_BYTES_MAX, SCHEDULES_MAX, ScheduleFired,
    ScheduleName, SchedulePaused, ScheduleRemoved, ScheduleSet, SkipReason, TaskSchedule,
};
pub use schedules_fold::{ScheduleRecord, SchedulesFold};
pub use system_event::{RunImported, StreamImported, SystemEvent};
pub use token_events::{TOKEN_NAME_BYTES_MAX, TOKENS_MAX, TokenCreated, TokenName, TokenRevoked, TokenRole};
pub use tokens_fold::{TokenRecord, TokensFold};
pub use topic_fold::{TopicError, TopicFold, decode_topic_event};
