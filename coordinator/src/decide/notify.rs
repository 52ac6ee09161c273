//! Notification decisions: which notification an event of the log triggers, and the state of a delivery after
//! an attempt. Pure.

use docket_schema::{
    api::BatchView,
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{BatchId, NotificationId, RunId, StreamId, SystemTopic, TaskId, Timestamp},
    system::{
        BlockKind, Budget, BudgetSpent, DUE_KEPT_MAX, DeliveryStatus, NotificationDeadLettered,
        NotificationDelivered, NotificationFailed, NotificationRecord, NotificationsFold, SystemEvent,
        TaskEndCounts, truncate_delivery_error,
    },
    task::{
        DiscardReason, TaskBlocked, TaskBlockedReason, TaskDeliveryBlocked, TaskDiscarded, TaskEvent,
        TaskState,
    },
};

use super::CLOCK_SKEW_MAX_MS;

/// Longest wait that a receiver may request.
pub const RETRY_AFTER_MS_MAX: u64 = 6 * 3_600_000;

/// Factor between consecutive waits.
const BACKOFF_FACTOR: u64 = 4;

/// A wait is extended by up to this fraction, so that deliveries that failed together are spread out.
const JITTER_DIVISOR: u64 = 4;

/// A reason to notify, before its task or batch is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationTrigger {
    /// A task needs a person.
    Blocked {
        task: TaskId,
        run: RunId,
        /// What it waits for.
        block: BlockKind,
        /// The question, if it asks one.
        question: Option<String>,
    },
    /// A task was discarded.
    Failed {
        task: TaskId,
        run: RunId,
        reason: DiscardReason,
        /// A one-line message for people.
        message: String,
    },
    /// A batch's budget is used up.
    BudgetSpent {
        batch: BatchId,
        budget: Budget,
        /// A one-line message for people.
        message: String,
    },
}

/// Effects of an event on notifications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationEffects {
    /// The notification it triggers, if any.
    pub trigger: Option<NotificationTrigger>,
    /// A task that ended, so its batch may have ended too.
    pub ended_task: Option<TaskId>,
}

/// Event kinds of tasks that can affect notifications; others are not decoded.
const NOTIFYING_TASK_EVENTS: [&str; 8] = [
    "TaskBlocked",
    "TaskDeliveryBlocked",
    "TaskDiscarded",
    "TaskCompleted",
    "TaskCancelled",
    "TaskDelivered",
    "TaskAccepted",
    "TaskNeededNoDelivery",
];

/// Returns the effects of an event.
///
/// # Errors
/// [`DecodeError`] if a newer docket wrote the event.
pub fn effects_from_event(event: &Envelope) -> Result<NotificationEffects, DecodeError> {
    match &event.stream {
        StreamId::Task(task) if NOTIFYING_TASK_EVENTS.contains(&event.kind.as_str()) => {
            Ok(effects_from_task_event(
                *task,
                TaskEvent::decode(&event.kind, event.version, event.payload.as_str())?,
            ))
        }
        StreamId::System(SystemTopic::Budgets) if event.kind == "BudgetSpent" => {
            let event = SystemEvent::decode(&event.kind, event.version, event.payload.as_str())?;
            let SystemEvent::BudgetSpent(BudgetSpent { batch, budget, message }) = event else {
                return Ok(NotificationEffects::default());
            };
            Ok(NotificationEffects {
                trigger: Some(NotificationTrigger::BudgetSpent { batch, budget, message }),
                ended_task: None,
            })
        }
        StreamId::Task(_) | StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => {
            Ok(NotificationEffects::default())
        }
    }
}

