//! The queue: submit, order, retry, block, resume.

use docket_coordinator::{
    decide,
    store::{AppendError, CommandError, NewTask},
};
use docket_schema::{
    content::BlobRef,
    event::TypedEvent as _,
    ids::{DecisionHash, Epoch, RunId, Seq, StreamId, TaskId, Turn},
    run::{
        BlockedReason, BlockerAnswered, EngineRef, ForkReason, Forked, RunBlocked, RunEvent, RunOutcome,
        RunPaused,
    },
    task::{TaskBlockedReason, TaskRecord, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{failed_outcome, note_event, run_ended, task_spec},
};

pub(super) async fn submit_is_all_or_none_and_once(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let ids: Vec<TaskId> = (0..300).map(|_| TaskId(world.next_id())).collect();
    let mut tasks: Vec<NewTask> =
        ids.iter().map(|id| NewTask { id: *id, spec: task_spec("many"), fork: None }).collect();
    let good = tasks.clone();
    tasks[250].spec.base.manifest = BlobRef::for_bytes(b"nowhere");
    let refused = world.store.submit(tasks, "me".to_owned(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::BlobMissing(_))), "{refused:?}");
    assert!(world.read_feed().await.is_empty(), "none");
    for _ in 0..2 {
        let answer = world.store.submit(good.clone(), "me".to_owned(), world.now()).await.expect("accepted");
        assert_eq!(answer, ids.iter().map(|id| (*id, false)).collect::<Vec<_>>());
    }
    assert_eq!(world.read_feed().await.len(), 300, "once");
    let query = docket_schema::api::TaskQuery { limit: Some(7), ..Default::default() };
    let page = world.store.list_tasks(query).await.expect("reads");
    let newest: Vec<TaskId> = ids.iter().rev().take(7).copied().collect();
    assert_eq!(page.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), newest);
    world.check_consistency().await;
}

/// A client that chooses ids may resend a task. A different task under the same id is refused together with
/// its whole request, and every refusal is reported.
pub(super) async fn resubmitted_id_needs_equal_content(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (id, fresh) = (TaskId(world.next_id()), TaskId(world.next_id()));
    let one = |id: TaskId, title: &str| NewTask { id, spec: task_spec(title), fork: None };
    let submit = async |tasks: Vec<NewTask>| world.store.submit(tasks, "me".to_owned(), world.now()).await;
    assert_eq!(submit(vec![one(id, "first")]).await.expect("accepted"), [(id, false)]);
    // A later change of its priority does not change its content.
    world.run_command(id, |record| decide::reprioritize(record, 7)).await.expect("reprioritizes");
    assert_eq!(submit(vec![one(id, "first")]).await.expect("sent again"), [(id, false)]);

    let refused = submit(vec![one(fresh, "new"), one(id, "second")]).await;
    let Err(AppendError::TaskIdConflict(taken)) = refused else { panic!("{refused:?}") };
    assert_eq!((taken.id, taken.existing.as_str(), taken.requested.as_str()), (id, "first", "second"));
    assert_eq!(taken.field, "title");
    assert!(world.store.get_task(fresh).await.expect("reads").is_none(), "all or none");
    let other = NewTask { spec: TaskSpec { priority: 3, ..task_spec("first") }, ..one(id, "first") };
    let refused = submit(vec![other]).await;
    assert!(
        matches!(&refused, Err(AppendError::TaskIdConflict(taken)) if taken.field == "priority"),
        "{refused:?}"
    );
    assert_eq!(world.task(id).await.spec.title, "first");

    // Two in one request, and two concurrent requests that may share a transaction.
    let twice = submit(vec![one(fresh, "a"), one(fresh, "b")]).await;
    assert!(matches!(twice, Err(AppendError::TaskIdConflict(_))), "{twice:?}");
    let (left, right) = futures_util::join!(submit(vec![one(fresh, "a")]), submit(vec![one(fresh, "b")]));
    let accepted = [&left, &right].into_iter().filter(|answer| answer.is_ok()).count();
    let taken =
        [&left, &right].into_iter().filter(|answer| matches!(answer, Err(AppendError::TaskIdConflict(_))));
    assert_eq!((accepted, taken.count()), (1, 1), "{left:?} {right:?}");
    world.check_consistency().await;
}

