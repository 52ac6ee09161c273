//! The rows that a batch writes, as its working set collects them.

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

/// An event that is about to be written.
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

/// The change of a lease's deadline where its task stays running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineChange {
    Keep,
    Set(Timestamp),
}

/// A change of whether one task waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyChange {
    Added,
    Removed,
}

/// A worker that was heard of, and what it said of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerUpdate {
    /// Empty = as before.
    pub(crate) name: String,
    pub(crate) seen_at: Timestamp,
    /// A [`WorkerAbout`](docket_schema::wire::WorkerAbout) in JSON; none = as before.
    pub(crate) about: Option<String>,
    /// None = as before.
    pub(crate) capacity: Option<WorkerCapacity>,
}

/// A stream that goes into the archive.
#[derive(Debug)]
pub(crate) struct RemovedStream {
    pub(crate) stream_id: i64,
    pub(crate) stub: ArchiveStub,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BatchWrites {
    pub(crate) events: Vec<EventRow>,
    /// Streams that change, as the database has them; `None` = new.
    pub(crate) streams: BTreeMap<StreamId, Option<StreamRow>>,
    /// Tasks that change.
    pub(crate) tasks: BTreeMap<TaskId, DeadlineChange>,
    pub(crate) new_runs: BTreeMap<RunId, RunRow>,
    pub(crate) runs: BTreeMap<RunId, RunChange>,
    pub(crate) deadlines: BTreeMap<TaskId, (Epoch, Timestamp)>,
    pub(crate) workers: BTreeMap<IncarnationId, WorkerUpdate>,
    pub(crate) lease_answers: BTreeMap<IncarnationId, (u64, String)>,
    /// Queues whose settings change.
    pub(crate) queues: BTreeMap<QueueName, QueueSettings>,
    /// Batches whose budgets are set, or used up.
    pub(crate) budgets: BTreeMap<BatchId, BudgetRow>,
    /// Changes of which task waits for which: by the one that is waited for, then by the one that waits.
    pub(crate) dependencies: BTreeMap<(TaskId, TaskId), DependencyChange>,
    /// Rows of the inbox that are tasks now (`None`), or are refused, and why.
    pub(crate) inbox: BTreeMap<String, Option<String>>,
    pub(crate) blobs: BTreeMap<BlobHash, PackedBlob>,
    /// Blobs named, and so kept from garbage collection.
    pub(crate) touched: HashSet<BlobHash>,
    /// Streams that are archived.
    pub(crate) removed: Vec<RemovedStream>,
    /// Streams that come back, whose stubs go.
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

    /// Notes which tasks `task` waits for now, and which no longer.
    pub(crate) fn record_dependencies(&mut self, task: TaskId, before: &[TaskId], after: &[TaskId]) {
        let begins =
            after.iter().filter(|on| !before.contains(on)).map(|on| ((*on, task), DependencyChange::Added));
        let ends =
            before.iter().filter(|on| !after.contains(on)).map(|on| ((*on, task), DependencyChange::Removed));
        self.dependencies.extend(begins.chain(ends));
    }

    /// Whether the stream is removed: the database still has it until this batch is written.
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
