//! Typed rows of the log and of the projections: a stream's head and fence, a run's row.

use docket_schema::{
    event::{Head, TypedEvent as _},
    ids::{Epoch, EventHash, IncarnationId, RunId, Seq, TaskId, Timestamp},
    system::{BatchSpending, Budget},
    task::{TaskBlockedReason, TaskEvent, TaskRecord, TaskSubmitted},
};
use uuid::Uuid;

use super::values::{SqlArg, SqlRow};
use crate::store::{StoreError, api::corrupt_error};

/// Who may append to a stream as a lease holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamFence {
    /// The stream has no leases.
    None,
    /// The holder of the stream's epoch.
    Open,
    /// No one until the next lease.
    Shut,
    /// No one ever; other appends are refused as well.
    Closed,
}

impl StreamFence {
    pub(crate) const fn as_str(self) -> &'static str {
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
            .ok_or_else(|| corrupt_error(format!("a fence `{text}`")))
    }
}

/// A stream's head and fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// Its number in the database.
    pub(crate) id: i64,
    pub(crate) head: Head,
    /// When its last event was recorded; later events are not recorded earlier.
    pub(crate) head_at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) fence: StreamFence,
}

/// Columns read by [`read_stream_row`], from `at`: id, head_seq, head_hash, head_at, epoch, fence.
pub(crate) const STREAM_COLUMNS: &str = "s.id, s.head_seq, s.head_hash, s.head_at, s.epoch, s.fence";

pub(crate) fn read_stream_row(row: &mut SqlRow, at: usize) -> Result<StreamRow, StoreError> {
    Ok(StreamRow {
        id: row.get_i64(at)?,
        head: Head { seq: Seq(row.get_u64(at + 1)?), hash: EventHash(row.get_array(at + 2)?) },
        head_at: Timestamp(row.get_i64(at + 3)?),
        epoch: Epoch(row.get_u64(at + 4)?),
        fence: StreamFence::parse(&row.get_text(at + 5)?)?,
    })
}

/// Columns read by [`read_task_row`]; `f` is the task's first event.
pub(crate) const TASK_COLUMNS: &str = "t.id, t.seq, t.hash, t.state, t.priority, t.epoch, t.failures, \
     t.crashes, t.runs, t.run, t.last_run, t.worker, t.available_at, t.blocked_why, t.message, \
     t.submitted_at, t.ended_at, t.deadline_at, f.version, f.payload, t.waits_for, t.leased_at, \
     t.unverified, t.worker_faults";

/// Number of [`TASK_COLUMNS`], which is the index of a statement's next column.
pub(crate) const TASK_COLUMN_COUNT: usize = 24;

/// Tasks joined with the event that holds their specification.
pub(crate) const TASK_TABLES: &str = "tasks t JOIN events f ON f.stream_id = t.stream_id AND f.seq = 1";

/// Reads a task and the deadline of its lease.
pub(crate) fn read_task_row(row: &mut SqlRow) -> Result<(TaskRecord, Option<Timestamp>), StoreError> {
    let id = TaskId(row.get_uuid(0)?);
    let corrupt = |what: &str| corrupt_error(format!("task {id}: {what}"));
    let version = u16::try_from(row.get_i64(18)?).map_err(|_| corrupt("version of its first event"))?;
    let payload = row.get_text(19)?;
    let TaskEvent::TaskSubmitted(TaskSubmitted { mut spec, forked_from, delegated_by, .. }) =
        TaskEvent::decode("TaskSubmitted", version, &payload).map_err(|e| corrupt(&e.to_string()))?
    else {
        return Err(corrupt("its first event"));
    };
    spec.priority = i16::try_from(row.get_i64(4)?).map_err(|_| corrupt("priority"))?;
    let run = |bytes: Option<[u8; 16]>| bytes.map(|b| RunId(Uuid::from_bytes(b)));
    let record = TaskRecord {
        id,
        seq: Seq(row.get_u64(1)?),
        hash: EventHash(row.get_array(2)?),
        state: row.get_text(3)?.parse().map_err(|_| corrupt("state"))?,
        spec,
        forked_from,
        delegated_by,
        epoch: Epoch(row.get_u64(5)?),
        failures: row.get_u32(6)?,
        crashes: row.get_u32(7)?,
        worker_faults: row.get_u32(23)?,
        runs: row.get_u32(8)?,
        run: run(row.get_array_or_null(9)?),
        last_run: run(row.get_array_or_null(10)?),
        waits_for: decode_task_ids(&row.get_blob_or_null(20)?.unwrap_or_default()),
        worker: row.get_array_or_null(11)?.map(|b| IncarnationId(Uuid::from_bytes(b))),
        leased_at: row.get_i64_or_null(21)?.map(Timestamp),
        available_at: Timestamp(row.get_i64(12)?),
        blocked_why: row.get_text_or_null(13)?.map(|why| parse_blocked_reason(&why)).transpose()?,
        message: row.get_text_or_null(14)?,
        unverified: row.get_text_or_null(22)?,
        submitted_at: Timestamp(row.get_i64(15)?),
        ended_at: row.get_i64_or_null(16)?.map(Timestamp),
    };
    Ok((record, row.get_i64_or_null(17)?.map(Timestamp)))
}

