//! Fold, chain and verify speed: on a made-up run in memory, and on the same run read back from a store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_coordinator::{
    clock::{self, Clock},
    store::{Append, Condition, Store},
};
use docket_schema::{
    event::{EVENTS_PER_APPEND_MAX, Envelope, Head, NewEvent, follow},
    ids::{IncarnationId, Seq, StreamId},
    run::RunState,
    wire::PAGE_EVENTS_MAX,
};

use super::{
    backlog::{self, Held},
    command::Effort,
    report::Report,
    stats::{Samples, rate},
    stream,
};

/// Turns of the made-up run: some 10,000 events.
const TURNS: u32 = 2260;

/// Measures.
pub(super) async fn measure(
    store: &Arc<dyn Store>,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let held = backlog::runs(store, &clock, 1).await?.pop().context("no run")?;
    let events = stream::events(held.task, held.run, IncarnationId(clock::new_id()), TURNS);
    let bytes: usize = events.iter().map(|event| event.payload.as_str().len()).sum();
    report.set("fold_event_bytes", bytes as f64 / events.len() as f64);
    write(store, &clock, held, &events).await?;
    let log = Arc::new(stream::chained(held.run, events, clock.now()));
    let (mut folds, mut chains) = (Samples::default(), Samples::default());
    let (mut reads, mut verifies) = (Samples::default(), Samples::default());
    let count = log.len() as u64;
    for _ in 0..effort.folds() {
        // Long work of the processor, away from the runtime's threads.
        let of_round = Arc::clone(&log);
        let (folded, chained) = tokio::task::spawn_blocking(move || in_memory(&of_round)).await??;
        folds.push(rate(count, folded));
        chains.push(rate(count, chained));
    }
    for _ in 0..effort.rounds() {
        let (read, verified) = from_store(store, held, log.len()).await?;
        reads.push(rate(count, read));
        verifies.push(rate(count, verified));
    }
    // The same work each time, without waiting: what makes a round slower is somebody else's.
    report.set_percentile("fold_events_per_s", &folds, 100);
    report.set_percentile("chain_events_per_s", &chains, 100);
    report.set_percentile("read_events_per_s", &reads, 50);
    report.set_percentile("verify_events_per_s", &verifies, 50);
    Ok(())
}

async fn write(store: &Arc<dyn Store>, clock: &Clock, held: Held, events: &[NewEvent]) -> anyhow::Result<()> {
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

/// Reads all pages; then reads, checks and folds them. The times of both.
async fn from_store(
    store: &Arc<dyn Store>,
    held: Held,
    length: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let started = Instant::now();
    let (mut after, mut found) = (Seq(0), 0);
    while found < length {
        let page = store.read(StreamId::Run(held.run), after, PAGE_EVENTS_MAX).await?;
        after = page.last().context("the stream is shorter than what was written")?.seq;
        found += page.len();
    }
    let read = started.elapsed();
    let started = Instant::now();
    let (mut state, mut head) = (RunState::default(), Head::EMPTY);
    while head.seq.0 < length as u64 {
        let page = store.read(StreamId::Run(held.run), head.seq, PAGE_EVENTS_MAX).await?;
        ensure!(!page.is_empty(), "the stream is shorter than what was written");
        for event in &page {
            head = follow(head, event).context("the chain does not hold")?;
            state.apply_envelope(event).context("the run does not fold")?;
        }
    }
    Ok((read, started.elapsed()))
}
