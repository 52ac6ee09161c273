//! Leases: repetition, expiry, takeover, cancel; and which late call is refused how.

use docket_coordinator::{
    decide::{self, Rejection},
    store::{AppendError, CommandError, Granted, Heartbeat, Taken, Term, Trust},
};
use docket_schema::{
    ids::{Epoch, QueueName, RunId, Seq, StreamId, TaskId},
    run::RunOutcome,
    task::{ReleaseWhy, TaskBlockedWhy, TaskRecord, TaskSpec, TaskState, WORKER_FAULTS_MAX},
    wire::{Held, LeaseRequest, LostWhy},
};
use uuid::Uuid;

use super::{
    Database, World,
    world::{LEASE_MS, Worker, ended, failure, note, spec},
};

pub(super) async fn lease_request_repeated_answers_the_same(database: Database) {
    let world = World::open(database).await;
    for n in 0..4 {
        world.submit(spec(&format!("task {n}"))).await;
    }
    let worker = world.worker();
    let old = worker.request(2);
    let request = worker.request(2);
    let of =
        |leases: &[Granted]| leases.iter().map(|l| (l.record.id, l.run, l.record.epoch)).collect::<Vec<_>>();
    let first = worker.send(request.clone()).await;
    assert_eq!(first.len(), 2);
    assert_eq!(of(&worker.send(request.clone()).await), of(&first));
    assert!(worker.send(old).await.is_empty(), "a request that was given up takes nothing");
    worker.end(&first[0], RunOutcome::Succeeded).await;
    assert_eq!(of(&worker.send(request.clone()).await), of(&first[1..]), "what stands of it");
    let reopened = world.beside().await;
    let elsewhere = worker.through(reopened);
    assert_eq!(of(&elsewhere.send(request).await), of(&first[1..]), "also by another coordinator");
    assert_eq!(worker.lease(4).await.len(), 2);
    assert!(worker.lease(4).await.is_empty());
    let (counts, workers) = world.store.status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let running = counts.iter().find(|count| count.state == TaskState::Running).expect("counted");
    assert_eq!((running.count, workers[0].held, workers[0].name.as_str()), (3, 3, "tester"));
    world.check().await;
}

pub(super) async fn a_queue_of_one_is_left_to_its_own_worker_while_that_lives(database: Database) {
    let world = World::open(database).await;
    let submit = async |queue: &QueueName, title: &str| {
        world.submit(TaskSpec { queue: queue.clone(), ..spec(title) }).await
    };
    let others = world.worker();
    let claimed_by = async |queue: &QueueName| {
        let own = world.worker();
        let claim = LeaseRequest { queues: vec![queue.clone()], ..own.request(1) };
        assert!(own.send(claim).await.is_empty(), "nothing is there yet");
        own
    };
    let queue = |n| QueueName::of_one(TaskId(Uuid::from_u128(n)));
    let (drained, silent, orphan, patient) = (queue(1), queue(2), queue(3), queue(4));
    let first = claimed_by(&drained).await;
    let task = submit(&drained, "of a worker that is drained").await;
    assert!(others.lease(1).await.is_empty(), "a worker of all queues leaves it alone");
    let own = LeaseRequest { queues: vec![drained.clone()], ..first.request(1) };
    let lease = first.send(own).await.pop().expect("its own worker gets it");
    assert_eq!(lease.record.id, task);
    let epoch = lease.record.epoch;
    let given_back = world.act(task, move |record| decide::release(record, epoch, ReleaseWhy::Drained)).await;
    given_back.expect("given back");
    assert!(others.lease(1).await.is_empty());
    assert!(world.store.drain_worker(first.incarnation).await.expect("drains"));
    assert_eq!(others.lease(1).await.pop().expect("everyone's now").record.id, task);

    claimed_by(&silent).await;
    let task = submit(&silent, "of a worker that is not heard of").await;
    assert!(others.lease(1).await.is_empty());
    // At least 30 s, and at least a lease: `LEASE_MS` is 30 s as well, so both sides of it are asked for.
    let lease_for = async |lease_ms: u64| {
        let runs = vec![RunId(world.id())];
        world.store.lease(others.request(1), runs, lease_ms, world.now()).await.expect("leases").leases
    };
    let (short, long) = (LEASE_MS / 10, LEASE_MS * 2);
    world.pass(short + 1);
    assert!(lease_for(short).await.is_empty(), "short leases make a worker no sooner silent");
    world.pass(LEASE_MS - short);
    assert!(lease_for(long).await.is_empty(), "with long leases it may be alive");
    assert_eq!(lease_for(short).await.pop().expect("everyone's now").record.id, task);
    claimed_by(&patient).await;
    let task = submit(&patient, "of a worker that is not heard of for a long lease").await;
    world.pass(LEASE_MS + 1);
    assert!(lease_for(long).await.is_empty());
    world.pass(LEASE_MS);
    assert_eq!(lease_for(long).await.pop().expect("everyone's now").record.id, task);

    let task = submit(&orphan, "of nobody that lives").await;
    assert_eq!(others.lease(1).await.pop().expect("everyone's").record.id, task);
    world.check().await;
}

