//! Clocks that are set while docket runs: whole processes on both stores, with libfaketime.
//!
//! Whatever a clock says, a run that is alive keeps its lease, and everything that waits for time goes on: a task with an
//! instant, a retry, a lease whose holder is gone.

use std::{ffi::OsStr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{ClockHealth, ClockStepState, LeaseRequest, SubmitRequest},
    ids::{QueueName, TaskId},
    run::EngineRef,
    task::{Backoff, LabelSet, TaskSpec, TaskState},
};
use docket_tests::{
    pg_cluster::{ClusterOptions, PostgresCluster},
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, SettableClock, Signal, StoreLocation,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, poll_until, send_signal,
        wait_until,
    },
};
use docket_worker::{client::CoordinatorClient, clock::new_incarnation};
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
struct TaskSpecs {
    held: TaskSpec,
    fails: TaskSpec,
    done: TaskSpec,
}

impl TaskSpecs {
    /// Pinned through `coordinator`, as a user would.
    async fn new(coordinator: &CoordinatorProcess) -> Result<Self> {
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let pin = async |text: &str| -> Result<TaskSpec> {
            let script = sample.write_script(text)?;
            let script = script.to_str().context("UTF-8")?;
            let args = ["--model", "scripted:s", "--script", script, "--queue", "template"];
            let (template, spec) = sample.submit(coordinator, &args).await?;
            coordinator.client().cancel(template, "a template").await?;
            Ok(TaskSpec { queue: WORK.parse()?, ..spec })
        };
        Ok(Self { held: pin(HELD).await?, fails: pin(FAILS).await?, done: pin(DONE).await? })
    }
}

async fn submit_spec(client: &CoordinatorClient, spec: TaskSpec) -> Result<TaskId> {
    let answer = client.submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
    Ok(answer.tasks.first().context("a task")?.id)
}

