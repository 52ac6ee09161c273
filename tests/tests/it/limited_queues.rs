//! Limits of queues and keys over two coordinators of one PostgreSQL database, one of which is killed. Whether every
//! limit held is read from the log, at each of its positions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::store::{AppendCondition, LogAppend};
use docket_schema::{
    api::{SetQueueRequest, SubmitRequest},
    event::{Envelope, TypedEvent as _},
    ids::{Position, QueueName, Seq, StreamId, TaskId, Turn},
    queue::{QueueEvent, QueueSet, QueueSettings},
    run::RunOutcome,
    task::{ConcurrencyLimit, TaskEvent, TaskSpec, TaskState},
};
use docket_tests::{
    conformance::{DatabaseKind, StoreFixture, TestDatabase, database::RawConnection, fixture::task_spec},
    pg_cluster::PostgresCluster,
    served_suite::{LeasingWorker, wait_until_listening},
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, WAIT_MAX, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, fresh_database, print_notice, wait_until,
    },
};
use docket_worker::client::CoordinatorClient;
use sqlx::{AssertSqlSafe, Connection as _};

const TASKS: usize = 200;
/// How many of each queue may run.
const QUEUES: [(&str, u32); 3] = [("alpha", 3), ("beta", 2), ("gamma", 4)];
/// How many with each key may run.
const KEYS: [(&str, u32); 5] = [("one", 1), ("two", 2), ("three", 1), ("four", 2), ("five", 3)];
/// Workers at each coordinator that lease through HTTP.
const WORKERS: usize = 4;
/// One of the coordinators is killed when so many tasks are completed.
const DIES_AT: u64 = 60;
/// How long such a worker waits for work: long enough to be woken by a hint or a poll.
const WAIT_MS: u64 = 1000;

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
[[turns]]
text = "Done."
"#;

/// Reads the log in its order and says where more ran than a limit allows.
#[derive(Default)]
struct LimitChecker {
    /// Queue and key of each task.
    tasks: BTreeMap<TaskId, (String, String)>,
    running: BTreeSet<TaskId>,
    /// The most that ran at a time, by queue or key.
    peaks: BTreeMap<String, u32>,
    completed: BTreeMap<TaskId, u32>,
}

impl LimitChecker {
    fn apply(&mut self, event: &Envelope) -> Result<()> {
        let StreamId::Task(task) = event.stream else { return Ok(()) };
        match TaskEvent::decode(&event.kind, event.version, event.payload.as_str())? {
            TaskEvent::TaskSubmitted(submitted) => {
                if let Some(concurrency) = submitted.spec.conditions.concurrency {
                    let queue = format!("queue {}", submitted.spec.queue);
                    self.tasks.insert(task, (queue, format!("key {}", concurrency.key)));
                }
            }
            TaskEvent::TaskLeased(_) => {
                ensure!(self.running.insert(task), "{task} was leased twice at {:?}", event.position);
            }
            TaskEvent::TaskCompleted(_) => {
                *self.completed.entry(task).or_default() += 1;
                self.running.remove(&task);
            }
            TaskEvent::TaskReleased(_)
            | TaskEvent::TaskLeaseExpired(_)
            | TaskEvent::TaskRunCrashed(_)
            | TaskEvent::TaskRunFailed(_)
            | TaskEvent::TaskBlocked(_)
            | TaskEvent::TaskCancelled(_)
            | TaskEvent::TaskDiscarded(_) => {
                self.running.remove(&task);
            }
            _ => {}
        }
        self.check_limits(event)
    }

    fn check_limits(&mut self, event: &Envelope) -> Result<()> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for task in &self.running {
            if let Some((queue, key)) = self.tasks.get(task) {
                *counts.entry(queue).or_default() += 1;
                *counts.entry(key).or_default() += 1;
            }
        }
        for (name, count) in counts {
            let limit = queue_or_key_limit(name).with_context(|| format!("a limit of {name}"))?;
            ensure!(count <= limit, "{count} of {name} run at {:?}, at most {limit} may", event.position);
            let peak = self.peaks.entry(name.to_owned()).or_default();
            *peak = count.max(*peak);
        }
        Ok(())
    }
}

fn queue_or_key_limit(name: &str) -> Option<u32> {
    let (kind, name) = name.split_once(' ')?;
    let limits = if kind == "queue" { &QUEUES[..] } else { &KEYS[..] };
    limits.iter().find(|(known, _)| *known == name).map(|(_, limit)| *limit)
}

async fn read_log(client: &CoordinatorClient) -> Result<Vec<Envelope>> {
    let mut events: Vec<Envelope> = Vec::new();
    loop {
        let after = events.last().map_or(Position(0), |event| event.position);
        let page = client.list_log_events(after, None).await?;
        events.extend(page.events);
        if !page.more {
            return Ok(events);
        }
    }
}

