//! HTTP bodies, and the table of routes. Coordinator, worker and CLI share these and nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::BlobRef,
    event::{Envelope, Head, NewEvent},
    ids::{
        BatchId, BlobHash, Epoch, IncarnationId, Position, QueueName, RunId, Seq, StreamId, TaskId, Timestamp,
    },
    run::EngineRef,
    task::{TaskRecord, TaskSpec, TaskState},
};

/// Most tasks of one submit.
pub const SUBMIT_TASKS_MAX: usize = 10_000;
/// Most leases of one request.
pub const LEASE_MAX: u32 = 1000;
/// Longest a long poll waits, in milliseconds.
pub const LONG_POLL_MS_MAX: u64 = 60_000;
/// Most events of one page.
pub const PAGE_EVENTS_MAX: u32 = 1000;
/// Longest text of one `tell`, in bytes: it stands in every later request to the model.
pub const TELL_BYTES_MAX: usize = 32 * 1024;
/// Most appends of one batch.
pub const APPENDS_MAX: usize = 1024;
/// Most hashes of one `blobs/missing`.
pub const BLOB_HASHES_MAX: usize = 10_000;
/// Largest request body, in bytes. Blobs are cut to fit.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// `POST /v1/tasks`: puts tasks into the backlog, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The tasks, at most [`SUBMIT_TASKS_MAX`]. Blobs they name must be stored before.
    pub tasks: Vec<TaskSpec>,
    /// Given by the caller so that the same request sent again is accepted once: the n-th task's id
    /// is taken from here. Absent = ids are made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<TaskId>>,
}

/// What became of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitResponse {
    /// One per task, in order.
    pub tasks: Vec<Submitted>,
}

/// What became of one task of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// The task; for a duplicate, the one that was there.
    pub id: TaskId,
    /// A task with this deduplication key was there already, and not ended.
    pub duplicate: bool,
}

/// `GET /v1/tasks`: filters, all optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskQuery {
    /// State.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// Queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// At most this many; 100 by default, 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Those submitted before this one: the next page, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TaskId>,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// Give this as `before` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// `GET /v1/tasks/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// The task.
    pub task: TaskRecord,
    /// Its runs, oldest first.
    pub runs: Vec<RunView>,
    /// While it is leased: when the lease expires if nothing is heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
}

/// `GET /v1/runs/{id}`: a run as the projection knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Its task.
    pub task: TaskId,
    /// Head of its own stream.
    pub head: Head,
    /// The run whose history it shares, and up to where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// `running`, `blocked`, `paused`, `succeeded`, `failed`, `cancelled`, `superseded`, or
    /// `waiting` where no worker has it and it has not ended.
    pub status: String,
    /// Turn of its last event.
    pub turn: u32,
    /// When its first event was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Where a run's shared history ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParentRef {
    /// The parent.
    pub run: RunId,
    /// Last shared event.
    pub seq: Seq,
}

/// `POST /v1/tasks/{id}/cancel`, `…/retry`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActRequest {
    /// Why, for the log.
    pub reason: String,
}

/// `POST /v1/runs/{id}/resume`: goes on from a turn's end, as a new run of the same task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// The last turn that is kept; absent = the last one that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

/// The run that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeResponse {
    /// Its task.
    pub task: TaskId,
    /// The new run.
    pub run: RunId,
    /// Where the history it shares ends. May name an ancestor of the run that was asked for.
    pub parent: ParentRef,
    /// The turn whose end that is.
    pub turn: u32,
}

/// `POST /v1/runs/{id}/tell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TellRequest {
    /// The words. At most [`TELL_BYTES_MAX`].
    pub text: String,
}

/// The words, or the wish, stand in the run's log; its worker finds them at its next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TellResponse {
    /// Head of the run's stream after it.
    pub head: Head,
}

