//! Flow control: limits, queues, labels, fairness, drained workers.

use docket_coordinator::{
    decide,
    store::{Append, Condition, Heartbeat, NewTask},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, QueueName, StreamId, TaskId, Turn},
    message::ModelRef,
    queue::{QueueEvent, QueueSet, QueueSettings},
    run::RunOutcome,
    task::{Concurrency, Conditions, Flow, TaskSpec, TaskState},
    wire::{FaultKind, FaultScope, LeaseRequest, Room, WorkerFault},
};

use super::{
    Database, World,
    world::{LEASE_MS, Worker, spec},
};

fn keyed(key: &str, max: u32) -> TaskSpec {
    let concurrency = Some(Concurrency { key: key.to_owned(), max });
    TaskSpec { conditions: Conditions { concurrency, ..Conditions::default() }, ..spec("keyed") }
}

pub(super) async fn state(world: &World, id: TaskId) -> TaskState {
    world.task(id).await.state
}

/// Leases one task and completes it.
pub(super) async fn complete_next(worker: &Worker) -> TaskId {
    let lease = worker.lease(1).await.remove(0);
    worker.end(&lease, RunOutcome::Succeeded).await;
    lease.record.id
}

/// Which task a worker gets next, and no more than that one.
pub(super) async fn next(worker: &Worker) -> Option<TaskId> {
    worker.lease(1).await.first().map(|lease| lease.record.id)
}

pub(super) async fn one_key_runs_one_at_a_time_however_many_lease(database: Database) {
    let world = World::open(database).await;
    let beside = world.beside().await;
    for _ in 0..12 {
        world.submit(keyed("branch/main", 1)).await;
        world.submit(keyed("licence", 3)).await;
    }
    let mut done = 0;
    while done < 24 {
        let workers: Vec<Worker> =
            (0..4).map(|n| if n % 2 == 0 { world.worker() } else { beside.worker() }).collect();
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
                worker.end(lease, RunOutcome::Succeeded).await;
                done += 1;
            }
        }
    }
    beside.store.close().await;
    world.check().await;
}

/// A task that is to be alone is, whichever comes first.
pub(super) async fn the_least_limit_of_a_key_holds(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let alone = world.submit(keyed("main", 1)).await;
    let lax = world.submit(keyed("main", 2)).await;
    let lease = worker.lease(2).await.remove(0);
    assert_eq!((lease.record.id, next(&worker).await), (alone, None));
    worker.end(&lease, RunOutcome::Succeeded).await;
    let second = world.submit(keyed("main", 2)).await;
    let waits = world.submit(keyed("main", 1)).await;
    let both = worker.lease(4).await;
    assert_eq!(both.iter().map(|lease| lease.record.id).collect::<Vec<_>>(), [lax, second]);
    for lease in &both {
        worker.end(lease, RunOutcome::Succeeded).await;
    }
    assert_eq!(next(&worker).await, Some(waits));
    world.check().await;
}

pub(super) async fn tasks_behind_a_full_key_are_found(database: Database) {
    let world = World::open(database).await;
    let (one, two) = (world.worker(), world.worker());
    for _ in 0..40 {
        world.submit(keyed("busy", 1)).await;
    }
    let free = world.submit(spec("free")).await;
    assert_eq!(one.lease(1).await.len(), 1);
    assert_eq!(next(&two).await, Some(free), "not one of the forty before it");
    assert_eq!(next(&two).await, None);
    // Nor of the first of many keys, each of which is full.
    for n in 0..40 {
        for _ in 0..2 {
            world.submit(keyed(&format!("branch/{n}"), 1)).await;
        }
    }
    assert_eq!(one.lease(100).await.len(), 40);
    let free = world.submit(spec("free")).await;
    assert_eq!(next(&two).await, Some(free));
    world.check().await;
}

