//! Channel of events from a reading thread to a folding thread, in reused pages of bytes. Copying an event
//! there costs a tenth of folding it; reading it a second time costs a third.

use std::{
    ops::{ControlFlow, Range},
    sync::mpsc::{self, Receiver, SyncSender},
};

use docket_schema::{
    event::EventRef,
    ids::{Epoch, EventHash, Position, Seq, Timestamp, Turn},
};

/// Minimum size of a page, in bytes; the last event may extend it.
const PAGE_BYTES: usize = 128 * 1024;
/// Most pages in transit; the reader then waits for the folding thread.
const PAGES_IN_FLIGHT: usize = 3;

/// Events stored end to end.
#[derive(Default)]
struct EventBuffer {
    text: String,
    events: Vec<EventSpan>,
}

/// Fixed-size fields of an event and the byte ranges of its strings in the page.
struct EventSpan {
    seq: Seq,
    position: Position,
    recorded_at: Timestamp,
    turn: Turn,
    epoch: Epoch,
    version: u16,
    kind: Range<usize>,
    payload: Range<usize>,
    prev_hash: EventHash,
    hash: EventHash,
}

impl EventBuffer {
    fn push_event(&mut self, event: &EventRef<'_>) {
        let from = self.text.len();
        self.text.push_str(event.kind);
        let payload = self.text.len();
        self.text.push_str(event.payload);
        self.events.push(EventSpan {
            seq: event.seq,
            position: event.position,
            recorded_at: event.recorded_at,
            turn: event.turn,
            epoch: event.epoch,
            version: event.version,
            kind: from..payload,
            payload: payload..self.text.len(),
            prev_hash: event.prev_hash,
            hash: event.hash,
        });
    }

    fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.events.iter().map(|place| EventRef {
            seq: place.seq,
            position: place.position,
            recorded_at: place.recorded_at,
            turn: place.turn,
            epoch: place.epoch,
            kind: &self.text[place.kind.clone()],
            version: place.version,
            payload: &self.text[place.payload.clone()],
            prev_hash: place.prev_hash,
            hash: place.hash,
        })
    }

    fn clear(&mut self) {
        self.text.clear();
        self.events.clear();
    }
}

/// Sending end. Dropping it sends the remaining page.
pub(super) struct EventSender {
    page: EventBuffer,
    full: SyncSender<EventBuffer>,
    empty: Receiver<EventBuffer>,
    /// The receiver wants no more events.
    closed: bool,
}

/// Receiving end.
pub(super) struct EventReceiver {
    full: Receiver<EventBuffer>,
    empty: SyncSender<EventBuffer>,
}

/// Creates both ends.
pub(super) fn event_channel() -> (EventSender, EventReceiver) {
    let (full, filled) = mpsc::sync_channel(PAGES_IN_FLIGHT);
    // One more than can be full, since one is being read.
    let (emptied, empty) = mpsc::sync_channel(PAGES_IN_FLIGHT + 1);
    (
        EventSender { page: EventBuffer::default(), full, empty, closed: false },
        EventReceiver { full: filled, empty: emptied },
    )
}

impl EventSender {
    /// Sends an event; breaks if the receiver is gone.
    pub(super) fn send_event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        if !self.closed {
            self.page.push_event(event);
            if self.page.text.len() >= PAGE_BYTES {
                self.send_page();
            }
        }
        if self.closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn send_page(&mut self) {
        let next = self.empty.try_recv().unwrap_or_default();
        self.closed = self.full.send(std::mem::replace(&mut self.page, next)).is_err();
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        if !self.closed && !self.page.events.is_empty() {
            self.send_page();
        }
    }
}

impl EventReceiver {
    /// Passes each event to `each`, in order, until it breaks or the sender is gone.
    pub(super) fn for_each_event(self, mut each: impl FnMut(&EventRef<'_>) -> ControlFlow<()>) {
        while let Ok(mut page) = self.full.recv() {
            if page.events().any(|event| each(&event).is_break()) {
                return;
            }
            page.clear();
            // The sender may be gone already.
            drop(self.empty.try_send(page));
        }
    }
}
