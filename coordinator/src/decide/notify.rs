//! What an event of the log gives to be told elsewhere; and what becomes of a notification once a target took it, or
//! did not. Pure.

use docket_schema::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{BatchId, NotificationId, RunId, StreamId, SystemTopic, TaskId, Timestamp},
    system::{
        BlockKind, Budget, BudgetSpent, DUE_KEPT_MAX, EndCounts, NotificationDeadLettered,
        NotificationDelivered, NotificationFailed, NotificationRecord, Notifications, SystemEvent, Telling,
        failed_words,
    },
    task::{
        DiscardWhy, TaskBlocked, TaskBlockedWhy, TaskDeliveryBlocked, TaskDiscarded, TaskEvent, TaskState,
    },
    wire::BatchView,
};

use super::CLOCKS_APART_MS;

/// Longest wait that a receiver may ask for.
pub const RETRY_AFTER_MS_MAX: u64 = 6 * 3_600_000;

/// How many times longer each wait is than the one before.
const GROWTH: u64 = 4;

/// A wait is lengthened by up to this part of it, so that what failed together does not come back together.
const JITTER_PART: u64 = 4;

/// What is to be told, before it is known of what task or batch more than its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// A task needs a person.
    Blocked {
        /// Which.
        task: TaskId,
        /// Its run.
        run: RunId,
        /// For what.
        block: BlockKind,
        /// What is asked.
        question: Option<String>,
    },
    /// A task was given up.
    Failed {
        /// Which.
        task: TaskId,
        /// Its last run.
        run: RunId,
        /// Why.
        reason: DiscardWhy,
        /// One line for a person.
        message: String,
    },
    /// A batch may use no more.
    Spent {
        /// Which.
        batch: BatchId,
        /// What was set.
        budget: Budget,
        /// One line for a person.
        message: String,
    },
}

/// What an event is to whoever tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// What is to be told.
    pub tell: Option<Tell>,
    /// A task ended: its batch may have.
    pub ended: Option<TaskId>,
}

/// Kinds of a task's events that say something; others are not read.
const TASK_KINDS: [&str; 8] = [
    "TaskBlocked",
    "TaskDeliveryBlocked",
    "TaskDiscarded",
    "TaskCompleted",
    "TaskCancelled",
    "TaskDelivered",
    "TaskAccepted",
    "TaskNeededNoDelivery",
];

/// What an event says.
///
/// # Errors
/// [`DecodeError`]: a newer docket wrote it.
pub fn seen(event: &Envelope) -> Result<Seen, DecodeError> {
    match &event.stream {
        StreamId::Task(task) if TASK_KINDS.contains(&event.kind.as_str()) => {
            Ok(of_task(*task, TaskEvent::decode(&event.kind, event.version, event.payload.as_str())?))
        }
        StreamId::System(SystemTopic::Budgets) if event.kind == "BudgetSpent" => {
            let event = SystemEvent::decode(&event.kind, event.version, event.payload.as_str())?;
            let SystemEvent::BudgetSpent(BudgetSpent { batch, budget, message }) = event else {
                return Ok(Seen::default());
            };
            Ok(Seen { tell: Some(Tell::Spent { batch, budget, message }), ended: None })
        }
        StreamId::Task(_) | StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => {
            Ok(Seen::default())
        }
    }
}

