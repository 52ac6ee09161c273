//! Flow control: limits, queues, labels, fairness, drained workers.

use docket_coordinator::{
    decide,
    store::{AppendCondition, LogAppend, NewTask, WorkerHeartbeat},
};
use docket_schema::{
    api::{FaultKind, FaultScope, LeaseRequest, WorkerCapacity, WorkerFault},
    event::TypedEvent as _,
    ids::{BatchId, QueueName, StreamId, TaskId, Turn},
    message::ModelRef,
    queue::{QueueEvent, QueueSet, QueueSettings},
    run::RunOutcome,
    task::{ConcurrencyLimit, Flow, LeaseConditions, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, LEASE_MS, task_spec},
};

fn keyed_spec(key: &str, max: u32) -> TaskSpec {
    let concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max });
    TaskSpec {
        conditions: LeaseConditions { concurrency, ..LeaseConditions::default() },
        ..task_spec("keyed")
    }
}

pub(super) async fn task_state(world: &StoreFixture, id: TaskId) -> TaskState {
    world.task(id).await.state
}

pub(super) async fn complete_next(worker: &FakeWorker) -> TaskId {
    let lease = worker.lease(1).await.remove(0);
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    lease.record.id
}

/// Returns the only task a worker gets next.
pub(super) async fn lease_next(worker: &FakeWorker) -> Option<TaskId> {
    worker.lease(1).await.first().map(|lease| lease.record.id)
}

pub(super) async fn one_key_runs_one_task_at_a_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let beside = world.open_second_coordinator().await;
    for _ in 0..12 {
        world.submit(keyed_spec("branch/main", 1)).await;
        world.submit(keyed_spec("licence", 3)).await;
    }
    let mut done = 0;
    while done < 24 {
        let workers: Vec<FakeWorker> =
            (0..4).map(|n| if n % 2 == 0 { world.new_worker() } else { beside.new_worker() }).collect();
        let leases = futures_util::future::join_all(workers.iter().map(|worker| worker.lease(5))).await;
        let of = |key: &str| {
            let held = leases.iter().flatten();
            held.filter(|lease| {
                lease.record.spec.conditions.concurrency.as_ref().is_some_and(|c| c.key == key)
            })
            .count()
        };
        let (one, three) = (of("branch/main"), of("licence"));
        assert!(one <= 1 && three <= 3, "{one} and {three} at a time");
        assert!(one + three > 0, "something goes on");
        for (worker, leases) in workers.iter().zip(&leases) {
            for lease in leases {
                worker.end_run(lease, RunOutcome::Succeeded).await;
                done += 1;
            }
        }
    }
    beside.store.close().await;
    world.check_consistency().await;
}

/// Exclusive tasks run alone, whichever comes first.
pub(super) async fn lowest_limit_of_a_key_applies(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let alone = world.submit(keyed_spec("main", 1)).await;
    let lax = world.submit(keyed_spec("main", 2)).await;
    let lease = worker.lease(2).await.remove(0);
    assert_eq!((lease.record.id, lease_next(&worker).await), (alone, None));
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    let second = world.submit(keyed_spec("main", 2)).await;
    let waits = world.submit(keyed_spec("main", 1)).await;
    let both = worker.lease(4).await;
    assert_eq!(both.iter().map(|lease| lease.record.id).collect::<Vec<_>>(), [lax, second]);
    for lease in &both {
        worker.end_run(lease, RunOutcome::Succeeded).await;
    }
    assert_eq!(lease_next(&worker).await, Some(waits));
    world.check_consistency().await;
}

pub(super) async fn tasks_behind_a_full_key_are_leased(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (one, two) = (world.new_worker(), world.new_worker());
    for _ in 0..40 {
        world.submit(keyed_spec("busy", 1)).await;
    }
    let free = world.submit(task_spec("free")).await;
    assert_eq!(one.lease(1).await.len(), 1);
    assert_eq!(lease_next(&two).await, Some(free), "not one of the forty before it");
    assert_eq!(lease_next(&two).await, None);
    // Nor of the first of many keys, each of which is at its limit.
    for n in 0..40 {
        for _ in 0..2 {
            world.submit(keyed_spec(&format!("branch/{n}"), 1)).await;
        }
    }
    assert_eq!(one.lease(100).await.len(), 40);
    let free = world.submit(task_spec("free")).await;
    assert_eq!(lease_next(&two).await, Some(free));
    world.check_consistency().await;
}

async fn change_queue(world: &StoreFixture, queue: &QueueName, settings: QueueSettings) {
    let event = QueueEvent::from(QueueSet { by: "me".to_owned(), settings }).encode(Turn(0));
    let append = LogAppend {
        stream: StreamId::Queue(queue.clone()),
        condition: AppendCondition::AtHead,
        events: vec![event],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: world.now(),
    };
    world.store.append(append).await.expect("set");
}

