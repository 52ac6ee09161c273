//! Tasks that do nothing, through the API: one worker leases them in large batches and ends each run
//! separately, because a run's end is its own append under its own token. Coordinator and worker share this
//! process and its time.

use anyhow::{Context as _, ensure};
use docket_coordinator::clock::Clock;
use docket_schema::api::SubmitRequest;
use docket_worker::{client::CoordinatorClient, secret::Secret};
use futures_util::{StreamExt as _, TryStreamExt as _, stream::iter};
use std::time::Instant;

use crate::{
    harness::{
        backlog::{self, BenchWorker},
        bench_folder::ServedCoordinator,
        raw_commits::RawCommits,
        synthetic_events::{self, empty_base},
    },
    report::{BenchReport, EffortLevel, rate_per_second},
};

/// Tasks per submit.
const TASKS_PER_SUBMIT: usize = 1000;
/// Leases per request; the worker holds two requests' worth.
const LEASES_PER_REQUEST: u32 = 250;
/// Number of concurrent ends, with one connection each.
const ENDS_IN_FLIGHT: usize = 32;

pub(crate) async fn measure(
    served: &ServedCoordinator,
    raw: &mut RawCommits,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let token = Secret::new(&served.token).context("the token is empty")?;
    let client = CoordinatorClient::new(&served.running.url(), token)?;
    let store = served.running.handle().store();
    backlog::put_blob(&store, &Clock::new(), empty_base().1).await?;
    let (count, spec) = (effort.drained_tasks(), backlog::idle_task(backlog::unused_model()));
    for submitted in (0..count).step_by(TASKS_PER_SUBMIT) {
        let tasks = vec![spec.clone(); TASKS_PER_SUBMIT.min(count - submitted)];
        let request = SubmitRequest { tasks, ids: None };
        client.submit(&request).await.context("the submit failed")?;
    }
    let payload = synthetic_events::tool_result_event(1).payload;
    let before = raw.measure_commits_per_s(payload.as_str(), effort.round_slice()).await?;
    let started = Instant::now();
    let (one, two) = (lease_and_end_all(&client), lease_and_end_all(&client));
    let (one, two) = tokio::try_join!(one, two)?;
    let drained = rate_per_second((one + two) as u64, started.elapsed());
    ensure!(one + two == count, "{} of {count} tasks were finished", one + two);
    let base =
        f64::midpoint(before, raw.measure_commits_per_s(payload.as_str(), effort.round_slice()).await?);
    report.set("drain_http_tasks_per_s", drained);
    report.set("drain_http_ratio", drained / base);
    Ok(())
}

/// Leases and ends tasks until none is left.
async fn lease_and_end_all(client: &CoordinatorClient) -> anyhow::Result<usize> {
    let (mut hand, mut done) = (BenchWorker::new(), 0);
    loop {
        let leases = client
            .lease(&hand.next_lease_request(LEASES_PER_REQUEST, 0))
            .await
            .context("the lease request failed")?
            .leases;
        if leases.is_empty() {
            return Ok(done);
        }
        done += leases.len();
        iter(leases.iter().map(|lease| backlog::end_lease(client, lease)))
            .buffer_unordered(ENDS_IN_FLIGHT / 2)
            .try_for_each(|()| async { Ok(()) })
            .await?;
    }
}
