//! Verification of the log: `docket verify`.
//!
//! Checked per stream: the hash chain and seqs, the head, the shared history that a fork continues,
//! referenced blobs, and that the events fold. Runs are folded if their history begins with `RunStarted`. A
//! log is read from a [`Store`] or elsewhere, through a [`LogReader`].

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    blob_refs::{BlobReference, BlobRole},
    event::{ChainVerifier, DecodeError, EventRef, Head, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId, SystemTopic},
    run::{CorruptLog, Forked, RunEvent},
    system::{TokensFold, TopicError},
};
use futures_util::StreamExt as _;
use serde::Serialize;

use super::{
    event_channel,
    fold::{StreamFold, StreamFoldError},
    reader::LogReader,
};
use crate::store::{EventLog, EventVisitor, Store, StoreError, archive::stream_uuid};

/// Streams listed at once.
const PAGE_STREAMS: u32 = 1000;

/// Streams verified concurrently: as many as a store has readers.
const CONCURRENT_STREAMS: usize = 4;

/// Blobs per lookup.
const BLOBS_PER_LOOKUP: usize = 1000;

/// Longest chain of runs that continue each other; no person creates a longer one.
const LINEAGE_MAX: usize = 1000;

/// Length from which a stream is worth a second thread.
const PARALLEL_FROM_SEQ: Seq = Seq(256);

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct VerifyReport {
    /// Number of streams.
    pub streams: u64,
    /// Number of events whose hash was recomputed.
    pub events: u64,
    /// Number of references to blobs; a blob referenced by two events counts twice.
    pub blobs: u64,
    /// The first fault.
    pub fault: Option<LogFault>,
}

/// A fault in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFault {
    /// The stream.
    pub stream: StreamId,
    /// The event; 0 for the stream as a whole.
    pub seq: Seq,
    /// The fault, with the stream's name.
    pub what: String,
    /// Whether the log may still be correct: the event has a kind or version unknown to this build.
    pub unknown: bool,
}

/// Result of verifying one stream.
#[derive(Debug)]
pub struct StreamReport {
    /// Number of events whose hash was recomputed, without those of a shared history.
    pub events: u64,
    /// Number of references to blobs; a blob referenced by two events counts twice.
    pub blobs: u64,
    /// The first fault.
    pub fault: Option<LogFault>,
    /// The fold of its events.
    pub fold: StreamFold,
    /// Whether all events fold, regardless of other faults.
    pub all_folded: bool,
}

impl VerifyReport {
    fn add_stream(&mut self, more: StreamReport) {
        self.streams += 1;
        self.events += more.events;
        self.blobs += more.blobs;
        self.fault = self.fault.take().or(more.fault);
    }
}

/// Verifies the whole log up to the first fault.
///
/// # Errors
/// Fails if the store cannot be read. Faults in its content are part of the report.
pub async fn verify_log(store: &dyn Store) -> Result<VerifyReport, StoreError> {
    let mut seen = VerifyReport::default();
    let mut after = None;
    loop {
        let page = store.list_streams(after.take(), PAGE_STREAMS).await?;
        let Some((last, _)) = page.last() else { return Ok(seen) };
        after = Some(last.clone());
        let walks = page.into_iter().map(|(stream, head)| verify_listed_stream(store, stream, head));
        // In order, so that the first fault by name is reported.
        let mut walks = futures_util::stream::iter(walks).buffered(CONCURRENT_STREAMS);
        while let Some(walked) = walks.next().await {
            seen.add_stream(walked?);
            if seen.fault.is_some() {
                return Ok(seen);
            }
        }
    }
}

/// Verifies a stream that was listed with this head. If it was archived since, that is not a fault.
///
/// # Errors
/// Like [`verify_log`].
pub async fn verify_listed_stream(
    store: &dyn Store,
    stream: StreamId,
    head: Head,
) -> Result<StreamReport, StoreError> {
    let mut walked = walk_stream(store, &stream, Some(head)).await?;
    if walked.fault.is_some()
        && let Some(id) = stream_uuid(&stream)
        && store.find_stub(id).await?.is_some()
    {
        walked.fault = None;
    }
    Ok(walked)
}

