//! Appends to a store, alternating with raw commits: 32 runs with a writer each, one serial run, one
//! run with 32 concurrent appends, one run with 16 events per append.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use docket_coordinator::{
    clock::Clock,
    store::{AppendCondition, AppendError, AppendOutcome, LogAppend, Store, StoreFuture},
};
use docket_schema::{
    event::NewEvent,
    ids::{Seq, StreamId},
};
use tokio::task::JoinSet;

use crate::{
    harness::{
        backlog::{self, LeasedRun},
        raw_commits::RawCommits,
        synthetic_events,
    },
    report::{BenchReport, EffortLevel, Samples, rate_per_second},
};

/// Number of writers, and of concurrent appends to one run.
pub(crate) const WRITERS: usize = 32;
/// Number of concurrent runs with which the peers were measured.
const PEER_RUNS: usize = 50;
/// Events of a larger append, as in a turn with many calls.
const EVENTS_PER_APPEND: usize = 16;
/// Number of individually timed appends of a lone writer.
const LONE_APPENDS: usize = 200;

/// Names of the figures of a store.
pub(crate) struct AppendFigures {
    pub(crate) raw: &'static str,
    pub(crate) many: &'static str,
    pub(crate) ratio: &'static str,
    pub(crate) alone_ms: &'static str,
    pub(crate) serial_ratio: &'static str,
    pub(crate) serial: &'static str,
    pub(crate) in_flight: &'static str,
    pub(crate) large: &'static str,
    pub(crate) fifty: &'static str,
    pub(crate) fifty_ratio: &'static str,
}

pub(crate) const SQLITE: AppendFigures = AppendFigures {
    raw: "raw_commits_per_s_sqlite",
    many: "appends_per_s_sqlite",
    ratio: "append_ratio_sqlite",
    alone_ms: "append_alone_ms_p50_sqlite",
    serial_ratio: "appends_one_run_serial_ratio",
    serial: "appends_one_run_serial_per_s",
    in_flight: "appends_one_run_32_in_flight_per_s",
    large: "events_one_run_16_an_append_per_s",
    fifty: "steps_50_runs_per_s",
    fifty_ratio: "steps_50_runs_ratio",
};

pub(crate) const POSTGRES: AppendFigures = AppendFigures {
    raw: "raw_commits_per_s_postgres",
    many: "appends_per_s_postgres",
    ratio: "append_ratio_postgres",
    alone_ms: "append_alone_ms_p50_postgres",
    serial_ratio: "appends_one_run_serial_ratio_postgres",
    serial: "appends_one_run_serial_per_s_postgres",
    in_flight: "appends_one_run_32_in_flight_per_s_postgres",
    large: "events_one_run_16_an_append_per_s_postgres",
    fifty: "steps_50_runs_per_s_postgres",
    fifty_ratio: "steps_50_runs_ratio_postgres",
};

/// Measures `store` against `raw`.
pub(crate) async fn measure(
    store: &Arc<dyn Store>,
    raw: &mut RawCommits,
    names: &AppendFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::new());
    let mut writers = backlog::lease_new_runs(store, &clock, WRITERS).await?;
    let mut fifty = backlog::lease_new_runs(store, &clock, PEER_RUNS).await?;
    let mut one = backlog::lease_new_runs(store, &clock, 1).await?.pop().context("no run")?;
    let payload = synthetic_events::tool_result_event(1).payload;
    let mut alone = Samples::default();
    let (mut raws, mut many, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    let (mut steps, mut step_ratios) = (Samples::default(), Samples::default());
    let (mut serial, mut serial_ratios) = (Samples::default(), Samples::default());
    let (mut in_flight, mut large) = (Samples::default(), Samples::default());
    for round in 0..effort.rounds() {
        let slice = effort.round_slice();
        let base = raw.measure_commits_per_s(payload.as_str(), slice).await?;
        let of_many = time_many_runs(store, &clock, &mut writers, slice).await?;
        let of_fifty = time_many_runs(store, &clock, &mut fifty, slice).await?;
        let of_one = time_one_run(store, &clock, &mut one, 1, slice).await?;
        let again = raw.measure_commits_per_s(payload.as_str(), slice).await?;
        let base = f64::midpoint(base, again);
        raws.push(base);
        many.push(of_many);
        ratios.push(of_many / base);
        steps.push(of_fifty);
        step_ratios.push(of_fifty / base);
        serial.push(of_one);
        serial_ratios.push(of_one / base);
        in_flight.push(time_pipelined(store, &clock, &mut one, slice).await?);
        let appends = time_one_run(store, &clock, &mut one, EVENTS_PER_APPEND, slice).await?;
        large.push(appends * EVENTS_PER_APPEND as f64);
        if round == 0 {
            time_lone_appends(store, &clock, &mut one, &mut alone).await?;
        }
    }
    report.set_percentile(names.raw, &raws, 50);
    report.set_percentile(names.many, &many, 50);
    report.set_percentile(names.ratio, &ratios, 50);
    report.set_percentile(names.alone_ms, &alone, 50);
    report.set_percentile(names.serial, &serial, 50);
    report.set_percentile(names.serial_ratio, &serial_ratios, 50);
    report.set_percentile(names.in_flight, &in_flight, 50);
    report.set_percentile(names.large, &large, 50);
    report.set_percentile(names.fifty, &steps, 50);
    report.set_percentile(names.fifty_ratio, &step_ratios, 50);
    Ok(())
}

