//! What stands in the place of archived tasks, and still counts; and the files that it names, whoever writes there.

use std::sync::Arc;

use docket_coordinator::{
    archive::{ArchiveSettings, Archiver, fetch, verify_file},
    decide,
    store::{AppendError, NewTask, Stub},
};
use docket_schema::{
    ids::{BatchId, TaskId},
    run::RunOutcome,
    task::{Conditions, IfFailed, TaskSpec, TaskState},
    wire::{ArchivedTaskPage, ArchivedTaskQuery, BatchView},
};

use super::{
    Database,
    archive::{House, real},
    world::failure,
};

/// A task that failed and that another holds out for stays until that one is done with it.
pub(super) async fn what_another_task_waits_for_stays(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    let first = world.submit(TaskSpec { attempts_max: 1, ..real("fails") }).await;
    let conditions = Conditions { after: vec![first], ..Conditions::default() };
    let waits = world.submit(TaskSpec { conditions, ..real("waits") }).await;
    let lease = world.worker().lease_one().await;
    world.worker().end(&lease, failure()).await;
    world.pass(3_600_000);
    let done = house.archive().await;
    assert!(done.archived.is_empty() && done.kept[0].why.contains("waits for task"), "{done:?}");
    world.act(waits, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.pass(3_600_000);
    assert_eq!(house.archive().await.archived.len(), 2);
    // An archived task is known by how it ended: who is to wait for one that failed holds out, or is cancelled, and
    // who waits for one that was cancelled by a task that is nowhere is refused.
    let late = |if_failed, title: &str, on| {
        let conditions = Conditions { after: vec![on], if_failed, ..Conditions::default() };
        NewTask { id: TaskId(world.id()), spec: TaskSpec { conditions, ..real(title) }, fork: None }
    };
    let (holds, gives_up) = (late(IfFailed::Hold, "holds", first), late(IfFailed::Cancel, "gives up", first));
    let all = vec![holds.clone(), gives_up.clone()];
    world.store.submit(all, String::new(), world.now()).await.expect("accepted");
    assert_eq!(world.task(holds.id).await.state, TaskState::Pending);
    assert_eq!(world.task(gives_up.id).await.state, TaskState::Cancelled);
    let nowhere = late(IfFailed::Hold, "refused", TaskId(world.id()));
    let refused = world.store.submit(vec![nowhere], String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::NoDependency(_))), "{refused:?}");
    world.check().await;

    // Brought back and done at last, it lets go on what waits for it.
    house.restore(first.0).await.expect("comes back");
    world
        .act(first, |record| decide::retry(record, "me", "", decide::Dependencies::Kept))
        .await
        .expect("retries");
    let lease = world.worker().lease_one().await;
    assert_eq!(lease.record.id, first);
    world.worker().end(&lease, RunOutcome::Succeeded).await;
    assert_eq!(world.task(holds.id).await.state, TaskState::Available);
    world.check().await;
    // And who waits for one that was completed before it was archived begins at once.
    let after = late(IfFailed::Hold, "after", first);
    world.act(holds.id, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.pass(3_600_000);
    house.archive().await;
    assert!(world.store.task(first).await.expect("reads").is_none(), "it is archived");
    world.store.submit(vec![after.clone()], String::new(), world.now()).await.expect("accepted");
    assert_eq!(world.task(after.id).await.state, TaskState::Available);
    world.check().await;
}