/// Verifies one stream.
///
/// # Errors
/// Like [`verify_log`].
pub async fn verify_stream(store: &dyn Store, stream: &StreamId) -> Result<VerifyReport, StoreError> {
    let mut seen = VerifyReport::default();
    let head = EventLog::stream_head(store, stream.clone()).await?;
    seen.add_stream(walk_stream(store, stream, head).await?);
    Ok(seen)
}

/// Verifies one stream whose recorded head is `recorded`. It may have grown since.
///
/// # Errors
/// Fails if the stream cannot be read. Faults in its content are part of the report.
pub async fn walk_stream<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    recorded: Option<Head>,
) -> Result<StreamReport, R::Error> {
    let mut walked =
        StreamReport { events: 0, blobs: 0, fault: None, fold: StreamFold::None, all_folded: false };
    let Some(recorded) = recorded else {
        walked.fault = Some(log_fault(stream, Seq(0), format!("{stream}: the stream does not exist")));
        return Ok(walked);
    };
    let (follows, fold) = match initial_fold(reader, stream).await? {
        Ok(begun) => begun,
        Err(broken) => {
            walked.fault = Some(broken);
            return Ok(walked);
        }
    };
    let range = WalkRange { stream, until: None, recorded };
    let (chained, folded) = run_passes(reader, range, follows, fold).await?;
    (walked.events, walked.blobs) = (chained.events, folded.named_blobs.len() as u64);
    let head = chained.chain.head();
    let stale =
        chained.broken.is_none() && head != recorded && !has_grown_since(reader, &chained, recorded).await?;
    let short = stale.then(|| {
        let what = if head.seq == recorded.seq {
            format!("{stream}: event {} does not match its recorded head", head.seq)
        } else {
            format!("{stream}: its events end at {}, but its recorded head is {}", head.seq, recorded.seq)
        };
        log_fault(stream, head.seq, what)
    });
    let absent = find_missing_blob(reader, stream, folded.named_blobs).await?;
    walked.all_folded = folded.broken.is_none();
    // The first fault by seq; at one seq, the most informative.
    let faults = [chained.broken, absent, folded.broken, short];
    walked.fault = faults.into_iter().flatten().min_by_key(|fault| fault.seq);
    walked.fold = folded.fold;
    Ok(walked)
}

fn log_fault(stream: &StreamId, seq: Seq, what: String) -> LogFault {
    LogFault { stream: stream.clone(), seq, what, unknown: false }
}

/// Whether the stream has only grown since its head was recorded: it contains that head and has a later one
/// now.
async fn has_grown_since<R: LogReader + ?Sized>(
    reader: &R,
    chained: &ChainPass,
    recorded: Head,
) -> Result<bool, R::Error> {
    let head = chained.chain.head();
    if !chained.reached_recorded_head || head.seq <= recorded.seq {
        return Ok(false);
    }
    let now = reader.stream_head(chained.stream.clone()).await?.unwrap_or(Head::EMPTY);
    Ok(now == head || now.seq > head.seq)
}

/// Part of a stream.
#[derive(Clone, Copy)]
struct WalkRange<'a> {
    stream: &'a StreamId,
    /// The last event, if not all are wanted.
    until: Option<Seq>,
    recorded: Head,
}

/// Verifies the hash chain.
struct ChainPass {
    stream: StreamId,
    until: Option<Seq>,
    recorded: Head,
    chain: ChainVerifier,
    events: u64,
    reached_recorded_head: bool,
    broken: Option<LogFault>,
}

impl ChainPass {
    fn check_event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        if self.until.is_some_and(|until| event.seq > until) {
            return ControlFlow::Break(());
        }
        if let Err(error) = self.chain.verify_next(event) {
            self.broken = Some(log_fault(&self.stream, event.seq, error.to_string()));
            return ControlFlow::Break(());
        }
        self.events += 1;
        self.reached_recorded_head |= self.chain.head() == self.recorded;
        ControlFlow::Continue(())
    }
}

/// Folds the events.
struct FoldPass {
    stream: StreamId,
    until: Option<Seq>,
    fold: StreamFold,
    /// Blobs that must be stored, each with the event that references it.
    named_blobs: Vec<(BlobHash, Seq)>,
    /// References of the current event.
    event_blobs: Vec<BlobReference>,
    broken: Option<LogFault>,
}

