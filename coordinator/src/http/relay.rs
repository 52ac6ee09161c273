//! A run's events on their way to those who follow it: read from the log once, rendered once, however many they are.
//!
//! A followed run has one reader at a coordinator. It looks when an append hints that there is something, takes page
//! by page, and puts each event, as the bytes that go out, into a ring of bounded size. A follower takes from the ring
//! what comes behind its own place. Places are seqs, which have no gaps: so it misses nothing and gets nothing twice,
//! whenever it came and however slow it is. One that the ring has left behind reads the log itself until it is within
//! the ring again (`sse.rs`); nobody waits for it. The reader ends with the last of those who follow.
//!
//! Invariants: the ring holds consecutive events; what was put in is never changed; a relay whose reader has gone says
//! so to everybody, and takes nobody new.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use docket_schema::{
    event::Envelope,
    ids::{RunId, Seq, StreamId},
    wire::RunView,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::AppState,
    clock::jittered,
    error_chain::error_chain,
    store::{Store, StoreError},
};

/// Events that a reader, or a follower that catches up, has in hand at most.
pub(super) const PAGE_EVENTS: u32 = 64;
/// Events of a ring: two pages, so that a page that comes at once leaves nobody behind who was up to date.
const RING_EVENTS: usize = 2 * PAGE_EVENTS as usize;
/// Bytes of a ring, but for a single event that has more: a few large events would otherwise weigh more than all
/// followers do.
const RING_BYTES: usize = 256 * 1024;
/// Longest time until followers see what another coordinator wrote.
const FOLLOW_POLL: Duration = Duration::from_secs(1);

/// The kind of event behind which a run's stream ends.
const ENDED: &str = "RunEnded";

/// What runs are followed here, and by how many.
pub(crate) struct Relays {
    of: Mutex<HashMap<RunId, (Arc<Relay>, usize)>>,
    tasks: TaskTracker,
}

impl Relays {
    /// Whose readers belong to `tasks`.
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        Self { of: Mutex::default(), tasks }
    }

    /// Follows the run of this view from its head on, or further back by reading the log.
    pub(super) fn join(self: &Arc<Self>, app: &Arc<AppState>, view: &RunView) -> Listener {
        let mut all = self.all();
        let relay = match all.get_mut(&view.id) {
            Some((relay, followers)) if !relay.is_broken() => {
                *followers += 1;
                Arc::clone(relay)
            }
            // None, or one whose reader has gone: those who are left with it find out by themselves.
            Some(_) | None => {
                let relay = Arc::new(Relay::of(view));
                if view.ended_at.is_none() {
                    self.tasks.spawn(read_on(Arc::clone(app), Arc::clone(&relay)));
                }
                all.insert(view.id, (Arc::clone(&relay), 1));
                relay
            }
        };
        Listener { news: relay.news.subscribe(), relay, relays: Arc::clone(self) }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<RunId, (Arc<Relay>, usize)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many runs are followed, and by how many.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.values().map(|(_, followers)| followers).sum())
    }
}

/// One followed run.
struct Relay {
    run: RunId,
    ring: Mutex<Ring>,
    /// That the ring has changed, or that who may call has.
    news: watch::Sender<()>,
    /// Cancelled when the last follower has gone.
    left: CancellationToken,
}

/// The last events of a run.
struct Ring {
    /// Of the first frame, or of the next one to come.
    first: Seq,
    frames: VecDeque<Bytes>,
    bytes: usize,
    then: Then,
}

/// What comes behind the last frame.
#[derive(Clone)]
enum Then {
    /// The next event, some time.
    More,
    /// This, and nothing more.
    End(Bytes),
    /// Nothing: nobody reads any more.
    Broken,
}

/// What a ring has behind a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Behind {
    /// The next event.
    Event(Bytes),
    /// The run's end: nothing follows these bytes.
    End(Bytes),
    /// Nothing yet.
    Nothing,
    /// The next event stands in the log alone.
    Left,
    /// Nobody reads any more.
    Broken,
}

impl Ring {
    fn next(&self) -> Seq {
        Seq(self.first.0 + self.frames.len() as u64)
    }

    fn put(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
        while self.frames.len() > RING_EVENTS || (self.bytes > RING_BYTES && self.frames.len() > 1) {
            let Some(oldest) = self.frames.pop_front() else { return };
            self.bytes -= oldest.len();
            self.first = self.first.next();
        }
    }

