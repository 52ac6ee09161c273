//! Events of `system/notifications`: what people and programs are notified of, and the results of the
//! deliveries. Their fold is [`NotificationsFold`](super::NotificationsFold).
//!
//! A notification is derived from an event of the log, and so is its id, by which a receiver recognizes
//! duplicates. These events contain no secrets or addresses of receivers, only the names given in the
//! settings.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Budget;
use crate::{
    event::Envelope,
    ids::{
        BatchId, NotificationId, ParseIdError, Position, QueueName, RunId, Seq, StreamId, TaskId, Timestamp,
    },
    task::TaskRecord,
};

/// Maximum length of a question, reason or message in a notification, in characters; the log contains the
/// full text.
pub const NOTIFICATION_TEXT_CHARS_MAX: usize = 4000;

/// Maximum length of a delivery error, in characters.
pub const DELIVERY_ERROR_CHARS_MAX: usize = 300;

/// Maximum length of a target's name, in bytes.
pub const TARGET_NAME_BYTES_MAX: usize = 64;

/// Whether this is a valid target name: letters, digits, `.`, `_`, `-`.
pub fn is_target_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= TARGET_NAME_BYTES_MAX && name.bytes().all(legal)
}

/// Returns `text`, or its beginning with a mark that it is truncated.
fn truncate_text(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Kinds of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NotificationKind {
    /// A task needs a person.
    #[serde(rename = "task.blocked")]
    TaskBlocked,
    /// A task was discarded.
    #[serde(rename = "task.failed")]
    TaskFailed,
    /// All tasks of a batch have ended.
    #[serde(rename = "batch.finished")]
    BatchFinished,
    /// A batch budget is used up.
    #[serde(rename = "budget.spent")]
    BudgetSpent,
    /// A test requested by a person.
    #[serde(rename = "test")]
    Test,
}

impl NotificationKind {
    /// Kinds a target can subscribe to, in declaration order. `Test` is excluded: it is sent to the given
    /// target only.
    pub const SUBSCRIBABLE: [Self; 4] =
        [Self::TaskBlocked, Self::TaskFailed, Self::BatchFinished, Self::BudgetSpent];

    /// Returns the kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskBlocked => "task.blocked",
            Self::TaskFailed => "task.failed",
            Self::BatchFinished => "batch.finished",
            Self::BudgetSpent => "budget.spent",
            Self::Test => "test",
        }
    }
}

impl fmt::Display for NotificationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for NotificationKind {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected = "kind of notification (task.blocked, task.failed, batch.finished, budget.spent)";
        let found = Self::SUBSCRIBABLE.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| ParseIdError::new(expected, text))
    }
}

/// Who a blocked task is waiting for, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Its run has a question: `docket answer`.
    Person,
    /// The model's provider requires money or a key: `docket retry` afterward.
    Provider,
    /// No worker could run it: `docket answer` once one can.
    WorkerFault,
    /// Its result could not be delivered: `docket apply`, `push`, `accept` or `reject`.
    Delivery,
}

impl BlockKind {
    /// Returns the kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Provider => "provider",
            Self::WorkerFault => "worker_fault",
            Self::Delivery => "delivery",
        }
    }
}

/// The task in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationTask {
    /// The task.
    pub task: TaskId,
    /// The run that the notification is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its title.
    pub title: String,
    /// Its queue.
    pub queue: QueueName,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The batch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
}

impl NotificationTask {
    /// Builds the task's data from its record.
    pub fn from_record(record: &TaskRecord, run: RunId) -> Self {
        let spec = &record.spec;
        Self {
            task: record.id,
            run: Some(run),
            title: truncate_text(&spec.title, NOTIFICATION_TEXT_CHARS_MAX),
            queue: spec.queue.clone(),
            batch: spec.batch,
            batch_name: spec.batch_name.clone(),
        }
    }
}

/// The batch in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationBatch {
    /// The batch.
    pub batch: BatchId,
    /// The name its submitter gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue of its newest task; none if none of its tasks is in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
}

