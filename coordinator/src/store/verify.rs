//! `docket verify`: walks the log through the trait and names the first thing that does not hold.
//!
//! Checked per stream: the chain and its places, the head, the fork's parent, blobs that are named,
//! and that the events fold. Runs are folded where their history begins with `RunStarted`.

use std::collections::HashSet;

use docket_schema::{
    event::{Envelope, Head, TypedEvent as _, follow},
    ids::{BlobHash, RunId, Seq, StreamId},
    names::{self, Named, NamedAs},
    run::{CorruptLog, Forked, RunEvent, RunState},
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};
use futures_util::StreamExt as _;
use serde::Serialize;

use super::{Store, StoreError};

/// Events, and streams, read at once.
const PAGE: u32 = 1000;

/// Events that are worth a thread of their own.
const BESIDE_MIN: usize = 64;

/// Streams walked at once: as many as a store has readers.
const WALKS: usize = 4;

/// Runs that may stand on each other: more is no history a person made.
const LINEAGE_MAX: usize = 1000;

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
    /// What does not hold.
    pub what: String,
}

impl Verified {
    fn add(&mut self, more: Self) {
        self.streams += more.streams;
        self.events += more.events;
        self.blobs += more.blobs;
        self.fault = self.fault.take().or(more.fault);
    }
}

/// Walks the whole log.
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
        let walks = page.into_iter().map(async |(stream, head)| {
            let mut seen = Verified::default();
            walk(store, &stream, head, &mut seen).await.map(|()| seen)
        });
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

/// Walks one stream.
///
/// # Errors
/// As [`verify`].
pub async fn verify_stream(store: &dyn Store, stream: &StreamId) -> Result<Verified, StoreError> {
    let mut seen = Verified::default();
    match store.head(stream.clone()).await? {
        Some(head) => walk(store, stream, head, &mut seen).await?,
        None => seen.fault = Some(fault(stream, Seq(0), "there is no such stream".to_owned())),
    }
    Ok(seen)
}

fn fault(stream: &StreamId, seq: Seq, what: String) -> LogFault {
    LogFault { stream: stream.clone(), seq, what }
}

async fn walk(
    store: &dyn Store,
    stream: &StreamId,
    recorded: Head,
    seen: &mut Verified,
) -> Result<(), StoreError> {
    seen.streams += 1;
    let page = store.read(stream.clone(), Seq(0), PAGE).await?;
    let begun = match page.first().filter(|first| first.seq == Seq(1)) {
        Some(first) => begin(store, stream, first).await?,
        None => Ok((Head::EMPTY, Fold::None)),
    };
    seen.fault = match begun {
        Ok((head, fold)) => {
            let walk = Walk { store, stream, seen, head, broken: None, fold: Some(fold) };
            walk.pages(page, recorded).await?
        }
        Err(broken) => Some(broken),
    };
    Ok(())
}

/// A stream being walked, in four steps that run beside each other, each a page behind the one before it:
/// read, hashed, folded, its blobs looked for.
struct Walk<'a> {
    store: &'a dyn Store,
    stream: &'a StreamId,
    seen: &'a mut Verified,
    /// After the last event that was hashed.
    head: Head,
    /// The first event that does not follow: what stands before it is still folded, for a fault may be there.
    broken: Option<(Seq, String)>,
    /// There while no thread has it.
    fold: Option<Fold>,
}