async fn set(world: &World, queue: &QueueName, settings: QueueSettings) {
    let event = QueueEvent::from(QueueSet { by: "me".to_owned(), settings }).encode(Turn(0));
    let append = Append {
        stream: StreamId::Queue(queue.clone()),
        condition: Condition::AtHead,
        events: vec![event],
        blobs: Vec::new(),
        names: Vec::new(),
        now: world.now(),
    };
    world.store.append(append).await.expect("set");
}

pub(super) async fn a_queue_is_paused_limited_and_opened(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let slow: QueueName = "slow".parse().expect("a name");
    for _ in 0..5 {
        world.submit(TaskSpec { queue: slow.clone(), ..spec("slow") }).await;
    }
    set(&world, &slow, QueueSettings { paused: true, running_max: None }).await;
    assert_eq!(next(&worker).await, None);
    let other = world.submit(spec("other")).await;
    assert_eq!(next(&worker).await, Some(other), "other queues go on");
    set(&world, &slow, QueueSettings { paused: false, running_max: Some(2) }).await;
    let leases = worker.lease(5).await;
    assert_eq!(leases.len(), 2);
    assert_eq!(next(&worker).await, None);
    worker.end(&leases[0], RunOutcome::Succeeded).await;
    assert_eq!(worker.lease(5).await.len(), 1, "one place is free again");
    set(&world, &slow, QueueSettings::default()).await;
    assert_eq!(worker.lease(5).await.len(), 2);
    world.check().await;
}

pub(super) async fn a_worker_gets_what_its_labels_satisfy(database: Database) {
    let world = World::open(database).await;
    let with = |selector: &str| {
        let selector = selector.parse().expect("labels");
        TaskSpec { conditions: Conditions { selector, ..Conditions::default() }, ..spec("labelled") }
    };
    let gpu = world.submit(with("gpu=a100")).await;
    let both = world.submit(with("arch=arm64,gpu=a100")).await;
    let any = world.submit(spec("any")).await;
    let ask = async |labels: &str| {
        let worker = world.worker();
        let request = LeaseRequest { labels: labels.parse().expect("labels"), ..worker.request(9) };
        worker.send(request).await.into_iter().map(|lease| lease.record.id).collect::<Vec<_>>()
    };
    assert_eq!(ask("gpu=h100").await, [any]);
    assert_eq!(ask("gpu=a100,zone=b").await, [gpu]);
    assert_eq!(ask("arch=arm64").await, []);
    assert_eq!(ask("arch=arm64,gpu=a100").await, [both]);
    world.check().await;
}

