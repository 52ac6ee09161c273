//! Leases: repeated requests, expiry, takeover, cancel, and how each late call is refused.

use docket_coordinator::{
    decide::{self, CommandRejection},
    store::{
        AppendError, CommandError, DeadlineTrust, GrantedLease, TermOutcome, TermRequest, WorkerHeartbeat,
    },
};
use docket_schema::{
    api::{HeldLease, LeaseLostReason, LeaseRequest},
    ids::{Epoch, QueueName, RunId, Seq, StreamId, TaskId},
    run::RunOutcome,
    task::{LeaseReleaseReason, TaskBlockedReason, TaskRecord, TaskSpec, TaskState, WORKER_FAULTS_MAX},
};
use uuid::Uuid;

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, LEASE_MS, failed_outcome, note_event, run_ended, task_spec},
};

pub(super) async fn repeated_lease_request_returns_the_same_leases(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..4 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let worker = world.new_worker();
    let old = worker.next_lease_request(2);
    let request = worker.next_lease_request(2);
    let of = |leases: &[GrantedLease]| {
        leases.iter().map(|l| (l.record.id, l.run, l.record.epoch)).collect::<Vec<_>>()
    };
    let first = worker.send_lease_request(request.clone()).await;
    assert_eq!(first.len(), 2);
    assert_eq!(of(&worker.send_lease_request(request.clone()).await), of(&first));
    assert!(worker.send_lease_request(old).await.is_empty(), "a request that was given up takes nothing");
    worker.end_run(&first[0], RunOutcome::Succeeded).await;
    assert_eq!(of(&worker.send_lease_request(request.clone()).await), of(&first[1..]), "the remaining part");
    let reopened = world.open_second_coordinator().await;
    let elsewhere = worker.with_fixture(reopened);
    assert_eq!(
        of(&elsewhere.send_lease_request(request).await),
        of(&first[1..]),
        "also by another coordinator"
    );
    assert_eq!(worker.lease(4).await.len(), 2);
    assert!(worker.lease(4).await.is_empty());
    let (counts, workers) = world.store.read_status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let running = counts.iter().find(|count| count.state == TaskState::Running).expect("counted");
    assert_eq!((running.count, workers[0].held, workers[0].name.as_str()), (3, 3, "tester"));
    world.check_consistency().await;
}

pub(super) async fn dedicated_queue_is_reserved_while_its_worker_lives(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let submit = async |queue: &QueueName, title: &str| {
        world.submit(TaskSpec { queue: queue.clone(), ..task_spec(title) }).await
    };
    let others = world.new_worker();
    let claimed_by = async |queue: &QueueName| {
        let own = world.new_worker();
        let claim = LeaseRequest { queues: vec![queue.clone()], ..own.next_lease_request(1) };
        assert!(own.send_lease_request(claim).await.is_empty(), "nothing is available yet");
        own
    };
    let queue = |n| QueueName::for_single_task(TaskId(Uuid::from_u128(n)));
    let (drained, silent, orphan, patient) = (queue(1), queue(2), queue(3), queue(4));
    let first = claimed_by(&drained).await;
    let task = submit(&drained, "of a worker that is drained").await;
    assert!(others.lease(1).await.is_empty(), "a worker of all queues leaves it alone");
    let own = LeaseRequest { queues: vec![drained.clone()], ..first.next_lease_request(1) };
    let lease = first.send_lease_request(own).await.pop().expect("its own worker gets it");
    assert_eq!(lease.record.id, task);
    let epoch = lease.record.epoch;
    let given_back = world
        .run_command(task, move |record| decide::release(record, epoch, LeaseReleaseReason::Drained))
        .await;
    given_back.expect("given back");
    assert!(others.lease(1).await.is_empty());
    assert!(world.store.drain_worker(first.incarnation).await.expect("drains"));
    assert_eq!(others.lease(1).await.pop().expect("everyone's now").record.id, task);

    claimed_by(&silent).await;
    let task = submit(&silent, "of a worker that is not heard of").await;
    assert!(others.lease(1).await.is_empty());
    // At least 30 s, and at least a lease. `LEASE_MS` is also 30 s, so the case requests both sides of
    // it.
    let lease_for = async |lease_ms: u64| {
        let runs = vec![RunId(world.next_id())];
        world
            .store
            .lease(others.next_lease_request(1), runs, lease_ms, world.now())
            .await
            .expect("leases")
            .leases
    };
    let (short, long) = (LEASE_MS / 10, LEASE_MS * 2);
    world.advance_clock(short + 1);
    assert!(lease_for(short).await.is_empty(), "short leases make a worker no sooner silent");
    world.advance_clock(LEASE_MS - short);
    assert!(lease_for(long).await.is_empty(), "with long leases it may be alive");
    assert_eq!(lease_for(short).await.pop().expect("everyone's now").record.id, task);
    claimed_by(&patient).await;
    let task = submit(&patient, "of a worker that is not heard of for a long lease").await;
    world.advance_clock(LEASE_MS + 1);
    assert!(lease_for(long).await.is_empty());
    world.advance_clock(LEASE_MS);
    assert_eq!(lease_for(long).await.pop().expect("everyone's now").record.id, task);

    let task = submit(&orphan, "of nobody that lives").await;
    assert_eq!(others.lease(1).await.pop().expect("everyone's").record.id, task);
    world.check_consistency().await;
}

