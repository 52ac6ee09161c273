//! What people and programs elsewhere are told of, and what became of telling them: the events of
//! `system/notifications`. Their fold is [`Notifications`](super::Notifications).
//!
//! A notification follows from an event of the log, and so does its id: a receiver that gets it twice knows by that.
//! Secrets and addresses of receivers stand in none of these events, only the names that the settings give them.

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

/// Longest question, reason or message that is told, in characters; the log has all of it.
pub const NOTIFICATION_TEXT_CHARS_MAX: usize = 4000;

/// Longest word on why a delivery failed, in characters.
pub const DELIVERY_ERROR_CHARS_MAX: usize = 300;

/// Longest name of a target, in bytes.
pub const TARGET_NAME_BYTES_MAX: usize = 64;

/// Whether a target may be called so: letters, digits, `.`, `_`, `-`.
pub fn is_target_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= TARGET_NAME_BYTES_MAX && name.bytes().all(legal)
}

/// `text`, or its beginning and a sign that it goes on.
fn truncate_text(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What there is to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NotificationKind {
    /// A task needs a person.
    #[serde(rename = "task.blocked")]
    TaskBlocked,
    /// A task was given up.
    #[serde(rename = "task.failed")]
    TaskFailed,
    /// All tasks of a batch have ended.
    #[serde(rename = "batch.finished")]
    BatchFinished,
    /// What a batch may use is used up.
    #[serde(rename = "budget.spent")]
    BudgetSpent,
    /// Somebody tries whether telling works.
    #[serde(rename = "test")]
    Test,
}

impl NotificationKind {
    /// All that can be asked for, in declaration order: a test reaches whom it is for.
    pub const SUBSCRIBABLE: [Self; 4] =
        [Self::TaskBlocked, Self::TaskFailed, Self::BatchFinished, Self::BudgetSpent];

    /// The word.
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

/// For whom a blocked task waits, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Its run asks something: `docket answer`.
    Person,
    /// The model's provider wants money, or a key: `docket retry` once it has it.
    Provider,
    /// Workers could not carry it out: `docket answer` once one can.
    WorkerFault,
    /// Its result could not be delivered: `docket apply`, `push`, `accept` or `reject`.
    Delivery,
}

impl BlockKind {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Provider => "provider",
            Self::WorkerFault => "worker_fault",
            Self::Delivery => "delivery",
        }
    }
}

/// Which task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationTask {
    /// The task.
    pub task: TaskId,
    /// Its run that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its title.
    pub title: String,
    /// Its queue.
    pub queue: QueueName,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// What the batch is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
}

impl NotificationTask {
    /// What is told of a task.
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

/// Which batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationBatch {
    /// The batch.
    pub batch: BatchId,
    /// What its submitter calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue of its newest task; none where none of its tasks is in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
}

/// How many tasks ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TaskEndCounts {
    /// In all.
    pub all: u64,
    /// Done.
    pub completed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Given up.
    pub discarded: u64,
    /// Those that have not ended, and wait for one that failed.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub behind_failed: u64,
}

