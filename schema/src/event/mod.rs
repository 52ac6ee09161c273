//! Event envelopes, their hash chain, and the encoding of typed events as payloads.
//!
//! Payloads are stored and hashed as the exact bytes that were written. Reading an old version upcasts the
//! decoded value and never changes the bytes.

mod chain;
mod envelope;
mod typed_event;

pub use chain::{ChainError, ChainVerifier, EventHashInput, chain_hash, verify_and_advance};
pub use envelope::{
    EVENTS_PER_APPEND_MAX, Envelope, EventRef, Head, NewEvent, PAYLOAD_BYTES_MAX, Payload, find_blob_hashes,
};
pub use typed_event::{DecodeError, TypedEvent};
pub(crate) use typed_event::{is_zero, typed_events};
