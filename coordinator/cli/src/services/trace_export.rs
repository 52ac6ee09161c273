//! Traces of runs, sent to an OpenTelemetry collector while a coordinator runs here and `telemetry.otlp_endpoint` is
//! set: OTLP over HTTP in its JSON form.
//!
//! Follows the log's feed from where it last stood; the first time from its end. Spans are a fold of each run's events
//! (`docket_schema::trace`), with ids that follow from them: what is sent again after a crash is the same span. A
//! collector that is away, or takes nothing of us, is waited for longer and longer, and nothing is lost meanwhile, for
//! the log stays. A log that a backup took the place of was sent before: what comes after its end is sent, not all of
//! it again. Who serves one store with several coordinators sets the endpoint for one of them.

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

/// File in the home that says up to where spans are sent.
const CURSOR_FILE: &str = "telemetry.position";
/// How often the feed is asked for more when it had none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long it waits after what did not work: twice as long each time, up to the longest.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Runs whose fold is kept: what is open in a large installation. Others are folded anew from their log.
const CACHED_FOLDS_MAX: usize = 2000;
/// Spans of one request.
const SPANS_MAX: usize = 512;

/// What sends traces here, if it is wanted.
pub(crate) struct TraceExporter {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
}

impl TraceExporter {
    /// Begins, where an endpoint is set.
    pub(crate) fn start(cx: &CliContext, client: &CoordinatorClient) -> CliResult<Option<Self>> {
        let Some(endpoint) = &cx.config.telemetry.endpoint else { return Ok(None) };
        let sender =
            OtlpSender::new(endpoint, &cx.config.telemetry.service_name, |name| std::env::var(name).ok())
                .fail_with(ExitKind::Usage, || {
                    "traces cannot be sent; check the variables OTEL_…".to_owned()
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

    /// Ends; what is not sent yet is sent by the next one.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the sender of traces ended badly");
        }
    }
}

/// The folds that are at hand, the longest unused first.
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
                    // Folds may be ahead of what was sent, and another log may stand there.
                    at = None;
                    self.folds = FoldCache::default();
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_DELAYS[1]);
                }
            }
        }
    }

    /// A page of the feed; whether there was something.
    async fn process_page(
        &mut self,
        cursor: &mut LogCursor,
        at: &mut Option<LogMark>,
    ) -> anyhow::Result<bool> {
        let from = match *at {
            Some(at) => at,
            None => {
                let begin = self.start_mark(cursor).await?;
                // Kept before anything is sent: what a collector cannot take now is not skipped.
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

    /// Where to read on.
    async fn start_mark(&self, cursor: &LogCursor) -> Result<LogMark, ClientError> {
        if !cursor.has_mark() {
            return self.end_of_log().await;
        }
        match cursor.check_mark(&self.client).await? {
            // Archived is what ended long ago: what comes behind it was not sent.
            CursorCheck::Unchanged(mark) | CursorCheck::Archived(mark) => Ok(mark),
            CursorCheck::Replaced(kept) => {
                let end = self.end_of_log().await?;
                tracing::warn!(
                    sent = %kept.position,
                    end = %end.position,
                    "this is not the log that traces were sent of before, a backup perhaps: what it has was sent, or is \
                     another store's; traces go on from its end"
                );
                Ok(end)
            }
        }
    }

    /// Traces begin with what happens from now on: a log of years is not sent because somebody sets an endpoint. Its end is
    /// found by halving, for it may be long.
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
                tracing::debug!(%run, %error, "an event that this build does not know is in no trace");
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

    /// The fold of all that stands before `event`, in its own stream and in those it stands on: those spans were sent.
    async fn rebuild_fold(&self, run: RunId, event: &Envelope) -> Result<RunSpans, ClientError> {
        let mut fold = RunSpans::new(run);
        if event.seq > Seq(1) || event.kind == "Forked" {
            for before in self.client.all_events(run, HistoryScope::WithAncestors).await? {
                if before.stream == event.stream && before.seq >= event.seq {
                    break;
                }
                // An unknown event was told when it was first seen.
                let _ = fold_event(&mut fold, run, &before);
            }
        }
        Ok(fold)
    }

    /// Sends, and sends again what the collector could not take now.
    async fn send_spans(&self, spans: &[Span]) -> anyhow::Result<()> {
        match self.sender.send(spans).await? {
            SpanDelivery::Accepted => Ok(()),
            SpanDelivery::PartlyAccepted(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector leaves out some of these spans for good");
                Ok(())
            }
            SpanDelivery::Rejected(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector refuses these spans for good; they are left out");
                Ok(())
            }
        }
    }
}

/// What keeps traces from being sent. Told once, and once again where it is something else; and that it is over.
#[derive(Default)]
struct ExportFailureLog(Option<String>);

impl ExportFailureLog {
    fn report(&mut self, why: &str) {
        if self.0.as_deref() == Some(why) {
            tracing::debug!("traces are still not sent: {why}");
            return;
        }
        tracing::warn!(
            "traces are not sent: {why}; it is tried again, each time later, up to every {:?}",
            RETRY_DELAYS[1]
        );
        self.0 = Some(why.to_owned());
    }

    fn clear(&mut self) {
        if self.0.take().is_some() {
            tracing::info!("traces are sent again");
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
