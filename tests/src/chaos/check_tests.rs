//! The checker on histories that were doctored: each violation is seen, and a good history has none.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, EventRef, Head, NewEvent, Payload, TypedEvent as _, follow},
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

use super::{AckedAppend, AckedLease, AckedRenewal, Acknowledged, Log, Logged, Violation, check};
use crate::conformance::world::spec;

const A: TaskId = TaskId(Uuid::from_u128(0xa));
const B: TaskId = TaskId(Uuid::from_u128(0xb));
const RUN_A: RunId = RunId(Uuid::from_u128(0x1a));
const RUN_B: RunId = RunId(Uuid::from_u128(0x1b));
const FIRST: IncarnationId = IncarnationId(Uuid::from_u128(1));
const SECOND: IncarnationId = IncarnationId(Uuid::from_u128(2));

/// One event on its way into a history: chains are made when all is as it shall be.
#[derive(Clone)]
struct Line {
    stream: StreamId,
    epoch: Epoch,
    event: NewEvent,
}

fn task(id: TaskId, epoch: u64, event: impl Into<TaskEvent>) -> Line {
    Line { stream: StreamId::Task(id), epoch: Epoch(epoch), event: event.into().encode(Turn(0)) }
}

fn run(id: RunId, epoch: u64, kind: &str) -> Line {
    let payload = Payload::parse(format!(r#"{{"of":"{kind}"}}"#)).expect("JSON");
    let event = NewEvent { kind: kind.to_owned(), version: 1, turn: Turn(1), payload };
    Line { stream: StreamId::Run(id), epoch: Epoch(epoch), event }
}

fn tree(n: u8) -> TreeHash {
    TreeHash([n; 32])
}

fn ended(id: RunId, epoch: u64, n: u8) -> Line {
    let end = RunEnded {
        result: RunOutcome::Succeeded,
        summary: None,
        tree: Some(tree(n)),
        unverified: None,
        decision: None,
    };
    Line { stream: StreamId::Run(id), epoch: Epoch(epoch), event: RunEvent::from(end).encode(Turn(2)) }
}

fn submitted(id: TaskId) -> Line {
    task(id, 0, TaskSubmitted { spec: spec("a"), by: String::new(), forked_from: None, delegated_by: None })
}

fn leased(id: TaskId, run: RunId, epoch: u64, worker: IncarnationId) -> Line {
    task(id, epoch, TaskLeased { epoch: Epoch(epoch), run, worker, worker_name: String::new() })
}

fn expired(id: TaskId, epoch: u64) -> Line {
    task(id, epoch, TaskLeaseExpired { epoch: Epoch(epoch) })
}

/// A history and what was said while it was made.
#[derive(Clone)]
struct World {
    lines: Vec<Line>,
    acked: Acknowledged,
    trees: BTreeMap<TaskId, TreeHash>,
}

/// A is taken over after its first worker was silent; B is done at once.
fn good() -> World {
    let lines = vec![
        submitted(A),
        submitted(B),
        leased(A, RUN_A, 1, FIRST),
        run(RUN_A, 1, "RunStarted"),
        leased(B, RUN_B, 1, SECOND),
        run(RUN_A, 1, "ModelRequested"),
        expired(A, 1),
        run(RUN_B, 1, "RunStarted"),
        ended(RUN_B, 1, 2),
        task(B, 1, TaskCompleted { run: RUN_B, unverified: None }),
        leased(A, RUN_A, 2, SECOND),
        run(RUN_A, 2, "RunRecovered"),
        run(RUN_A, 2, "ModelAnswered"),
        ended(RUN_A, 2, 1),
        task(A, 2, TaskCompleted { run: RUN_A, unverified: None }),
    ];
    let lease = |task, run, epoch, worker, told| AckedLease { task, run, epoch: Epoch(epoch), worker, told };
    let append = |run, epoch, after, lines: &[&Line]| AckedAppend {
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
    let renewal = |task, epoch, asked| AckedRenewal { task, epoch: Epoch(epoch), asked };
    // The last of the first worker's passed another's lease on its way.
    let renewals = vec![renewal(A, 1, 11), renewal(A, 1, 29), renewal(A, 2, 31), renewal(B, 1, 40)];
    let mut world = World {
        lines,
        acked: Acknowledged { tasks: BTreeSet::from([A, B]), leases, renewals, appends },
        trees: BTreeMap::from([(A, tree(1)), (B, tree(2))]),
    };
    // What the coordinator told as the head is what the good history has there.
    let log = world.log();
    for append in &mut world.acked.appends {
        let at = usize::try_from(append.after.0).expect("small") + append.events.len() - 1;
        let event = &log.streams[&StreamId::Run(append.run)][at].event;
        append.head = Head { seq: event.seq, hash: event.hash };
    }
    world
}

impl World {
    fn log(&self) -> Log {
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
            event.hash = event.computed_hash();
            *head = follow(*head, &event).expect("it follows");
            feed.push(event);
        }
        Log::new(feed, heads, |position| i64::try_from(position.0).expect("small"))
    }

    fn check(&self) -> Vec<Violation> {
        check(&self.log(), &self.acked, &self.trees)
    }

    fn without(mut self, at: usize) -> Self {
        self.lines.remove(at);
        self
    }

    fn with(mut self, at: usize, line: Line) -> Self {
        self.lines.insert(at, line);
        self
    }

    /// Only the log is looked at: its hashes are others than those that were told.
    fn unheard(mut self) -> Self {
        self.acked.appends.clear();
        self
    }
}

#[test]
fn a_good_history_has_no_violation() {
    assert_eq!(good().check(), []);
}

/// Doctored events, their chains made anew: only what they mean is wrong.
fn of_meaning() -> Vec<Violation> {
    use Violation as V;
    let seq = Seq;
    let (one, two) = (Epoch(1), Epoch(2));
    let cases: Vec<(&str, World, Vec<Violation>)> = vec![
        (
            "a submit that is gone",
            {
                let mut world = good();
                let c = TaskId(Uuid::from_u128(0xc));
                world.acked.tasks.insert(c);
                world
            },
            vec![V::SubmitLost { task: TaskId(Uuid::from_u128(0xc)) }],
        ),
        ("submitted twice", good().with(2, submitted(A)), vec![V::SubmittedTwice { task: A }]),
        (
            "a lease that was given and is not in the log",
            {
                let mut world = good();
                world.acked.leases.push(AckedLease {
                    task: B,
                    epoch: two,
                    run: RUN_B,
                    worker: FIRST,
                    told: 50,
                });
                world
            },
            vec![V::LeaseLost { task: B, epoch: two }],
        ),
        (
            "an epoch given to two",
            {
                let mut world = good();
                world.acked.leases.push(AckedLease {
                    task: A,
                    epoch: one,
                    run: RUN_A,
                    worker: SECOND,
                    told: 50,
                });
                world
            },
            vec![V::LeaseLost { task: A, epoch: one }, V::TwoOwners { task: A, epoch: one }],
        ),
        (
            "renewed for who had lost it",
            {
                let mut world = good();
                world.acked.renewals.push(AckedRenewal { task: A, epoch: one, asked: 31 });
                world
            },
            vec![V::RenewedAfterTakeover { task: A, epoch: one }],
        ),
        (
            "an epoch leased twice, to two",
            good().with(7, leased(A, RUN_A, 1, SECOND)),
            vec![
                V::LeaseLost { task: A, epoch: one },
                V::TwoOwners { task: A, epoch: one },
                V::EpochNotRising { task: A, epoch: one },
                V::LeasedWhileHeld { task: A, epoch: two },
                V::OutsideItsLease { run: RUN_A, seq: seq(1), epoch: one },
                V::OutsideItsLease { run: RUN_A, seq: seq(2), epoch: one },
            ],
        ),
        ("leased while another has it", good().without(6), vec![V::LeasedWhileHeld { task: A, epoch: two }]),
        (
            "a lease that ends twice",
            good().with(7, expired(A, 1)),
            vec![V::EndOfNoLease { task: A, seq: seq(4) }],
        ),
        (
            "completed by nobody",
            good().with(14, expired(A, 2)),
            vec![V::EndOfNoLease { task: A, seq: seq(6) }],
        ),
        (
            "an event of nobody's",
            good().unheard().with(13, run(RUN_A, 3, "ModelAnswered")),
            vec![
                V::NoSuchLease { run: RUN_A, seq: seq(5), epoch: Epoch(3) },
                V::EpochFell { run: RUN_A, seq: seq(6), epoch: two },
            ],
        ),
        (
            "a zombie before the other began",
            good().unheard().with(7, run(RUN_A, 1, "ModelAnswered")),
            vec![V::OutsideItsLease { run: RUN_A, seq: seq(3), epoch: one }],
        ),
        (
            "a zombie in between",
            good().unheard().with(12, run(RUN_A, 1, "ModelAnswered")),
            vec![
                V::OutsideItsLease { run: RUN_A, seq: seq(4), epoch: one },
                V::EpochFell { run: RUN_A, seq: seq(4), epoch: one },
            ],
        ),
        (
            "before its lease",
            good().unheard().with(10, run(RUN_A, 2, "RunRecovered")),
            vec![V::OutsideItsLease { run: RUN_A, seq: seq(3), epoch: two }],
        ),
        (
            "a run that begins twice",
            good().unheard().with(12, run(RUN_A, 2, "RunStarted")),
            vec![V::StartedTwice { run: RUN_A }],
        ),
        (
            "after the run's end",
            good().with(9, run(RUN_B, 1, "ModelAnswered")),
            vec![V::AfterTheEnd { stream: StreamId::Run(RUN_B), seq: seq(3) }, V::NotEnded { run: RUN_B }],
        ),
        (
            "after the task's end",
            good().with(10, task(B, 0, TaskMadeAvailable {})),
            vec![V::AfterTheEnd { stream: StreamId::Task(B), seq: seq(4) }],
        ),
        (
            "completed twice",
            good().with(10, task(B, 1, TaskCompleted { run: RUN_B, unverified: None })),
            vec![V::AfterTheEnd { stream: StreamId::Task(B), seq: seq(4) }, V::CompletedTwice { task: B }],
        ),
        (
            "not completed",
            good().without(14),
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
                let mut world = good();
                world.lines[6] = task(A, 1, why);
                world
            },
            vec![V::Failed { task: A, message: "it burns".to_owned() }],
        ),
        (
            "another tree",
            {
                let mut world = good();
                world.trees.insert(B, tree(9));
                world
            },
            vec![V::Tree { task: B, found: Some(tree(2)) }],
        ),
        (
            "an event that nobody can read",
            {
                let mut world = good();
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

/// Appends that were acknowledged, and a log that has them not, or not so.
fn of_appends() -> Vec<Violation> {
    let lost = |n| Violation::AppendLost { run: RUN_B, seq: Seq(n) };
    // Its last event is gone, as after a commit that did not reach the disk.
    let mut world = good();
    world.lines.remove(8);
    let found = world.check();
    assert!(found.contains(&lost(2)) && found.contains(&Violation::NotEnded { run: RUN_B }), "{found:?}");
    // Another event stands in its place.
    let mut world = good();
    world.lines[7] = run(RUN_B, 1, "RunRecovered");
    assert_eq!(world.check(), [lost(1), lost(2)]);
    // The same under an epoch that was not the writer's.
    let mut world = good();
    world.acked.appends[3].epoch = Epoch(2);
    assert_eq!(world.check(), [lost(1), lost(2)]);
    // All of the run is gone.
    let mut world = good();
    world.lines.retain(|line| line.stream != StreamId::Run(RUN_B));
    let found = world.check();
    assert!(found.contains(&lost(1)) && found.contains(&lost(2)), "{found:?}");
    // The head that was told is another one's.
    let mut world = good();
    world.acked.appends[0].head.hash = EventHash([7; 32]);
    assert_eq!(world.check(), [Violation::AppendLost { run: RUN_A, seq: Seq(1) }]);
    let mut world = good();
    world.acked.appends[3].events.pop();
    assert_eq!(world.check(), [lost(2)]);
    found
}

/// Chains, places and heads: the log as it was read is doctored, not what it was made of.
fn of_form() -> Vec<Violation> {
    let of_b = StreamId::Run(RUN_B);
    let doctored = |what: &dyn Fn(&mut Log)| {
        let world = good();
        let mut log = world.log();
        what(&mut log);
        check(&log, &world.acked, &world.trees)
    };
    fn events<'l>(log: &'l mut Log, stream: &StreamId) -> &'l mut Vec<Logged> {
        log.streams.get_mut(stream).expect("a stream")
    }
    fn chains(found: &[Violation]) -> Vec<Seq> {
        let one = |one: &Violation| match one {
            Violation::Chain { seq, .. } => Some(*seq),
            _ => None,
        };
        found.iter().filter_map(one).collect()
    }
    let of_a = StreamId::Run(RUN_A);
    let gap = doctored(&|log| drop(events(log, &of_a).remove(1)));
    assert_eq!(chains(&gap), [Seq(3)], "{gap:?}");
    let altered = doctored(&|log| events(log, &of_a)[1].event.turn = Turn(9));
    assert_eq!(chains(&altered), [Seq(2)], "{altered:?}");
    let other = doctored(&|log| {
        let event: &mut Envelope = &mut events(log, &of_a)[1].event;
        event.turn = Turn(9);
        event.hash = event.computed_hash();
    });
    assert_eq!(chains(&other), [Seq(3)], "{other:?}");
    let fell = doctored(&|log| events(log, &of_b)[1].event.position = Position(1));
    assert_eq!(fell, [Violation::PositionFell { stream: of_b.clone(), seq: Seq(2) }]);
    let shared = doctored(&|log| {
        let (feed, heads) = (std::mem::take(&mut log.streams), std::mem::take(&mut log.heads));
        let mut feed: Vec<Envelope> = feed.into_values().flatten().map(|logged| logged.event).collect();
        let last = feed.iter().map(|event| event.position).max().expect("events");
        // The end of B stands where the end of A does.
        feed.iter_mut().filter(|event| event.kind == "TaskCompleted").for_each(|event| event.position = last);
        *log = Log::new(feed, heads, |position| i64::try_from(position.0).expect("small"));
    });
    assert_eq!(shared, [Violation::SharedPosition { position: Position(15) }]);
    let cut = doctored(&|log| {
        log.heads.remove(&of_b);
    });
    assert_eq!(cut, [Violation::Head { stream: of_b.clone(), told: None, last: Some(Seq(2)) }]);
    let unseen = doctored(&|log| {
        let head = Head { seq: Seq(1), hash: EventHash([1; 32]) };
        log.heads.insert(StreamId::Queue("q".parse().expect("a name")), head);
    });
    let queue = StreamId::Queue("q".parse().expect("a name"));
    assert_eq!(unseen, [Violation::Head { stream: queue, told: Some(Seq(1)), last: None }]);
    [gap, altered, other, fell, shared, cut, unseen].concat()
}

/// A kind that no doctored history shows is one that may never be seen.
#[test]
fn each_violation_is_seen() {
    let kind = |violation: &Violation| match violation {
        Violation::Chain { .. } => 0,
        Violation::Head { .. } => 1,
        Violation::SharedPosition { .. } => 2,
        Violation::PositionFell { .. } => 3,
        Violation::Unreadable { .. } => 4,
        Violation::SubmitLost { .. } => 5,
        Violation::SubmittedTwice { .. } => 6,
        Violation::LeaseLost { .. } => 7,
        Violation::TwoOwners { .. } => 8,
        Violation::LeasedWhileHeld { .. } => 9,
        Violation::EpochNotRising { .. } => 10,
        Violation::EndOfNoLease { .. } => 11,
        Violation::AppendLost { .. } => 12,
        Violation::NoSuchLease { .. } => 13,
        Violation::OutsideItsLease { .. } => 14,
        Violation::EpochFell { .. } => 15,
        Violation::AfterTheEnd { .. } => 16,
        Violation::StartedTwice { .. } => 17,
        Violation::NotEnded { .. } => 18,
        Violation::CompletedTwice { .. } => 19,
        Violation::NotCompleted { .. } => 20,
        Violation::Failed { .. } => 21,
        Violation::Tree { .. } => 22,
        Violation::RenewedAfterTakeover { .. } => 23,
    };
    let seen: BTreeSet<i32> = [of_meaning(), of_form(), of_appends()].concat().iter().map(kind).collect();
    assert_eq!(seen, (0..24).collect());
}
