//! Clocks that are set while docket runs: whole processes on both stores, with libfaketime.
//!
//! Whatever a clock says, a run that is alive keeps its lease, and everything that waits for time goes on: a task with an
//! instant, a retry, a lease whose holder is gone.

use std::{ffi::OsStr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId},
    run::EngineRef,
    task::{Backoff, Labels, TaskSpec, TaskState},
    wire::{ClockHealth, ClockStepState, LeaseRequest, SubmitRequest},
};
use docket_tests::{
    pg_cluster::{Cluster, ClusterOptions},
    system::{
        Coordinator, LeaseTime, Place, Sample, SettableClock, Signal, Worker, WorkerOptions, fresh_database,
        room, seen, send, until,
    },
};
use docket_worker::{client::Client, clock::new_incarnation};
use sqlx::Connection as _;

const A_DAY: i64 = 24 * 3600;
const AN_HOUR: i64 = 3600;

/// The queue that a test's first worker serves.
const WORK: &str = "work";
/// The queue that the second host's worker serves.
const OTHER_WORK: &str = "other-work";

/// Waits in the middle of its only command.
const HELD: &str = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "touch middle; until [ -e go ]; do sleep 0.05; done; rm go middle" } }]
[[turns]]
text = "Done."
"#;

/// Has no answer for the second turn.
const FAILS: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
"#;

const DONE: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
[[turns]]
text = "Done."
"#;

/// What tasks are made of.
struct Specs {
    held: TaskSpec,
    fails: TaskSpec,
    done: TaskSpec,
}

impl Specs {
    /// Pinned through `coordinator`, as a user would.
    async fn new(coordinator: &Coordinator) -> Result<Self> {
        let sample = Sample::new(&[("a.txt", "a\n")])?;
        let pin = async |text: &str| -> Result<TaskSpec> {
            let script = sample.script(text)?;
            let script = script.to_str().context("UTF-8")?;
            let args = ["--model", "scripted:s", "--script", script, "--queue", "template"];
            let (template, spec) = sample.submit(coordinator, &args).await?;
            coordinator.client().cancel(template, "a template").await?;
            Ok(TaskSpec { queue: WORK.parse()?, ..spec })
        };
        Ok(Self { held: pin(HELD).await?, fails: pin(FAILS).await?, done: pin(DONE).await? })
    }
}

async fn submit(client: &Client, spec: TaskSpec) -> Result<TaskId> {
    let answer = client.submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
    Ok(answer.tasks.first().context("a task")?.id)
}

/// A task whose lease was given to a worker that is never heard of again.
async fn lose_a_lease(client: &Client, specs: &Specs) -> Result<TaskId> {
    let incarnation = new_incarnation();
    // Of its own: the next one to be lost must not be an earlier one.
    let queue: QueueName = format!("lost-{incarnation}").parse()?;
    let task = submit(client, TaskSpec { queue: queue.clone(), ..specs.done.clone() }).await?;
    let request = LeaseRequest {
        incarnation,
        number: 1,
        name: "gone".to_owned(),
        queues: vec![queue],
        engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
        labels: Labels::default(),
        layers: Vec::new(),
        room: None,
        faults: Vec::new(),
        max: 1,
        wait_ms: 0,
    };
    let leases = client.lease(&request).await?.leases;
    ensure!(leases.iter().map(|lease| lease.task).eq([task]), "{leases:?}");
    Ok(task)
}

async fn comes_into(client: &Client, task: TaskId, state: TaskState) -> Result<()> {
    let found = until("a task's state", async || {
        let view = client.task(task).await.ok()?;
        (view.task.state == state).then_some(())
    });
    found.await.with_context(|| format!("task {task} does not become {state}"))
}

/// A run that is alive, in the middle of a command of its worker.
struct HeldRun {
    task: TaskId,
    middle: PathBuf,
}

impl HeldRun {
    /// In `queue`, which `worker` serves alone.
    async fn begin(client: &Client, worker: &Worker, specs: &Specs, queue: &str) -> Result<Self> {
        let task = submit(client, TaskSpec { queue: queue.parse()?, ..specs.held.clone() }).await?;
        let middle = seen("a command in its middle", || {
            worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
        });
        Ok(Self { task, middle: middle.await.with_context(|| worker.tail())? })
    }

    /// It has kept its first lease until now.
    async fn lives(&self, client: &Client) -> Result<()> {
        let task = client.task(self.task).await?.task;
        ensure!((task.state, task.epoch.0) == (TaskState::Running, 1), "its lease was ended: {task:?}");
        Ok(())
    }

    /// It ends well, on its first lease and its first try.
    async fn end(self, coordinator: &Coordinator) -> Result<()> {
        self.lives(coordinator.client()).await?;
        std::fs::write(self.middle.join("go"), "")?;
        let task = coordinator.ended(self.task).await?.task;
        ensure!((task.state, task.epoch.0, task.runs) == (TaskState::Completed, 1, 1), "{task:?}");
        ensure!((task.failures, task.crashes) == (0, 0), "{task:?}");
        Ok(())
    }
}

