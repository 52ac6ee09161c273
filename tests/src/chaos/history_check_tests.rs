//! Runs the checker on doctored histories: it must detect each violation, and find none in a valid history.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, EventRef, Head, NewEvent, Payload, TypedEvent as _, verify_and_advance},
    ids::{
        Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp, TreeHash, Turn,
    },
    run::{FailureKind, RunEnded, RunEvent, RunOutcome},
    task::{
        TaskCompleted, TaskEvent, TaskLeaseExpired, TaskLeased, TaskMadeAvailable, TaskRunFailed,
        TaskSubmitted,
    },
};
use uuid::Uuid;

use super::{
    AckedAppend, AckedLease, AckedRenewal, Acknowledged, CommittedEvent, RecordedLog, Violation,
    check_history,
};
use crate::conformance::fixture::task_spec;

const A: TaskId = TaskId(Uuid::from_u128(0xa));
const B: TaskId = TaskId(Uuid::from_u128(0xb));
const RUN_A: RunId = RunId(Uuid::from_u128(0x1a));
const RUN_B: RunId = RunId(Uuid::from_u128(0x1b));
const FIRST: IncarnationId = IncarnationId(Uuid::from_u128(1));
const SECOND: IncarnationId = IncarnationId(Uuid::from_u128(2));

/// An event of a doctored history. Chains are built once all events are final.
#[derive(Clone)]
struct DoctoredEvent {
    stream: StreamId,
    epoch: Epoch,
    event: NewEvent,
}

fn task_event(id: TaskId, epoch: u64, event: impl Into<TaskEvent>) -> DoctoredEvent {
    DoctoredEvent { stream: StreamId::Task(id), epoch: Epoch(epoch), event: event.into().encode(Turn(0)) }
}