pub(super) async fn queue_can_be_paused_limited_and_reopened(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let slow: QueueName = "slow".parse().expect("a name");
    for _ in 0..5 {
        world.submit(TaskSpec { queue: slow.clone(), ..task_spec("slow") }).await;
    }
    change_queue(&world, &slow, QueueSettings { paused: true, running_max: None }).await;
    assert_eq!(lease_next(&worker).await, None);
    let other = world.submit(task_spec("other")).await;
    assert_eq!(lease_next(&worker).await, Some(other), "other queues go on");
    change_queue(&world, &slow, QueueSettings { paused: false, running_max: Some(2) }).await;
    let leases = worker.lease(5).await;
    assert_eq!(leases.len(), 2);
    assert_eq!(lease_next(&worker).await, None);
    worker.end_run(&leases[0], RunOutcome::Succeeded).await;
    assert_eq!(worker.lease(5).await.len(), 1, "one place is free again");
    change_queue(&world, &slow, QueueSettings::default()).await;
    assert_eq!(worker.lease(5).await.len(), 2);
    world.check_consistency().await;
}

pub(super) async fn worker_gets_tasks_matching_its_labels(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let with = |selector: &str| {
        let selector = selector.parse().expect("labels");
        TaskSpec {
            conditions: LeaseConditions { selector, ..LeaseConditions::default() },
            ..task_spec("labelled")
        }
    };
    let gpu = world.submit(with("gpu=a100")).await;
    let both = world.submit(with("arch=arm64,gpu=a100")).await;
    let any = world.submit(task_spec("any")).await;
    let ask = async |labels: &str| {
        let worker = world.new_worker();
        let request =
            LeaseRequest { labels: labels.parse().expect("labels"), ..worker.next_lease_request(9) };
        worker.send_lease_request(request).await.into_iter().map(|lease| lease.record.id).collect::<Vec<_>>()
    };
    assert_eq!(ask("gpu=h100").await, [any]);
    assert_eq!(ask("gpu=a100,zone=b").await, [gpu]);
    assert_eq!(ask("arch=arm64").await, []);
    assert_eq!(ask("arch=arm64,gpu=a100").await, [both]);
    world.check_consistency().await;
}

pub(super) async fn worker_fault_excludes_its_tasks_from_that_worker_only(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let model = |provider: &str, base_url: Option<&str>| ModelRef {
        provider: provider.to_owned(),
        name: "m".to_owned(),
        base_url: base_url.map(str::to_owned),
    };
    let of_model = |model: &ModelRef| TaskSpec { model: model.clone(), ..task_spec("of a model") };
    let (own, local) = (model("openai", None), model("openai", Some("http://127.0.0.1:1")));
    let plain = world.submit(task_spec("plain")).await;
    let paid = world.submit(of_model(&own)).await;
    let near = world.submit(of_model(&local)).await;
    let set_up = TaskSpec { setup: vec!["make".to_owned()], ..task_spec("set up") };
    let made = world.submit(set_up.clone()).await;
    let ask = async |scopes: &[FaultScope], is_probed: bool| {
        let worker = world.new_worker();
        let fault = |scope: &FaultScope| WorkerFault {
            is_probed,
            ..WorkerFault::new(FaultKind::Key, scope.clone(), "it does not work")
        };
        let request =
            LeaseRequest { faults: scopes.iter().map(fault).collect(), ..worker.next_lease_request(9) };
        let leases = worker.send_lease_request(request).await;
        let mut tasks = Vec::new();
        for lease in &leases {
            tasks.push(lease.record.id);
            let epoch = lease.record.epoch;
            let message = "it does not work".to_owned();
            let release = move |record: &_| decide::release_for_fault(record, epoch, message.clone());
            world.run_command(lease.record.id, release).await.expect("the lease stands");
        }
        tasks.sort();
        tasks
    };
    let sorted = |mut tasks: Vec<TaskId>| {
        tasks.sort();
        tasks
    };
    let all = sorted(vec![plain, paid, near, made]);
    assert_eq!(ask(&[], false).await, all);
    assert_eq!(ask(&[FaultScope::AnyTask], false).await, []);
    assert_eq!(ask(&[FaultScope::AnyTask], true).await, all, "one task at least is wanted");
    let kept = [FaultScope::for_provider(&own), FaultScope::Task(plain)];
    assert_eq!(ask(&kept, false).await, sorted(vec![near, made]));
    let kept = [FaultScope::Model(local), FaultScope::Setup(Flow::setup_hash(&set_up.setup))];
    assert_eq!(ask(&kept, false).await, sorted(vec![plain, paid]));
    for task in all {
        let record = world.task(task).await;
        let is_clean = record.failures == 0 && record.crashes == 0 && record.state == TaskState::Available;
        assert!(is_clean, "{record:?}");
    }
    world.check_consistency().await;
}

