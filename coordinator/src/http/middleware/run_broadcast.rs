//! Broadcasts a run's events to its followers: read from the log once and rendered once, however
//! many followers there are.
//!
//! A followed run has one reader per coordinator. On an append hint it reads page by page and puts
//! each event, as rendered bytes, into a ring of bounded size. A follower takes the events after
//! its own position from the ring. Positions are seqs without gaps, so a follower misses nothing
//! and gets nothing twice, however slow it is. A follower that the ring has left behind reads the
//! log itself until it is within the ring again (`sse.rs`); no one waits for it. The reader ends
//! with its last follower.
//!
//! Invariants: the ring contains consecutive events; its content never changes; a broadcast whose
//! reader has ended reports that to all followers and accepts no new ones.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use docket_schema::{
    api::RunView,
    event::Envelope,
    ids::{RunId, Seq, StreamId},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::AppState,
    clock::jittered_interval,
    error_chain::error_chain,
    store::{Store, StoreError},
};

/// Maximum number of events per page, for the reader and for a follower that catches up.
pub(in crate::http) const PAGE_EVENTS: u32 = 64;
/// Events in a ring: two pages, so that a full page leaves no up-to-date follower behind.
const RING_EVENTS: usize = 2 * PAGE_EVENTS as usize;
/// Bytes in a ring, except for a single larger event. Otherwise a few large events would use more
/// memory than all followers.
const RING_BYTES: usize = 256 * 1024;
/// Longest delay until followers see what another coordinator wrote.
const FOLLOW_POLL: Duration = Duration::from_secs(1);

/// The event kind that ends a run's stream.
const END_EVENT_KIND: &str = "RunEnded";

/// The runs followed at this coordinator, and their follower counts.
pub(crate) struct RunBroadcasts {
    broadcasts: Mutex<HashMap<RunId, (Arc<RunBroadcast>, usize)>>,
    task_tracker: TaskTracker,
}

impl RunBroadcasts {
    /// Creates the registry; `tasks` owns its readers.
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        Self { broadcasts: Mutex::default(), task_tracker: tasks }
    }

    /// Follows the run from the view's head; older events are read from the log.
    pub(in crate::http) fn subscribe(self: &Arc<Self>, app: &Arc<AppState>, view: &RunView) -> RunSubscriber {
        let mut all = self.lock_broadcasts();
        let relay = match all.get_mut(&view.id) {
            Some((relay, followers)) if !relay.is_broken() => {
                *followers += 1;
                Arc::clone(relay)
            }
            // Missing, or its reader has ended: its remaining followers will notice.
            Some(_) | None => {
                let relay = Arc::new(RunBroadcast::from_view(view));
                if view.ended_at.is_none() {
                    self.task_tracker.spawn(run_reader(Arc::clone(app), Arc::clone(&relay)));
                }
                all.insert(view.id, (Arc::clone(&relay), 1));
                relay
            }
        };
        RunSubscriber { changes: relay.changes.subscribe(), broadcast: relay, broadcasts: Arc::clone(self) }
    }

    fn lock_broadcasts(&self) -> MutexGuard<'_, HashMap<RunId, (Arc<RunBroadcast>, usize)>> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of followed runs and of followers.
    #[cfg(test)]
    pub(in crate::http) fn counts(&self) -> (usize, usize) {
        let all = self.lock_broadcasts();
        (all.len(), all.values().map(|(_, followers)| followers).sum())
    }
}

/// One followed run.
struct RunBroadcast {
    run: RunId,
    ring: Mutex<FrameRing>,
    /// Notifies of a change in the ring or in access rights.
    changes: watch::Sender<()>,
    /// Cancelled when the last follower leaves.
    abandoned: CancellationToken,
}

/// The latest events of a run.
struct FrameRing {
    /// Seq of the first frame, or of the next one if the ring is empty.
    first_seq: Seq,
    frames: VecDeque<Bytes>,
    bytes: usize,
    end: RingEnd,
}

/// The state after the last frame.
#[derive(Clone)]
enum RingEnd {
    /// More events may follow.
    Open,
    /// Only this final frame follows.
    Ended(Bytes),
    /// Nothing follows, because the reader has ended.
    Broken,
}

/// The next frame after a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum NextFrame {
    /// The next event.
    Event(Bytes),
    /// The end of the run: nothing follows these bytes.
    End(Bytes),
    /// Nothing yet.
    Pending,
    /// The next event is only in the log.
    OnlyInLog,
    /// The reader has ended.
    Broken,
}

impl FrameRing {
    fn next_seq(&self) -> Seq {
        Seq(self.first_seq.0 + self.frames.len() as u64)
    }

    fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
        while self.frames.len() > RING_EVENTS || (self.bytes > RING_BYTES && self.frames.len() > 1) {
            let Some(oldest) = self.frames.pop_front() else { return };
            self.bytes -= oldest.len();
            self.first_seq = self.first_seq.next();
        }
    }

    fn frame_after(&self, place: Seq) -> NextFrame {
        let wanted = place.0.saturating_add(1);
        let Some(nth) = wanted.checked_sub(self.first_seq.0) else { return NextFrame::OnlyInLog };
        let frame = usize::try_from(nth).ok().and_then(|nth| self.frames.get(nth));
        match (frame, &self.end) {
            (Some(frame), _) => NextFrame::Event(frame.clone()),
            (None, RingEnd::Open) => NextFrame::Pending,
            (None, RingEnd::Ended(bytes)) => NextFrame::End(bytes.clone()),
            (None, RingEnd::Broken) => NextFrame::Broken,
        }
    }
}

/// Why a reader polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollTrigger {
    /// Something was appended.
    Hint,
    /// The poll interval passed.
    Timer,
}

/// The result of a poll.
enum PollOutcome {
    /// A page was read, and there may be more.
    More,
    /// Everything available was read.
    CaughtUp,
    /// The run has ended.
    End,
    /// The run was archived.
    Archived,
}

impl RunBroadcast {
    fn from_view(view: &RunView) -> Self {
        let then =
            if view.ended_at.is_some() { RingEnd::Ended(render_end_frame(view)) } else { RingEnd::Open };
        let ring =
            FrameRing { first_seq: view.head.seq.next(), frames: VecDeque::new(), bytes: 0, end: then };
        Self {
            run: view.id,
            ring: Mutex::new(ring),
            changes: watch::Sender::new(()),
            abandoned: CancellationToken::new(),
        }
    }

    fn lock_ring(&self) -> MutexGuard<'_, FrameRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        matches!(self.lock_ring().end, RingEnd::Broken)
    }

    fn last_seq(&self) -> Seq {
        Seq(self.lock_ring().next_seq().0.saturating_sub(1))
    }

    fn set_end(&self, then: RingEnd) {
        self.lock_ring().end = then;
        self.changes.send_replace(());
    }

    async fn poll_log(&self, store: &dyn Store, by: PollTrigger) -> Result<PollOutcome, StoreError> {
        if by == PollTrigger::Hint {
            let page = store.read_events(StreamId::Run(self.run), self.last_seq(), PAGE_EVENTS).await?;
            if !page.is_empty() {
                let frames: Vec<Bytes> = page.iter().map(render_event_frame).collect();
                {
                    let mut ring = self.lock_ring();
                    frames.into_iter().for_each(|frame| ring.push(frame));
                }
                self.changes.send_replace(());
            }
            if page.len() >= PAGE_EVENTS as usize {
                return Ok(PollOutcome::More);
            }
            if !page.is_empty() && page.iter().all(|event| event.kind != END_EVENT_KIND) {
                return Ok(PollOutcome::CaughtUp);
            }
        }
        let Some(view) = store.get_run(self.run).await? else { return Ok(PollOutcome::Archived) };
        // Only once everything was sent: an event may have been appended between the two reads.
        if view.head.seq > self.last_seq() {
            return Ok(if by == PollTrigger::Timer { PollOutcome::More } else { PollOutcome::CaughtUp });
        }
        if view.ended_at.is_none() {
            return Ok(PollOutcome::CaughtUp);
        }
        self.set_end(RingEnd::Ended(render_end_frame(&view)));
        Ok(PollOutcome::End)
    }
}

/// Marks the broadcast as broken when its reader ends for any reason, so that no one waits for it.
struct ReaderGuard(Arc<RunBroadcast>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        if matches!(self.0.lock_ring().end, RingEnd::Open) {
            self.0.set_end(RingEnd::Broken);
        }
    }
}

/// Reads a run for its followers until the run has ended or they have left.
async fn run_reader(app: Arc<AppState>, relay: Arc<RunBroadcast>) {
    let reading = ReaderGuard(relay);
    let relay = &reading.0;
    let watch = app.wakeups.follow_run(relay.run);
    let mut revised = app.tokens.fold.subscribe();
    let mut by = PollTrigger::Hint;
    loop {
        let grown = watch.wait_for_append();
        match relay.poll_log(&*app.store, by).await {
            Ok(PollOutcome::More) => {
                by = PollTrigger::Hint;
                continue;
            }
            Ok(PollOutcome::CaughtUp) => {}
            Ok(PollOutcome::End | PollOutcome::Archived) => return,
            // Clients reconnect with their last event ID.
            Err(error) => return tracing::error!(run = %relay.run, "following: {}", error_chain(&error)),
        }
        by = tokio::select! {
            () = grown => PollTrigger::Hint,
            () = tokio::time::sleep(jittered_interval(FOLLOW_POLL)) => PollTrigger::Timer,
            // Lets followers that lost access notice that now.
            Ok(()) = revised.changed() => {
                relay.changes.send_replace(());
                PollTrigger::Timer
            }
            () = relay.abandoned.cancelled() => return,
            () = app.shutdown.cancelled() => return,
        };
    }
}

