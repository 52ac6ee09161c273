//! Stubs of archived tasks, which still count, and the files that they name, whichever build wrote those.

use std::sync::Arc;

use docket_coordinator::{
    archive::{ArchiveSettings, TaskArchiver, fetch_file, verify_file},
    decide,
    store::{AppendError, ArchiveStub, NewTask},
};
use docket_schema::{
    api::{ArchivedTaskPage, ArchivedTaskQuery, BatchView},
    ids::{BatchId, TaskId},
    run::RunOutcome,
    task::{DependencyFailurePolicy, LeaseConditions, TaskSpec, TaskState},
};

use super::{
    TestDatabase,
    archive::{ArchiveFixture, spec_with_base},
    fixture::failed_outcome,
};

/// A failed task that another task is held by stays until that one is done with it.
pub(super) async fn task_with_waiting_dependents_is_not_archived(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let first = world.submit(TaskSpec { attempts_max: 1, ..spec_with_base("fails") }).await;
    let conditions = LeaseConditions { after: vec![first], ..LeaseConditions::default() };
    let waits = world.submit(TaskSpec { conditions, ..spec_with_base("waits") }).await;
    let lease = world.new_worker().lease_one().await;
    world.new_worker().end_run(&lease, failed_outcome()).await;
    world.advance_clock(3_600_000);
    let done = house.archive().await;
    assert!(done.archived.is_empty() && done.kept[0].why.contains("depends on task"), "{done:?}");
    world.run_command(waits, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.advance_clock(3_600_000);
    assert_eq!(house.archive().await.archived.len(), 2);
    // The outcome of an archived task is known: a new dependent of a failed one is held or cancelled, and a
    // new dependent of a cancelled one is refused, as for an unknown task.
    let late = |if_failed, title: &str, on| {
        let conditions = LeaseConditions { after: vec![on], if_failed, ..LeaseConditions::default() };
        NewTask {
            id: TaskId(world.next_id()),
            spec: TaskSpec { conditions, ..spec_with_base(title) },
            fork: None,
        }
    };
    let (holds, gives_up) = (
        late(DependencyFailurePolicy::Hold, "holds", first),
        late(DependencyFailurePolicy::Cancel, "gives up", first),
    );
    let all = vec![holds.clone(), gives_up.clone()];
    world.store.submit(all, String::new(), world.now()).await.expect("accepted");
    assert_eq!(world.task(holds.id).await.state, TaskState::Pending);
    assert_eq!(world.task(gives_up.id).await.state, TaskState::Cancelled);
    let nowhere = late(DependencyFailurePolicy::Hold, "refused", TaskId(world.next_id()));
    let refused = world.store.submit(vec![nowhere], String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::DependencyNotFound(_))), "{refused:?}");
    world.check_consistency().await;

    // Restored and then completed, it releases its dependents.
    house.restore(first.0).await.expect("comes back");
    world
        .run_command(first, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await
        .expect("retries");
    let lease = world.new_worker().lease_one().await;
    assert_eq!(lease.record.id, first);
    world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
    assert_eq!(world.task(holds.id).await.state, TaskState::Available);
    world.check_consistency().await;
    // A dependent of a task completed before it was archived begins at once.
    let after = late(DependencyFailurePolicy::Hold, "after", first);
    world.run_command(holds.id, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.advance_clock(3_600_000);
    house.archive().await;
    assert!(world.store.get_task(first).await.expect("reads").is_none(), "it is archived");
    world.store.submit(vec![after.clone()], String::new(), world.now()).await.expect("accepted");
    assert_eq!(world.task(after.id).await.state, TaskState::Available);
    world.check_consistency().await;
}

/// Archived tasks are found and count in their batch, before and after a restore.
pub(super) async fn archived_tasks_still_count(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let batch = BatchId(world.next_id());
    let in_batch = |title: &str, queue: &str| TaskSpec {
        batch: Some(batch),
        batch_name: Some("the backlog".to_owned()),
        dedup_key: Some(format!("key of {title}")),
        queue: queue.parse().expect("a name"),
        ..spec_with_base(title)
    };
    let done = world.submit(in_batch("Mend the rounding", "ci")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    let given_up = world.submit(in_batch("Paint the shed", "default")).await;
    world.run_command(given_up, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    let open = world.submit(in_batch("Still to do", "default")).await;
    let before = world.store.get_batch(batch).await.expect("reads").expect("a batch");
    let listed = world.store.list_batches().await.expect("reads");
    world.advance_clock(3_600_000);
    assert_eq!(house.archive().await.archived.len(), 2);
    let after = world.store.get_batch(batch).await.expect("reads").expect("a batch");
    assert_eq!(after, BatchView { archived: 2, ..before.clone() });
    assert_eq!(world.store.list_batches().await.expect("reads"), listed);

    let list = async |query: ArchivedTaskQuery| world.store.list_archived_tasks(query).await.expect("reads");
    let ids = |page: ArchivedTaskPage| page.tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    let all = list(ArchivedTaskQuery::default()).await;
    let kept = all.tasks[1].task.clone().expect("is known");
    assert_eq!(
        (kept.state, kept.runs, kept.dedup_key.as_deref()),
        (TaskState::Completed, 1, Some("key of Mend the rounding"))
    );
    assert_eq!(ids(all), [given_up, done], "the newest first");
    let title = |pattern: &str| ArchivedTaskQuery { title: Some(pattern.to_owned()), ..Default::default() };
    assert_eq!(ids(list(title("*ROUND*")).await), [done]);
    let queue = Some("ci".parse().expect("a name"));
    assert_eq!(ids(list(ArchivedTaskQuery { queue, ..Default::default() }).await), [done]);
    assert_eq!(
        ids(list(ArchivedTaskQuery { batch: Some(batch), ..Default::default() }).await),
        [given_up, done]
    );
    let other = Some(BatchId(world.next_id()));
    assert_eq!(ids(list(ArchivedTaskQuery { batch: other, ..Default::default() }).await), []);
    let first = list(ArchivedTaskQuery { limit: Some(1), ..Default::default() }).await;
    let next = ArchivedTaskQuery { limit: Some(1), before: first.next, ..Default::default() };
    assert_eq!((ids(first), ids(list(next).await)), (vec![given_up], vec![done]));

    // The values in stubs match the log.
    let mut raw = world.database.raw_connection().await;
    raw.execute("UPDATE archived_streams SET title = 'another' WHERE title IS NOT NULL")
        .await
        .expect("tampers");
    assert_eq!(world.store.rebuild_projections(std::sync::Arc::default()).await.expect("rebuilds").len(), 2);
    world.check_consistency().await;
    world.run_command(open, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.advance_clock(3_600_000);
    house.archive().await;
    let whole =
        world.store.get_batch(batch).await.expect("reads").expect("all of it is archived, and it is known");
    assert_eq!((whole.tasks, whole.archived, whole.name.as_deref()), (3, 3, Some("the backlog")));
    assert_eq!(world.store.list_batches().await.expect("reads").batches.len(), 1);
    house.restore(done.0).await.expect("comes back");
    let back = world.store.get_batch(batch).await.expect("reads").expect("a batch");
    assert_eq!((back.tasks, back.archived), (3, 2));
    world.check_consistency().await;
}

/// Another build produces different bytes for the same streams, before or concurrently with this one: every
/// file that a stub names stays.
pub(super) async fn archives_of_two_builds_do_not_conflict(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let beside =
        if world.database.is_sqlite() { world.clone() } else { world.open_second_coordinator().await };
    let made_by = "docket 99.9, which is another build".to_owned();
    let settings = ArchiveSettings { made_by, ..house.archiver.settings.clone() };
    let clock = Arc::clone(&house.archiver.clock);
    let other = TaskArchiver { store: Arc::clone(&beside.store), clock, settings };
    let holds = async |stub: &ArchiveStub| {
        let file = fetch_file(stub, None, house.folder.path()).await.expect("complete");
        verify_file(file.path(), stub.file_hash).await.expect("is the one that was written");
    };

    // One after the other: the first stub, as in a backup of the database, finds its own bytes.
    let (task, _) = house.finish_task_on_second_try().await;
    house.archive().await;
    let first = world.store.find_stub(task.0).await.expect("reads").expect("a stub");
    house.restore(task.0).await.expect("comes back");
    assert_eq!(house.archive_with(&other).await.archived.len(), 1);
    let second = world.store.find_stub(task.0).await.expect("reads").expect("a stub");
    assert_ne!(first.file_hash, second.file_hash, "or nothing is shown");
    holds(&first).await;
    holds(&second).await;

    // Both at once.
    for n in 0..24 {
        let task = world.submit(spec_with_base(&n.to_string())).await;
        world.run_command(task, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    }
    let (one, two) = tokio::join!(house.archive(), house.archive_with(&other));
    assert_eq!(one.archived.len() + two.archived.len(), 24);
    assert_eq!(
        (one.kept, two.kept),
        (Vec::new(), Vec::new()),
        "tasks archived by the other build are not reported"
    );
    for stub in world.store.list_stubs(None, 1000).await.expect("reads") {
        holds(&stub).await;
    }
    world.check_consistency().await;

    // The next copy repairs bytes that do not match their name.
    let (task, _) = house.finish_task_on_second_try().await;
    house.archive().await;
    let stub = world.store.find_stub(task.0).await.expect("reads").expect("a stub");
    house.restore(task.0).await.expect("comes back");
    let path = house.folder.path().join("archive").join(&stub.file);
    let bytes = std::fs::metadata(&path).expect("is there").len();
    std::fs::write(&path, vec![0; bytes as usize]).expect("writes");
    assert_eq!(house.archive().await.archived.len(), 1);
    holds(&stub).await;
}
