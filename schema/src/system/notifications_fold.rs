//! Fold of `system/notifications`: pending deliveries with their next attempts, and dead letters.
//!
//! It stores a limited number of completed notifications and dead letters, newest first. Due ones are kept,
//! and the notifier gives up deliveries beyond [`DUE_KEPT_MAX`]. Older ones are only in the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    BlockKind, NotificationContent, NotificationDeadLettered, NotificationDelivered, NotificationDropped,
    NotificationFailed, NotificationRaised, NotificationRetried, NotificationsFollowed, SystemEvent,
    TaskEndCounts, TopicError, TopicFold, topic_fold,
};
use crate::{
    event::EventRef,
    ids::{BatchId, NotificationId, Position, Seq, SystemTopic, Timestamp},
};

/// Number of completed notifications kept for people to look at.
pub const SETTLED_KEPT_MAX: usize = 1000;

/// Number of notifications kept because a target did not accept them. They wait for a person; older ones are
/// in the log.
pub const DEAD_KEPT_MAX: usize = 10_000;

/// Maximum number of deliveries due to one target; the oldest ones beyond it are given up, with one event
/// each.
pub const DUE_KEPT_MAX: usize = 10_000;

/// Number of batches whose task counts at the last notification are remembered. For older ones, the end is
/// notified again if one of their tasks ends again.
const BATCHES_KNOWN_MAX: usize = 100_000;

/// Status of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryStatus {
    /// It is due at this time.
    Due(Timestamp),
    /// The target accepted it.
    Delivered,
    /// It failed and is not retried automatically.
    Dead,
    /// A person dropped it.
    Dropped,
}

/// The delivery of a notification to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    /// The target.
    pub target: String,
    /// The delivery's status.
    pub status: DeliveryStatus,
    /// Number of attempts that finished since the notification was raised or retried by hand.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub why: Option<String>,
    /// When the delivery last changed.
    pub changed_at: Timestamp,
}

/// A notification and its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationRecord {
    /// The event that raised it.
    pub raised: NotificationRaised,
    /// When it was raised.
    pub raised_at: Timestamp,
    /// One for each target, in the order of the event.
    pub deliveries: Vec<DeliveryRecord>,
}

impl NotificationRecord {
    /// Returns when the reported event happened.
    pub fn occurred_at(&self) -> Timestamp {
        self.raised.source.as_ref().map_or(self.raised_at, |source| source.at)
    }

    /// Returns the delivery to a target.
    pub fn delivery_to(&self, target: &str) -> Option<&DeliveryRecord> {
        self.deliveries.iter().find(|delivery| delivery.target == target)
    }

    fn has_delivery(&self, which: fn(&DeliveryStatus) -> bool) -> bool {
        self.deliveries.iter().any(|delivery| which(&delivery.status))
    }

    fn is_due(&self) -> bool {
        self.has_delivery(|telling| matches!(telling, DeliveryStatus::Due(_)))
    }

    fn is_dead(&self) -> bool {
        self.has_delivery(|telling| *telling == DeliveryStatus::Dead)
    }
}

/// Number of deliveries by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryCounts {
    /// Pending deliveries.
    pub due: u64,
    /// Dead letters.
    pub dead: u64,
}

/// Folded notifications. See the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationsFold {
    head: Seq,
    position: Option<Position>,
    by_id: BTreeMap<NotificationId, NotificationRecord>,
    /// Ids of notifications without due deliveries, in order of completion: without dead letters, and with.
    settled: VecDeque<NotificationId>,
    dead: VecDeque<NotificationId>,
    /// The due deliveries of each target, by time.
    due: BTreeMap<String, BTreeSet<(Timestamp, NotificationId)>>,
    /// Number of stored dead letters.
    dead_deliveries: u64,
    /// How each batch's tasks had ended at its last notification.
    reported_batches: BTreeMap<BatchId, TaskEndCounts>,
}

impl NotificationsFold {
    /// Returns the position up to which the log was read; none before notifications started.
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns all stored notifications, oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &NotificationRecord> {
        self.by_id.values()
    }

    /// Returns one of them.
    pub fn get(&self, id: NotificationId) -> Option<&NotificationRecord> {
        self.by_id.get(&id)
    }

    /// Returns how a batch's tasks had ended at its last notification.
    pub fn reported_batch_end(&self, batch: BatchId) -> Option<TaskEndCounts> {
        self.reported_batches.get(&batch).copied()
    }