fn run_event(id: RunId, epoch: u64, kind: &str) -> DoctoredEvent {
    let payload = Payload::parse(format!(r#"{{"of":"{kind}"}}"#)).expect("JSON");
    let event = NewEvent { kind: kind.to_owned(), version: 1, turn: Turn(1), payload };
    DoctoredEvent { stream: StreamId::Run(id), epoch: Epoch(epoch), event }
}

fn tree_hash(n: u8) -> TreeHash {
    TreeHash([n; 32])
}

fn run_ended(id: RunId, epoch: u64, n: u8) -> DoctoredEvent {
    let end = RunEnded {
        result: RunOutcome::Succeeded,
        summary: None,
        tree: Some(tree_hash(n)),
        unverified: None,
        decision: None,
    };
    DoctoredEvent {
        stream: StreamId::Run(id),
        epoch: Epoch(epoch),
        event: RunEvent::from(end).encode(Turn(2)),
    }
}

fn task_submitted(id: TaskId) -> DoctoredEvent {
    task_event(
        id,
        0,
        TaskSubmitted { spec: task_spec("a"), by: String::new(), forked_from: None, delegated_by: None },
    )
}

fn task_leased(id: TaskId, run: RunId, epoch: u64, worker: IncarnationId) -> DoctoredEvent {
    task_event(id, epoch, TaskLeased { epoch: Epoch(epoch), run, worker, worker_name: String::new() })
}

fn lease_expired(id: TaskId, epoch: u64) -> DoctoredEvent {
    task_event(id, epoch, TaskLeaseExpired { epoch: Epoch(epoch) })
}

/// A history and the acknowledgements sent while it was written.
#[derive(Clone)]
struct DoctoredHistory {
    lines: Vec<DoctoredEvent>,
    acked: Acknowledged,
    trees: BTreeMap<TaskId, TreeHash>,
}

/// A is taken over after its first worker went silent; B completes at once.
fn valid_history() -> DoctoredHistory {
    let lines = vec![
        task_submitted(A),
        task_submitted(B),
        task_leased(A, RUN_A, 1, FIRST),
        run_event(RUN_A, 1, "RunStarted"),
        task_leased(B, RUN_B, 1, SECOND),
        run_event(RUN_A, 1, "ModelRequested"),
        lease_expired(A, 1),
        run_event(RUN_B, 1, "RunStarted"),
        run_ended(RUN_B, 1, 2),
        task_event(B, 1, TaskCompleted { run: RUN_B, unverified: None }),
        task_leased(A, RUN_A, 2, SECOND),
        run_event(RUN_A, 2, "RunRecovered"),
        run_event(RUN_A, 2, "ModelAnswered"),
        run_ended(RUN_A, 2, 1),
        task_event(A, 2, TaskCompleted { run: RUN_A, unverified: None }),
    ];
    let lease = |task, run, epoch, worker, told| AckedLease {
        task,
        run,
        epoch: Epoch(epoch),
        worker,
        acknowledged_at: told,
    };
    let append = |run, epoch, after, lines: &[&DoctoredEvent]| AckedAppend {
        run,
        epoch: Epoch(epoch),
        after: Seq(after),
        events: lines.iter().map(|line| line.event.clone()).collect(),
        head: Head::EMPTY,
    };
    let appends = vec![
        append(RUN_A, 1, 0, &[&lines[3]]),
        append(RUN_A, 1, 1, &[&lines[5]]),
        append(RUN_A, 2, 2, &[&lines[11], &lines[12]]),
        append(RUN_B, 1, 0, &[&lines[7], &lines[8]]),
    ];
    let leases =
        vec![lease(A, RUN_A, 1, FIRST, 10), lease(B, RUN_B, 1, SECOND, 20), lease(A, RUN_A, 2, SECOND, 30)];
    let renewal = |task, epoch, asked| AckedRenewal { task, epoch: Epoch(epoch), requested_at: asked };
    // The first worker's last renewal was in flight while the other lease was granted.
    let renewals = vec![renewal(A, 1, 11), renewal(A, 1, 29), renewal(A, 2, 31), renewal(B, 1, 40)];
    let mut world = DoctoredHistory {
        lines,
        acked: Acknowledged { tasks: BTreeSet::from([A, B]), leases, renewals, appends },
        trees: BTreeMap::from([(A, tree_hash(1)), (B, tree_hash(2))]),
    };
    // The head that the coordinator reported is the one in the valid history.
    let log = world.to_log();
    for append in &mut world.acked.appends {
        let at = usize::try_from(append.after.0).expect("small") + append.events.len() - 1;
        let event = &log.streams[&StreamId::Run(append.run)][at].event;
        append.head = Head { seq: event.seq, hash: event.hash };
    }
    world
}

impl DoctoredHistory {
    fn to_log(&self) -> RecordedLog {
        let mut heads: BTreeMap<StreamId, Head> = BTreeMap::new();
        let mut feed = Vec::new();
        for (at, line) in (1..).zip(&self.lines) {
            let head = heads.entry(line.stream.clone()).or_insert(Head::EMPTY);
            let NewEvent { kind, version, turn, payload } = &line.event;
            let mut event = EventRef {
                seq: head.seq.next(),
                position: Position(at),
                recorded_at: Timestamp(0),
                turn: *turn,
                epoch: line.epoch,
                kind,
                version: *version,
                payload: payload.as_str(),
                prev_hash: head.hash,
                hash: EventHash::ZERO,
            }
            .to_envelope(line.stream.clone());
            event.hash = event.compute_hash();
            *head = verify_and_advance(*head, &event).expect("it follows");
            feed.push(event);
        }
        RecordedLog::new(feed, heads, |position| i64::try_from(position.0).expect("small"))
    }

    fn check(&self) -> Vec<Violation> {
        check_history(&self.to_log(), &self.acked, &self.trees)
    }

    fn without_line(mut self, at: usize) -> Self {
        self.lines.remove(at);
        self
    }

    fn with_line(mut self, at: usize, line: DoctoredEvent) -> Self {
        self.lines.insert(at, line);
        self
    }

    /// Checks the log alone: its hashes differ from the acknowledged ones.
    fn without_acknowledgements(mut self) -> Self {
        self.acked.appends.clear();
        self
    }
}

#[test]
fn valid_history_has_no_violation() {
    assert_eq!(valid_history().check(), []);
}

/// Doctors events and rebuilds their chains, so that only their meaning is wrong.
fn doctored_meanings() -> Vec<Violation> {
    use Violation as V;
    let seq = Seq;
    let (one, two) = (Epoch(1), Epoch(2));
    let cases: Vec<(&str, DoctoredHistory, Vec<Violation>)> = vec![
        (
            "a submit that is gone",
            {
                let mut world = valid_history();
                let c = TaskId(Uuid::from_u128(0xc));
                world.acked.tasks.insert(c);
                world
            },
            vec![V::SubmitLost { task: TaskId(Uuid::from_u128(0xc)) }],
        ),
        (
            "submitted twice",
            valid_history().with_line(2, task_submitted(A)),
            vec![V::SubmittedTwice { task: A }],
        ),
        (
            "a lease that was given and is not in the log",
            {
                let mut world = valid_history();
                world.acked.leases.push(AckedLease {
                    task: B,
                    epoch: two,
                    run: RUN_B,
                    worker: FIRST,
                    acknowledged_at: 50,
                });
                world
            },
            vec![V::LeaseLost { task: B, epoch: two }],
        ),
        (
            "an epoch given to two",
            {
                let mut world = valid_history();
                world.acked.leases.push(AckedLease {
                    task: A,
                    epoch: one,
                    run: RUN_A,
                    worker: SECOND,
                    acknowledged_at: 50,
                });
                world
            },
            vec![V::LeaseLost { task: A, epoch: one }, V::TwoOwners { task: A, epoch: one }],
        ),
        (
            "renewed for who had lost it",
            {
                let mut world = valid_history();
                world.acked.renewals.push(AckedRenewal { task: A, epoch: one, requested_at: 31 });
                world
            },
            vec![V::RenewedAfterTakeover { task: A, epoch: one }],
        ),
        (
            "an epoch leased twice, to two",
            valid_history().with_line(7, task_leased(A, RUN_A, 1, SECOND)),
            vec![
                V::LeaseLost { task: A, epoch: one },
                V::TwoOwners { task: A, epoch: one },
                V::EpochNotRising { task: A, epoch: one },
                V::LeasedWhileHeld { task: A, epoch: two },
                V::OutsideLease { run: RUN_A, seq: seq(1), epoch: one },
                V::OutsideLease { run: RUN_A, seq: seq(2), epoch: one },
            ],
        ),
        (
            "leased while another has it",
            valid_history().without_line(6),
            vec![V::LeasedWhileHeld { task: A, epoch: two }],
        ),
        (
            "a lease that ends twice",
            valid_history().with_line(7, lease_expired(A, 1)),
            vec![V::EndWithoutLease { task: A, seq: seq(4) }],
        ),
        (
            "completed by nobody",
            valid_history().with_line(14, lease_expired(A, 2)),
            vec![V::EndWithoutLease { task: A, seq: seq(6) }],
        ),
        (
            "an event of nobody's",
            valid_history().without_acknowledgements().with_line(13, run_event(RUN_A, 3, "ModelAnswered")),
            vec![
                V::UnknownLease { run: RUN_A, seq: seq(5), epoch: Epoch(3) },
                V::EpochDecreased { run: RUN_A, seq: seq(6), epoch: two },
            ],
        ),
        (
            "a zombie before the other began",
            valid_history().without_acknowledgements().with_line(7, run_event(RUN_A, 1, "ModelAnswered")),
            vec![V::OutsideLease { run: RUN_A, seq: seq(3), epoch: one }],
        ),
        (
            "a zombie in between",
            valid_history().without_acknowledgements().with_line(12, run_event(RUN_A, 1, "ModelAnswered")),
            vec![
                V::OutsideLease { run: RUN_A, seq: seq(4), epoch: one },
                V::EpochDecreased { run: RUN_A, seq: seq(4), epoch: one },
            ],
        ),
        (
            "before its lease",
            valid_history().without_acknowledgements().with_line(10, run_event(RUN_A, 2, "RunRecovered")),
            vec![V::OutsideLease { run: RUN_A, seq: seq(3), epoch: two }],
        ),
        (
            "a run that begins twice",
            valid_history().without_acknowledgements().with_line(12, run_event(RUN_A, 2, "RunStarted")),
            vec![V::StartedTwice { run: RUN_A }],
        ),
        (
            "after the run's end",
            valid_history().with_line(9, run_event(RUN_B, 1, "ModelAnswered")),
            vec![
                V::EventAfterEnd { stream: StreamId::Run(RUN_B), seq: seq(3) },
                V::RunNotEnded { run: RUN_B },
            ],
        ),
        (
            "after the task's end",
            valid_history().with_line(10, task_event(B, 0, TaskMadeAvailable {})),
            vec![V::EventAfterEnd { stream: StreamId::Task(B), seq: seq(4) }],
        ),
        (
            "completed twice",
            valid_history().with_line(10, task_event(B, 1, TaskCompleted { run: RUN_B, unverified: None })),
            vec![V::EventAfterEnd { stream: StreamId::Task(B), seq: seq(4) }, V::CompletedTwice { task: B }],
        ),
        (
            "not completed",
            valid_history().without_line(14),
            vec![V::NotCompleted { task: A, last: "TaskLeased".to_owned() }],
        ),
        (
            "a run that failed",
            {
                let why = TaskRunFailed {
                    run: RUN_A,
                    why: FailureKind::Environment,
                    message: "it burns".to_owned(),
                    retry_at: Timestamp(0),
                    next: None,
                };
                let mut world = valid_history();
                world.lines[6] = task_event(A, 1, why);
                world
            },
            vec![V::RunFailed { task: A, message: "it burns".to_owned() }],
        ),
        (
            "another tree",
            {
                let mut world = valid_history();
                world.trees.insert(B, tree_hash(9));
                world
            },
            vec![V::WrongTree { task: B, found: Some(tree_hash(2)) }],
        ),
        (
            "an event that nobody can read",
            {
                let mut world = valid_history();
                world.lines[6].event.kind = "TaskMislaid".to_owned();
                world
            },
            vec![
                V::Unreadable { stream: StreamId::Task(A), seq: seq(3) },
                V::LeasedWhileHeld { task: A, epoch: two },
            ],
        ),
    ];
    let mut all = Vec::new();
    for (what, world, mut wanted) in cases {
        wanted.sort();
        assert_eq!(world.check(), wanted, "{what}");
        all.extend(wanted);
    }
    all
}

/// Acknowledged appends that the log is missing or contains differently.
fn doctored_appends() -> Vec<Violation> {
    let lost = |n| Violation::AppendLost { run: RUN_B, seq: Seq(n) };
    // The last event is missing, as after a commit that did not reach the disk.
    let mut world = valid_history();
    world.lines.remove(8);
    let found = world.check();
    assert!(found.contains(&lost(2)) && found.contains(&Violation::RunNotEnded { run: RUN_B }), "{found:?}");
    // Another event is in its place.
    let mut world = valid_history();
    world.lines[7] = run_event(RUN_B, 1, "RunRecovered");
    assert_eq!(world.check(), [lost(1), lost(2)]);
    // The same events under an epoch other than the writer's.
    let mut world = valid_history();
    world.acked.appends[3].epoch = Epoch(2);
    assert_eq!(world.check(), [lost(1), lost(2)]);
    // The whole run is missing.
    let mut world = valid_history();
    world.lines.retain(|line| line.stream != StreamId::Run(RUN_B));
    let found = world.check();
    assert!(found.contains(&lost(1)) && found.contains(&lost(2)), "{found:?}");
    // The acknowledged head differs.
    let mut world = valid_history();
    world.acked.appends[0].head.hash = EventHash([7; 32]);
    assert_eq!(world.check(), [Violation::AppendLost { run: RUN_A, seq: Seq(1) }]);
    let mut world = valid_history();
    world.acked.appends[3].events.pop();
    assert_eq!(world.check(), [lost(2)]);
    found
}

/// Doctors chains, positions and heads: the log as read, not the events it was built from.
fn doctored_chains() -> Vec<Violation> {
    let of_b = StreamId::Run(RUN_B);
    let doctored = |what: &dyn Fn(&mut RecordedLog)| {
        let world = valid_history();
        let mut log = world.to_log();
        what(&mut log);
        check_history(&log, &world.acked, &world.trees)
    };
    fn events_mut<'l>(log: &'l mut RecordedLog, stream: &StreamId) -> &'l mut Vec<CommittedEvent> {
        log.streams.get_mut(stream).expect("a stream")
    }
    fn broken_chain_seqs(found: &[Violation]) -> Vec<Seq> {
        let one = |one: &Violation| match one {
            Violation::BrokenChain { seq, .. } => Some(*seq),
            _ => None,
        };
        found.iter().filter_map(one).collect()
    }
    let of_a = StreamId::Run(RUN_A);
    let gap = doctored(&|log| drop(events_mut(log, &of_a).remove(1)));
    assert_eq!(broken_chain_seqs(&gap), [Seq(3)], "{gap:?}");
    let altered = doctored(&|log| events_mut(log, &of_a)[1].event.turn = Turn(9));
    assert_eq!(broken_chain_seqs(&altered), [Seq(2)], "{altered:?}");
    let other = doctored(&|log| {
        let event: &mut Envelope = &mut events_mut(log, &of_a)[1].event;
        event.turn = Turn(9);
        event.hash = event.compute_hash();
    });
    assert_eq!(broken_chain_seqs(&other), [Seq(3)], "{other:?}");
    let fell = doctored(&|log| events_mut(log, &of_b)[1].event.position = Position(1));
    assert_eq!(fell, [Violation::PositionDecreased { stream: of_b.clone(), seq: Seq(2) }]);
    let shared = doctored(&|log| {
        let (feed, heads) = (std::mem::take(&mut log.streams), std::mem::take(&mut log.heads));
        let mut feed: Vec<Envelope> = feed.into_values().flatten().map(|logged| logged.event).collect();
        let last = feed.iter().map(|event| event.position).max().expect("events");
        // The end of B has the same position as the end of A.
        feed.iter_mut().filter(|event| event.kind == "TaskCompleted").for_each(|event| event.position = last);
        *log = RecordedLog::new(feed, heads, |position| i64::try_from(position.0).expect("small"));
    });
    assert_eq!(shared, [Violation::SharedPosition { position: Position(15) }]);
    let cut = doctored(&|log| {
        log.heads.remove(&of_b);
    });
    assert_eq!(cut, [Violation::WrongHead { stream: of_b.clone(), acknowledged: None, last: Some(Seq(2)) }]);
    let unseen = doctored(&|log| {
        let head = Head { seq: Seq(1), hash: EventHash([1; 32]) };
        log.heads.insert(StreamId::Queue("q".parse().expect("a name")), head);
    });
    let queue = StreamId::Queue("q".parse().expect("a name"));
    assert_eq!(unseen, [Violation::WrongHead { stream: queue, acknowledged: Some(Seq(1)), last: None }]);
    [gap, altered, other, fell, shared, cut, unseen].concat()
}

