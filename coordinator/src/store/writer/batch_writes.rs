//! What a batch writes, as the desk collects it.

use std::collections::{BTreeMap, HashSet};

use docket_schema::{
    ids::{
        BatchId, BlobHash, Epoch, EventHash, IncarnationId, QueueName, RunId, Seq, StreamId, TaskId,
        Timestamp, Turn,
    },
    queue::QueueSettings,
    wire::Room,
};

use super::{
    ask::PackedBlob,
    budgets::BudgetRow,
    row::{RunRow, StreamRow},
};

/// An event that is about to be written.
#[derive(Debug, Clone)]
pub(super) struct StagedEvent {
    pub(super) stream_id: i64,
    pub(super) seq: Seq,
    pub(super) recorded_at: Timestamp,
    pub(super) turn: Turn,
    pub(super) epoch: Epoch,
    pub(super) kind: String,
    pub(super) version: u16,
    pub(super) payload: String,
    pub(super) prev_hash: EventHash,
    pub(super) hash: EventHash,
}

/// What a run's event does to its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunChange {
    pub(super) to: &'static str,
    /// Only where the row's stage is this one.
    pub(super) from: Option<&'static str>,
    pub(super) ended_at: Option<Timestamp>,
}

/// What becomes of a lease's deadline where its task stays running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deadline {
    Keep,
    Set(Timestamp),
}

/// Whether one task waits for another, where that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Begins,
    Ends,
}

/// What a worker says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerSeen {
    /// Empty = as before.
    pub(super) name: String,
    pub(super) at: Timestamp,
    /// A [`WorkerAbout`](docket_schema::wire::WorkerAbout) in JSON; none = as before.
    pub(super) about: Option<String>,
    /// None = as before.
    pub(super) room: Option<Room>,
}

/// A stream that goes into the archive.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) stream_id: i64,
    pub(super) stub: super::Stub,
}

/// What a batch writes.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) events: Vec<StagedEvent>,
    /// Streams that change, as they stand in the database; `None` = not yet there.
    pub(super) streams: BTreeMap<StreamId, Option<StreamRow>>,
    /// Tasks that change.
    pub(super) tasks: BTreeMap<TaskId, Deadline>,
    pub(super) new_runs: BTreeMap<RunId, RunRow>,
    pub(super) runs: BTreeMap<RunId, RunChange>,
    pub(super) deadlines: BTreeMap<TaskId, (Epoch, Timestamp)>,
    pub(super) workers: BTreeMap<IncarnationId, WorkerSeen>,
    pub(super) lease_answers: BTreeMap<IncarnationId, (u64, String)>,
    /// Queues whose settings change.
    pub(super) queues: BTreeMap<QueueName, QueueSettings>,
    /// Batches whose budgets are set, or used up.
    pub(super) budgets: BTreeMap<BatchId, BudgetRow>,
    /// Which task waits for which, and no longer: by the one that is waited for.
    pub(super) dependencies: BTreeMap<(TaskId, TaskId), Waits>,
    /// Rows of the inbox that are tasks now (`None`), or none, and why.
    pub(super) inbox: BTreeMap<String, Option<String>>,
    pub(super) blobs: BTreeMap<BlobHash, PackedBlob>,
    /// Blobs named, and so kept from garbage collection.
    pub(super) touched: HashSet<BlobHash>,
    /// Streams that go, and what stays in their place.
    pub(super) removed: Vec<Removed>,
    /// Streams whose stubs go.
    pub(super) restored: Vec<StreamId>,
    pub(super) now: Timestamp,
}

impl Staged {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.streams.is_empty()
            && self.deadlines.is_empty()
            && self.workers.is_empty()
            && self.inbox.is_empty()
            && self.blobs.is_empty()
            && self.touched.is_empty()
    }

    /// Notes for whom `task` waits now, and for whom no longer.
    pub(super) fn wait(&mut self, task: TaskId, before: &[TaskId], after: &[TaskId]) {
        let begins = after.iter().filter(|on| !before.contains(on)).map(|on| ((*on, task), Waits::Begins));
        let ends = before.iter().filter(|on| !after.contains(on)).map(|on| ((*on, task), Waits::Ends));
        self.dependencies.extend(begins.chain(ends));
    }

    /// The database still has it, until this batch is written.
    pub(super) fn removes(&self, stream: &StreamId) -> bool {
        self.removed.iter().any(|removed| removed.stub.stream == *stream)
    }

    pub(super) fn change_run(&mut self, run: RunId, change: RunChange) {
        if let Some(row) = self.new_runs.get_mut(&run) {
            if change.from.is_none_or(|from| from == row.stage) {
                row.stage = change.to.to_owned();
                row.ended_at = change.ended_at;
            }
            return;
        }
        match self.runs.get_mut(&run) {
            None => {
                self.runs.insert(run, change);
            }
            Some(before) => {
                if change.from.is_none() {
                    *before = change;
                } else if change.from == Some(before.to) {
                    before.to = change.to;
                }
            }
        }
    }
}
