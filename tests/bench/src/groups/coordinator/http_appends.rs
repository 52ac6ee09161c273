//! Appends over HTTP: the coordinator's own server on loopback, 32 connections with a run each,
//! compared with raw commits on the same file system. The clients share the machine's cores with
//! it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use docket_coordinator::{clock::Clock, server::RunningServer};
use docket_schema::api::AppendResponse;
use tokio::task::JoinSet;

use crate::{
    groups::stores::appends::WRITERS,
    harness::{
        backlog::{self, LeasedRun},
        http_client::HttpConnection,
        raw_commits::RawCommits,
        synthetic_events,
    },
    report::{BenchReport, EffortLevel, Samples, rate_per_second},
};

/// Number of events in a larger request.
const EVENTS_PER_REQUEST: usize = 8;
/// Number of individually timed requests of a lone writer.
const LONE_REQUESTS: usize = 200;

/// A connection with its own run.
struct HttpWriter {
    connection: HttpConnection,
    run: LeasedRun,
    path: String,
}

impl HttpWriter {
    async fn new(running: &RunningServer, held: LeasedRun) -> anyhow::Result<Self> {
        let token = running.handle().run_token(held.run, held.epoch);
        let wire = HttpConnection::connect(&running.local_addr().to_string(), &token).await?;
        Ok(Self { connection: wire, run: held, path: format!("/v1/runs/{}/append", held.run) })
    }

    /// Appends `events`, a JSON list prepared by [`encode_events`].
    async fn append(&mut self, events: &str) -> anyhow::Result<()> {
        let LeasedRun { seq, epoch, .. } = self.run;
        let body = format!("{{\"expected_seq\":{seq},\"epoch\":{epoch},\"events\":{events}}}");
        let answer = self.connection.post(&self.path, body.as_bytes()).await?;
        self.run.seq = serde_json::from_slice::<AppendResponse>(answer)?.head.seq;
        Ok(())
    }
}

/// Encodes the events of a request in advance, so that the clients' work does not count.
fn encode_events(count: usize) -> anyhow::Result<String> {
    let events: Vec<_> = (0..count).map(|n| synthetic_events::tool_result_event(n as u32)).collect();
    Ok(serde_json::to_string(&events)?)
}

pub(crate) async fn measure(
    running: &RunningServer,
    raw: &mut RawCommits,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let (store, clock) = (running.handle().store(), Clock::new());
    let mut writers = Vec::new();
    for held in backlog::lease_new_runs(&store, &clock, WRITERS).await? {
        writers.push(HttpWriter::new(running, held).await?);
    }
    let mut alone = Samples::default();
    let one = writers.first_mut().context("no writer")?;
    let event = encode_events(1)?;
    for _ in 0..LONE_REQUESTS {
        let started = Instant::now();
        one.append(&event).await?;
        alone.push_ms(started.elapsed());
    }
    report.set_percentile("append_http_alone_ms_p50", &alone, 50);
    let payload = synthetic_events::tool_result_event(1).payload;
    let (mut raws, mut many, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    let mut large = Samples::default();
    for _ in 0..effort.rounds() {
        let slice = effort.round_slice();
        let base = raw.measure_commits_per_s(payload.as_str(), slice).await?;
        let of_many = append_load(&mut writers, 1, slice).await?;
        let again = raw.measure_commits_per_s(payload.as_str(), slice).await?;
        let base = f64::midpoint(base, again);
        raws.push(base);
        many.push(of_many);
        ratios.push(of_many / base);
        large.push(append_load(&mut writers, EVENTS_PER_REQUEST, slice).await? * EVENTS_PER_REQUEST as f64);
    }
    report.set_percentile("raw_commits_per_s_http", &raws, 50);
    report.set_percentile("appends_per_s_http", &many, 50);
    report.set_percentile("append_http_ratio", &ratios, 50);
    report.set_percentile("events_per_s_http_8_a_request", &large, 50);
    Ok(())
}

/// Returns requests per second of all writers.
async fn append_load(writers: &mut Vec<HttpWriter>, count: usize, time: Duration) -> anyhow::Result<f64> {
    let events: Arc<str> = encode_events(count)?.into();
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
    Ok(rate_per_second(total, started.elapsed()))
}
