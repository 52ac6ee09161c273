//! The envelope every event has, the hash chain over it, and how typed events become payload bytes.
//!
//! Payloads are stored and hashed as the exact bytes they were made with. Reading an old version
//! upcasts the decoded value and never the bytes.

mod chain;
mod envelope;
mod typed_event;

pub use chain::{ChainError, ChainVerifier, EventHashInput, chain_hash, verify_and_advance};
pub use envelope::{
    EVENTS_PER_APPEND_MAX, Envelope, EventRef, Head, NewEvent, PAYLOAD_BYTES_MAX, Payload, find_blob_hashes,
};
pub use typed_event::{DecodeError, TypedEvent};
pub(crate) use typed_event::{is_zero, typed_events};
