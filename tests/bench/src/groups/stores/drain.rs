//! Tasks that do nothing, at a store: submitted one by one and in bulk, leased and finished in large
//! batches and one by one. Each task has three transitions with one event each (submitted, leased,
//! completed), and the run's own end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_coordinator::{clock::Clock, store::Store};
use docket_schema::ids::Turn;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::{
    harness::{
        backlog::{self, BenchWorker, end_run, run_ended_event},
        raw_commits::RawCommits,
        synthetic_events::empty_base,
    },
    report::{BenchReport, EffortLevel, rate_per_second},
};

/// Tasks per bulk submit.
const TASKS_PER_BULK_SUBMIT: usize = 1000;
/// Leases per large batch, and number of workers that request such batches.
const LEASES_PER_BATCH: u32 = 500;
const BATCH_WORKERS: usize = 2;
/// Number of concurrent submitters.
const CONCURRENT_SUBMITTERS: usize = 10;
/// Leases per request, and number of workers, while a snapshot is held.
const SNAPSHOT_BATCH: u32 = 10;
const SNAPSHOT_WORKERS: usize = 4;
/// Tasks submitted and finished per second during a long-held snapshot.
const SNAPSHOT_TASKS_PER_SECOND: usize = 500;
/// Number of workers that take one task at a time.
const SINGLE_WORKERS: usize = 32;

/// Names of the figures.
pub(crate) struct DrainFigures {
    submit_alone: &'static str,
    submit_ten: &'static str,
    submit_bulk: &'static str,
    drain: &'static str,
    one_by_one: &'static str,
}

/// On SQLite.
pub(crate) const SQLITE: DrainFigures = DrainFigures {
    submit_alone: "submit_alone_per_s",
    submit_ten: "submit_ten_in_flight_per_s",
    submit_bulk: "submit_bulk_per_s",
    drain: "drain_tasks_per_s",
    one_by_one: "drain_one_by_one_per_s",
};

/// On PostgreSQL.
pub(crate) const POSTGRES: DrainFigures = DrainFigures {
    submit_alone: "submit_alone_per_s_postgres",
    submit_ten: "submit_ten_in_flight_per_s_postgres",
    submit_bulk: "submit_bulk_per_s_postgres",
    drain: "drain_tasks_per_s_postgres",
    one_by_one: "drain_one_by_one_per_s_postgres",
};

pub(crate) async fn measure(
    store: &Arc<dyn Store>,
    names: &DrainFigures,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::new());
    backlog::put_blob(store, &clock, empty_base().1).await?;
    let (alone, alone_time) = time_lone_submits(store, &clock, effort.round_slice() * 2).await?;
    report.set(names.submit_alone, rate_per_second(alone as u64, alone_time));
    let mut in_flight = JoinSet::new();
    for _ in 0..CONCURRENT_SUBMITTERS {
        let (store, clock, time) = (Arc::clone(store), Arc::clone(&clock), effort.round_slice() * 2);
        in_flight.spawn(async move { time_lone_submits(&store, &clock, time).await });
    }
    let (mut ten, mut ten_per_s) = (0, 0.0);
    while let Some(done) = in_flight.join_next().await {
        let (count, time) = done.context("a submitter ended early")??;
        ten += count;
        ten_per_s += rate_per_second(count as u64, time);
    }
    report.set(names.submit_ten, ten_per_s);
    let bulks = effort.bulk_submits();
    let started = Instant::now();
    for _ in 0..bulks {
        backlog::submit_tasks(store, &clock, TASKS_PER_BULK_SUBMIT).await?;
    }
    let total = bulks * TASKS_PER_BULK_SUBMIT;
    report.set(names.submit_bulk, rate_per_second(total as u64, started.elapsed()));
    let single = total / 4;
    let batched = alone + ten + total - single;
    report.set(names.drain, time_drain(store, &clock, batched, BATCH_WORKERS, LEASES_PER_BATCH).await?);
    report.set(names.one_by_one, time_drain(store, &clock, single, SINGLE_WORKERS, 1).await?);
    Ok(())
}

