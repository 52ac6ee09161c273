//! Fold, chain and verify speed: on a made-up run in memory, and on the same run read back from a store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_coordinator::{
    clock::{self, Clock},
    store::{Append, Condition, NewBlob, Store, verify_stream},
};
use docket_schema::{
    content::BlobRef,
    event::{EVENTS_PER_APPEND_MAX, Envelope, Head, NewEvent, follow},
    ids::{IncarnationId, Seq, StreamId},
    run::RunState,
    wire::PAGE_EVENTS_MAX,
};

use crate::{
    harness::{
        backlog::{self, Held},
        proc, stream,
    },
    report::{Effort, Report, Samples, rate},
};

/// Turns of the made-up run: some 10,000 events.
pub(crate) const TURNS: u32 = 2260;

/// Verifications timed together: the kernel counts processor time in hundredths of a second.
const VERIFIES: u32 = 5;

/// Measures.
pub(crate) async fn measure(
    store: &Arc<dyn Store>,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let held = backlog::runs(store, &clock, 1).await?.pop().context("no run")?;
    let events = stream::events(held.task, held.run, IncarnationId(clock::new_id()), TURNS);
    let bytes: usize = events.iter().map(|event| event.payload.as_str().len()).sum();
    report.set("fold_event_bytes", bytes as f64 / events.len() as f64);
    put_blobs(store, &clock, stream::blobs(TURNS)).await?;
    write(store, &clock, held, &events).await?;
    let log = Arc::new(stream::chained(held.run, events, clock.now()));
    let (mut folds, mut chains) = (Samples::default(), Samples::default());
    let (mut reads, mut verifies, mut costs) = (Samples::default(), Samples::default(), Samples::default());
    let count = log.len() as u64;
    for _ in 0..effort.folds() {
        // Long work of the processor, away from the runtime's threads.
        let of_round = Arc::clone(&log);
        let (folded, chained) = tokio::task::spawn_blocking(move || in_memory(&of_round)).await??;
        folds.push(rate(count, folded));
        chains.push(rate(count, chained));
    }
    for _ in 0..effort.rounds() {
        let (read, verified, cpu_ms) = from_store(store, held, log.len()).await?;
        reads.push(rate(count, read));
        verifies.push(rate(count, verified));
        costs.push(cpu_ms * 1000.0 / count as f64);
    }
    // The same work each time, without waiting: what makes a round slower is somebody else's.
    report.set_percentile("fold_events_per_s", &folds, 100);
    report.set_percentile("chain_events_per_s", &chains, 100);
    report.set_percentile("read_events_per_s", &reads, 50);
    report.set_percentile("verify_events_per_s", &verifies, 50);
    report.set_percentile("verify_cpu_us_per_event", &costs, 50);
    Ok(())
}

async fn put_blobs(store: &Arc<dyn Store>, clock: &Clock, blobs: Vec<Vec<u8>>) -> anyhow::Result<()> {
    let new = |bytes: Vec<u8>| NewBlob { blob: BlobRef::of(&bytes), bytes: bytes.into() };
    let blobs = blobs.into_iter().map(new).collect();
    store.put_blobs(blobs, clock.now()).await.context("the store does not take the run's blobs")
}

pub(crate) async fn write(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: Held,
    events: &[NewEvent],
) -> anyhow::Result<()> {
    let mut seq = held.seq;
    for part in events.chunks(EVENTS_PER_APPEND_MAX) {
        let append = Append {
            stream: StreamId::Run(held.run),
            condition: Condition::Holder(seq, held.epoch),
            events: part.to_vec(),
            blobs: Vec::new(),
            names: Vec::new(),
            now: clock.now(),
        };
        seq = store.append(append).await.context("an append was refused")?.head.seq;
    }
    Ok(())
}

fn in_memory(log: &[Envelope]) -> anyhow::Result<(Duration, Duration)> {
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
        head = follow(head, event).context("the made-up chain does not hold")?;
    }
    Ok((folded, started.elapsed()))
}

/// Reads all pages; then verifies the stream as the store does it: read, chained and folded, one page ahead.
/// The times of both, and the processor time of the second, in milliseconds.
async fn from_store(
    store: &Arc<dyn Store>,
    held: Held,
    length: usize,
) -> anyhow::Result<(Duration, Duration, f64)> {
    let stream = StreamId::Run(held.run);
    let started = Instant::now();
    let (mut after, mut found) = (Seq(0), 0);
    while found < length {
        let page = store.read(stream.clone(), after, PAGE_EVENTS_MAX).await?;
        after = page.last().context("the stream is shorter than what was written")?.seq;
        found += page.len();
    }
    let read = started.elapsed();
    let own = i32::try_from(std::process::id())?;
    let (started, before) = (Instant::now(), proc::cpu_ms(own)?);
    for _ in 0..VERIFIES {
        let verified = verify_stream(&**store, &stream).await?;
        ensure!(verified.fault.is_none() && verified.events == length as u64, "{verified:?}");
    }
    let cpu_ms = proc::cpu_ms(own)? - before;
    Ok((read, started.elapsed() / VERIFIES, cpu_ms / f64::from(VERIFIES)))
}
