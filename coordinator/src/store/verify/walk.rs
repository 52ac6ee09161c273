//! Walks the log and names what does not hold: `docket verify`.
//!
//! Checked per stream: the chain and its places, the head, the shared history that a fork stands on, blobs
//! that are named, and that the events fold. Runs are folded where their history begins with `RunStarted`.
//! A log is read from a [`Store`] or from elsewhere, through a [`LogReader`].

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    event::{Chain, DecodeError, EventRef, Head, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId, SystemTopic},
    names::{Named, NamedAs},
    run::{CorruptLog, Forked, RunEvent},
    system::{Tokens, TopicError},
};
use futures_util::StreamExt as _;
use serde::Serialize;

use super::{
    fold::{Fold, Unfolded},
    pages,
    reader::LogReader,
};
use crate::store::{EachEvent, EventLog, Store, StoreError, archive::id_of};

/// Streams listed at once.
const PAGE: u32 = 1000;

/// Streams walked at once: as many as a store has readers.
const WALKS: usize = 4;

/// Blobs asked for at once.
const BLOBS: usize = 1000;

/// Runs that may stand on each other: more is no history a person made.
const LINEAGE_MAX: usize = 1000;

/// From where on a stream is worth a second thread.
const BESIDE_MIN: Seq = Seq(256);

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Verified {
    /// Streams walked.
    pub streams: u64,
    /// Events whose hash was computed again.
    pub events: u64,
    /// Blobs that events name; one that two events name counts twice.
    pub blobs: u64,
    /// The first thing that does not hold.
    pub fault: Option<LogFault>,
}

/// Where a log does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFault {
    /// The stream.
    pub stream: StreamId,
    /// The event; 0 = the stream as a whole.
    pub seq: Seq,
    /// What does not hold, with the stream's name.
    pub what: String,
    /// It may hold: the event is of a kind or version that this build does not know.
    pub unknown: bool,
}

/// What one stream is.
#[derive(Debug)]
pub struct Walked {
    /// Events whose hash was computed again, those of a shared history left out.
    pub events: u64,
    /// Blobs that they name; one that two events name counts twice.
    pub blobs: u64,
    /// The first thing that does not hold.
    pub fault: Option<LogFault>,
    /// What the events fold into.
    pub fold: Fold,
    /// All of them do fold, whatever else does not hold.
    pub folds: bool,
}

impl Verified {
    fn add(&mut self, more: Walked) {
        self.streams += 1;
        self.events += more.events;
        self.blobs += more.blobs;
        self.fault = self.fault.take().or(more.fault);
    }
}