fn effects_from_task_event(task: TaskId, event: TaskEvent) -> NotificationEffects {
    match event {
        TaskEvent::TaskBlocked(TaskBlocked { run, why, message, .. }) => {
            let block = match why {
                TaskBlockedReason::Person => BlockKind::Person,
                TaskBlockedReason::Provider => BlockKind::Provider,
                TaskBlockedReason::WorkerFault => BlockKind::WorkerFault,
                // It resumes by itself, was paused by a person, or its batch's budget is reported once for
                // the whole batch.
                TaskBlockedReason::Child
                | TaskBlockedReason::Outage
                | TaskBlockedReason::Paused
                | TaskBlockedReason::Budget => return NotificationEffects::default(),
            };
            NotificationEffects {
                trigger: Some(NotificationTrigger::Blocked { task, run, block, question: message }),
                ended_task: None,
            }
        }
        TaskEvent::TaskDeliveryBlocked(TaskDeliveryBlocked { run, message, .. }) => {
            let block = BlockKind::Delivery;
            NotificationEffects {
                trigger: Some(NotificationTrigger::Blocked { task, run, block, question: Some(message) }),
                ended_task: None,
            }
        }
        TaskEvent::TaskDiscarded(TaskDiscarded { run, why, message }) => NotificationEffects {
            trigger: Some(NotificationTrigger::Failed { task, run, reason: why, message }),
            ended_task: Some(task),
        },
        // The last three end a task whose delivery was blocked and affect no other task.
        TaskEvent::TaskCompleted(_)
        | TaskEvent::TaskCancelled(_)
        | TaskEvent::TaskDelivered(_)
        | TaskEvent::TaskAccepted(_)
        | TaskEvent::TaskNeededNoDelivery(_) => NotificationEffects { trigger: None, ended_task: Some(task) },
        TaskEvent::TaskSubmitted(_)
        | TaskEvent::TaskMadeAvailable(_)
        | TaskEvent::TaskLeased(_)
        | TaskEvent::TaskReleased(_)
        | TaskEvent::TaskLeaseExpired(_)
        | TaskEvent::TaskRunCrashed(_)
        | TaskEvent::TaskRunFailed(_)
        | TaskEvent::TaskUnblocked(_)
        | TaskEvent::TaskRetried(_)
        | TaskEvent::TaskResumed(_)
        | TaskEvent::TaskReprioritized(_)
        | TaskEvent::TaskPaused(_)
        | TaskEvent::TaskDependencyEnded(_)
        | TaskEvent::TaskDeliveryRequested(_)
        | TaskEvent::TaskDeliveryHookRan(_)
        | TaskEvent::TaskRejected(_)
        | TaskEvent::TaskDeliveryClaimed(_)
        | TaskEvent::TaskDelegated(_) => NotificationEffects::default(),
    }
}

/// Whether tasks that depend on the ended one may now wait forever. False for a completed task.
pub fn can_strand_dependents(event: &Envelope) -> bool {
    matches!(event.kind.as_str(), "TaskDiscarded" | "TaskCancelled")
}

/// Returns the batch's end counts if none of its tasks can continue without a person: all have ended or
/// depend on tasks that failed.
pub fn batch_end_counts(view: &BatchView) -> Option<TaskEndCounts> {
    let count = |state| view.states.iter().filter(|of| of.state == state).map(|of| of.count).sum();
    let open: u64 = view.states.iter().filter(|of| !of.state.is_ended()).map(|of| of.count).sum();
    // Tasks that depend on a failed task are pending, and none of them is counted twice.
    (open == view.behind_failed).then(|| TaskEndCounts {
        all: view.tasks,
        completed: count(TaskState::Completed),
        cancelled: count(TaskState::Cancelled),
        discarded: count(TaskState::Discarded),
        behind_failed: view.behind_failed,
    })
}

/// Whether a batch's end has not been reported yet: there are more tasks than at the last report, or the same
/// number with different outcomes. A batch whose tasks were archived has fewer.
pub fn is_new_batch_end(ends: &TaskEndCounts, told: Option<TaskEndCounts>) -> bool {
    told.is_none_or(|told| ends.all > told.all || (ends.all == told.all && *ends != told))
}