/// All that waits for time is done in time.
async fn time_goes_on(client: &Client, specs: &Specs) -> Result<()> {
    let lost = lose_a_lease(client, specs).await?;
    let backoff = Backoff { base_ms: 1000, max_ms: 1000 };
    let failing = submit(client, TaskSpec { attempts_max: 2, backoff, ..specs.fails.clone() }).await?;
    // By the coordinator's time, whatever this process' is.
    let now = client.task(failing).await?.task.submitted_at;
    let later = submit(client, TaskSpec { run_at: Some(now.plus_ms(2000)), ..specs.done.clone() }).await?;
    comes_into(client, later, TaskState::Completed).await?;
    comes_into(client, failing, TaskState::Discarded).await?;
    ensure!(client.task(failing).await?.task.runs == 2, "it was tried again");
    comes_into(client, lost, TaskState::Available).await
}

async fn clock_of(client: &Client) -> Result<ClockHealth> {
    Ok(client.ready().await?.clock.unwrap_or_default())
}

/// Waits until the coordinator has seen as many steps.
async fn sees_steps(client: &Client, steps: u64) -> Result<()> {
    until("a step that is seen", async || (clock_of(client).await.ok()?.steps >= steps).then_some(())).await
}

/// Waits until the coordinator has followed its `steps`-th step.
async fn follows_step(client: &Client, steps: u64) -> Result<()> {
    until("a step that is followed", async || {
        let clock = clock_of(client).await.ok()?;
        (clock.steps == steps && clock.last?.state == ClockStepState::Followed).then_some(())
    })
    .await
}

async fn start(home: &tempfile::TempDir, place: Place, clock: Option<&SettableClock>) -> Result<Coordinator> {
    let env = clock.map(SettableClock::environment).unwrap_or_default();
    let env: Vec<(&str, &OsStr)> =
        env.iter().map(|(name, value)| (name.as_str(), OsStr::new(value))).collect();
    Coordinator::start_with(home.path(), place, LeaseTime::Patient, &env).await
}

