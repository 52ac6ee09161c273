//! Delegation: a parent's request and its child's submit, a child's end and its parent's reply, with any
//! event in between.

use docket_coordinator::{
    decide::{self, DependencyRetry},
    store::{CommandError, GrantedLease},
};
use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{DecisionHash, RunId, Seq, StreamId, TaskId, TreeHash, Turn},
    message::CallId,
    run::{BlockedReason, ChildAnswered, RunBlocked, RunEvent, RunOutcome},
    task::{
        BY_PARENT, ConcurrencyLimit, DelegatedBy, LeaseConditions, TaskBlockedReason, TaskEvent, TaskRecord,
        TaskSpec, TaskState, TaskSubmitted, child_task_id,
    },
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, failed_outcome, task_spec},
    flow::{complete_next, lease_next, task_state},
};

fn child_submission(lease: &GrantedLease, nth: usize, spec: TaskSpec) -> (TaskId, TaskSubmitted) {
    let (task, run, call) = (lease.record.id, lease.run, CallId::for_tool(Turn(1), nth));
    let child = child_task_id(run, &call);
    let by = DelegatedBy { task, run, call, writes: false, tree: TreeHash::ZERO, start: None };
    (child, TaskSubmitted { spec, by: "test".to_owned(), forked_from: None, delegated_by: Some(by) })
}

/// Delegates the `nth` part of a leased task's work.
async fn delegate_task(
    world: &StoreFixture,
    lease: &GrantedLease,
    nth: usize,
) -> Result<TaskId, CommandError> {
    let (child, submitted) = child_submission(lease, nth, task_spec("child"));
    let epoch = lease.record.epoch;
    let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
    world.run_command(lease.record.id, plan).await.map(|_| child)
}

async fn run_head(world: &StoreFixture, run: RunId) -> Seq {
    world.store.stream_head(StreamId::Run(run)).await.expect("reads").expect("exists").seq
}

/// Suspends the run until its children end.
async fn wait_for_children(worker: &FakeWorker, lease: &GrantedLease) -> Result<TaskRecord, CommandError> {
    let at = run_head(&worker.fixture, lease.run).await;
    wait_for_children_at(worker, lease, at).await
}

async fn wait_for_children_at(
    worker: &FakeWorker,
    lease: &GrantedLease,
    at: Seq,
) -> Result<TaskRecord, CommandError> {
    let (question, why) = ("waits".into(), BlockedReason::Child);
    let decision = DecisionHash::hash_bytes(b"waits");
    let blocked = RunBlocked { question, why, outages: 0, about: None, decision };
    worker
        .finish_lease(lease, at, vec![RunEvent::from(blocked).encode(Turn(1))])
        .await
        .map(|(record, _)| record)
}

async fn child_answers(world: &StoreFixture, run: RunId) -> Vec<(ChildAnswered, Envelope)> {
    let events = world.read_stream(StreamId::Run(run)).await;
    let answers = events.into_iter().filter_map(|event| {
        match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
            Ok(RunEvent::ChildAnswered(answer)) => Some((answer, event)),
            Ok(_) | Err(_) => None,
        }
    });
    answers.collect()
}

async fn submit_and_lease(world: &StoreFixture, worker: &FakeWorker, spec: TaskSpec) -> GrantedLease {
    let task = world.submit(spec).await;
    let lease = worker.lease_one().await;
    assert_eq!(lease.record.id, task);
    lease
}