/// A task whose lease was given to a worker that is never heard of again.
async fn submit_task_with_lost_lease(client: &CoordinatorClient, specs: &TaskSpecs) -> Result<TaskId> {
    let incarnation = new_incarnation();
    // Of its own: the next one to be lost must not be an earlier one.
    let queue: QueueName = format!("lost-{incarnation}").parse()?;
    let task = submit_spec(client, TaskSpec { queue: queue.clone(), ..specs.done.clone() }).await?;
    let request = LeaseRequest {
        incarnation,
        number: 1,
        name: "gone".to_owned(),
        queues: vec![queue],
        engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
        labels: LabelSet::default(),
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

async fn wait_for_state(client: &CoordinatorClient, task: TaskId, state: TaskState) -> Result<()> {
    let found = wait_until("a task's state", async || {
        let view = client.get_task(task).await.ok()?;
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
    async fn start_held_run(
        client: &CoordinatorClient,
        worker: &WorkerProcess,
        specs: &TaskSpecs,
        queue: &str,
    ) -> Result<Self> {
        let task = submit_spec(client, TaskSpec { queue: queue.parse()?, ..specs.held.clone() }).await?;
        let middle = poll_until("a command in its middle", || {
            worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
        });
        Ok(Self { task, middle: middle.await.with_context(|| worker.log_tail())? })
    }

    /// It has kept its first lease until now.
    async fn assert_still_leased(&self, client: &CoordinatorClient) -> Result<()> {
        let task = client.get_task(self.task).await?.task;
        ensure!((task.state, task.epoch.0) == (TaskState::Running, 1), "its lease was ended: {task:?}");
        Ok(())
    }

    /// It ends well, on its first lease and its first try.
    async fn finish(self, coordinator: &CoordinatorProcess) -> Result<()> {
        self.assert_still_leased(coordinator.client()).await?;
        std::fs::write(self.middle.join("go"), "")?;
        let task = coordinator.wait_until_ended(self.task).await?.task;
        ensure!((task.state, task.epoch.0, task.runs) == (TaskState::Completed, 1, 1), "{task:?}");
        ensure!((task.failures, task.crashes) == (0, 0), "{task:?}");
        Ok(())
    }
}

/// All that waits for time is done in time.
async fn check_timed_tasks_proceed(client: &CoordinatorClient, specs: &TaskSpecs) -> Result<()> {
    let lost = submit_task_with_lost_lease(client, specs).await?;
    let backoff = Backoff { base_ms: 1000, max_ms: 1000 };
    let failing = submit_spec(client, TaskSpec { attempts_max: 2, backoff, ..specs.fails.clone() }).await?;
    // By the coordinator's time, whatever this process' is.
    let now = client.get_task(failing).await?.task.submitted_at;
    let later =
        submit_spec(client, TaskSpec { run_at: Some(now.plus_ms(2000)), ..specs.done.clone() }).await?;
    wait_for_state(client, later, TaskState::Completed).await?;
    wait_for_state(client, failing, TaskState::Discarded).await?;
    ensure!(client.get_task(failing).await?.task.runs == 2, "it was tried again");
    wait_for_state(client, lost, TaskState::Available).await
}

async fn clock_health(client: &CoordinatorClient) -> Result<ClockHealth> {
    Ok(client.check_ready().await?.clock.unwrap_or_default())
}

/// Waits until the coordinator has seen as many steps.
async fn wait_for_clock_steps(client: &CoordinatorClient, steps: u64) -> Result<()> {
    wait_until("a step that is seen", async || {
        (clock_health(client).await.ok()?.steps >= steps).then_some(())
    })
    .await
}

/// Waits until the coordinator has followed its `steps`-th step.
async fn wait_for_followed_step(client: &CoordinatorClient, steps: u64) -> Result<()> {
    wait_until("a step that is followed", async || {
        let clock = clock_health(client).await.ok()?;
        (clock.steps == steps && clock.last?.state == ClockStepState::Followed).then_some(())
    })
    .await
}

async fn start_coordinator(
    home: &tempfile::TempDir,
    place: StoreLocation,
    clock: Option<&SettableClock>,
) -> Result<CoordinatorProcess> {
    let env = clock.map(SettableClock::environment).unwrap_or_default();
    let env: Vec<(&str, &OsStr)> =
        env.iter().map(|(name, value)| (name.as_str(), OsStr::new(value))).collect();
    CoordinatorProcess::start_with(home.path(), place, LeaseDuration::Patient, &env).await
}

async fn start_worker(
    coordinator: &CoordinatorProcess,
    clock: Option<&SettableClock>,
    queue: &str,
) -> Result<WorkerProcess> {
    let env = clock.map(SettableClock::environment).unwrap_or_default();
    let options = WorkerOptions { slots: 3, queue: Some(queue.parse()?), env, ..WorkerOptions::default() };
    WorkerProcess::start(coordinator, &options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_a_day_ahead_for_seconds_stops_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let coordinator = start_coordinator(&home, StoreLocation::HomeFolder, Some(&clock)).await?;
    let worker = start_worker(&coordinator, Some(&clock), WORK).await?;
    let (client, specs) = (coordinator.client(), TaskSpecs::new(&coordinator).await?);
    let held = HeldRun::start_held_run(client, &worker, &specs, WORK).await?;
    ensure!(client.check_ready().await?.clock.is_none(), "no step yet");

    clock.set_ahead(A_DAY)?;
    wait_for_clock_steps(client, 1).await?;
    check_timed_tasks_proceed(client, &specs).await?;
    held.assert_still_leased(client).await?;
    clock.set_ahead(0)?;
    check_timed_tasks_proceed(client, &specs).await?;
    held.assert_still_leased(client).await?;
    wait_until("the step's end", async || {
        (clock_health(client).await.ok()?.last?.state != ClockStepState::Watched).then_some(())
    })
    .await?;
    let log = coordinator.log_tail();
    ensure!(log.contains("clock jumped 86") && log.contains("s ahead; the jump is followed if"), "{log}");
    let doctor = coordinator.run_docket(&["doctor"]).await?.stdout;
    ensure!(doctor.contains("the coordinator's clock was stepped"), "{doctor}");

    held.finish(&coordinator).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn future_timestamps_are_not_trusted_after_a_restart() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    clock.set_ahead(A_DAY)?;
    let home = tempfile::tempdir()?;
    let mut ahead = start_coordinator(&home, StoreLocation::HomeFolder, Some(&clock)).await?;
    let worker = start_worker(&ahead, None, WORK).await?;
    let specs = TaskSpecs::new(&ahead).await?;
    let lost = submit_task_with_lost_lease(ahead.client(), &specs).await?;
    // An hour from then, by a clock that was ahead.
    let backoff = Backoff { base_ms: 3_600_000, max_ms: 3_600_000 };
    let failing = TaskSpec { attempts_max: 2, backoff, ..specs.fails.clone() };
    let failing = submit_spec(ahead.client(), failing).await?;
    wait_for_state(ahead.client(), failing, TaskState::Retryable).await?;
    worker.drain().await?;
    send_signal(ahead.pid(), Signal::SIGTERM);
    ensure!(ahead.process().wait().await?.success(), "{}", ahead.log_tail());
    drop(ahead);

    clock.set_ahead(0)?;
    let right = start_coordinator(&home, StoreLocation::HomeFolder, Some(&clock)).await?;
    let worker = start_worker(&right, None, WORK).await?;
    let client = right.client();
    wait_for_state(client, lost, TaskState::Available).await?;
    wait_for_state(client, failing, TaskState::Discarded).await?;
    ensure!(client.get_task(failing).await?.task.runs == 2, "it was tried again");
    check_timed_tasks_proceed(client, &specs).await?;
    worker.drain().await?;
    right.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_back_an_hour_is_followed_without_losing_leases() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let coordinator = start_coordinator(&home, StoreLocation::HomeFolder, Some(&clock)).await?;
    let worker = start_worker(&coordinator, Some(&clock), WORK).await?;
    let (client, specs) = (coordinator.client(), TaskSpecs::new(&coordinator).await?);
    let held = HeldRun::start_held_run(client, &worker, &specs, WORK).await?;
    let before = client.get_task(held.task).await?.task.submitted_at;

    clock.set_ahead(-AN_HOUR)?;
    wait_for_followed_step(client, 1).await?;
    let back = submit_spec(client, specs.done.clone()).await?;
    let back = client.get_task(back).await?.task.submitted_at;
    ensure!(back < before && before.ms_since(back) > 3_500_000, "{back} is an hour before {before}");
    held.assert_still_leased(client).await?;
    check_timed_tasks_proceed(client, &specs).await?;
    clock.set_ahead(0)?;
    wait_for_followed_step(client, 2).await?;
    held.assert_still_leased(client).await?;
    check_timed_tasks_proceed(client, &specs).await?;

    held.finish(&coordinator).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Waits until a coordinator has the term.
async fn wait_for_leader(url: &str) -> Result<()> {
    let mut database = sqlx::PgConnection::connect(url).await?;
    wait_until("a leader", async || {
        let found = sqlx::query("SELECT 1 FROM terms WHERE name = 'maintenance'");
        found.fetch_optional(&mut database).await.ok()?.map(drop)
    })
    .await
}

/// Two coordinators with a worker each. The first one leads, on the machine whose clock is given.
struct TwoHosts {
    coordinators: [CoordinatorProcess; 2],
    workers: [WorkerProcess; 2],
    held: [HeldRun; 2],
    specs: TaskSpecs,
    _homes: [tempfile::TempDir; 2],
}

impl TwoHosts {
    async fn start(cluster: &PostgresCluster, clock: Option<&SettableClock>) -> Result<Self> {
        let place = fresh_database(cluster).await?;
        let homes = [tempfile::tempdir()?, tempfile::tempdir()?];
        let one = start_coordinator(&homes[0], place.clone(), clock).await?;
        if let StoreLocation::Postgres(url) = &place {
            wait_for_leader(url).await?;
        }
        let two = start_coordinator(&homes[1], place, None).await?;
        let workers = [start_worker(&one, clock, WORK).await?, start_worker(&two, None, OTHER_WORK).await?];
        let specs = TaskSpecs::new(&one).await?;
        let held = [
            HeldRun::start_held_run(one.client(), &workers[0], &specs, WORK).await?,
            HeldRun::start_held_run(two.client(), &workers[1], &specs, OTHER_WORK).await?,
        ];
        Ok(Self { coordinators: [one, two], workers, held, specs, _homes: homes })
    }

    async fn assert_runs_alive(&self) -> Result<()> {
        for (held, coordinator) in self.held.iter().zip(&self.coordinators) {
            held.assert_still_leased(coordinator.client()).await?;
        }
        Ok(())
    }

    async fn finish(self) -> Result<()> {
        let Self { coordinators: [one, two], workers, held, .. } = self;
        for held in held {
            held.finish(&one).await.with_context(|| format!("{}\n{}", one.log_tail(), two.log_tail()))?;
        }
        for worker in workers {
            worker.drain().await?;
        }
        drop(two);
        one.end_and_check().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_wrong_clock_ends_no_lease_of_a_shared_database() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let hosts = Box::pin(TwoHosts::start(&cluster, Some(&clock))).await?;
    let [wrong, right] = &hosts.coordinators;
    for ahead in [4, -AN_HOUR, A_DAY] {
        clock.set_ahead(ahead)?;
        check_timed_tasks_proceed(wrong.client(), &hosts.specs).await?;
        hosts.assert_runs_alive().await?;
    }
    clock.set_ahead(0)?;
    check_timed_tasks_proceed(right.client(), &hosts.specs).await?;
    hosts.assert_runs_alive().await?;
    ensure!(wrong.client().check_ready().await?.clock.is_none(), "the database's clock was never stepped");
    Box::pin(hosts.finish()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_follow_the_database_clock_without_ending_leases() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(clock) = SettableClock::new()? else { return Ok(()) };
    let options = ClusterOptions { environment: clock.environment(), ..ClusterOptions::default() };
    let Some(cluster) = PostgresCluster::start_private(options) else { return Ok(()) };
    let hosts = Box::pin(TwoHosts::start(&cluster, None)).await?;
    let [one, two] = &hosts.coordinators;
    clock.set_ahead(A_DAY)?;
    for coordinator in [one, two] {
        wait_for_followed_step(coordinator.client(), 1).await?;
        hosts.assert_runs_alive().await?;
    }
    // A lost lease is ended once every coordinator has followed.
    check_timed_tasks_proceed(two.client(), &hosts.specs).await?;
    hosts.assert_runs_alive().await?;
    Box::pin(hosts.finish()).await
}