pub(super) async fn concurrent_leases_never_share_a_task(database: Database) {
    let world = World::open(database).await;
    for n in 0..40 {
        world.submit(spec(&format!("task {n}"))).await;
    }
    // SQLite has one coordinator; PostgreSQL any number.
    let other = if world.database.is_sqlite() { world.clone() } else { world.beside().await };
    let workers: Vec<Worker> =
        (0..8).map(|n| if n % 2 == 0 { world.worker() } else { other.worker() }).collect();
    let mut tasks = Vec::new();
    loop {
        let leases = futures_util::future::join_all(workers.iter().map(|worker| worker.lease(3))).await;
        if leases.iter().all(Vec::is_empty) {
            break;
        }
        tasks.extend(leases.into_iter().flatten().map(|lease| lease.record.id));
    }
    assert_eq!(tasks.len(), 40);
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!(tasks.len(), 40, "each once");
    world.check().await;
}

/// A renewal, a crash report, an append and a completion by a lease's holder, all late.
struct Late {
    renewal: Option<LostWhy>,
    crash: Option<LostWhy>,
    append: Result<(), AppendError>,
    completion: Option<LostWhy>,
}

fn lost(refused: CommandError) -> LostWhy {
    match refused {
        CommandError::Rejected(Rejection::LeaseLost { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

async fn late(worker: &Worker, lease: &Granted) -> Late {
    let world = &worker.world;
    let (task, epoch) = (lease.record.id, lease.record.epoch);
    let held = vec![Held { task, epoch }];
    let renewed = world
        .store
        .heartbeat(Heartbeat { incarnation: worker.incarnation, held, room: None }, LEASE_MS, world.now())
        .await
        .expect("answers");
    let head = world.store.head(StreamId::Run(lease.run)).await.expect("reads").expect("exists");
    let append = world.append(lease.run, head.seq, epoch, vec![note(1)]).await.map(|_| ());
    let at = if append.is_ok() { head.seq.next() } else { head.seq };
    let stands = renewed.lost.is_empty();
    let crash = world.act(task, move |record| {
        // Only whether it would be refused: the completion follows.
        decide::crash(record, epoch, "signal 9").map(|_| decide::Plan::default())
    });
    let crash = crash.await.err().map(lost);
    let completion = worker.settle(lease, at, vec![ended(RunOutcome::Succeeded)]).await.err().map(lost);
    assert_eq!(renewed.renewed.len(), usize::from(stands));
    Late { renewal: renewed.lost.first().map(|lost| lost.why), crash, append, completion }
}

pub(super) async fn late_calls_before_the_expirer_are_accepted(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    world.pass(LEASE_MS * 2);
    // The deadline has passed, but no event says so: nobody else can have acted on the task.
    assert_eq!(world.store.expired(world.now(), 10).await.expect("reads"), [(task, Epoch(1))]);
    let late = late(&worker, &lease).await;
    assert_eq!((late.renewal, late.crash, late.completion), (None, None, None));
    assert!(late.append.is_ok());
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    assert_eq!(world.expire().await, 0);
    world.check().await;
}

pub(super) async fn late_calls_after_expiry_are_refused(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 1);
    let late = late(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LostWhy::Expired));
    assert_eq!(late.crash, Some(LostWhy::Expired));
    assert_eq!(late.completion, Some(LostWhy::Expired));
    assert!(matches!(late.append, Err(AppendError::LeaseEnded { asked: Epoch(1) })), "{:?}", late.append);
    let record = world.task(task).await;
    assert_eq!((record.state, record.crashes, record.failures), (TaskState::Available, 0, 0));
    world.check().await;
}

pub(super) async fn late_calls_after_takeover_are_fenced(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    world.pass(LEASE_MS + 1);
    world.expire().await;
    let successor = world.worker();
    let taken = successor.lease_one().await;
    let late = late(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LostWhy::Fenced));
    assert_eq!(late.crash, Some(LostWhy::Fenced));
    assert_eq!(late.completion, Some(LostWhy::Fenced));
    assert!(matches!(late.append, Err(AppendError::Fenced { current: Epoch(2), .. })), "{:?}", late.append);
    assert_eq!(world.task(task).await.state, TaskState::Running, "the successor is untouched");
    successor.end(&taken, RunOutcome::Succeeded).await;
    world.check().await;
}

pub(super) async fn cancel_of_a_running_task_ends_its_run(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    for _ in 0..2 {
        let record = world.act(task, |record| decide::cancel(record, "me", "enough")).await.expect("cancels");
        assert_eq!(record.state, TaskState::Cancelled);
    }
    let late = late(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LostWhy::Cancelled));
    assert_eq!(late.crash, Some(LostWhy::Cancelled));
    assert_eq!(late.completion, Some(LostWhy::Cancelled));
    assert!(matches!(late.append, Err(AppendError::Closed)), "{:?}", late.append);
    let kinds: Vec<String> =
        world.stream(StreamId::Run(lease.run)).await.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["RunEnded"]);
    assert_eq!(world.store.run(lease.run).await.expect("reads").expect("exists").status, "cancelled");
    world.check().await;
}

