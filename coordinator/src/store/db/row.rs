//! What the store knows of a stream, a task and a run beside the schema's own types, and how the
//! rows of the projections become those types.

use docket_schema::{
    event::{Envelope, Head, Payload, TypedEvent as _},
    ids::{
        BatchId, Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp, Turn,
    },
    task::{TaskBlockedWhy, TaskEvent, TaskRecord, TaskSubmitted},
};
use uuid::Uuid;

use super::{StoreError, conn::Row};

/// Who may append to a stream as a lease's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// It knows no leases.
    None,
    /// The holder of the stream's epoch.
    Open,
    /// Nobody until the next lease.
    Shut,
    /// Nobody, ever; nor any other.
    Closed,
}

impl Fence {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Shut => "shut",
            Self::Closed => "closed",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        [Self::None, Self::Open, Self::Shut, Self::Closed]
            .into_iter()
            .find(|fence| fence.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt { what: format!("a fence `{text}`") })
    }
}

/// A stream as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamRow {
    /// Its number in the database.
    pub(super) id: i64,
    pub(super) head: Head,
    /// When its last event was recorded: the next is not recorded before.
    pub(super) head_at: Timestamp,
    pub(super) epoch: Epoch,
    pub(super) fence: Fence,
}

/// Columns of [`stream_row`], from `at`: id, head_seq, head_hash, head_at, epoch, fence.
pub(super) const STREAM_COLUMNS: &str = "s.id, s.head_seq, s.head_hash, s.head_at, s.epoch, s.fence";

pub(super) fn stream_row(row: &mut Row, at: usize) -> Result<StreamRow, StoreError> {
    Ok(StreamRow {
        id: row.int(at)?,
        head: Head { seq: Seq(row.count(at + 1)?), hash: EventHash(row.fixed(at + 2)?) },
        head_at: Timestamp(row.int(at + 3)?),
        epoch: Epoch(row.count(at + 4)?),
        fence: Fence::parse(&row.text(at + 5)?)?,
    })
}

/// Columns of [`envelope`], stream name first.
pub(super) const EVENT_COLUMNS: &str = "s.name, e.seq, e.position, e.recorded_at, e.turn, e.epoch, e.kind, \
     e.version, e.payload, e.prev_hash, e.hash";

pub(super) fn envelope(row: &mut Row) -> Result<Envelope, StoreError> {
    let name = row.text(0)?;
    let stream: StreamId =
        name.parse().map_err(|_| StoreError::Corrupt { what: format!("a stream named `{name}`") })?;
    let place = row.shown(1);
    event_of(row, stream).map_err(|_| StoreError::Corrupt {
        what: format!("{name}: event {place} was altered (it is not in its form)"),
    })
}

fn event_of(row: &mut Row, stream: StreamId) -> Result<Envelope, StoreError> {
    Ok(Envelope {
        stream,
        seq: Seq(row.count(1)?),
        position: Position(row.count(2)?),
        recorded_at: Timestamp(row.int(3)?),
        turn: Turn(row.small(4)?),
        epoch: Epoch(row.count(5)?),
        kind: row.text(6)?,
        version: u16::try_from(row.int(7)?).unwrap_or(u16::MAX),
        payload: Payload::from_store(row.text(8)?),
        prev_hash: EventHash(row.fixed(9)?),
        hash: EventHash(row.fixed(10)?),
    })
}

/// Columns of [`task_row`]; `f` is the task's first event.
pub(super) const TASK_COLUMNS: &str = "t.id, t.seq, t.hash, t.state, t.priority, t.epoch, t.failures, \
     t.crashes, t.runs, t.run, t.last_run, t.worker, t.available_at, t.blocked_why, t.message, \
     t.submitted_at, t.ended_at, t.deadline_at, f.version, f.payload, t.waits_for, t.leased_at, \
     t.unverified, t.worker_faults";

/// How many there are of [`TASK_COLUMNS`]: where the next column of a statement stands.
pub(super) const TASK_WIDTH: usize = 24;

/// Tasks with the event that holds their specification.
pub(super) const TASK_TABLES: &str = "tasks t JOIN events f ON f.stream_id = t.stream_id AND f.seq = 1";

