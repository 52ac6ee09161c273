//! The hash chain over a stream's events: what of an event is hashed, and how a chain is followed.

use super::envelope::{Envelope, EventRef, Head};
use crate::ids::{Epoch, EventHash, Seq, StreamId, Timestamp, Turn};

/// What of an event is hashed, borrowed: the store hashes thousands a second.
#[derive(Debug, Clone, Copy)]
pub struct EventHashInput<'a> {
    /// Text form of the stream id.
    pub stream: &'a str,
    /// Place in the stream.
    pub seq: Seq,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// Its turn.
    pub turn: Turn,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its name.
    pub kind: &'a str,
    /// Its version.
    pub version: u16,
    /// Its payload's exact bytes.
    pub payload: &'a [u8],
}

impl<'a> EventHashInput<'a> {
    /// What is hashed of `event` in the stream of that name.
    fn from_event(event: &EventRef<'a>, stream: &'a str) -> Self {
        Self {
            stream,
            seq: event.seq,
            recorded_at: event.recorded_at,
            turn: event.turn,
            epoch: event.epoch,
            kind: event.kind,
            version: event.version,
            payload: event.payload.as_bytes(),
        }
    }
}

impl Envelope {
    /// The hash this event must have, from its own fields.
    pub fn compute_hash(&self) -> EventHash {
        chain_hash(
            &self.prev_hash,
            &EventHashInput::from_event(&self.as_event_ref(), &self.stream.to_string()),
        )
    }
}

/// What is hashed of an event beside its payload, in bytes: enough for most names of streams and kinds.
const FIXED_FIELDS_CAPACITY: usize = 192;

/// The hash of an event that follows `prev`.
///
/// BLAKE3 over `docket.event.1`, the previous hash, then each field in the order of [`Hashed`]:
/// integers little-endian, texts with their length (u64) before them.
pub fn chain_hash(prev: &EventHash, event: &EventHashInput<'_>) -> EventHash {
    chain_hash_with_buffer(&mut Vec::with_capacity(FIXED_FIELDS_CAPACITY + event.payload.len()), prev, event)
}

/// As [`chain_hash`], with a buffer that is used again.
fn chain_hash_with_buffer(fixed: &mut Vec<u8>, prev: &EventHash, event: &EventHashInput<'_>) -> EventHash {
    // One buffer and one call: most events are a chunk or two, and a hasher that is fed in parts costs
    // as much to set up as they cost to hash.
    fixed.clear();
    fixed.extend_from_slice(b"docket.event.1");
    fixed.extend_from_slice(&prev.0);
    push_length_prefixed(fixed, event.stream.as_bytes());
    fixed.extend_from_slice(&event.seq.0.to_le_bytes());
    fixed.extend_from_slice(&event.recorded_at.0.to_le_bytes());
    fixed.extend_from_slice(&event.turn.0.to_le_bytes());
    fixed.extend_from_slice(&event.epoch.0.to_le_bytes());
    push_length_prefixed(fixed, event.kind.as_bytes());
    fixed.extend_from_slice(&event.version.to_le_bytes());
    push_length_prefixed(fixed, event.payload);
    EventHash(*blake3::hash(fixed).as_bytes())
}

fn push_length_prefixed(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

/// A chain that does not hold, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// A place is missing or doubled.
    #[error("{stream}: seq {found} stands where {expected} belongs")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The place that belongs there.
        expected: Seq,
        /// The place found.
        found: Seq,
    },
    /// An event does not follow from the one before it.
    #[error("{stream}: event {seq} does not follow the event before it (its previous hash differs)")]
    Broken {
        /// The stream.
        stream: StreamId,
        /// The event that does not follow.
        seq: Seq,
    },
    /// An event's own bytes do not give its hash.
    #[error("{stream}: event {seq} was altered (its bytes do not give its hash)")]
    Altered {
        /// The stream.
        stream: StreamId,
        /// The altered event.
        seq: Seq,
    },
}

/// A stream's chain as it is walked.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    stream: StreamId,
    /// The stream as it is hashed.
    stream_name: String,
    head: Head,
    buffer: Vec<u8>,
}

impl ChainVerifier {
    /// A walk that goes on from `head`.
    pub fn new(stream: StreamId, head: Head) -> Self {
        let name = stream.to_string();
        Self { stream, stream_name: name, head, buffer: Vec::new() }
    }

    /// After the last event that followed.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Checks that `event` follows, and goes on to it.
    ///
    /// # Errors
    /// [`ChainError`] names the first thing that does not hold.
    pub fn verify_next(&mut self, event: &EventRef<'_>) -> Result<(), ChainError> {
        let stream = || self.stream.clone();
        if event.seq != self.head.seq.next() {
            return Err(ChainError::Gap {
                stream: stream(),
                expected: self.head.seq.next(),
                found: event.seq,
            });
        }
        if event.prev_hash != self.head.hash {
            return Err(ChainError::Broken { stream: stream(), seq: event.seq });
        }
        if chain_hash_with_buffer(
            &mut self.buffer,
            &event.prev_hash,
            &EventHashInput::from_event(event, &self.stream_name),
        ) != event.hash
        {
            return Err(ChainError::Altered { stream: stream(), seq: event.seq });
        }
        self.head = Head { seq: event.seq, hash: event.hash };
        Ok(())
    }
}

/// Checks that `event` follows `head`, and gives the head after it.
///
/// # Errors
/// As [`Chain::follow`].
pub fn verify_and_advance(head: Head, event: &Envelope) -> Result<Head, ChainError> {
    let mut chain = ChainVerifier::new(event.stream.clone(), head);
    chain.verify_next(&event.as_event_ref())?;
    Ok(chain.head())
}
