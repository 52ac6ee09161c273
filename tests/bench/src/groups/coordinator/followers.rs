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
    ids::{Epoch, RunId},
    wire::{AppendResponse, Lease, SubmitRequest},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream::iter};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    harness::{
        backlog::{self, Hand},
        coordinator_process::CoordinatorProcess,
        docket_binary::Site,
        http_client::HttpConnection,
        places::in_schema,
        stream,
    },
    report::{Effort, Report, Samples},
};

/// Runs that are appended to.
const RUNS: usize = 100;
/// Followers of each.
const FOLLOWERS: usize = 10;
/// Between two appends of a run.
const EVERY: Duration = Duration::from_millis(500);
/// Followers that connect at once.
const CONNECTING: usize = 16;
/// By then a follower has what was appended, or never will.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Largest head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Where the figures of a store go.
struct Names {
    alone_ms: &'static str,
    ratio: &'static str,
    late_ratio: &'static str,
    events: &'static str,
    weight: &'static str,
}

const SQLITE: Names = Names {
    alone_ms: "followers_none_append_ms_p50",
    ratio: "followers_append_ratio",
    late_ratio: "followers_append_p95_ratio",
    events: "followers_events",
    weight: "followers_kb_each",
};

const POSTGRES: Names = Names {
    alone_ms: "followers_none_append_ms_p50_postgres",
    ratio: "followers_append_ratio_postgres",
    late_ratio: "followers_append_p95_ratio_postgres",
    events: "followers_events_postgres",
    weight: "followers_kb_each_postgres",
};

pub(crate) async fn at_sqlite(site: &Site, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    measure(site, None, &SQLITE, effort, report).await
}

pub(crate) async fn at_postgres(
    site: &Site,
    url: &str,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    in_schema(url, async |url| measure(site, Some(&url), &POSTGRES, effort, report).await).await
}

async fn measure(
    site: &Site,
    store: Option<&str>,
    names: &Names,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    // Of descriptors this process needs as many as the coordinator, and is no coordinator.
    docket_coordinator::server::raise_descriptors();
    let server = CoordinatorProcess::start(site, store).await?;
    let measured = Box::pin(at(&server, names, effort, report)).await;
    let told = measured.with_context(|| format!("the coordinator said: {}", server.last_words()));
    server.end().await?;
    told
}

async fn at(
    server: &CoordinatorProcess,
    names: &Names,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut writers = writers(server).await?;
    let slice = effort.live_slice();
    // What a coordinator takes when it is first used is not its followers'.
    load(&mut writers, slice).await?;
    let (mut alone, mut ratios, mut late_ratios) =
        (Samples::default(), Samples::default(), Samples::default());
    let (mut weight, mut events) = (f64::NAN, 0);
    let mut before = load(&mut writers, slice).await?;
    for _ in 0..effort.rounds() {
        let resident = server.resident_kb()?;
        let mut followers = Followers::connect(server, &writers).await?;
        let with = load(&mut writers, slice).await?;
        events += followers.caught_up(&writers).await?;
        weight = weight.max((server.resident_kb()? - resident) / (RUNS * FOLLOWERS) as f64);
        followers.leave().await;
        let after = load(&mut writers, slice).await?;
        let of = |samples: &Samples, percent| samples.percentile(percent).context("no appends");
        for (percent, ratios) in [(50, &mut ratios), (95, &mut late_ratios)] {
            let base = f64::midpoint(of(&before, percent)?, of(&after, percent)?);
            ratios.push(of(&with, percent)? / base);
        }
        alone.push(of(&after, 50)?);
        before = after;
    }
    report.set_percentile(names.alone_ms, &alone, 50);
    report.set_percentile(names.ratio, &ratios, 50);
    report.set_percentile(names.late_ratio, &late_ratios, 50);
    report.set(names.events, events as f64);
    report.set(names.weight, weight);
    Ok(())
}

/// A run and its connection.
struct Writer {
    wire: HttpConnection,
    run: RunId,
    epoch: Epoch,
    seq: u64,
    path: String,
}