/// Returns the name of a blocked task's reason in SQL and JSON.
pub(crate) const fn blocked_reason_name(why: TaskBlockedReason) -> &'static str {
    match why {
        TaskBlockedReason::Person => "person",
        TaskBlockedReason::Child => "child",
        TaskBlockedReason::Paused => "paused",
        TaskBlockedReason::Provider => "provider",
        TaskBlockedReason::Outage => "outage",
        TaskBlockedReason::Budget => "budget",
        TaskBlockedReason::WorkerFault => "worker_fault",
    }
}

pub(crate) fn parse_blocked_reason(text: &str) -> Result<TaskBlockedReason, StoreError> {
    [
        TaskBlockedReason::Person,
        TaskBlockedReason::Child,
        TaskBlockedReason::Paused,
        TaskBlockedReason::Provider,
        TaskBlockedReason::Outage,
        TaskBlockedReason::Budget,
        TaskBlockedReason::WorkerFault,
    ]
    .into_iter()
    .find(|why| blocked_reason_name(*why) == text)
    .ok_or_else(|| corrupt_error(format!("a task blocked by `{text}`")))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRow {
    pub(crate) id: RunId,
    pub(crate) stream_id: i64,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) stage: String,
    pub(crate) parent: Option<(RunId, Seq)>,
    pub(crate) ended_at: Option<Timestamp>,
}

/// Reads columns from `at`: id, stream_id, task, attempt, stage, parent, parent_seq, ended_at.
pub(crate) fn read_run_row(row: &mut SqlRow, at: usize) -> Result<RunRow, StoreError> {
    let parent = row.get_array_or_null(at + 5)?;
    let parent_seq = row.get_i64_or_null(at + 6)?;
    Ok(RunRow {
        id: RunId(row.get_uuid(at)?),
        stream_id: row.get_i64(at + 1)?,
        task: TaskId(row.get_uuid(at + 2)?),
        attempt: row.get_u32(at + 3)?,
        stage: row.get_text(at + 4)?,
        parent: parent
            .zip(parent_seq)
            .map(|(run, seq)| (RunId(Uuid::from_bytes(run)), Seq(seq.unsigned_abs()))),
        ended_at: row.get_i64_or_null(at + 7)?.map(Timestamp),
    })
}

/// Encodes task ids for a column, one after the other; `None` if there are none.
pub(crate) fn encode_task_ids(ids: &[TaskId]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| *id.0.as_bytes()).collect();
    (!bytes.is_empty()).then_some(bytes)
}

fn decode_task_ids(bytes: &[u8]) -> Vec<TaskId> {
    bytes.as_chunks::<16>().0.iter().map(|id| TaskId(Uuid::from_bytes(*id))).collect()
}

/// The columns of a batch's row that are derived from the log: its budget, and why it is used up.
pub(crate) type BudgetRow = (Budget, Option<String>);

/// Reads columns from `at`: tokens_max, cost_max_nusd, spent.
pub(crate) fn read_budget(row: &mut SqlRow, at: usize) -> Result<BudgetRow, StoreError> {
    let most = |value: Option<i64>| value.map(i64::unsigned_abs);
    let budget =
        Budget { tokens: most(row.get_i64_or_null(at)?), cost_nusd: most(row.get_i64_or_null(at + 1)?) };
    Ok((budget, row.get_text_or_null(at + 2)?))
}

/// Reads columns from `at`: tokens, cost_nusd.
pub(crate) fn read_spending(row: &SqlRow, at: usize) -> Result<BatchSpending, StoreError> {
    Ok(BatchSpending { tokens: row.get_u64(at)?, cost_nusd: row.get_u64(at + 1)? })
}

/// Encodes a budget limit for its column.
pub(crate) fn budget_limit_arg(most: Option<u64>) -> SqlArg {
    SqlArg::IntOrNull(most.map(|most| i64::try_from(most).unwrap_or(i64::MAX)))
}