pub(super) async fn batches_share_workers_without_starvation(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let of = |batch: u128, priority: i16| TaskSpec {
        batch: Some(BatchId(uuid::Uuid::from_u128(batch))),
        priority,
        ..task_spec("of a batch")
    };
    for _ in 0..30 {
        world.submit(of(1, 0)).await;
    }
    assert_eq!(worker.lease(4).await.len(), 4);
    world.advance_clock(1000);
    for _ in 0..3 {
        world.submit(of(2, 0)).await;
    }
    let batches: Vec<u128> = worker
        .lease(6)
        .await
        .iter()
        .map(|lease| lease.record.spec.batch.expect("a batch").0.as_u128())
        .collect();
    assert_eq!(batches, [2, 2, 2, 1, 1, 1], "the small one has its share at once");
    // A higher priority goes first, but not forever: a task that has waited six minutes overtakes a new one
    // with five more points.
    let next_batch = async || {
        let lease = worker.lease(1).await.remove(0);
        worker.end_run(&lease, RunOutcome::Succeeded).await;
        lease.record.spec.batch.expect("a batch").0.as_u128()
    };
    world.submit(of(3, 5)).await;
    assert_eq!(next_batch().await, 3);
    world.advance_clock(6 * docket_schema::task::AGING_MS);
    world.submit(of(4, 5)).await;
    assert_eq!((next_batch().await, next_batch().await), (1, 4), "once, and then it has just been served");
    world.submit(of(5, 8)).await;
    assert_eq!((next_batch().await, next_batch().await), (5, 1));
    world.check_consistency().await;
}

/// One slot, or a queue with a limit of one: nothing is running whenever there is a choice.
pub(super) async fn batches_alternate_when_one_task_runs_at_a_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let of = |batch: u128| TaskSpec {
        batch: (batch > 0).then(|| BatchId(uuid::Uuid::from_u128(batch))),
        ..task_spec("of a batch")
    };
    for _ in 0..12 {
        world.submit(of(1)).await;
    }
    world.advance_clock(5 * docket_schema::task::AGING_MS);
    for _ in 0..3 {
        world.submit(of(2)).await;
        world.submit(of(0)).await;
    }
    let limited: QueueName = task_spec("any").queue;
    for running_max in [None, Some(1)] {
        change_queue(&world, &limited, QueueSettings { paused: false, running_max }).await;
        let mut got = Vec::new();
        for _ in 0..3 {
            let mut leases = worker.lease(if running_max.is_some() { 4 } else { 1 }).await;
            assert_eq!(leases.len(), 1);
            let lease = leases.remove(0);
            worker.end_run(&lease, RunOutcome::Succeeded).await;
            got.push(lease.record.spec.batch.map_or(0, |batch| batch.0.as_u128()));
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2], "each has one of three");
    }
    world.check_consistency().await;
}

/// However many there are, and whatever holds back the first ones by name.
pub(super) async fn every_flow_is_served_among_very_many(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let (crowded, late): (QueueName, QueueName) =
        ("aaa".parse().expect("a name"), "zzz".parse().expect("a name"));
    let of = |batch: u128, queue: &QueueName| TaskSpec {
        batch: Some(BatchId(uuid::Uuid::from_u128(batch))),
        queue: queue.clone(),
        ..task_spec("alone in its batch")
    };
    let many = 2100;
    let tasks = (1..=many)
        .map(|n| NewTask { id: TaskId(world.next_id()), spec: of(n, &crowded), fork: None })
        .collect();
    world.store.submit(tasks, String::new(), world.now()).await.expect("accepted");
    change_queue(&world, &crowded, QueueSettings { paused: false, running_max: Some(1) }).await;
    let first = worker.lease(1).await;
    assert_eq!(first.len(), 1);
    let free = world.submit(of(9999, &late)).await;
    assert_eq!(lease_next(&worker).await, Some(free), "the queue before it is full, and it is not");
    // Each of them is held back by a key.
    change_queue(&world, &crowded, QueueSettings::default()).await;
    let key = Some(ConcurrencyLimit { key: "one".to_owned(), max: 1 });
    let keyed = |n: u128| {
        let mut spec = of(10_000 + n, &"bbb".parse().expect("a name"));
        spec.conditions.concurrency.clone_from(&key);
        NewTask { id: TaskId(world.next_id()), spec, fork: None }
    };
    change_queue(&world, &crowded, QueueSettings { paused: true, running_max: None }).await;
    world.store.submit((0..1100).map(keyed).collect(), String::new(), world.now()).await.expect("accepted");
    assert!(lease_next(&worker).await.is_some());
    let free = world.submit(of(9998, &late)).await;
    assert_eq!(lease_next(&worker).await, Some(free), "behind more flows than are looked at together");
    // If all of them may run, none is left out forever.
    change_queue(&world, &crowded, QueueSettings::default()).await;
    let late = world.submit(TaskSpec { priority: 5, ..of(9997, &late) }).await;
    let mut looked = 0;
    while task_state(&world, late).await != TaskState::Running {
        assert_eq!(worker.lease(1).await.len(), 1);
        looked += 1;
        assert!(looked < 10, "each request looks at other flows");
    }
    world.check_consistency().await;
}

