//! Tasks that wait for others: what an end, a failure and a retry make of them.

use docket_coordinator::{
    decide::{self, Dependencies},
    store::{AppendError, NewTask},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{StreamId, TaskId},
    run::RunOutcome,
    task::{BY_DEPENDENCY, Conditions, IfFailed, TaskEvent, TaskSpec, TaskState},
};

use super::{
    Database, World,
    flow::{complete_next, next, state},
    world::{failure, spec},
};

fn after(ids: &[TaskId], if_failed: IfFailed) -> TaskSpec {
    TaskSpec {
        conditions: Conditions { after: ids.to_vec(), if_failed, ..Conditions::default() },
        ..spec("later")
    }
}

pub(super) async fn a_task_waits_until_the_others_are_completed(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let (one, two) = (world.submit(spec("one")).await, world.submit(spec("two")).await);
    let last = world.submit(after(&[one, two], IfFailed::Hold)).await;
    let beyond = world.submit(after(&[last], IfFailed::Hold)).await;
    assert_eq!(
        (state(&world, last).await, state(&world, beyond).await),
        (TaskState::Pending, TaskState::Pending)
    );
    assert_eq!(complete_next(&worker).await, one);
    assert_eq!(world.task(last).await.waits_for, [two]);
    // Held by a person meanwhile: what it waits for ends all the same.
    world.act(last, |record| decide::pause(record, "me")).await.expect("paused");
    assert_eq!(complete_next(&worker).await, two);
    assert_eq!(state(&world, last).await, TaskState::Blocked);
    world.act(last, |record| decide::unpause(record, "me")).await.expect("unpaused");
    assert_eq!(complete_next(&worker).await, last);
    assert_eq!(complete_next(&worker).await, beyond);
    // What has ended already keeps nobody back; what is to come at its time waits for that.
    let now = world.submit(after(&[one, beyond], IfFailed::Hold)).await;
    assert_eq!(state(&world, now).await, TaskState::Available);
    let run_at = Some(world.now().plus_ms(60_000));
    let scheduled = world.submit(TaskSpec { run_at, ..after(&[one], IfFailed::Hold) }).await;
    assert_eq!(state(&world, scheduled).await, TaskState::Scheduled);
    world.check().await;
}

pub(super) async fn what_becomes_of_who_waits_for_a_task_that_failed(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let first = world.submit(TaskSpec { attempts_max: 1, ..spec("fails") }).await;
    let held = world.submit(after(&[first], IfFailed::Hold)).await;
    let cancelled = world.submit(after(&[first], IfFailed::Cancel)).await;
    let chained = world.submit(after(&[cancelled], IfFailed::Cancel)).await;
    let runs = world.submit(after(&[first], IfFailed::Run)).await;
    let lease = worker.lease(1).await.remove(0);
    worker.end(&lease, failure()).await;
    assert_eq!(state(&world, first).await, TaskState::Discarded);
    for (task, expected) in [
        (held, TaskState::Pending),
        (cancelled, TaskState::Cancelled),
        (chained, TaskState::Cancelled),
        (runs, TaskState::Available),
    ] {
        assert_eq!(state(&world, task).await, expected);
    }
    let events = world.stream(StreamId::Task(chained)).await;
    let last = events.last().expect("events");
    let event = TaskEvent::decode(&last.kind, last.version, last.payload.as_str()).expect("decodes");
    let TaskEvent::TaskCancelled(why) = event else { panic!("{event:?}") };
    assert!(why.reason.contains(&cancelled.to_string()) && why.by == BY_DEPENDENCY, "{why:?}");
    assert_eq!(world.task(chained).await.message, Some(why.reason), "`ps`, `show` and `why` name it");
    // Taken up again, it lets go on who held out; and whoever is told to goes without it.
    let impatient = world.submit(after(&[first], IfFailed::Hold)).await;
    assert_eq!(state(&world, impatient).await, TaskState::Pending);
    world
        .act(impatient, |record| decide::retry(record, "me", "", Dependencies::Dropped))
        .await
        .expect("goes without");
    assert_eq!(state(&world, impatient).await, TaskState::Available);
    world
        .act(first, |record| decide::retry(record, "me", "", Dependencies::Kept))
        .await
        .expect("taken up again");
    while state(&world, first).await != TaskState::Completed {
        complete_next(&worker).await;
    }
    assert_eq!(state(&world, held).await, TaskState::Available);
    world.check().await;
}