/// Number of tasks by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TaskEndCounts {
    /// Total number of tasks.
    pub all: u64,
    /// Completed tasks.
    pub completed: u64,
    /// Cancelled tasks.
    pub cancelled: u64,
    /// Discarded tasks.
    pub discarded: u64,
    /// Unfinished tasks that depend on a failed one.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub behind_failed: u64,
}

impl fmt::Display for TaskEndCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, completed, cancelled, discarded, behind_failed } = self;
        let s = if *all == 1 { "" } else { "s" };
        write!(f, "{all} task{s}: {completed} completed, {discarded} discarded, {cancelled} cancelled")?;
        if *behind_failed > 0 {
            write!(f, ", {behind_failed} waiting for failed tasks")?;
        }
        Ok(())
    }
}

/// Content of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationContent {
    /// A task needs a person.
    TaskBlocked {
        /// The task.
        of: NotificationTask,
        /// What it is waiting for.
        block: BlockKind,
        /// Its question or problem.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// A task was discarded.
    TaskFailed {
        /// The task.
        of: NotificationTask,
        /// `failures` or `poison`.
        reason: crate::task::DiscardReason,
        /// One line for people.
        message: String,
    },
    /// All tasks of a batch have ended or depend on failed ones, so that none continues on its own.
    BatchFinished {
        /// The batch.
        of: NotificationBatch,
        /// How its tasks ended.
        tasks: TaskEndCounts,
    },
    /// A batch budget is used up.
    BudgetSpent {
        /// The batch.
        of: NotificationBatch,
        /// The budget.
        budget: Budget,
        /// One line for people.
        message: String,
    },
    /// A test requested by a person.
    Test {
        /// Who requested it.
        by: String,
    },
}

impl NotificationContent {
    /// Returns the notification's kind.
    pub const fn kind(&self) -> NotificationKind {
        match self {
            Self::TaskBlocked { .. } => NotificationKind::TaskBlocked,
            Self::TaskFailed { .. } => NotificationKind::TaskFailed,
            Self::BatchFinished { .. } => NotificationKind::BatchFinished,
            Self::BudgetSpent { .. } => NotificationKind::BudgetSpent,
            Self::Test { .. } => NotificationKind::Test,
        }
    }

    /// Returns the task, if it is about one.
    pub const fn task(&self) -> Option<&NotificationTask> {
        match self {
            Self::TaskBlocked { of, .. } | Self::TaskFailed { of, .. } => Some(of),
            Self::BatchFinished { .. } | Self::BudgetSpent { .. } | Self::Test { .. } => None,
        }
    }

    /// Returns the queue it concerns.
    pub const fn queue(&self) -> Option<&QueueName> {
        match self {
            Self::TaskBlocked { of, .. } | Self::TaskFailed { of, .. } => Some(&of.queue),
            Self::BatchFinished { of, .. } | Self::BudgetSpent { of, .. } => of.queue.as_ref(),
            Self::Test { .. } => None,
        }
    }

    /// Returns the batch it concerns, with its name.
    pub fn batch(&self) -> Option<(BatchId, Option<&str>)> {
        match self {
            Self::TaskBlocked { of, .. } | Self::TaskFailed { of, .. } => {
                of.batch.map(|batch| (batch, of.batch_name.as_deref()))
            }
            Self::BatchFinished { of, .. } | Self::BudgetSpent { of, .. } => {
                Some((of.batch, of.name.as_deref()))
            }
            Self::Test { .. } => None,
        }
    }

    /// Returns a description in one line for people, without the task or batch it is about.
    pub fn describe(&self) -> String {
        match self {
            Self::TaskBlocked { block, question, .. } => {
                format!("{}: {}", block.as_str(), question.as_deref().unwrap_or("waiting for a person"))
            }
            Self::TaskFailed { message, .. } | Self::BudgetSpent { message, .. } => message.clone(),
            Self::BatchFinished { tasks, .. } => tasks.to_string(),
            Self::Test { by } => format!("test notification from {by}"),
        }
    }

