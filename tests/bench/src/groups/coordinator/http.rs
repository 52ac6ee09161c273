//! Appends over HTTP: the coordinator's own server on loopback, 32 connections with a run each, raw
//! commits of the same file system beside them. The clients share the machine's cores with it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use docket_coordinator::{clock::Clock, server::Running};
use docket_schema::wire::AppendResponse;
use tokio::task::JoinSet;

use crate::{
    groups::stores::appends::WRITERS,
    harness::{
        backlog::{self, Held},
        http_client::HttpConnection,
        raw_commits::RawCommits,
        stream,
    },
    report::{Effort, Report, Samples, rate},
};

/// Events of a larger request.
const EVENTS_A_REQUEST: usize = 8;
/// Requests of a lone writer that are timed one by one.
const ALONE: usize = 200;

/// A connection with a run of its own.
struct Writer {
    wire: HttpConnection,
    held: Held,
    path: String,
}

impl Writer {
    async fn new(running: &Running, held: Held) -> anyhow::Result<Self> {
        let token = running.handle().run_token(held.run, held.epoch);
        let wire = HttpConnection::connect(&running.local_addr().to_string(), &token).await?;
        Ok(Self { wire, held, path: format!("/v1/runs/{}/append", held.run) })
    }

    /// Appends `events`, the JSON list that [`events`] made beforehand.
    async fn append(&mut self, events: &str) -> anyhow::Result<()> {
        let Held { seq, epoch, .. } = self.held;
        let body = format!("{{\"expected_seq\":{seq},\"epoch\":{epoch},\"events\":{events}}}");
        let answer = self.wire.post(&self.path, body.as_bytes()).await?;
        self.held.seq = serde_json::from_slice::<AppendResponse>(answer)?.head.seq;
        Ok(())
    }
}

/// Events of a request, encoded once: the clients' share of the cores is no figure of docket's.
fn events(count: usize) -> anyhow::Result<String> {
    let events: Vec<_> = (0..count).map(|n| stream::one_result(n as u32)).collect();
    Ok(serde_json::to_string(&events)?)
}

/// Measures.
pub(crate) async fn measure(
    running: &Running,
    raw: &mut RawCommits,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (store, clock) = (running.handle().store(), Clock::new());
    let mut writers = Vec::new();
    for held in backlog::runs(&store, &clock, WRITERS).await? {
        writers.push(Writer::new(running, held).await?);
    }
    let mut alone = Samples::default();
    let one = writers.first_mut().context("no writer")?;
    let event = events(1)?;
    for _ in 0..ALONE {
        let started = Instant::now();
        one.append(&event).await?;
        alone.push_ms(started.elapsed());
    }
    report.set_percentile("append_http_alone_ms_p50", &alone, 50);
    let payload = stream::one_result(1).payload;
    let (mut raws, mut many, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    let mut large = Samples::default();
    for _ in 0..effort.rounds() {
        let slice = effort.slice();
        let base = raw.commits_per_s(payload.as_str(), slice).await?;
        let of_many = load(&mut writers, 1, slice).await?;
        let again = raw.commits_per_s(payload.as_str(), slice).await?;
        let base = f64::midpoint(base, again);
        raws.push(base);
        many.push(of_many);
        ratios.push(of_many / base);
        large.push(load(&mut writers, EVENTS_A_REQUEST, slice).await? * EVENTS_A_REQUEST as f64);
    }
    report.set_percentile("raw_commits_per_s_http", &raws, 50);
    report.set_percentile("appends_per_s_http", &many, 50);
    report.set_percentile("append_http_ratio", &ratios, 50);
    report.set_percentile("events_per_s_http_8_a_request", &large, 50);
    Ok(())
}

/// Requests per second of all writers.
async fn load(writers: &mut Vec<Writer>, count: usize, time: Duration) -> anyhow::Result<f64> {
    let events: Arc<str> = events(count)?.into();
    let started = Instant::now();
    let mut busy = JoinSet::new();
    for mut writer in writers.drain(..) {
        let events = Arc::clone(&events);
        busy.spawn(async move {
            let mut count = 0;
            while started.elapsed() < time {
                writer.append(&events).await?;
                count += 1;
            }
            anyhow::Ok((writer, count))
        });
    }
    let mut total = 0;
    while let Some(done) = busy.join_next().await {
        let (writer, count) = done.context("a writer ended early")??;
        writers.push(writer);
        total += count;
    }
    Ok(rate(total, started.elapsed()))
}
