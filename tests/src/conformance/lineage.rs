//! Runs that share another run's history: forks are written completely or not at all, and the tree is
//! found.

use docket_coordinator::{
    decide,
    store::{AppendError, CommandBlobs, CommandError, NewFork, NewTask},
};
use docket_schema::{
    event::{Head, TypedEvent as _},
    ids::{Epoch, RunId, Seq, StreamId, TaskId, Turn},
    run::{ForkReason, Forked, RunEvent, RunOutcome},
    task::{ForkedFrom, TaskRecord, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{failed_outcome, note_event, run_ended, task_spec},
};

/// Builds a task that continues from `parent` at `at`.
pub(super) fn fork_task(world: &StoreFixture, parent: RunId, at: Head) -> NewTask {
    let (task, run) = (TaskId(world.next_id()), RunId(world.next_id()));
    let forked = Forked {
        run,
        task,
        parent,
        seq: at.seq,
        hash: at.hash,
        turn: Turn(1),
        why: ForkReason::Fork,
        engine: None,
        models: None,
        hint: Some("otherwise".into()),
    };
    let from = ForkedFrom { run: parent, seq: at.seq, turn: Turn(1) };
    let events = vec![RunEvent::from(forked).encode(Turn(1)), note_event(1)];
    let fork = NewFork { from, run, events, required_blobs: Vec::new() };
    NewTask { id: task, spec: TaskSpec { attempts_max: 1, ..task_spec("fork") }, fork: Some(Box::new(fork)) }
}

pub(super) fn new_run_id(task: &NewTask) -> RunId {
    task.fork.as_ref().expect("a fork").run
}

/// Starts a run with two events; returns the head after the first.
async fn start_parent_run(world: &StoreFixture) -> (TaskId, RunId, Head) {
    let task = world.submit(task_spec("parent")).await;
    let lease = world.new_worker().lease_one().await;
    let at = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends").head;
    world.append(lease.run, Seq(1), Epoch(1), vec![note_event(2)]).await.expect("appends");
    (task, lease.run, at)
}

pub(super) async fn fork_is_all_or_none_and_once(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (task, run, at) = start_parent_run(&world).await;
    let before = (world.read_feed().await.len(), world.task(task).await);
    let forks: Vec<NewTask> = (0..3).map(|_| fork_task(&world, run, at)).collect();

    // The run of the last one already exists: none of them is created.
    let mut taken = forks.clone();
    taken[2].fork.as_mut().expect("a fork").run = run;
    let refused = world.store.submit(taken, "me".to_owned(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::WrongSeq { .. })), "{refused:?}");
    let mut lacking = forks.clone();
    lacking[1].fork.as_mut().expect("a fork").required_blobs = vec![docket_schema::ids::BlobHash([9; 32])];
    let refused = world.store.submit(lacking, "me".to_owned(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::BlobMissing(_))), "{refused:?}");
    assert_eq!(world.read_feed().await.len(), before.0, "none");

    for _ in 0..2 {
        world.store.submit(forks.clone(), "me".to_owned(), world.now()).await.expect("accepted");
    }
    assert_eq!(world.read_feed().await.len(), before.0 + 3 * 4, "each its task and its run, once");
    for fork in &forks {
        let record = world.task(fork.id).await;
        assert_eq!(
            (record.state, record.run, record.runs),
            (TaskState::Available, Some(new_run_id(fork)), 1)
        );
        assert_eq!(record.forked_from.map(|from| (from.run, from.seq)), Some((run, at.seq)));
        let stream = world.read_stream(StreamId::Run(new_run_id(fork))).await;
        assert_eq!((stream.len(), stream[0].prev_hash), (2, at.hash), "it follows its parent");
    }
    assert_eq!(world.task(task).await, before.1, "the parent is not touched");
    world.append(run, Seq(2), Epoch(1), vec![note_event(3)]).await.expect("its worker continues");
    world.check_consistency().await;
}

