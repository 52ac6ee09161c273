//! Dependencies: how an end, a failure and a retry affect waiting tasks.

use docket_coordinator::{
    decide::{self, DependencyRetry},
    store::{AppendError, NewTask},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{StreamId, TaskId},
    run::RunOutcome,
    task::{BY_DEPENDENCY, DependencyFailurePolicy, LeaseConditions, TaskEvent, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{failed_outcome, task_spec},
    flow::{complete_next, lease_next, task_state},
};

fn spec_after(ids: &[TaskId], if_failed: DependencyFailurePolicy) -> TaskSpec {
    TaskSpec {
        conditions: LeaseConditions { after: ids.to_vec(), if_failed, ..LeaseConditions::default() },
        ..task_spec("later")
    }
}

pub(super) async fn task_waits_for_its_dependencies(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let (one, two) = (world.submit(task_spec("one")).await, world.submit(task_spec("two")).await);
    let last = world.submit(spec_after(&[one, two], DependencyFailurePolicy::Hold)).await;
    let beyond = world.submit(spec_after(&[last], DependencyFailurePolicy::Hold)).await;
    assert_eq!(
        (task_state(&world, last).await, task_state(&world, beyond).await),
        (TaskState::Pending, TaskState::Pending)
    );
    assert_eq!(complete_next(&worker).await, one);
    assert_eq!(world.task(last).await.waits_for, [two]);
    // Paused by a person meanwhile: the end of its dependency is still recorded.
    world.run_command(last, |record| decide::pause(record, "me")).await.expect("paused");
    assert_eq!(complete_next(&worker).await, two);
    assert_eq!(task_state(&world, last).await, TaskState::Blocked);
    world.run_command(last, |record| decide::unpause(record, "me")).await.expect("unpaused");
    assert_eq!(complete_next(&worker).await, last);
    assert_eq!(complete_next(&worker).await, beyond);
    // An already ended dependency holds nothing back; a scheduled task still waits for its time.
    let now = world.submit(spec_after(&[one, beyond], DependencyFailurePolicy::Hold)).await;
    assert_eq!(task_state(&world, now).await, TaskState::Available);
    let run_at = Some(world.now().plus_ms(60_000));
    let scheduled =
        world.submit(TaskSpec { run_at, ..spec_after(&[one], DependencyFailurePolicy::Hold) }).await;
    assert_eq!(task_state(&world, scheduled).await, TaskState::Scheduled);
    world.check_consistency().await;
}

pub(super) async fn failed_dependency_applies_the_if_failed_policy(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let first = world.submit(TaskSpec { attempts_max: 1, ..task_spec("fails") }).await;
    let held = world.submit(spec_after(&[first], DependencyFailurePolicy::Hold)).await;
    let cancelled = world.submit(spec_after(&[first], DependencyFailurePolicy::Cancel)).await;
    let chained = world.submit(spec_after(&[cancelled], DependencyFailurePolicy::Cancel)).await;
    let runs = world.submit(spec_after(&[first], DependencyFailurePolicy::Run)).await;
    let lease = worker.lease(1).await.remove(0);
    worker.end_run(&lease, failed_outcome()).await;
    assert_eq!(task_state(&world, first).await, TaskState::Discarded);
    for (task, expected) in [
        (held, TaskState::Pending),
        (cancelled, TaskState::Cancelled),
        (chained, TaskState::Cancelled),
        (runs, TaskState::Available),
    ] {
        assert_eq!(task_state(&world, task).await, expected);
    }
    let events = world.read_stream(StreamId::Task(chained)).await;
    let last = events.last().expect("events");
    let event = TaskEvent::decode(&last.kind, last.version, last.payload.as_str()).expect("decodes");
    let TaskEvent::TaskCancelled(why) = event else { panic!("{event:?}") };
    assert!(why.reason.contains(&cancelled.to_string()) && why.by == BY_DEPENDENCY, "{why:?}");
    assert_eq!(world.task(chained).await.message, Some(why.reason), "`ps`, `show` and `why` name it");
    // A retry releases the held dependents, and a dependent may be told to continue without it.
    let impatient = world.submit(spec_after(&[first], DependencyFailurePolicy::Hold)).await;
    assert_eq!(task_state(&world, impatient).await, TaskState::Pending);
    world
        .run_command(impatient, |record| decide::retry(record, "me", "", DependencyRetry::Dropped))
        .await
        .expect("goes without");
    assert_eq!(task_state(&world, impatient).await, TaskState::Available);
    world
        .run_command(first, |record| decide::retry(record, "me", "", DependencyRetry::Kept))
        .await
        .expect("taken up again");
    while task_state(&world, first).await != TaskState::Completed {
        complete_next(&worker).await;
    }
    assert_eq!(task_state(&world, held).await, TaskState::Available);
    world.check_consistency().await;
}

/// A failed batch can be retried in any order, and runs in dependency order.
pub(super) async fn retried_task_waits_again_for_incomplete_dependencies(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let done = world.submit(task_spec("done")).await;
    let root = world.submit(task_spec("root")).await;
    let cancelled = world.submit(spec_after(&[done, root], DependencyFailurePolicy::Cancel)).await;
    let held = world.submit(spec_after(&[root], DependencyFailurePolicy::Hold)).await;
    let regardless = world.submit(spec_after(&[root], DependencyFailurePolicy::Run)).await;
    assert_eq!(complete_next(&worker).await, done);
    world.run_command(root, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(task_state(&world, cancelled).await, TaskState::Cancelled);
    assert_eq!(complete_next(&worker).await, regardless);
    let retry = |record: &_| decide::retry(record, "me", "", DependencyRetry::Kept);
    world.run_command(held, retry).await.expect_err("it waits already");
    world.run_command(cancelled, retry).await.expect("taken up again, before what it waits for is");
    assert_eq!(world.task(cancelled).await.waits_for, [root]);
    world.run_command(regardless, retry).await.expect("taken up again");
    assert_eq!(task_state(&world, regardless).await, TaskState::Available);
    assert_eq!(complete_next(&worker).await, regardless);
    world.run_command(root, retry).await.expect("taken up again");
    assert_eq!(lease_next(&worker).await, Some(root));
    assert_eq!(lease_next(&worker).await, None, "none of those behind it");
    for task in [cancelled, held] {
        assert_eq!(task_state(&world, task).await, TaskState::Pending);
    }
    world.run_command(root, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(
        task_state(&world, cancelled).await,
        TaskState::Cancelled,
        "as it was asked for at its submit"
    );
    world
        .run_command(cancelled, |record| decide::retry(record, "me", "", DependencyRetry::Dropped))
        .await
        .expect("goes without");
    assert_eq!(complete_next(&worker).await, cancelled);
    world.run_command(root, retry).await.expect("taken up again");
    assert_eq!((complete_next(&worker).await, complete_next(&worker).await), (root, held));
    // Once everything is completed, nothing waits.
    world.run_command(cancelled, retry).await.expect("again");
    assert_eq!(lease_next(&worker).await, Some(cancelled));
    world.check_consistency().await;
}

pub(super) async fn unknown_dependency_refuses_the_submit(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let ids = [TaskId(world.next_id()), TaskId(world.next_id())];
    let new = |id, spec| NewTask { id, spec, fork: None };
    let forward = vec![
        new(ids[0], spec_after(&[ids[1]], DependencyFailurePolicy::Hold)),
        new(ids[1], task_spec("second")),
    ];
    let refused = world.store.submit(forward, String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::DependencyNotFound(on)) if on == ids[1]), "{refused:?}");
    assert!(world.read_feed().await.is_empty(), "none");
    let back = vec![
        new(ids[0], task_spec("first")),
        new(ids[1], spec_after(&[ids[0]], DependencyFailurePolicy::Hold)),
    ];
    world.store.submit(back, String::new(), world.now()).await.expect("one after the other");
    assert_eq!(task_state(&world, ids[1]).await, TaskState::Pending);
    world.check_consistency().await;
}

/// Either the submit of a dependent sees the dependency's end, or that end sees the dependent.
pub(super) async fn concurrent_ends_and_submits_strand_no_task(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let beside = world.open_second_coordinator().await;
    for _ in 0..30 {
        let first = world.submit(task_spec("first")).await;
        let worker = world.new_worker();
        let lease = worker.lease(1).await.remove(0);
        let submits = (0..4).map(|_| beside.submit(spec_after(&[first], DependencyFailurePolicy::Hold)));
        let (_, waiting) = futures_util::future::join(
            worker.end_run(&lease, RunOutcome::Succeeded),
            futures_util::future::join_all(submits),
        )
        .await;
        for task in waiting {
            assert_eq!(task_state(&world, task).await, TaskState::Available);
            world.run_command(task, |record| decide::cancel(record, "me", "")).await.expect("out of the way");
        }
    }
    beside.store.close().await;
    world.check_consistency().await;
}

/// The end of a chain's first task reaches its last one, whatever the length.
pub(super) async fn long_dependency_chain_is_cancelled_with_its_first_task(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let mut ids = vec![TaskId(world.next_id())];
    let mut tasks = vec![NewTask { id: ids[0], spec: task_spec("head"), fork: None }];
    for n in 0..999 {
        let id = TaskId(world.next_id());
        tasks.push(NewTask { id, spec: spec_after(&[ids[n]], DependencyFailurePolicy::Cancel), fork: None });
        ids.push(id);
    }
    world.store.submit(tasks, String::new(), world.now()).await.expect("accepted");
    world.run_command(ids[0], |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(task_state(&world, ids[999]).await, TaskState::Cancelled);
    world.check_consistency().await;
}
