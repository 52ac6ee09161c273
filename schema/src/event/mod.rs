//! The envelope every event has, the hash chain over it, and how typed events become payload bytes.
//!
//! Payloads are stored and hashed as the exact bytes they were made with. Reading an old version
//! upcasts the decoded value and never the bytes.

mod chain;
mod envelope;
mod typed;

pub use chain::{Chain, ChainError, Hashed, chain_hash, follow};
pub use envelope::{
    EVENTS_PER_APPEND_MAX, Envelope, EventRef, Head, NewEvent, PAYLOAD_BYTES_MAX, Payload, hashes_named_in,
};
pub use typed::{DecodeError, TypedEvent};
pub(crate) use typed::{is_zero, typed_events};
