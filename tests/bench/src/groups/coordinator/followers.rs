//! A hundred live runs, each followed by ten: what that does to those who append, and what a follower weighs.
//!
//! The coordinator is a process of its own; appenders and followers are this one, on loopback, over real HTTP, each with
//! a connection. So all clients' work is done on the same cores as the coordinator's, which no deployment has: what the
//! followers cost is overstated, if anything.
//!
//! Each run appends twice a second, one event at a time, at its own place in the half second. A turn of a run is two
//! appends and takes a model some seconds: this is several times what a hundred runs at work do. At the highest rate
//! there is, the followers' clients alone would take the cores away from the appenders, and the figure would be theirs.
//! What is compared is the time from an append's request to its answer, in slices that take turns: without followers,
//! with, without. Each follower must get each event, once and in order, or there is no figure.
//!
//! What a follower weighs is the coordinator's resident memory at the end of a slice with followers, less what it was
//! just before they came, by their number: sockets' buffers of docket's and the run's shared events are in it, the
//! kernel's are not. Of the rounds the one with the highest counts: it is the first, for later ones find memory that the
//! first let go.

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

/// Runs that are appended to.
const RUNS: usize = 100;
/// Followers of each.
const FOLLOWERS: usize = 10;
/// Between two appends of a run.
const APPEND_INTERVAL: Duration = Duration::from_millis(500);
/// Followers that connect at once.
const CONCURRENT_CONNECTS: usize = 16;
/// By then a follower has what was appended, or never will.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Largest head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Where the figures of a store go.
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
    // Of descriptors this process needs as many as the coordinator, and is no coordinator.
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
    // What a coordinator takes when it is first used is not its followers'.
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

/// Runs that are leased over HTTP, as a worker does it.
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

/// Appends at all runs, each at its own time, for `time`; how long each append took.
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

/// All followers, each a task that listens.
struct FollowerSet {
    tasks: JoinSet<anyhow::Result<()>>,
    seen: Vec<(RunId, u64, Arc<AtomicU64>)>,
}

impl FollowerSet {
    /// Connects them all; each is answered before this is.
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

    /// Waits until each has all that was appended to its run; how many events that were.
    async fn wait_until_caught_up(&mut self, writers: &[FollowedRun]) -> anyhow::Result<u64> {
        let until = Instant::now() + CATCH_UP_TIMEOUT;
        loop {
            if let Some(ended) = self.tasks.try_join_next() {
                ended.context("a follower broke off")??;
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

/// The lightest reader of server-sent events: it counts ids.
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

    /// Until the connection ends, which is an error.
    async fn count_events(mut self) -> anyhow::Result<()> {
        loop {
            let mut begin = 0;
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[begin..]) {
                let line = &self.buffer[begin..begin + length];
                if let Some(seq) = line.strip_prefix(b"id: ") {
                    let seq: u64 = std::str::from_utf8(seq)?.parse().context("an id is no seq")?;
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
