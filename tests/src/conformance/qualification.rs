//! The qualification that two known queues failed (xiao-villamor/PrintStash#181), point by point.
//! `faults::busy_errors_never_reach_callers` covers that a busy database is never exposed to a caller;
//! `inbox::enqueue_joins_the_callers_transaction` covers that an enqueue joins the caller's transaction.

use docket_coordinator::{
    decide::CommandRejection,
    store::{CommandError, WorkerHeartbeat},
};
use docket_schema::{
    api::{HeldLease, LeaseLostReason, LeaseRequest},
    ids::{IncarnationId, Seq, StreamId, TaskId},
    run::RunOutcome,
    task::{Backoff, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, LEASE_MS, failed_outcome, note_event, run_ended, task_spec},
};

fn lost_reason(refused: Result<impl std::fmt::Debug, CommandError>) -> LeaseLostReason {
    match refused.expect_err("the lease is lost") {
        CommandError::Rejected(CommandRejection::LeaseLost { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

async fn count_completions(world: &StoreFixture, task: TaskId) -> usize {
    world.read_stream(StreamId::Task(task)).await.iter().filter(|event| event.kind == "TaskCompleted").count()
}

/// A worker that slept past its lease acknowledges a task that another worker now has.
pub(super) async fn late_completion_after_takeover_is_refused(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("one")).await;
    let (sleeper, successor) = (world.new_worker(), world.new_worker());
    let slept = sleeper.lease_one().await;
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    let taken = successor.lease_one().await;
    assert_eq!((taken.record.id, taken.run), (task, slept.run), "the same run continues");
    let late = sleeper.finish_lease(&slept, Seq(0), vec![run_ended(RunOutcome::Succeeded)]).await;
    assert_eq!(lost_reason(late), LeaseLostReason::Fenced);
    let late = sleeper.finish_lease(&slept, Seq(0), vec![run_ended(failed_outcome())]).await;
    assert_eq!(lost_reason(late), LeaseLostReason::Fenced);
    world
        .append(slept.run, Seq(0), slept.record.epoch, vec![note_event(1)])
        .await
        .expect_err("nor an append");
    assert_eq!(world.task(task).await.state, TaskState::Running, "the successor's");
    successor.end_run(&taken, RunOutcome::Succeeded).await;
    assert_eq!(
        (world.task(task).await.state, count_completions(&world, task).await),
        (TaskState::Completed, 1)
    );
    world.check_consistency().await;
}

/// An expired lease is neither renewed nor completed, even if no other worker has the task yet.
pub(super) async fn completion_and_renewal_after_expiry_are_refused(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("one")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    let held = vec![HeldLease { task, epoch: lease.record.epoch }];
    let beat = WorkerHeartbeat { incarnation: worker.incarnation, leases: held, capacity: None };
    let renewed = world.store.renew_leases(beat, LEASE_MS, world.now()).await.expect("answers");
    assert!(renewed.renewed.is_empty() && renewed.lost[0].why == LeaseLostReason::Expired, "{renewed:?}");
    let late = worker.finish_lease(&lease, Seq(0), vec![run_ended(RunOutcome::Succeeded)]).await;
    assert_eq!(lost_reason(late), LeaseLostReason::Expired);
    assert_eq!(
        (world.task(task).await.state, count_completions(&world, task).await),
        (TaskState::Available, 0)
    );
    // Nor after the next lease of the same worker, under the previous epoch.
    let again = worker.lease_one().await;
    assert!(again.record.epoch > lease.record.epoch);
    let late = worker.finish_lease(&lease, Seq(0), vec![run_ended(RunOutcome::Succeeded)]).await;
    assert_eq!(lost_reason(late), LeaseLostReason::Fenced);
    worker.end_run(&again, RunOutcome::Succeeded).await;
    assert_eq!(count_completions(&world, task).await, 1);
    world.check_consistency().await;
}

/// A worker restarted under its name is a different worker: it does not own its predecessor's leases.
pub(super) async fn restarted_worker_does_not_inherit_leases(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (one, two) = (world.submit(task_spec("one")).await, world.submit(task_spec("two")).await);
    let (before, after) = (world.new_worker(), world.new_worker());
    let named =
        |worker: &FakeWorker| LeaseRequest { name: "builder".to_owned(), ..worker.next_lease_request(1) };
    let first = before.send_lease_request(named(&before)).await.remove(0);
    assert_eq!(first.record.id, one);
    // Its first request has the same number as the other's first.
    let second = after.send_lease_request(named(&after)).await.remove(0);
    assert_eq!(second.record.id, two, "not the answer that the other got");
    let held = vec![HeldLease { task: one, epoch: first.record.epoch }];
    let stolen = WorkerHeartbeat { incarnation: after.incarnation, leases: held.clone(), capacity: None };
    let renewed = world.store.renew_leases(stolen, LEASE_MS, world.now()).await.expect("answers");
    assert!(renewed.renewed.is_empty() && renewed.lost[0].why == LeaseLostReason::Fenced, "{renewed:?}");
    let own = WorkerHeartbeat { incarnation: before.incarnation, leases: held, capacity: None };
    let renewed = world.store.renew_leases(own, LEASE_MS, world.now()).await.expect("answers");
    assert_eq!(renewed.renewed, [one], "and the one that had it has it");
    let (_, workers) = world.store.read_status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let same: Vec<IncarnationId> =
        workers.iter().filter(|view| view.name == "builder").map(|view| view.incarnation).collect();
    assert_eq!(same.len(), 2, "two workers of one name");
    before.end_run(&first, RunOutcome::Succeeded).await;
    after.end_run(&second, RunOutcome::Succeeded).await;
    assert_eq!((count_completions(&world, one).await, count_completions(&world, two).await), (1, 1));
    world.check_consistency().await;
}

/// Runs fail, workers and coordinators come and go: each task is attempted as often as allowed, then given
/// up; none waits forever.
pub(super) async fn no_retryable_failure_is_stranded(database: TestDatabase) {
    let mut world = StoreFixture::open(database).await;
    let backoff = Backoff { base_ms: 1000, max_ms: 8000 };
    let tasks: Vec<TaskId> = {
        let mut tasks = Vec::new();
        for _ in 0..24 {
            tasks.push(world.submit(TaskSpec { attempts_max: 4, backoff, ..task_spec("fails") }).await);
        }
        tasks
    };
    for round in 0..200_u64 {
        let worker = world.new_worker();
        for (nth, lease) in (0_u64..).zip(worker.lease(7).await) {
            match (nth + round) % 4 {
                // The worker vanishes with its lease; the task comes back when the lease expires.
                0 => {}
                1 => drop(worker.end_run(&lease, RunOutcome::Succeeded).await),
                _ => drop(worker.end_run(&lease, failed_outcome()).await),
            }
        }
        world.advance_clock(if round % 5 == 0 { LEASE_MS + 1 } else { 1500 });
        world.expire_leases().await;
        world.make_due_tasks_available().await;
        if round % 7 == 0 {
            // The next coordinator knows only the log.
            let next = world.open_second_coordinator().await;
            world.store.close().await;
            world = next;
        }
        let mut left = 0;
        for task in &tasks {
            left += usize::from(!world.task(*task).await.state.is_ended());
        }
        if left == 0 {
            break;
        }
    }
    for task in tasks {
        let record = world.task(task).await;
        match record.state {
            TaskState::Completed => assert!(record.failures < 4, "{record:?}"),
            TaskState::Discarded => assert_eq!(record.failures, 4, "{record:?}"),
            other => panic!("stranded as {other}: {record:?}"),
        }
    }
    world.check_consistency().await;
}
