//! The cost of checkpointing SQLite's write-ahead log for concurrent appends: the 99th percentile of
//! append times at a store that checkpoints, relative to one that never does. The two alternate.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use docket_coordinator::{
    clock::Clock,
    store::{
        Store,
        sqlite::{self, CheckpointMode},
    },
};
use tokio::task::JoinSet;

use crate::{
    groups::stores::appends::{WRITERS, append_next, result_events},
    harness::backlog::{self, LeasedRun},
    report::{BenchReport, EffortLevel, Samples},
};

/// Events per append: enough that the log restarts several times.
const EVENTS_PER_APPEND: usize = 16;

struct CheckpointSide {
    store: Arc<dyn Store>,
    writers: Vec<LeasedRun>,
    samples: Samples,
}

impl CheckpointSide {
    async fn new(folder: &Path, name: &str, how: CheckpointMode, clock: &Arc<Clock>) -> anyhow::Result<Self> {
        let store = sqlite::open_with_checkpoints(&folder.join(name), how)
            .await
            .context("a store cannot be opened")?;
        let store: Arc<dyn Store> = Arc::new(store);
        let writers = backlog::lease_new_runs(&store, clock, WRITERS).await?;
        Ok(Self { store, writers, samples: Samples::default() })
    }

    async fn append_for(&mut self, clock: &Arc<Clock>, time: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut writers = JoinSet::new();
        for (at, held) in self.writers.iter().enumerate() {
            let (store, clock, mut held) = (Arc::clone(&self.store), Arc::clone(clock), *held);
            writers.spawn(async move {
                let (events, mut took) = (result_events(EVENTS_PER_APPEND), Vec::new());
                while started.elapsed() < time {
                    let began = Instant::now();
                    append_next(store.as_ref(), &clock, &mut held, &events).await?;
                    took.push(began.elapsed());
                }
                anyhow::Ok((at, held, took))
            });
        }
        while let Some(done) = writers.join_next().await {
            let (at, held, took) = done.context("a writer ended early")??;
            self.writers[at] = held;
            took.into_iter().for_each(|time| self.samples.push_ms(time));
        }
        Ok(())
    }
}

/// Measures in `folder`.
pub(crate) async fn measure(
    folder: &Path,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::new());
    let mut with = CheckpointSide::new(folder, "with.db", CheckpointMode::BackgroundThread, &clock).await?;
    let mut without = CheckpointSide::new(folder, "without.db", CheckpointMode::Never, &clock).await?;
    for _ in 0..effort.rounds() {
        with.append_for(&clock, effort.round_slice()).await?;
        without.append_for(&clock, effort.round_slice()).await?;
    }
    with.store.close().await;
    without.store.close().await;
    report.set_percentile("append_ms_p99_sqlite", &with.samples, 99);
    if let (Some(with), Some(without)) = (with.samples.percentile(99), without.samples.percentile(99)) {
        report.set("append_p99_checkpoints_ratio_sqlite", with / without);
    }
    Ok(())
}