/// Returns events that give up deliveries without an attempt: those to targets no longer configured, and the
/// oldest of a target's overflow. At most `most`.
pub fn dead_letter_events(known: &NotificationsFold, targets: &[&str], most: usize) -> Vec<SystemEvent> {
    let mut given_up = Vec::new();
    for (target, due) in known.due_by_target() {
        let (beyond, why) = if targets.contains(&target) {
            (
                due.saturating_sub(DUE_KEPT_MAX),
                format!(
                    "more than {DUE_KEPT_MAX} notifications were waiting \
                 for this target"
                ),
            )
        } else {
            (due, "the target is no longer configured".to_owned())
        };
        let room = most.saturating_sub(given_up.len());
        given_up.extend(known.due_to(target).take(beyond.min(room)).map(|(_, record)| {
            let attempt = record.delivery_to(target).map_or(0, |delivery| delivery.attempts);
            let (id, target) = (record.raised.id, target.to_owned());
            SystemEvent::from(NotificationDeadLettered { id, target, attempt, why: why.clone() })
        }));
    }
    given_up
}

/// Retry policy for failed deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryRetryPolicy {
    /// Maximum attempts, at least 1.
    pub attempts_max: u32,
    /// Wait after the first failure, in milliseconds.
    pub initial_wait_ms: u64,
    /// Longest wait, in milliseconds; each wait is four times the previous one up to this.
    pub max_wait_ms: u64,
}

impl DeliveryRetryPolicy {
    /// Returns the wait after an attempt (counted from 1), including jitter. The jitter is derived from the
    /// arguments, so every coordinator computes the same value.
    pub fn wait_ms(self, id: NotificationId, target: &str, attempt: u32) -> u64 {
        let grown =
            BACKOFF_FACTOR.saturating_pow(attempt.saturating_sub(1)).saturating_mul(self.initial_wait_ms);
        let wait = grown.min(self.max_wait_ms);
        let hash = blake3::hash(format!("docket retry\0{id}\0{target}\0{attempt}").as_bytes());
        let mut draw = [0; 8];
        draw.copy_from_slice(&hash.as_bytes()[..8]);
        wait.saturating_add(u64::from_le_bytes(draw) % (wait / JITTER_DIVISOR).max(1))
    }
}

/// Whether `due_at` is further away than any retry wait after this many attempts. Such a time was computed by
/// a clock that was ahead, so the delivery is due now.
pub fn is_due_time_too_far(
    due_at: Timestamp,
    attempts: u32,
    retries: DeliveryRetryPolicy,
    now: Timestamp,
) -> bool {
    let longest_ms =
        retries.max_wait_ms.saturating_add(retries.max_wait_ms / JITTER_DIVISOR).max(RETRY_AFTER_MS_MAX);
    due_at > now && (attempts == 0 || due_at.ms_since(now) > longest_ms.saturating_add(CLOCK_SKEW_MAX_MS))
}

/// Result of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryAttemptResult {
    /// The target accepted it.
    Delivered,
    /// The attempt failed.
    Failed {
        /// What went wrong, for people; contains no secrets.
        why: String,
        /// Delay requested by the target, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The target permanently refuses notifications.
    Unsubscribed {
        /// The target's own message.
        why: String,
    },
}

