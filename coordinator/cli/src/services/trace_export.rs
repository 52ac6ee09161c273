//! Exports traces of runs to an OpenTelemetry collector while a coordinator runs here and
//! `telemetry.otlp_endpoint` is set, by OTLP over HTTP in JSON.
//!
//! Follows the log's feed from a saved cursor, the first time from the end of the log. Spans are a fold of each
//! run's events (`docket_schema::trace`) with derived ids, so a span sent again after a crash is the same span.
//! A collector that is unavailable or rejects us is retried with increasing delays; nothing is lost, because
//! the log remains. After a backup was restored, its events were already sent, so export continues from its
//! end. If several coordinators serve one store, set the endpoint for only one of them.

mod sender;

use crate::history::spans::fold_event;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use docket_schema::{
    event::Envelope,
    ids::{Position, RunId, Seq, StreamId},
    trace::{RunSpans, Span},
};
use docket_worker::client::{ClientError, CoordinatorClient, HistoryScope};
use tokio_util::sync::CancellationToken;

use crate::{
    connect::cursor::{CursorCheck, LogCursor, LogMark},
    context::CliContext,
    output::error::{CliResult, ExitKind, FailWith as _},
};
use sender::{OtlpSender, SpanDelivery};

/// File in the home with the export cursor.
const CURSOR_FILE: &str = "telemetry.position";
/// How often an empty feed is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delays after a failure: doubled from the first to the last.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Number of cached folds: the open runs of a large installation. Others are rebuilt from their log.
const CACHED_FOLDS_MAX: usize = 2000;
/// Maximum spans per request.
const SPANS_MAX: usize = 512;

/// The trace exporter of this process, if enabled.
pub(crate) struct TraceExporter {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
}

impl TraceExporter {
    /// Starts it if an endpoint is set.
    pub(crate) fn start(cx: &CliContext, client: &CoordinatorClient) -> CliResult<Option<Self>> {
        let Some(endpoint) = &cx.config.telemetry.endpoint else { return Ok(None) };
        let sender =
            OtlpSender::new(endpoint, &cx.config.telemetry.service_name, |name| std::env::var(name).ok())
                .fail_with(ExitKind::Usage, || {
                    "cannot export traces; check the OTEL_… variables".to_owned()
                })?;
        let cursor = LogCursor::open(cx.home.path(), CURSOR_FILE, "traces");
        let stop = CancellationToken::new();
        let follower = TraceFollower { client: client.clone(), sender, folds: FoldCache::default() };
        let until = stop.clone();
        let task = tokio::spawn(async move {
            until.run_until_cancelled(follower.run_loop(cursor)).await;
        });
        Ok(Some(Self { task, stop }))
    }

    /// Stops it; the next exporter sends the rest.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the trace exporter failed");
        }
    }
}

/// The cached folds, least recently used first.
#[derive(Default)]
struct FoldCache {
    folds: HashMap<RunId, (RunSpans, Seq)>,
    order: VecDeque<RunId>,
}

impl FoldCache {
    fn insert(&mut self, run: RunId, fold: RunSpans, seq: Seq) {
        self.order.retain(|known| *known != run);
        self.order.push_back(run);
        self.folds.insert(run, (fold, seq));
        while self.order.len() > CACHED_FOLDS_MAX {
            if let Some(gone) = self.order.pop_front() {
                self.folds.remove(&gone);
            }
        }
    }

    fn remove(&mut self, run: RunId) {
        self.order.retain(|known| *known != run);
        self.folds.remove(&run);
    }
}

struct TraceFollower {
    client: CoordinatorClient,
    sender: OtlpSender,
    folds: FoldCache,
}

