//! The qualification that two known queues failed (xiao-villamor/PrintStash#181), point by point. That no busy database is
//! shown to a caller is `faults::busy_never_reaches_a_caller`; that an enqueue joins the caller's transaction,
//! `inbox::enqueue_in_the_callers_transaction`.

use docket_coordinator::{
    decide::Rejection,
    store::{CommandError, Heartbeat},
};
use docket_schema::{
    ids::{IncarnationId, Seq, StreamId, TaskId},
    run::RunOutcome,
    task::{Backoff, TaskSpec, TaskState},
    wire::{Held, LeaseRequest, LostWhy},
};

use super::{
    Database, World,
    world::{LEASE_MS, Worker, ended, failure, note, spec},
};

fn why(refused: Result<impl std::fmt::Debug, CommandError>) -> LostWhy {
    match refused.expect_err("the lease is no more") {
        CommandError::Rejected(Rejection::LeaseLost { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

async fn completions(world: &World, task: TaskId) -> usize {
    world.stream(StreamId::Task(task)).await.iter().filter(|event| event.kind == "TaskCompleted").count()
}

/// A worker that slept past its lease acknowledges what another has by now.
pub(super) async fn late_acknowledgement_after_takeover(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("one")).await;
    let (sleeper, successor) = (world.worker(), world.worker());
    let slept = sleeper.lease_one().await;
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 1);
    let taken = successor.lease_one().await;
    assert_eq!((taken.record.id, taken.run), (task, slept.run), "the same run goes on");
    let late = sleeper.settle(&slept, Seq(0), vec![ended(RunOutcome::Succeeded)]).await;
    assert_eq!(why(late), LostWhy::Fenced);
    let late = sleeper.settle(&slept, Seq(0), vec![ended(failure())]).await;
    assert_eq!(why(late), LostWhy::Fenced);
    world.append(slept.run, Seq(0), slept.record.epoch, vec![note(1)]).await.expect_err("nor an append");
    assert_eq!(world.task(task).await.state, TaskState::Running, "the successor's");
    successor.end(&taken, RunOutcome::Succeeded).await;
    assert_eq!((world.task(task).await.state, completions(&world, task).await), (TaskState::Completed, 1));
    world.check().await;
}

/// A lease that expired is neither renewed nor completed, also where nobody else has the task yet.
pub(super) async fn completion_and_renewal_after_expiry(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("one")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 1);
    let held = vec![Held { task, epoch: lease.record.epoch }];
    let beat = Heartbeat { incarnation: worker.incarnation, held, room: None };
    let renewed = world.store.heartbeat(beat, LEASE_MS, world.now()).await.expect("answers");
    assert!(renewed.renewed.is_empty() && renewed.lost[0].why == LostWhy::Expired, "{renewed:?}");
    let late = worker.settle(&lease, Seq(0), vec![ended(RunOutcome::Succeeded)]).await;
    assert_eq!(why(late), LostWhy::Expired);
    assert_eq!((world.task(task).await.state, completions(&world, task).await), (TaskState::Available, 0));
    // Nor by the next lease of the very same worker, under the epoch before.
    let again = worker.lease_one().await;
    assert!(again.record.epoch > lease.record.epoch);
    let late = worker.settle(&lease, Seq(0), vec![ended(RunOutcome::Succeeded)]).await;
    assert_eq!(why(late), LostWhy::Fenced);
    worker.end(&again, RunOutcome::Succeeded).await;
    assert_eq!(completions(&world, task).await, 1);
    world.check().await;
}

/// A worker that starts again under its name is another worker: what the one before it had is not its own.
pub(super) async fn reuse_of_a_workers_name(database: Database) {
    let world = World::open(database).await;
    let (one, two) = (world.submit(spec("one")).await, world.submit(spec("two")).await);
    let (before, after) = (world.worker(), world.worker());
    let named = |worker: &Worker| LeaseRequest { name: "builder".to_owned(), ..worker.request(1) };
    let first = before.send(named(&before)).await.remove(0);
    assert_eq!(first.record.id, one);
    // Its first request has the number that the other's first had.
    let second = after.send(named(&after)).await.remove(0);
    assert_eq!(second.record.id, two, "not the answer that the other got");
    let held = vec![Held { task: one, epoch: first.record.epoch }];
    let stolen = Heartbeat { incarnation: after.incarnation, held: held.clone(), room: None };
    let renewed = world.store.heartbeat(stolen, LEASE_MS, world.now()).await.expect("answers");
    assert!(renewed.renewed.is_empty() && renewed.lost[0].why == LostWhy::Fenced, "{renewed:?}");
    let own = Heartbeat { incarnation: before.incarnation, held, room: None };
    let renewed = world.store.heartbeat(own, LEASE_MS, world.now()).await.expect("answers");
    assert_eq!(renewed.renewed, [one], "and the one that had it has it");
    let (_, workers) = world.store.status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let same: Vec<IncarnationId> =
        workers.iter().filter(|view| view.name == "builder").map(|view| view.incarnation).collect();
    assert_eq!(same.len(), 2, "two workers of one name");
    before.end(&first, RunOutcome::Succeeded).await;
    after.end(&second, RunOutcome::Succeeded).await;
    assert_eq!((completions(&world, one).await, completions(&world, two).await), (1, 1));
    world.check().await;
}

/// Runs fail, workers and coordinators come and go: each task is tried as often as it may be, and then told to be
/// given up; none waits for ever.
pub(super) async fn no_retryable_failure_is_stranded(database: Database) {
    let mut world = World::open(database).await;
    let backoff = Backoff { base_ms: 1000, max_ms: 8000 };
    let tasks: Vec<TaskId> = {
        let mut tasks = Vec::new();
        for _ in 0..24 {
            tasks.push(world.submit(TaskSpec { attempts_max: 4, backoff, ..spec("fails") }).await);
        }
        tasks
    };
    for round in 0..200_u64 {
        let worker = world.worker();
        for (nth, lease) in (0_u64..).zip(worker.lease(7).await) {
            match (nth + round) % 4 {
                // It vanishes with its lease, and comes back when that expires.
                0 => {}
                1 => drop(worker.end(&lease, RunOutcome::Succeeded).await),
                _ => drop(worker.end(&lease, failure()).await),
            }
        }
        world.pass(if round % 5 == 0 { LEASE_MS + 1 } else { 1500 });
        world.expire().await;
        world.due().await;
        if round % 7 == 0 {
            // Whoever comes next knows nothing but the log.
            let next = world.beside().await;
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
    world.check().await;
}
