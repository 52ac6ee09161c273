//! Flow control: dependencies, limits, queues, labels, fairness, drained workers.

use docket_coordinator::{
    decide,
    store::{Append, AppendError, Condition, Heartbeat, NewTask},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, QueueName, StreamId, TaskId, Turn},
    queue::{QueueEvent, QueueSet, QueueSettings},
    run::RunOutcome,
    task::{Concurrency, Conditions, IfFailed, TaskEvent, TaskSpec, TaskState},
    wire::{LeaseRequest, Room},
};

use super::{
    Database, World,
    world::{LEASE_MS, Worker, failure, spec},
};

fn after(ids: &[TaskId], if_failed: IfFailed) -> TaskSpec {
    TaskSpec {
        conditions: Conditions { after: ids.to_vec(), if_failed, ..Conditions::default() },
        ..spec("later")
    }
}

fn keyed(key: &str, max: u32) -> TaskSpec {
    let concurrency = Some(Concurrency { key: key.to_owned(), max });
    TaskSpec { conditions: Conditions { concurrency, ..Conditions::default() }, ..spec("keyed") }
}

async fn state(world: &World, id: TaskId) -> TaskState {
    world.task(id).await.state
}

/// Leases one task and completes it.
async fn complete_next(worker: &Worker) -> TaskId {
    let lease = worker.lease(1).await.remove(0);
    worker.end(&lease, RunOutcome::Succeeded).await;
    lease.record.id
}

/// Which task a worker gets next, and no more than that one.
async fn next(worker: &Worker) -> Option<TaskId> {
    worker.lease(1).await.first().map(|lease| lease.record.id)
}

pub(super) async fn a_task_waits_until_the_others_are_completed(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let (one, two) = (world.submit(spec("one")).await, world.submit(spec("two")).await);
    let last = world.submit(after(&[one, two], IfFailed::Hold)).await;
    let beyond = world.submit(after(&[last], IfFailed::Hold)).await;
    assert_eq!(
        (state(&world, last).await, state(&world, beyond).await),
        (TaskState::Pending, TaskState::Pending)
    );
    assert_eq!(complete_next(&worker).await, one);
    assert_eq!(world.task(last).await.waits_for, [two]);
    // Held by a person meanwhile: what it waits for ends all the same.
    world.act(last, |record| decide::pause(record, "me")).await.expect("paused");
    assert_eq!(complete_next(&worker).await, two);
    assert_eq!(state(&world, last).await, TaskState::Blocked);
    world.act(last, |record| decide::unpause(record, "me")).await.expect("unpaused");
    assert_eq!(complete_next(&worker).await, last);
    assert_eq!(complete_next(&worker).await, beyond);
    // What has ended already keeps nobody back; what is to come at its time waits for that.
    let now = world.submit(after(&[one, beyond], IfFailed::Hold)).await;
    assert_eq!(state(&world, now).await, TaskState::Available);
    let run_at = Some(world.now().plus_ms(60_000));
    let scheduled = world.submit(TaskSpec { run_at, ..after(&[one], IfFailed::Hold) }).await;
    assert_eq!(state(&world, scheduled).await, TaskState::Scheduled);
    world.check().await;
}