/// Returns the event to record for an attempt; `None` if the notification no longer waits for one.
pub fn attempt_event(
    record: &NotificationRecord,
    target: &str,
    sent: &DeliveryAttemptResult,
    retries: DeliveryRetryPolicy,
    now: Timestamp,
) -> Option<SystemEvent> {
    let delivery = record.delivery_to(target)?;
    let DeliveryStatus::Due(_) = delivery.status else { return None };
    let (id, target, attempt) = (record.raised.id, target.to_owned(), delivery.attempts.saturating_add(1));
    Some(match sent {
        DeliveryAttemptResult::Delivered => NotificationDelivered { id, target, attempt }.into(),
        DeliveryAttemptResult::Unsubscribed { why } => {
            NotificationDeadLettered { id, target, attempt, why: truncate_delivery_error(why) }.into()
        }
        DeliveryAttemptResult::Failed { why, .. } if attempt >= retries.attempts_max => {
            NotificationDeadLettered { id, target, attempt, why: truncate_delivery_error(why) }.into()
        }
        DeliveryAttemptResult::Failed { why, retry_after_ms } => {
            let asked = retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX);
            let wait = retries.wait_ms(id, &target, attempt).max(asked);
            let retry_at = now.plus_ms(wait);
            NotificationFailed { id, target, attempt, why: truncate_delivery_error(why), retry_at }.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_schema::{
        event::{Head, Payload},
        ids::{Epoch, Position, Seq, Turn},
        system::{DeliveryRecord, NotificationContent, NotificationRaised, TopicFold as _},
        task::{
            DeliveryBlockedReason, TaskAccepted, TaskCancelled, TaskCompleted, TaskDelivered,
            TaskNeededNoDelivery, TaskUnblocked,
        },
    };

    fn run_id() -> RunId {
        RunId(uuid::Uuid::from_u128(2))
    }

    fn task_id() -> TaskId {
        TaskId(uuid::Uuid::from_u128(1))
    }

    fn envelope(stream: StreamId, kind: &str, version: u16, payload: Payload) -> Envelope {
        Envelope {
            stream,
            seq: Seq(1),
            position: Position(1),
            recorded_at: Timestamp(0),
            turn: Turn(0),
            epoch: Epoch(0),
            kind: kind.to_owned(),
            version,
            payload,
            prev_hash: Head::EMPTY.hash,
            hash: Head::EMPTY.hash,
        }
    }

    fn effects_of_task_event(event: impl Into<TaskEvent>) -> NotificationEffects {
        let new = event.into().encode(Turn(0));
        effects_from_event(&envelope(StreamId::Task(task_id()), &new.kind, new.version, new.payload))
            .expect("is known")
    }

    #[test]
    fn only_blocks_that_need_a_person_are_notified() {
        let blocked = |why| {
            effects_of_task_event(TaskBlocked {
                run: run_id(),
                why,
                message: Some("?".to_owned()),
                wake_at: None,
                unverified: None,
            })
        };
        let block = |seen: NotificationEffects| match seen.trigger {
            Some(NotificationTrigger::Blocked { block, question, .. }) => Some((block, question)),
            _ => None,
        };
        let asked = Some("?".to_owned());
        for (why, told) in [
            (TaskBlockedReason::Person, Some((BlockKind::Person, asked.clone()))),
            (TaskBlockedReason::Provider, Some((BlockKind::Provider, asked.clone()))),
            (TaskBlockedReason::WorkerFault, Some((BlockKind::WorkerFault, asked))),
            (TaskBlockedReason::Child, None),
            (TaskBlockedReason::Paused, None),
            (TaskBlockedReason::Budget, None),
            (TaskBlockedReason::Outage, None),
        ] {
            assert_eq!(block(blocked(why)), told, "{why:?}");
        }
        let conflict = TaskDeliveryBlocked {
            run: run_id(),
            branch: "b".to_owned(),
            why: DeliveryBlockedReason::Conflict,
            paths: Vec::new(),
            kept: None,
            message: "a.txt".to_owned(),
            by: String::new(),
        };
        assert_eq!(
            block(effects_of_task_event(conflict)),
            Some((BlockKind::Delivery, Some("a.txt".to_owned())))
        );
        let gone = effects_of_task_event(TaskDiscarded {
            run: run_id(),
            why: DiscardReason::Poison,
            message: "m".to_owned(),
        });
        assert!(
            matches!(gone.trigger, Some(NotificationTrigger::Failed { .. }))
                && gone.ended_task == Some(task_id()),
            "{gone:?}"
        );
        let (by, comment) = ("ann".to_owned(), String::new());
        let delivered = TaskDelivered {
            run: run_id(),
            branch: "b".to_owned(),
            commit: "c".to_owned(),
            remote: None,
            by: by.clone(),
        };
        for end in [
            effects_of_task_event(TaskCompleted { run: run_id(), unverified: None }),
            effects_of_task_event(TaskCancelled { by: by.clone(), reason: String::new() }),
            effects_of_task_event(delivered),
            effects_of_task_event(TaskNeededNoDelivery { run: run_id(), by: by.clone() }),
            effects_of_task_event(TaskAccepted { run: run_id(), by, comment }),
        ] {
            assert_eq!(end, NotificationEffects { trigger: None, ended_task: Some(task_id()) });
        }
        assert_eq!(effects_of_task_event(TaskUnblocked {}), NotificationEffects::default());
    }

    #[test]
    fn unknown_event_version_fails_only_for_notifying_kinds() {
        let payload = || Payload::parse("{}".to_owned()).expect("json");
        assert!(
            effects_from_event(&envelope(StreamId::Task(task_id()), "TaskBlocked", 99, payload())).is_err()
        );
        assert!(
            effects_from_event(&envelope(StreamId::Task(task_id()), "TaskPraised", 1, payload())).is_ok()
        );
        assert!(effects_from_event(&envelope(StreamId::Run(run_id()), "TaskBlocked", 99, payload())).is_ok());
    }

    fn notification_record(attempts: u32, telling: DeliveryStatus) -> NotificationRecord {
        NotificationRecord {
            raised: NotificationRaised {
                id: NotificationId(uuid::Uuid::from_u128(9)),
                source: None,
                position: None,
                notice: NotificationContent::Test { by: "ann".to_owned() },
                targets: vec!["a".to_owned()],
            },
            raised_at: Timestamp(0),
            deliveries: vec![DeliveryRecord {
                target: "a".to_owned(),
                status: telling,
                attempts,
                why: None,
                changed_at: Timestamp(0),
            }],
        }
    }

    const RETRIES: DeliveryRetryPolicy =
        DeliveryRetryPolicy { attempts_max: 3, initial_wait_ms: 1000, max_wait_ms: 10_000 };

    fn failed_attempt(retry_after_ms: Option<u64>) -> DeliveryAttemptResult {
        DeliveryAttemptResult::Failed { why: "no".to_owned(), retry_after_ms }
    }

    #[test]
    fn batch_end_is_new_with_more_tasks_or_other_outcomes() {
        let counts = |all, completed, behind_failed| TaskEndCounts {
            all,
            completed,
            behind_failed,
            ..TaskEndCounts::default()
        };
        let told = Some(counts(3, 1, 1));
        for (ends, news) in [
            (counts(3, 1, 1), false),
            (counts(3, 2, 0), true),
            (counts(4, 1, 1), true),
            (counts(2, 2, 0), false),
        ] {
            assert_eq!(is_new_batch_end(&ends, told), news, "{ends}");
            assert!(is_new_batch_end(&ends, None));
        }
    }

    #[test]
    fn undeliverable_notifications_are_dead_lettered_oldest_first() {
        let mut known = NotificationsFold::default();
        let raise = |known: &mut NotificationsFold, n: u128, target: &str| {
            let raised = NotificationRaised {
                id: NotificationId(uuid::Uuid::from_u128(n)),
                targets: vec![target.to_owned()],
                ..notification_record(0, DeliveryStatus::Delivered).raised
            };
            let new = SystemEvent::from(raised).encode(Turn(0));
            let topic = StreamId::System(SystemTopic::Notifications);
            let mut event = envelope(topic, &new.kind, new.version, new.payload);
            event.seq = known.head().next();
            event.recorded_at = Timestamp(known.head().0.cast_signed());
            known.apply(&event.as_event_ref()).expect("folds");
        };
        for n in 1..=3 {
            raise(&mut known, n, "gone");
        }
        assert_eq!(dead_letter_events(&known, &["gone"], 10), []);
        let ids = |events: Vec<SystemEvent>| -> Vec<u128> {
            let dead = events.into_iter().map(|event| match event {
                SystemEvent::NotificationDeadLettered(dead) => dead.id.0.as_u128(),
                other => panic!("{other:?}"),
            });
            dead.collect()
        };
        assert_eq!(ids(dead_letter_events(&known, &["here"], 10)), [1, 2, 3]);
        assert_eq!(ids(dead_letter_events(&known, &["here"], 2)), [1, 2]);
        for n in 0..=DUE_KEPT_MAX as u128 {
            raise(&mut known, 100 + n, "here");
        }
        assert_eq!(ids(dead_letter_events(&known, &["gone", "here"], 10)), [100], "one more than may wait");
    }

    #[test]
    fn retry_waits_grow_to_the_maximum_and_are_deterministic() {
        let id = NotificationId(uuid::Uuid::from_u128(9));
        let waits: Vec<u64> = (1..=5).map(|attempt| RETRIES.wait_ms(id, "a", attempt)).collect();
        for (wait, least) in waits.iter().zip([1000, 4000, 10_000, 10_000, 10_000]) {
            assert!((least..least + least / JITTER_DIVISOR).contains(wait), "{waits:?}");
        }
        assert_eq!(waits[2], RETRIES.wait_ms(id, "a", 3));
        assert!(waits[2] != waits[3] || waits[3] != waits[4], "{waits:?}");
        let far = DeliveryRetryPolicy { attempts_max: 100, initial_wait_ms: u64::MAX, max_wait_ms: u64::MAX };
        assert_eq!(far.wait_ms(id, "a", 99), u64::MAX);
    }

    #[test]
    fn attempt_ends_in_delivery_retry_or_dead_letter() {
        let due = |attempts| notification_record(attempts, DeliveryStatus::Due(Timestamp(0)));
        let now = Timestamp(5_000_000);
        let ends = |record: &NotificationRecord, sent: &DeliveryAttemptResult| {
            attempt_event(record, "a", sent, RETRIES, now)
        };
        assert!(
            matches!(ends(&due(2), &DeliveryAttemptResult::Delivered), Some(SystemEvent::NotificationDelivered(e)) if e.attempt == 3)
        );
        let retry = |sent| match ends(&due(0), &sent) {
            Some(SystemEvent::NotificationFailed(e)) => (e.attempt, e.retry_at.ms_since(now)),
            other => panic!("{other:?}"),
        };
        assert!((1000..1250).contains(&retry(failed_attempt(None)).1));
        assert_eq!(retry(failed_attempt(Some(60_000))), (1, 60_000));
        assert_eq!(retry(failed_attempt(Some(u64::MAX))).1, RETRY_AFTER_MS_MAX);
        assert!((1000..1250).contains(&retry(failed_attempt(Some(1))).1), "never sooner than it would be");
        for (attempts, sent) in [
            (2, failed_attempt(Some(60_000))),
            (0, DeliveryAttemptResult::Unsubscribed { why: "no".to_owned() }),
        ] {
            let dead = ends(&due(attempts), &sent);
            assert!(matches!(dead, Some(SystemEvent::NotificationDeadLettered(_))), "{dead:?}");
        }
        for telling in [DeliveryStatus::Delivered, DeliveryStatus::Dead, DeliveryStatus::Dropped] {
            assert_eq!(ends(&notification_record(1, telling), &DeliveryAttemptResult::Delivered), None);
        }
        assert_eq!(attempt_event(&due(0), "b", &DeliveryAttemptResult::Delivered, RETRIES, now), None);
    }

    #[test]
    fn due_time_beyond_the_longest_wait_is_due_now() {
        let now = Timestamp(5_000_000);
        let late = |ms: u64, attempts| is_due_time_too_far(now.plus_ms(ms), attempts, RETRIES, now);
        assert!(late(1, 0), "a first attempt waits for nothing: it was raised by a clock ahead");
        assert!(!late(RETRY_AFTER_MS_MAX, 1) && late(RETRY_AFTER_MS_MAX + CLOCK_SKEW_MAX_MS + 1, 1));
        assert!(!late(0, 0), "it is due, and needs no excuse");
    }
}