fn of_task(task: TaskId, event: TaskEvent) -> Seen {
    match event {
        TaskEvent::TaskBlocked(TaskBlocked { run, why, message, .. }) => {
            let block = match why {
                TaskBlockedWhy::Person => BlockKind::Person,
                TaskBlockedWhy::Provider => BlockKind::Provider,
                TaskBlockedWhy::WorkerFault => BlockKind::WorkerFault,
                // It goes on by itself, a person let it rest, or its batch's budget is told of once for all of it.
                TaskBlockedWhy::Child
                | TaskBlockedWhy::Outage
                | TaskBlockedWhy::Paused
                | TaskBlockedWhy::Budget => return Seen::default(),
            };
            Seen { tell: Some(Tell::Blocked { task, run, block, question: message }), ended: None }
        }
        TaskEvent::TaskDeliveryBlocked(TaskDeliveryBlocked { run, message, .. }) => {
            let block = BlockKind::Delivery;
            Seen { tell: Some(Tell::Blocked { task, run, block, question: Some(message) }), ended: None }
        }
        TaskEvent::TaskDiscarded(TaskDiscarded { run, why, message }) => {
            Seen { tell: Some(Tell::Failed { task, run, reason: why, message }), ended: Some(task) }
        }
        // The last three end a task whose delivery was blocked, and change nothing of another.
        TaskEvent::TaskCompleted(_)
        | TaskEvent::TaskCancelled(_)
        | TaskEvent::TaskDelivered(_)
        | TaskEvent::TaskAccepted(_)
        | TaskEvent::TaskNeededNoDelivery(_) => Seen { tell: None, ended: Some(task) },
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
        | TaskEvent::TaskDelegated(_) => Seen::default(),
    }
}

/// Whether tasks that wait for the one that ended may wait for ever: for one that has completed none does.
pub fn holds_others(event: &Envelope) -> bool {
    matches!(event.kind.as_str(), "TaskDiscarded" | "TaskCancelled")
}

/// How a batch's tasks ended, where nothing of it goes on by itself any more: all have ended, or wait for some that
/// failed.
pub fn ends(view: &BatchView) -> Option<EndCounts> {
    let count = |state| view.states.iter().filter(|of| of.state == state).map(|of| of.count).sum();
    let open: u64 = view.states.iter().filter(|of| !of.state.is_ended()).map(|of| of.count).sum();
    // Those that wait for what failed are pending, and none of them is counted twice.
    (open == view.behind_failed).then(|| EndCounts {
        all: view.tasks,
        completed: count(TaskState::Completed),
        cancelled: count(TaskState::Cancelled),
        discarded: count(TaskState::Discarded),
        behind_failed: view.behind_failed,
    })
}

/// Whether a batch's end is news: there are more tasks than when it was told, or as many that ended otherwise. One of
/// which tasks were archived has fewer.
pub fn is_news(ends: &EndCounts, told: Option<EndCounts>) -> bool {
    told.is_none_or(|told| ends.all > told.all || (ends.all == told.all && *ends != told))
}

/// Deliveries that are given up without an attempt: to who is not in the settings any more, and the oldest of what is
/// too much for one target. At most `most` of them.
pub fn given_up(known: &Notifications, targets: &[&str], most: usize) -> Vec<SystemEvent> {
    let mut given_up = Vec::new();
    for (target, due) in known.due_by_target() {
        let (beyond, why) = if targets.contains(&target) {
            (due.saturating_sub(DUE_KEPT_MAX), format!("more than {DUE_KEPT_MAX} waited for this target"))
        } else {
            (due, "the coordinator's settings have no such target any more".to_owned())
        };
        let room = most.saturating_sub(given_up.len());
        given_up.extend(known.due_to(target).take(beyond.min(room)).map(|(_, record)| {
            let attempt = record.to(target).map_or(0, |delivery| delivery.attempts);
            let (id, target) = (record.raised.id, target.to_owned());
            SystemEvent::from(NotificationDeadLettered { id, target, attempt, why: why.clone() })
        }));
    }
    given_up
}

/// How often, and how soon, a target that did not take something is told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts, at least 1.
    pub attempts_max: u32,
    /// The wait after the first.
    pub first_ms: u64,
    /// The longest wait; each is four times the one before, up to this.
    pub most_ms: u64,
}

impl Retries {
    /// The wait after an attempt, from 1, with what is added for the sake of others: that follows from what is told, so
    /// that it is the same whoever works it out.
    pub fn wait_ms(self, id: NotificationId, target: &str, attempt: u32) -> u64 {
        let grown = GROWTH.saturating_pow(attempt.saturating_sub(1)).saturating_mul(self.first_ms);
        let wait = grown.min(self.most_ms);
        let hash = blake3::hash(format!("docket retry\0{id}\0{target}\0{attempt}").as_bytes());
        let mut draw = [0; 8];
        draw.copy_from_slice(&hash.as_bytes()[..8]);
        wait.saturating_add(u64::from_le_bytes(draw) % (wait / JITTER_PART).max(1))
    }
}

