//! Traces of runs, sent to an OpenTelemetry collector while a coordinator runs here and `telemetry.otlp_endpoint` is
//! set: OTLP over HTTP in its JSON form.
//!
//! Follows the log's feed from where it last stood; the first time from its end. Spans are a fold of each run's events
//! (`docket_schema::trace`), with ids that follow from them: what is sent again after a crash is the same span. A
//! collector that is away, or takes nothing of us, is waited for longer and longer, and nothing is lost meanwhile, for
//! the log stays. A log that a backup took the place of was sent before: what comes after its end is sent, not all of
//! it again. Who serves one store with several coordinators sets the endpoint for one of them.

mod sender;

use crate::history::spans::folded;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use docket_schema::{
    event::Envelope,
    ids::{Position, RunId, Seq, StreamId},
    trace::{RunSpans, Span},
};
use docket_worker::client::{Client, ClientError, Lineage};
use tokio_util::sync::CancellationToken;

use crate::{
    connect::cursor::{Cursor, Found, Mark},
    context::Context,
    output::fail::{Exit, FailWith as _, Outcome},
};
use sender::{Sender, Sent};

/// File in the home that says up to where spans are sent.
const CURSOR: &str = "telemetry.position";
/// How often the feed is asked for more when it had none.
const POLL: Duration = Duration::from_secs(1);
/// How long it waits after what did not work: twice as long each time, up to the longest.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Runs whose fold is kept: what is open in a large installation. Others are folded anew from their log.
const RUNS_MAX: usize = 2000;
/// Spans of one request.
const SPANS_MAX: usize = 512;

/// What sends traces here, if it is wanted.
pub(crate) struct Telemetry {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
}

