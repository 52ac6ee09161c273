//! Bodies about notifications: what is to be told, to whom, what became of it; and what a receiver gets.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{BatchId, NotificationId, ParseIdError, QueueName, RunId, TaskId, Timestamp},
    system::{
        BlockKind, Budget, DeliveryRecord, DeliveryStatus, NotificationBatch, NotificationContent,
        NotificationKind, NotificationRecord, NotificationTask, TaskEndCounts,
    },
    task::DiscardReason,
};

/// Notifications of a list, at most.
pub const NOTIFICATIONS_MAX: u32 = 1000;
/// The same where the query does not say.
pub const NOTIFICATIONS_DEFAULT: u32 = 100;

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It is still to be made, or made again.
    Waiting,
    /// The target took it.
    Delivered,
    /// A dead letter: the target did not take it, and nobody tries again before somebody says so.
    Dead,
    /// Somebody said that it need not be told.
    Dropped,
}

impl DeliveryState {
    /// All, in declaration order.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Delivered, Self::Dead, Self::Dropped];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DeliveryState {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found
            .ok_or_else(|| ParseIdError::new("state of a delivery (waiting, delivered, dead, dropped)", text))
    }
}

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A server that gets a signed request.
    Webhook,
    /// A program that the coordinator runs.
    Command,
}

impl TargetKind {
    /// All, in declaration order.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Command];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Command => "command",
        }
    }
}

/// Who is told, as the settings of the coordinator that answers have it: without any secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
    /// Where: scheme, host and port of an address, or a program. A path may be a secret.
    pub at: String,
    /// Of what it is told.
    pub on: Vec<NotificationKind>,
    /// Of which queues alone; empty = of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueName>,
    /// Of which batches alone, by name or id; empty = of all, and of what belongs to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<String>,
    /// Attempts before it is given up.
    pub attempts_max: u32,
}

impl TargetView {
    /// Whether it wants to be told this.
    pub fn should_receive(&self, notice: &NotificationContent) -> bool {
        if notice.kind() == NotificationKind::Test {
            return true;
        }
        let queue = || notice.queue().is_some_and(|queue| self.queues.contains(queue));
        let batch = || {
            notice.batch().is_some_and(|(id, name)| {
                let id = id.to_string();
                self.batches.iter().any(|wanted| *wanted == id || Some(wanted.as_str()) == name)
            })
        };
        self.on.contains(&notice.kind())
            && (self.queues.is_empty() || queue())
            && (self.batches.is_empty() || batch())
    }
}

/// `GET /v1/notifications`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotificationQuery {
    /// Those with a delivery in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeliveryState>,
    /// At most this many; 100 by default, 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Who is told, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationList {
    /// The targets of this coordinator's settings.
    pub targets: Vec<TargetView>,
    /// The newest first.
    pub notifications: Vec<NotificationView>,
    /// Deliveries that are still to be made, in all.
    pub waiting: u64,
    /// Dead letters, in all.
    pub dead: u64,
    /// There are more than were asked for.
    pub more: bool,
}

/// A notification and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationView {
    /// What receivers know it by.
    pub id: NotificationId,
    /// Of what kind it is.
    pub kind: NotificationKind,
    /// When what is told happened.
    pub at: Timestamp,
    /// What is told.
    pub notice: NotificationContent,
    /// How telling each target stands.
    pub deliveries: Vec<DeliveryView>,
}

impl NotificationView {
    /// As the fold has it.
    pub fn from_record(record: &NotificationRecord) -> Self {
        Self {
            id: record.raised.id,
            kind: record.raised.notice.kind(),
            at: record.occurred_at(),
            notice: record.raised.notice.clone(),
            deliveries: record.deliveries.iter().map(DeliveryView::from_record).collect(),
        }
    }
}

/// How telling a target stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryView {
    /// The target's name.
    pub target: String,
    /// How it stands.
    pub state: DeliveryState,
    /// Attempts that ended, since it was raised or retried by hand.
    pub attempts: u32,
    /// What went wrong the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When something last changed.
    pub changed_at: Timestamp,
}

impl DeliveryView {
    fn from_record(record: &DeliveryRecord) -> Self {
        let (state, next_at) = match record.status {
            DeliveryStatus::Due(at) => (DeliveryState::Waiting, Some(at)),
            DeliveryStatus::Delivered => (DeliveryState::Delivered, None),
            DeliveryStatus::Dead => (DeliveryState::Dead, None),
            DeliveryStatus::Dropped => (DeliveryState::Dropped, None),
        };
        Self {
            target: record.target.clone(),
            state,
            attempts: record.attempts,
            why: record.why.clone(),
            next_at,
            changed_at: record.changed_at,
        }
    }
}

/// `POST /v1/notifications/{id}/retry`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryNotificationRequest {
    /// At this target alone; without, at all that did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/notifications/{id}/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DropNotificationRequest {
    /// To this target alone; without, to all that did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/notifications/test`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestNotificationRequest {
    /// To this target alone; without, to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What a receiver gets: a webhook as the body of a request, a command on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationBody {
    /// Of what kind it is.
    #[serde(rename = "type")]
    pub kind: NotificationKind,
    /// When what is told happened.
    pub timestamp: Timestamp,
    /// What is told.
    pub data: NotificationData,
}