/// Walks the whole log up to the first fault.
///
/// # Errors
/// The store cannot be read. What it holds wrongly is in the answer.
pub async fn verify(store: &dyn Store) -> Result<Verified, StoreError> {
    let mut seen = Verified::default();
    let mut after = None;
    loop {
        let page = store.streams(after.take(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(seen) };
        after = Some(last.clone());
        let walks = page.into_iter().map(|(stream, head)| walk_listed(store, stream, head));
        // In order, so that the first fault is the first by name.
        let mut walks = futures_util::stream::iter(walks).buffered(WALKS);
        while let Some(walked) = walks.next().await {
            seen.add(walked?);
            if seen.fault.is_some() {
                return Ok(seen);
            }
        }
    }
}

/// Walks a stream that was listed with this head. It may have gone to the archive since: that is no fault.
///
/// # Errors
/// As [`verify`].
pub async fn walk_listed(store: &dyn Store, stream: StreamId, head: Head) -> Result<Walked, StoreError> {
    let mut walked = walk(store, &stream, Some(head)).await?;
    if walked.fault.is_some()
        && let Some(id) = id_of(&stream)
        && store.stub(id).await?.is_some()
    {
        walked.fault = None;
    }
    Ok(walked)
}

/// Walks one stream.
///
/// # Errors
/// As [`verify`].
pub async fn verify_stream(store: &dyn Store, stream: &StreamId) -> Result<Verified, StoreError> {
    let mut seen = Verified::default();
    let head = EventLog::head(store, stream.clone()).await?;
    seen.add(walk(store, stream, head).await?);
    Ok(seen)
}

/// Walks one stream, whose head is said to be `recorded`. It may have gone on since.
///
/// # Errors
/// It cannot be read. What it holds wrongly is in the answer.
pub async fn walk<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    recorded: Option<Head>,
) -> Result<Walked, R::Error> {
    let mut walked = Walked { events: 0, blobs: 0, fault: None, fold: Fold::None, folds: false };
    let Some(recorded) = recorded else {
        walked.fault = Some(fault(stream, Seq(0), format!("{stream}: there is no such stream")));
        return Ok(walked);
    };
    let (follows, fold) = match begin(reader, stream).await? {
        Ok(begun) => begun,
        Err(broken) => {
            walked.fault = Some(broken);
            return Ok(walked);
        }
    };
    let range = Range { stream, until: None, recorded };
    let (chained, folded) = passes(reader, range, follows, fold).await?;
    (walked.events, walked.blobs) = (chained.events, folded.named.len() as u64);
    let head = chained.chain.head();
    let stale = chained.broken.is_none() && head != recorded && !went_on(reader, &chained, recorded).await?;
    let short = stale.then(|| {
        let what = if head.seq == recorded.seq {
            format!("{stream}: event {} is not the one that its head names", head.seq)
        } else {
            format!("{stream}: its events end at {}, its head says {}", head.seq, recorded.seq)
        };
        fault(stream, head.seq, what)
    });
    let absent = missing(reader, stream, folded.named).await?;
    walked.folds = folded.broken.is_none();
    // The first by place; at one place, what says most.
    let faults = [chained.broken, absent, folded.broken, short];
    walked.fault = faults.into_iter().flatten().min_by_key(|fault| fault.seq);
    walked.fold = folded.fold;
    Ok(walked)
}

fn fault(stream: &StreamId, seq: Seq, what: String) -> LogFault {
    LogFault { stream: stream.clone(), seq, what, unknown: false }
}

/// Whether the stream only went on since its head was told: it held that head, and has another by now.
async fn went_on<R: LogReader + ?Sized>(
    reader: &R,
    chained: &Chained,
    recorded: Head,
) -> Result<bool, R::Error> {
    let head = chained.chain.head();
    if !chained.held_recorded || head.seq <= recorded.seq {
        return Ok(false);
    }
    let now = reader.head(chained.stream.clone()).await?.unwrap_or(Head::EMPTY);
    Ok(now == head || now.seq > head.seq)
}

/// Part of a stream.
#[derive(Clone, Copy)]
struct Range<'a> {
    stream: &'a StreamId,
    /// The last event, where not all are wanted.
    until: Option<Seq>,
    recorded: Head,
}

/// Follows the chain.
struct Chained {
    stream: StreamId,
    until: Option<Seq>,
    recorded: Head,
    chain: Chain,
    events: u64,
    held_recorded: bool,
    broken: Option<LogFault>,
}

impl Chained {
    fn event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        if self.until.is_some_and(|until| event.seq > until) {
            return ControlFlow::Break(());
        }
        if let Err(error) = self.chain.follow(event) {
            self.broken = Some(fault(&self.stream, event.seq, error.to_string()));
            return ControlFlow::Break(());
        }
        self.events += 1;
        self.held_recorded |= self.chain.head() == self.recorded;
        ControlFlow::Continue(())
    }
}

/// Folds.
struct Folded {
    stream: StreamId,
    until: Option<Seq>,
    fold: Fold,
    /// Blobs that must be stored, and which event says so.
    named: Vec<(BlobHash, Seq)>,
    /// What the event at hand names.
    of_event: Vec<Named>,
    broken: Option<LogFault>,
}