pub(super) async fn what_becomes_of_who_waits_for_a_task_that_failed(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let first = world.submit(TaskSpec { attempts_max: 1, ..spec("fails") }).await;
    let held = world.submit(after(&[first], IfFailed::Hold)).await;
    let cancelled = world.submit(after(&[first], IfFailed::Cancel)).await;
    let chained = world.submit(after(&[cancelled], IfFailed::Cancel)).await;
    let runs = world.submit(after(&[first], IfFailed::Run)).await;
    let lease = worker.lease(1).await.remove(0);
    worker.end(&lease, failure()).await;
    assert_eq!(state(&world, first).await, TaskState::Discarded);
    for (task, expected) in [
        (held, TaskState::Pending),
        (cancelled, TaskState::Cancelled),
        (chained, TaskState::Cancelled),
        (runs, TaskState::Available),
    ] {
        assert_eq!(state(&world, task).await, expected);
    }
    let events = world.stream(StreamId::Task(chained)).await;
    let last = events.last().expect("events");
    let event = TaskEvent::decode(&last.kind, last.version, last.payload.as_str()).expect("decodes");
    let TaskEvent::TaskCancelled(why) = event else { panic!("{event:?}") };
    assert!(why.reason.contains(&cancelled.to_string()) && why.by == decide::BY_DEPENDENCY, "{why:?}");
    // Taken up again, it lets go on who held out; and whoever is told to goes without it.
    let impatient = world.submit(after(&[first], IfFailed::Hold)).await;
    assert_eq!(state(&world, impatient).await, TaskState::Pending);
    world.act(impatient, |record| decide::retry(record, "me", "")).await.expect("goes without");
    assert_eq!(state(&world, impatient).await, TaskState::Available);
    world.act(first, |record| decide::retry(record, "me", "")).await.expect("taken up again");
    while state(&world, first).await != TaskState::Completed {
        complete_next(&worker).await;
    }
    assert_eq!(state(&world, held).await, TaskState::Available);
    world.check().await;
}

pub(super) async fn a_dependency_that_nobody_knows_refuses_the_submit(database: Database) {
    let world = World::open(database).await;
    let ids = [TaskId(world.id()), TaskId(world.id())];
    let new = |id, spec| NewTask { id, spec, fork: None };
    let forward = vec![new(ids[0], after(&[ids[1]], IfFailed::Hold)), new(ids[1], spec("second"))];
    let refused = world.store.submit(forward, String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::NoDependency(on)) if on == ids[1]), "{refused:?}");
    assert!(world.feed().await.is_empty(), "none");
    let back = vec![new(ids[0], spec("first")), new(ids[1], after(&[ids[0]], IfFailed::Hold))];
    world.store.submit(back, String::new(), world.now()).await.expect("one after the other");
    assert_eq!(state(&world, ids[1]).await, TaskState::Pending);
    world.check().await;
}

/// Whoever submits a task that waits sees the other's end, or that one's end sees who waits.
pub(super) async fn ends_and_submits_at_once_strand_nobody(database: Database) {
    let world = World::open(database).await;
    let beside = world.beside().await;
    for _ in 0..30 {
        let first = world.submit(spec("first")).await;
        let worker = world.worker();
        let lease = worker.lease(1).await.remove(0);
        let submits = (0..4).map(|_| beside.submit(after(&[first], IfFailed::Hold)));
        let (_, waiting) = futures_util::future::join(
            worker.end(&lease, RunOutcome::Succeeded),
            futures_util::future::join_all(submits),
        )
        .await;
        for task in waiting {
            assert_eq!(state(&world, task).await, TaskState::Available);
            world.act(task, |record| decide::cancel(record, "me", "")).await.expect("out of the way");
        }
    }
    beside.store.close().await;
    world.check().await;
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

/// The end of a chain's head reaches its last task, however long it is.
pub(super) async fn a_long_chain_is_cancelled_with_its_head(database: Database) {
    let world = World::open(database).await;
    let mut ids = vec![TaskId(world.id())];
    let mut tasks = vec![NewTask { id: ids[0], spec: spec("head"), fork: None }];
    for n in 0..999 {
        let id = TaskId(world.id());
        tasks.push(NewTask { id, spec: after(&[ids[n]], IfFailed::Cancel), fork: None });
        ids.push(id);
    }
    world.store.submit(tasks, String::new(), world.now()).await.expect("accepted");
    world.act(ids[0], |record| decide::cancel(record, "me", "")).await.expect("cancels");
    assert_eq!(state(&world, ids[999]).await, TaskState::Cancelled);
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
    assert_eq!((next_batch().await, next_batch().await), (1, 1));
    world.submit(of(5, 8)).await;
    assert_eq!((next_batch().await, next_batch().await), (5, 1));
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
             available_at, submitted_at, ended_at, flow, rank)",
            format!(
                "{id}, i, 1, {hash}, 'completed', 'default', 'react', 0, 0, 0, 0, 0, 0, 0, 1, 'default', 0 FROM n"
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
