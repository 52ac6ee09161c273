//! A worker that sleeps (SIGSTOP) until another has taken its run over, and then wakes (invariant 3);
//! and what may happen to a database in the middle of a run.

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, Signal, WorkerOptions, WorkerProcess, fresh_database, is_running,
        poll_until, print_notice, send_signal,
    },
};

use super::{
    reference_run::{
        check_history_without_message, completed_history, reference_run, sleep_point, start_model_server,
        submit_reference_task, submit_template,
    },
    scenario::new_place,
};

/// The append before which the first worker falls asleep: its results are in hand, not yet recorded.
const ASLEEP_AT: usize = 7;
/// The append before which the second worker waits for the first to wake.
const WAIT_AT: usize = 12;

/// When the sleeper wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeTime {
    /// While the other worker is in the middle of the run: its epoch is passed.
    InTheMiddle,
    /// When the run is over.
    AfterTheEnd,
}

fn sleeper_options(queue: &QueueName, seq: Option<(u64, u64)>) -> WorkerOptions {
    let failpoints = seq.map(|(seq, epoch)| sleep_point(seq, epoch)).into_iter().collect();
    WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() }
}

/// Supervisor and run process sleep beyond their lease; the run process wakes alone, so that nobody
/// kills it before it has tried to append; then the supervisor.
pub(crate) async fn check_sleeper_wakes(wakes: WakeTime, cluster: Option<&PostgresCluster>) -> Result<()> {
    let story = reference_run().await?;
    let start = |append: usize| *story.appends[append].seqs.start();
    let coordinator = CoordinatorProcess::start(new_place(cluster).await?, LeaseDuration::Short).await?;
    let spec = submit_template(&coordinator).await?;
    let server = start_model_server().await?;
    let queue: QueueName = "sleep".parse()?;
    let mut first =
        WorkerProcess::start(&coordinator, &sleeper_options(&queue, Some((start(ASLEEP_AT), 1)))).await?;
    let task = submit_reference_task(&coordinator, &spec, &queue, &server).await?;
    let asleep = poll_until("a run process that sleeps", || first.suspended_run())
        .await
        .with_context(|| first.log_tail())?;
    send_signal(first.pid(), Signal::SIGSTOP);

    let waits = (wakes == WakeTime::InTheMiddle).then(|| (start(WAIT_AT) + 1, 2));
    let second = WorkerProcess::start(&coordinator, &sleeper_options(&queue, waits)).await?;
    let waiting = match wakes {
        WakeTime::InTheMiddle => {
            let waiting = poll_until("the other worker in the middle", || second.suspended_run()).await;
            Some(waiting.with_context(|| format!("{}\n{}", second.log_tail(), coordinator.log_tail()))?)
        }
        WakeTime::AfterTheEnd => {
            coordinator.wait_until_ended(task).await?;
            None
        }
    };
    let run = coordinator.client().get_task(task).await?.task.last_run.context("a run")?;
    let before = coordinator.run_history(run).await?;

    send_signal(asleep, Signal::SIGCONT);
    poll_until("the end of the sleeper", || (!is_running(asleep)).then_some(())).await?;
    send_signal(first.pid(), Signal::SIGCONT);
    let log = "end=lease lost";
    let told =
        poll_until("the supervisor's word on it", || first.process().read_log().contains(log).then_some(()))
            .await;
    told.with_context(|| first.log_tail())?;
    let after = coordinator.run_history(run).await?;
    ensure!(before.envelopes == after.envelopes, "a sleeper wrote: {}", after.format_kinds());

    if let Some(waiting) = waiting {
        send_signal(waiting, Signal::SIGCONT);
    }
    let view = coordinator.wait_until_ended(task).await?;
    let history = completed_history(&coordinator, &view).await?;
    check_history_without_message(story, &coordinator, &history).await?;
    let taken_over = history.envelopes.iter().skip_while(|event| event.kind != "RunRecovered");
    ensure!(taken_over.clone().count() > 1, "{}", history.format_kinds());
    let epoch = view.task.epoch;
    ensure!(
        taken_over.clone().all(|event| event.epoch == epoch && epoch.0 > 1),
        "{}",
        history.format_kinds()
    );
    first.drain().await?;
    second.drain().await?;
    coordinator.end_and_check().await
}

/// The server is restarted as after a crash while results are in hand; the run goes on.
pub(crate) async fn check_database_restarts(cluster: &mut PostgresCluster) -> Result<()> {
    let story = reference_run().await?;
    let coordinator = CoordinatorProcess::start(fresh_database(cluster).await?, LeaseDuration::Usual).await?;
    let spec = submit_template(&coordinator).await?;
    let server = start_model_server().await?;
    let queue: QueueName = "restart".parse()?;
    let seq = *story.appends[ASLEEP_AT].seqs.start();
    let worker = WorkerProcess::start(&coordinator, &sleeper_options(&queue, Some((seq, 1)))).await?;
    let task = submit_reference_task(&coordinator, &spec, &queue, &server).await?;
    let asleep = poll_until("a run process that sleeps", || worker.suspended_run())
        .await
        .with_context(|| worker.log_tail())?;
    if !tokio::task::block_in_place(|| cluster.restart())? {
        print_notice("the server at DATABASE_URL is not ours to restart: the run goes on without that");
    }
    send_signal(asleep, Signal::SIGCONT);
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    let history = completed_history(&coordinator, &view).await?;
    check_history_without_message(story, &coordinator, &history).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}
