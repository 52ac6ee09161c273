//! `docket verify`: walks the log through the trait and names the first thing that does not hold.
//!
//! Checked per stream: the chain and its places, the head, the fork's parent, blobs that are named,
//! and that the events fold. Runs are folded where their history begins with `RunStarted`.

use std::collections::HashSet;

use docket_schema::{
    event::{Envelope, Head, TypedEvent as _, follow},
    ids::{BlobHash, RunId, Seq, StreamId},
    names::{self, NamedAs},
    run::{CorruptLog, Forked, RunState},
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};
use futures_util::StreamExt as _;
use serde::Serialize;

use super::{Store, StoreError};

/// Events, and streams, read at once.
const PAGE: u32 = 1000;

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
    /// Blobs that events name.
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
    let mut checked = Checked { head: Head::EMPTY, fold: Fold::None, named: HashSet::new(), broken: None };
    seen.streams += 1;
    let mut page = store.read(stream.clone(), Seq(0), PAGE).await?;
    if let Some(first) = page.first().filter(|first| first.seq == Seq(1)) {
        match begin(store, stream, first).await? {
            Ok((follows, begun)) => (checked.head, checked.fold) = (follows, begun),
            Err(broken) => {
                seen.fault = Some(broken);
                return Ok(());
            }
        }
    }
    while let Some(last) = page.last() {
        let (after, full) = (last.seq, page.len() >= PAGE as usize);
        seen.events += page.len() as u64;
        let of = stream.clone();
        // A page is hashed and folded on a thread of its own while the next one is read.
        let (next, done) = tokio::join!(
            async { if full { store.read(stream.clone(), after, PAGE).await } else { Ok(Vec::new()) } },
            tokio::task::spawn_blocking(move || checked.page(&of, &page)),
        );
        checked = done.map_err(|_| StoreError::Corrupt { what: format!("{stream}: its check broke off") })?;
        if let Some((seq, what)) = checked.broken.take() {
            seen.fault = Some(fault(stream, seq, what));
            return Ok(());
        }
        let named = std::mem::take(&mut checked.named);
        seen.blobs += named.len() as u64;
        if let Some((hash, seq)) = missing(store, named).await? {
            seen.fault = Some(fault(stream, seq, format!("it names blob {hash}, which is not stored")));
            return Ok(());
        }
        page = next?;
    }
    let head = checked.head;
    if head != recorded {
        let what = format!("its events end at {}, its head says {}", head.seq, recorded.seq);
        seen.fault = Some(fault(stream, head.seq, what));
    }
    Ok(())
}

/// How far a stream was checked.
struct Checked {
    head: Head,
    fold: Fold,
    /// Blobs that the page named.
    named: HashSet<(BlobHash, Seq)>,
    /// The first event that does not hold.
    broken: Option<(Seq, String)>,
}

impl Checked {
    fn page(mut self, stream: &StreamId, page: &[Envelope]) -> Self {
        for event in page {
            let step = follow(self.head, event).map_err(|e| e.to_string());
            match step.and_then(|next| self.fold.apply(stream, event).map(|()| next)) {
                Ok(next) => self.head = next,
                Err(what) => {
                    self.broken = Some((event.seq, what));
                    return self;
                }
            }
            self.named.extend(blobs_named(event).into_iter().map(|hash| (hash, event.seq)));
        }
        self
    }
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
    fn apply(&mut self, stream: &StreamId, event: &Envelope) -> Result<(), String> {
        match self {
            Self::None => Ok(()),
            Self::Run(state) => state.apply_envelope(event).map_err(|e| describe(&e)),
            Self::Task(record) => {
                let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
                    .map_err(|e| e.to_string())?;
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

async fn missing(
    store: &dyn Store,
    named: HashSet<(BlobHash, Seq)>,
) -> Result<Option<(BlobHash, Seq)>, StoreError> {
    if named.is_empty() {
        return Ok(None);
    }
    let hashes = named.iter().map(|(hash, _)| *hash).collect();
    let present: HashSet<BlobHash> = store.blobs_present(hashes).await?.into_iter().collect();
    Ok(named.into_iter().filter(|(hash, _)| !present.contains(hash)).min_by_key(|(_, seq)| *seq))
}

/// The blobs that must be stored for an event; its files may stand in its base's pack. An event of which
/// this build does not know what it names is one that it does not fold either.
fn blobs_named(event: &Envelope) -> Vec<BlobHash> {
    if !event.payload.as_str().contains("\"bytes\"") {
        return Vec::new();
    }
    let named = names::blobs_named(event).unwrap_or_default();
    named
        .into_iter()
        .filter(|named| named.named_as != NamedAs::Content)
        .map(|named| named.blob.hash)
        .collect()
}