    /// Returns the earliest due delivery to a target, and when it is due.
    pub fn next_due(&self, target: &str) -> Option<(Timestamp, &NotificationRecord)> {
        self.due_to(target).next()
    }

    /// Returns all due deliveries to a target, earliest first.
    pub fn due_to(&self, target: &str) -> impl Iterator<Item = (Timestamp, &NotificationRecord)> {
        let due = self.due.get(target).into_iter().flatten();
        due.filter_map(|(at, id)| Some((*at, self.by_id.get(id)?)))
    }

    /// Returns the targets with due deliveries, and their number.
    pub fn due_by_target(&self) -> impl Iterator<Item = (&str, usize)> {
        self.due.iter().map(|(target, due)| (target.as_str(), due.len()))
    }

    /// Returns the number of due deliveries and of dead letters.
    pub fn delivery_counts(&self) -> DeliveryCounts {
        let due = self.due_by_target().map(|(_, due)| due as u64).sum();
        DeliveryCounts { due, dead: self.dead_deliveries }
    }
}

impl TopicFold for NotificationsFold {
    const TOPIC: SystemTopic = SystemTopic::Notifications;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        let (seq, at) = (event.seq, event.recorded_at);
        match topic_fold::decode_next(Self::TOPIC, self.head, event)? {
            SystemEvent::NotificationsFollowed(NotificationsFollowed { position }) => {
                self.advance_position(Some(position));
            }
            SystemEvent::NotificationRaised(raised) => self.add_raised(raised, at),
            SystemEvent::NotificationDelivered(NotificationDelivered { id, target, attempt }) => {
                self.update_delivery(seq, (id, target.as_str()), |delivery| {
                    *delivery = DeliveryRecord {
                        status: DeliveryStatus::Delivered,
                        attempts: attempt,
                        why: None,
                        changed_at: at,
                        ..delivery.clone()
                    };
                })?;
            }
            SystemEvent::NotificationFailed(NotificationFailed { id, target, attempt, why, retry_at }) => {
                self.update_delivery(seq, (id, target.as_str()), |delivery| {
                    *delivery = DeliveryRecord {
                        status: DeliveryStatus::Due(retry_at),
                        attempts: attempt,
                        why: Some(why),
                        changed_at: at,
                        ..delivery.clone()
                    };
                })?;
            }
            SystemEvent::NotificationDeadLettered(NotificationDeadLettered { id, target, attempt, why }) => {
                self.update_delivery(seq, (id, target.as_str()), |delivery| {
                    *delivery = DeliveryRecord {
                        status: DeliveryStatus::Dead,
                        attempts: attempt,
                        why: Some(why),
                        changed_at: at,
                        ..delivery.clone()
                    };
                })?;
            }
            SystemEvent::NotificationRetried(NotificationRetried { id, target, .. }) => {
                self.update_delivery(seq, (id, target.as_str()), |delivery| {
                    *delivery = DeliveryRecord {
                        status: DeliveryStatus::Due(at),
                        attempts: 0,
                        changed_at: at,
                        ..delivery.clone()
                    };
                })?;
            }
            SystemEvent::NotificationDropped(NotificationDropped { id, target, .. }) => {
                self.update_delivery(seq, (id, target.as_str()), |delivery| {
                    *delivery = DeliveryRecord {
                        status: DeliveryStatus::Dropped,
                        changed_at: at,
                        ..delivery.clone()
                    };
                })?;
            }
            other @ (SystemEvent::RunImported(_)
            | SystemEvent::StreamsArchived(_)
            | SystemEvent::StreamsRestored(_)
            | SystemEvent::TokenCreated(_)
            | SystemEvent::TokenRevoked(_)
            | SystemEvent::AdminActed(_)
            | SystemEvent::CallsRefused(_)
            | SystemEvent::ScheduleSet(_)
            | SystemEvent::SchedulePaused(_)
            | SystemEvent::ScheduleRemoved(_)
            | SystemEvent::ScheduleFired(_)
            | SystemEvent::LimitSet(_)
            | SystemEvent::LimitRemoved(_)
            | SystemEvent::BudgetSet(_)
            | SystemEvent::BudgetSpent(_)
            | SystemEvent::MemorySaved(_)
            | SystemEvent::MemoryForgotten(_)) => {
                return Err(topic_fold::wrong_topic_error(Self::TOPIC, seq, &other));
            }
        }
        self.head = seq;
        Ok(())
    }
}

impl NotificationsFold {
    fn advance_position(&mut self, position: Option<Position>) {
        self.position = self.position.max(position);
    }