pub(super) async fn deduplication_key_is_held_until_the_end(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let keyed = || TaskSpec { dedup_key: Some("nightly".to_owned()), ..task_spec("keyed") };
    let first = world.submit(keyed()).await;
    let other = TaskId(world.next_id());
    let again = vec![
        NewTask { id: other, spec: keyed(), fork: None },
        NewTask { id: TaskId(world.next_id()), spec: keyed(), fork: None },
    ];
    let answer = world.store.submit(again, String::new(), world.now()).await.expect("accepted");
    assert_eq!(answer, [(first, true), (first, true)]);
    let many = (0..8).map(|_| world.submit(keyed()));
    assert!(futures_util::future::join_all(many).await.iter().all(|id| *id == first));
    world.run_command(first, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    let second = world.submit(keyed()).await;
    assert_ne!(second, first);
    let refused = world
        .run_command(first, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await;
    assert!(matches!(refused, Err(CommandError::Rejected(_))), "the key is another's: {refused:?}");
    world.run_command(second, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    world
        .run_command(first, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await
        .expect("the key is free");
    world.check_consistency().await;
}

pub(super) async fn tasks_are_leased_by_priority_then_age(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let mut expected = Vec::new();
    for priority in [0, 5, -5, 5, 0] {
        expected.push((-priority, world.submit(TaskSpec { priority, ..task_spec("p") }).await));
    }
    let last = expected[2].1;
    world.run_command(last, |record| decide::reprioritize(record, 9)).await.expect("reprioritizes");
    expected[2].0 = -9;
    expected.sort();
    let worker = world.new_worker();
    let mut order = Vec::new();
    while let Some(lease) = worker.lease(1).await.pop() {
        assert_eq!(lease.record.spec.priority, world.task(lease.record.id).await.spec.priority);
        order.push(lease.record.id);
    }
    assert_eq!(order, expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    world.check_consistency().await;
}

pub(super) async fn run_at_waits_for_its_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let at = world.now().plus_ms(5_000);
    let task = world.submit(TaskSpec { run_at: Some(at), ..task_spec("later") }).await;
    assert_eq!(world.task(task).await.state, TaskState::Scheduled);
    assert!(world.new_worker().lease(1).await.is_empty());
    assert_eq!(world.store.list_due_tasks(world.now(), 10).await.expect("reads"), (vec![], Some(at)));
    assert_eq!(world.make_due_tasks_available().await, 0);
    world.advance_clock(5_000);
    assert_eq!(world.make_due_tasks_available().await, 1);
    assert_eq!(world.new_worker().lease_one().await.record.id, task);
    world.check_consistency().await;
}

pub(super) async fn queues_and_engines_are_filtered(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let here = world.submit(TaskSpec { queue: "here".parse().expect("a name"), ..task_spec("here") }).await;
    let planned = world.submit(TaskSpec { engine: "plan".to_owned(), ..task_spec("planned") }).await;
    let worker = world.new_worker();
    let mut request = worker.next_lease_request(5);
    request.queues = vec!["nowhere".parse().expect("a name")];
    assert!(worker.send_lease_request(request).await.is_empty());
    let mut request = worker.next_lease_request(5);
    request.queues = vec!["here".parse().expect("a name"), "there".parse().expect("a name")];
    let ids: Vec<TaskId> =
        worker.send_lease_request(request).await.iter().map(|lease| lease.record.id).collect();
    assert_eq!(ids, [here]);
    let engine = |name: &str| vec![EngineRef { name: name.to_owned(), version: 1 }];
    let mut request = worker.next_lease_request(5);
    request.engines = engine("react");
    assert!(worker.send_lease_request(request).await.is_empty());
    let mut request = worker.next_lease_request(5);
    request.engines = engine("plan");
    assert_eq!(worker.send_lease_request(request).await[0].record.id, planned);
    world.check_consistency().await;
}

pub(super) async fn failures_retry_then_discard(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("fails")).await;
    let worker = world.new_worker();
    let mut runs = Vec::new();
    for failures in 1..=3 {
        let lease = worker.lease_one().await;
        assert_eq!((lease.head.seq, lease.record.runs), (Seq(0), failures));
        runs.push(lease.run);
        let record = worker.end_run(&lease, failed_outcome()).await;
        assert_eq!(record.failures, failures);
        if failures < 3 {
            assert_eq!(record.state, TaskState::Retryable);
            assert!(record.available_at > world.now());
            assert!(worker.lease(1).await.is_empty(), "it waits for its backoff");
            world.advance_clock(60_000);
            assert_eq!(world.make_due_tasks_available().await, 1);
        } else {
            assert_eq!(record.state, TaskState::Discarded);
        }
    }
    let views = world.store.list_task_runs(task).await.expect("reads");
    assert_eq!(views.iter().map(|run| run.id).collect::<Vec<_>>(), runs);
    assert!(views.iter().all(|run| run.status == "failed" && run.ended_at.is_some()));
    world.check_consistency().await;
}

pub(super) async fn crashes_keep_the_run_then_poison(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("crashes")).await;
    let worker = world.new_worker();
    let mut run = None;
    for crash in 1..=3_u32 {
        let lease = worker.lease_one().await;
        assert_eq!(lease.record.epoch, Epoch(crash.into()));
        assert!(run.is_none_or(|run| run == lease.run), "the run continues");
        run = Some(lease.run);
        let epoch = lease.record.epoch;
        let record = world
            .run_command(task, move |record| decide::record_crash(record, epoch, "signal 9"))
            .await
            .expect("counts");
        assert_eq!((record.crashes, record.failures), (crash, 0));
    }
    let record = world.task(task).await;
    assert_eq!(record.state, TaskState::Discarded);
    let view = world.store.get_run(run.expect("a run")).await.expect("reads").expect("exists");
    assert_eq!(view.status, "failed");
    world.check_consistency().await;
}

pub(super) async fn blocked_task_resumes_its_run(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("asks")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    let blocked = RunBlocked {
        question: "which?".into(),
        why: BlockedReason::Model,
        outages: 0,
        about: None,
        decision: DecisionHash::ZERO,
    };
    let blocked = RunEvent::from(blocked).encode(Turn(2));
    let (record, appended) = worker.finish_lease(&lease, Seq(1), vec![blocked]).await.expect("settles");
    assert_eq!(record.state, TaskState::Blocked);
    assert_eq!(appended.expect("appended").head.seq, Seq(2));
    let status = || async { world.store.get_run(lease.run).await.expect("reads").expect("exists").status };
    assert_eq!(status().await, "blocked");
    let refused = world.append(lease.run, Seq(2), Epoch(1), vec![note_event(2)]).await;
    assert!(matches!(refused, Err(AppendError::LeaseEnded { .. })), "{refused:?}");
    for act in [decide::pause, decide::unpause] {
        let refused = world.run_command(task, move |record| act(record, "me")).await;
        assert!(refused.is_err(), "it asks: {refused:?}");
    }
    let nothing = world.run_command(task, |record| decide::answer(record, "me", &" ".into())).await;
    assert!(nothing.is_err(), "words are wanted: {nothing:?}");
    let answer = |record: &TaskRecord| decide::answer(record, "me", &"this".into());
    let record = world.run_command(task, answer).await.expect("answers");
    assert_eq!((record.state, record.run, record.message), (TaskState::Available, Some(lease.run), None));
    let events = world.store.read_events(StreamId::Run(lease.run), Seq(2), 10).await.expect("reads");
    let said = BlockerAnswered { text: "this".into(), by: "me".to_owned() };
    assert_eq!(events[0].payload.as_str(), RunEvent::from(said).encode(Turn(0)).payload.as_str());
    let twice = world.run_command(task, answer).await;
    assert!(twice.is_err(), "it asks nothing any more: {twice:?}");
    assert_eq!(status().await, "waiting");
    let again = worker.lease_one().await;
    assert_eq!((again.run, again.head.seq, again.record.epoch), (lease.run, Seq(3), Epoch(2)));
    assert_eq!(status().await, "running");
    worker.end_run(&again, RunOutcome::Succeeded).await;
    assert_eq!(status().await, "succeeded");
    let late = world.run_command(task, answer).await;
    assert!(late.is_err(), "it has ended: {late:?}");
    world.check_consistency().await;
}

pub(super) async fn retry_resumes_a_run_stopped_by_its_provider(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("paid")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    let (question, why) = ("the limit is reached".into(), BlockedReason::Provider);
    let blocked =
        RunEvent::from(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO })
            .encode(Turn(2));
    worker.finish_lease(&lease, Seq(1), vec![blocked]).await.expect("settles");
    let record = world.task(task).await;
    assert_eq!(record.blocked_why, Some(TaskBlockedReason::Provider));
    assert_eq!(record.message.as_deref(), Some("the limit is reached"));
    let record = world
        .run_command(task, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await
        .expect("retries");
    assert_eq!((record.state, record.run, record.message), (TaskState::Available, Some(lease.run), None));
    let again = worker.lease_one().await;
    assert_eq!((again.run, again.head.seq, again.record.epoch), (lease.run, Seq(3), Epoch(2)));
    let view = world.store.get_run(lease.run).await.expect("reads").expect("exists");
    assert_eq!(view.status, "running");
    let (question, why) = ("no such key".into(), BlockedReason::Provider);
    let blocked =
        RunEvent::from(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO })
            .encode(Turn(2));
    worker.finish_lease(&again, Seq(3), vec![blocked]).await.expect("settles");
    let record = world
        .run_command(task, |record| decide::answer(record, "me", &"".into()))
        .await
        .expect("an empty answer");
    assert_eq!((record.state, record.run, record.message), (TaskState::Available, Some(lease.run), None));
    world.check_consistency().await;
}

pub(super) async fn outage_wait_ends_at_its_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("away")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    let (question, why) = ("it stays away".into(), BlockedReason::Provider);
    let blocked =
        RunEvent::from(RunBlocked { question, why, outages: 1, about: None, decision: DecisionHash::ZERO })
            .encode(Turn(2));
    worker.finish_lease(&lease, Seq(1), vec![blocked]).await.expect("settles");
    let record = world.task(task).await;
    assert_eq!((record.state, record.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Outage)));
    let at = record.available_at;
    assert!(at > world.now(), "{at:?}");
    assert_eq!(world.store.list_due_tasks(world.now(), 10).await.expect("reads"), (vec![], Some(at)));
    assert_eq!(world.make_due_tasks_available().await, 0);
    world.advance_clock(at.ms_since(world.now()) + 1);
    assert_eq!(world.make_due_tasks_available().await, 1);
    let record = world.task(task).await;
    assert_eq!((record.state, record.run, record.message), (TaskState::Available, Some(lease.run), None));
    let again = worker.lease_one().await;
    assert_eq!((again.run, again.head.seq, again.record.epoch), (lease.run, Seq(3), Epoch(2)));
    world.check_consistency().await;
}

