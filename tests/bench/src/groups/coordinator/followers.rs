//! A hundred live runs with ten followers each: the effect on appends, and the memory per follower.
//!
//! The coordinator is a separate process; appenders and followers share this process, on loopback, over real
//! HTTP, with one connection each. All clients therefore run on the coordinator's cores, unlike in any
//! deployment, so the cost of followers is overstated, if anything.
//!
//! Each run appends twice a second, one event at a time, at its own offset within the half second. A turn of
//! a run is two appends and takes a model some seconds, so this is several times the load of a hundred real
//! runs. At the maximum rate, the followers' clients alone would take the cores away from the appenders, and
//! the figure would measure them. The compared value is the time from an append's request to its response, in
//! alternating slices: without followers, with, without. Each follower must receive each event, once and in
//! order, or there is no figure.
//!
//! The memory of a follower is the coordinator's resident memory at the end of a slice with followers, minus
//! that just before they connected, divided by their number. It includes docket's socket buffers and the
//! run's shared events, but not the kernel's buffers. The highest of all rounds counts: that is the first
//! one, because later rounds reuse memory that the first one freed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use docket_schema::{
    api::{AppendResponse, Lease, SubmitRequest},
    ids::{Epoch, RunId},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream::iter};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    harness::{
        backlog::{self, BenchWorker},
        bench_folder::with_schema,
        coordinator_process::CoordinatorProcess,
        docket_binary::GroupSite,
        http_client::HttpConnection,
        synthetic_events,
    },
    report::{BenchReport, EffortLevel, Samples},
};

/// Number of runs that are appended to.
const RUNS: usize = 100;
/// Followers per run.
const FOLLOWERS: usize = 10;
/// Interval between two appends of a run.
const APPEND_INTERVAL: Duration = Duration::from_millis(500);
/// Number of followers that connect concurrently.
const CONCURRENT_CONNECTS: usize = 16;
/// Time after which a follower counts as having missed events.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum size of a response head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Names of the figures of a store.
struct FollowerFigures {
    without_followers_ms: &'static str,
    ratio: &'static str,
    late_ratio: &'static str,
    events: &'static str,
    follower_kb: &'static str,
}

const SQLITE: FollowerFigures = FollowerFigures {
    without_followers_ms: "followers_none_append_ms_p50",
    ratio: "followers_append_ratio",
    late_ratio: "followers_append_p95_ratio",
    events: "followers_events",
    follower_kb: "followers_kb_each",
};

const POSTGRES: FollowerFigures = FollowerFigures {
    without_followers_ms: "followers_none_append_ms_p50_postgres",
    ratio: "followers_append_ratio_postgres",
    late_ratio: "followers_append_p95_ratio_postgres",
    events: "followers_events_postgres",
    follower_kb: "followers_kb_each_postgres",
};

pub(crate) async fn measure_sqlite(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    measure_store(site, None, &SQLITE, effort, report).await
}

pub(crate) async fn measure_postgres(
    site: &GroupSite,
    url: &str,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    with_schema(url, async |url| measure_store(site, Some(&url), &POSTGRES, effort, report).await).await
}

async fn measure_store(
    site: &GroupSite,
    store: Option<&str>,
    names: &FollowerFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    // This process needs as many descriptors as the coordinator, without being one.
    docket_coordinator::server::raise_descriptors();
    let server = CoordinatorProcess::start(site, store).await?;
    let measured = Box::pin(measure_at(&server, names, effort, report)).await;
    let told = measured.with_context(|| format!("the coordinator said: {}", server.log_tail()));
    server.shut_down().await?;
    told
}