/// What is told; which fields there are follows from the kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NotificationData {
    /// The task, of `task.…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// What the batch is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
    /// What a blocked task waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockKind>,
    /// What it asks, or what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Why a task was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DiscardReason>,
    /// The same, or how a budget stands, as one line for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How the tasks of a batch ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskEndCounts>,
    /// What a batch may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Who tries it, of `test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Where a person looks: a page of the dashboard. There where `server.public_url` says where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl NotificationBody {
    /// What is told of a notification; `public_url` is where people find the coordinator. The same each time.
    pub fn from_record(record: &NotificationRecord, public_url: Option<&str>) -> Self {
        let notice = &record.raised.notice;
        let mut data = NotificationData::default();
        match notice.clone() {
            NotificationContent::TaskBlocked { of, block, question } => {
                data.set_task(of);
                (data.block, data.question) = (Some(block), question);
            }
            NotificationContent::TaskFailed { of, reason, message } => {
                data.set_task(of);
                (data.reason, data.message) = (Some(reason), Some(message));
            }
            NotificationContent::BatchFinished { of, tasks } => {
                data.set_batch(of);
                data.tasks = Some(tasks);
            }
            NotificationContent::BudgetSpent { of, budget, message } => {
                data.set_batch(of);
                (data.budget, data.message) = (Some(budget), Some(message));
            }
            NotificationContent::Test { by } => data.by = Some(by),
        }
        let page = match (data.run, data.task, data.batch) {
            (Some(run), Some(_), _) => format!("run/{run}"),
            (_, Some(task), _) => format!("task/{task}"),
            (_, None, Some(batch)) => format!("backlog?batch={batch}"),
            (_, None, None) => String::new(),
        };
        data.link = public_url.map(|url| format!("{}/ui/{page}", url.trim_end_matches('/')));
        Self { kind: notice.kind(), timestamp: record.occurred_at(), data }
    }
}

impl NotificationData {
    fn set_task(&mut self, of: NotificationTask) {
        (self.task, self.run, self.title) = (Some(of.task), of.run, Some(of.title));
        (self.queue, self.batch, self.batch_name) = (Some(of.queue), of.batch, of.batch_name);
    }

    fn set_batch(&mut self, of: NotificationBatch) {
        (self.queue, self.batch, self.batch_name) = (of.queue, Some(of.batch), of.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::NotificationRaised;

    fn task(batch: Option<u128>, queue: &str) -> NotificationTask {
        NotificationTask {
            task: TaskId(uuid::Uuid::from_u128(1)),
            run: Some(RunId(uuid::Uuid::from_u128(2))),
            title: "Mend it".to_owned(),
            queue: queue.parse().expect("a queue"),
            batch: batch.map(|id| BatchId(uuid::Uuid::from_u128(id))),
            batch_name: batch.map(|_| "nightly".to_owned()),
        }
    }

    fn blocked(of: NotificationTask) -> NotificationContent {
        let question = Some("Which port?".to_owned());
        NotificationContent::TaskBlocked { of, block: BlockKind::Person, question }
    }

    #[test]
    fn target_receives_only_what_passes_all_filters() {
        let target = |on: &[NotificationKind], queues: &[&str], batches: &[&str]| TargetView {
            name: "a".to_owned(),
            kind: TargetKind::Webhook,
            at: String::new(),
            on: on.to_vec(),
            queues: queues.iter().map(|name| name.parse().expect("a queue")).collect(),
            batches: batches.iter().map(ToString::to_string).collect(),
            attempts_max: 1,
        };
        let all = NotificationKind::SUBSCRIBABLE;
        let notice = blocked(task(Some(7), "ci"));
        let id = BatchId(uuid::Uuid::from_u128(7)).to_string();
        for (wants, of) in [
            (true, target(&all, &[], &[])),
            (false, target(&[NotificationKind::TaskFailed], &[], &[])),
            (true, target(&all, &["main", "ci"], &[])),
            (false, target(&all, &["main"], &[])),
            (true, target(&all, &[], &["nightly"])),
            (true, target(&all, &["ci"], &[&id])),
            (false, target(&all, &["ci"], &["weekly"])),
            (false, target(&all, &["main"], &["nightly"])),
        ] {
            assert_eq!(of.should_receive(&notice), wants, "{of:?}");
            assert!(of.should_receive(&NotificationContent::Test { by: "ann".to_owned() }));
        }
        assert!(!target(&all, &[], &["nightly"]).should_receive(&blocked(task(None, "ci"))));
    }

    #[test]
    fn body_contains_event_time_and_link() {
        let record = |notice| NotificationRecord {
            raised: NotificationRaised {
                id: NotificationId(uuid::Uuid::from_u128(9)),
                source: None,
                position: None,
                notice,
                targets: vec!["a".to_owned()],
            },
            raised_at: Timestamp(1_700_000_000_000_000),
            deliveries: Vec::new(),
        };
        let body = NotificationBody::from_record(
            &record(blocked(task(None, "ci"))),
            Some("https://docket.example/"),
        );
        assert_eq!(
            serde_json::to_value(&body).expect("json"),
            serde_json::json!({
                "type": "task.blocked",
                "timestamp": "2023-11-14T22:13:20.000000Z",
                "data": {
                    "task": "00000000-0000-0000-0000-000000000001",
                    "run": "00000000-0000-0000-0000-000000000002",
                    "title": "Mend it",
                    "queue": "ci",
                    "block": "person",
                    "question": "Which port?",
                    "link": "https://docket.example/ui/run/00000000-0000-0000-0000-000000000002",
                },
            })
        );
        let bare =
            NotificationBody::from_record(&record(NotificationContent::Test { by: "ann".to_owned() }), None);
        let expected = NotificationData { by: Some("ann".to_owned()), ..NotificationData::default() };
        assert_eq!((bare.kind, bare.data), (NotificationKind::Test, expected));
    }
}