async fn start_worker(
    coordinator: &Coordinator,
    clock: Option<&SettableClock>,
    queue: &str,
) -> Result<Worker> {
    let env = clock.map(SettableClock::environment).unwrap_or_default();
    let options = WorkerOptions { slots: 3, queue: Some(queue.parse()?), env, ..WorkerOptions::default() };
    Worker::start(coordinator, &options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_a_day_ahead_for_seconds_stops_nothing() -> Result<()> {
    let _room = room().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let coordinator = start(&home, Place::Home, Some(&clock)).await?;
    let worker = start_worker(&coordinator, Some(&clock), WORK).await?;
    let (client, specs) = (coordinator.client(), Specs::new(&coordinator).await?);
    let held = HeldRun::begin(client, &worker, &specs, WORK).await?;
    ensure!(client.ready().await?.clock.is_none(), "no step yet");

    clock.set_ahead(A_DAY)?;
    sees_steps(client, 1).await?;
    time_goes_on(client, &specs).await?;
    held.lives(client).await?;
    clock.set_ahead(0)?;
    time_goes_on(client, &specs).await?;
    held.lives(client).await?;
    until("the step's end", async || {
        (clock_of(client).await.ok()?.last?.state != ClockStepState::Watched).then_some(())
    })
    .await?;
    let log = coordinator.tail();
    ensure!(log.contains("clock jumped 86") && log.contains("s ahead; it is followed if"), "{log}");
    let doctor = coordinator.docket(&["doctor"]).await?.stdout;
    ensure!(doctor.contains("the coordinator's clock was stepped"), "{doctor}");

    held.end(&coordinator).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_coordinator_wrote_a_day_ahead_is_not_believed_after_a_restart() -> Result<()> {
    let _room = room().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    clock.set_ahead(A_DAY)?;
    let home = tempfile::tempdir()?;
    let mut ahead = start(&home, Place::Home, Some(&clock)).await?;
    let worker = start_worker(&ahead, None, WORK).await?;
    let specs = Specs::new(&ahead).await?;
    let lost = lose_a_lease(ahead.client(), &specs).await?;
    // An hour from then, by a clock that was ahead.
    let backoff = Backoff { base_ms: 3_600_000, max_ms: 3_600_000 };
    let failing = TaskSpec { attempts_max: 2, backoff, ..specs.fails.clone() };
    let failing = submit(ahead.client(), failing).await?;
    comes_into(ahead.client(), failing, TaskState::Retryable).await?;
    worker.drain().await?;
    send(ahead.pid(), Signal::SIGTERM);
    ensure!(ahead.process().wait().await?.success(), "{}", ahead.tail());
    drop(ahead);

    clock.set_ahead(0)?;
    let right = start(&home, Place::Home, Some(&clock)).await?;
    let worker = start_worker(&right, None, WORK).await?;
    let client = right.client();
    comes_into(client, lost, TaskState::Available).await?;
    comes_into(client, failing, TaskState::Discarded).await?;
    ensure!(client.task(failing).await?.task.runs == 2, "it was tried again");
    time_goes_on(client, &specs).await?;
    worker.drain().await?;
    right.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_set_back_an_hour_is_followed_and_no_lease_is_lost() -> Result<()> {
    let _room = room().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let coordinator = start(&home, Place::Home, Some(&clock)).await?;
    let worker = start_worker(&coordinator, Some(&clock), WORK).await?;
    let (client, specs) = (coordinator.client(), Specs::new(&coordinator).await?);
    let held = HeldRun::begin(client, &worker, &specs, WORK).await?;
    let before = client.task(held.task).await?.task.submitted_at;

    clock.set_ahead(-AN_HOUR)?;
    follows_step(client, 1).await?;
    let back = submit(client, specs.done.clone()).await?;
    let back = client.task(back).await?.task.submitted_at;
    ensure!(back < before && before.ms_since(back) > 3_500_000, "{back} is an hour before {before}");
    held.lives(client).await?;
    time_goes_on(client, &specs).await?;
    clock.set_ahead(0)?;
    follows_step(client, 2).await?;
    held.lives(client).await?;
    time_goes_on(client, &specs).await?;

    held.end(&coordinator).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Waits until a coordinator has the term.
async fn has_a_leader(url: &str) -> Result<()> {
    let mut database = sqlx::PgConnection::connect(url).await?;
    until("a leader", async || {
        let found = sqlx::query("SELECT 1 FROM terms WHERE name = 'maintenance'");
        found.fetch_optional(&mut database).await.ok()?.map(drop)
    })
    .await
}

/// Two coordinators with a worker each. The first one leads, on the machine whose clock is given.
struct TwoHosts {
    coordinators: [Coordinator; 2],
    workers: [Worker; 2],
    held: [HeldRun; 2],
    specs: Specs,
    _homes: [tempfile::TempDir; 2],
}

impl TwoHosts {
    async fn start(cluster: &Cluster, clock: Option<&SettableClock>) -> Result<Self> {
        let place = fresh_database(cluster).await?;
        let homes = [tempfile::tempdir()?, tempfile::tempdir()?];
        let one = start(&homes[0], place.clone(), clock).await?;
        if let Place::Postgres(url) = &place {
            has_a_leader(url).await?;
        }
        let two = start(&homes[1], place, None).await?;
        let workers = [start_worker(&one, clock, WORK).await?, start_worker(&two, None, OTHER_WORK).await?];
        let specs = Specs::new(&one).await?;
        let held = [
            HeldRun::begin(one.client(), &workers[0], &specs, WORK).await?,
            HeldRun::begin(two.client(), &workers[1], &specs, OTHER_WORK).await?,
        ];
        Ok(Self { coordinators: [one, two], workers, held, specs, _homes: homes })
    }

    async fn live(&self) -> Result<()> {
        for (held, coordinator) in self.held.iter().zip(&self.coordinators) {
            held.lives(coordinator.client()).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        let Self { coordinators: [one, two], workers, held, .. } = self;
        for held in held {
            held.end(&one).await.with_context(|| format!("{}\n{}", one.tail(), two.tail()))?;
        }
        for worker in workers {
            worker.drain().await?;
        }
        drop(two);
        one.end_and_check().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_whose_clock_is_wrong_ends_no_lease_of_a_shared_database() -> Result<()> {
    let _room = room().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let hosts = Box::pin(TwoHosts::start(&cluster, Some(&clock))).await?;
    let [wrong, right] = &hosts.coordinators;
    for ahead in [4, -AN_HOUR, A_DAY] {
        clock.set_ahead(ahead)?;
        time_goes_on(wrong.client(), &hosts.specs).await?;
        hosts.live().await?;
    }
    clock.set_ahead(0)?;
    time_goes_on(right.client(), &hosts.specs).await?;
    hosts.live().await?;
    ensure!(wrong.client().ready().await?.clock.is_none(), "the database's clock was never stepped");
    Box::pin(hosts.end()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_follow_the_database_s_clock_and_end_no_lease_on_the_way() -> Result<()> {
    let _room = room().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let options = ClusterOptions { environment: clock.environment(), ..ClusterOptions::default() };
    let Some(cluster) = Cluster::start_own(options) else { return Ok(()) };
    let hosts = Box::pin(TwoHosts::start(&cluster, None)).await?;
    let [one, two] = &hosts.coordinators;
    clock.set_ahead(A_DAY)?;
    for coordinator in [one, two] {
        follows_step(coordinator.client(), 1).await?;
        hosts.live().await?;
    }
    // A lost lease is ended once every coordinator has followed.
    time_goes_on(two.client(), &hosts.specs).await?;
    hosts.live().await?;
    Box::pin(hosts.end()).await
}
