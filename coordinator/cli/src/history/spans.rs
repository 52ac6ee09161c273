//! A run as spans, folded from its events.

use docket_schema::{
    event::{DecodeError, Envelope},
    ids::{RunId, Seq, StreamId},
    trace::{RunSpans, Span},
};

/// The whole trace of a run, as far as it went. `events` are all that it stands on: those of its parents are in no span.
pub(crate) fn spans_from_events(run: RunId, events: &[Envelope]) -> Result<Vec<Span>, DecodeError> {
    let mut fold = RunSpans::new(run);
    let mut spans = Vec::new();
    for event in events {
        spans.extend(fold_event(&mut fold, run, event)?);
    }
    Ok(spans)
}

/// The next event of a run's whole history. Of what it shares with its parents only their beginnings say something of it.
pub(crate) fn fold_event(
    fold: &mut RunSpans,
    run: RunId,
    event: &Envelope,
) -> Result<Vec<Span>, DecodeError> {
    if event.stream == StreamId::Run(run) {
        return fold.apply_event(event);
    }
    if event.seq == Seq(1) {
        fold.inherit_event(event)?;
    }
    Ok(Vec::new())
}
