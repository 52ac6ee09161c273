//! The kill, the ways back, and what must hold on each.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::Envelope,
    history::FoldedRun,
    ids::{QueueName, RunId, TaskId, TreeHash, Turn},
    run::RunEvent,
    task::TaskState,
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, fresh_database, poll_until, send_signal, wait_until,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};
use tokio::sync::OnceCell;

use super::journey::{
    FILES, GO, KILLED_AT, MIDDLE, TURNS, describe_difference, files_after, files_in, journey_script,
    tree_hash,
};

/// Epochs under which the successor stops for its files to be read: the lease may be lost once more on a
/// machine that stands still.
const EPOCHS: std::ops::RangeInclusive<u64> = 1..=5;

/// How the run goes on after the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryPath {
    /// Another worker takes the lease when it has expired.
    Itself,
    /// `docket resume RUN`: from the last turn that ended.
    ResumeLast,
    /// `docket resume RUN --turn N`.
    ResumeAt(u32),
    /// `docket fork RUN --turn N`: another task; the run itself goes on too.
    ForkAt(u32),
}

impl RecoveryPath {
    /// The last turn whose files and conversation are kept.
    const fn last_kept_turn(self) -> u32 {
        match self {
            Self::Itself | Self::ResumeLast => KILLED_AT - 1,
            Self::ResumeAt(turn) | Self::ForkAt(turn) => turn,
        }
    }

    /// Model calls that are made from there on. By itself, the call of the turn in hand was answered.
    const fn calls_after(self) -> u32 {
        match self {
            Self::Itself => TURNS - KILLED_AT,
            Self::ResumeLast | Self::ResumeAt(_) => TURNS - self.last_kept_turn(),
            Self::ForkAt(turn) => TURNS - turn + Self::Itself.calls_after(),
        }
    }
}

/// The workspace in which `worker` does this run.
fn run_workspace(worker: &WorkerProcess, run: RunId) -> Option<PathBuf> {
    let name = run.to_string();
    let is_of = |folder: &PathBuf| {
        let parent = folder.parent().and_then(|parent| parent.file_name());
        parent.and_then(|parent| parent.to_str()).is_some_and(|parent| parent.starts_with(&name))
    };
    worker.workspaces().into_iter().find(is_of)
}

/// Lets the command in the middle of turn 15 on, where `worker` does this run.
async fn release_command(worker: &WorkerProcess, run: RunId) -> Result<()> {
    let at = poll_until("the command in its middle", || {
        run_workspace(worker, run).filter(|folder| folder.join(MIDDLE).is_dir())
    });
    std::fs::write(at.await.with_context(|| worker.log_tail())?.join(GO), "")?;
    Ok(())
}

async fn task_run(coordinator: &CoordinatorProcess, task: TaskId) -> Result<RunId> {
    let run = wait_until("a run of the task", async || {
        coordinator.client().get_task(task).await.ok()?.task.last_run
    });
    run.await.with_context(|| coordinator.log_tail())
}

async fn start_model_server() -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(journey_script()?.as_bytes())?).await?)
}