pub(super) async fn child_and_delegation_event_are_written_atomically_once(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let lease = submit_and_lease(&world, &worker, task_spec("parent")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    let parent = world.task(lease.record.id).await;
    assert_eq!((parent.state, &parent.waits_for[..]), (TaskState::Running, &[child][..]));
    assert_eq!(task_state(&world, child).await, TaskState::Available);
    // One transaction: no other events are between theirs.
    let feed = world.read_feed().await;
    let places: Vec<usize> = ["Delegated", "TaskDelegated"]
        .iter()
        .filter_map(|kind| feed.iter().position(|event| event.kind == *kind))
        .chain(feed.iter().position(|event| event.stream == StreamId::Task(child)))
        .collect();
    let (first, last) = (places.iter().min().expect("there"), places.iter().max().expect("there"));
    assert_eq!((places.len(), last - first), (3, 2), "{feed:?}");
    // The reply was lost and the request is repeated, also after the child has ended.
    assert_eq!(delegate_task(&world, &lease, 0).await.expect("answered as before"), child);
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(delegate_task(&world, &lease, 0).await.expect("answered as before"), child);
    let run = world.read_stream(StreamId::Run(lease.run)).await;
    assert_eq!(run.iter().filter(|event| event.kind == "Delegated").count(), 1);
    assert_eq!(child_answers(&world, lease.run).await.len(), 1);
    // A worker that lost the lease cannot delegate.
    world.advance_clock(super::fixture::LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    assert!(matches!(delegate_task(&world, &lease, 1).await, Err(CommandError::Rejected(_))));
    let again = worker.lease_one().await;
    assert_eq!(again.run, lease.run);
    assert!(matches!(delegate_task(&world, &lease, 1).await, Err(CommandError::Rejected(_))));
    delegate_task(&world, &again, 1).await.expect("its holder does");
    world.check_consistency().await;
}

pub(super) async fn child_end_resumes_its_parent(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let concurrency = Some(ConcurrencyLimit { key: "one at a time".to_owned(), max: 1 });
    let keyed = |title| TaskSpec {
        conditions: LeaseConditions { concurrency: concurrency.clone(), ..LeaseConditions::default() },
        ..task_spec(title)
    };
    let lease = submit_and_lease(&world, &worker, keyed("parent")).await;
    let parent = lease.record.id;
    let mut children = Vec::new();
    for nth in 0..2 {
        let (child, submitted) = child_submission(&lease, nth, keyed("child"));
        let epoch = lease.record.epoch;
        let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
        world.run_command(parent, plan).await.expect("gives");
        children.push(child);
    }
    assert_eq!(lease_next(&worker).await, None, "their parent has the key");
    let rests = wait_for_children(&worker, &lease).await.expect("rests");
    assert_eq!((rests.state, rests.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Child)));
    assert_eq!((rests.worker, rests.run), (None, Some(lease.run)));
    // It holds no key, so its children run one after the other.
    let first = worker.lease_one().await;
    assert!(children.contains(&first.record.id));
    assert_eq!(lease_next(&worker).await, None);
    worker.end_run(&first, RunOutcome::Succeeded).await;
    assert_eq!(task_state(&world, parent).await, TaskState::Blocked, "the other is out");
    let second = worker.lease_one().await;
    world
        .run_command(second.record.id, |record| decide::cancel(record, "me", "enough"))
        .await
        .expect("cancels");
    let goes = world.task(parent).await;
    assert_eq!((goes.state, goes.waits_for.len(), goes.run), (TaskState::Available, 0, Some(lease.run)));
    let answers = child_answers(&world, lease.run).await;
    let [(one, _), (other, last)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((one.is_error, one.more, one.run), (false, true, Some(first.run)));
    assert_eq!((other.is_error, other.more, other.child), (true, false, second.record.id));
    // The end of the last child and the parent's release are one transaction.
    let feed = world.read_feed().await;
    let near: Vec<&str> = feed
        .iter()
        .filter(|event| {
            event.position.0.abs_diff(last.position.0) < 5 && event.recorded_at == last.recorded_at
        })
        .map(|event| event.kind.as_str())
        .collect();
    for kind in ["TaskCancelled", "ChildAnswered", "TaskDependencyEnded", "TaskUnblocked"] {
        assert!(near.contains(&kind), "{kind}: {near:?}");
    }
    let again = worker.lease_one().await;
    assert_eq!((again.record.id, again.run), (parent, lease.run));
    world.check_consistency().await;
}

pub(super) async fn child_ends_independently_of_its_parent(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    // While the parent is leased: its holder learns of it before it suspends.
    let lease = submit_and_lease(&world, &worker, task_spec("at work")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    let seen = run_head(&world, lease.run).await;
    assert_eq!(complete_next(&worker).await, child);
    let refused = wait_for_children_at(&worker, &lease, seen).await;
    assert!(matches!(refused, Err(CommandError::Append(_))), "{refused:?}");
    let parent = world.task(lease.record.id).await;
    assert_eq!((parent.state, parent.waits_for.len()), (TaskState::Running, 0));
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    // While it is paused: it stays paused.
    let lease = submit_and_lease(&world, &worker, task_spec("paused")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    world.advance_clock(super::fixture::LEASE_MS + 1);
    world.expire_leases().await;
    let parent = lease.record.id;
    world.run_command(parent, |record| decide::pause(record, "me")).await.expect("pauses");
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(world.task(parent).await.blocked_why, Some(TaskBlockedReason::Paused));
    assert_eq!(child_answers(&world, lease.run).await.len(), 1);
    world.run_command(parent, |record| decide::unpause(record, "me")).await.expect("unpaused");
    assert_eq!(worker.lease_one().await.run, lease.run);
    world.run_command(parent, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    // Paused and unpaused while the child is running: it still waits for the child.
    let lease = submit_and_lease(&world, &worker, task_spec("let go")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    world.advance_clock(super::fixture::LEASE_MS + 1);
    world.expire_leases().await;
    let parent = lease.record.id;
    world.run_command(parent, |record| decide::pause(record, "me")).await.expect("pauses");
    world.run_command(parent, |record| decide::unpause(record, "me")).await.expect("unpaused");
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(worker.lease_one().await.run, lease.run);
    world.run_command(parent, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    // Messaged meanwhile, then discarded: the parent continues anyway.
    let lease = submit_and_lease(&world, &worker, task_spec("goes on")).await;
    let (child, submitted) = child_submission(&lease, 0, TaskSpec { attempts_max: 1, ..task_spec("fails") });
    let epoch = lease.record.epoch;
    let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
    world.run_command(lease.record.id, plan).await.expect("gives");
    wait_for_children(&worker, &lease).await.expect("rests");
    world.append_at_head(StreamId::Run(lease.run), 1).await.expect("appended");
    let failing = worker.lease_one().await;
    assert_eq!(failing.record.id, child);
    worker.end_run(&failing, failed_outcome()).await;
    assert_eq!(task_state(&world, child).await, TaskState::Discarded);
    let (answer, _) = child_answers(&world, lease.run).await.pop().expect("answered");
    assert!(answer.is_error && answer.run == Some(failing.run), "{answer:?}");
    let content = format!("{:?}", answer.content);
    assert!(content.contains("discarded") && content.contains("red"), "{content}");
    // Retried later, it no longer belongs to the parent.
    world
        .run_command(child, |record| decide::retry(record, "me", "", DependencyRetry::Kept))
        .await
        .expect("retries");
    assert_eq!(worker.lease_one().await.run, lease.run);
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(child_answers(&world, lease.run).await.len(), 1);
    world.check_consistency().await;
}

pub(super) async fn children_are_cancelled_with_the_delegating_run(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let why = async |task: TaskId| {
        let events = world.read_stream(StreamId::Task(task)).await;
        let last = events.last().expect("events");
        match TaskEvent::decode(&last.kind, last.version, last.payload.as_str()) {
            Ok(TaskEvent::TaskCancelled(why)) => why.by,
            other => panic!("{other:?}"),
        }
    };
    // A cancel reaches the child, which a worker holds, and the child's own delegations.
    let lease = submit_and_lease(&world, &worker, task_spec("top")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    wait_for_children(&worker, &lease).await.expect("rests");
    let below = worker.lease_one().await;
    assert_eq!(below.record.id, child);
    let grandchild = delegate_task(&world, &below, 0).await.expect("gives");
    world.run_command(lease.record.id, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    for task in [child, grandchild] {
        assert_eq!(
            (task_state(&world, task).await, why(task).await.as_str()),
            (TaskState::Cancelled, BY_PARENT)
        );
    }
    assert!(matches!(
        wait_for_children(&worker, &below).await,
        Err(CommandError::Rejected(_) | CommandError::Append(_))
    ));
    // So do a failure of the parent's run, and a run that replaces it.
    let lease = submit_and_lease(&world, &worker, task_spec("fails")).await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    worker.end_run(&lease, failed_outcome()).await;
    assert_eq!(
        (task_state(&world, child).await, why(child).await.as_str()),
        (TaskState::Cancelled, BY_PARENT)
    );
    assert_eq!(world.task(lease.record.id).await.state, TaskState::Retryable);
    world.advance_clock(60_000);
    world.make_due_tasks_available().await;
    let lease = worker.lease_one().await;
    let child = delegate_task(&world, &lease, 0).await.expect("gives");
    wait_for_children(&worker, &lease).await.expect("rests");
    let retry = |record: &_| decide::retry(record, "me", "", DependencyRetry::Kept);
    world.run_command(lease.record.id, retry).await.expect("begins again");
    assert_eq!(task_state(&world, child).await, TaskState::Cancelled);
    assert_eq!(complete_next(&worker).await, lease.record.id);
    world.check_consistency().await;
}

/// Parent and child end concurrently through two coordinators: in either order both end, and the log is
/// consistent.
pub(super) async fn concurrent_parent_and_child_ends_strand_no_task(database: TestDatabase) {
    const ROUNDS: usize = 12;
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let beside = world.open_second_coordinator().await;
    for round in 0..ROUNDS {
        let lease = submit_and_lease(&world, &worker, task_spec("parent")).await;
        let child = delegate_task(&world, &lease, 0).await.expect("gives");
        wait_for_children(&worker, &lease).await.expect("rests");
        let held = worker.lease_one().await;
        assert_eq!(held.record.id, child);
        let at = run_head(&world, held.run).await;
        let done = vec![super::fixture::run_ended(RunOutcome::Succeeded)];
        let other = worker.with_fixture(beside.clone());
        let (cancelled, _) = tokio::join!(
            world.run_command(lease.record.id, |record| decide::cancel(record, "me", "")),
            other.finish_lease(&held, at, done),
        );
        cancelled.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert_eq!(task_state(&world, lease.record.id).await, TaskState::Cancelled);
        assert!(task_state(&world, child).await.is_ended(), "round {round}");
    }
    world.check_consistency().await;
}
