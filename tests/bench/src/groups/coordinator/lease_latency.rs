//! How long a task waits for a worker that is waiting for it: submitted over HTTP by one client,
//! leased by another's long poll, on an otherwise idle queue.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use docket_coordinator::clock::Clock;
use docket_schema::api::{Lease, LeaseRequest, SubmitRequest};
use docket_worker::{client::CoordinatorClient, secret::Secret};
use tokio::sync::mpsc;

use crate::{
    harness::{
        backlog::{self, BenchWorker},
        bench_folder::ServedCoordinator,
        synthetic_events::empty_base,
    },
    report::{BenchReport, EffortLevel, Samples},
};

/// Duration of the long poll.
const WAIT_MS: u64 = 20_000;
/// Time for the waiting request to arrive before the next submit.
const SETTLE_TIME: Duration = Duration::from_millis(3);
/// The first few samples warm up connections and caches and are discarded.
const WARM_UP_SAMPLES: usize = 5;

/// Names of the figures.
pub(crate) struct LatencyFigures {
    p50: &'static str,
    p99: &'static str,
    from_sent: &'static str,
    acknowledged: &'static str,
}

/// On SQLite.
pub(crate) const SQLITE: LatencyFigures = LatencyFigures {
    p50: "submit_to_start_ms_p50",
    p99: "submit_to_start_ms_p99",
    from_sent: "submit_sent_to_start_ms_p50",
    acknowledged: "submit_acknowledged_ms_p50",
};

/// On PostgreSQL.
pub(crate) const POSTGRES: LatencyFigures = LatencyFigures {
    p50: "submit_to_start_ms_p50_postgres",
    p99: "submit_to_start_ms_p99_postgres",
    from_sent: "submit_sent_to_start_ms_p50_postgres",
    acknowledged: "submit_acknowledged_ms_p50_postgres",
};

pub(crate) async fn measure(
    served: &ServedCoordinator,
    names: &LatencyFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    backlog::put_blob(&served.running.handle().store(), &clock, empty_base().1).await?;
    let secret = || Secret::new(&served.token).context("the token is empty");
    let submitter = CoordinatorClient::new(&served.running.url(), secret()?)?;
    let worker = CoordinatorClient::new(&served.running.url(), secret()?)?;
    let (hand_over, mut asked) = mpsc::channel::<LeaseRequest>(1);
    let (answer, mut answered) = mpsc::channel::<anyhow::Result<(Instant, Lease)>>(1);
    let waiting = tokio::spawn(async move {
        while let Some(request) = asked.recv().await {
            let leased = worker.lease(&request).await;
            let at = Instant::now();
            let leased = leased.context("the lease request failed").and_then(|response| {
                let lease =
                    response.leases.into_iter().next().context("the long poll ended without a lease")?;
                Ok((at, lease))
            });
            if answer.send(leased).await.is_err() {
                break;
            }
        }
    });
    let mut hand = BenchWorker::new();
    let (mut start, mut from_sent, mut submits) =
        (Samples::default(), Samples::default(), Samples::default());
    let spec = backlog::idle_task(backlog::unused_model());
    for sample in 0..effort.latency_samples() + WARM_UP_SAMPLES {
        hand_over.send(hand.next_lease_request(1, WAIT_MS)).await.context("the waiting worker ended")?;
        tokio::time::sleep(SETTLE_TIME).await;
        let sent = Instant::now();
        let request = SubmitRequest { tasks: vec![spec.clone()], ids: None };
        let submitted = submitter.submit(&request).await.context("the submit failed")?;
        let acknowledged = Instant::now();
        let (leased, lease) = answered.recv().await.context("the waiting worker ended")??;
        ensure!(Some(lease.task) == submitted.tasks.first().map(|task| task.id), "another task was leased");
        if sample >= WARM_UP_SAMPLES {
            // The lease may arrive before the submitter's response; then the wait was zero.
            start.push_ms(leased.saturating_duration_since(acknowledged));
            from_sent.push_ms(leased.duration_since(sent));
            submits.push_ms(acknowledged.duration_since(sent));
        }
        backlog::end_lease(&submitter, &lease).await?;
    }
    drop(hand_over);
    waiting.await.context("the waiting worker ended early")?;
    report.set_percentile(names.p50, &start, 50);
    report.set_percentile(names.p99, &start, 99);
    report.set_percentile(names.from_sent, &from_sent, 50);
    report.set_percentile(names.acknowledged, &submits, 50);
    Ok(())
}