/// Whether what is due at `due_at`, after so many attempts, is due further off than any wait lasts: a first attempt waits
/// for nothing. It was decided by a clock that was ahead, and is due.
pub fn waits_too_long_to_tell(due_at: Timestamp, attempts: u32, retries: Retries, now: Timestamp) -> bool {
    let longest_ms = retries.most_ms.saturating_add(retries.most_ms / JITTER_PART).max(RETRY_AFTER_MS_MAX);
    due_at > now && (attempts == 0 || due_at.ms_since(now) > longest_ms.saturating_add(CLOCKS_APART_MS))
}

/// What a target made of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It took it.
    Taken,
    /// It did not.
    Refused {
        /// What went wrong, for a person; without secrets.
        why: String,
        /// How long it wants to be left alone.
        retry_after_ms: Option<u64>,
    },
    /// It wants nothing, ever.
    Gone {
        /// In its words.
        why: String,
    },
}

/// What to write of an attempt; nothing where the notification waits for none any more.
pub fn attempted(
    record: &NotificationRecord,
    target: &str,
    sent: &Sent,
    retries: Retries,
    now: Timestamp,
) -> Option<SystemEvent> {
    let delivery = record.to(target)?;
    let Telling::Due(_) = delivery.telling else { return None };
    let (id, target, attempt) = (record.raised.id, target.to_owned(), delivery.attempts.saturating_add(1));
    Some(match sent {
        Sent::Taken => NotificationDelivered { id, target, attempt }.into(),
        Sent::Gone { why } => NotificationDeadLettered { id, target, attempt, why: failed_words(why) }.into(),
        Sent::Refused { why, .. } if attempt >= retries.attempts_max => {
            NotificationDeadLettered { id, target, attempt, why: failed_words(why) }.into()
        }
        Sent::Refused { why, retry_after_ms } => {
            let asked = retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX);
            let wait = retries.wait_ms(id, &target, attempt).max(asked);
            let retry_at = now.plus_ms(wait);
            NotificationFailed { id, target, attempt, why: failed_words(why), retry_at }.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_schema::{
        event::{Head, Payload},
        ids::{Epoch, Position, Seq, Turn},
        system::{DeliveryRecord, Notice, NotificationRaised, TopicFold as _},
        task::{
            DeliveryBlockedWhy, TaskAccepted, TaskCancelled, TaskCompleted, TaskDelivered,
            TaskNeededNoDelivery, TaskUnblocked,
        },
    };

    fn run() -> RunId {
        RunId(uuid::Uuid::from_u128(2))
    }

    fn task() -> TaskId {
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

    fn of(event: impl Into<TaskEvent>) -> Seen {
        let new = event.into().encode(Turn(0));
        seen(&envelope(StreamId::Task(task()), &new.kind, new.version, new.payload)).expect("is known")
    }

    #[test]
    fn what_needs_a_person_is_told_and_what_goes_on_by_itself_is_not() {
        let blocked = |why| {
            of(TaskBlocked {
                run: run(),
                why,
                message: Some("?".to_owned()),
                wake_at: None,
                unverified: None,
            })
        };
        let block = |seen: Seen| match seen.tell {
            Some(Tell::Blocked { block, question, .. }) => Some((block, question)),
            _ => None,
        };
        let asked = Some("?".to_owned());
        for (why, told) in [
            (TaskBlockedWhy::Person, Some((BlockKind::Person, asked.clone()))),
            (TaskBlockedWhy::Provider, Some((BlockKind::Provider, asked.clone()))),
            (TaskBlockedWhy::WorkerFault, Some((BlockKind::WorkerFault, asked))),
            (TaskBlockedWhy::Child, None),
            (TaskBlockedWhy::Paused, None),
            (TaskBlockedWhy::Budget, None),
            (TaskBlockedWhy::Outage, None),
        ] {
            assert_eq!(block(blocked(why)), told, "{why:?}");
        }
        let conflict = TaskDeliveryBlocked {
            run: run(),
            branch: "b".to_owned(),
            why: DeliveryBlockedWhy::Conflict,
            paths: Vec::new(),
            kept: None,
            message: "a.txt".to_owned(),
            by: String::new(),
        };
        assert_eq!(block(of(conflict)), Some((BlockKind::Delivery, Some("a.txt".to_owned()))));
        let gone = of(TaskDiscarded { run: run(), why: DiscardWhy::Poison, message: "m".to_owned() });
        assert!(matches!(gone.tell, Some(Tell::Failed { .. })) && gone.ended == Some(task()), "{gone:?}");
        let (by, comment) = ("ann".to_owned(), String::new());
        let delivered = TaskDelivered {
            run: run(),
            branch: "b".to_owned(),
            commit: "c".to_owned(),
            remote: None,
            by: by.clone(),
        };
        for end in [
            of(TaskCompleted { run: run(), unverified: None }),
            of(TaskCancelled { by: by.clone(), reason: String::new() }),
            of(delivered),
            of(TaskNeededNoDelivery { run: run(), by: by.clone() }),
            of(TaskAccepted { run: run(), by, comment }),
        ] {
            assert_eq!(end, Seen { tell: None, ended: Some(task()) });
        }
        assert_eq!(of(TaskUnblocked {}), Seen::default());
    }

    #[test]
    fn an_event_of_a_newer_docket_is_an_error_where_it_matters_and_nothing_elsewhere() {
        let payload = || Payload::parse("{}".to_owned()).expect("json");
        assert!(seen(&envelope(StreamId::Task(task()), "TaskBlocked", 99, payload())).is_err());
        assert!(seen(&envelope(StreamId::Task(task()), "TaskPraised", 1, payload())).is_ok());
        assert!(seen(&envelope(StreamId::Run(run()), "TaskBlocked", 99, payload())).is_ok());
    }

    fn record(attempts: u32, telling: Telling) -> NotificationRecord {
        NotificationRecord {
            raised: NotificationRaised {
                id: NotificationId(uuid::Uuid::from_u128(9)),
                source: None,
                position: None,
                notice: Notice::Test { by: "ann".to_owned() },
                targets: vec!["a".to_owned()],
            },
            raised_at: Timestamp(0),
            deliveries: vec![DeliveryRecord {
                target: "a".to_owned(),
                telling,
                attempts,
                why: None,
                changed_at: Timestamp(0),
            }],
        }
    }

    const RETRIES: Retries = Retries { attempts_max: 3, first_ms: 1000, most_ms: 10_000 };

    fn refused(retry_after_ms: Option<u64>) -> Sent {
        Sent::Refused { why: "no".to_owned(), retry_after_ms }
    }

    #[test]
    fn an_end_is_news_where_there_are_more_tasks_or_they_ended_otherwise() {
        let counts = |all, completed, behind_failed| EndCounts {
            all,
            completed,
            behind_failed,
            ..EndCounts::default()
        };
        let told = Some(counts(3, 1, 1));
        for (ends, news) in [
            (counts(3, 1, 1), false),
            (counts(3, 2, 0), true),
            (counts(4, 1, 1), true),
            (counts(2, 2, 0), false),
        ] {
            assert_eq!(is_news(&ends, told), news, "{ends}");
            assert!(is_news(&ends, None));
        }
    }

    #[test]
    fn what_would_never_be_told_is_given_up_the_oldest_first() {
        let mut known = Notifications::default();
        let raise = |known: &mut Notifications, n: u128, target: &str| {
            let raised = NotificationRaised {
                id: NotificationId(uuid::Uuid::from_u128(n)),
                targets: vec![target.to_owned()],
                ..record(0, Telling::Delivered).raised
            };
            let new = SystemEvent::from(raised).encode(Turn(0));
            let topic = StreamId::System(SystemTopic::Notifications);
            let mut event = envelope(topic, &new.kind, new.version, new.payload);
            event.seq = known.head().next();
            event.recorded_at = Timestamp(known.head().0.cast_signed());
            known.apply(&event.by_ref()).expect("folds");
        };
        for n in 1..=3 {
            raise(&mut known, n, "gone");
        }
        assert_eq!(given_up(&known, &["gone"], 10), []);
        let ids = |events: Vec<SystemEvent>| -> Vec<u128> {
            let dead = events.into_iter().map(|event| match event {
                SystemEvent::NotificationDeadLettered(dead) => dead.id.0.as_u128(),
                other => panic!("{other:?}"),
            });
            dead.collect()
        };
        assert_eq!(ids(given_up(&known, &["here"], 10)), [1, 2, 3]);
        assert_eq!(ids(given_up(&known, &["here"], 2)), [1, 2]);
        for n in 0..=DUE_KEPT_MAX as u128 {
            raise(&mut known, 100 + n, "here");
        }
        assert_eq!(ids(given_up(&known, &["gone", "here"], 10)), [100], "one more than may wait");
    }

    #[test]
    fn waits_grow_to_their_bound_and_are_the_same_for_the_same() {
        let id = NotificationId(uuid::Uuid::from_u128(9));
        let waits: Vec<u64> = (1..=5).map(|attempt| RETRIES.wait_ms(id, "a", attempt)).collect();
        for (wait, least) in waits.iter().zip([1000, 4000, 10_000, 10_000, 10_000]) {
            assert!((least..least + least / JITTER_PART).contains(wait), "{waits:?}");
        }
        assert_eq!(waits[2], RETRIES.wait_ms(id, "a", 3));
        assert!(waits[2] != waits[3] || waits[3] != waits[4], "{waits:?}");
        let far = Retries { attempts_max: 100, first_ms: u64::MAX, most_ms: u64::MAX };
        assert_eq!(far.wait_ms(id, "a", 99), u64::MAX);
    }

    #[test]
    fn an_attempt_ends_in_delivery_another_attempt_or_a_dead_letter() {
        let due = |attempts| record(attempts, Telling::Due(Timestamp(0)));
        let now = Timestamp(5_000_000);
        let ends = |record: &NotificationRecord, sent: &Sent| attempted(record, "a", sent, RETRIES, now);
        assert!(
            matches!(ends(&due(2), &Sent::Taken), Some(SystemEvent::NotificationDelivered(e)) if e.attempt == 3)
        );
        let retry = |sent| match ends(&due(0), &sent) {
            Some(SystemEvent::NotificationFailed(e)) => (e.attempt, e.retry_at.ms_since(now)),
            other => panic!("{other:?}"),
        };
        assert!((1000..1250).contains(&retry(refused(None)).1));
        assert_eq!(retry(refused(Some(60_000))), (1, 60_000));
        assert_eq!(retry(refused(Some(u64::MAX))).1, RETRY_AFTER_MS_MAX);
        assert!((1000..1250).contains(&retry(refused(Some(1))).1), "never sooner than it would be");
        for (attempts, sent) in [(2, refused(Some(60_000))), (0, Sent::Gone { why: "no".to_owned() })] {
            let dead = ends(&due(attempts), &sent);
            assert!(matches!(dead, Some(SystemEvent::NotificationDeadLettered(_))), "{dead:?}");
        }
        for telling in [Telling::Delivered, Telling::Dead, Telling::Dropped] {
            assert_eq!(ends(&record(1, telling), &Sent::Taken), None);
        }
        assert_eq!(attempted(&due(0), "b", &Sent::Taken, RETRIES, now), None);
    }

    #[test]
    fn wait_beyond_its_longest_length_is_over() {
        let now = Timestamp(5_000_000);
        let late = |ms: u64, attempts| waits_too_long_to_tell(now.plus_ms(ms), attempts, RETRIES, now);
        assert!(late(1, 0), "a first attempt waits for nothing: it was raised by a clock ahead");
        assert!(!late(RETRY_AFTER_MS_MAX, 1) && late(RETRY_AFTER_MS_MAX + CLOCKS_APART_MS + 1, 1));
        assert!(!late(0, 0), "it is due, and needs no excuse");
    }
}