pub(super) async fn concurrent_leases_never_share_a_task(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..40 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    // SQLite has one coordinator; PostgreSQL any number.
    let other =
        if world.database.is_sqlite() { world.clone() } else { world.open_second_coordinator().await };
    let workers: Vec<FakeWorker> =
        (0..8).map(|n| if n % 2 == 0 { world.new_worker() } else { other.new_worker() }).collect();
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
    world.check_consistency().await;
}

/// A late renewal, crash report, append and completion by a lease's holder.
struct LateCalls {
    renewal: Option<LeaseLostReason>,
    crash: Option<LeaseLostReason>,
    append: Result<(), AppendError>,
    completion: Option<LeaseLostReason>,
}

fn lost_reason(refused: CommandError) -> LeaseLostReason {
    match refused {
        CommandError::Rejected(CommandRejection::LeaseLost { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

async fn make_late_calls(worker: &FakeWorker, lease: &GrantedLease) -> LateCalls {
    let world = &worker.fixture;
    let (task, epoch) = (lease.record.id, lease.record.epoch);
    let held = vec![HeldLease { task, epoch }];
    let renewed = world
        .store
        .renew_leases(
            WorkerHeartbeat { incarnation: worker.incarnation, leases: held, capacity: None },
            LEASE_MS,
            world.now(),
        )
        .await
        .expect("answers");
    let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("exists");
    let append = world.append(lease.run, head.seq, epoch, vec![note_event(1)]).await.map(|_| ());
    let at = if append.is_ok() { head.seq.next() } else { head.seq };
    let stands = renewed.lost.is_empty();
    let crash = world.run_command(task, move |record| {
        // Only tests whether it would be refused: the completion follows.
        decide::record_crash(record, epoch, "signal 9").map(|_| decide::CommandPlan::default())
    });
    let crash = crash.await.err().map(lost_reason);
    let completion =
        worker.finish_lease(lease, at, vec![run_ended(RunOutcome::Succeeded)]).await.err().map(lost_reason);
    assert_eq!(renewed.renewed.len(), usize::from(stands));
    LateCalls { renewal: renewed.lost.first().map(|lost| lost.why), crash, append, completion }
}

pub(super) async fn late_calls_before_the_expirer_are_accepted(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.advance_clock(LEASE_MS * 2);
    // The deadline has passed, but no event says so, so no other worker can have acted on the task.
    assert_eq!(world.store.list_expired_leases(world.now(), 10).await.expect("reads"), [(task, Epoch(1))]);
    let late = make_late_calls(&worker, &lease).await;
    assert_eq!((late.renewal, late.crash, late.completion), (None, None, None));
    assert!(late.append.is_ok());
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    assert_eq!(world.expire_leases().await, 0);
    world.check_consistency().await;
}

pub(super) async fn late_calls_after_expiry_are_refused(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    let late = make_late_calls(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LeaseLostReason::Expired));
    assert_eq!(late.crash, Some(LeaseLostReason::Expired));
    assert_eq!(late.completion, Some(LeaseLostReason::Expired));
    assert!(matches!(late.append, Err(AppendError::LeaseEnded { asked: Epoch(1) })), "{:?}", late.append);
    let record = world.task(task).await;
    assert_eq!((record.state, record.crashes, record.failures), (TaskState::Available, 0, 0));
    world.check_consistency().await;
}

pub(super) async fn late_calls_after_takeover_are_fenced(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.advance_clock(LEASE_MS + 1);
    world.expire_leases().await;
    let successor = world.new_worker();
    let taken = successor.lease_one().await;
    let late = make_late_calls(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LeaseLostReason::Fenced));
    assert_eq!(late.crash, Some(LeaseLostReason::Fenced));
    assert_eq!(late.completion, Some(LeaseLostReason::Fenced));
    assert!(matches!(late.append, Err(AppendError::Fenced { current: Epoch(2), .. })), "{:?}", late.append);
    assert_eq!(world.task(task).await.state, TaskState::Running, "the successor is untouched");
    successor.end_run(&taken, RunOutcome::Succeeded).await;
    world.check_consistency().await;
}

pub(super) async fn cancel_of_a_running_task_ends_its_run(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    for _ in 0..2 {
        let record =
            world.run_command(task, |record| decide::cancel(record, "me", "enough")).await.expect("cancels");
        assert_eq!(record.state, TaskState::Cancelled);
    }
    let late = make_late_calls(&worker, &lease).await;
    assert_eq!(late.renewal, Some(LeaseLostReason::Cancelled));
    assert_eq!(late.crash, Some(LeaseLostReason::Cancelled));
    assert_eq!(late.completion, Some(LeaseLostReason::Cancelled));
    assert!(matches!(late.append, Err(AppendError::Closed)), "{:?}", late.append);
    let kinds: Vec<String> =
        world.read_stream(StreamId::Run(lease.run)).await.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["RunEnded"]);
    assert_eq!(world.store.get_run(lease.run).await.expect("reads").expect("exists").status, "cancelled");
    world.check_consistency().await;
}

pub(super) async fn release_and_drain_keep_the_run(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let release = |record: &_| decide::release(record, Epoch(1), LeaseReleaseReason::Drained);
    let record = world.run_command(task, release).await.expect("releases");
    assert_eq!((record.state, record.run), (TaskState::Available, Some(lease.run)));
    assert!(world.run_command(task, release).await.is_err(), "once");
    let again = world.new_worker().lease_one().await;
    assert_eq!((again.run, again.record.runs, again.record.crashes), (lease.run, 1, 0));
    world.check_consistency().await;
}

pub(super) async fn consecutive_worker_faults_block_the_task(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("meets a fault everywhere")).await;
    let kept = async || world.open_second_coordinator().await.task(task).await;
    let fault = async || {
        // A different worker each time.
        let lease = world.new_worker().lease_one().await;
        let (epoch, message) = (lease.record.epoch, "the server does not start".to_owned());
        let release = move |record: &_| decide::release_for_fault(record, epoch, message.clone());
        (world.run_command(task, release).await.expect("the lease is valid"), lease.run)
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
    let lease = world.new_worker().lease_one().await;
    let epoch = lease.record.epoch;
    let crash = move |record: &_| decide::record_crash(record, epoch, "signal 9");
    assert_eq!(world.run_command(task, crash).await.expect("counts").worker_faults, 0);
    for by in [
        |record: &TaskRecord| decide::answer(record, "me", &"".into()),
        |record: &TaskRecord| decide::retry(record, "me", "", decide::DependencyRetry::Kept),
    ] {
        faults(WORKER_FAULTS_MAX - 1).await;
        // A draining worker says nothing about the fault.
        let lease = world.new_worker().lease_one().await;
        let epoch = lease.record.epoch;
        let drained = move |record: &_| decide::release(record, epoch, LeaseReleaseReason::Drained);
        let record = world.run_command(task, drained).await.expect("releases");
        assert_eq!(record.worker_faults, WORKER_FAULTS_MAX - 1);
        let (blocked, run) = fault().await;
        assert_eq!(kept().await, blocked, "as it was written");
        let why = Some(TaskBlockedReason::WorkerFault);
        assert_eq!((blocked.state, blocked.blocked_why), (TaskState::Blocked, why));
        assert_eq!((blocked.run, blocked.failures, blocked.crashes, blocked.runs), (Some(run), 0, 1, 1));
        let message = blocked.message.expect("a message");
        assert!(message.contains("20 attempts") && message.contains("does not start"), "{message}");
        assert!(world.new_worker().lease(1).await.is_empty(), "it is not leased");
        world.advance_clock(1_000_000_000);
        assert_eq!(world.make_due_tasks_available().await, 0, "and no time brings it back");
        let record = world.run_command(task, by).await.expect("succeeds");
        assert_eq!((record.state, record.run, record.worker_faults), (TaskState::Available, Some(run), 0));
        assert_eq!(record.message, None);
        assert!(world.read_stream(StreamId::Run(run)).await.is_empty(), "its run got no event");
    }
    let lease = world.new_worker().lease_one().await;
    world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    world.check_consistency().await;
}

/// Acquires the leader's term for ten seconds, trusting deadlines unattended for at most two seconds.
pub(super) async fn acquire_term(world: &StoreFixture, holder: &str) -> TermOutcome {
    let now = world.now();
    let trust = Some(DeadlineTrust { max_gap_ms: Some(2000), lease_ms: LEASE_MS });
    let term = TermRequest {
        name: "maintenance",
        holder: holder.to_owned(),
        until: now.plus_ms(10_000),
        now,
        max_term_ms: 10_000,
        deadline_trust: trust,
    };
    world.store.acquire_term(term).await.expect("answers")
}

pub(super) async fn term_after_a_gap_extends_every_lease(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..3 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    world.new_worker().lease(3).await;
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(
        acquire_term(&world, "one").await,
        TermOutcome::Acquired { extended_leases: Some(3) },
        "there was none before"
    );
    assert_eq!(world.expire_leases().await, 0);
    // Its own term as well: the process may have been suspended.
    world.advance_clock(12_100);
    assert_eq!(acquire_term(&world, "one").await, TermOutcome::Acquired { extended_leases: Some(3) });
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 3);
    assert_eq!(acquire_term(&world, "two").await, TermOutcome::Acquired { extended_leases: Some(0) });
    world.check_consistency().await;
}