pub(super) async fn paused_run_resumes_its_history(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("rests")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    let asked = world.run_command(task, |record| decide::pause(record, "me")).await.expect("asks");
    assert_eq!(asked.state, TaskState::Running);
    let paused = RunEvent::from(RunPaused { decision: DecisionHash::ZERO }).encode(Turn(2));
    let late = worker.finish_lease(&lease, Seq(1), vec![paused.clone()]).await;
    assert!(late.is_err(), "the request at seq 2 is folded first: {late:?}");
    let (record, _) = worker.finish_lease(&lease, Seq(2), vec![paused]).await.expect("settles");
    assert_eq!((record.state, record.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Paused)));
    let status = || async { world.store.get_run(lease.run).await.expect("reads").expect("exists").status };
    assert_eq!(status().await, "paused");
    assert!(worker.lease(1).await.is_empty(), "it is not leased");
    let again = world.run_command(task, |record| decide::pause(record, "me")).await.expect("changes nothing");
    assert_eq!(again.seq, record.seq);
    let free = world.run_command(task, |record| decide::unpause(record, "me")).await.expect("unpauses");
    assert_eq!((free.state, free.run), (TaskState::Available, Some(lease.run)));
    assert_eq!(status().await, "waiting");
    let again = worker.lease_one().await;
    assert_eq!((again.run, again.head.seq, again.record.epoch), (lease.run, Seq(4), Epoch(2)));
    // Unpaused before the pause took effect; paused again, then cancelled.
    for act in [decide::pause, decide::unpause, decide::pause] {
        world.run_command(task, move |record| act(record, "me")).await.expect("tells the run");
    }
    let paused = RunEvent::from(RunPaused { decision: DecisionHash::ZERO }).encode(Turn(3));
    worker.finish_lease(&again, Seq(7), vec![paused]).await.expect("settles");
    world.check_consistency().await;
    let record = world.run_command(task, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!((record.state, status().await.as_str()), (TaskState::Cancelled, "cancelled"));
    world.check_consistency().await;
}