impl Folded {
    fn event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        if self.until.is_some_and(|until| event.seq > until) {
            return ControlFlow::Break(());
        }
        if let Err(error) = self.fold.apply(&self.stream, event, &mut self.of_event) {
            let unknown = matches!(
                error,
                Unfolded::Corrupt(CorruptLog::Decode { source: DecodeError::Unknown { .. }, .. })
                    | Unfolded::Tokens(TopicError::Decode { source: DecodeError::Unknown { .. }, .. })
            );
            let what = format!("{}: {}", self.stream, error.describe());
            self.broken = Some(LogFault { unknown, ..fault(&self.stream, event.seq, what) });
            return ControlFlow::Break(());
        }
        // A file's content may stand in its base's pack instead.
        let parts = self.of_event.drain(..).filter(|named| named.named_as != NamedAs::Content);
        self.named.extend(parts.map(|named| (named.blob.hash, event.seq)));
        ControlFlow::Continue(())
    }
}

/// Reads a stream for both, which work beside each other where that is worth it: they have nothing to say to
/// each other.
async fn passes<R: LogReader + ?Sized>(
    reader: &R,
    range: Range<'_>,
    follows: Head,
    fold: Fold,
) -> Result<(Chained, Folded), R::Error> {
    let Range { stream, until, recorded } = range;
    let chained = Arc::new(Mutex::new(Chained {
        stream: stream.clone(),
        until,
        recorded,
        chain: Chain::new(stream.clone(), follows),
        events: 0,
        held_recorded: recorded == follows,
        broken: None,
    }));
    let folded = Arc::new(Mutex::new(Folded {
        stream: stream.clone(),
        until,
        fold,
        named: Vec::new(),
        of_event: Vec::new(),
        broken: None,
    }));
    let chain = each(&chained, Chained::event);
    let altered = if reader.beside() && until.unwrap_or(recorded.seq) >= BESIDE_MIN {
        let (mut giver, taker) = pages::hand_over();
        let of_taker = Arc::clone(&folded);
        let folding = tokio::task::spawn_blocking(move || {
            let mut folded = of_taker.lock().expect("a pass does not panic");
            taker.take(|event| folded.event(event));
        });
        let altered = scan(reader, stream, both(chain, move |event| giver.give(event))).await?;
        folding.await.expect("a pass does not panic");
        altered
    } else {
        let fold = each(&folded, Folded::event);
        scan(reader, stream, both(chain, fold)).await?
    };
    let (mut chained, folded) = (taken(chained), taken(folded));
    if let Some(what) = altered {
        let at = chained.chain.head().seq.next();
        chained.broken = chained.broken.or_else(|| Some(fault(stream, at, what)));
    }
    Ok((chained, folded))
}