async fn measure_at(
    server: &CoordinatorProcess,
    names: &FollowerFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let mut writers = lease_runs(server).await?;
    let slice = effort.live_slice();
    // Memory that a coordinator allocates on first use does not count for its followers.
    append_to_all(&mut writers, slice).await?;
    let (mut alone, mut ratios, mut late_ratios) =
        (Samples::default(), Samples::default(), Samples::default());
    let (mut weight, mut events) = (f64::NAN, 0);
    let mut before = append_to_all(&mut writers, slice).await?;
    for _ in 0..effort.rounds() {
        let resident = server.resident_kb()?;
        let mut followers = FollowerSet::connect(server, &writers).await?;
        let with = append_to_all(&mut writers, slice).await?;
        events += followers.wait_until_caught_up(&writers).await?;
        weight = weight.max((server.resident_kb()? - resident) / (RUNS * FOLLOWERS) as f64);
        followers.disconnect().await;
        let after = append_to_all(&mut writers, slice).await?;
        let of = |samples: &Samples, percent| samples.percentile(percent).context("no appends");
        for (percent, ratios) in [(50, &mut ratios), (95, &mut late_ratios)] {
            let base = f64::midpoint(of(&before, percent)?, of(&after, percent)?);
            ratios.push(of(&with, percent)? / base);
        }
        alone.push(of(&after, 50)?);
        before = after;
    }
    report.set_percentile(names.without_followers_ms, &alone, 50);
    report.set_percentile(names.ratio, &ratios, 50);
    report.set_percentile(names.late_ratio, &late_ratios, 50);
    report.set(names.events, events as f64);
    report.set(names.follower_kb, weight);
    Ok(())
}

/// A run and its connection.
struct FollowedRun {
    connection: HttpConnection,
    run: RunId,
    epoch: Epoch,
    seq: u64,
    path: String,
}

/// Leases runs over HTTP, as a worker does.
async fn lease_runs(server: &CoordinatorProcess) -> anyhow::Result<Vec<FollowedRun>> {
    let client = server.client()?;
    let (base, bytes) = synthetic_events::empty_base();
    client.put_blob(base.manifest, bytes.into()).await.context("the coordinator does not take a blob")?;
    let request = SubmitRequest { tasks: vec![backlog::idle_task(backlog::unused_model()); RUNS], ids: None };
    client.submit(&request).await.context("the submit failed")?;
    let request = BenchWorker::new().next_lease_request(u32::try_from(RUNS)?, 0);
    let leases = client.lease(&request).await.context("the lease request failed")?.leases;
    ensure!(leases.len() == RUNS, "{} of {RUNS} tasks were leased", leases.len());
    let mut writers = Vec::new();
    for Lease { run, epoch, token, head, .. } in leases {
        let wire = HttpConnection::connect(server.address(), &token).await?;
        writers.push(FollowedRun {
            connection: wire,
            run,
            epoch,
            seq: head.seq.0,
            path: format!("/v1/runs/{run}/append"),
        });
    }
    Ok(writers)
}

/// Appends to all runs for `time`, each at its own offset; returns the duration of each append.
async fn append_to_all(writers: &mut Vec<FollowedRun>, time: Duration) -> anyhow::Result<Samples> {
    let events: Arc<str> = serde_json::to_string(&[synthetic_events::tool_result_event(1)])?.into();
    let begin = tokio::time::Instant::now() + POLL_INTERVAL;
    let mut busy = JoinSet::new();
    for (nth, mut writer) in (0_u32..).zip(writers.drain(..)) {
        let events = Arc::clone(&events);
        busy.spawn(async move {
            let mut took = Vec::new();
            let mut next = begin + APPEND_INTERVAL * nth / RUNS as u32;
            while next < begin + time {
                tokio::time::sleep_until(next).await;
                let sent = Instant::now();
                writer.append(&events).await?;
                took.push(sent.elapsed());
                next += APPEND_INTERVAL;
            }
            anyhow::Ok((writer, took))
        });
    }
    let mut samples = Samples::default();
    while let Some(done) = busy.join_next().await {
        let (writer, took) = done.context("a writer ended early")??;
        writers.push(writer);
        took.into_iter().for_each(|took| samples.push_ms(took));
    }
    Ok(samples)
}

