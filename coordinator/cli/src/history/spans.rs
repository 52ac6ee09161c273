//! Spans of a run, folded from its events.

use docket_schema::{
    event::{DecodeError, Envelope},
    ids::{RunId, Seq, StreamId},
    trace::{RunSpans, Span},
};

/// Builds the trace of a run so far. `events` includes inherited history; events of its parents are not in any
/// span.
pub(crate) fn spans_from_events(run: RunId, events: &[Envelope]) -> Result<Vec<Span>, DecodeError> {
    let mut fold = RunSpans::new(run);
    let mut spans = Vec::new();
    for event in events {
        spans.extend(fold_event(&mut fold, run, event)?);
    }
    Ok(spans)
}

/// Folds the next event of a run's complete history. Of the history shared with its parents, only their starts
/// matter.
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