    /// Returns the content with every text truncated to its maximum length.
    #[must_use]
    pub fn with_truncated_texts(self) -> Self {
        let short = |text: String| truncate_text(&text, NOTIFICATION_TEXT_CHARS_MAX);
        match self {
            Self::TaskBlocked { of, block, question } => {
                Self::TaskBlocked { of, block, question: question.map(short) }
            }
            Self::TaskFailed { of, reason, message } => {
                Self::TaskFailed { of, reason, message: short(message) }
            }
            Self::BudgetSpent { of, budget, message } => {
                Self::BudgetSpent { of, budget, message: short(message) }
            }
            other @ (Self::BatchFinished { .. } | Self::Test { .. }) => other,
        }
    }
}

/// The event that a notification is derived from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationSource {
    /// The event's stream.
    pub stream: StreamId,
    /// Its sequence number.
    pub seq: Seq,
    /// When it was recorded.
    pub at: Timestamp,
}

impl NotificationSource {
    /// Refers to an event.
    pub fn from_event(event: &Envelope) -> Self {
        Self { stream: event.stream.clone(), seq: event.seq, at: event.recorded_at }
    }

    /// Returns the id of the notification derived from it, which is always the same. Like all ids, it starts
    /// with a timestamp.
    pub fn notification_id(&self, notice: &NotificationContent) -> NotificationId {
        let mut told = format!("docket notification\0{}\0{}\0{}", notice.kind(), self.stream, self.seq);
        // The end of one task may complete several batches.
        if let NotificationContent::BatchFinished { of, .. } = notice {
            told = format!("{told}\0{}", of.batch);
        }
        let hash = blake3::hash(told.as_bytes());
        let mut rest = [0; 10];
        rest.copy_from_slice(&hash.as_bytes()[..10]);
        let ms = u64::try_from(self.at.0 / 1000).unwrap_or(0);
        NotificationId(uuid::Builder::from_unix_timestamp_millis(ms, &rest).into_uuid())
    }
}

/// The log was read up to this position and all notifications were raised. The first such event marks the
/// start of notifications: earlier events cause none. Recorded in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationsFollowed {
    /// The last event read.
    pub position: Position,
}

/// A notification was raised. Recorded in `system/notifications` before any delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationRaised {
    /// The id by which receivers recognize it on every delivery.
    pub id: NotificationId,
    /// The event it is derived from; none for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<NotificationSource>,
    /// The position up to which the log was read for it; none for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The content.
    pub notice: NotificationContent,
    /// The targets that subscribe to it, by name; at least one.
    pub targets: Vec<String>,
}

/// A target accepted a notification. Recorded in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDelivered {
    /// The notification.
    pub id: NotificationId,
    /// The target.
    pub target: String,
    /// Number of the attempt, starting at 1; a manual retry restarts the count.
    pub attempt: u32,
}

/// A delivery attempt failed and will be retried. Recorded in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationFailed {
    /// The notification.
    pub id: NotificationId,
    /// The target.
    pub target: String,
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// The error; at most [`DELIVERY_ERROR_CHARS_MAX`] characters.
    pub why: String,
    /// When the next attempt is due.
    pub retry_at: Timestamp,
}

/// A delivery failed and is not retried unless requested. Recorded in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDeadLettered {
    /// The notification.
    pub id: NotificationId,
    /// The target.
    pub target: String,
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// The error; at most [`DELIVERY_ERROR_CHARS_MAX`] characters.
    pub why: String,
}

/// An immediate retry was requested. Recorded in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationRetried {
    /// The notification.
    pub id: NotificationId,
    /// The target.
    pub target: String,
    /// Who requested it.
    pub by: String,
}

/// A delivery was dropped: it is no longer a dead letter and will not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDropped {
    /// The notification.
    pub id: NotificationId,
    /// The target.
    pub target: String,
    /// Who dropped it.
    pub by: String,
}

/// Truncates a delivery error to its maximum length.
pub fn truncate_delivery_error(text: &str) -> String {
    truncate_text(text.trim(), DELIVERY_ERROR_CHARS_MAX)
}
