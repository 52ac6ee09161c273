//! A store full of finished runs compared with an empty one: old runs must not slow down new work. The runs
//! are real: submitted, leased, appended to and ended through the store.

use std::{sync::Arc, time::Instant};

use anyhow::{Context as _, ensure};
use docket_coordinator::{
    clock::Clock,
    store::{AppendCondition, LogAppend, Store},
};
use docket_schema::{
    api::TaskQuery,
    ids::{IncarnationId, StreamId, Turn},
};
use futures_util::future::try_join_all;

use crate::{
    harness::{
        backlog::{self, BenchWorker, LeasedRun},
        synthetic_events,
    },
    output::print_progress,
    report::{BenchReport, EffortLevel, Samples},
};

/// Turns of a finished run: about a hundred events.
const TURNS_PER_RUN: u32 = 24;
/// Number of runs filled concurrently.
const CONCURRENT_RUNS: usize = 500;
/// Events per append while filling.
const EVENTS_PER_APPEND: usize = 34;

/// Names of the figures.
pub(crate) struct FinishedFigures {
    lease: &'static str,
    append: &'static str,
    list: &'static str,
    events: &'static str,
}

/// On SQLite.
pub(crate) const SQLITE: FinishedFigures = FinishedFigures {
    lease: "finished_lease_ratio",
    append: "finished_append_ratio",
    list: "finished_ps_ratio",
    events: "finished_events",
};

/// On PostgreSQL.
pub(crate) const POSTGRES: FinishedFigures = FinishedFigures {
    lease: "finished_lease_ratio_postgres",
    append: "finished_append_ratio_postgres",
    list: "finished_ps_ratio_postgres",
    events: "finished_events_postgres",
};

/// Fills `full` with `runs` finished runs, then measures both stores, alternating.
pub(crate) async fn measure(
    empty: &Arc<dyn Store>,
    full: &Arc<dyn Store>,
    runs: usize,
    names: &FinishedFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let events = fill_store(full, &clock, runs).await?;
    report.set(names.events, events as f64);
    let mut without = MeasuredStore::new(empty, &clock).await?;
    let mut with = MeasuredStore::new(full, &clock).await?;
    for _ in 0..effort.latency_samples() {
        without.take_sample(empty, &clock).await?;
        with.take_sample(full, &clock).await?;
    }
    let ratio = |with: &Samples, without: &Samples| Some(with.percentile(50)? / without.percentile(50)?);
    let pairs = [
        (names.lease, ratio(&with.leases, &without.leases)),
        (names.append, ratio(&with.appends, &without.appends)),
        (names.list, ratio(&with.lists, &without.lists)),
    ];
    for (name, ratio) in pairs {
        report.set(name, ratio.context("no samples")?);
    }
    Ok(())
}

/// Returns the total number of events of the runs.
async fn fill_store(store: &Arc<dyn Store>, clock: &Clock, runs: usize) -> anyhow::Result<usize> {
    let mut events = 0;
    let mut done = 0;
    while done < runs {
        let count = CONCURRENT_RUNS.min(runs - done);
        let held = backlog::lease_new_runs(store, clock, count).await?;
        events += try_join_all(held.into_iter().map(|held| write_full_run(store, clock, held)))
            .await?
            .iter()
            .sum::<usize>();
        done += count;
        if done % (20 * CONCURRENT_RUNS) == 0 {
            print_progress(&format!("finished runs: {done} of {runs}"));
        }
    }
    Ok(events)
}

/// Writes a run from its first event to its last.
async fn write_full_run(store: &Arc<dyn Store>, clock: &Clock, mut held: LeasedRun) -> anyhow::Result<usize> {
    let events = synthetic_events::run_events(held.task, held.run, IncarnationId(held.run.0), TURNS_PER_RUN);
    for part in events.chunks(EVENTS_PER_APPEND) {
        let appended = LogAppend {
            stream: StreamId::Run(held.run),
            condition: AppendCondition::LeaseHolder(held.seq, held.epoch),
            events: part.to_vec(),
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: clock.now(),
        };
        held.seq = store.append(appended).await.context("an append was refused")?.head.seq;
    }
    backlog::end_run(store, clock, held, backlog::run_ended_event(Turn(TURNS_PER_RUN))).await?;
    Ok(events.len() + 1)
}

/// One of the two stores, and its measurements.
struct MeasuredStore {
    worker: BenchWorker,
    run: LeasedRun,
    leases: Samples,
    appends: Samples,
    lists: Samples,
}

impl MeasuredStore {
    async fn new(store: &Arc<dyn Store>, clock: &Clock) -> anyhow::Result<Self> {
        let run = backlog::lease_new_runs(store, clock, 1).await?.pop().context("no run")?;
        let samples = Samples::default;
        Ok(Self { worker: BenchWorker::new(), run, leases: samples(), appends: samples(), lists: samples() })
    }

    async fn take_sample(&mut self, store: &Arc<dyn Store>, clock: &Clock) -> anyhow::Result<()> {
        backlog::submit_tasks(store, clock, 1).await?;
        let began = Instant::now();
        let leased = backlog::lease_tasks(store, clock, &mut self.worker, 1).await?;
        self.leases.push_ms(began.elapsed());
        ensure!(leased.len() == 1, "what was submitted was not leased");
        let result = vec![synthetic_events::tool_result_event(1)];
        let appended = LogAppend {
            stream: StreamId::Run(self.run.run),
            condition: AppendCondition::LeaseHolder(self.run.seq, self.run.epoch),
            events: result,
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: clock.now(),
        };
        let began = Instant::now();
        let done = store.append(appended).await.context("an append was refused")?;
        self.appends.push_ms(began.elapsed());
        self.run.seq = done.head.seq;
        // The default query of `docket ps`, and open tasks.
        let began = Instant::now();
        store.list_tasks(TaskQuery { limit: Some(20), ..TaskQuery::default() }).await?;
        store.list_queues().await?;
        self.lists.push_ms(began.elapsed());
        Ok(())
    }
}