impl FollowedRun {
    async fn append(&mut self, events: &str) -> anyhow::Result<()> {
        let Self { seq, epoch, .. } = *self;
        let body = format!("{{\"expected_seq\":{seq},\"epoch\":{epoch},\"events\":{events}}}");
        let answer = self.connection.post(&self.path, body.as_bytes()).await?;
        self.seq = serde_json::from_slice::<AppendResponse>(answer)?.head.seq.0;
        Ok(())
    }
}

/// All followers, each a listening background task.
struct FollowerSet {
    tasks: JoinSet<anyhow::Result<()>>,
    seen: Vec<(RunId, u64, Arc<AtomicU64>)>,
}

impl FollowerSet {
    /// Connects all followers and returns once each has a response.
    async fn connect(server: &CoordinatorProcess, writers: &[FollowedRun]) -> anyhow::Result<Self> {
        let (mut tasks, mut seen) = (JoinSet::new(), Vec::new());
        let all = writers.iter().flat_map(|writer| std::iter::repeat_n((writer.run, writer.seq), FOLLOWERS));
        let mut connected = iter(all.map(|(run, after)| EventFollower::connect(server, run, after)))
            .buffer_unordered(CONCURRENT_CONNECTS);
        while let Some(follower) = connected.try_next().await? {
            seen.push((follower.run, follower.last, Arc::clone(&follower.seen)));
            tasks.spawn(follower.count_events());
        }
        Ok(Self { tasks, seen })
    }

    /// Waits until each has all events appended to its run; returns the number of events.
    async fn wait_until_caught_up(&mut self, writers: &[FollowedRun]) -> anyhow::Result<u64> {
        let until = Instant::now() + CATCH_UP_TIMEOUT;
        loop {
            if let Some(ended) = self.tasks.try_join_next() {
                ended.context("a follower disconnected")??;
                bail!("a follower ended");
            }
            let head = |run| writers.iter().find(|writer| writer.run == run).map(|writer| writer.seq);
            let lacks =
                self.seen.iter().filter(|(run, _, seen)| Some(seen.load(Ordering::Acquire)) != head(*run));
            let lacks = lacks.count();
            if lacks == 0 {
                return Ok(self.seen.iter().map(|(_, from, seen)| seen.load(Ordering::Acquire) - from).sum());
            }
            ensure!(Instant::now() < until, "{lacks} followers lack events after {CATCH_UP_TIMEOUT:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn disconnect(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A minimal reader of server-sent events: it counts ids.
struct EventFollower {
    run: RunId,
    stream: TcpStream,
    buffer: Vec<u8>,
    last: u64,
    seen: Arc<AtomicU64>,
}

impl EventFollower {
    async fn connect(server: &CoordinatorProcess, run: RunId, after: u64) -> anyhow::Result<Self> {
        let (address, token) = (server.address(), server.token().expose());
        let mut stream = TcpStream::connect(address).await.context("the coordinator cannot be reached")?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET /v1/runs/{run}/follow?after={after} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::with_capacity(4096);
        let body = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(buffer.len() < HEAD_BYTES_MAX, "the head of the answer is too long");
            ensure!(stream.read_buf(&mut buffer).await? > 0, "the coordinator closed the connection");
        };
        ensure!(buffer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&buffer[..body]));
        buffer.drain(..body);
        Ok(Self { run, stream, buffer, last: after, seen: Arc::new(AtomicU64::new(after)) })
    }

    /// Runs until the connection ends, which is an error.
    async fn count_events(mut self) -> anyhow::Result<()> {
        loop {
            let mut begin = 0;
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[begin..]) {
                let line = &self.buffer[begin..begin + length];
                if let Some(seq) = line.strip_prefix(b"id: ") {
                    let seq: u64 = std::str::from_utf8(seq)?.parse().context("an id is not a seq")?;
                    ensure!(seq == self.last + 1, "run {}: {seq} came behind {}", self.run, self.last);
                    self.last = seq;
                    self.seen.store(seq, Ordering::Release);
                }
                begin += length + 1;
            }
            self.buffer.drain(..begin);
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the stream of {} was cut", self.run);
        }
    }
}