/// Runs that are leased over HTTP, as a worker does it.
async fn writers(server: &CoordinatorProcess) -> anyhow::Result<Vec<Writer>> {
    let client = server.client()?;
    let (base, bytes) = stream::empty_base();
    client.put_blob(base.manifest, bytes.into()).await.context("the coordinator does not take a blob")?;
    let request = SubmitRequest { tasks: vec![backlog::task(backlog::no_model()); RUNS], ids: None };
    client.submit(&request).await.context("the submit failed")?;
    let request = Hand::new().request(u32::try_from(RUNS)?, 0);
    let leases = client.lease(&request).await.context("the lease request failed")?.leases;
    ensure!(leases.len() == RUNS, "{} of {RUNS} tasks were leased", leases.len());
    let mut writers = Vec::new();
    for Lease { run, epoch, token, head, .. } in leases {
        let wire = HttpConnection::connect(server.address(), &token).await?;
        writers.push(Writer { wire, run, epoch, seq: head.seq.0, path: format!("/v1/runs/{run}/append") });
    }
    Ok(writers)
}

/// Appends at all runs, each at its own time, for `time`; how long each append took.
async fn load(writers: &mut Vec<Writer>, time: Duration) -> anyhow::Result<Samples> {
    let events: Arc<str> = serde_json::to_string(&[stream::one_result(1)])?.into();
    let begin = tokio::time::Instant::now() + LOOK;
    let mut busy = JoinSet::new();
    for (nth, mut writer) in (0_u32..).zip(writers.drain(..)) {
        let events = Arc::clone(&events);
        busy.spawn(async move {
            let mut took = Vec::new();
            let mut next = begin + EVERY * nth / RUNS as u32;
            while next < begin + time {
                tokio::time::sleep_until(next).await;
                let sent = Instant::now();
                writer.append(&events).await?;
                took.push(sent.elapsed());
                next += EVERY;
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

impl Writer {
    async fn append(&mut self, events: &str) -> anyhow::Result<()> {
        let Self { seq, epoch, .. } = *self;
        let body = format!("{{\"expected_seq\":{seq},\"epoch\":{epoch},\"events\":{events}}}");
        let answer = self.wire.post(&self.path, body.as_bytes()).await?;
        self.seq = serde_json::from_slice::<AppendResponse>(answer)?.head.seq.0;
        Ok(())
    }
}

/// All followers, each a task that listens.
struct Followers {
    tasks: JoinSet<anyhow::Result<()>>,
    seen: Vec<(RunId, u64, Arc<AtomicU64>)>,
}

impl Followers {
    /// Connects them all; each is answered before this is.
    async fn connect(server: &CoordinatorProcess, writers: &[Writer]) -> anyhow::Result<Self> {
        let (mut tasks, mut seen) = (JoinSet::new(), Vec::new());
        let all = writers.iter().flat_map(|writer| std::iter::repeat_n((writer.run, writer.seq), FOLLOWERS));
        let mut connected =
            iter(all.map(|(run, after)| Follower::connect(server, run, after))).buffer_unordered(CONNECTING);
        while let Some(follower) = connected.try_next().await? {
            seen.push((follower.run, follower.last, Arc::clone(&follower.seen)));
            tasks.spawn(follower.listen());
        }
        Ok(Self { tasks, seen })
    }

    /// Waits until each has all that was appended to its run; how many events that were.
    async fn caught_up(&mut self, writers: &[Writer]) -> anyhow::Result<u64> {
        let until = Instant::now() + CAUGHT_UP_WITHIN;
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
            ensure!(Instant::now() < until, "{lacks} followers lack events after {CAUGHT_UP_WITHIN:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn leave(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The lightest reader of server-sent events: it counts ids.
struct Follower {
    run: RunId,
    stream: TcpStream,
    buffer: Vec<u8>,
    last: u64,
    seen: Arc<AtomicU64>,
}

impl Follower {
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
    async fn listen(mut self) -> anyhow::Result<()> {
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