impl Telemetry {
    /// Begins, where an endpoint is set.
    pub(crate) fn start(cx: &Context, client: &Client) -> Outcome<Option<Self>> {
        let Some(endpoint) = &cx.config.telemetry.endpoint else { return Ok(None) };
        let sender = Sender::new(endpoint, &cx.config.telemetry.service, |name| std::env::var(name).ok())
            .fail_with(Exit::Usage, || "traces cannot be sent; check the variables OTEL_…".to_owned())?;
        let cursor = Cursor::open(cx.home.path(), CURSOR, "traces");
        let stop = CancellationToken::new();
        let follower = Follower { client: client.clone(), sender, runs: Runs::default() };
        let until = stop.clone();
        let task = tokio::spawn(async move {
            until.run_until_cancelled(follower.follow(cursor)).await;
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
struct Runs {
    folds: HashMap<RunId, (RunSpans, Seq)>,
    order: VecDeque<RunId>,
}

impl Runs {
    fn put(&mut self, run: RunId, fold: RunSpans, seq: Seq) {
        self.order.retain(|known| *known != run);
        self.order.push_back(run);
        self.folds.insert(run, (fold, seq));
        while self.order.len() > RUNS_MAX {
            if let Some(gone) = self.order.pop_front() {
                self.folds.remove(&gone);
            }
        }
    }

    fn drop(&mut self, run: RunId) {
        self.order.retain(|known| *known != run);
        self.folds.remove(&run);
    }
}

struct Follower {
    client: Client,
    sender: Sender,
    runs: Runs,
}

impl Follower {
    async fn follow(mut self, mut cursor: Cursor) {
        let mut wait = AGAIN[0];
        let mut at: Option<Mark> = None;
        let mut trouble = Trouble::default();
        loop {
            match self.round(&mut cursor, &mut at).await {
                Ok(more) => {
                    wait = AGAIN[0];
                    trouble.is_over();
                    if !more {
                        tokio::time::sleep(POLL).await;
                    }
                }
                Err(error) => {
                    trouble.is(&format!("{error:#}"));
                    // Folds may be ahead of what was sent, and another log may stand there.
                    at = None;
                    self.runs = Runs::default();
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(AGAIN[1]);
                }
            }
        }
    }

    /// A page of the feed; whether there was something.
    async fn round(&mut self, cursor: &mut Cursor, at: &mut Option<Mark>) -> anyhow::Result<bool> {
        let from = match *at {
            Some(at) => at,
            None => {
                let begin = self.begin(cursor).await?;
                // Kept before anything is sent: what a collector cannot take now is not skipped.
                cursor.keep(begin);
                *at.insert(begin)
            }
        };
        let page = self.client.feed(from.position, None).await?;
        let Some(last) = page.events.last().map(Mark::of) else {
            cursor.keep(from);
            return Ok(false);
        };
        let mut spans = Vec::new();
        for event in &page.events {
            if let StreamId::Run(run) = event.stream {
                spans.extend(self.take(run, event).await?);
            }
        }
        for part in spans.chunks(SPANS_MAX) {
            self.send(part).await?;
        }
        *at = Some(last);
        cursor.keep(last);
        Ok(true)
    }

    /// Where to read on.
    async fn begin(&self, cursor: &Cursor) -> Result<Mark, ClientError> {
        if !cursor.is_known() {
            return self.end_of_log().await;
        }
        match cursor.found(&self.client).await? {
            // Archived is what ended long ago: what comes behind it was not sent.
            Found::Same(mark) | Found::Beyond(mark) => Ok(mark),
            Found::Another(kept) => {
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
    async fn end_of_log(&self) -> Result<Mark, ClientError> {
        let most = i64::MAX.unsigned_abs();
        // There is an event at `known`, and none after `beyond`.
        let (mut known, mut beyond) = (Mark::BEGIN, 1);
        while let Some(event) = self.client.feed(Position(beyond), Some(1)).await?.events.first() {
            known = Mark::of(event);
            beyond = known.position.0.saturating_mul(2).min(most);
        }
        while known.position.0 < beyond {
            let middle = known.position.0.midpoint(beyond);
            match self.client.feed(Position(middle), Some(1)).await?.events.first() {
                Some(event) => known = Mark::of(event),
                None => beyond = middle,
            }
        }
        Ok(known)
    }

    async fn take(&mut self, run: RunId, event: &Envelope) -> anyhow::Result<Vec<Span>> {
        let known = self.runs.folds.remove(&run).filter(|(_, seq)| seq.0 + 1 == event.seq.0);
        let mut fold = match known {
            Some((fold, _)) => fold,
            None => self.folded_before(run, event).await?,
        };
        let spans = match fold.take(event) {
            Ok(spans) => spans,
            Err(error) => {
                tracing::debug!(%run, %error, "an event that this build does not know is in no trace");
                Vec::new()
            }
        };
        if event.kind == "RunEnded" {
            self.runs.drop(run);
        } else {
            self.runs.put(run, fold, event.seq);
        }
        Ok(spans)
    }

    /// The fold of all that stands before `event`, in its own stream and in those it stands on: those spans were sent.
    async fn folded_before(&self, run: RunId, event: &Envelope) -> Result<RunSpans, ClientError> {
        let mut fold = RunSpans::new(run);
        if event.seq > Seq(1) || event.kind == "Forked" {
            for before in self.client.all_events(run, Lineage::Whole).await? {
                if before.stream == event.stream && before.seq >= event.seq {
                    break;
                }
                // An unknown event was told when it was first seen.
                let _ = folded(&mut fold, run, &before);
            }
        }
        Ok(fold)
    }

    /// Sends, and sends again what the collector could not take now.
    async fn send(&self, spans: &[Span]) -> anyhow::Result<()> {
        match self.sender.send(spans).await? {
            Sent::Taken => Ok(()),
            Sent::Partly(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector leaves out some of these spans for good");
                Ok(())
            }
            Sent::Refused(why) => {
                tracing::warn!(spans = spans.len(), %why, "the collector refuses these spans for good; they are left out");
                Ok(())
            }
        }
    }
}

/// What keeps traces from being sent. Told once, and once again where it is something else; and that it is over.
#[derive(Default)]
struct Trouble(Option<String>);

impl Trouble {
    fn is(&mut self, why: &str) {
        if self.0.as_deref() == Some(why) {
            tracing::debug!("traces are still not sent: {why}");
            return;
        }
        tracing::warn!(
            "traces are not sent: {why}; it is tried again, each time later, up to every {:?}",
            AGAIN[1]
        );
        self.0 = Some(why.to_owned());
    }

    fn is_over(&mut self) {
        if self.0.take().is_some() {
            tracing::info!("traces are sent again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_fold_goes_first() {
        let run = |n: u128| RunId(uuid::Uuid::from_u128(n));
        let mut runs = Runs::default();
        for n in 0..RUNS_MAX as u128 {
            runs.put(run(n), RunSpans::new(run(n)), Seq(1));
        }
        runs.put(run(0), RunSpans::new(run(0)), Seq(2));
        runs.put(run(9999), RunSpans::new(run(9999)), Seq(1));
        assert_eq!(runs.folds.len(), RUNS_MAX);
        assert!(runs.folds.contains_key(&run(0)) && !runs.folds.contains_key(&run(1)));
        runs.drop(run(0));
        assert_eq!((runs.folds.len(), runs.order.len()), (RUNS_MAX - 1, RUNS_MAX - 1));
    }
}