impl FoldPass {
    fn fold_event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        if self.until.is_some_and(|until| event.seq > until) {
            return ControlFlow::Break(());
        }
        if let Err(error) = self.fold.apply_event(&self.stream, event, &mut self.event_blobs) {
            let unknown = matches!(
                error,
                StreamFoldError::Corrupt(CorruptLog::Decode { source: DecodeError::Unknown { .. }, .. })
                    | StreamFoldError::Tokens(TopicError::Decode { source: DecodeError::Unknown { .. }, .. })
            );
            let what = format!("{}: {}", self.stream, error.describe());
            self.broken = Some(LogFault { unknown, ..log_fault(&self.stream, event.seq, what) });
            return ControlFlow::Break(());
        }
        // A file's content may be in its base's pack instead.
        let parts = self.event_blobs.drain(..).filter(|named| named.role != BlobRole::FileContent);
        self.named_blobs.extend(parts.map(|named| (named.blob.hash, event.seq)));
        ControlFlow::Continue(())
    }
}

/// Reads a stream for both passes, which are independent and run in parallel where that is worth it.
async fn run_passes<R: LogReader + ?Sized>(
    reader: &R,
    range: WalkRange<'_>,
    follows: Head,
    fold: StreamFold,
) -> Result<(ChainPass, FoldPass), R::Error> {
    let WalkRange { stream, until, recorded } = range;
    let chained = Arc::new(Mutex::new(ChainPass {
        stream: stream.clone(),
        until,
        recorded,
        chain: ChainVerifier::new(stream.clone(), follows),
        events: 0,
        reached_recorded_head: recorded == follows,
        broken: None,
    }));
    let folded = Arc::new(Mutex::new(FoldPass {
        stream: stream.clone(),
        until,
        fold,
        named_blobs: Vec::new(),
        event_blobs: Vec::new(),
        broken: None,
    }));
    let chain = visitor_for(&chained, ChainPass::check_event);
    let altered = if reader.should_fold_in_parallel() && until.unwrap_or(recorded.seq) >= PARALLEL_FROM_SEQ {
        let (mut giver, taker) = event_channel::event_channel();
        let of_taker = Arc::clone(&folded);
        let folding = tokio::task::spawn_blocking(move || {
            let mut folded = of_taker.lock().expect("a pass does not panic");
            taker.for_each_event(|event| folded.fold_event(event));
        });
        let altered =
            scan_or_corruption(reader, stream, fan_out(chain, move |event| giver.send_event(event))).await?;
        folding.await.expect("a pass does not panic");
        altered
    } else {
        let fold = visitor_for(&folded, FoldPass::fold_event);
        scan_or_corruption(reader, stream, fan_out(chain, fold)).await?
    };
    let (mut chained, folded) = (into_pass(chained), into_pass(folded));
    if let Some(what) = altered {
        let at = chained.chain.head().seq.next();
        chained.broken = chained.broken.or_else(|| Some(log_fault(stream, at, what)));
    }
    Ok((chained, folded))
}