/// A kind without a doctored history might never be detected.
#[test]
fn every_kind_of_violation_is_detected() {
    let kind = |violation: &Violation| match violation {
        Violation::BrokenChain { .. } => 0,
        Violation::WrongHead { .. } => 1,
        Violation::SharedPosition { .. } => 2,
        Violation::PositionDecreased { .. } => 3,
        Violation::Unreadable { .. } => 4,
        Violation::SubmitLost { .. } => 5,
        Violation::SubmittedTwice { .. } => 6,
        Violation::LeaseLost { .. } => 7,
        Violation::TwoOwners { .. } => 8,
        Violation::LeasedWhileHeld { .. } => 9,
        Violation::EpochNotRising { .. } => 10,
        Violation::EndWithoutLease { .. } => 11,
        Violation::AppendLost { .. } => 12,
        Violation::UnknownLease { .. } => 13,
        Violation::OutsideLease { .. } => 14,
        Violation::EpochDecreased { .. } => 15,
        Violation::EventAfterEnd { .. } => 16,
        Violation::StartedTwice { .. } => 17,
        Violation::RunNotEnded { .. } => 18,
        Violation::CompletedTwice { .. } => 19,
        Violation::NotCompleted { .. } => 20,
        Violation::RunFailed { .. } => 21,
        Violation::WrongTree { .. } => 22,
        Violation::RenewedAfterTakeover { .. } => 23,
    };
    let seen: BTreeSet<i32> =
        [doctored_meanings(), doctored_chains(), doctored_appends()].concat().iter().map(kind).collect();
    assert_eq!(seen, (0..24).collect());
}