/// A batch that failed is taken up again in whatever order, and goes in the order in which it was to go.
pub(super) async fn a_retried_task_waits_again_for_what_is_not_completed(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let done = world.submit(spec("done")).await;
    let root = world.submit(spec("root")).await;
    let cancelled = world.submit(after(&[done, root], IfFailed::Cancel)).await;
    let held = world.submit(after(&[root], IfFailed::Hold)).await;
    let regardless = world.submit(after(&[root], IfFailed::Run)).await;
    assert_eq!(complete_next(&worker).await, done);
    world.act(root, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(state(&world, cancelled).await, TaskState::Cancelled);
    assert_eq!(complete_next(&worker).await, regardless);
    let retry = |record: &_| decide::retry(record, "me", "", Dependencies::Kept);
    world.act(held, retry).await.expect_err("it waits already");
    world.act(cancelled, retry).await.expect("taken up again, before what it waits for is");
    assert_eq!(world.task(cancelled).await.waits_for, [root]);
    world.act(regardless, retry).await.expect("taken up again");
    assert_eq!(state(&world, regardless).await, TaskState::Available);
    assert_eq!(complete_next(&worker).await, regardless);
    world.act(root, retry).await.expect("taken up again");
    assert_eq!(next(&worker).await, Some(root));
    assert_eq!(next(&worker).await, None, "none of those behind it");
    for task in [cancelled, held] {
        assert_eq!(state(&world, task).await, TaskState::Pending);
    }
    world.act(root, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(state(&world, cancelled).await, TaskState::Cancelled, "as it was asked for at its submit");
    world
        .act(cancelled, |record| decide::retry(record, "me", "", Dependencies::Dropped))
        .await
        .expect("goes without");
    assert_eq!(complete_next(&worker).await, cancelled);
    world.act(root, retry).await.expect("taken up again");
    assert_eq!((complete_next(&worker).await, complete_next(&worker).await), (root, held));
    // Once all of it is completed, nothing is waited for.
    world.act(cancelled, retry).await.expect("again");
    assert_eq!(next(&worker).await, Some(cancelled));
    world.check().await;
}

pub(super) async fn a_dependency_that_nobody_knows_refuses_the_submit(database: Database) {
    let world = World::open(database).await;
    let ids = [TaskId(world.id()), TaskId(world.id())];
    let new = |id, spec| NewTask { id, spec, fork: None };
    let forward = vec![new(ids[0], after(&[ids[1]], IfFailed::Hold)), new(ids[1], spec("second"))];
    let refused = world.store.submit(forward, String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::NoDependency(on)) if on == ids[1]), "{refused:?}");
    assert!(world.feed().await.is_empty(), "none");
    let back = vec![new(ids[0], spec("first")), new(ids[1], after(&[ids[0]], IfFailed::Hold))];
    world.store.submit(back, String::new(), world.now()).await.expect("one after the other");
    assert_eq!(state(&world, ids[1]).await, TaskState::Pending);
    world.check().await;
}

/// Whoever submits a task that waits sees the other's end, or that one's end sees who waits.
pub(super) async fn ends_and_submits_at_once_strand_nobody(database: Database) {
    let world = World::open(database).await;
    let beside = world.beside().await;
    for _ in 0..30 {
        let first = world.submit(spec("first")).await;
        let worker = world.worker();
        let lease = worker.lease(1).await.remove(0);
        let submits = (0..4).map(|_| beside.submit(after(&[first], IfFailed::Hold)));
        let (_, waiting) = futures_util::future::join(
            worker.end(&lease, RunOutcome::Succeeded),
            futures_util::future::join_all(submits),
        )
        .await;
        for task in waiting {
            assert_eq!(state(&world, task).await, TaskState::Available);
            world.act(task, |record| decide::cancel(record, "me", "")).await.expect("out of the way");
        }
    }
    beside.store.close().await;
    world.check().await;
}

/// The end of a chain's head reaches its last task, however long it is.
pub(super) async fn a_long_chain_is_cancelled_with_its_head(database: Database) {
    let world = World::open(database).await;
    let mut ids = vec![TaskId(world.id())];
    let mut tasks = vec![NewTask { id: ids[0], spec: spec("head"), fork: None }];
    for n in 0..999 {
        let id = TaskId(world.id());
        tasks.push(NewTask { id, spec: after(&[ids[n]], IfFailed::Cancel), fork: None });
        ids.push(id);
    }
    world.store.submit(tasks, String::new(), world.now()).await.expect("accepted");
    world.act(ids[0], |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(state(&world, ids[999]).await, TaskState::Cancelled);
    world.check().await;
}
