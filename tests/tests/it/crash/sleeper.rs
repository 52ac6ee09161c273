//! A worker that sleeps (SIGSTOP) until another has taken its run over, and then wakes (invariant 3);
//! and what may happen to a database in the middle of a run.

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_tests::{
    pg_cluster::Cluster,
    system::{
        Coordinator, LeaseTime, Signal, Worker, WorkerOptions, fresh_database, is_there, say, seen, send,
    },
};

use super::{
    scenario::place,
    story::{check_silent, completed, model, sleeper, story, submit, template},
};

/// The append before which the first worker falls asleep: its results are in hand, not yet recorded.
const ASLEEP_AT: usize = 7;
/// The append before which the second worker waits for the first to wake.
const WAIT_AT: usize = 12;

/// When the sleeper wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// While the other worker is in the middle of the run: its epoch is passed.
    InTheMiddle,
    /// When the run is over.
    AfterTheEnd,
}

fn options(queue: &QueueName, seq: Option<(u64, u64)>) -> WorkerOptions {
    let failpoints = seq.map(|(seq, epoch)| sleeper(seq, epoch)).into_iter().collect();
    WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() }
}

/// Supervisor and run process sleep beyond their lease; the run process wakes alone, so that nobody
/// kills it before it has tried to append; then the supervisor.
pub(crate) async fn sleeper_wakes(wakes: Wakes, cluster: Option<&Cluster>) -> Result<()> {
    let story = story().await?;
    let start = |append: usize| *story.appends[append].seqs.start();
    let coordinator = Coordinator::start(place(cluster).await?, LeaseTime::Short).await?;
    let spec = template(&coordinator).await?;
    let server = model().await?;
    let queue: QueueName = "sleep".parse()?;
    let mut first = Worker::start(&coordinator, &options(&queue, Some((start(ASLEEP_AT), 1)))).await?;
    let task = submit(&coordinator, &spec, &queue, &server).await?;
    let asleep = seen("a run process that sleeps", || first.sleeper()).await.with_context(|| first.tail())?;
    send(first.pid(), Signal::SIGSTOP);

    let waits = (wakes == Wakes::InTheMiddle).then(|| (start(WAIT_AT) + 1, 2));
    let second = Worker::start(&coordinator, &options(&queue, waits)).await?;
    let waiting = match wakes {
        Wakes::InTheMiddle => {
            let waiting = seen("the other worker in the middle", || second.sleeper()).await;
            Some(waiting.with_context(|| format!("{}\n{}", second.tail(), coordinator.tail()))?)
        }
        Wakes::AfterTheEnd => {
            coordinator.ended(task).await?;
            None
        }
    };
    let run = coordinator.client().task(task).await?.task.last_run.context("a run")?;
    let before = coordinator.history(run).await?;

    send(asleep, Signal::SIGCONT);
    seen("the end of the sleeper", || (!is_there(asleep)).then_some(())).await?;
    send(first.pid(), Signal::SIGCONT);
    let log = "end=lease lost";
    let told =
        seen("the supervisor's word on it", || first.process().log().contains(log).then_some(())).await;
    told.with_context(|| first.tail())?;
    let after = coordinator.history(run).await?;
    ensure!(before.envelopes == after.envelopes, "a sleeper wrote: {}", after.kinds());

    if let Some(waiting) = waiting {
        send(waiting, Signal::SIGCONT);
    }
    let view = coordinator.ended(task).await?;
    let history = completed(&coordinator, &view).await?;
    check_silent(story, &coordinator, &history).await?;
    let taken_over = history.envelopes.iter().skip_while(|event| event.kind != "RunRecovered");
    ensure!(taken_over.clone().count() > 1, "{}", history.kinds());
    let epoch = view.task.epoch;
    ensure!(taken_over.clone().all(|event| event.epoch == epoch && epoch.0 > 1), "{}", history.kinds());
    first.drain().await?;
    second.drain().await?;
    coordinator.end_and_check().await
}

/// The server is restarted as after a crash while results are in hand; the run goes on.
pub(crate) async fn database_restarts(cluster: &mut Cluster) -> Result<()> {
    let story = story().await?;
    let coordinator = Coordinator::start(fresh_database(cluster).await?, LeaseTime::Usual).await?;
    let spec = template(&coordinator).await?;
    let server = model().await?;
    let queue: QueueName = "restart".parse()?;
    let seq = *story.appends[ASLEEP_AT].seqs.start();
    let worker = Worker::start(&coordinator, &options(&queue, Some((seq, 1)))).await?;
    let task = submit(&coordinator, &spec, &queue, &server).await?;
    let asleep =
        seen("a run process that sleeps", || worker.sleeper()).await.with_context(|| worker.tail())?;
    if !tokio::task::block_in_place(|| cluster.restart())? {
        say("the server at DATABASE_URL is not ours to restart: the run goes on without that");
    }
    send(asleep, Signal::SIGCONT);
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    let history = completed(&coordinator, &view).await?;
    check_silent(story, &coordinator, &history).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}