impl TraceFollower {
    async fn run_loop(mut self, mut cursor: LogCursor) {
        let mut wait = RETRY_DELAYS[0];
        let mut at: Option<LogMark> = None;
        let mut trouble = ExportFailureLog::default();
        loop {
            match self.process_page(&mut cursor, &mut at).await {
                Ok(more) => {
                    wait = RETRY_DELAYS[0];
                    trouble.clear();
                    if !more {
                        tokio::time::sleep(POLL_INTERVAL).await;
                    }
                }
                Err(error) => {
                    trouble.report(&format!("{error:#}"));
                    // Folds may be ahead of what was sent, and the store may now have a different log.
                    at = None;
                    self.folds = FoldCache::default();
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_DELAYS[1]);
                }
            }
        }
    }

    /// Processes a page of the feed; returns whether there were events.
    async fn process_page(
        &mut self,
        cursor: &mut LogCursor,
        at: &mut Option<LogMark>,
    ) -> anyhow::Result<bool> {
        let from = match *at {
            Some(at) => at,
            None => {
                let begin = self.start_mark(cursor).await?;
                // Saved before anything is sent, so that spans a collector cannot accept now are not skipped.
                cursor.save(begin);
                *at.insert(begin)
            }
        };
        let page = self.client.list_log_events(from.position, None).await?;
        let Some(last) = page.events.last().map(LogMark::from_event) else {
            cursor.save(from);
            return Ok(false);
        };
        let mut spans = Vec::new();
        for event in &page.events {
            if let StreamId::Run(run) = event.stream {
                spans.extend(self.event_spans(run, event).await?);
            }
        }
        for part in spans.chunks(SPANS_MAX) {
            self.send_spans(part).await?;
        }
        *at = Some(last);
        cursor.save(last);
        Ok(true)
    }

    /// Returns where to continue reading.
    async fn start_mark(&self, cursor: &LogCursor) -> Result<LogMark, ClientError> {
        if !cursor.has_mark() {
            return self.end_of_log().await;
        }
        match cursor.check_mark(&self.client).await? {
            // Only tasks that ended long ago are archived; later events were not sent.
            CursorCheck::Unchanged(mark) | CursorCheck::Archived(mark) => Ok(mark),
            CursorCheck::Replaced(kept) => {
                let end = self.end_of_log().await?;
                tracing::warn!(
                    sent = %kept.position,
                    end = %end.position,
                    "the log is not the one whose traces were sent before, perhaps after a restored backup; its events were already sent or \
                     belong to another store, so export continues from its end"
                );
                Ok(end)
            }
        }
    }

    /// Export starts with new events: setting an endpoint does not send years of history. The end is found by
    /// binary search, because the log may be long.
    async fn end_of_log(&self) -> Result<LogMark, ClientError> {
        let most = i64::MAX.unsigned_abs();
        // There is an event at `known`, and none after `beyond`.
        let (mut known, mut beyond) = (LogMark::START, 1);
        while let Some(event) = self.client.list_log_events(Position(beyond), Some(1)).await?.events.first() {
            known = LogMark::from_event(event);
            beyond = known.position.0.saturating_mul(2).min(most);
        }
        while known.position.0 < beyond {
            let middle = known.position.0.midpoint(beyond);
            match self.client.list_log_events(Position(middle), Some(1)).await?.events.first() {
                Some(event) => known = LogMark::from_event(event),
                None => beyond = middle,
            }
        }
        Ok(known)
    }

    async fn event_spans(&mut self, run: RunId, event: &Envelope) -> anyhow::Result<Vec<Span>> {
        let known = self.folds.folds.remove(&run).filter(|(_, seq)| seq.0 + 1 == event.seq.0);
        let mut fold = match known {
            Some((fold, _)) => fold,
            None => self.rebuild_fold(run, event).await?,
        };
        let spans = match fold.apply_event(event) {
            Ok(spans) => spans,
            Err(error) => {
                tracing::debug!(%run, %error, "an event that this build does not support is left out of traces");
                Vec::new()
            }
        };
        if event.kind == "RunEnded" {
            self.folds.remove(run);
        } else {
            self.folds.insert(run, fold, event.seq);
        }
        Ok(spans)
    }

    /// Rebuilds the fold of everything before `event`, in its own stream and its parents': those spans were
    /// sent.
    async fn rebuild_fold(&self, run: RunId, event: &Envelope) -> Result<RunSpans, ClientError> {
        let mut fold = RunSpans::new(run);
        if event.seq > Seq(1) || event.kind == "Forked" {
            for before in self.client.all_events(run, HistoryScope::WithAncestors).await? {
                if before.stream == event.stream && before.seq >= event.seq {
                    break;
                }
                // An unknown event was reported when it was first seen.
                let _ = fold_event(&mut fold, run, &before);
            }
        }
        Ok(fold)
    }

    /// Sends spans, retrying what the collector cannot accept now.
    async fn send_spans(&self, spans: &[Span]) -> anyhow::Result<()> {
        match self.sender.send(spans).await? {
            SpanDelivery::Accepted => Ok(()),
            SpanDelivery::PartlyAccepted(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector permanently rejected some of these spans");
                Ok(())
            }
            SpanDelivery::Rejected(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector permanently rejected these spans; they are skipped");
                Ok(())
            }
        }
    }
}

/// Logs failures of the export: once per distinct failure, and once when it has recovered.
#[derive(Default)]
struct ExportFailureLog(Option<String>);

impl ExportFailureLog {
    fn report(&mut self, why: &str) {
        if self.0.as_deref() == Some(why) {
            tracing::debug!("trace export is still failing: {why}");
            return;
        }
        tracing::warn!(
            "trace export failed: {why}; retrying with increasing delays, up to {:?}",
            RETRY_DELAYS[1]
        );
        self.0 = Some(why.to_owned());
    }

    fn clear(&mut self) {
        if self.0.take().is_some() {
            tracing::info!("trace export has recovered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_fold_is_evicted() {
        let run = |n: u128| RunId(uuid::Uuid::from_u128(n));
        let mut runs = FoldCache::default();
        for n in 0..CACHED_FOLDS_MAX as u128 {
            runs.insert(run(n), RunSpans::new(run(n)), Seq(1));
        }
        runs.insert(run(0), RunSpans::new(run(0)), Seq(2));
        runs.insert(run(9999), RunSpans::new(run(9999)), Seq(1));
        assert_eq!(runs.folds.len(), CACHED_FOLDS_MAX);
        assert!(runs.folds.contains_key(&run(0)) && !runs.folds.contains_key(&run(1)));
        runs.remove(run(0));
        assert_eq!((runs.folds.len(), runs.order.len()), (CACHED_FOLDS_MAX - 1, CACHED_FOLDS_MAX - 1));
    }
}