/// `POST /v1/lease`: asks for work; waits up to `wait_ms` for some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// Rises by one with each new request; a request sent again has the same number and gets the
    /// same answer.
    pub number: u64,
    /// The worker's name, for people.
    pub name: String,
    /// Queues it serves; empty = all.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Engines and versions it has.
    pub engines: Vec<EngineRef>,
    /// Most leases wanted, at most [`LEASE_MAX`].
    pub max: u32,
    /// How long to wait for work, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// Work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseResponse {
    /// What the worker now holds.
    pub leases: Vec<Lease>,
}

/// A task in a worker's hands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The run to begin or to go on with.
    pub run: RunId,
    /// How manieth run of the task, from 1.
    pub attempt: u32,
    /// The fencing token, borne by every write.
    pub epoch: Epoch,
    /// Bearer token that is good for this run and epoch only.
    pub token: String,
    /// How long the lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How often to send heartbeats.
    pub heartbeat_ms: u64,
    /// Head of the run's stream: empty for a run that begins.
    pub head: Head,
    /// The run has a parent whose history comes first.
    pub forked: bool,
    /// What is asked.
    pub spec: TaskSpec,
}

/// `POST /v1/heartbeat`: renews leases. Waits up to `wait_ms` for news (a cancel, a lost lease).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// What it holds.
    pub held: Vec<Held>,
    /// How long to wait for news, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// A lease a worker believes to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The epoch it was leased under.
    pub epoch: Epoch,
}

/// What became of the leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Renewed.
    pub renewed: Vec<TaskId>,
    /// Lost, each with the reason: the worker ends the run process at once.
    pub lost: Vec<LostLease>,
}

/// A lease that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLease {
    /// The task.
    pub task: TaskId,
    /// Why.
    pub why: LostWhy,
}

/// Why a lease is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LostWhy {
    /// It expired; nobody has the task yet.
    Expired,
    /// Another worker has the task under a higher epoch.
    Fenced,
    /// The task was cancelled.
    Cancelled,
    /// The task ended, blocked or was resumed elsewhere.
    Ended,
    /// No such task.
    Unknown,
}

/// A lease was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseResponse {
    /// The task's state after it.
    pub state: TaskState,
}

/// `POST /v1/tasks/{id}/release`: the supervisor gives a lease back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The epoch it was leased under.
    pub epoch: Epoch,
    /// Why.
    pub why: ReleaseReason,
}

/// Why a supervisor gives a lease back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// It drains; the run ended its turn.
    Drained,
    /// The run process died: `signal 9`, `exit 101`.
    Crashed(String),
}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendResponse {
    /// Head after it.
    pub head: Head,
    /// Place of its last event in the whole log.
    pub position: Position,
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
    Refused(Box<Problem>),
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
}

/// Blobs that are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlobsResponse {
    /// In the order they were asked for.
    pub missing: Vec<BlobHash>,
}

/// `GET /healthz` (the process answers) and `GET /readyz` (its store answers as well).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
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

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Envelope>,
    /// There may be more.
    pub more: bool,
}

/// `GET /v1/resolve/{prefix}`: ids that begin (or, where none does, end) with these digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resolved {
    /// Tasks.
    pub tasks: Vec<TaskId>,
    /// Runs.
    pub runs: Vec<RunId>,
}

/// `GET /v1/status`: what a coordinator is and how the queue stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the build.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// Tasks by state.
    pub tasks: Vec<StateCount>,
    /// Workers that hold leases or were heard of within three lease times.
    pub workers: Vec<WorkerView>,
}

/// How many tasks are in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCount {
    /// The state.
    pub state: TaskState,
    /// How many.
    pub count: u64,
}

/// A worker as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerView {
    /// Its incarnation.
    pub incarnation: IncarnationId,
    /// Its name.
    pub name: String,
    /// Leases it holds.
    pub held: u32,
    /// When it was last heard of.
    pub seen_at: Timestamp,
}

/// An error body: RFC 9457 problem details. `type` is `https://docket.dev/problems/CODE`'s CODE
/// part as a relative reference; every code has a row in `coordinator/ERRORS.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `/problems/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Stable code for programs.
    pub code: ProblemCode,
    /// What kind of thing went wrong.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What went wrong here, and what helps.
    pub detail: String,
    /// The field of the request that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `wrong_seq`: the head as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// For `wrong_seq`: the events after the expected one, at most [`PAGE_EVENTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Envelope>,
    /// For `fenced` and `lease_expired`: the epoch in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

