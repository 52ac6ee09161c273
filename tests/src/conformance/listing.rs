//! Task lists by every filter, compared with a second implementation; the index each uses; and the state of
//! batches.

use std::collections::BTreeSet;

use docket_coordinator::{decide, store::NewTask};
use docket_schema::{
    api::{TaskQuery, TaskStates},
    ids::{BatchId, QueueName, TaskId, Timestamp},
    message::ModelRef,
    run::RunOutcome,
    task::{TaskRecord, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{failed_outcome, task_spec},
};

/// Size of the large list: more tasks than one page examines.
const LARGE_LIST_TASKS: usize = 12_000;

fn queue_name(name: &str) -> QueueName {
    name.parse().expect("a queue's name")
}

/// Creates sixty tasks of every kind, in every state.
async fn fill_with_tasks(world: &StoreFixture, batch: BatchId) -> (Vec<TaskRecord>, Timestamp) {
    let mut ids = Vec::new();
    let mut middle = world.now();
    for n in 0..60_u32 {
        if n == 30 {
            middle = world.now();
        }
        let model = ModelRef {
            provider: "scripted".to_owned(),
            name: if n % 4 == 0 { "Large".to_owned() } else { "small".to_owned() },
            base_url: None,
        };
        let task = TaskSpec {
            queue: queue_name(if n % 3 == 0 { "night" } else { "default" }),
            batch: (n % 2 == 0).then_some(batch),
            batch_name: (n % 2 == 0).then(|| "the batch".to_owned()),
            engine: if n % 10 == 0 { "other".to_owned() } else { "react".to_owned() },
            model,
            attempts_max: 1,
            ..task_spec(&format!("task {n}"))
        };
        ids.push(world.submit(task).await);
    }
    let worker = world.new_worker();
    for (n, lease) in worker.lease(12).await.into_iter().enumerate() {
        match n % 3 {
            0 => drop(worker.end_run(&lease, RunOutcome::Succeeded).await),
            1 => drop(worker.end_run(&lease, failed_outcome()).await),
            _ => {}
        }
    }
    for id in &ids[50..54] {
        world.run_command(*id, |record| decide::cancel(record, "me", "")).await.expect("cancels");
    }
    let mut tasks = Vec::new();
    for id in ids {
        tasks.push(world.task(id).await);
    }
    (tasks, middle)
}

/// Returns all pages of a list.
async fn list_all_pages(world: &StoreFixture, query: &TaskQuery) -> Vec<TaskId> {
    let mut query = TaskQuery { limit: Some(7), ..query.clone() };
    let mut found = Vec::new();
    loop {
        let page = world.store.list_tasks(query.clone()).await.expect("reads");
        assert!(page.tasks.len() <= 7);
        found.extend(page.tasks.iter().map(|task| task.id));
        match page.next {
            Some(next) => query.before = Some(next),
            None => return found,
        }
    }
}

pub(super) async fn every_filter_lists_the_expected_tasks(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let batch = BatchId(world.next_id());
    let (tasks, middle) = fill_with_tasks(&world, batch).await;
    let states = |text: &str| Some(text.parse::<TaskStates>().expect("states"));
    let text = |text: &str| Some(text.to_owned());
    let any = TaskQuery::default;
    type ExpectedFilter = Box<dyn Fn(&TaskRecord) -> bool + Send>;
    let cases: Vec<(TaskQuery, ExpectedFilter)> = vec![
        (any(), Box::new(|_| true)),
        (TaskQuery { state: states("available"), ..any() }, Box::new(|t| t.state == TaskState::Available)),
        (
            TaskQuery { state: states("discarded,running,completed"), ..any() },
            Box::new(|t| [TaskState::Discarded, TaskState::Running, TaskState::Completed].contains(&t.state)),
        ),
        (
            TaskQuery { queue: Some(queue_name("night")), ..any() },
            Box::new(|t| t.spec.queue == queue_name("night")),
        ),
        (TaskQuery { batch: Some(batch), ..any() }, Box::new(move |t| t.spec.batch == Some(batch))),
        (
            TaskQuery { batch: Some(batch), state: states("cancelled,discarded"), ..any() },
            Box::new(move |t| {
                t.spec.batch == Some(batch) && [TaskState::Discarded, TaskState::Cancelled].contains(&t.state)
            }),
        ),
        (TaskQuery { engine: text("other"), ..any() }, Box::new(|t| t.spec.engine == "other")),
        (TaskQuery { model: text("*:LARGE"), ..any() }, Box::new(|t| t.spec.model.name == "Large")),
        (TaskQuery { title: text("task ?"), ..any() }, Box::new(|t| t.spec.title.len() == 6)),
        (
            TaskQuery {
                title: text("*1*"),
                queue: Some(queue_name("night")),
                state: states("available"),
                ..any()
            },
            Box::new(|t| {
                t.spec.title.contains('1')
                    && t.spec.queue == queue_name("night")
                    && t.state == TaskState::Available
            }),
        ),
        (TaskQuery { since: Some(middle), ..any() }, Box::new(move |t| t.submitted_at >= middle)),
        (TaskQuery { until: Some(middle), ..any() }, Box::new(move |t| t.submitted_at < middle)),
        (TaskQuery { worker: text("tester"), ..any() }, Box::new(|t| t.state == TaskState::Running)),
        (TaskQuery { worker: text("tester"), state: states("available"), ..any() }, Box::new(|_| false)),
        (TaskQuery { worker: text("nobody"), ..any() }, Box::new(|_| false)),
        (
            TaskQuery { batch: Some(batch), worker: text("tester"), ..any() },
            Box::new(move |t| t.spec.batch == Some(batch) && t.state == TaskState::Running),
        ),
    ];
    for (query, means) in cases {
        let mut expected: Vec<TaskId> = tasks.iter().filter(|t| means(t)).map(|t| t.id).collect();
        expected.reverse();
        assert_eq!(list_all_pages(&world, &query).await, expected, "{query:?}");
    }
}

pub(super) async fn lists_scan_a_bounded_part_by_an_index(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let batch = BatchId(world.next_id());
    // Each name occurs twice: at the oldest end of the list, and one page deep.
    let names = [100, LARGE_LIST_TASKS - 100];
    let tasks: Vec<NewTask> = (0..LARGE_LIST_TASKS)
        .map(|n| {
            let title = if names.contains(&n) { "needle" } else { "hay" };
            let spec = TaskSpec { batch: Some(batch), ..task_spec(title) };
            NewTask { id: TaskId(world.next_id()), spec, fork: None }
        })
        .collect();
    for page in tasks.chunks(4000) {
        world.store.submit(page.to_vec(), String::new(), world.now()).await.expect("accepted");
    }
    let query = TaskQuery { title: Some("needle".to_owned()), ..TaskQuery::default() };
    let first = world.store.list_tasks(query.clone()).await.expect("reads");
    assert_eq!(first.tasks.iter().map(|t| t.id).collect::<Vec<_>>(), [tasks[names[1]].id]);
    let next = first.next.expect("it has not looked at all");
    assert_eq!(next, tasks[LARGE_LIST_TASKS - 10_000].id, "the last that it looked at");
    let second =
        world.store.list_tasks(TaskQuery { before: Some(next), ..query.clone() }).await.expect("reads");
    assert_eq!(second.tasks.iter().map(|t| t.id).collect::<Vec<_>>(), [tasks[names[0]].id]);
    assert_eq!(second.next, None);

    let mut raw = world.database.raw_connection().await;
    raw.execute("ANALYZE").await.expect("analyzes");
    let running = TaskQuery { state: Some(TaskState::Running.into()), ..TaskQuery::default() };
    let cases = [
        (TaskQuery::default(), ["tasks_pkey", "sqlite_autoindex_tasks"]),
        (query, ["tasks_pkey", "sqlite_autoindex_tasks"]),
        (running, ["tasks_state", "tasks_state"]),
        (
            TaskQuery { state: "discarded,cancelled".parse().ok(), ..TaskQuery::default() },
            ["tasks_state", "tasks_state"],
        ),
        (
            TaskQuery { worker: Some("tester".to_owned()), ..TaskQuery::default() },
            ["tasks_state", "tasks_state"],
        ),
        (
            TaskQuery { queue: Some(queue_name("night")), ..TaskQuery::default() },
            ["tasks_pkey", "sqlite_autoindex_tasks"],
        ),
        (
            TaskQuery { since: Some(Timestamp(0)), ..TaskQuery::default() },
            ["tasks_pkey", "sqlite_autoindex_tasks"],
        ),
        (
            TaskQuery { batch: Some(BatchId(world.next_id())), ..TaskQuery::default() },
            ["tasks_batch", "tasks_batch"],
        ),
        (
            TaskQuery {
                batch: Some(BatchId(world.next_id())),
                state: "discarded,cancelled".parse().ok(),
                ..TaskQuery::default()
            },
            ["tasks_batch", "tasks_batch"],
        ),
    ];
    for (query, indexes) in cases {
        let said = world.store.explain_task_query(query.clone()).await.expect("explains");
        let index = indexes[usize::from(world.database.is_sqlite())];
        // Running tasks have a separate index that contains no others.
        let walks = |line: &&String| line.contains(index) || line.contains("tasks_running");
        assert!(said.iter().any(|line| walks(&line)), "{query:?}: {said:#?}");
        for bad in ["Seq Scan on tasks", "SCAN t\n", "USE TEMP B-TREE"] {
            assert!(!said.iter().any(|line| format!("{line}\n").contains(bad)), "{query:?}: {said:#?}");
        }
    }
}

pub(super) async fn batches_are_listed_with_counts(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let batch = BatchId(world.next_id());
    assert_eq!(world.store.get_batch(batch).await.expect("reads"), None);
    let (tasks, _) = fill_with_tasks(&world, batch).await;
    let own: Vec<&TaskRecord> = tasks.iter().filter(|task| task.spec.batch == Some(batch)).collect();
    let view = world.store.get_batch(batch).await.expect("reads").expect("there");
    assert_eq!((view.tasks, view.name.as_deref()), (30, Some("the batch")));
    for count in &view.states {
        let state = count.state;
        assert_eq!(count.count, own.iter().filter(|task| task.state == state).count() as u64, "{state}");
    }
    let states: BTreeSet<_> = own.iter().map(|task| task.state).collect();
    assert!(states.len() >= 4 && view.states.len() == states.len(), "{states:?}");
    assert_eq!(view.runs, own.iter().map(|task| u64::from(task.runs)).sum::<u64>());
    assert_eq!(view.failures, own.iter().map(|task| u64::from(task.failures)).sum::<u64>());
    let red: Vec<TaskId> =
        own.iter().filter(|task| task.message.as_deref() == Some("red")).map(|task| task.id).collect();
    assert_eq!(view.messages.len(), 1, "{:?}", view.messages);
    let said = &view.messages[0];
    assert_eq!((said.message.as_str(), said.count, said.task), ("red", red.len() as u64, red[0]));
    assert_eq!(view.first_submitted_at, own[0].submitted_at);
    assert_eq!(view.last_submitted_at, own[29].submitted_at);
    assert_eq!(view.first_ended_at, own.iter().filter_map(|task| task.ended_at).min());
    assert_eq!(view.last_ended_at, own.iter().filter_map(|task| task.ended_at).max());
    // A run begins with its first event, and none of these has one yet.
    assert_eq!(view.oldest_running, None);

    let other = BatchId(world.next_id());
    world.submit(TaskSpec { batch: Some(other), ..task_spec("later") }).await;
    let list = world.store.list_batches().await.expect("reads");
    let listed: Vec<_> = list.batches.iter().map(|b| (b.id, b.name.as_deref(), b.tasks)).collect();
    assert_eq!(listed, [(other, None, 1), (batch, Some("the batch"), 30)]);
    let ended = own.iter().filter(|task| task.ended_at.is_some()).count() as u64;
    assert_eq!((list.batches[1].ended, list.more), (ended, false));
}