impl Walk<'_> {
    async fn pages(mut self, first: Vec<Envelope>, recorded: Head) -> Result<Option<LogFault>, StoreError> {
        let (mut read, mut hashed, mut named) = (first, Vec::new(), Vec::new());
        while !(read.is_empty() && hashed.is_empty() && named.is_empty()) {
            self.seen.events += read.len() as u64;
            let after = read.last().filter(|_| read.len() >= PAGE as usize).map(|last| last.seq);
            let (store, head, fold) = (self.store, self.head, self.fold.take().unwrap_or(Fold::None));
            let (next, chained, absent, folded) = tokio::join!(
                async {
                    match after {
                        Some(after) => store.read(self.stream.clone(), after, PAGE).await,
                        None => Ok(Vec::new()),
                    }
                },
                beside(read, move |page| chain(head, page)),
                missing(store, named),
                {
                    let stream = self.stream.clone();
                    beside(hashed, move |page| fold.page(&stream, &page))
                },
            );
            if let Some((hash, seq)) = absent? {
                let what = format!("it names blob {hash}, which is not stored");
                return Ok(Some(fault(self.stream, seq, what)));
            }
            let folded = folded.map_err(|_| self.broke_off())?;
            if let Some((seq, what)) = folded.broken {
                return Ok(Some(fault(self.stream, seq, what)));
            }
            self.seen.blobs += folded.named.len() as u64;
            (self.fold, named) = (Some(folded.fold), folded.named);
            let chained = chained.map_err(|_| self.broke_off())?;
            (self.head, hashed) = (chained.head, chained.page);
            self.broken = self.broken.or(chained.broken);
            read = if self.broken.is_some() { Vec::new() } else { next? };
        }
        let ends = self.head.seq;
        Ok(match self.broken {
            Some((seq, what)) => Some(fault(self.stream, seq, what)),
            None if self.head != recorded => {
                let what = format!("its events end at {ends}, its head says {}", recorded.seq);
                Some(fault(self.stream, ends, what))
            }
            None => None,
        })
    }

    fn broke_off(&self) -> StoreError {
        StoreError::Corrupt { what: format!("{}: its check broke off", self.stream) }
    }
}

/// Does what takes the processor on a thread of its own, unless there is little of it.
async fn beside<T: Send + 'static>(
    page: Vec<Envelope>,
    work: impl FnOnce(Vec<Envelope>) -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    if page.len() < BESIDE_MIN {
        return Ok(work(page));
    }
    tokio::task::spawn_blocking(move || work(page)).await
}

/// A page whose events follow each other.
struct Chained {
    head: Head,
    page: Vec<Envelope>,
    /// The event after them, that does not.
    broken: Option<(Seq, String)>,
}

fn chain(mut head: Head, mut page: Vec<Envelope>) -> Chained {
    for at in 0..page.len() {
        match follow(head, &page[at]) {
            Ok(next) => head = next,
            Err(e) => {
                let broken = Some((page[at].seq, e.to_string()));
                page.truncate(at);
                return Chained { head, page, broken };
            }
        }
    }
    Chained { head, page, broken: None }
}

/// A page that was folded.
struct Folded {
    fold: Fold,
    /// Blobs that its events name, and which event each.
    named: Vec<(BlobHash, Seq)>,
    /// The first event that does not fold.
    broken: Option<(Seq, String)>,
}

/// What a stream's first event follows, and what it folds into.
async fn begin(
    store: &dyn Store,
    stream: &StreamId,
    first: &Envelope,
) -> Result<Result<(Head, Fold), LogFault>, StoreError> {
    match (stream, first.kind.as_str()) {
        (StreamId::Task(_), _) => Ok(Ok((Head::EMPTY, Fold::Task(None)))),
        (StreamId::Run(_), "RunStarted") => Ok(Ok((Head::EMPTY, Fold::Run(Box::default())))),
        (StreamId::Run(_), "Forked") => fork(store, stream, first).await,
        (StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_), _) => Ok(Ok((Head::EMPTY, Fold::None))),
    }
}