pub(super) async fn drained_worker_gets_no_tasks_and_is_notified(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let (worker, other) = (world.new_worker(), world.new_worker());
    let task = world.submit(task_spec("one")).await;
    world.submit(task_spec("two")).await;
    let room = |full: Option<&str>| Some(WorkerCapacity { slots: 3, full: full.map(str::to_owned) });
    let request = LeaseRequest { room: room(None), ..worker.next_lease_request(1) };
    assert_eq!(worker.send_lease_request(request).await[0].record.id, task);
    assert!(world.store.drain_worker(worker.incarnation).await.expect("drains"));
    assert!(
        !world.store.drain_worker(docket_schema::ids::IncarnationId(world.next_id())).await.expect("nobody")
    );
    let asked = world
        .store
        .lease(worker.next_lease_request(1), Vec::new(), LEASE_MS, world.now())
        .await
        .expect("answers");
    assert!(asked.drain && asked.leases.is_empty());
    let held = vec![docket_schema::api::HeldLease { task, epoch: docket_schema::ids::Epoch(1) }];
    let beat =
        WorkerHeartbeat { incarnation: worker.incarnation, leases: held, capacity: room(Some("it drains")) };
    let beaten = world.store.renew_leases(beat, LEASE_MS, world.now()).await.expect("answers");
    assert!(beaten.drain && beaten.lost.is_empty() && beaten.renewed == [task], "what it has it keeps");
    assert_eq!(other.lease(1).await.len(), 1);
    let (_, workers) = world.store.read_status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let view = workers.iter().find(|view| view.incarnation == worker.incarnation).expect("known");
    assert!(view.draining && view.held == 1);
    assert_eq!(view.room, room(Some("it drains")));
    assert!(view.about.is_some());
    world.check_consistency().await;
}

/// However many tasks have ended: counts for metrics and autoscalers, workers with their leases, the inbox.
pub(super) async fn frequent_queries_cost_only_unfinished_tasks(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let mut raw = world.database.raw_connection().await;
    let (numbers, id, hash) = if world.database.is_sqlite() {
        let numbers =
            "WITH RECURSIVE n(i) AS (VALUES (1000000) UNION ALL SELECT i + 1 FROM n WHERE i < 1020000)";
        (format!("{numbers} SELECT"), "unhex(printf('%032x', i))", "zeroblob(32)")
    } else {
        let numbers = "WITH n AS (SELECT * FROM generate_series(1000000, 1020000) AS n(i)) SELECT".to_owned();
        (numbers, "decode(lpad(to_hex(i), 32, '0'), 'hex')", "decode(repeat('00', 32), 'hex')")
    };
    for (into, select) in [
        (
            "streams (id, name, head_seq, head_hash, head_at, epoch, fence)",
            format!("i, 'task/' || i, 1, {hash}, 0, 0, 'none' FROM n"),
        ),
        (
            "tasks (id, stream_id, seq, hash, state, queue, engine, priority, epoch, failures, crashes, runs, \
             available_at, submitted_at, ended_at, flow, rank, worker_faults)",
            format!(
                "{id}, i, 1, {hash}, 'completed', 'default', 'react', 0, 0, 0, 0, 0, 0, 0, 1, 'default', 0, 0 FROM n"
            ),
        ),
    ] {
        raw.execute(&format!("INSERT INTO {into} {numbers} {select}")).await.expect("inserts");
    }
    raw.execute("ANALYZE").await.expect("analyzes");
    for sql in docket_coordinator::store::FREQUENT_QUERIES {
        let plan = raw.explain_query(&sql.replace("$1", "200")).await.expect("plans");
        let all = ["Seq Scan on tasks", "SCAN tasks", "SCAN t\n", "SCAN t "];
        assert!(!all.iter().any(|all| format!("{plan}\n").contains(all)), "{sql}\n{plan}");
    }
    let ended =
        raw.explain_query("SELECT count(*) FROM tasks WHERE queue || '' = 'default'").await.expect("plans");
    assert!(
        ended.contains("Seq Scan on tasks") || ended.contains("SCAN tasks"),
        "the test sees such a plan: {ended}"
    );
}
