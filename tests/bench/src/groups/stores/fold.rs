//! Speed of fold, chain and verification: on a synthetic run in memory, and on the same run read from a
//! store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_coordinator::{
    clock::{self, Clock},
    store::{AppendCondition, LogAppend, NewBlob, Store, verify_stream},
};
use docket_schema::{
    api::PAGE_EVENTS_MAX,
    content::BlobRef,
    event::{EVENTS_PER_APPEND_MAX, Envelope, Head, NewEvent, verify_and_advance},
    ids::{IncarnationId, Seq, StreamId},
    run::RunState,
};

use crate::{
    harness::{
        backlog::{self, LeasedRun},
        process_stats, synthetic_events,
    },
    report::{BenchReport, EffortLevel, Samples, rate_per_second},
};

/// Turns of the synthetic run: about 10,000 events.
pub(crate) const TURNS: u32 = 2260;

/// Number of verifications timed together: the kernel counts processor time in hundredths of a
/// second.
const VERIFICATIONS: u32 = 5;

pub(crate) async fn measure(
    store: &Arc<dyn Store>,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let held = backlog::lease_new_runs(store, &clock, 1).await?.pop().context("no run")?;
    let events = synthetic_events::run_events(held.task, held.run, IncarnationId(clock::new_id()), TURNS);
    let bytes: usize = events.iter().map(|event| event.payload.as_str().len()).sum();
    report.set("fold_event_bytes", bytes as f64 / events.len() as f64);
    put_blobs(store, &clock, synthetic_events::run_blobs(TURNS)).await?;
    write_events(store, &clock, held, &events).await?;
    let log = Arc::new(synthetic_events::chain_events(held.run, events, clock.now()));
    let (mut folds, mut chains) = (Samples::default(), Samples::default());
    let (mut reads, mut verifies, mut costs) = (Samples::default(), Samples::default(), Samples::default());
    let count = log.len() as u64;
    for _ in 0..effort.folds() {
        // Long CPU-bound work, kept off the runtime's threads.
        let of_round = Arc::clone(&log);
        let (folded, chained) = tokio::task::spawn_blocking(move || time_in_memory(&of_round)).await??;
        folds.push(rate_per_second(count, folded));
        chains.push(rate_per_second(count, chained));
    }
    for _ in 0..effort.rounds() {
        let (read, verified, cpu_ms) = time_from_store(store, held, log.len()).await?;
        reads.push(rate_per_second(count, read));
        verifies.push(rate_per_second(count, verified));
        costs.push(cpu_ms * 1000.0 / count as f64);
    }
    // Each round does the same work without waiting, so only other processes make one slower.
    report.set_percentile("fold_events_per_s", &folds, 100);
    report.set_percentile("chain_events_per_s", &chains, 100);
    report.set_percentile("read_events_per_s", &reads, 50);
    report.set_percentile("verify_events_per_s", &verifies, 50);
    report.set_percentile("verify_cpu_us_per_event", &costs, 50);
    Ok(())
}

async fn put_blobs(store: &Arc<dyn Store>, clock: &Clock, blobs: Vec<Vec<u8>>) -> anyhow::Result<()> {
    let new = |bytes: Vec<u8>| NewBlob { blob: BlobRef::for_bytes(&bytes), bytes: bytes.into() };
    let blobs = blobs.into_iter().map(new).collect();
    store.put_blobs(blobs, clock.now()).await.context("the store does not take the run's blobs")
}

pub(crate) async fn write_events(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: LeasedRun,
    events: &[NewEvent],
) -> anyhow::Result<()> {
    let mut seq = held.seq;
    for part in events.chunks(EVENTS_PER_APPEND_MAX) {
        let append = LogAppend {
            stream: StreamId::Run(held.run),
            condition: AppendCondition::LeaseHolder(seq, held.epoch),
            events: part.to_vec(),
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: clock.now(),
        };
        seq = store.append(append).await.context("an append was refused")?.head.seq;
    }
    Ok(())
}

fn time_in_memory(log: &[Envelope]) -> anyhow::Result<(Duration, Duration)> {
    let started = Instant::now();
    let mut state = RunState::default();
    for event in log {
        state.apply_envelope(event).context("the made-up run does not fold")?;
    }
    let folded = started.elapsed();
    ensure!(state.turn.0 == TURNS, "the fold ended at turn {}", state.turn);
    let started = Instant::now();
    let mut head = Head::EMPTY;
    for event in log {
        head = verify_and_advance(head, event).context("the made-up chain does not hold")?;
    }
    Ok((folded, started.elapsed()))
}

/// Reads all pages, then verifies the stream like the store does: reads, chains and folds one page ahead.
/// Returns both times and the processor time of the second, in milliseconds.
async fn time_from_store(
    store: &Arc<dyn Store>,
    held: LeasedRun,
    length: usize,
) -> anyhow::Result<(Duration, Duration, f64)> {
    let stream = StreamId::Run(held.run);
    let started = Instant::now();
    let (mut after, mut found) = (Seq(0), 0);
    while found < length {
        let page = store.read_events(stream.clone(), after, PAGE_EVENTS_MAX).await?;
        after = page.last().context("the stream is shorter than what was written")?.seq;
        found += page.len();
    }
    let read = started.elapsed();
    let own = i32::try_from(std::process::id())?;
    let (started, before) = (Instant::now(), process_stats::read_cpu_ms(own)?);
    for _ in 0..VERIFICATIONS {
        let verified = verify_stream(&**store, &stream).await?;
        ensure!(verified.fault.is_none() && verified.events == length as u64, "{verified:?}");
    }
    let cpu_ms = process_stats::read_cpu_ms(own)? - before;
    Ok((read, started.elapsed() / VERIFICATIONS, cpu_ms / f64::from(VERIFICATIONS)))
}
