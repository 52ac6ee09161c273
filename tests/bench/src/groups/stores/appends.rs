//! Appends at a store, against raw commits that take turns with them: 32 runs with a writer each, one
//! run serial, one run with 32 appends under way, one run with 16 events an append.

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
    store::{Append, AppendError, Appended, Condition, Store, StoreFuture},
};
use docket_schema::{
    event::NewEvent,
    ids::{Seq, StreamId},
};
use tokio::task::JoinSet;

use crate::{
    harness::{
        backlog::{self, Held},
        raw_commits::RawCommits,
        stream,
    },
    report::{Effort, Report, Samples, rate},
};

/// Writers, and appends under way on one run.
pub(crate) const WRITERS: usize = 32;
/// Runs that are stepped at once, as the peers were measured.
const FIFTY: usize = 50;
/// Events of a larger append: what a turn of many calls holds.
const EVENTS_AN_APPEND: usize = 16;
/// Appends of a lone writer that are timed one by one.
const ALONE: usize = 200;

/// Where the figures of a store go.
pub(crate) struct Names {
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

pub(crate) const SQLITE: Names = Names {
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

pub(crate) const POSTGRES: Names = Names {
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
    names: &Names,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::new());
    let mut writers = backlog::runs(store, &clock, WRITERS).await?;
    let mut fifty = backlog::runs(store, &clock, FIFTY).await?;
    let mut one = backlog::runs(store, &clock, 1).await?.pop().context("no run")?;
    let payload = stream::one_result(1).payload;
    let mut alone = Samples::default();
    let (mut raws, mut many, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    let (mut steps, mut step_ratios) = (Samples::default(), Samples::default());
    let (mut serial, mut serial_ratios) = (Samples::default(), Samples::default());
    let (mut in_flight, mut large) = (Samples::default(), Samples::default());
    for round in 0..effort.rounds() {
        let slice = effort.slice();
        let base = raw.commits_per_s(payload.as_str(), slice).await?;
        let of_many = many_runs(store, &clock, &mut writers, slice).await?;
        let of_fifty = many_runs(store, &clock, &mut fifty, slice).await?;
        let of_one = one_run(store, &clock, &mut one, 1, slice).await?;
        let again = raw.commits_per_s(payload.as_str(), slice).await?;
        let base = f64::midpoint(base, again);
        raws.push(base);
        many.push(of_many);
        ratios.push(of_many / base);
        steps.push(of_fifty);
        step_ratios.push(of_fifty / base);
        serial.push(of_one);
        serial_ratios.push(of_one / base);
        in_flight.push(pipelined(store, &clock, &mut one, slice).await?);
        let appends = one_run(store, &clock, &mut one, EVENTS_AN_APPEND, slice).await?;
        large.push(appends * EVENTS_AN_APPEND as f64);
        if round == 0 {
            time_alone(store, &clock, &mut one, &mut alone).await?;
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

fn append_to(held: &Held, seq: Seq, events: Vec<NewEvent>, clock: &Clock) -> Append {
    Append {
        stream: StreamId::Run(held.run),
        condition: Condition::Holder(seq, held.epoch),
        events,
        blobs: Vec::new(),
        names: Vec::new(),
        now: clock.now(),
    }
}

/// Appends `events`, made beforehand as the raw commits' row is: what is measured is the store.
pub(crate) async fn next(
    store: &dyn Store,
    clock: &Clock,
    held: &mut Held,
    events: &[NewEvent],
) -> anyhow::Result<()> {
    let events = events.to_vec();
    let done =
        store.append(append_to(held, held.seq, events, clock)).await.context("an append was refused")?;
    held.seq = done.head.seq;
    Ok(())
}

/// One run, one append after the other; appends per second.
async fn one_run(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut Held,
    events: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let events = results(events);
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        next(store.as_ref(), clock, held, &events).await?;
        count += 1;
    }
    Ok(rate(count, started.elapsed()))
}

pub(crate) fn results(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| stream::one_result(n as u32)).collect()
}

async fn time_alone(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut Held,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let events = results(1);
    for _ in 0..ALONE {
        let started = Instant::now();
        next(store.as_ref(), clock, held, &events).await?;
        samples.push_ms(started.elapsed());
    }
    Ok(())
}

/// A writer for each run; appends per second of all.
pub(crate) async fn many_runs(
    store: &Arc<dyn Store>,
    clock: &Arc<Clock>,
    runs: &mut [Held],
    time: Duration,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut writers = JoinSet::new();
    for (at, held) in runs.iter().enumerate() {
        let (store, clock, mut held) = (Arc::clone(store), Arc::clone(clock), *held);
        writers.spawn(async move {
            let (events, mut count) = (results(1), 0);
            while started.elapsed() < time {
                next(store.as_ref(), &clock, &mut held, &events).await?;
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
    Ok(rate(total, started.elapsed()))
}

/// One run, [`WRITERS`] appends under way; appends per second.
async fn pipelined(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: &mut Held,
    time: Duration,
) -> anyhow::Result<f64> {
    let event = stream::one_result(1);
    let started = Instant::now();
    let mut under_way: VecDeque<StoreFuture<'_, Result<Appended, AppendError>>> = VecDeque::new();
    let (mut sent, mut count) = (held.seq, 0);
    loop {
        while under_way.len() < WRITERS && started.elapsed() < time {
            let append = append_to(held, sent, vec![event.clone()], clock);
            under_way.push_back(handed_in(store.append(append)).await);
            sent = sent.next();
        }
        let Some(first) = under_way.pop_front() else { break };
        let done = first.await.context("an append was refused")?;
        held.seq = done.head.seq;
        count += 1;
    }
    Ok(rate(count, started.elapsed()))
}

/// A future that was asked once. The store takes an append when its future is first asked, and the
/// appends of one run must reach it in order.
async fn handed_in(
    mut append: StoreFuture<'_, Result<Appended, AppendError>>,
) -> StoreFuture<'_, Result<Appended, AppendError>> {
    match poll_fn(|cx| Poll::Ready(append.as_mut().poll(cx))).await {
        Poll::Ready(done) => Box::pin(std::future::ready(done)),
        Poll::Pending => append,
    }
}