/// What is archived is found, and counts in its batch, on the way there and back.
pub(super) async fn stubs_count(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    let batch = BatchId(world.id());
    let in_batch = |title: &str, queue: &str| TaskSpec {
        batch: Some(batch),
        batch_name: Some("the backlog".to_owned()),
        dedup_key: Some(format!("key of {title}")),
        queue: queue.parse().expect("a name"),
        ..real(title)
    };
    let done = world.submit(in_batch("Mend the rounding", "ci")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    worker.end(&lease, RunOutcome::Succeeded).await;
    let given_up = world.submit(in_batch("Paint the shed", "default")).await;
    world.act(given_up, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    let open = world.submit(in_batch("Still to do", "default")).await;
    let before = world.store.batch(batch).await.expect("reads").expect("a batch");
    let listed = world.store.batches().await.expect("reads");
    world.pass(3_600_000);
    assert_eq!(house.archive().await.archived.len(), 2);
    let after = world.store.batch(batch).await.expect("reads").expect("a batch");
    assert_eq!(after, BatchView { archived: 2, ..before.clone() });
    assert_eq!(world.store.batches().await.expect("reads"), listed);

    let list = async |query: ArchivedTaskQuery| world.store.archived_tasks(query).await.expect("reads");
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
    let other = Some(BatchId(world.id()));
    assert_eq!(ids(list(ArchivedTaskQuery { batch: other, ..Default::default() }).await), []);
    let first = list(ArchivedTaskQuery { limit: Some(1), ..Default::default() }).await;
    let next = ArchivedTaskQuery { limit: Some(1), before: first.next, ..Default::default() };
    assert_eq!((ids(first), ids(list(next).await)), (vec![given_up], vec![done]));

    // What stubs keep is what the log says.
    let mut raw = world.database.raw().await;
    raw.run("UPDATE archived_streams SET title = 'another' WHERE title IS NOT NULL").await.expect("tampers");
    assert_eq!(world.store.rebuild(std::sync::Arc::default()).await.expect("rebuilds").len(), 2);
    world.check().await;
    world.act(open, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world.pass(3_600_000);
    house.archive().await;
    let whole =
        world.store.batch(batch).await.expect("reads").expect("all of it is archived, and it is known");
    assert_eq!((whole.tasks, whole.archived, whole.name.as_deref()), (3, 3, Some("the backlog")));
    assert_eq!(world.store.batches().await.expect("reads").batches.len(), 1);
    house.restore(done.0).await.expect("comes back");
    let back = world.store.batch(batch).await.expect("reads").expect("a batch");
    assert_eq!((back.tasks, back.archived), (3, 2));
    world.check().await;
}

/// A build that makes other bytes of the same streams, before or beside this one: whatever a stub names stays.
pub(super) async fn archives_of_two_builds_ruin_nothing(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    let beside = if world.database.is_sqlite() { world.clone() } else { world.beside().await };
    let made_by = "docket 99.9, which is another build".to_owned();
    let settings = ArchiveSettings { made_by, ..house.archiver.settings.clone() };
    let clock = Arc::clone(&house.archiver.clock);
    let other = Archiver { store: Arc::clone(&beside.store), clock, settings };
    let holds = async |stub: &Stub| {
        let file = fetch(stub, None, house.folder.path()).await.expect("is there, whole");
        verify_file(file.path(), stub.file_hash).await.expect("is the one that was written");
    };

    // One after the other: the first stub, as a backup of the database has it, finds its own bytes.
    let (task, _) = house.done().await;
    house.archive().await;
    let first = world.store.stub(task.0).await.expect("reads").expect("a stub");
    house.restore(task.0).await.expect("comes back");
    assert_eq!(house.archive_by(&other).await.archived.len(), 1);
    let second = world.store.stub(task.0).await.expect("reads").expect("a stub");
    assert_ne!(first.file_hash, second.file_hash, "or nothing is shown");
    holds(&first).await;
    holds(&second).await;

    // Both at once.
    for n in 0..24 {
        let task = world.submit(real(&n.to_string())).await;
        world.act(task, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    }
    let (one, two) = tokio::join!(house.archive(), house.archive_by(&other));
    assert_eq!(one.archived.len() + two.archived.len(), 24);
    assert_eq!((one.kept, two.kept), (Vec::new(), Vec::new()), "what the other took is no news");
    for stub in world.store.stubs(None, 1000).await.expect("reads") {
        holds(&stub).await;
    }
    world.check().await;

    // Bytes that are not what their name says are mended by the next copy.
    let (task, _) = house.done().await;
    house.archive().await;
    let stub = world.store.stub(task.0).await.expect("reads").expect("a stub");
    house.restore(task.0).await.expect("comes back");
    let path = house.folder.path().join("archive").join(&stub.file);
    let bytes = std::fs::metadata(&path).expect("is there").len();
    std::fs::write(&path, vec![0; bytes as usize]).expect("writes");
    assert_eq!(house.archive().await.archived.len(), 1);
    holds(&stub).await;
}