/// The stable codes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The body or query does not have its shape, or breaks a rule.
    InvalidRequest,
    /// No token, or not one of ours.
    Unauthorized,
    /// The token is not good for this.
    Forbidden,
    /// No such task, run, blob or route.
    NotFound,
    /// A prefix that fits several ids.
    Ambiguous,
    /// The task's state does not allow it.
    WrongState,
    /// The stream's head is elsewhere; what is missing is in `missing`.
    WrongSeq,
    /// A higher epoch is in force: another worker has the task.
    Fenced,
    /// The lease expired, and nobody has the task yet: it must be leased again.
    LeaseExpired,
    /// The run or task is over.
    Ended,
    /// An event names a blob that is not stored.
    BlobMissing,
    /// A blob's bytes do not have its hash or size.
    BlobMismatch,
    /// The route exists, under another method.
    MethodNotAllowed,
    /// The body is of another content type than the route takes.
    UnsupportedMedia,
    /// A body, or a count in it, is over its limit.
    TooLarge,
    /// The store cannot take it now; nothing was written.
    Unavailable,
    /// The store is full; nothing was written.
    StorageFull,
    /// A fault of docket.
    Internal,
}

impl ProblemCode {
    /// All codes, in declaration order.
    pub const ALL: [Self; 18] = [
        Self::InvalidRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Ambiguous,
        Self::WrongState,
        Self::WrongSeq,
        Self::Fenced,
        Self::LeaseExpired,
        Self::Ended,
        Self::BlobMissing,
        Self::BlobMismatch,
        Self::MethodNotAllowed,
        Self::UnsupportedMedia,
        Self::TooLarge,
        Self::Unavailable,
        Self::StorageFull,
        Self::Internal,
    ];

    /// The code as it stands in JSON, its HTTP status, and its title.
    pub const fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, "The request is not valid"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is needed"),
            Self::Forbidden => ("forbidden", 403, "The token is not good for this"),
            Self::NotFound => ("not_found", 404, "There is no such thing"),
            Self::Ambiguous => ("ambiguous", 409, "The prefix fits several ids"),
            Self::WrongState => ("wrong_state", 409, "The task's state does not allow this"),
            Self::WrongSeq => ("wrong_seq", 409, "The stream has gone on"),
            Self::Fenced => ("fenced", 409, "Another worker has the task"),
            Self::LeaseExpired => ("lease_expired", 409, "The lease has expired"),
            Self::Ended => ("ended", 409, "It is over"),
            Self::BlobMissing => ("blob_missing", 409, "A named blob is not stored"),
            Self::BlobMismatch => ("blob_mismatch", 400, "A blob's bytes are not what its name says"),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "The route has no such method"),
            Self::UnsupportedMedia => ("unsupported_media", 415, "The body is of another content type"),
            Self::TooLarge => ("too_large", 413, "The request is too large"),
            Self::Unavailable => ("unavailable", 503, "The store cannot be reached"),
            Self::StorageFull => ("storage_full", 507, "The store is full"),
            Self::Internal => ("internal", 500, "A fault of docket"),
        }
    }

    /// A problem of this code.
    pub fn problem(self, detail: impl Into<String>) -> Problem {
        let (code, status, title) = self.row();
        Problem {
            kind: format!("/problems/{code}"),
            code: self,
            title: title.to_owned(),
            status,
            detail: detail.into(),
            field: None,
            head: None,
            missing: Vec::new(),
            epoch: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_named_once_and_reads_back() {
        for code in ProblemCode::ALL {
            let json = serde_json::to_string(&code).expect("json");
            assert_eq!(json, format!("\"{}\"", code.row().0));
            assert_eq!(serde_json::from_str::<ProblemCode>(&json).expect("reads"), code);
        }
        let names: std::collections::BTreeSet<_> = ProblemCode::ALL.iter().map(|c| c.row().0).collect();
        assert_eq!(names.len(), ProblemCode::ALL.len());
    }
}
