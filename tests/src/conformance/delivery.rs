//! Results that cannot be delivered: their tasks live again until they are settled.

use docket_coordinator::{decide, store::CommandError};
use docket_schema::{
    ids::{RunId, TaskId},
    run::RunOutcome,
    task::{Delivery, DeliveryBlockedWhy, TaskRecord, TaskSpec, TaskState},
    wire::DeliveryStep,
};

use super::{Database, World, world::spec};

fn blocked() -> DeliveryStep {
    DeliveryStep::Blocked {
        branch: "fix/it".to_owned(),
        why: DeliveryBlockedWhy::Conflict,
        paths: vec!["a.txt".to_owned()],
        kept: Some("docket/x".to_owned()),
        message: "conflicts".to_owned(),
    }
}

async fn told(
    world: &World,
    task: TaskId,
    run: RunId,
    step: DeliveryStep,
) -> Result<TaskRecord, CommandError> {
    world.act(task, move |record| decide::deliver(record, "me", run, step.clone())).await
}

pub(super) async fn an_undelivered_task_is_not_ended_until_it_is_settled(database: Database) {
    let world = World::open(database).await;
    let wanted =
        TaskSpec { delivery: Some(Delivery::Push), dedup_key: Some("it".to_owned()), ..spec("to be pushed") };
    let task = world.submit(wanted.clone()).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    worker.end(&lease, RunOutcome::Succeeded).await;
    let run = lease.run;

    let record = told(&world, task, run, blocked()).await.expect("tells");
    assert!(record.is_undelivered() && record.ended_at.is_none(), "{record:?}");
    assert_eq!(world.task(task).await, record, "the row says what the log says");
    assert_eq!(world.submit(wanted.clone()).await, task, "its key is held again");
    assert!(worker.lease(5).await.is_empty(), "no worker gets it");
    world.check().await;
    let record = told(
        &world,
        task,
        run,
        DeliveryStep::Delivered { branch: "other".to_owned(), commit: "1".repeat(40), remote: None },
    );
    let record = record.await.expect("tells");
    assert!(record.state == TaskState::Completed && record.ended_at.is_some(), "{record:?}");
    world.check().await;

    // Another took the key meanwhile: what is told then is refused, and the task stays ended.
    let other = world.submit(wanted).await;
    assert_ne!(other, task);
    let refused = told(&world, task, run, blocked()).await;
    assert!(matches!(refused, Err(CommandError::Rejected(_))), "{refused:?}");
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    world.check().await;
}