pub(super) async fn fork_is_leased_finished_and_not_retried(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (_, run, at) = start_parent_run(&world).await;
    let fork = fork_task(&world, run, at);
    world.store.submit(vec![fork.clone()], String::new(), world.now()).await.expect("accepted");
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    assert_eq!((lease.run, lease.head.seq, lease.forked), (new_run_id(&fork), Seq(2), true));
    worker.finish_lease(&lease, Seq(2), vec![run_ended(RunOutcome::Succeeded)]).await.expect("settles");
    assert_eq!(world.task(fork.id).await.state, TaskState::Completed);
    let refused = world
        .run_command(fork.id, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await;
    assert!(matches!(refused, Err(CommandError::Rejected(_))), "it has no start event: {refused:?}");
    world.check_consistency().await;
}

pub(super) async fn failed_fork_is_retried_from_its_fork_point(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (task, parent, at) = start_parent_run(&world).await;
    let forked = |run| Forked {
        run,
        task,
        parent,
        seq: at.seq,
        hash: at.hash,
        turn: Turn(1),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: Some("otherwise".into()),
    };
    let (run, next) = (RunId(world.next_id()), RunId(world.next_id()));
    let first = forked(run);
    world
        .run_command(task, move |record| decide::resume(record, "me", first.clone(), Vec::new()))
        .await
        .expect("resumes");
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    let again = decide::RetryPlan { run: next, events: vec![RunEvent::from(forked(next)).encode(Turn(1))] };
    let settling = |outcome| decide::RunFinish {
        run: lease.run,
        seq: Seq(1),
        epoch: lease.record.epoch,
        events: vec![run_ended(outcome)],
        jitter: 0,
        retry_plan: Some(again.clone()),
    };
    for _ in 0..2 {
        // Twice, because the reply to the first was lost.
        let (settling, now) = (settling(failed_outcome()), world.now());
        let decide = Box::new(move |record: &TaskRecord| decide::finish_run(record, &settling, now));
        let (record, _) =
            world.store.execute_command(task, decide, CommandBlobs::default(), now).await.expect("settles");
        assert_eq!((record.state, record.run, record.runs), (TaskState::Retryable, Some(next), 3));
    }
    assert_eq!(
        world.read_stream(StreamId::Run(next)).await[0].prev_hash,
        at.hash,
        "it follows the same parent"
    );
    world.check_consistency().await;
    let record = world
        .run_command(task, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await
        .expect("at once");
    assert_eq!((record.state, record.run), (TaskState::Available, Some(next)));
    let lease = worker.lease_one().await;
    assert_eq!((lease.run, lease.head.seq, lease.forked, lease.record.runs), (next, Seq(1), true, 3));
    worker.finish_lease(&lease, Seq(1), vec![run_ended(RunOutcome::Succeeded)]).await.expect("settles");
    let views = world.store.list_task_runs(task).await.expect("reads");
    let seen: Vec<_> = views.iter().map(|view| (view.id, view.parent.map(|on| on.run))).collect();
    assert_eq!(seen, [(parent, None), (run, Some(parent)), (next, Some(parent))]);
    world.check_consistency().await;
}

pub(super) async fn lineage_tree_is_the_same_from_any_of_its_runs(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (_, root, at) = start_parent_run(&world).await;
    let (first, second) = (fork_task(&world, root, at), fork_task(&world, root, at));
    let made = vec![first.clone(), second.clone()];
    world.store.submit(made, String::new(), world.now()).await.expect("accepted");
    let head =
        world.store.stream_head(StreamId::Run(new_run_id(&first))).await.expect("reads").expect("is there");
    let grandchild = fork_task(&world, new_run_id(&first), head);
    world.store.submit(vec![grandchild.clone()], String::new(), world.now()).await.expect("accepted");
    world.submit(task_spec("a stranger")).await;

    let expected = vec![
        (root, None),
        (new_run_id(&first), Some(root)),
        (new_run_id(&second), Some(root)),
        (new_run_id(&grandchild), Some(new_run_id(&first))),
    ];
    for (run, _) in &expected {
        let found = world.store.read_lineage(*run, 10).await.expect("reads");
        let ids: Vec<_> = found.iter().map(|(view, _)| (view.id, view.parent.map(|p| p.run))).collect();
        assert_eq!(ids, expected);
        let forks = found.iter().filter(|(_, first)| matches!(first, Some(RunEvent::Forked(_))));
        assert_eq!(forks.count(), 3);
    }
    assert_eq!(world.store.read_lineage(root, 2).await.expect("reads").len(), 2);
    assert!(world.store.read_lineage(RunId(world.next_id()), 10).await.expect("reads").is_empty());
    world.check_consistency().await;
}
