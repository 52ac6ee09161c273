//! The hash chain over a stream's events: the hashed fields of an event, and the verification of a chain.

use super::envelope::{Envelope, EventRef, Head};
use crate::ids::{Epoch, EventHash, Seq, StreamId, Timestamp, Turn};

/// The hashed fields of an event. Borrowed, because the store hashes thousands per second.
#[derive(Debug, Clone, Copy)]
pub struct EventHashInput<'a> {
    /// Text form of the stream's id.
    pub stream: &'a str,
    /// Sequence number in the stream.
    pub seq: Seq,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The event's turn.
    pub turn: Turn,
    /// The event's epoch.
    pub epoch: Epoch,
    /// The event's name.
    pub kind: &'a str,
    /// The payload's version.
    pub version: u16,
    /// The payload's exact bytes.
    pub payload: &'a [u8],
}

impl<'a> EventHashInput<'a> {
    /// Returns the hashed fields of `event` in the stream of that name.
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
    /// Returns the hash that this event must have according to its own fields.
    pub fn compute_hash(&self) -> EventHash {
        chain_hash(
            &self.prev_hash,
            &EventHashInput::from_event(&self.as_event_ref(), &self.stream.to_string()),
        )
    }
}

/// Size of the hashed fields without the payload, in bytes: enough for most stream names and kinds.
const FIXED_FIELDS_CAPACITY: usize = 192;

/// Returns the hash of an event that follows `prev`.
///
/// BLAKE3 over `docket.event.1`, the previous hash, then each field in the order of [`EventHashInput`]:
/// integers little-endian, texts prefixed with their length (u64).
pub fn chain_hash(prev: &EventHash, event: &EventHashInput<'_>) -> EventHash {
    chain_hash_with_buffer(&mut Vec::with_capacity(FIXED_FIELDS_CAPACITY + event.payload.len()), prev, event)
}

/// Computes the same hash as [`chain_hash`] with a reusable buffer.
fn chain_hash_with_buffer(fixed: &mut Vec<u8>, prev: &EventHash, event: &EventHashInput<'_>) -> EventHash {
    // One buffer and one call: most events are one or two chunks, and setting up an incremental hasher costs
    // as much as hashing them.
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

/// A break in a chain, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// A sequence number is missing or duplicated.
    #[error("{stream}: found seq {found} instead of {expected}")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The expected sequence number.
        expected: Seq,
        /// The sequence number found.
        found: Seq,
    },
    /// An event does not follow the one before it.
    #[error("{stream}: event {seq} does not follow the event before it (its previous hash differs)")]
    Broken {
        /// The stream.
        stream: StreamId,
        /// The event that does not follow.
        seq: Seq,
    },
    /// An event's bytes do not match its hash.
    #[error("{stream}: event {seq} was altered (its content does not match its hash)")]
    Altered {
        /// The stream.
        stream: StreamId,
        /// The altered event.
        seq: Seq,
    },
}

/// Verifies a stream's chain event by event.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    stream: StreamId,
    /// The stream's name as it is hashed.
    stream_name: String,
    head: Head,
    buffer: Vec<u8>,
}

impl ChainVerifier {
    /// Starts verification after `head`.
    pub fn new(stream: StreamId, head: Head) -> Self {
        let name = stream.to_string();
        Self { stream, stream_name: name, head, buffer: Vec::new() }
    }

    /// Returns the head after the last verified event.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Verifies that `event` follows, and advances to it.
    ///
    /// # Errors
    ///
    /// [`ChainError`] for the first violation.
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

/// Verifies that `event` follows `head`, and returns the head after it.
///
/// # Errors
///
/// As for [`ChainVerifier::verify_next`].
pub fn verify_and_advance(head: Head, event: &Envelope) -> Result<Head, ChainError> {
    let mut chain = ChainVerifier::new(event.stream.clone(), head);
    chain.verify_next(&event.as_event_ref())?;
    Ok(chain.head())
}
