//! Request and response bodies for notifications, and the payload that a target receives.

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

/// Maximum number of notifications in a list.
pub const NOTIFICATIONS_MAX: u32 = 1000;
/// Default number of notifications in a list.
pub const NOTIFICATIONS_DEFAULT: u32 = 100;

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// The delivery is pending: it has not been attempted, or will be retried.
    Waiting,
    /// The target accepted the notification.
    Delivered,
    /// A dead letter: the target did not accept the notification, and it is only retried on request.
    Dead,
    /// A person dropped the delivery.
    Dropped,
}

impl DeliveryState {
    /// All states, in declaration order.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Delivered, Self::Dead, Self::Dropped];

    /// Returns the state's name.
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

/// Kind of a notification target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A server that receives a signed request.
    Webhook,
    /// A program that the coordinator runs.
    Command,
}

impl TargetKind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Command];

    /// Returns the kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Command => "command",
        }
    }
}

/// A notification target from the coordinator's settings, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetView {
    /// The target's name.
    pub name: String,
    /// The target's kind.
    pub kind: TargetKind,
    /// Its destination: scheme, host and port of an address, or a program. The path is left out because it
    /// may contain a secret.
    pub at: String,
    /// The kinds of notification it subscribes to.
    pub on: Vec<NotificationKind>,
    /// Only notifications of these queues; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueName>,
    /// Only notifications of these batches, by name or id; empty means all, including those without a batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<String>,
    /// Number of attempts before a delivery is given up.
    pub attempts_max: u32,
}

impl TargetView {
    /// Whether the target subscribes to this notification.
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
    /// Only notifications with a delivery in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeliveryState>,
    /// Maximum number of notifications; 100 by default, at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Notification targets and recent notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationList {
    /// The targets in this coordinator's settings.
    pub targets: Vec<TargetView>,
    /// The notifications, newest first.
    pub notifications: Vec<NotificationView>,
    /// Total number of pending deliveries.
    pub waiting: u64,
    /// Total number of dead letters.
    pub dead: u64,
    /// Whether there are more notifications than requested.
    pub more: bool,
}

/// A notification and its deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationView {
    /// The id under which receivers know it.
    pub id: NotificationId,
    /// The notification's kind.
    pub kind: NotificationKind,
    /// When the reported event happened.
    pub at: Timestamp,
    /// The notification's content.
    pub notice: NotificationContent,
    /// The delivery to each target.
    pub deliveries: Vec<DeliveryView>,
}

impl NotificationView {
    /// Builds the view from the folded record.
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

/// The delivery of a notification to a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryView {
    /// The target's name.
    pub target: String,
    /// The delivery's state.
    pub state: DeliveryState,
    /// Number of attempts that finished since the notification was raised or retried by hand.
    pub attempts: u32,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When the delivery last changed.
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
    /// Retries the delivery to this target only; if absent, to every target that did not accept the
    /// notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/notifications/{id}/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DropNotificationRequest {
    /// Drops the delivery to this target only; if absent, to every target that did not accept the
    /// notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/notifications/test`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestNotificationRequest {
    /// Sends to this target only; if absent, to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The payload a target receives: a webhook as the request body, a command on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationBody {
    /// The notification's kind.
    #[serde(rename = "type")]
    pub kind: NotificationKind,
    /// When the reported event happened.
    pub timestamp: Timestamp,
    /// The notification's data.
    pub data: NotificationData,
}

/// The data of a notification. The kind determines which fields are present.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NotificationData {
    /// The task, for `task.…` kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The task's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The task's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The batch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
    /// What a blocked task is waiting for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockKind>,
    /// The task's question or problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Why a task was discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DiscardReason>,
    /// One line for people: why the task was discarded, or the state of the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many of the batch's tasks ended in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskEndCounts>,
    /// The batch's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Who sent the test, for `test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// A dashboard page with details. Present if `server.public_url` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl NotificationBody {
    /// Builds the payload of a notification; `public_url` is the address of the coordinator for people. The
    /// result is the same for every attempt.
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