/// The parent's history up to the fork, folded, and its hash there.
async fn fork(
    store: &dyn Store,
    stream: &StreamId,
    first: &Envelope,
) -> Result<Result<(Head, Fold), LogFault>, StoreError> {
    let mut lineage: Vec<Forked> = Vec::new();
    let mut event = first.clone();
    while event.kind == "Forked" && lineage.len() < LINEAGE_MAX {
        let forked: Forked = match serde_json::from_str(event.payload.as_str()) {
            Ok(forked) => forked,
            Err(e) => return Ok(Err(fault(stream, first.seq, format!("its fork cannot be read: {e}")))),
        };
        let parent = StreamId::Run(forked.parent);
        lineage.push(forked);
        match store.read(parent.clone(), Seq(0), 1).await?.pop() {
            Some(begins) => event = begins,
            None => return Ok(Err(fault(stream, first.seq, format!("its parent {parent} has no events")))),
        }
    }
    let mut state = Box::<RunState>::default();
    let folds = event.kind == "RunStarted";
    for forked in lineage.iter().rev() {
        let shared = match shared_history(store, forked.parent, forked.seq).await? {
            events if events.last().is_some_and(|last| last.hash == forked.hash) => events,
            _ => {
                let what = format!("{} of its parent {} is not what it stands on", forked.seq, forked.parent);
                return Ok(Err(fault(stream, first.seq, what)));
            }
        };
        for event in shared.iter().filter(|_| folds) {
            if let Err(e) = state.apply_envelope(event) {
                return Ok(Err(fault(&event.stream, event.seq, describe(&e))));
            }
        }
    }
    let hash = lineage.first().map_or(first.prev_hash, |forked| forked.hash);
    let fold = if folds { Fold::Run(state) } else { Fold::None };
    Ok(Ok((Head { seq: Seq(0), hash }, fold)))
}

async fn shared_history(store: &dyn Store, run: RunId, until: Seq) -> Result<Vec<Envelope>, StoreError> {
    let mut all: Vec<Envelope> = Vec::new();
    loop {
        let after = all.last().map_or(Seq(0), |event| event.seq);
        let left = until.0.saturating_sub(after.0).min(PAGE.into());
        let page = store.read(StreamId::Run(run), after, u32::try_from(left).unwrap_or(PAGE)).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

enum Fold {
    None,
    Task(Option<Box<TaskRecord>>),
    Run(Box<RunState>),
}

impl Fold {
    fn page(mut self, stream: &StreamId, page: &[Envelope]) -> Folded {
        let (mut needed, mut named) = (Vec::new(), Vec::new());
        for event in page {
            if let Err(what) = self.apply(stream, event, &mut named) {
                return Folded { fold: self, named: needed, broken: Some((event.seq, what)) };
            }
            // A file's content may stand in its base's pack instead.
            let parts = named.drain(..).filter(|named: &Named| named.named_as != NamedAs::Content);
            needed.extend(parts.map(|named| (named.blob.hash, event.seq)));
        }
        Folded { fold: self, named: needed, broken: None }
    }

    /// Folds an event, and adds the blobs it names. Each event is decoded once: that is most of the work.
    fn apply(&mut self, stream: &StreamId, event: &Envelope, named: &mut Vec<Named>) -> Result<(), String> {
        match self {
            Self::None => {
                // What this build does not know, it does not fold either.
                named.extend(names::blobs_named(event).unwrap_or_default());
                Ok(())
            }
            Self::Run(state) => {
                let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
                    .map_err(|source| describe(&CorruptLog::Decode { seq: event.seq, source }))?;
                names::of_run(&typed, named);
                state.apply(event.into(), typed).map_err(|e| describe(&e))
            }
            Self::Task(record) => {
                let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
                    .map_err(|e| e.to_string())?;
                names::of_task(&typed, named);
                let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
                match (record.as_deref_mut(), typed, stream) {
                    (Some(record), typed, _) => record.apply(meta, typed).map_err(|e| describe(&e)),
                    (None, TaskEvent::TaskSubmitted(first), StreamId::Task(id)) => {
                        *record = Some(Box::new(TaskRecord::submitted(*id, meta, first)));
                        Ok(())
                    }
                    (None, other, _) => Err(format!("a task begins with {}", other.kind())),
                }
            }
        }
    }
}

fn describe(error: &CorruptLog) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The first event that names a blob which is not stored.
async fn missing(
    store: &dyn Store,
    named: Vec<(BlobHash, Seq)>,
) -> Result<Option<(BlobHash, Seq)>, StoreError> {
    if named.is_empty() {
        return Ok(None);
    }
    let hashes: HashSet<BlobHash> = named.iter().map(|(hash, _)| *hash).collect();
    let present = store.blobs_present(hashes.into_iter().collect()).await?;
    let present: HashSet<BlobHash> = present.into_iter().collect();
    Ok(named.into_iter().find(|(hash, _)| !present.contains(hash)))
}
