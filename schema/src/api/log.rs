//! Request and response bodies for the log: appends, pages of events, blobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::ProblemDetails;
use crate::{
    content::BlobRef,
    event::{Envelope, Head, NewEvent},
    ids::{BlobHash, Epoch, Position, RunId, Seq, StreamId, Timestamp},
};

/// `POST /v1/runs/{id}/append`: appends events to a run's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendRequest {
    /// The expected head. If the stream has more events, the append is refused and the response contains the
    /// missing ones.
    pub expected_seq: Seq,
    /// The fencing token.
    pub epoch: Epoch,
    /// The events.
    pub events: Vec<NewEvent>,
    /// Blobs to store in the same transaction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobUpload>,
    /// Previously stored blobs that the events refer to; the coordinator checks that they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<BlobHash>,
}

/// A blob uploaded in a request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobUpload {
    /// Hash and size of the uncompressed bytes; both are verified.
    pub blob: BlobRef,
    /// The bytes, base64-encoded.
    pub b64: String,
}

/// Result of a durable append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendResponse {
    /// The head after the append.
    pub head: Head,
    /// Position of the last appended event in the log.
    pub position: Position,
    /// Model providers that have a rate limit: each call to them needs a permit (`POST
    /// /v1/runs/{id}/permit`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<String>,
    /// Whether batches have budgets: each call then needs a permit before its intent is recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub budgets: bool,
}

/// `POST /v1/append`: appends to several runs in one request; each append succeeds or fails independently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendManyRequest {
    /// The appends, in order.
    pub appends: Vec<StreamAppend>,
}

/// An append to one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamAppend {
    /// The run.
    pub run: RunId,
    /// The run's bearer token.
    pub token: String,
    /// The append.
    pub append: AppendRequest,
}

/// The results of the appends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppendManyResponse {
    /// In the order of the request.
    pub results: Vec<AppendResult>,
}

/// Result of one append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppendResult {
    /// The append is durable.
    Appended(AppendResponse),
    /// The append was refused.
    Refused(Box<ProblemDetails>),
}

/// `GET /v1/runs/{id}/events?after=&limit=&lineage=` and `GET /v1/events?stream=&after=`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuery {
    /// The stream; for `/v1/events` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamId>,
    /// Returns events after this sequence number.
    pub after: Seq,
    /// Maximum number of events; [`PAGE_EVENTS_MAX`] by default and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// For a run: returns the history shared with its ancestors first. `after` must be 0, and all events are
    /// returned.
    pub lineage: bool,
}

/// `GET /v1/runs/{id}/follow?after=`: server-sent events. Each has the event's seq as `id` and its envelope
/// as `data`; an event named `end` closes the stream once the run is over. A `Last-Event-ID` header takes
/// precedence over `after`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FollowQuery {
    /// Returns events after this sequence number.
    pub after: Seq,
}

/// `POST /v1/blobs/missing`: finds out which of the given blobs must be uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingBlobsRequest {
    /// The blobs' hashes, at most [`BLOB_HASHES_MAX`].
    pub hashes: Vec<BlobHash>,
    /// The caller is about to refer to the blobs that exist: they are protected from garbage collection as if
    /// just stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// Blobs that are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlobsResponse {
    /// The missing hashes, in request order.
    pub missing: Vec<BlobHash>,
}

/// `GET /healthz` (the process responds) and `GET /readyz` (its store responds as well).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthResponse {
    /// `ok`.
    pub status: String,
    /// Clock steps that the coordinator noticed; absent if there were none, and for `/healthz`. A clock step
    /// does not make a coordinator unready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockHealth>,
}

/// Steps of the coordinator's clock (the machine's on SQLite, the database's on PostgreSQL) since the process
/// started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockHealth {
    /// Number of steps.
    pub steps: u64,
    /// The last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ClockStep>,
}

/// A jump of the clock by more or less than the time that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStep {
    /// When the step was first noticed, in the coordinator's time before the step.
    pub seen_at: Timestamp,
    /// Size of the step in milliseconds; negative if the clock was set back.
    pub by_ms: i64,
    /// State of the step.
    pub state: ClockStepState,
}

/// State of a clock step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockStepState {
    /// Noticed a few seconds ago; it takes effect if it persists.
    Watched,
    /// It persisted: the coordinator adopted the new time and extended every lease to its full duration.
    Followed,
    /// It was undone within seconds and never took effect.
    Gone,
}

/// `GET /v1/feed?after=&limit=`: the complete log, ordered by position.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FeedQuery {
    /// Returns events after this position.
    pub after: Position,
    /// Maximum number of events; [`PAGE_EVENTS_MAX`] by default and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `GET /v1/streams?after=`: all streams with their heads, ordered by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsQuery {
    /// Returns streams after this one; from the first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<StreamId>,
}

/// A stream and its head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamHead {
    /// The stream.
    pub stream: StreamId,
    /// Its last event.
    pub head: Head,
}

/// A page of streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamPage {
    /// The streams.
    pub streams: Vec<StreamHead>,
    /// Whether there may be more.
    pub more: bool,
}

/// `GET /v1/blobs/check?after=`: reads stored blobs in hash order and verifies their hashes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlobCheckQuery {
    /// Checks blobs after this one; from the first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<BlobHash>,
}

/// Result of checking a part of the stored blobs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BlobCheckResponse {
    /// Number of blobs read.
    pub checked: u64,
    /// Blobs whose bytes do not match their hash or size.
    pub damaged: Vec<BlobHash>,
    /// Blobs stored outside the database whose files are missing, with their location.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// With the first part: errors that SQLite's integrity check reports for the database file. SQLite only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<String>,
    /// Where to continue; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<BlobHash>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Envelope>,
    /// Whether there may be more.
    pub more: bool,
}
