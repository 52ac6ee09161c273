//! Tasks that do nothing, through the API: one worker leases them in large batches and ends each run by itself, for a
//! run's end is an append of its own under its own token. Coordinator and worker share this process, and so its time.

use anyhow::{Context as _, ensure};
use docket_coordinator::clock::Clock;
use docket_schema::wire::SubmitRequest;
use docket_worker::{client::Client, secret::Secret};
use futures_util::{StreamExt as _, TryStreamExt as _, stream::iter};
use std::time::Instant;

use crate::{
    harness::{
        backlog::{self, Hand},
        places::Served,
        raw_commits::RawCommits,
        stream::{self, empty_base},
    },
    report::{Effort, Report, rate},
};

/// Tasks of a submit.
const BULK: usize = 1000;
/// Leases of a request, of which two are in hand.
const BATCH: u32 = 250;
/// Ends under way: a connection each.
const UNDER_WAY: usize = 32;

/// Measures.
pub(crate) async fn measure(
    served: &Served,
    raw: &mut RawCommits,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let token = Secret::new(&served.token).context("the token is empty")?;
    let client = Client::new(&served.running.url(), token)?;
    let store = served.running.handle().store();
    backlog::put_blob(&store, &Clock::new(), empty_base().1).await?;
    let (count, spec) = (effort.drained(), backlog::task(backlog::no_model()));
    for submitted in (0..count).step_by(BULK) {
        let tasks = vec![spec.clone(); BULK.min(count - submitted)];
        let request = SubmitRequest { tasks, ids: None };
        client.submit(&request).await.context("the submit failed")?;
    }
    let payload = stream::one_result(1).payload;
    let before = raw.commits_per_s(payload.as_str(), effort.slice()).await?;
    let started = Instant::now();
    let (one, two) = (work(&client), work(&client));
    let (one, two) = tokio::try_join!(one, two)?;
    let drained = rate((one + two) as u64, started.elapsed());
    ensure!(one + two == count, "{} of {count} tasks were finished", one + two);
    let base = f64::midpoint(before, raw.commits_per_s(payload.as_str(), effort.slice()).await?);
    report.set("drain_http_tasks_per_s", drained);
    report.set("drain_http_ratio", drained / base);
    Ok(())
}

/// Leases and ends until nothing is left.
async fn work(client: &Client) -> anyhow::Result<usize> {
    let (mut hand, mut done) = (Hand::new(), 0);
    loop {
        let leases = client.lease(&hand.request(BATCH, 0)).await.context("the lease request failed")?.leases;
        if leases.is_empty() {
            return Ok(done);
        }
        done += leases.len();
        iter(leases.iter().map(|lease| backlog::end_lease(client, lease)))
            .buffer_unordered(UNDER_WAY / 2)
            .try_for_each(|()| async { Ok(()) })
            .await?;
    }
}
