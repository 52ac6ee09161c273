//! Model access: turns a conversation into the exact bytes of a request, sends it over HTTP, and decodes the
//! reply.
//!
//! Included: the protocols (Anthropic Messages, OpenAI Chat Completions and Responses), timeouts, typed
//! errors, prices, the retry delay rule, and the scripted model. Not included: waiting, counting attempts and
//! recording, which belong to the run loop. Engines may call [`render`] and [`request_hash`], which are pure;
//! only the run loop may call [`ModelClient`].
//!
//! Invariants: the same request and blobs render to the same bytes; no call is retried here; a stream without
//! a stop reason is never a reply; no error, log line or `Debug` output contains a key.

mod anthropic;
mod classify;
mod client;
mod error;
mod openai;
mod prices;
mod provider_protocol;
mod reply;
mod request;
mod request_hash;
mod request_transcript;
mod responses;
mod retry;
mod scripted;
mod server_allowlist;
mod stream_decoder;
mod visible_text;

pub use crate::secret::Secret;
pub use client::{
    ANTHROPIC_BASE_URL, CONNECT_TIMEOUT, FIRST_BYTE_TIMEOUT, FIRST_EVENT_TIME_MAX, IDLE_TIMEOUT, ModelClient,
    ModelClientError, ModelTimeouts, OPENAI_BASE_URL, REPLY_BYTES_MAX,
};
pub use error::{ERROR_BODY_BYTES_MAX, ModelError, TimeoutKind};
pub use prices::{ModelLimits, PriceEntry, PriceError, PriceTable, unknown_price_message};
pub use provider_protocol::ModelProvider;
pub use reply::{ModelReply, OnDelta, ReplyDelta, ReplyPart, parse_tool_args};
pub use request::{BlobSource, ModelRequest, RenderError, RenderedRequest, render, request_hash};
pub use request_hash::BodyHasher;
pub use request_transcript::{OMITTED_REPLIES_MARK, ROLE_MARK, RequestTranscript, SUMMARY_REQUEST_MARK};
pub use retry::{
    ATTEMPTS_MAX, BACKOFF_BASE_MS, BACKOFF_CAP_MS, CUT_ATTEMPTS_MAX, RETRY_AFTER_JITTER_MS,
    RETRY_AFTER_MAX_MS, next_delay,
};
pub use scripted::{
    AfterEnd, AttemptNumber, DELAY_MS_MAX, FaultKind, ModelScript, SCRIPT_BYTES_MAX, ScriptCondition,
    ScriptError, ScriptedCall, ScriptedFault, ScriptedModel, ScriptedReply, ScriptedTurn, thinking_signature,
};
pub(crate) use server_allowlist::is_key_used_only_locally;
pub use server_allowlist::is_valid_allowlist_entry;

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod render_tests;
#[cfg(test)]
mod scripted_tests;
#[cfg(test)]
mod stream_decoder_tests;