/// A task and the deadline of its lease.
pub(super) fn task_row(row: &mut Row) -> Result<(TaskRecord, Option<Timestamp>), StoreError> {
    let id = TaskId(Uuid::from_bytes(row.fixed(0)?));
    let corrupt = |what: &str| StoreError::Corrupt { what: format!("task {id}: {what}") };
    let version = u16::try_from(row.int(18)?).map_err(|_| corrupt("version of its first event"))?;
    let payload = row.text(19)?;
    let TaskEvent::TaskSubmitted(TaskSubmitted { mut spec, forked_from, delegated_by, .. }) =
        TaskEvent::decode("TaskSubmitted", version, &payload).map_err(|e| corrupt(&e.to_string()))?
    else {
        return Err(corrupt("its first event"));
    };
    spec.priority = i16::try_from(row.int(4)?).map_err(|_| corrupt("priority"))?;
    let run = |bytes: Option<[u8; 16]>| bytes.map(|b| RunId(Uuid::from_bytes(b)));
    let record = TaskRecord {
        id,
        seq: Seq(row.count(1)?),
        hash: EventHash(row.fixed(2)?),
        state: row.text(3)?.parse().map_err(|_| corrupt("state"))?,
        spec,
        forked_from,
        delegated_by,
        epoch: Epoch(row.count(5)?),
        failures: row.small(6)?,
        crashes: row.small(7)?,
        worker_faults: row.small(23)?,
        runs: row.small(8)?,
        run: run(row.fixed_or_null(9)?),
        last_run: run(row.fixed_or_null(10)?),
        waits_for: ids_of(&row.blob_or_null(20)?.unwrap_or_default()),
        worker: row.fixed_or_null(11)?.map(|b| IncarnationId(Uuid::from_bytes(b))),
        leased_at: row.int_or_null(21)?.map(Timestamp),
        available_at: Timestamp(row.int(12)?),
        blocked_why: row.text_or_null(13)?.map(|why| parse_blocked(&why)).transpose()?,
        message: row.text_or_null(14)?,
        unverified: row.text_or_null(22)?,
        submitted_at: Timestamp(row.int(15)?),
        ended_at: row.int_or_null(16)?.map(Timestamp),
    };
    Ok((record, row.int_or_null(17)?.map(Timestamp)))
}

/// The word of a blocked task's reason, in SQL as in JSON.
pub(super) const fn blocked_word(why: TaskBlockedWhy) -> &'static str {
    match why {
        TaskBlockedWhy::Person => "person",
        TaskBlockedWhy::Child => "child",
        TaskBlockedWhy::Paused => "paused",
        TaskBlockedWhy::Provider => "provider",
        TaskBlockedWhy::Outage => "outage",
        TaskBlockedWhy::Budget => "budget",
        TaskBlockedWhy::WorkerFault => "worker_fault",
    }
}

pub(super) fn parse_blocked(text: &str) -> Result<TaskBlockedWhy, StoreError> {
    [
        TaskBlockedWhy::Person,
        TaskBlockedWhy::Child,
        TaskBlockedWhy::Paused,
        TaskBlockedWhy::Provider,
        TaskBlockedWhy::Outage,
        TaskBlockedWhy::Budget,
        TaskBlockedWhy::WorkerFault,
    ]
    .into_iter()
    .find(|why| blocked_word(*why) == text)
    .ok_or_else(|| StoreError::Corrupt { what: format!("a task blocked by `{text}`") })
}

/// A row of the `runs` projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunRow {
    pub(super) id: RunId,
    pub(super) stream_id: i64,
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) stage: String,
    pub(super) parent: Option<(RunId, Seq)>,
    pub(super) ended_at: Option<Timestamp>,
}

/// Columns from `at`: id, stream_id, task, attempt, stage, parent, parent_seq, ended_at.
pub(super) fn run_row(row: &mut Row, at: usize) -> Result<RunRow, StoreError> {
    let parent = row.fixed_or_null(at + 5)?;
    let parent_seq = row.int_or_null(at + 6)?;
    Ok(RunRow {
        id: RunId(Uuid::from_bytes(row.fixed(at)?)),
        stream_id: row.int(at + 1)?,
        task: TaskId(Uuid::from_bytes(row.fixed(at + 2)?)),
        attempt: row.small(at + 3)?,
        stage: row.text(at + 4)?,
        parent: parent
            .zip(parent_seq)
            .map(|(run, seq)| (RunId(Uuid::from_bytes(run)), Seq(seq.unsigned_abs()))),
        ended_at: row.int_or_null(at + 7)?.map(Timestamp),
    })
}

/// Bytes of an optional batch id.
pub(super) fn batch_bytes(batch: Option<BatchId>) -> Option<Vec<u8>> {
    batch.map(|id| id.0.as_bytes().to_vec())
}

/// Ids of tasks as they stand in a column, one after the other; none for no task.
pub(super) fn ids_bytes(ids: &[TaskId]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| *id.0.as_bytes()).collect();
    (!bytes.is_empty()).then_some(bytes)
}

fn ids_of(bytes: &[u8]) -> Vec<TaskId> {
    bytes.as_chunks::<16>().0.iter().map(|id| TaskId(Uuid::from_bytes(*id))).collect()
}
