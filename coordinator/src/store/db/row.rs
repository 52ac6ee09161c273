//! How rows of the log and of the projections become typed, with the types that the schema does not have: a stream's head
//! and fence, a run's row.

use docket_schema::{
    event::{Head, TypedEvent as _},
    ids::{Epoch, EventHash, IncarnationId, RunId, Seq, TaskId, Timestamp},
    system::{Budget, Spending},
    task::{TaskBlockedWhy, TaskEvent, TaskRecord, TaskSubmitted},
};
use uuid::Uuid;

use super::values::{Arg, Row};
use crate::store::{StoreError, api::corrupt};

/// Who may append to a stream as a lease's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// The stream knows no leases.
    None,
    /// The holder of the stream's epoch.
    Open,
    /// Nobody until the next lease.
    Shut,
    /// Nobody, ever; nor any other.
    Closed,
}

impl Fence {
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
            .ok_or_else(|| corrupt(format!("a fence `{text}`")))
    }
}

/// A stream's head and fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// Its number in the database.
    pub(crate) id: i64,
    pub(crate) head: Head,
    /// When its last event was recorded: the next is not recorded before.
    pub(crate) head_at: Timestamp,
    pub(crate) epoch: Epoch,
    pub(crate) fence: Fence,
}

/// Columns of [`stream_row`], from `at`: id, head_seq, head_hash, head_at, epoch, fence.
pub(crate) const STREAM_COLUMNS: &str = "s.id, s.head_seq, s.head_hash, s.head_at, s.epoch, s.fence";

pub(crate) fn stream_row(row: &mut Row, at: usize) -> Result<StreamRow, StoreError> {
    Ok(StreamRow {
        id: row.int(at)?,
        head: Head { seq: Seq(row.count(at + 1)?), hash: EventHash(row.fixed(at + 2)?) },
        head_at: Timestamp(row.int(at + 3)?),
        epoch: Epoch(row.count(at + 4)?),
        fence: Fence::parse(&row.text(at + 5)?)?,
    })
}

/// Columns of [`task_row`]; `f` is the task's first event.
pub(crate) const TASK_COLUMNS: &str = "t.id, t.seq, t.hash, t.state, t.priority, t.epoch, t.failures, \
     t.crashes, t.runs, t.run, t.last_run, t.worker, t.available_at, t.blocked_why, t.message, \
     t.submitted_at, t.ended_at, t.deadline_at, f.version, f.payload, t.waits_for, t.leased_at, \
     t.unverified, t.worker_faults";

/// How many there are of [`TASK_COLUMNS`]: the place of a statement's next column.
pub(crate) const TASK_WIDTH: usize = 24;

/// Tasks with the event that holds their specification.
pub(crate) const TASK_TABLES: &str = "tasks t JOIN events f ON f.stream_id = t.stream_id AND f.seq = 1";

/// A task and the deadline of its lease.
pub(crate) fn task_row(row: &mut Row) -> Result<(TaskRecord, Option<Timestamp>), StoreError> {
    let id = TaskId(row.uuid(0)?);
    let corrupt = |what: &str| corrupt(format!("task {id}: {what}"));
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
pub(crate) const fn blocked_word(why: TaskBlockedWhy) -> &'static str {
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

pub(crate) fn parse_blocked(text: &str) -> Result<TaskBlockedWhy, StoreError> {
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
    .ok_or_else(|| corrupt(format!("a task blocked by `{text}`")))
}

/// A row of the `runs` projection.
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

/// Columns from `at`: id, stream_id, task, attempt, stage, parent, parent_seq, ended_at.
pub(crate) fn run_row(row: &mut Row, at: usize) -> Result<RunRow, StoreError> {
    let parent = row.fixed_or_null(at + 5)?;
    let parent_seq = row.int_or_null(at + 6)?;
    Ok(RunRow {
        id: RunId(row.uuid(at)?),
        stream_id: row.int(at + 1)?,
        task: TaskId(row.uuid(at + 2)?),
        attempt: row.small(at + 3)?,
        stage: row.text(at + 4)?,
        parent: parent
            .zip(parent_seq)
            .map(|(run, seq)| (RunId(Uuid::from_bytes(run)), Seq(seq.unsigned_abs()))),
        ended_at: row.int_or_null(at + 7)?.map(Timestamp),
    })
}

/// Ids of tasks as a column holds them, one after the other; none for no task.
pub(crate) fn ids_bytes(ids: &[TaskId]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| *id.0.as_bytes()).collect();
    (!bytes.is_empty()).then_some(bytes)
}

fn ids_of(bytes: &[u8]) -> Vec<TaskId> {
    bytes.as_chunks::<16>().0.iter().map(|id| TaskId(Uuid::from_bytes(*id))).collect()
}

/// The columns of a batch's row that the log decides: the budget, and why it is used up.
pub(crate) type BudgetRow = (Budget, Option<String>);

/// Columns from `at`: tokens_max, cost_max_nusd, spent.
pub(crate) fn budget_at(row: &mut Row, at: usize) -> Result<BudgetRow, StoreError> {
    let most = |value: Option<i64>| value.map(i64::unsigned_abs);
    let budget = Budget { tokens: most(row.int_or_null(at)?), cost_nusd: most(row.int_or_null(at + 1)?) };
    Ok((budget, row.text_or_null(at + 2)?))
}

/// Columns from `at`: tokens, cost_nusd.
pub(crate) fn spending_at(row: &Row, at: usize) -> Result<Spending, StoreError> {
    Ok(Spending { tokens: row.count(at)?, cost_nusd: row.count(at + 1)? })
}

/// A limit of a budget as its column holds it.
pub(crate) fn budget_amount(most: Option<u64>) -> Arg {
    Arg::IntOrNull(most.map(|most| i64::try_from(most).unwrap_or(i64::MAX)))
}