pub(super) async fn release_and_drain_keep_the_run(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let release = |record: &_| decide::release(record, Epoch(1), ReleaseWhy::Drained);
    let record = world.act(task, release).await.expect("releases");
    assert_eq!((record.state, record.run), (TaskState::Available, Some(lease.run)));
    assert!(world.act(task, release).await.is_err(), "once");
    let again = world.worker().lease_one().await;
    assert_eq!((again.run, again.record.runs, again.record.crashes), (lease.run, 1, 0));
    world.check().await;
}

pub(super) async fn faults_of_workers_in_a_row_ask_a_person_in_the_end(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("meets a fault everywhere")).await;
    let kept = async || world.beside().await.task(task).await;
    let fault = async || {
        // Another worker each time.
        let lease = world.worker().lease_one().await;
        let (epoch, message) = (lease.record.epoch, "the server does not start".to_owned());
        let release = move |record: &_| decide::release_for_fault(record, epoch, message.clone());
        (world.act(task, release).await.expect("the lease stands"), lease.run)
    };
    let faults = async |count: u32| {
        for nth in 1..=count {
            let (record, _) = fault().await;
            assert_eq!((record.state, record.worker_faults), (TaskState::Available, nth));
            assert_eq!(kept().await, record, "as it was written");
        }
    };
    faults(WORKER_FAULTS_MAX - 1).await;
    // A run that gets past the fault.
    let lease = world.worker().lease_one().await;
    let epoch = lease.record.epoch;
    let crash = move |record: &_| decide::crash(record, epoch, "signal 9");
    assert_eq!(world.act(task, crash).await.expect("counts").worker_faults, 0);
    for by in [
        |record: &TaskRecord| decide::answer(record, "me", &"".into()),
        |record: &TaskRecord| decide::retry(record, "me", "", decide::Dependencies::Kept),
    ] {
        faults(WORKER_FAULTS_MAX - 1).await;
        // A worker that drains says nothing of the fault.
        let lease = world.worker().lease_one().await;
        let epoch = lease.record.epoch;
        let drained = move |record: &_| decide::release(record, epoch, ReleaseWhy::Drained);
        let record = world.act(task, drained).await.expect("releases");
        assert_eq!(record.worker_faults, WORKER_FAULTS_MAX - 1);
        let (blocked, run) = fault().await;
        assert_eq!(kept().await, blocked, "as it was written");
        let why = Some(TaskBlockedWhy::WorkerFault);
        assert_eq!((blocked.state, blocked.blocked_why), (TaskState::Blocked, why));
        assert_eq!((blocked.run, blocked.failures, blocked.crashes, blocked.runs), (Some(run), 0, 1, 1));
        let message = blocked.message.expect("a message");
        assert!(message.contains("20 attempts") && message.contains("does not start"), "{message}");
        assert!(world.worker().lease(1).await.is_empty(), "nobody gets it");
        world.pass(1_000_000_000);
        assert_eq!(world.due().await, 0, "and no time brings it back");
        let record = world.act(task, by).await.expect("goes on");
        assert_eq!((record.state, record.run, record.worker_faults), (TaskState::Available, Some(run), 0));
        assert_eq!(record.message, None);
        assert!(world.stream(StreamId::Run(run)).await.is_empty(), "its run was told nothing");
    }
    let lease = world.worker().lease_one().await;
    world.worker().end(&lease, RunOutcome::Succeeded).await;
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    world.check().await;
}

