//! Delegation: a parent's word and its child's submit, a child's end and its parent's answer, whatever comes between.

use docket_coordinator::{
    decide::{self, Dependencies},
    store::{CommandError, Granted},
};
use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{DecisionHash, RunId, Seq, StreamId, TaskId, TreeHash, Turn},
    message::CallId,
    run::{BlockedWhy, ChildAnswered, RunBlocked, RunEvent, RunOutcome},
    task::{
        BY_PARENT, Concurrency, Conditions, DelegatedBy, TaskBlockedWhy, TaskEvent, TaskRecord, TaskSpec,
        TaskState, TaskSubmitted, child_of,
    },
};

use super::{
    Database, World,
    flow::{complete_next, next, state},
    world::{Worker, failure, spec},
};

fn submitted(lease: &Granted, nth: usize, spec: TaskSpec) -> (TaskId, TaskSubmitted) {
    let (task, run, call) = (lease.record.id, lease.run, CallId::tool(Turn(1), nth));
    let child = child_of(run, &call);
    let by = DelegatedBy { task, run, call, writes: false, tree: TreeHash::ZERO, start: None };
    (child, TaskSubmitted { spec, by: "test".to_owned(), forked_from: None, delegated_by: Some(by) })
}

/// Gives the `nth` piece of a leased task's work away.
async fn give(world: &World, lease: &Granted, nth: usize) -> Result<TaskId, CommandError> {
    let (child, submitted) = submitted(lease, nth, spec("child"));
    let epoch = lease.record.epoch;
    let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
    world.act(lease.record.id, plan).await.map(|_| child)
}

async fn head(world: &World, run: RunId) -> Seq {
    world.store.head(StreamId::Run(run)).await.expect("reads").expect("exists").seq
}

/// The run rests for its children.
async fn rest(worker: &Worker, lease: &Granted) -> Result<TaskRecord, CommandError> {
    let at = head(&worker.world, lease.run).await;
    rest_at(worker, lease, at).await
}

async fn rest_at(worker: &Worker, lease: &Granted, at: Seq) -> Result<TaskRecord, CommandError> {
    let (question, why) = ("waits".into(), BlockedWhy::Child);
    let decision = DecisionHash::of(b"waits");
    let blocked = RunBlocked { question, why, outages: 0, about: None, decision };
    worker.settle(lease, at, vec![RunEvent::from(blocked).encode(Turn(1))]).await.map(|(record, _)| record)
}

async fn answers(world: &World, run: RunId) -> Vec<(ChildAnswered, Envelope)> {
    let events = world.stream(StreamId::Run(run)).await;
    let answers = events.into_iter().filter_map(|event| {
        match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
            Ok(RunEvent::ChildAnswered(answer)) => Some((answer, event)),
            Ok(_) | Err(_) => None,
        }
    });
    answers.collect()
}

async fn leased(world: &World, worker: &Worker, spec: TaskSpec) -> Granted {
    let task = world.submit(spec).await;
    let lease = worker.lease_one().await;
    assert_eq!(lease.record.id, task);
    lease
}