pub(super) async fn a_fault_keeps_what_it_concerns_from_its_worker_alone(database: Database) {
    let world = World::open(database).await;
    let model = |provider: &str, base_url: Option<&str>| ModelRef {
        provider: provider.to_owned(),
        name: "m".to_owned(),
        base_url: base_url.map(str::to_owned),
    };
    let of_model = |model: &ModelRef| TaskSpec { model: model.clone(), ..spec("of a model") };
    let (own, local) = (model("openai", None), model("openai", Some("http://127.0.0.1:1")));
    let plain = world.submit(spec("plain")).await;
    let paid = world.submit(of_model(&own)).await;
    let near = world.submit(of_model(&local)).await;
    let set_up = TaskSpec { setup: vec!["make".to_owned()], ..spec("set up") };
    let made = world.submit(set_up.clone()).await;
    let ask = async |scopes: &[FaultScope], is_probed: bool| {
        let worker = world.worker();
        let fault = |scope: &FaultScope| WorkerFault {
            is_probed,
            ..WorkerFault::new(FaultKind::Key, scope.clone(), "it does not work")
        };
        let request = LeaseRequest { faults: scopes.iter().map(fault).collect(), ..worker.request(9) };
        let leases = worker.send(request).await;
        let mut tasks = Vec::new();
        for lease in &leases {
            tasks.push(lease.record.id);
            let epoch = lease.record.epoch;
            let message = "it does not work".to_owned();
            let release = move |record: &_| decide::release_for_fault(record, epoch, message.clone());
            world.act(lease.record.id, release).await.expect("the lease stands");
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
    let kept = [FaultScope::of_provider(&own), FaultScope::Task(plain)];
    assert_eq!(ask(&kept, false).await, sorted(vec![near, made]));
    let kept = [FaultScope::Model(local), FaultScope::Setup(Flow::setup_hash(&set_up.setup))];
    assert_eq!(ask(&kept, false).await, sorted(vec![plain, paid]));
    for task in all {
        let record = world.task(task).await;
        let is_clean = record.failures == 0 && record.crashes == 0 && record.state == TaskState::Available;
        assert!(is_clean, "{record:?}");
    }
    world.check().await;
}

pub(super) async fn batches_share_and_nobody_starves(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let of = |batch: u128, priority: i16| TaskSpec {
        batch: Some(BatchId(uuid::Uuid::from_u128(batch))),
        priority,
        ..spec("of a batch")
    };
    for _ in 0..30 {
        world.submit(of(1, 0)).await;
    }
    assert_eq!(worker.lease(4).await.len(), 4);
    world.pass(1000);
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
    // A higher priority goes first, but not for ever: what comes now with five points more is overtaken by who has
    // waited for six minutes.
    let next_batch = async || {
        let lease = worker.lease(1).await.remove(0);
        worker.end(&lease, RunOutcome::Succeeded).await;
        lease.record.spec.batch.expect("a batch").0.as_u128()
    };
    world.submit(of(3, 5)).await;
    assert_eq!(next_batch().await, 3);
    world.pass(6 * docket_schema::task::AGING_MS);
    world.submit(of(4, 5)).await;
    assert_eq!((next_batch().await, next_batch().await), (1, 4), "once, and then it has just been served");
    world.submit(of(5, 8)).await;
    assert_eq!((next_batch().await, next_batch().await), (5, 1));
    world.check().await;
}

/// One slot, or a queue of which one may run: nothing runs whenever there is something to choose.
pub(super) async fn batches_take_turns_where_one_task_runs_at_a_time(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let of = |batch: u128| TaskSpec {
        batch: (batch > 0).then(|| BatchId(uuid::Uuid::from_u128(batch))),
        ..spec("of a batch")
    };
    for _ in 0..12 {
        world.submit(of(1)).await;
    }
    world.pass(5 * docket_schema::task::AGING_MS);
    for _ in 0..3 {
        world.submit(of(2)).await;
        world.submit(of(0)).await;
    }
    let limited: QueueName = spec("any").queue;
    for running_max in [None, Some(1)] {
        set(&world, &limited, QueueSettings { paused: false, running_max }).await;
        let mut got = Vec::new();
        for _ in 0..3 {
            let mut leases = worker.lease(if running_max.is_some() { 4 } else { 1 }).await;
            assert_eq!(leases.len(), 1);
            let lease = leases.remove(0);
            worker.end(&lease, RunOutcome::Succeeded).await;
            got.push(lease.record.spec.batch.map_or(0, |batch| batch.0.as_u128()));
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2], "each has one of three");
    }
    world.check().await;
}

/// However many there are, and whatever keeps those back that come first by their names.
pub(super) async fn every_flow_is_found_among_very_many(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let (crowded, late): (QueueName, QueueName) =
        ("aaa".parse().expect("a name"), "zzz".parse().expect("a name"));
    let of = |batch: u128, queue: &QueueName| TaskSpec {
        batch: Some(BatchId(uuid::Uuid::from_u128(batch))),
        queue: queue.clone(),
        ..spec("alone in its batch")
    };
    let many = 2100;
    let tasks =
        (1..=many).map(|n| NewTask { id: TaskId(world.id()), spec: of(n, &crowded), fork: None }).collect();
    world.store.submit(tasks, String::new(), world.now()).await.expect("accepted");
    set(&world, &crowded, QueueSettings { paused: false, running_max: Some(1) }).await;
    let first = worker.lease(1).await;
    assert_eq!(first.len(), 1);
    let free = world.submit(of(9999, &late)).await;
    assert_eq!(next(&worker).await, Some(free), "the queue before it is full, and it is not");
    // Every one of which is kept back by a key.
    set(&world, &crowded, QueueSettings::default()).await;
    let key = Some(Concurrency { key: "one".to_owned(), max: 1 });
    let keyed = |n: u128| {
        let mut spec = of(10_000 + n, &"bbb".parse().expect("a name"));
        spec.conditions.concurrency.clone_from(&key);
        NewTask { id: TaskId(world.id()), spec, fork: None }
    };
    set(&world, &crowded, QueueSettings { paused: true, running_max: None }).await;
    world.store.submit((0..1100).map(keyed).collect(), String::new(), world.now()).await.expect("accepted");
    assert!(next(&worker).await.is_some());
    let free = world.submit(of(9998, &late)).await;
    assert_eq!(next(&worker).await, Some(free), "behind more flows than are looked at together");
    // Where all of them may go, none is out of sight for ever.
    set(&world, &crowded, QueueSettings::default()).await;
    let late = world.submit(TaskSpec { priority: 5, ..of(9997, &late) }).await;
    let mut looked = 0;
    while state(&world, late).await != TaskState::Running {
        assert_eq!(worker.lease(1).await.len(), 1);
        looked += 1;
        assert!(looked < 10, "each request looks at other flows");
    }
    world.check().await;
}

pub(super) async fn a_drained_worker_gets_no_more_and_is_told(database: Database) {
    let world = World::open(database).await;
    let (worker, other) = (world.worker(), world.worker());
    let task = world.submit(spec("one")).await;
    world.submit(spec("two")).await;
    let room = |full: Option<&str>| Some(Room { slots: 3, full: full.map(str::to_owned) });
    let request = LeaseRequest { room: room(None), ..worker.request(1) };
    assert_eq!(worker.send(request).await[0].record.id, task);
    assert!(world.store.drain_worker(worker.incarnation).await.expect("drains"));
    assert!(!world.store.drain_worker(docket_schema::ids::IncarnationId(world.id())).await.expect("nobody"));
    let asked =
        world.store.lease(worker.request(1), Vec::new(), LEASE_MS, world.now()).await.expect("answers");
    assert!(asked.drain && asked.leases.is_empty());
    let held = vec![docket_schema::wire::Held { task, epoch: docket_schema::ids::Epoch(1) }];
    let beat = Heartbeat { incarnation: worker.incarnation, held, room: room(Some("it drains")) };
    let beaten = world.store.heartbeat(beat, LEASE_MS, world.now()).await.expect("answers");
    assert!(beaten.drain && beaten.lost.is_empty() && beaten.renewed == [task], "what it has it keeps");
    assert_eq!(other.lease(1).await.len(), 1);
    let (_, workers) = world.store.status(docket_schema::ids::Timestamp(0)).await.expect("reads");
    let view = workers.iter().find(|view| view.incarnation == worker.incarnation).expect("known");
    assert!(view.draining && view.held == 1);
    assert_eq!(view.room, room(Some("it drains")));
    assert!(view.about.is_some());
    world.check().await;
}

/// However many tasks have ended: counts for metrics and autoscalers, workers with what they hold, the inbox.
pub(super) async fn what_is_asked_often_costs_what_has_not_ended(database: Database) {
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    let mut raw = world.database.raw().await;
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
        raw.run(&format!("INSERT INTO {into} {numbers} {select}")).await.expect("inserts");
    }
    raw.run("ANALYZE").await.expect("analyzes");
    for sql in docket_coordinator::store::ASKED_OFTEN {
        let plan = raw.plan(&sql.replace("$1", "200")).await.expect("plans");
        let all = ["Seq Scan on tasks", "SCAN tasks", "SCAN t\n", "SCAN t "];
        assert!(!all.iter().any(|all| format!("{plan}\n").contains(all)), "{sql}\n{plan}");
    }
    let ended = raw.plan("SELECT count(*) FROM tasks WHERE queue || '' = 'default'").await.expect("plans");
    assert!(
        ended.contains("Seq Scan on tasks") || ended.contains("SCAN tasks"),
        "the test sees such a plan: {ended}"
    );
}