async fn submit_journey(
    coordinator: &CoordinatorProcess,
    server: &ModelServer,
    queue: &QueueName,
) -> Result<TaskId> {
    let sample = SampleRepository::new(&FILES)?;
    let args = ["--model", "openai:travel", "--queue", "template"];
    let (template, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    coordinator.submit_like(&spec, queue, server.model_ref(ModelProvider::OpenAi, "travel")).await
}

/// The tree at the end of the run that nobody disturbed; played once per test process. What docket
/// recorded after each turn must be what the list of acts comes to.
pub(crate) async fn undisturbed_tree() -> Result<TreeHash> {
    static TREE: OnceCell<TreeHash> = OnceCell::const_new();
    TREE.get_or_try_init(|| Box::pin(play_undisturbed())).await.copied()
}

async fn play_undisturbed() -> Result<TreeHash> {
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = start_model_server().await?;
    let queue: QueueName = "undisturbed".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task = submit_journey(&coordinator, &server, &queue).await?;
    release_command(&worker, task_run(&coordinator, task).await?).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    ensure!(server.call_count() == u64::from(TURNS), "{} calls", server.call_count());
    let turns = FoldedRun::from_events(history.envelopes.clone())?;
    for n in 0..TURNS {
        let recorded = turns.state_after(Turn(n))?.tree;
        ensure!(
            recorded == Some(tree_hash(&files_after(n)?)?),
            "turn {n} has another tree: {}",
            history.format_kinds()
        );
    }
    worker.drain().await?;
    coordinator.end_and_check().await?;
    history.final_tree().context("a tree at the end")
}

/// Kills run process and supervisor while the command of turn 15 is in its middle. The supervisor is
/// stopped first, so that it cannot give the lease back.
async fn kill_mid_command(worker: &mut WorkerProcess) -> Result<()> {
    let middle = poll_until("the command in its middle", || {
        worker.workspaces().into_iter().find(|folder| folder.join(MIDDLE).is_dir())
    });
    let folder = middle.await.with_context(|| worker.log_tail())?;
    ensure!(!folder.join("log.txt").exists(), "the command has not changed what it changes first");
    send_signal(worker.pid(), Signal::SIGSTOP);
    for run in worker.run_processes() {
        send_signal(run, Signal::SIGKILL);
    }
    worker.process().kill().await
}

/// Who goes on, and where the successor's first append stands in its stream.
struct Continuation {
    task: TaskId,
    run: RunId,
    seq: u64,
}

async fn continue_run(
    way: RecoveryPath,
    coordinator: &CoordinatorProcess,
    task: TaskId,
    run: RunId,
) -> Result<Continuation> {
    let turn = match way {
        RecoveryPath::Itself => {
            let head = coordinator.client().get_run(run).await?.head.seq.0;
            return Ok(Continuation { task, run, seq: head + 1 });
        }
        RecoveryPath::ResumeLast => None,
        RecoveryPath::ResumeAt(turn) => Some(turn.to_string()),
        RecoveryPath::ForkAt(turn) => return fork_run(coordinator, run, turn).await,
    };
    let id = run.to_string();
    let mut args = vec!["resume", &id];
    args.extend(turn.iter().flat_map(|turn| ["--turn", turn]));
    coordinator.run_docket(&args).await?.into_stdout()?;
    let next = coordinator.client().get_task(task).await?.task.run.context("a run that goes on")?;
    ensure!(next != run, "a new run takes the place of the old one");
    let old = coordinator.client().get_run(run).await?.status;
    ensure!(old == "superseded", "the old run is {old}");
    // `Forked` is the first; what the successor says of its restored workspace is the second.
    Ok(Continuation { task, run: next, seq: 2 })
}

async fn fork_run(coordinator: &CoordinatorProcess, run: RunId, turn: u32) -> Result<Continuation> {
    let args = ["fork", &run.to_string(), "--turn", &turn.to_string(), "--json"].map(str::to_owned);
    let said: serde_json::Value = serde_json::from_str(&coordinator.run_docket(&args).await?.into_stdout()?)?;
    let run: RunId = said["run"].as_str().context("the fork's run")?.parse()?;
    Ok(Continuation { task: coordinator.client().get_run(run).await?.task, run, seq: 2 })
}

/// Plays one way on one store.
pub(crate) async fn check_recovery(way: RecoveryPath, cluster: Option<&PostgresCluster>) -> Result<()> {
    let tree = undisturbed_tree().await?;
    let _room = acquire_scenario_slot().await;
    let place = match cluster {
        None => StoreLocation::HomeFolder,
        Some(cluster) => fresh_database(cluster).await?,
    };
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Patient).await?;
    let server = start_model_server().await?;
    let queue: QueueName = "travel".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let mut first = WorkerProcess::start(&coordinator, &options).await?;
    let task = submit_journey(&coordinator, &server, &queue).await?;
    kill_mid_command(&mut first).await?;
    let before = server.call_count();
    ensure!(before == u64::from(KILLED_AT), "{before} calls up to turn {KILLED_AT}");
    let run = coordinator.client().get_task(task).await?.task.last_run.context("a run")?;

    let onward = continue_run(way, &coordinator, task, run).await?;
    let stop = |epoch| Failpoint {
        seq: onward.seq,
        when: FailpointTiming::Before,
        epoch,
        whom: FailpointTarget::Sleeper,
    };
    let options = WorkerOptions { slots: 2, failpoints: EPOCHS.map(stop).collect(), ..options };
    let second = WorkerProcess::start(&coordinator, &options).await?;
    let files = check_restored_files(&second, onward.run, way).await;
    files.with_context(|| format!("{}\n{}", second.log_tail(), coordinator.log_tail()))?;
    release_command(&second, onward.run).await?;
    if let RecoveryPath::ForkAt(_) = way {
        // The run that was forked is not touched: it goes on by itself, to the same end.
        release_command(&second, run).await?;
        let view = coordinator.wait_until_ended(task).await.with_context(|| second.log_tail())?;
        let history = coordinator.run_history(run).await?;
        ensure!(
            view.task.last_run == Some(run) && history.final_tree() == Some(tree),
            "{}",
            history.format_kinds()
        );
    }

    let view = coordinator.wait_until_ended(onward.task).await.with_context(|| second.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    ensure!(view.task.last_run == Some(onward.run), "another run than the one that went on: {view:?}");
    let history = coordinator.run_history(onward.run).await?;
    ensure!(history.final_tree() == Some(tree), "another tree than undisturbed: {}", history.format_kinds());
    let kept = tree_hash(&files_after(way.last_kept_turn())?)?;
    let recovered = history.events.iter().rev().filter_map(|event| match event {
        RunEvent::RunRecovered(recovered) => Some(recovered.tree),
        _ => None,
    });
    let recovered: Vec<TreeHash> = recovered.collect();
    ensure!(recovered.last() == Some(&kept), "restored to {recovered:?}: {}", history.format_kinds());
    ensure!(history.count_kind("ModelAnswered") == TURNS as usize, "answers: {}", history.format_kinds());
    // Where the lease was lost beside the kill, for the machine stood still, a call may come again.
    let stalls = recovered.len() as u64 - 1;
    let (calls, wanted) = (server.call_count(), before + u64::from(way.calls_after()));
    ensure!((wanted..=wanted + stalls).contains(&calls), "{calls} model calls, {wanted} wanted");
    ensure!(
        history.envelopes.iter().all(|event: &Envelope| event.turn.0 <= TURNS),
        "{}",
        history.format_kinds()
    );
    history.verify(coordinator.client()).await?;
    second.drain().await?;
    coordinator.end_and_check().await
}

/// The successor has restored the workspace and not yet said so: its files are read from outside.
async fn check_restored_files(worker: &WorkerProcess, run: RunId, way: RecoveryPath) -> Result<()> {
    let asleep = poll_until("a run process that has restored its files", || worker.suspended_run()).await?;
    let folder = run_workspace(worker, run).context("a workspace")?;
    let (found, wanted) = (files_in(&folder)?, files_after(way.last_kept_turn())?);
    ensure!(
        found == wanted,
        "{way:?}: other files than at turn {}:\n{}",
        way.last_kept_turn(),
        describe_difference(&found, &wanted)
    );
    send_signal(asleep, Signal::SIGCONT);
    Ok(())
}