    fn behind(&self, place: Seq) -> Behind {
        let wanted = place.0.saturating_add(1);
        let Some(nth) = wanted.checked_sub(self.first.0) else { return Behind::Left };
        let frame = usize::try_from(nth).ok().and_then(|nth| self.frames.get(nth));
        match (frame, &self.then) {
            (Some(frame), _) => Behind::Event(frame.clone()),
            (None, Then::More) => Behind::Nothing,
            (None, Then::End(bytes)) => Behind::End(bytes.clone()),
            (None, Then::Broken) => Behind::Broken,
        }
    }
}

/// What made a reader look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Something was appended.
    Hint,
    /// It has been a while.
    Time,
}

/// What a reader found.
enum Found {
    /// A page, and there may be another.
    More,
    /// All there is for now.
    All,
    /// The run's end.
    End,
    /// The run is no more: it was archived.
    Gone,
}

impl Relay {
    fn of(view: &RunView) -> Self {
        let then = if view.ended_at.is_some() { Then::End(end(view)) } else { Then::More };
        let ring = Ring { first: view.head.seq.next(), frames: VecDeque::new(), bytes: 0, then };
        Self {
            run: view.id,
            ring: Mutex::new(ring),
            news: watch::Sender::new(()),
            left: CancellationToken::new(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        matches!(self.ring().then, Then::Broken)
    }

    fn last(&self) -> Seq {
        Seq(self.ring().next().0.saturating_sub(1))
    }

    fn then(&self, then: Then) {
        self.ring().then = then;
        self.news.send_replace(());
    }

    async fn look(&self, store: &dyn Store, by: By) -> Result<Found, StoreError> {
        if by == By::Hint {
            let page = store.read(StreamId::Run(self.run), self.last(), PAGE_EVENTS).await?;
            if !page.is_empty() {
                let frames: Vec<Bytes> = page.iter().map(frame).collect();
                {
                    let mut ring = self.ring();
                    frames.into_iter().for_each(|frame| ring.put(frame));
                }
                self.news.send_replace(());
            }
            if page.len() >= PAGE_EVENTS as usize {
                return Ok(Found::More);
            }
            if !page.is_empty() && page.iter().all(|event| event.kind != ENDED) {
                return Ok(Found::All);
            }
        }
        let Some(view) = store.run(self.run).await? else { return Ok(Found::Gone) };
        // Only where all of it is out: an event may have come between the two reads.
        if view.head.seq > self.last() {
            return Ok(if by == By::Time { Found::More } else { Found::All });
        }
        if view.ended_at.is_none() {
            return Ok(Found::All);
        }
        self.then(Then::End(end(&view)));
        Ok(Found::End)
    }
}

/// A reader at work. However it ends, nobody waits for it any longer.
struct Reading(Arc<Relay>);

impl Drop for Reading {
    fn drop(&mut self) {
        if matches!(self.0.ring().then, Then::More) {
            self.0.then(Then::Broken);
        }
    }
}

/// Reads a run for its followers until it has ended, or they have gone.
async fn read_on(app: Arc<AppState>, relay: Arc<Relay>) {
    let reading = Reading(relay);
    let relay = &reading.0;
    let watch = app.wakes.follow(relay.run);
    let mut revised = app.tokens.fold.subscribe();
    let mut by = By::Hint;
    loop {
        let grown = watch.grown();
        match relay.look(&*app.store, by).await {
            Ok(Found::More) => {
                by = By::Hint;
                continue;
            }
            Ok(Found::All) => {}
            Ok(Found::End | Found::Gone) => return,
            // Clients come back by themselves, with the last id they have.
            Err(error) => return tracing::error!(run = %relay.run, "following: {}", error_chain(&error)),
        }
        by = tokio::select! {
            () = grown => By::Hint,
            () = tokio::time::sleep(jittered(FOLLOW_POLL)) => By::Time,
            // Whoever may call no more is to learn of it now.
            Ok(()) = revised.changed() => {
                relay.news.send_replace(());
                By::Time
            }
            () = relay.left.cancelled() => return,
            () = app.shutdown.cancelled() => return,
        };
    }
}

/// A follower's part of a relay.
pub(super) struct Listener {
    relays: Arc<Relays>,
    relay: Arc<Relay>,
    news: watch::Receiver<()>,
}

impl Listener {
    /// What is behind `place`. Whatever comes after this call ends the next [`Self::changed`].
    pub(super) fn behind(&mut self, place: Seq) -> Behind {
        self.news.mark_unchanged();
        self.relay.ring().behind(place)
    }

    /// Something has changed since the last look.
    pub(super) async fn changed(&mut self) {
        // The sender is the relay's, which this holds.
        let _ = self.news.changed().await;
    }

    pub(super) fn run(&self) -> RunId {
        self.relay.run
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut all = self.relays.all();
        // A broken one may have been replaced.
        let Some((_, followers)) =
            all.get_mut(&self.relay.run).filter(|(relay, _)| Arc::ptr_eq(relay, &self.relay))
        else {
            return;
        };
        *followers -= 1;
        if *followers == 0 {
            all.remove(&self.relay.run);
            self.relay.left.cancel();
        }
    }
}

/// An event as it goes out.
pub(super) fn frame(event: &Envelope) -> Bytes {
    let head = format!("id: {}\ndata: ", event.seq);
    // What stands around a payload is some 300 bytes.
    let mut out = Vec::with_capacity(head.len() + event.payload.as_str().len() + 384);
    out.extend_from_slice(head.as_bytes());
    if let Err(error) = serde_json::to_writer(&mut out, event) {
        tracing::error!(stream = %event.stream, seq = event.seq.0, "an event cannot be written: {error}");
        out.truncate(head.len());
        out.extend_from_slice(b"null");
    }
    // A payload's text may hold line breaks where another build wrote it; to a reader they are white space between
    // tokens.
    if memchr::memchr2(b'\n', b'\r', &out[head.len()..]).is_some() {
        let json = out.split_off(head.len());
        out.truncate(head.len() - "data: ".len());
        for line in json.split(|byte| matches!(byte, b'\n' | b'\r')) {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    } else {
        out.push(b'\n');
    }
    out.push(b'\n');
    out.shrink_to_fit();
    out.into()
}

fn end(view: &RunView) -> Bytes {
    let data = serde_json::json!({ "run": view.id, "status": view.status, "seq": view.head.seq });
    format!("event: end\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(first: u64) -> Ring {
        Ring { first: Seq(first), frames: VecDeque::new(), bytes: 0, then: Then::More }
    }

    /// The frame of this seq, as long as `len`.
    fn bytes(seq: u64, len: usize) -> Bytes {
        let mut text = seq.to_string().into_bytes();
        text.resize(len, b' ');
        text.into()
    }

    #[test]
    fn a_ring_answers_each_place_with_the_event_behind_it_or_says_why_not() {
        let mut ring = ring(5);
        assert_eq!((ring.behind(Seq(3)), ring.behind(Seq(4))), (Behind::Left, Behind::Nothing));
        for seq in 5..8 {
            ring.put(bytes(seq, 8));
        }
        for (place, found) in [
            (0, Behind::Left),
            (3, Behind::Left),
            (4, Behind::Event(bytes(5, 8))),
            (6, Behind::Event(bytes(7, 8))),
            (7, Behind::Nothing),
            (400, Behind::Nothing),
            (u64::MAX, Behind::Nothing),
        ] {
            assert_eq!(ring.behind(Seq(place)), found, "{place}");
        }
        ring.then = Then::End(Bytes::from_static(b"over"));
        assert_eq!(ring.behind(Seq(6)), Behind::Event(bytes(7, 8)), "the end comes last");
        assert_eq!(ring.behind(Seq(7)), Behind::End(Bytes::from_static(b"over")));
        assert_eq!(ring.behind(Seq(400)), Behind::End(Bytes::from_static(b"over")));
        ring.then = Then::Broken;
        assert_eq!((ring.behind(Seq(6)), ring.behind(Seq(7))), (Behind::Event(bytes(7, 8)), Behind::Broken));
    }

    #[test]
    fn a_ring_is_bounded_by_events_and_by_bytes_and_keeps_the_newest() {
        for (len, kept) in [(10, RING_EVENTS), (RING_BYTES / 4, 4), (RING_BYTES * 3, 1)] {
            let mut ring = ring(1);
            let last = 3 * RING_EVENTS as u64;
            for seq in 1..=last {
                ring.put(bytes(seq, len));
                assert_eq!(ring.next(), Seq(seq + 1));
                assert_eq!(ring.bytes, ring.frames.iter().map(Bytes::len).sum::<usize>());
            }
            assert_eq!(ring.frames.len(), kept, "{len} bytes each");
            assert_eq!(ring.behind(Seq(last - 1)), Behind::Event(bytes(last, len)));
            assert_eq!(ring.behind(Seq(last - kept as u64 - 1)), Behind::Left);
        }
    }
}