    fn add_raised(&mut self, raised: NotificationRaised, at: Timestamp) {
        self.advance_position(raised.position);
        if let NotificationContent::BatchFinished { of, tasks } = &raised.notice {
            self.reported_batches.insert(of.batch, *tasks);
            if self.reported_batches.len() > BATCHES_KNOWN_MAX {
                // Remove the oldest: ids start with a timestamp.
                self.reported_batches.pop_first();
            }
        }
        // The batch's tasks had ended, but one is active again: its next end is a new one.
        if let NotificationContent::TaskBlocked { of, block: BlockKind::Delivery, .. } = &raised.notice
            && let Some(batch) = of.batch
        {
            self.reported_batches.remove(&batch);
        }
        let delivery = |target: &String| DeliveryRecord {
            target: target.clone(),
            status: DeliveryStatus::Due(at),
            attempts: 0,
            why: None,
            changed_at: at,
        };
        let deliveries: Vec<DeliveryRecord> = raised.targets.iter().map(delivery).collect();
        let id = raised.id;
        for delivery in &deliveries {
            self.add_to_counts(id, delivery);
        }
        let record = NotificationRecord { raised, raised_at: at, deliveries };
        if let Some(old) = self.by_id.insert(id, record) {
            // Two coordinators that both believed to be the leader raised the same notification.
            old.deliveries.iter().for_each(|delivery| self.remove_from_counts(id, delivery));
            self.remove_from_bounded_lists(id);
        }
        self.add_to_bounded_lists(id);
    }

    fn add_to_counts(&mut self, id: NotificationId, delivery: &DeliveryRecord) {
        match delivery.status {
            DeliveryStatus::Due(at) => {
                self.due.entry(delivery.target.clone()).or_default().insert((at, id));
            }
            DeliveryStatus::Dead => self.dead_deliveries += 1,
            DeliveryStatus::Delivered | DeliveryStatus::Dropped => {}
        }
    }

    fn remove_from_counts(&mut self, id: NotificationId, delivery: &DeliveryRecord) {
        match delivery.status {
            DeliveryStatus::Due(at) => {
                if let Some(due) = self.due.get_mut(&delivery.target) {
                    due.remove(&(at, id));
                    if due.is_empty() {
                        self.due.remove(&delivery.target);
                    }
                }
            }
            DeliveryStatus::Dead => self.dead_deliveries = self.dead_deliveries.saturating_sub(1),
            DeliveryStatus::Delivered | DeliveryStatus::Dropped => {}
        }
    }

    /// Changes a delivery. Ignored if its notification is no longer stored.
    fn update_delivery(
        &mut self,
        seq: Seq,
        (id, target): (NotificationId, &str),
        change: impl FnOnce(&mut DeliveryRecord),
    ) -> Result<(), TopicError> {
        let Some(record) = self.by_id.get_mut(&id) else { return Ok(()) };
        let was_due = record.is_due();
        let Some(delivery) = record.deliveries.iter_mut().find(|delivery| delivery.target == target) else {
            let what = format!("notification {id} is not for `{target}`");
            return Err(TopicError::illegal(SystemTopic::Notifications, seq, what));
        };
        let before = delivery.clone();
        change(delivery);
        let after = delivery.clone();
        self.remove_from_counts(id, &before);
        self.add_to_counts(id, &after);
        if !was_due {
            self.remove_from_bounded_lists(id);
        }
        self.add_to_bounded_lists(id);
        Ok(())
    }

    /// Removes a notification from the bounded lists.
    fn remove_from_bounded_lists(&mut self, id: NotificationId) {
        self.settled.retain(|known| *known != id);
        self.dead.retain(|known| *known != id);
    }