/// Takes the term of who looks after the store, for ten seconds, trusting what at most two seconds left alone.
pub(super) async fn take_term(world: &World, holder: &str) -> Taken {
    let now = world.now();
    let trust = Some(Trust { window_ms: Some(2000), lease_ms: LEASE_MS });
    let term = Term {
        name: "maintenance",
        holder: holder.to_owned(),
        until: now.plus_ms(10_000),
        now,
        longest_ms: 10_000,
        trust,
    };
    world.store.take_term(term).await.expect("answers")
}

pub(super) async fn a_term_after_a_gap_gives_every_lease_its_time(database: Database) {
    let world = World::open(database).await;
    for n in 0..3 {
        world.submit(spec(&format!("task {n}"))).await;
    }
    world.worker().lease(3).await;
    world.pass(LEASE_MS + 1);
    assert_eq!(take_term(&world, "one").await, Taken::Ours { graced: Some(3) }, "there was none before");
    assert_eq!(world.expire().await, 0);
    // Its own, too: it may have stood still.
    world.pass(12_100);
    assert_eq!(take_term(&world, "one").await, Taken::Ours { graced: Some(3) });
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 3);
    assert_eq!(take_term(&world, "two").await, Taken::Ours { graced: Some(0) });
    world.check().await;
}

pub(super) async fn a_handover_without_a_gap_trusts_the_deadlines(database: Database) {
    let world = World::open(database).await;
    let (dead, living) = (world.submit(spec("dead")).await, world.submit(spec("living")).await);
    assert_eq!(take_term(&world, "one").await, Taken::Ours { graced: Some(0) });
    world.worker().lease_one().await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    for (beats, holder) in ["one", "one", "one", "two", "two"].into_iter().enumerate() {
        world.pass(LEASE_MS / 3 - 100);
        // The second takes over a second after the first one's last term ended.
        if holder == "two" && beats == 3 {
            assert_eq!(take_term(&world, "two").await, Taken::ByAnother);
            world.pass(1000);
        }
        assert_eq!(take_term(&world, holder).await, Taken::Ours { graced: None }, "{holder}");
        let held = vec![Held { task: lease.record.id, epoch: lease.record.epoch }];
        let beat = Heartbeat { incarnation: worker.incarnation, held, room: None };
        let renewed = world.store.heartbeat(beat, LEASE_MS, world.now()).await.expect("answers");
        assert_eq!(renewed.renewed.len(), 1);
    }
    assert_eq!(world.expire().await, 1);
    assert_eq!(lease.record.id, living);
    assert_eq!(world.task(living).await.state, TaskState::Running);
    assert_eq!(world.task(dead).await.state, TaskState::Available);
    world.check().await;
}

/// A lease may be longer than those that this coordinator gives: it grew, or another coordinator gave it.
pub(super) async fn a_term_leaves_longer_leases_as_they_are(database: Database) {
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    assert_eq!(take_term(&world, "one").await, Taken::Ours { graced: Some(0) });
    let worker = world.worker();
    let lease = worker.lease_one().await;
    let held = vec![Held { task: lease.record.id, epoch: lease.record.epoch }];
    let beat = Heartbeat { incarnation: worker.incarnation, held, room: None };
    world.store.heartbeat(beat, 4 * LEASE_MS, world.now()).await.expect("answers");
    // Continued, and begun after a gap.
    for (pass_ms, graced) in [(1000, None), (12_100, Some(0)), (12_100, Some(0))] {
        world.pass(pass_ms);
        assert_eq!(take_term(&world, "one").await, Taken::Ours { graced });
    }
    world.pass(2 * LEASE_MS);
    assert_eq!(world.expire().await, 0, "it has its whole length");
    world.pass(2 * LEASE_MS);
    assert_eq!(world.expire().await, 1);
    world.check().await;
}

pub(super) async fn settling_repeated_answers_as_the_first(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    let events = || vec![note(1), ended(failure())];
    let (record, first) = worker.settle(&lease, Seq(0), events()).await.expect("settles");
    let first = first.expect("appended");
    let (again, second) = worker.settle(&lease, Seq(0), events()).await.expect("repeats");
    let second = second.expect("appended");
    assert_eq!(again, record);
    assert_eq!((second.head, second.position, second.repeated), (first.head, first.position, true));
    world.pass(60_000);
    world.due().await;
    let taken = world.worker().lease_one().await;
    let (_, third) = worker.settle(&lease, Seq(0), events()).await.expect("also after another lease");
    assert!(third.expect("appended").repeated);
    let other = worker.settle(&lease, Seq(0), vec![ended(RunOutcome::Succeeded)]).await.err().map(lost);
    assert_eq!(other, Some(LostWhy::Fenced), "another end is no repetition");
    assert_eq!(world.task(task).await.run, Some(taken.run));
    world.check().await;
}