impl fmt::Display for TaskEndCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, completed, cancelled, discarded, behind_failed } = self;
        let s = if *all == 1 { "" } else { "s" };
        write!(f, "{all} task{s}: {completed} completed, {discarded} discarded, {cancelled} cancelled")?;
        if *behind_failed > 0 {
            write!(f, ", {behind_failed} waiting for what failed")?;
        }
        Ok(())
    }
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationContent {
    /// A task needs a person.
    TaskBlocked {
        /// Which.
        of: NotificationTask,
        /// For what.
        block: BlockKind,
        /// What is asked, or what is wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// A task was given up.
    TaskFailed {
        /// Which.
        of: NotificationTask,
        /// `failures` or `poison`.
        reason: crate::task::DiscardReason,
        /// One line for a person.
        message: String,
    },
    /// All tasks of a batch have ended, or wait for some that failed: nothing of it goes on by itself.
    BatchFinished {
        /// Which.
        of: NotificationBatch,
        /// How its tasks ended.
        tasks: TaskEndCounts,
    },
    /// What a batch may use is used up.
    BudgetSpent {
        /// Which.
        of: NotificationBatch,
        /// What was set.
        budget: Budget,
        /// One line for a person.
        message: String,
    },
    /// Somebody tries whether telling works.
    Test {
        /// Who.
        by: String,
    },
}

impl NotificationContent {
    /// Of which kind it is.
    pub const fn kind(&self) -> NotificationKind {
        match self {
            Self::TaskBlocked { .. } => NotificationKind::TaskBlocked,
            Self::TaskFailed { .. } => NotificationKind::TaskFailed,
            Self::BatchFinished { .. } => NotificationKind::BatchFinished,
            Self::BudgetSpent { .. } => NotificationKind::BudgetSpent,
            Self::Test { .. } => NotificationKind::Test,
        }
    }

    /// The task, where it is about one.
    pub const fn task(&self) -> Option<&NotificationTask> {
        match self {
            Self::TaskBlocked { of, .. } | Self::TaskFailed { of, .. } => Some(of),
            Self::BatchFinished { .. } | Self::BudgetSpent { .. } | Self::Test { .. } => None,
        }
    }

    /// The queue that it concerns.
    pub const fn queue(&self) -> Option<&QueueName> {
        match self {
            Self::TaskBlocked { of, .. } | Self::TaskFailed { of, .. } => Some(&of.queue),
            Self::BatchFinished { of, .. } | Self::BudgetSpent { of, .. } => of.queue.as_ref(),
            Self::Test { .. } => None,
        }
    }

    /// The batch that it concerns, and what that is called.
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

    /// One line for a person, without what it is about.
    pub fn describe(&self) -> String {
        match self {
            Self::TaskBlocked { block, question, .. } => {
                format!("{}: {}", block.as_str(), question.as_deref().unwrap_or("it waits for somebody"))
            }
            Self::TaskFailed { message, .. } | Self::BudgetSpent { message, .. } => message.clone(),
            Self::BatchFinished { tasks, .. } => tasks.to_string(),
            Self::Test { by } => format!("a test by {by}"),
        }
    }

    /// The same, with every text no longer than it may be.
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

/// The event that a notification follows from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationSource {
    /// Its stream.
    pub stream: StreamId,
    /// Its place there.
    pub seq: Seq,
    /// When it was recorded.
    pub at: Timestamp,
}

impl NotificationSource {
    /// Of an event.
    pub fn from_event(event: &Envelope) -> Self {
        Self { stream: event.stream.clone(), seq: event.seq, at: event.recorded_at }
    }

    /// The id of what follows from it: the same whoever derives it. Its leading digits are those of its time, as of
    /// all ids.
    pub fn notification_id(&self, notice: &NotificationContent) -> NotificationId {
        let mut told = format!("docket notification\0{}\0{}\0{}", notice.kind(), self.stream, self.seq);
        // The end of one task may be that of several batches.
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

/// Whoever tells has read the log up to here, and told all that was to be told. The first one stands where telling
/// began: what was before is told to nobody. Stands in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationsFollowed {
    /// The last event that was read.
    pub position: Position,
}

/// Something is to be told. Stands in `system/notifications`, before anybody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationRaised {
    /// What receivers know it by, however often they get it.
    pub id: NotificationId,
    /// What it follows from; none for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<NotificationSource>,
    /// Up to where the log was read for it; none for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// What is told.
    pub notice: NotificationContent,
    /// The targets that want it, by name; at least one.
    pub targets: Vec<String>,
}

/// A target took a notification. Stands in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDelivered {
    /// Which.
    pub id: NotificationId,
    /// Who.
    pub target: String,
    /// The manieth attempt this was, from 1; a retry by hand begins to count again.
    pub attempt: u32,
}

/// A target did not take a notification; it is tried again. Stands in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationFailed {
    /// Which.
    pub id: NotificationId,
    /// Who.
    pub target: String,
    /// The manieth attempt this was, from 1.
    pub attempt: u32,
    /// What went wrong; at most [`FAILED_CHARS_MAX`] characters.
    pub why: String,
    /// When the next attempt is due.
    pub retry_at: Timestamp,
}

/// A target did not take a notification, and it is not tried again unless somebody says so. Stands in
/// `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDeadLettered {
    /// Which.
    pub id: NotificationId,
    /// Who.
    pub target: String,
    /// The manieth attempt this was, from 1.
    pub attempt: u32,
    /// What went wrong; at most [`FAILED_CHARS_MAX`] characters.
    pub why: String,
}

/// Somebody wants it tried again, at once. Stands in `system/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationRetried {
    /// Which.
    pub id: NotificationId,
    /// At whom.
    pub target: String,
    /// Who.
    pub by: String,
}

/// Somebody said that a delivery need not be made: it is no dead letter any more, and nobody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationDropped {
    /// Which.
    pub id: NotificationId,
    /// To whom.
    pub target: String,
    /// Who said so.
    pub by: String,
}

/// Why a delivery failed, no longer than it may be.
pub fn truncate_delivery_error(text: &str) -> String {
    truncate_text(text.trim(), DELIVERY_ERROR_CHARS_MAX)
}
