//! Bodies about the log: appends, pages of events, blobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::ProblemDetails;
use crate::{
    content::BlobRef,
    event::{Envelope, Head, NewEvent},
    ids::{BlobHash, Epoch, Position, RunId, Seq, StreamId, Timestamp},
};

/// `POST /v1/runs/{id}/append`: adds events to a run's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendRequest {
    /// The head must be here, or the append is refused and answered with what is missing.
    pub expected_seq: Seq,
    /// The fencing token.
    pub epoch: Epoch,
    /// The events.
    pub events: Vec<NewEvent>,
    /// Blobs stored in the same transaction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobUpload>,
    /// Blobs the events name that were stored before: checked to exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<BlobHash>,
}

/// A blob in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobUpload {
    /// Hash and size of the uncompressed bytes: both are checked.
    pub blob: BlobRef,
    /// The bytes as base64.
    pub b64: String,
}

/// The append is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendResponse {
    /// Head after it.
    pub head: Head,
    /// Place of its last event in the whole log.
    pub position: Position,
    /// Model providers that have a limit: their calls need a permit each (`POST /v1/runs/{id}/permit`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<String>,
    /// Batches have budgets: whether one pays for a call is asked before that is announced, likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub budgets: bool,
}

/// `POST /v1/append`: appends of several runs in one request; each succeeds or fails alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendManyRequest {
    /// The appends, in order.
    pub appends: Vec<StreamAppend>,
}

/// One append of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamAppend {
    /// The run.
    pub run: RunId,
    /// The run's token.
    pub token: String,
    /// What is appended.
    pub append: AppendRequest,
}

/// What became of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppendManyResponse {
    /// In the order of the request.
    pub results: Vec<AppendResult>,
}

/// What became of one append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppendResult {
    /// It is durable.
    Appended(AppendResponse),
    /// It was refused.
    Refused(Box<ProblemDetails>),
}

/// `GET /v1/runs/{id}/events?after=&limit=&lineage=` and `GET /v1/events?stream=&after=`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuery {
    /// The stream, for `/v1/events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamId>,
    /// Events after this place.
    pub after: Seq,
    /// At most this many; [`PAGE_EVENTS_MAX`] by default and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// For a run: its parents' shared history first. `after` must be 0 then, and all is answered.
    pub lineage: bool,
}

/// `GET /v1/runs/{id}/follow?after=`: server-sent events. Each has the event's seq as `id` and its
/// envelope as `data`; one named `end` closes the stream once the run is over. A `Last-Event-ID`
/// header counts before `after`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FollowQuery {
    /// Events after this place.
    pub after: Seq,
}

/// `POST /v1/blobs/missing`: which of these are to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingBlobsRequest {
    /// At most [`BLOB_HASHES_MAX`].
    pub hashes: Vec<BlobHash>,
    /// Those that are there are about to be named by whoever asks: they are kept from garbage collection
    /// as if they had just been stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// Blobs that are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlobsResponse {
    /// In the order they were asked for.
    pub missing: Vec<BlobHash>,
}

/// `GET /healthz` (the process answers) and `GET /readyz` (its store answers as well).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthResponse {
    /// `ok`.
    pub status: String,
    /// The steps of the clock that the coordinator follows; absent where it has seen none, and from `/healthz`. A step
    /// does not make a coordinator unready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockHealth>,
}

/// Steps of the clock that a coordinator follows (its machine's on SQLite, the database's on PostgreSQL) since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockHealth {
    /// How many were seen.
    pub steps: u64,
    /// The last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ClockStep>,
}

/// A clock that showed another time than the one that had passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStep {
    /// When it was first seen, by the coordinator's time of then.
    pub seen_at: Timestamp,
    /// How far, in milliseconds; negative where the clock was set back.
    pub by_ms: i64,
    /// What came of it.
    pub state: ClockStepState,
}

/// What came of a step of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockStepState {
    /// It was seen a few seconds ago, and is followed if it holds.
    Watched,
    /// It held: the coordinator took the clock's new time, and gave every lease its whole time again.
    Followed,
    /// It was undone within seconds, and never followed.
    Gone,
}

/// `GET /v1/feed?after=&limit=`: the whole log in order of position.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FeedQuery {
    /// Events after this position.
    pub after: Position,
    /// At most this many; [`PAGE_EVENTS_MAX`] by default and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `GET /v1/streams?after=`: every stream and its head, in the order of their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsQuery {
    /// Streams after this one; all from the first without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<StreamId>,
}

/// A stream and where it ends.
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
    /// There may be more.
    pub more: bool,
}

/// `GET /v1/blobs/check?after=`: reads stored blobs in the order of their hashes and hashes them again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlobCheckQuery {
    /// Blobs after this one; all from the first without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<BlobHash>,
}

/// What a part of the stored blobs came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BlobCheckResponse {
    /// Blobs read.
    pub checked: u64,
    /// Those whose bytes do not have their hash or size.
    pub damaged: Vec<BlobHash>,
    /// Those that are kept outside of the database and whose files are gone: which, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// With the first part: what does not hold in the database's own file, in its own words. SQLite only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<String>,
    /// Where to go on; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<BlobHash>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Envelope>,
    /// There may be more.
    pub more: bool,
}
