//! Rows that a batch writes, collected by its working set.

use std::collections::{BTreeMap, HashSet};

use docket_schema::{
    api::WorkerCapacity,
    ids::{
        BatchId, BlobHash, Epoch, EventHash, IncarnationId, QueueName, RunId, Seq, StreamId, TaskId,
        Timestamp, Turn,
    },
    queue::QueueSettings,
};

use super::event_effects::RunChange;
use crate::store::{
    ArchiveStub,
    blobs::PackedBlob,
    db::row::{BudgetRow, RunRow, StreamRow},
};

/// An event to be written.
#[derive(Debug, Clone)]
pub(crate) struct EventRow {
    pub(crate) stream_id: i64,
    pub(crate) seq: Seq,
    pub(crate) recorded_at: Timestamp,
    pub(crate) turn: Turn,
    pub(crate) epoch: Epoch,
    pub(crate) kind: String,
    pub(crate) version: u16,
    pub(crate) payload: String,
    pub(crate) prev_hash: EventHash,
    pub(crate) hash: EventHash,
}

/// Change of a lease's deadline while its task stays running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineChange {
    Keep,
    Set(Timestamp),
}

/// Start or end of a dependency between two tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyChange {
    Added,
    Removed,
}

/// A worker that was heard from, and what it reported about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerUpdate {
    /// Empty if unchanged.
    pub(crate) name: String,
    pub(crate) seen_at: Timestamp,
    /// A [`WorkerAbout`](docket_schema::api::WorkerAbout) in JSON; `None` if unchanged.
    pub(crate) about: Option<String>,
    /// `None` if unchanged.
    pub(crate) capacity: Option<WorkerCapacity>,
}

/// A stream that is being archived.
#[derive(Debug)]
pub(crate) struct RemovedStream {
    pub(crate) stream_id: i64,
    pub(crate) stub: ArchiveStub,
}

/// The rows of a batch; see the module.
#[derive(Debug, Default)]
pub(crate) struct BatchWrites {
    pub(crate) events: Vec<EventRow>,
    /// Changed streams as stored in the database; `None` for new ones.
    pub(crate) streams: BTreeMap<StreamId, Option<StreamRow>>,
    /// Changed tasks.
    pub(crate) tasks: BTreeMap<TaskId, DeadlineChange>,
    pub(crate) new_runs: BTreeMap<RunId, RunRow>,
    pub(crate) runs: BTreeMap<RunId, RunChange>,
    pub(crate) deadlines: BTreeMap<TaskId, (Epoch, Timestamp)>,
    pub(crate) workers: BTreeMap<IncarnationId, WorkerUpdate>,
    pub(crate) lease_answers: BTreeMap<IncarnationId, (u64, String)>,
    /// Queues with changed settings.
    pub(crate) queues: BTreeMap<QueueName, QueueSettings>,
    /// Batches whose budget was set or used up.
    pub(crate) budgets: BTreeMap<BatchId, BudgetRow>,
    /// Changed dependencies, by dependency and then by dependent.
    pub(crate) dependencies: BTreeMap<(TaskId, TaskId), DependencyChange>,
    /// Rows of the inbox that became tasks (`None`), or the reason of their rejection.
    pub(crate) inbox: BTreeMap<String, Option<String>>,
    pub(crate) blobs: BTreeMap<BlobHash, PackedBlob>,
    /// Referenced blobs, which are thereby protected from garbage collection.
    pub(crate) touched: HashSet<BlobHash>,
    /// Archived streams.
    pub(crate) removed: Vec<RemovedStream>,
    /// Restored streams, whose stubs are deleted.
    pub(crate) restored: Vec<StreamId>,
    pub(crate) now: Timestamp,
}

impl BatchWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.streams.is_empty()
            && self.deadlines.is_empty()
            && self.workers.is_empty()
            && self.inbox.is_empty()
            && self.blobs.is_empty()
            && self.touched.is_empty()
    }

    /// Records which dependencies `task` gains and loses.
    pub(crate) fn record_dependencies(&mut self, task: TaskId, before: &[TaskId], after: &[TaskId]) {
        let begins =
            after.iter().filter(|on| !before.contains(on)).map(|on| ((*on, task), DependencyChange::Added));
        let ends =
            before.iter().filter(|on| !after.contains(on)).map(|on| ((*on, task), DependencyChange::Removed));
        self.dependencies.extend(begins.chain(ends));
    }

    /// Whether the stream is removed by this batch; the database has it until the batch is written.
    pub(crate) fn is_removed(&self, stream: &StreamId) -> bool {
        self.removed.iter().any(|removed| removed.stub.stream == *stream)
    }

    pub(crate) fn change_run(&mut self, run: RunId, change: RunChange) {
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