/// Each event to both, until both have broken off.
fn both(
    mut one: EachEvent,
    mut other: impl FnMut(&EventRef<'_>) -> ControlFlow<()> + Send + 'static,
) -> EachEvent {
    let mut goes_on = (true, true);
    Box::new(move |event| {
        goes_on.0 = goes_on.0 && one(event).is_continue();
        goes_on.1 = goes_on.1 && other(event).is_continue();
        if goes_on == (false, false) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Scans; answers what of the log could not be read as it was written.
async fn scan<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    each: EachEvent,
) -> Result<Option<String>, R::Error> {
    match reader.scan(stream.clone(), Seq(0), each).await {
        Ok(()) => Ok(None),
        Err(error) => R::altered(error).map(Some),
    }
}

fn each<P: Send + 'static>(
    pass: &Arc<Mutex<P>>,
    event: fn(&mut P, &EventRef<'_>) -> ControlFlow<()>,
) -> EachEvent {
    let pass = Arc::clone(pass);
    Box::new(move |borrowed| event(&mut pass.lock().expect("a pass does not panic"), borrowed))
}

/// What a scan that has ended left behind.
fn taken<P>(pass: Arc<Mutex<P>>) -> P {
    let pass = Arc::try_unwrap(pass).ok().expect("the scan dropped its half");
    pass.into_inner().expect("a pass does not panic")
}

/// What a stream's first event follows, and what it folds into.
async fn begin<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
) -> Result<Result<(Head, Fold), LogFault>, R::Error> {
    match stream {
        StreamId::Task(_) => return Ok(Ok((Head::EMPTY, Fold::Task(None)))),
        StreamId::System(SystemTopic::Tokens) => {
            return Ok(Ok((Head::EMPTY, Fold::Tokens(Tokens::default()))));
        }
        StreamId::Queue(_) | StreamId::System(_) => return Ok(Ok((Head::EMPTY, Fold::None))),
        StreamId::Run(_) => {}
    }
    let mut lineage: Vec<Forked> = Vec::new();
    let mut first = first_of(reader, stream).await?;
    while let First::Forked(forked) = first {
        if lineage.len() >= LINEAGE_MAX {
            let what = format!("{stream}: it stands on more than {LINEAGE_MAX} runs");
            return Ok(Err(fault(stream, Seq(1), what)));
        }
        first = first_of(reader, &StreamId::Run(forked.parent)).await?;
        if matches!(first, First::None) {
            let what = format!("{stream}: its parent {} has no events", forked.parent);
            return Ok(Err(fault(stream, Seq(1), what)));
        }
        lineage.push(*forked);
    }
    let mut fold = match first {
        First::Started => Fold::Run(Box::default()),
        First::None | First::Other | First::Forked(_) => Fold::None,
    };
    let mut follows = Head::EMPTY;
    for forked in lineage.iter().rev() {
        let parent = StreamId::Run(forked.parent);
        let stands_on = Head { seq: forked.seq, hash: forked.hash };
        let range = Range { stream: &parent, until: Some(forked.seq), recorded: stands_on };
        let (chained, folded) = passes(reader, range, follows, fold).await?;
        let broken = chained.broken.into_iter().chain(folded.broken).min_by_key(|fault| fault.seq);
        if let Some(broken) = broken.or_else(|| {
            let what = format!("{stream}: {} of its parent {parent} is not what it stands on", forked.seq);
            (chained.chain.head() != stands_on).then(|| fault(stream, Seq(1), what))
        }) {
            return Ok(Err(broken));
        }
        follows = Head { seq: Seq(0), hash: forked.hash };
        fold = folded.fold;
    }
    Ok(Ok((follows, fold)))
}

/// What a run's stream begins with.
enum First {
    None,
    Started,
    Forked(Box<Forked>),
    Other,
}

async fn first_of<R: LogReader + ?Sized>(reader: &R, stream: &StreamId) -> Result<First, R::Error> {
    let found = Arc::new(Mutex::new(First::None));
    let look = each(&found, |first, event| {
        *first = match RunEvent::decode(event.kind, event.version, event.payload) {
            Ok(RunEvent::RunStarted(_)) => First::Started,
            Ok(RunEvent::Forked(forked)) => First::Forked(Box::new(forked)),
            // What does not decode is found again when it is folded.
            Err(_) if event.kind == "RunStarted" => First::Started,
            Ok(_) | Err(_) => First::Other,
        };
        ControlFlow::Break(())
    });
    // What cannot be read is found again, and named, by whoever reads all of it.
    Ok(match scan(reader, stream, look).await? {
        None => taken(found),
        Some(_) => First::Other,
    })
}

/// The first event that names a blob which is not stored.
async fn missing<R: LogReader + ?Sized>(
    reader: &R,
    stream: &StreamId,
    named: Vec<(BlobHash, Seq)>,
) -> Result<Option<LogFault>, R::Error> {
    let mut known: HashSet<BlobHash> = HashSet::new();
    for part in named.chunks(BLOBS) {
        let asked: HashSet<BlobHash> =
            part.iter().map(|(hash, _)| *hash).filter(|hash| !known.contains(hash)).collect();
        known.extend(reader.blobs_present(asked.into_iter().collect()).await?);
        if let Some((hash, seq)) = part.iter().find(|(hash, _)| !known.contains(hash)) {
            let what = format!("{stream}: event {seq} names blob {hash}, which is not stored");
            return Ok(Some(fault(stream, *seq, what)));
        }
    }
    Ok(None)
}