pub(super) async fn waiting_task_can_be_paused_and_unpaused(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (now, later) = (world.submit(task_spec("now")).await, {
        let run_at = Some(world.now().plus_ms(60_000));
        world.submit(TaskSpec { run_at, ..task_spec("later") }).await
    });
    for task in [now, later] {
        let record = world.run_command(task, |record| decide::pause(record, "me")).await.expect("holds");
        assert_eq!((record.state, record.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Paused)));
    }
    let worker = world.new_worker();
    assert!(worker.lease(2).await.is_empty());
    let free = world.run_command(later, |record| decide::unpause(record, "me")).await.expect("lets go");
    assert_eq!(free.state, TaskState::Scheduled, "its time has not come");
    world.run_command(later, |record| decide::pause(record, "me")).await.expect("holds");
    world.advance_clock(60_001);
    world.make_due_tasks_available().await;
    assert!(worker.lease(2).await.is_empty(), "its time has come, and it is held");
    world.check_consistency().await;
    for task in [later, now] {
        let free = world.run_command(task, |record| decide::unpause(record, "me")).await.expect("lets go");
        assert_eq!(free.state, TaskState::Available);
        assert_eq!(worker.lease_one().await.record.id, task);
    }
    let ended = world.run_command(now, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    for act in [decide::pause, decide::unpause] {
        let refused = world.run_command(ended.id, move |record| act(record, "me")).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    world.check_consistency().await;
}

pub(super) async fn retry_starts_a_new_run(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("again")).await;
    let worker = world.new_worker();
    let first = worker.lease_one().await;
    worker.end_run(&first, RunOutcome::Succeeded).await;
    let record = world
        .run_command(task, |record| decide::retry(record, "me", "", decide::DependencyRetry::Kept))
        .await
        .expect("retries");
    assert_eq!((record.state, record.run, record.ended_at), (TaskState::Available, None, None));
    let second = worker.lease_one().await;
    assert_ne!(second.run, first.run);
    assert_eq!((second.record.epoch, second.record.runs), (Epoch(2), 2));
    world.check_consistency().await;
}

