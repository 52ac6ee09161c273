//! Results that cannot be delivered: their tasks become live again until they are settled.

use docket_coordinator::{decide, store::CommandError};
use docket_schema::{
    api::DeliveryStep,
    ids::{RunId, TaskId},
    run::RunOutcome,
    task::{DeliveryBlockedReason, DeliveryMode, TaskRecord, TaskSpec, TaskState},
};

use super::{StoreFixture, TestDatabase, fixture::task_spec};

fn blocked_step() -> DeliveryStep {
    DeliveryStep::Blocked {
        branch: "fix/it".to_owned(),
        why: DeliveryBlockedReason::Conflict,
        paths: vec!["a.txt".to_owned()],
        kept: Some("docket/x".to_owned()),
        message: "conflicts".to_owned(),
    }
}

async fn report_delivery(
    world: &StoreFixture,
    task: TaskId,
    run: RunId,
    step: DeliveryStep,
) -> Result<TaskRecord, CommandError> {
    world.run_command(task, move |record| decide::record_delivery_step(record, "me", run, step.clone())).await
}

pub(super) async fn undelivered_task_does_not_end_until_delivery_is_settled(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let wanted = TaskSpec {
        delivery: Some(DeliveryMode::Push),
        dedup_key: Some("it".to_owned()),
        ..task_spec("to be pushed")
    };
    let task = world.submit(wanted.clone()).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    let run = lease.run;

    let record = report_delivery(&world, task, run, blocked_step()).await.expect("tells");
    assert!(record.is_undelivered() && record.ended_at.is_none(), "{record:?}");
    assert_eq!(world.task(task).await, record, "the row says what the log says");
    assert_eq!(world.submit(wanted.clone()).await, task, "its key is held again");
    assert!(worker.lease(5).await.is_empty(), "no worker gets it");
    world.check_consistency().await;
    let record = report_delivery(
        &world,
        task,
        run,
        DeliveryStep::Delivered { branch: "other".to_owned(), commit: "1".repeat(40), remote: None },
    );
    let record = record.await.expect("tells");
    assert!(record.state == TaskState::Completed && record.ended_at.is_some(), "{record:?}");
    world.check_consistency().await;

    // Another task took the key meanwhile: a later command is refused, and the task stays ended.
    let other = world.submit(wanted).await;
    assert_ne!(other, task);
    let refused = report_delivery(&world, task, run, blocked_step()).await;
    assert!(matches!(refused, Err(CommandError::Rejected(_))), "{refused:?}");
    assert_eq!(world.task(task).await.state, TaskState::Completed);
    world.check_consistency().await;
}
