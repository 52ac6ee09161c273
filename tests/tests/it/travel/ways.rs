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
    pg_cluster::Cluster,
    system::{
        Coordinator, LeaseTime, Place, Sample, Signal, Worker, WorkerOptions, fresh_database, room, seen,
        send, until,
    },
};
use docket_worker::{
    bootstrap::{FailWhen, FailWhom, Failpoint},
    model::{Provider, ScriptedModel},
};
use tokio::sync::OnceCell;

use super::journey::{
    FILES, GO, KILLED_AT, MIDDLE, TURNS, difference, files_after, files_in, script, tree_hash,
};

/// Epochs under which the successor stops for its files to be read: the lease may be lost once more on a
/// machine that stands still.
const EPOCHS: std::ops::RangeInclusive<u64> = 1..=5;

/// How the run goes on after the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Another worker takes the lease when it has expired.
    Itself,
    /// `docket resume RUN`: from the last turn that ended.
    ResumeLast,
    /// `docket resume RUN --turn N`.
    ResumeAt(u32),
    /// `docket fork RUN --turn N`: another task; the run itself goes on too.
    ForkAt(u32),
}

impl Way {
    /// The last turn whose files and conversation are kept.
    const fn kept(self) -> u32 {
        match self {
            Self::Itself | Self::ResumeLast => KILLED_AT - 1,
            Self::ResumeAt(turn) | Self::ForkAt(turn) => turn,
        }
    }

    /// Model calls that are made from there on. By itself, the call of the turn in hand was answered.
    const fn calls_after(self) -> u32 {
        match self {
            Self::Itself => TURNS - KILLED_AT,
            Self::ResumeLast | Self::ResumeAt(_) => TURNS - self.kept(),
            Self::ForkAt(turn) => TURNS - turn + Self::Itself.calls_after(),
        }
    }
}

/// The workspace in which `worker` does this run.
fn workspace_of(worker: &Worker, run: RunId) -> Option<PathBuf> {
    let name = run.to_string();
    let is_of = |folder: &PathBuf| {
        let parent = folder.parent().and_then(|parent| parent.file_name());
        parent.and_then(|parent| parent.to_str()).is_some_and(|parent| parent.starts_with(&name))
    };
    worker.workspaces().into_iter().find(is_of)
}

/// Lets the command in the middle of turn 15 on, where `worker` does this run.
async fn let_on(worker: &Worker, run: RunId) -> Result<()> {
    let at = seen("the command in its middle", || {
        workspace_of(worker, run).filter(|folder| folder.join(MIDDLE).is_dir())
    });
    std::fs::write(at.await.with_context(|| worker.tail())?.join(GO), "")?;
    Ok(())
}

async fn run_of(coordinator: &Coordinator, task: TaskId) -> Result<RunId> {
    let run = until("a run of the task", async || coordinator.client().task(task).await.ok()?.task.last_run);
    run.await.with_context(|| coordinator.tail())
}

async fn model() -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(script()?.as_bytes())?).await?)
}