pub(super) async fn handover_without_a_gap_trusts_the_deadlines(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (dead, living) = (world.submit(task_spec("dead")).await, world.submit(task_spec("living")).await);
    assert_eq!(acquire_term(&world, "one").await, TermOutcome::Acquired { extended_leases: Some(0) });
    world.new_worker().lease_one().await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    for (beats, holder) in ["one", "one", "one", "two", "two"].into_iter().enumerate() {
        world.advance_clock(LEASE_MS / 3 - 100);
        // The second takes over a second after the first one's last term ended.
        if holder == "two" && beats == 3 {
            assert_eq!(acquire_term(&world, "two").await, TermOutcome::HeldByOther);
            world.advance_clock(1000);
        }
        assert_eq!(
            acquire_term(&world, holder).await,
            TermOutcome::Acquired { extended_leases: None },
            "{holder}"
        );
        let held = vec![HeldLease { task: lease.record.id, epoch: lease.record.epoch }];
        let beat = WorkerHeartbeat { incarnation: worker.incarnation, leases: held, capacity: None };
        let renewed = world.store.renew_leases(beat, LEASE_MS, world.now()).await.expect("answers");
        assert_eq!(renewed.renewed.len(), 1);
    }
    assert_eq!(world.expire_leases().await, 1);
    assert_eq!(lease.record.id, living);
    assert_eq!(world.task(living).await.state, TaskState::Running);
    assert_eq!(world.task(dead).await.state, TaskState::Available);
    world.check_consistency().await;
}