fn build_append(held: &LeasedRun, seq: Seq, events: Vec<NewEvent>, clock: &Clock) -> LogAppend {
    LogAppend {
        stream: StreamId::Run(held.run),
        condition: AppendCondition::LeaseHolder(seq, held.epoch),
        events,
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: clock.now(),
    }
}

/// Appends `events`, prepared in advance like the row of the raw commits, so that only the store is
/// measured.
pub(crate) async fn append_next(
    store: &dyn Store,
    clock: &Clock,
    held: &mut LeasedRun,
    events: &[NewEvent],
) -> anyhow::Result<()> {
    let events = events.to_vec();
    let done =
        store.append(build_append(held, held.seq, events, clock)).await.context("an append was refused")?;
    held.seq = done.head.seq;
    Ok(())
}

/// One run, one append after the other; returns appends per second.
async fn time_one_run(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut LeasedRun,
    events: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let events = result_events(events);
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        append_next(store.as_ref(), clock, held, &events).await?;
        count += 1;
    }
    Ok(rate_per_second(count, started.elapsed()))
}

pub(crate) fn result_events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| synthetic_events::tool_result_event(n as u32)).collect()
}

async fn time_lone_appends(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut LeasedRun,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let events = result_events(1);
    for _ in 0..LONE_APPENDS {
        let started = Instant::now();
        append_next(store.as_ref(), clock, held, &events).await?;
        samples.push_ms(started.elapsed());
    }
    Ok(())
}

/// One writer per run; returns appends per second of all.
pub(crate) async fn time_many_runs(
    store: &Arc<dyn Store>,
    clock: &Arc<Clock>,
    runs: &mut [LeasedRun],
    time: Duration,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut writers = JoinSet::new();
    for (at, held) in runs.iter().enumerate() {
        let (store, clock, mut held) = (Arc::clone(store), Arc::clone(clock), *held);
        writers.spawn(async move {
            let (events, mut count) = (result_events(1), 0);
            while started.elapsed() < time {
                append_next(store.as_ref(), &clock, &mut held, &events).await?;
                count += 1;
            }
            anyhow::Ok((at, held, count))
        });
    }
    let mut total = 0;
    while let Some(done) = writers.join_next().await {
        let (at, held, count) = done.context("a writer ended early")??;
        runs[at] = held;
        total += count;
    }
    Ok(rate_per_second(total, started.elapsed()))
}

/// One run with [`WRITERS`] concurrent appends; returns appends per second.
async fn time_pipelined(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut LeasedRun,
    time: Duration,
) -> anyhow::Result<f64> {
    let event = synthetic_events::tool_result_event(1);
    let started = Instant::now();
    let mut under_way: VecDeque<StoreFuture<'_, Result<AppendOutcome, AppendError>>> = VecDeque::new();
    let (mut sent, mut count) = (held.seq, 0);
    loop {
        while under_way.len() < WRITERS && started.elapsed() < time {
            let append = build_append(held, sent, vec![event.clone()], clock);
            under_way.push_back(poll_once(store.append(append)).await);
            sent = sent.next();
        }
        let Some(first) = under_way.pop_front() else { break };
        let done = first.await.context("an append was refused")?;
        held.seq = done.head.seq;
        count += 1;
    }
    Ok(rate_per_second(count, started.elapsed()))
}

/// Polls a future once. The store accepts an append on the first poll, and the appends of one run
/// must reach it in order.
async fn poll_once(
    mut append: StoreFuture<'_, Result<AppendOutcome, AppendError>>,
) -> StoreFuture<'_, Result<AppendOutcome, AppendError>> {
    match poll_fn(|cx| Poll::Ready(append.as_mut().poll(cx))).await {
        Poll::Ready(done) => Box::pin(std::future::ready(done)),
        Poll::Pending => append,
    }
}