/// Measures leases on PostgreSQL while another session holds a snapshot, as a long query does, so that tasks
/// leased and finished since then cannot be cleaned up. The snapshot is held for at least `hold`, while tasks
/// are submitted and finished.
pub(crate) async fn measure_with_held_snapshot(
    store: &Arc<dyn Store>,
    raw: &mut RawCommits,
    hold: Duration,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::new());
    let churn = effort.bulk_submits() * TASKS_PER_BULK_SUBMIT * 3;
    let timed = TASKS_PER_BULK_SUBMIT * 2;
    for _ in 0..(churn + 2 * timed).div_ceil(TASKS_PER_BULK_SUBMIT) {
        backlog::submit_tasks(store, &clock, TASKS_PER_BULK_SUBMIT).await?;
    }
    let free = time_drain(store, &clock, timed, SNAPSHOT_WORKERS, SNAPSHOT_BATCH).await?;
    raw.hold_snapshot().await?;
    let since = Instant::now();
    time_drain(store, &clock, churn, BATCH_WORKERS, LEASES_PER_BATCH).await?;
    while since.elapsed() < hold {
        let second = Instant::now();
        backlog::submit_tasks(store, &clock, SNAPSHOT_TASKS_PER_SECOND).await?;
        time_drain(store, &clock, SNAPSHOT_TASKS_PER_SECOND, SNAPSHOT_WORKERS, SNAPSHOT_BATCH).await?;
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(second.elapsed())).await;
    }
    report.set("drain_snapshot_held_s", since.elapsed().as_secs_f64());
    let held = time_drain(store, &clock, timed, SNAPSHOT_WORKERS, SNAPSHOT_BATCH).await;
    raw.release_snapshot().await?;
    report.set("drain_beside_held_snapshot_ratio", held? / free);
    Ok(())
}

async fn time_lone_submits(
    store: &Arc<dyn Store>,
    clock: &Clock,
    time: Duration,
) -> anyhow::Result<(usize, Duration)> {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        backlog::submit_tasks(store, clock, 1).await?;
        count += 1;
    }
    Ok((count, started.elapsed()))
}

/// `workers` take `batch` tasks at a time until `count` are finished; returns tasks per second.
async fn time_drain(
    store: &Arc<dyn Store>,
    clock: &Arc<Clock>,
    count: usize,
    workers: usize,
    batch: u32,
) -> anyhow::Result<f64> {
    let left = Arc::new(Mutex::new(count));
    let started = Instant::now();
    let mut busy = JoinSet::new();
    for _ in 0..workers {
        let (store, clock, left) = (Arc::clone(store), Arc::clone(clock), Arc::clone(&left));
        busy.spawn(async move {
            let (mut hand, mut done) = (BenchWorker::new(), 0);
            loop {
                let share = take_share(&left, batch);
                if share == 0 {
                    return anyhow::Ok(done);
                }
                let held = backlog::lease_tasks(&store, &clock, &mut hand, share).await?;
                ensure!(held.len() == share as usize, "{} of {share} tasks were leased", held.len());
                done += held.len();
                let ends =
                    held.into_iter().map(|held| end_run(&store, &clock, held, run_ended_event(Turn(0))));
                try_join_all(ends).await?;
            }
        });
    }
    let mut finished = 0;
    while let Some(done) = busy.join_next().await {
        finished += done.context("a worker ended early")??;
    }
    ensure!(finished == count, "{finished} of {count} tasks were finished");
    Ok(rate_per_second(count as u64, started.elapsed()))
}

/// Takes up to `batch` of the remaining tasks.
fn take_share(left: &Mutex<usize>, batch: u32) -> u32 {
    // No code panics while holding the lock.
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let share = u32::try_from(*left).unwrap_or(u32::MAX).min(batch);
    *left -= share as usize;
    share
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::take_share;

    #[test]
    fn shares_add_up_to_the_total() {
        let left = Mutex::new(7);
        let shares: Vec<u32> = std::iter::from_fn(|| Some(take_share(&left, 3))).take(4).collect();
        assert_eq!(shares, [3, 3, 1, 0]);
    }
}