pub(super) async fn resume_forks_and_supersedes(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("resumed")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    let shared = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends").head;
    world.append(lease.run, Seq(1), Epoch(1), vec![note_event(2)]).await.expect("appends");
    let forked = Forked {
        run: RunId(world.next_id()),
        task,
        parent: lease.run,
        seq: shared.seq,
        hash: shared.hash,
        turn: Turn(1),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let run = forked.run;
    let record = world
        .run_command(task, move |record| decide::resume(record, "me", forked.clone(), Vec::new()))
        .await
        .expect("resumes");
    assert_eq!((record.state, record.run), (TaskState::Available, Some(run)));
    let refused = world.append(lease.run, Seq(2), Epoch(1), vec![note_event(3)]).await;
    assert!(matches!(refused, Err(AppendError::Closed)), "{refused:?}");
    let again = worker.lease_one().await;
    assert_eq!((again.run, again.head.seq, again.forked), (run, Seq(1), true));
    let stream = world.read_stream(StreamId::Run(run)).await;
    assert_eq!(stream[0].prev_hash, shared.hash, "it follows its parent");
    let views = world.store.list_task_runs(task).await.expect("reads");
    assert_eq!(views[0].status, "superseded");
    assert_eq!(views[1].parent.expect("a parent").run, lease.run);
    worker.finish_lease(&again, Seq(1), vec![run_ended(RunOutcome::Succeeded)]).await.expect("settles");
    world.check_consistency().await;
}

pub(super) async fn ids_resolve_by_prefix_or_suffix(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let other = world.submit(task_spec("b")).await;
    let lease = world.new_worker().lease_one().await;
    let whole = task.to_string();
    let found = world.store.resolve_id(whole.clone()).await.expect("reads");
    assert_eq!((found.tasks, found.runs), (vec![task], vec![]));
    let found = world.store.resolve_id(whole[..4].to_owned()).await.expect("reads");
    assert_eq!((found.tasks, found.runs), (vec![task, other], vec![lease.run]));
    let found = world.store.resolve_id(lease.run.short()).await.expect("reads");
    assert_eq!((found.tasks, found.runs), (vec![], vec![lease.run]));
    for nothing in ["", "xyz", "%", "ffffffffffff"] {
        let found = world.store.resolve_id(nothing.to_owned()).await.expect("reads");
        assert!(found.tasks.is_empty() && found.runs.is_empty(), "{nothing}");
    }
}