/// A lease may be longer than this coordinator's leases: it was extended, or another coordinator granted
/// it.
pub(super) async fn new_term_keeps_longer_leases(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    assert_eq!(acquire_term(&world, "one").await, TermOutcome::Acquired { extended_leases: Some(0) });
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    let held = vec![HeldLease { task: lease.record.id, epoch: lease.record.epoch }];
    let beat = WorkerHeartbeat { incarnation: worker.incarnation, leases: held, capacity: None };
    world.store.renew_leases(beat, 4 * LEASE_MS, world.now()).await.expect("answers");
    // Renewed, and acquired after a gap.
    for (pass_ms, graced) in [(1000, None), (12_100, Some(0)), (12_100, Some(0))] {
        world.advance_clock(pass_ms);
        assert_eq!(acquire_term(&world, "one").await, TermOutcome::Acquired { extended_leases: graced });
    }
    world.advance_clock(2 * LEASE_MS);
    assert_eq!(world.expire_leases().await, 0, "it has its whole length");
    world.advance_clock(2 * LEASE_MS);
    assert_eq!(world.expire_leases().await, 1);
    world.check_consistency().await;
}

pub(super) async fn repeated_completion_returns_the_first_reply(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    let events = || vec![note_event(1), run_ended(failed_outcome())];
    let (record, first) = worker.finish_lease(&lease, Seq(0), events()).await.expect("settles");
    let first = first.expect("appended");
    let (again, second) = worker.finish_lease(&lease, Seq(0), events()).await.expect("repeats");
    let second = second.expect("appended");
    assert_eq!(again, record);
    assert_eq!((second.head, second.position, second.was_repeated), (first.head, first.position, true));
    world.advance_clock(60_000);
    world.make_due_tasks_available().await;
    let taken = world.new_worker().lease_one().await;
    let (_, third) = worker.finish_lease(&lease, Seq(0), events()).await.expect("also after another lease");
    assert!(third.expect("appended").was_repeated);
    let other = worker
        .finish_lease(&lease, Seq(0), vec![run_ended(RunOutcome::Succeeded)])
        .await
        .err()
        .map(lost_reason);
    assert_eq!(other, Some(LeaseLostReason::Fenced), "a different end is not a repetition");
    assert_eq!(world.task(task).await.run, Some(taken.run));
    world.check_consistency().await;
}
