//! Models: from a conversation to the exact bytes of a request, over HTTP, and back to an answer.
//!
//! What belongs to it: the protocols (Anthropic Messages, OpenAI Chat Completions and Responses), time-outs,
//! typed errors, prices, the rule how long to wait, and the scripted model. What does not: waiting, counting
//! attempts and recording, which are the driver's. Engines may call [`render`] and [`request_hash`],
//! which are pure; only the driver may call [`ModelClient`].
//!
//! Invariants: the same request and blobs render to the same bytes; no call is repeated here; a stream
//! without a stop reason is never an answer; a key stands in no error, log line or `Debug` output.

mod answer;
mod anthropic;
mod classify;
mod client;
mod dialect;
mod error;
mod fold;
mod openai;
mod prices;
mod proof;
mod request;
mod responses;
mod retry;
mod scripted;
mod text;
mod transcript;
mod trust;

pub use crate::secret::Secret;
pub use answer::{AnswerPart, Delta, ModelAnswer, OnDelta, parse_args};
pub use client::{
    ANSWER_BYTES_MAX, ANTHROPIC_BASE_URL, BEGIN_TIME_MAX, CONNECT_TIMEOUT, ClientError, FIRST_BYTE_TIMEOUT,
    IDLE_TIMEOUT, ModelClient, OPENAI_BASE_URL, Timeouts,
};
pub use dialect::Provider;
pub use error::{ERROR_BODY_BYTES_MAX, ModelError, TimeoutKind};
pub use prices::{Listed, ModelLimits, PriceError, PriceTable, unpriced};
pub use proof::BodyHasher;
pub use request::{BlobSource, ModelRequest, RenderError, Rendered, render, request_hash};
pub use retry::{
    ATTEMPTS_CUT_MAX, ATTEMPTS_MAX, BACKOFF_BASE_MS, BACKOFF_CAP_MS, RETRY_AFTER_JITTER_MS,
    RETRY_AFTER_MAX_MS, next_delay,
};
pub use scripted::{
    AfterEnd, Attempt, DELAY_MS_MAX, Fault, FaultKind, Line, SCRIPT_BYTES_MAX, Script, ScriptError,
    ScriptedCall, ScriptedModel, Step, When, thinking_signature,
};
pub use transcript::{LEFT_OUT_MARK, ROLE_MARK, SUMMARY_MARK, Transcript};
pub use trust::can_be_listed;
pub(crate) use trust::goes_to_local_servers_alone;

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod fold_tests;
#[cfg(test)]
mod render_tests;
#[cfg(test)]
mod scripted_tests;