/// Passes each event to both passes until both have broken off.
fn fan_out(
    mut one: EventVisitor,
    mut other: impl FnMut(&EventRef<'_>) -> ControlFlow<()> + Send + 'static,
) -> EventVisitor {
    let mut goes_on = (true, true);
    Box::new(move |event| {
        goes_on.0 = goes_on.0 && one(event).is_continue();
        goes_on.1 = goes_on.1 && other(event).is_continue();
        if goes_on == (false, false) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Scans the stream; returns the description of content that could not be read.
async fn scan_or_corruption<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    each: EventVisitor,
) -> Result<Option<String>, R::Error> {
    match reader.scan_events(stream.clone(), Seq(0), each).await {
        Ok(()) => Ok(None),
        Err(error) => R::into_corruption(error).map(Some),
    }
}

fn visitor_for<P: Send + 'static>(
    pass: &Arc<Mutex<P>>,
    event: fn(&mut P, &EventRef<'_>) -> ControlFlow<()>,
) -> EventVisitor {
    let pass = Arc::clone(pass);
    Box::new(move |borrowed| event(&mut pass.lock().expect("a pass does not panic"), borrowed))
}

/// Returns the pass after its scan has ended.
fn into_pass<P>(pass: Arc<Mutex<P>>) -> P {
    let pass = Arc::try_unwrap(pass).ok().expect("the scan dropped its half");
    pass.into_inner().expect("a pass does not panic")
}

/// Returns the hash that a stream's first event must follow, and the initial fold.
async fn initial_fold<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
) -> Result<Result<(Head, StreamFold), LogFault>, R::Error> {
    match stream {
        StreamId::Task(_) => return Ok(Ok((Head::EMPTY, StreamFold::Task(None)))),
        StreamId::System(SystemTopic::Tokens) => {
            return Ok(Ok((Head::EMPTY, StreamFold::Tokens(TokensFold::default()))));
        }
        StreamId::Queue(_) | StreamId::System(_) => return Ok(Ok((Head::EMPTY, StreamFold::None))),
        StreamId::Run(_) => {}
    }
    let mut lineage: Vec<Forked> = Vec::new();
    let mut first = read_first_event(reader, stream).await?;
    while let FirstEvent::Forked(forked) = first {
        if lineage.len() >= LINEAGE_MAX {
            let what = format!("{stream}: it continues a chain of more than {LINEAGE_MAX} runs");
            return Ok(Err(log_fault(stream, Seq(1), what)));
        }
        first = read_first_event(reader, &StreamId::Run(forked.parent)).await?;
        if matches!(first, FirstEvent::None) {
            let what = format!("{stream}: its parent {} has no events", forked.parent);
            return Ok(Err(log_fault(stream, Seq(1), what)));
        }
        lineage.push(*forked);
    }
    let mut fold = match first {
        FirstEvent::Started => StreamFold::Run(Box::default()),
        FirstEvent::None | FirstEvent::Other | FirstEvent::Forked(_) => StreamFold::None,
    };
    let mut follows = Head::EMPTY;
    for forked in lineage.iter().rev() {
        let parent = StreamId::Run(forked.parent);
        let stands_on = Head { seq: forked.seq, hash: forked.hash };
        let range = WalkRange { stream: &parent, until: Some(forked.seq), recorded: stands_on };
        let (chained, folded) = run_passes(reader, range, follows, fold).await?;
        let broken = chained.broken.into_iter().chain(folded.broken).min_by_key(|fault| fault.seq);
        if let Some(broken) = broken.or_else(|| {
            let what =
                format!("{stream}: {} of its parent {parent} is not the event it continues", forked.seq);
            (chained.chain.head() != stands_on).then(|| log_fault(stream, Seq(1), what))
        }) {
            return Ok(Err(broken));
        }
        follows = Head { seq: Seq(0), hash: forked.hash };
        fold = folded.fold;
    }
    Ok(Ok((follows, fold)))
}

/// Kind of a run's first event.
enum FirstEvent {
    None,
    Started,
    Forked(Box<Forked>),
    Other,
}

async fn read_first_event<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
) -> Result<FirstEvent, R::Error> {
    let found = Arc::new(Mutex::new(FirstEvent::None));
    let look = visitor_for(&found, |first, event| {
        *first = match RunEvent::decode(event.kind, event.version, event.payload) {
            Ok(RunEvent::RunStarted(_)) => FirstEvent::Started,
            Ok(RunEvent::Forked(forked)) => FirstEvent::Forked(Box::new(forked)),
            // A decoding error is found again when the event is folded.
            Err(_) if event.kind == "RunStarted" => FirstEvent::Started,
            Ok(_) | Err(_) => FirstEvent::Other,
        };
        ControlFlow::Break(())
    });
    // An unreadable event is found again and reported by the full scan.
    Ok(match scan_or_corruption(reader, stream, look).await? {
        None => into_pass(found),
        Some(_) => FirstEvent::Other,
    })
}

/// Finds the first event that references a blob which is not stored.
async fn find_missing_blob<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    named: Vec<(BlobHash, Seq)>,
) -> Result<Option<LogFault>, R::Error> {
    let mut known: HashSet<BlobHash> = HashSet::new();
    for part in named.chunks(BLOBS_PER_LOOKUP) {
        let asked: HashSet<BlobHash> =
            part.iter().map(|(hash, _)| *hash).filter(|hash| !known.contains(hash)).collect();
        known.extend(reader.find_present_blobs(asked.into_iter().collect()).await?);
        if let Some((hash, seq)) = part.iter().find(|(hash, _)| !known.contains(hash)) {
            let what = format!("{stream}: event {seq} references blob {hash}, which is not stored");
            return Ok(Some(log_fault(stream, *seq, what)));
        }
    }
    Ok(None)
}