async fn submit(coordinator: &Coordinator, server: &ModelServer, queue: &QueueName) -> Result<TaskId> {
    let sample = Sample::new(&FILES)?;
    let args = ["--model", "openai:travel", "--queue", "template"];
    let (template, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    coordinator.submit_like(&spec, queue, server.model(Provider::OpenAi, "travel")).await
}

/// The tree at the end of the run that nobody disturbed; played once per test process. What docket
/// recorded after each turn must be what the list of acts comes to.
pub(crate) async fn undisturbed() -> Result<TreeHash> {
    static TREE: OnceCell<TreeHash> = OnceCell::const_new();
    TREE.get_or_try_init(|| Box::pin(play())).await.copied()
}

async fn play() -> Result<TreeHash> {
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let server = model().await?;
    let queue: QueueName = "undisturbed".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
    let task = submit(&coordinator, &server, &queue).await?;
    let_on(&worker, run_of(&coordinator, task).await?).await?;
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let history = coordinator.history(view.task.last_run.context("a run")?).await?;
    ensure!(server.calls() == u64::from(TURNS), "{} calls", server.calls());
    let turns = FoldedRun::read(history.envelopes.clone())?;
    for n in 0..TURNS {
        let recorded = turns.state_after(Turn(n))?.tree;
        ensure!(
            recorded == Some(tree_hash(&files_after(n)?)?),
            "turn {n} has another tree: {}",
            history.kinds()
        );
    }
    worker.drain().await?;
    coordinator.end_and_check().await?;
    history.tree().context("a tree at the end")
}

/// Kills run process and supervisor while the command of turn 15 is in its middle. The supervisor is
/// stopped first, so that it cannot give the lease back.
async fn kill_in_the_middle(worker: &mut Worker) -> Result<()> {
    let middle = seen("the command in its middle", || {
        worker.workspaces().into_iter().find(|folder| folder.join(MIDDLE).is_dir())
    });
    let folder = middle.await.with_context(|| worker.tail())?;
    ensure!(!folder.join("log.txt").exists(), "the command has not changed what it changes first");
    send(worker.pid(), Signal::SIGSTOP);
    for run in worker.run_processes() {
        send(run, Signal::SIGKILL);
    }
    worker.process().kill().await
}

/// Who goes on, and where the successor's first append stands in its stream.
struct Onward {
    task: TaskId,
    run: RunId,
    seq: u64,
}

async fn take(way: Way, coordinator: &Coordinator, task: TaskId, run: RunId) -> Result<Onward> {
    let turn = match way {
        Way::Itself => {
            let head = coordinator.client().run(run).await?.head.seq.0;
            return Ok(Onward { task, run, seq: head + 1 });
        }
        Way::ResumeLast => None,
        Way::ResumeAt(turn) => Some(turn.to_string()),
        Way::ForkAt(turn) => return fork(coordinator, run, turn).await,
    };
    let id = run.to_string();
    let mut args = vec!["resume", &id];
    args.extend(turn.iter().flat_map(|turn| ["--turn", turn]));
    coordinator.docket(&args).await?.ok()?;
    let next = coordinator.client().task(task).await?.task.run.context("a run that goes on")?;
    ensure!(next != run, "a new run takes the place of the old one");
    let old = coordinator.client().run(run).await?.status;
    ensure!(old == "superseded", "the old run is {old}");
    // `Forked` is the first; what the successor says of its restored workspace is the second.
    Ok(Onward { task, run: next, seq: 2 })
}

async fn fork(coordinator: &Coordinator, run: RunId, turn: u32) -> Result<Onward> {
    let args = ["fork", &run.to_string(), "--turn", &turn.to_string(), "--json"].map(str::to_owned);
    let said: serde_json::Value = serde_json::from_str(&coordinator.docket(&args).await?.ok()?)?;
    let run: RunId = said["run"].as_str().context("the fork's run")?.parse()?;
    Ok(Onward { task: coordinator.client().run(run).await?.task, run, seq: 2 })
}

/// Plays one way on one store.
pub(crate) async fn travel(way: Way, cluster: Option<&Cluster>) -> Result<()> {
    let tree = undisturbed().await?;
    let _room = room().await;
    let place = match cluster {
        None => Place::Home,
        Some(cluster) => fresh_database(cluster).await?,
    };
    let coordinator = Coordinator::start(place, LeaseTime::Patient).await?;
    let server = model().await?;
    let queue: QueueName = "travel".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let mut first = Worker::start(&coordinator, &options).await?;
    let task = submit(&coordinator, &server, &queue).await?;
    kill_in_the_middle(&mut first).await?;
    let before = server.calls();
    ensure!(before == u64::from(KILLED_AT), "{before} calls up to turn {KILLED_AT}");
    let run = coordinator.client().task(task).await?.task.last_run.context("a run")?;

    let onward = take(way, &coordinator, task, run).await?;
    let stop = |epoch| Failpoint { seq: onward.seq, when: FailWhen::Before, epoch, whom: FailWhom::Sleeper };
    let options = WorkerOptions { slots: 2, failpoints: EPOCHS.map(stop).collect(), ..options };
    let second = Worker::start(&coordinator, &options).await?;
    let files = restored(&second, onward.run, way).await;
    files.with_context(|| format!("{}\n{}", second.tail(), coordinator.tail()))?;
    let_on(&second, onward.run).await?;
    if let Way::ForkAt(_) = way {
        // The run that was forked is not touched: it goes on by itself, to the same end.
        let_on(&second, run).await?;
        let view = coordinator.ended(task).await.with_context(|| second.tail())?;
        let history = coordinator.history(run).await?;
        ensure!(view.task.last_run == Some(run) && history.tree() == Some(tree), "{}", history.kinds());
    }

    let view = coordinator.ended(onward.task).await.with_context(|| second.tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    ensure!(view.task.last_run == Some(onward.run), "another run than the one that went on: {view:?}");
    let history = coordinator.history(onward.run).await?;
    ensure!(history.tree() == Some(tree), "another tree than undisturbed: {}", history.kinds());
    let kept = tree_hash(&files_after(way.kept())?)?;
    let recovered = history.events.iter().rev().filter_map(|event| match event {
        RunEvent::RunRecovered(recovered) => Some(recovered.tree),
        _ => None,
    });
    let recovered: Vec<TreeHash> = recovered.collect();
    ensure!(recovered.last() == Some(&kept), "restored to {recovered:?}: {}", history.kinds());
    ensure!(history.count("ModelAnswered") == TURNS as usize, "answers: {}", history.kinds());
    // Where the lease was lost beside the kill, for the machine stood still, a call may come again.
    let stalls = recovered.len() as u64 - 1;
    let (calls, wanted) = (server.calls(), before + u64::from(way.calls_after()));
    ensure!((wanted..=wanted + stalls).contains(&calls), "{calls} model calls, {wanted} wanted");
    ensure!(history.envelopes.iter().all(|event: &Envelope| event.turn.0 <= TURNS), "{}", history.kinds());
    history.verify(coordinator.client()).await?;
    second.drain().await?;
    coordinator.end_and_check().await
}

/// The successor has restored the workspace and not yet said so: its files are read from outside.
async fn restored(worker: &Worker, run: RunId, way: Way) -> Result<()> {
    let asleep = seen("a run process that has restored its files", || worker.sleeper()).await?;
    let folder = workspace_of(worker, run).context("a workspace")?;
    let (found, wanted) = (files_in(&folder)?, files_after(way.kept())?);
    ensure!(
        found == wanted,
        "{way:?}: other files than at turn {}:\n{}",
        way.kept(),
        difference(&found, &wanted)
    );
    send(asleep, Signal::SIGCONT);
    Ok(())
}