pub(super) async fn a_child_and_its_parents_word_are_one_and_once(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let lease = leased(&world, &worker, spec("parent")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    let parent = world.task(lease.record.id).await;
    assert_eq!((parent.state, &parent.waits_for[..]), (TaskState::Running, &[child][..]));
    assert_eq!(state(&world, child).await, TaskState::Available);
    // One transaction: nothing of anybody's stands between their events.
    let feed = world.feed().await;
    let places: Vec<usize> = ["Delegated", "TaskDelegated"]
        .iter()
        .filter_map(|kind| feed.iter().position(|event| event.kind == *kind))
        .chain(feed.iter().position(|event| event.stream == StreamId::Task(child)))
        .collect();
    let (first, last) = (places.iter().min().expect("there"), places.iter().max().expect("there"));
    assert_eq!((places.len(), last - first), (3, 2), "{feed:?}");
    // The answer was lost, and it is asked again; also when the child has ended meanwhile.
    assert_eq!(give(&world, &lease, 0).await.expect("answered as before"), child);
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(give(&world, &lease, 0).await.expect("answered as before"), child);
    let run = world.stream(StreamId::Run(lease.run)).await;
    assert_eq!(run.iter().filter(|event| event.kind == "Delegated").count(), 1);
    assert_eq!(answers(&world, lease.run).await.len(), 1);
    // Whoever lost the lease gives nothing away.
    world.pass(super::world::LEASE_MS + 1);
    assert_eq!(world.expire().await, 1);
    assert!(matches!(give(&world, &lease, 1).await, Err(CommandError::Rejected(_))));
    let again = worker.lease_one().await;
    assert_eq!(again.run, lease.run);
    assert!(matches!(give(&world, &lease, 1).await, Err(CommandError::Rejected(_))));
    give(&world, &again, 1).await.expect("its holder does");
    world.check().await;
}

pub(super) async fn a_childs_end_lets_its_parent_go_on(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let concurrency = Some(Concurrency { key: "one at a time".to_owned(), max: 1 });
    let keyed = |title| TaskSpec {
        conditions: Conditions { concurrency: concurrency.clone(), ..Conditions::default() },
        ..spec(title)
    };
    let lease = leased(&world, &worker, keyed("parent")).await;
    let parent = lease.record.id;
    let mut children = Vec::new();
    for nth in 0..2 {
        let (child, submitted) = submitted(&lease, nth, keyed("child"));
        let epoch = lease.record.epoch;
        let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
        world.act(parent, plan).await.expect("gives");
        children.push(child);
    }
    assert_eq!(next(&worker).await, None, "their parent has the key");
    let rests = rest(&worker, &lease).await.expect("rests");
    assert_eq!((rests.state, rests.blocked_why), (TaskState::Blocked, Some(TaskBlockedWhy::Child)));
    assert_eq!((rests.worker, rests.run), (None, Some(lease.run)));
    // It holds no key: its children go, one after the other.
    let first = worker.lease_one().await;
    assert!(children.contains(&first.record.id));
    assert_eq!(next(&worker).await, None);
    worker.end(&first, RunOutcome::Succeeded).await;
    assert_eq!(state(&world, parent).await, TaskState::Blocked, "the other is out");
    let second = worker.lease_one().await;
    world.act(second.record.id, |record| decide::cancel(record, "me", "enough")).await.expect("cancels");
    let goes = world.task(parent).await;
    assert_eq!((goes.state, goes.waits_for.len(), goes.run), (TaskState::Available, 0, Some(lease.run)));
    let answers = answers(&world, lease.run).await;
    let [(one, _), (other, last)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((one.is_error, one.more, one.run), (false, true, Some(first.run)));
    assert_eq!((other.is_error, other.more, other.child), (true, false, second.record.id));
    // The end of the last and the parent's release are one transaction.
    let feed = world.feed().await;
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
    world.check().await;
}

pub(super) async fn a_child_ends_whatever_its_parent_does(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    // While the parent is leased: its holder learns of it before it rests.
    let lease = leased(&world, &worker, spec("at work")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    let seen = head(&world, lease.run).await;
    assert_eq!(complete_next(&worker).await, child);
    let refused = rest_at(&worker, &lease, seen).await;
    assert!(matches!(refused, Err(CommandError::Append(_))), "{refused:?}");
    let parent = world.task(lease.record.id).await;
    assert_eq!((parent.state, parent.waits_for.len()), (TaskState::Running, 0));
    worker.end(&lease, RunOutcome::Succeeded).await;
    // While it is paused: it stays so.
    let lease = leased(&world, &worker, spec("paused")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    world.pass(super::world::LEASE_MS + 1);
    world.expire().await;
    let parent = lease.record.id;
    world.act(parent, |record| decide::pause(record, "me")).await.expect("pauses");
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(world.task(parent).await.blocked_why, Some(TaskBlockedWhy::Paused));
    assert_eq!(answers(&world, lease.run).await.len(), 1);
    world.act(parent, |record| decide::unpause(record, "me")).await.expect("goes on");
    assert_eq!(worker.lease_one().await.run, lease.run);
    world.act(parent, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    // Paused, and let go while the child is out: it waits for that one still.
    let lease = leased(&world, &worker, spec("let go")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    world.pass(super::world::LEASE_MS + 1);
    world.expire().await;
    let parent = lease.record.id;
    world.act(parent, |record| decide::pause(record, "me")).await.expect("pauses");
    world.act(parent, |record| decide::unpause(record, "me")).await.expect("goes on");
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(worker.lease_one().await.run, lease.run);
    world.act(parent, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    // Told things meanwhile, and discarded: the parent goes on all the same.
    let lease = leased(&world, &worker, spec("goes on")).await;
    let (child, submitted) = submitted(&lease, 0, TaskSpec { attempts_max: 1, ..spec("fails") });
    let epoch = lease.record.epoch;
    let plan = move |record: &TaskRecord| decide::delegate(record, epoch, child, submitted.clone());
    world.act(lease.record.id, plan).await.expect("gives");
    rest(&worker, &lease).await.expect("rests");
    world.tell(StreamId::Run(lease.run), 1).await.expect("told");
    let failing = worker.lease_one().await;
    assert_eq!(failing.record.id, child);
    worker.end(&failing, failure()).await;
    assert_eq!(state(&world, child).await, TaskState::Discarded);
    let (answer, _) = answers(&world, lease.run).await.pop().expect("answered");
    assert!(answer.is_error && answer.run == Some(failing.run), "{answer:?}");
    let content = format!("{:?}", answer.content);
    assert!(content.contains("discarded") && content.contains("red"), "{content}");
    // Taken up again later, it is nobody's any more.
    world.act(child, |record| decide::retry(record, "me", "", Dependencies::Kept)).await.expect("retries");
    assert_eq!(worker.lease_one().await.run, lease.run);
    assert_eq!(complete_next(&worker).await, child);
    assert_eq!(answers(&world, lease.run).await.len(), 1);
    world.check().await;
}

pub(super) async fn children_end_with_the_run_that_gave_them_away(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let why = async |task: TaskId| {
        let events = world.stream(StreamId::Task(task)).await;
        let last = events.last().expect("events");
        match TaskEvent::decode(&last.kind, last.version, last.payload.as_str()) {
            Ok(TaskEvent::TaskCancelled(why)) => why.by,
            other => panic!("{other:?}"),
        }
    };
    // A cancel reaches the child, which a worker has, and what that gave away.
    let lease = leased(&world, &worker, spec("top")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    rest(&worker, &lease).await.expect("rests");
    let below = worker.lease_one().await;
    assert_eq!(below.record.id, child);
    let grandchild = give(&world, &below, 0).await.expect("gives");
    world.act(lease.record.id, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    for task in [child, grandchild] {
        assert_eq!((state(&world, task).await, why(task).await.as_str()), (TaskState::Cancelled, BY_PARENT));
    }
    assert!(matches!(rest(&worker, &below).await, Err(CommandError::Rejected(_) | CommandError::Append(_))));
    // So do a failure of the parent's run, and a run that takes its place.
    let lease = leased(&world, &worker, spec("fails")).await;
    let child = give(&world, &lease, 0).await.expect("gives");
    worker.end(&lease, failure()).await;
    assert_eq!((state(&world, child).await, why(child).await.as_str()), (TaskState::Cancelled, BY_PARENT));
    assert_eq!(world.task(lease.record.id).await.state, TaskState::Retryable);
    world.pass(60_000);
    world.due().await;
    let lease = worker.lease_one().await;
    let child = give(&world, &lease, 0).await.expect("gives");
    rest(&worker, &lease).await.expect("rests");
    let retry = |record: &_| decide::retry(record, "me", "", Dependencies::Kept);
    world.act(lease.record.id, retry).await.expect("begins again");
    assert_eq!(state(&world, child).await, TaskState::Cancelled);
    assert_eq!(complete_next(&worker).await, lease.record.id);
    world.check().await;
}

/// Parent and child end at the same time through two coordinators: whoever is first, both have ended, and the log holds.
pub(super) async fn ends_of_both_at_once_strand_nobody(database: Database) {
    const ROUNDS: usize = 12;
    let world = World::open(database).await;
    let worker = world.worker();
    let beside = world.beside().await;
    for round in 0..ROUNDS {
        let lease = leased(&world, &worker, spec("parent")).await;
        let child = give(&world, &lease, 0).await.expect("gives");
        rest(&worker, &lease).await.expect("rests");
        let held = worker.lease_one().await;
        assert_eq!(held.record.id, child);
        let at = head(&world, held.run).await;
        let done = vec![super::world::ended(RunOutcome::Succeeded)];
        let other = worker.through(beside.clone());
        let (cancelled, _) = tokio::join!(
            world.act(lease.record.id, |record| decide::cancel(record, "me", "")),
            other.settle(&held, at, done),
        );
        cancelled.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert_eq!(state(&world, lease.record.id).await, TaskState::Cancelled);
        assert!(state(&world, child).await.is_ended(), "round {round}");
    }
    world.check().await;
}