/// A follower of a broadcast.
pub(in crate::http) struct RunSubscriber {
    broadcasts: Arc<RunBroadcasts>,
    broadcast: Arc<RunBroadcast>,
    changes: watch::Receiver<()>,
}

impl RunSubscriber {
    /// Returns the frame after `place`. Any change after this call completes the next
    /// [`Self::wait_for_change`].
    pub(in crate::http) fn next_after(&mut self, place: Seq) -> NextFrame {
        self.changes.mark_unchanged();
        self.broadcast.lock_ring().frame_after(place)
    }

    /// Waits for a change since the last call.
    pub(in crate::http) async fn wait_for_change(&mut self) {
        // The broadcast, which this holds, owns the sender.
        let _ = self.changes.changed().await;
    }

    pub(in crate::http) fn run(&self) -> RunId {
        self.broadcast.run
    }
}

impl Drop for RunSubscriber {
    fn drop(&mut self) {
        let mut all = self.broadcasts.lock_broadcasts();
        // A broken broadcast may have been replaced.
        let Some((_, followers)) =
            all.get_mut(&self.broadcast.run).filter(|(relay, _)| Arc::ptr_eq(relay, &self.broadcast))
        else {
            return;
        };
        *followers -= 1;
        if *followers == 0 {
            all.remove(&self.broadcast.run);
            self.broadcast.abandoned.cancel();
        }
    }
}

/// Renders an event as a frame.
pub(in crate::http) fn render_event_frame(event: &Envelope) -> Bytes {
    let head = format!("id: {}\ndata: ", event.seq);
    // The envelope around a payload is about 300 bytes.
    let mut out = Vec::with_capacity(head.len() + event.payload.as_str().len() + 384);
    out.extend_from_slice(head.as_bytes());
    if let Err(error) = serde_json::to_writer(&mut out, event) {
        tracing::error!(stream = %event.stream, seq = event.seq.0, "an event cannot be written: {error}");
        out.truncate(head.len());
        out.extend_from_slice(b"null");
    }
    // A payload written by another build may contain line breaks; for its reader they are white space
    // between tokens.
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

fn render_end_frame(view: &RunView) -> Bytes {
    let data = serde_json::json!({ "run": view.id, "status": view.status, "seq": view.head.seq });
    format!("event: end\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(first: u64) -> FrameRing {
        FrameRing { first_seq: Seq(first), frames: VecDeque::new(), bytes: 0, end: RingEnd::Open }
    }

    /// The frame of this seq, as long as `len`.
    fn bytes(seq: u64, len: usize) -> Bytes {
        let mut text = seq.to_string().into_bytes();
        text.resize(len, b' ');
        text.into()
    }

    #[test]
    fn ring_returns_the_event_after_each_position_or_the_reason() {
        let mut ring = ring(5);
        assert_eq!(
            (ring.frame_after(Seq(3)), ring.frame_after(Seq(4))),
            (NextFrame::OnlyInLog, NextFrame::Pending)
        );
        for seq in 5..8 {
            ring.push(bytes(seq, 8));
        }
        for (place, found) in [
            (0, NextFrame::OnlyInLog),
            (3, NextFrame::OnlyInLog),
            (4, NextFrame::Event(bytes(5, 8))),
            (6, NextFrame::Event(bytes(7, 8))),
            (7, NextFrame::Pending),
            (400, NextFrame::Pending),
            (u64::MAX, NextFrame::Pending),
        ] {
            assert_eq!(ring.frame_after(Seq(place)), found, "{place}");
        }
        ring.end = RingEnd::Ended(Bytes::from_static(b"over"));
        assert_eq!(ring.frame_after(Seq(6)), NextFrame::Event(bytes(7, 8)), "the end comes last");
        assert_eq!(ring.frame_after(Seq(7)), NextFrame::End(Bytes::from_static(b"over")));
        assert_eq!(ring.frame_after(Seq(400)), NextFrame::End(Bytes::from_static(b"over")));
        ring.end = RingEnd::Broken;
        assert_eq!(
            (ring.frame_after(Seq(6)), ring.frame_after(Seq(7))),
            (NextFrame::Event(bytes(7, 8)), NextFrame::Broken)
        );
    }

    #[test]
    fn ring_is_bounded_by_events_and_bytes_and_keeps_the_newest() {
        for (len, kept) in [(10, RING_EVENTS), (RING_BYTES / 4, 4), (RING_BYTES * 3, 1)] {
            let mut ring = ring(1);
            let last = 3 * RING_EVENTS as u64;
            for seq in 1..=last {
                ring.push(bytes(seq, len));
                assert_eq!(ring.next_seq(), Seq(seq + 1));
                assert_eq!(ring.bytes, ring.frames.iter().map(Bytes::len).sum::<usize>());
            }
            assert_eq!(ring.frames.len(), kept, "{len} bytes each");
            assert_eq!(ring.frame_after(Seq(last - 1)), NextFrame::Event(bytes(last, len)));
            assert_eq!(ring.frame_after(Seq(last - kept as u64 - 1)), NextFrame::OnlyInLog);
        }
    }
}