fn task_specs(like: &TaskSpec) -> Result<Vec<TaskSpec>> {
    (0..TASKS)
        .map(|nth| {
            let (queue, _) = QUEUES[nth % QUEUES.len()];
            let (key, max) = KEYS[nth % KEYS.len()];
            let mut task = TaskSpec { title: format!("Task {nth}"), ..like.clone() };
            task.queue = queue.parse()?;
            task.conditions.concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max });
            Ok(task)
        })
        .collect()
}

/// Leases and ends tasks until it is to stop. A coordinator that does not answer is left for the other one.
async fn work_until_stopped(
    near: CoordinatorClient,
    far: CoordinatorClient,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) {
    let mut worker = LeasingWorker::new(near);
    while !stop.load(Ordering::Relaxed) {
        let Ok(leases) = worker.lease_with_wait(2, WAIT_MS).await else {
            worker = LeasingWorker::new(far.clone());
            continue;
        };
        for lease in &leases {
            // A run that a real worker began has decisions, which only an engine continues.
            if lease.head.seq > Seq(0) {
                let _ = worker.release(lease).await;
                continue;
            }
            // What cannot be ended here is lost with its coordinator: the lease expires, and another has the task.
            if worker.finish(lease).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Leases until nothing more may run, and ends it all. There are tasks of every queue with every key, and the queues'
/// limits come to as many as the keys': while one queue has room a key has too, so in the end every limit is reached.
async fn fill_every_limit(client: CoordinatorClient) -> Result<()> {
    let (of_queues, of_keys): (u32, u32) =
        (QUEUES.iter().map(|(_, limit)| limit).sum(), KEYS.iter().map(|(_, limit)| limit).sum());
    ensure!(of_queues == of_keys, "{of_queues} by queue, {of_keys} by key");
    let worker = LeasingWorker::new(client);
    let mut held = Vec::new();
    loop {
        let leases = worker.lease_with_wait(16, 0).await?;
        if leases.is_empty() {
            break;
        }
        held.extend(leases);
    }
    ensure!(held.len() == of_queues as usize, "{} run, {of_queues} may", held.len());
    for lease in &held {
        worker.finish(lease).await?;
    }
    Ok(())
}

async fn wait_for_completed(coordinator: &CoordinatorProcess, count: u64) -> Result<()> {
    let started = tokio::time::Instant::now();
    loop {
        let status = coordinator.client().get_status().await?;
        let completed = status.tasks.iter().find(|row| row.state == TaskState::Completed);
        if completed.map_or(0, |row| row.count) >= count {
            return Ok(());
        }
        ensure!(started.elapsed() < WAIT_MAX, "{:?}\n{}", status.tasks, coordinator.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_across_two_coordinators_while_one_is_killed() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let _room = acquire_scenario_slot().await;
    let place = fresh_database(&cluster).await?;
    let mut dies = CoordinatorProcess::start(place.clone(), LeaseDuration::Patient).await?;
    let stays = CoordinatorProcess::start(place.clone(), LeaseDuration::Patient).await?;
    wait_until_listening(&place, 2).await?;
    for (queue, limit) in QUEUES {
        let request = SetQueueRequest { paused: None, running_max: Some(limit) };
        stays.client().set_queue(&queue.parse()?, &request).await?;
    }
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("a UTF-8 path")?;
    let args = ["--model", "scripted:limits", "--script", script, "--queue", "template", "--tests", "true"];
    let (template, like) = sample.submit(&stays, &args).await?;
    stays.client().cancel(template, "a template").await?;
    let answer = stays.client().submit(&SubmitRequest { tasks: task_specs(&like)?, ids: None }).await?;
    let tasks: Vec<TaskId> = answer.tasks.into_iter().map(|task| task.id).collect();

    fill_every_limit(stays.client().clone()).await?;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // A supervisor with real run processes at each coordinator, among workers that only speak HTTP.
    let options = WorkerOptions { slots: 2, ..WorkerOptions::default() };
    let left_alone = WorkerProcess::start(&dies, &options).await?;
    let works_on = WorkerProcess::start(&stays, &options).await?;
    let workers: Vec<_> = (0..2 * WORKERS)
        .map(|nth| {
            let (near, far) = if nth % 2 == 0 { (&dies, &stays) } else { (&stays, &dies) };
            let (near, far) = (near.client().clone(), far.client().clone());
            tokio::spawn(work_until_stopped(near, far, Arc::clone(&stop), Arc::clone(&done)))
        })
        .collect();
    wait_for_completed(&stays, DIES_AT).await?;
    dies.process().kill().await?;
    wait_for_completed(&stays, TASKS as u64).await.with_context(|| works_on.log_tail())?;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await?;
    }

    let mut checker = LimitChecker::default();
    for event in read_log(stays.client()).await? {
        checker.apply(&event)?;
    }
    ensure!(checker.tasks.len() == TASKS, "{} tasks in the log", checker.tasks.len());
    let once = tasks.iter().all(|task| checker.completed.get(task) == Some(&1));
    ensure!(once && checker.completed.len() == TASKS, "{:?}", checker.completed);
    let by_http = done.load(Ordering::Relaxed);
    print_notice(&format!(
        "{by_http} of {TASKS} tasks ended through HTTP alone; at most {:?} ran",
        checker.peaks
    ));
    let names = QUEUES.iter().map(|(queue, _)| format!("queue {queue}"));
    let mut names = names.chain(KEYS.iter().map(|(key, _)| format!("key {key}")));
    let missed = names.find(|name| checker.peaks.get(name).copied() != queue_or_key_limit(name));
    ensure!(missed.is_none(), "the limit of {missed:?} was never reached: {:?}", checker.peaks);
    drop(left_alone);
    works_on.drain().await?;
    stays.end_and_check().await
}

async fn set_limit(world: &StoreFixture, queue: &QueueName, limit: u32) -> Result<()> {
    let settings = QueueSettings { paused: false, running_max: Some(limit) };
    let event = QueueEvent::from(QueueSet { by: "me".to_owned(), settings }).encode(Turn(0));
    let (stream, now) = (StreamId::Queue(queue.clone()), world.now());
    let (blobs, names) = (Vec::new(), Vec::new());
    let condition = AppendCondition::AtHead;
    world
        .store
        .append(LogAppend { stream, condition, events: vec![event], blobs, required_blobs: names, now })
        .await?;
    Ok(())
}

fn spec_with_key(queue: &QueueName, key: &str) -> TaskSpec {
    let mut task = TaskSpec { queue: queue.clone(), ..task_spec("keyed") };
    task.conditions.concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max: 1 });
    task
}

/// Waits until a session of docket waits for this kind of lock.
async fn wait_for_waiter(raw: &mut RawConnection, event: &str) -> Result<()> {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name = 'docket' AND wait_event_type = 'Lock' AND wait_event = '{event}'"
    );
    wait_until("a session that waits for a lock", async || {
        (raw.query_number(&sql).await.ok()? > 0).then_some(())
    })
    .await
}

/// A position is its transaction's id. Here the end of a task has a later one than the transaction of another
/// coordinator that is about to choose could have had: its lease must come after that end all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_follows_every_counted_task_end_in_the_log() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let kind = DatabaseKind::Postgres { server: cluster.url().to_owned() };
    let world = StoreFixture::open(TestDatabase::new(&kind, "limits_in_order").await).await;
    let (first, second) = (world.open_second_coordinator().await, world.open_second_coordinator().await);
    let mut raw = world.database.raw_connection().await;
    let (left, right): (QueueName, QueueName) = ("left".parse()?, "right".parse()?);
    set_limit(&world, &right, 5).await?;
    let ends = world.submit(spec_with_key(&right, "shared")).await;
    let holder = world.new_worker();
    let held = holder.lease_one().await;
    ensure!(held.record.id == ends, "{held:?}");
    let waits = world.submit(spec_with_key(&right, "shared")).await;
    let slow = world.submit(spec_with_key(&left, "other")).await;

    // One coordinator chooses under limits and stops in the middle of its transaction, at a row that is locked.
    let url = world.database.url().context("a URL")?.to_owned();
    let mut locker = sqlx::PgConnection::connect(&url).await?;
    let lock = format!("BEGIN; SELECT 1 FROM streams WHERE name = 'task/{slow}' FOR UPDATE");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut locker).await?;
    let leases = tokio::spawn({
        let worker = first.new_worker();
        let request = docket_schema::api::LeaseRequest { queues: vec![left], ..worker.next_lease_request(1) };
        async move { worker.send_lease_request(request).await }
    });
    wait_for_waiter(&mut raw, "transactionid").await?;
    // The other one waits for it: what runs is counted when the first has committed.
    let follows = tokio::spawn({
        let worker = second.new_worker();
        async move {
            loop {
                let leases = worker.lease(1).await;
                if !leases.is_empty() {
                    return leases;
                }
            }
        }
    });
    wait_for_waiter(&mut raw, "advisory").await?;
    holder.end_run(&held, RunOutcome::Succeeded).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut locker).await?;
    let got = (leases.await?, follows.await?);
    ensure!(got.0.len() == 1 && got.0[0].record.id == slow, "{got:?}");
    ensure!(got.1.len() == 1 && got.1[0].record.id == waits, "{got:?}");
    let feed = world.read_feed().await;
    let place = |task: TaskId, kind: &str| {
        let wanted = StreamId::Task(task);
        feed.iter().position(|event| event.stream == wanted && event.kind == kind).context("an event")
    };
    let (ended, leased) = (place(ends, "TaskCompleted")?, place(waits, "TaskLeased")?);
    ensure!(
        ended < leased,
        "the lease is at {leased} in the log, and the end that made room for it at {ended}"
    );
    for beside in [first, second] {
        beside.store.close().await;
    }
    world.check_consistency().await;
    Ok(())
}