    /// Adds a notification without due deliveries to its bounded list, and drops those beyond the limit.
    fn add_to_bounded_lists(&mut self, id: NotificationId) {
        let Some(record) = self.by_id.get(&id) else { return };
        let (is_due, is_dead) = (record.is_due(), record.is_dead());
        if is_due {
            return;
        }
        let (kept, most) =
            if is_dead { (&mut self.dead, DEAD_KEPT_MAX) } else { (&mut self.settled, SETTLED_KEPT_MAX) };
        kept.push_back(id);
        if kept.len() > most {
            let gone = kept.pop_front().and_then(|gone| self.by_id.remove(&gone));
            if let Some(gone) = gone {
                gone.deliveries.iter().for_each(|delivery| self.remove_from_counts(gone.raised.id, delivery));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Envelope, TypedEvent as _},
        ids::{Epoch, EventHash, StreamId, Turn},
        system::{Budget, NotificationBatch, NotificationKind, NotificationSource},
    };

    fn id(n: u128) -> NotificationId {
        NotificationId(uuid::Uuid::from_u128(n))
    }

    /// Folds an event after the fold's head, one second after the previous one.
    fn fold(fold: &mut NotificationsFold, event: impl Into<SystemEvent>) -> Result<(), TopicError> {
        let new = event.into().encode(Turn(0));
        let seq = fold.head().next();
        let envelope = Envelope {
            stream: StreamId::System(SystemTopic::Notifications),
            seq,
            position: Position(seq.0),
            recorded_at: Timestamp(seq.0.cast_signed() * 1_000_000),
            turn: Turn(0),
            epoch: Epoch(0),
            kind: new.kind,
            version: new.version,
            payload: new.payload,
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        };
        fold.apply(&envelope.as_event_ref())
    }

    fn raised_notification(n: u128, targets: &[&str]) -> NotificationRaised {
        NotificationRaised {
            id: id(n),
            source: None,
            position: None,
            notice: NotificationContent::Test { by: "somebody".to_owned() },
            targets: targets.iter().map(ToString::to_string).collect(),
        }
    }

    fn delivered_event(n: u128, target: &str) -> NotificationDelivered {
        NotificationDelivered { id: id(n), target: target.to_owned(), attempt: 1 }
    }

    fn dead_letter_event(n: u128, target: &str) -> NotificationDeadLettered {
        NotificationDeadLettered { id: id(n), target: target.to_owned(), attempt: 3, why: "away".to_owned() }
    }

    #[test]
    fn deliveries_to_each_target_are_independent() {
        let mut of = NotificationsFold::default();
        fold(&mut of, raised_notification(1, &["a", "b"])).expect("folds");
        let due = |of: &NotificationsFold, target: &str| of.next_due(target).map(|(at, _)| at.0 / 1_000_000);
        assert_eq!((due(&of, "a"), due(&of, "b"), due(&of, "c")), (Some(1), Some(1), None));
        fold(&mut of, delivered_event(1, "a")).expect("folds");
        let (target, why) = ("b".to_owned(), "away".to_owned());
        let retry_at = Timestamp(9_000_000);
        fold(&mut of, NotificationFailed { id: id(1), target, attempt: 1, why, retry_at }).expect("folds");
        assert_eq!((due(&of, "a"), due(&of, "b")), (None, Some(9)));
        assert_eq!(of.delivery_counts(), DeliveryCounts { due: 1, dead: 0 });
        fold(&mut of, dead_letter_event(1, "b")).expect("folds");
        assert_eq!((due(&of, "b"), of.delivery_counts()), (None, DeliveryCounts { due: 0, dead: 1 }));
        let by = "ann".to_owned();
        fold(&mut of, NotificationRetried { id: id(1), target: "b".to_owned(), by }).expect("folds");
        let record = of.get(id(1)).and_then(|record| record.delivery_to("b")).expect("is kept");
        assert_eq!((record.attempts, record.why.as_deref()), (0, Some("away")));
        assert_eq!(due(&of, "b"), Some(5));
        assert!(fold(&mut of, dead_letter_event(1, "c")).is_err(), "it was never for c");
        let elsewhere = crate::system::LimitRemoved { provider: "x".to_owned(), by: "y".to_owned() };
        assert!(fold(&mut of, elsewhere).is_err());
        assert_eq!(of.head(), Seq(5));
    }

    #[test]
    fn earliest_due_notification_goes_first() {
        let mut of = NotificationsFold::default();
        fold(&mut of, raised_notification(2, &["a"])).expect("folds");
        fold(&mut of, raised_notification(1, &["a"])).expect("folds");
        let next = |of: &NotificationsFold| of.next_due("a").map(|(_, record)| record.raised.id);
        assert_eq!(next(&of), Some(id(2)), "it was raised first");
        let (target, why) = ("a".to_owned(), "away".to_owned());
        let retry_at = Timestamp(60_000_000);
        fold(&mut of, NotificationFailed { id: id(2), target, attempt: 1, why, retry_at }).expect("folds");
        assert_eq!(next(&of), Some(id(1)));
    }

    #[test]
    fn settled_notifications_are_bounded_and_due_ones_are_kept() {
        let mut of = NotificationsFold::default();
        let most = SETTLED_KEPT_MAX as u128;
        fold(&mut of, raised_notification(0, &["a"])).expect("folds");
        for n in 1..=most + 5 {
            fold(&mut of, raised_notification(n, &["a"])).expect("folds");
            fold(&mut of, delivered_event(n, "a")).expect("folds");
        }
        assert_eq!(of.all().count(), SETTLED_KEPT_MAX + 1);
        assert!(of.get(id(0)).is_some() && of.get(id(5)).is_none() && of.get(id(6)).is_some());
        // Events about a notification that is gone are not an error.
        fold(&mut of, delivered_event(5, "a")).expect("folds");
    }

    #[test]
    fn counts_match_the_records_after_any_events() {
        let mut of = NotificationsFold::default();
        for n in 1..=4 {
            fold(&mut of, raised_notification(n, &["a", "b"])).expect("folds");
        }
        let drop = |n, target: &str| NotificationDropped {
            id: id(n),
            target: target.to_owned(),
            by: "ann".to_owned(),
        };
        fold(&mut of, dead_letter_event(1, "a")).expect("folds");
        fold(&mut of, dead_letter_event(1, "b")).expect("folds");
        fold(&mut of, drop(1, "a")).expect("folds");
        fold(&mut of, drop(2, "a")).expect("folds");
        fold(&mut of, delivered_event(3, "b")).expect("folds");
        fold(&mut of, dead_letter_event(4, "a")).expect("folds");
        // The same notification again, as two coordinators may raise it.
        fold(&mut of, raised_notification(4, &["a", "b"])).expect("folds");
        let counted = |wanted: fn(&DeliveryStatus) -> bool| {
            let all = of.all().flat_map(|record| &record.deliveries);
            all.filter(|delivery| wanted(&delivery.status)).count() as u64
        };
        let counts = DeliveryCounts {
            due: counted(|telling| matches!(telling, DeliveryStatus::Due(_))),
            dead: counted(|telling| *telling == DeliveryStatus::Dead),
        };
        assert_eq!((of.delivery_counts(), counts), (counts, DeliveryCounts { due: 4, dead: 1 }));
        assert_eq!(of.due_by_target().collect::<Vec<_>>(), [("a", 2), ("b", 2)]);
        assert_eq!(
            of.get(id(1)).and_then(|record| record.delivery_to("a")).map(|one| &one.status),
            Some(&DeliveryStatus::Dropped)
        );
    }

    #[test]
    fn batch_end_is_remembered_and_the_position_never_goes_back() {
        let mut of = NotificationsFold::default();
        let batch = BatchId(uuid::Uuid::from_u128(7));
        let counts = |all| TaskEndCounts { all, completed: all, ..TaskEndCounts::default() };
        let finished = |all| NotificationContent::BatchFinished {
            of: NotificationBatch { batch, name: None, queue: None },
            tasks: counts(all),
        };
        fold(&mut of, NotificationsFollowed { position: Position(10) }).expect("folds");
        let raise = |n, position| NotificationRaised {
            position: Some(Position(position)),
            notice: finished(3),
            ..raised_notification(n, &["a"])
        };
        fold(&mut of, raise(1, 12)).expect("folds");
        fold(&mut of, NotificationsFollowed { position: Position(11) }).expect("folds");
        assert_eq!((of.position(), of.reported_batch_end(batch)), (Some(Position(12)), Some(counts(3))));
    }

    #[test]
    fn notification_id_is_derived_from_event_and_kind() {
        let of = |seq| NotificationSource {
            stream: StreamId::System(SystemTopic::Budgets),
            seq: Seq(seq),
            at: Timestamp(1_700_000_000_000_000),
        };
        let of_batch =
            |n| NotificationBatch { batch: BatchId(uuid::Uuid::from_u128(n)), name: None, queue: None };
        let finished =
            |n| NotificationContent::BatchFinished { of: of_batch(n), tasks: TaskEndCounts::default() };
        let budget = Budget { tokens: Some(1), cost_nusd: None };
        let spent = NotificationContent::BudgetSpent { of: of_batch(1), budget, message: String::new() };
        assert_eq!(of(1).notification_id(&finished(1)), of(1).notification_id(&finished(1)));
        assert_ne!(of(1).notification_id(&finished(1)), of(2).notification_id(&finished(1)));
        assert_ne!(of(1).notification_id(&finished(1)), of(1).notification_id(&spent));
        assert_ne!(
            of(1).notification_id(&finished(1)),
            of(1).notification_id(&finished(2)),
            "one end may be that of several batches"
        );
        for kind in NotificationKind::SUBSCRIBABLE {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("json"), kind.as_str());
        }
        assert!(
            "test".parse::<NotificationKind>().is_err() && "blocked".parse::<NotificationKind>().is_err()
        );
    }
}
