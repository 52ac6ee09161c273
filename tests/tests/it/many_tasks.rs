//! A hundred short tasks, four workers, and kills all the while, of run processes, a supervisor and the
//! coordinator; one run is told something. Each task is done once, and of the log nothing is lost.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{SubmitRequest, TaskQuery},
    event::TypedEvent as _,
    ids::{Seq, StreamId, TaskId},
    task::{TaskEvent, TaskSpec, TaskState},
};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WAIT_MAX, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, fresh_database, print_notice, send_signal,
    },
};

const TASKS: usize = 100;
const WORKERS: usize = 4;
const SLOTS: u32 = 2;

/// One run process is killed for so many tasks that are done.
const TASKS_A_KILL: usize = 4;
/// When this many are done, a supervisor is killed with all it has.
const SUPERVISOR_DIES_AT: usize = 50;
/// When this many are done, the coordinator is, and started again.
const COORDINATOR_DIES_AT: usize = 25;
/// When this many are done, a run that is under way is told something.
const TOLD_AT: usize = 10;

/// What the kills are drawn from: with the same seed the same draws.
const SEED: u64 = 0x0d0c_4e70_5eed_0001;

const SCRIPT: &str = r#"
after_end = "repeat_last"

[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "docs/new.md", content = "new\n" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo once >> log.txt && cat docs/new.md >> log.txt" }

[[turns]]
text = "Done."
"#;

/// Draws of a xorshift generator: enough to choose victims.
struct RandomDraws(u64);

impl RandomDraws {
    fn next_below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below.max(1) as u64).expect("below a usize")
    }
}

async fn submit_tasks(coordinator: &CoordinatorProcess) -> Result<Vec<TaskId>> {
    let sample = SampleRepository::new(&[("notes.txt", "first\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("a UTF-8 path")?;
    let args = ["--model", "scripted:many", "--script", script, "--queue", "template"];
    let (template, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let task = |n: usize| TaskSpec {
        title: format!("Task {n}"),
        queue: "many".parse().expect("a queue's name"),
        // Kills fall where the draws say; a task that is hit often is no poison here.
        crashes_max: 1000,
        ..spec.clone()
    };
    let tasks = (0..TASKS).map(task).collect();
    let answer = coordinator.client().submit(&SubmitRequest { tasks, ids: None }).await?;
    Ok(answer.tasks.into_iter().map(|task| task.id).collect())
}

/// Tells a run that is under way something; whether one could be told.
async fn tell_running_task(coordinator: &CoordinatorProcess) -> Result<bool> {
    let query = TaskQuery { state: Some(TaskState::Running.into()), ..TaskQuery::default() };
    for task in coordinator.client().list_tasks(&query).await?.tasks {
        let Some(run) = task.run else { continue };
        // One that ended meanwhile takes no words.
        if coordinator.client().send_message(run, "Mind the margins.").await.is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets the workers work, and kills by the draws, until every task has ended. Gives the kills of run processes.
async fn work_off_with_kills(
    coordinator: &mut CoordinatorProcess,
    workers: &mut [WorkerProcess],
) -> Result<usize> {
    let options = WorkerOptions { slots: SLOTS, ..WorkerOptions::default() };
    let deadline = tokio::time::Instant::now() + WAIT_MAX + WAIT_MAX;
    let (mut draws, mut kills, mut supervisor_died) = (RandomDraws(SEED), 0, false);
    let (mut coordinator_died, mut words) = (false, false);
    loop {
        ensure!(
            tokio::time::Instant::now() < deadline,
            "the backlog is not worked off: {}",
            workers[0].log_tail()
        );
        let status = coordinator.client().get_status().await?;
        let ended: u64 = status.tasks.iter().filter(|row| row.state.is_ended()).map(|row| row.count).sum();
        // The template was cancelled, and counts.
        let done = usize::try_from(ended)?.saturating_sub(1);
        if done == TASKS {
            ensure!(words && coordinator_died && supervisor_died, "it was over too soon");
            return Ok(kills);
        }
        if done >= TOLD_AT && !words {
            words = tell_running_task(coordinator).await?;
        }
        if done >= COORDINATOR_DIES_AT && !coordinator_died {
            coordinator_died = true;
            coordinator.process().kill().await?;
            coordinator.restart().await?;
        }
        if kills * TASKS_A_KILL <= done {
            let mut victims: Vec<i32> = workers.iter().flat_map(WorkerProcess::run_processes).collect();
            victims.sort_unstable();
            if !victims.is_empty() {
                send_signal(victims[draws.next_below(victims.len())], Signal::SIGKILL);
                kills += 1;
            }
        }
        if done >= SUPERVISOR_DIES_AT && !supervisor_died {
            supervisor_died = true;
            let victim = draws.next_below(workers.len());
            workers[victim].process().kill().await?;
            workers[victim] = WorkerProcess::start(coordinator, &options).await?;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Each task completed by one run, with the tree that all have, and nothing in its log twice.
async fn check_each_done_once(coordinator: &CoordinatorProcess, tasks: &[TaskId]) -> Result<u64> {
    let (mut trees, mut crashes, mut told) = (BTreeSet::new(), 0, 0);
    for id in tasks {
        let view = coordinator.client().get_task(*id).await?;
        ensure!(view.task.state == TaskState::Completed && view.runs.len() == 1, "{:?}", view.task);
        let own = coordinator.client().list_stream_events(&StreamId::Task(*id), Seq(0), None).await?;
        ensure!(!own.more, "more events than a page holds");
        let mut completed = 0;
        for (at, event) in own.events.iter().enumerate() {
            ensure!(event.seq.0 == at as u64 + 1, "a gap in the stream of {id}: {event:?}");
            match TaskEvent::decode(&event.kind, event.version, event.payload.as_str())? {
                TaskEvent::TaskCompleted(_) => completed += 1,
                TaskEvent::TaskRunCrashed(_) => crashes += 1,
                _ => {}
            }
        }
        ensure!(completed == 1, "task {id} was completed {completed} times");
        let history = coordinator.run_history(view.runs[0].id).await?;
        let once = ["RunStarted", "RunEnded"].iter().all(|kind| history.count_kind(kind) == 1);
        // Words that come with the last answer are answered by another.
        let answers = 3..=3 + history.count_kind("Told");
        ensure!(once && answers.contains(&history.count_kind("ModelAnswered")), "{}", history.format_kinds());
        told += history.count_kind("Told");
        trees.insert(history.final_tree().context("a tree at the end")?);
    }
    ensure!(told == 1, "words that were said once stand in the log {told} times");
    ensure!(trees.len() == 1, "tasks that are the same ended in {} trees", trees.len());
    Ok(crashes)
}

async fn check_many_tasks(place: StoreLocation) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let mut coordinator = CoordinatorProcess::start(place, LeaseDuration::Short).await?;
    let tasks = submit_tasks(&coordinator).await?;
    let options = WorkerOptions { slots: SLOTS, ..WorkerOptions::default() };
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(WorkerProcess::start(&coordinator, &options).await?);
    }
    let kills = work_off_with_kills(&mut coordinator, &mut workers).await?;
    let crashes = check_each_done_once(&coordinator, &tasks).await?;
    print_notice(&format!("{TASKS} tasks, {kills} kills, {crashes} of them in the middle of a run"));
    ensure!(crashes > 0, "no kill hit a run");
    for worker in workers {
        worker.drain().await?;
    }
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_tasks_are_each_done_once_on_sqlite() -> Result<()> {
    Box::pin(check_many_tasks(StoreLocation::HomeFolder)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_tasks_are_each_done_once_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_many_tasks(fresh_database(&cluster).await?)).await
}
