//! Data read once for all lease requests of a batch.

use std::collections::{HashMap, HashSet};

use docket_schema::{
    ids::{BatchId, IncarnationId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{ConcurrencyLimit, Flow},
};

use crate::decide::FlowHead;

/// Reads shared by a batch's lease requests. Does not include the batch's own changes.
#[derive(Debug, Default)]
pub(crate) struct LeaseReads {
    pub(crate) requests: usize,
    /// Total number of leases requested.
    pub(crate) leases_wanted: usize,
    /// The requesting workers; `None` if unknown to the database.
    pub(crate) workers: HashMap<IncarnationId, Option<StoredWorker>>,
    /// Settings of queues, and batches whose budget is used up.
    pub(crate) queues: Option<(HashMap<QueueName, QueueSettings>, HashSet<BatchId>)>,
    pub(crate) heads: Option<CachedHeads>,
    /// PostgreSQL only: a choice under limits is expected, so its lock is taken first.
    pub(crate) expects_limits: bool,
    /// Running tasks, read under that lock.
    pub(crate) running: Option<Vec<RunningTask>>,
    /// Whether a choice depended on limits.
    pub(crate) depended_on_limits: bool,
    /// How long a worker counts as alive after it was last heard from, in milliseconds.
    pub(crate) lease_ms: u64,
    /// Single-task queues that a living worker claims by name.
    pub(crate) claimed_queues: Option<HashSet<QueueName>>,
}

/// A worker as stored in the database.
#[derive(Debug, Clone)]
pub(crate) struct StoredWorker {
    /// Whether a person asked it to drain.
    pub(crate) drain: bool,
    /// Number of its last request that got leases, and these leases in JSON.
    pub(crate) cached_answer: Option<(u64, String)>,
}

/// The first tasks of some flows.
#[derive(Debug)]
pub(crate) struct CachedHeads {
    pub(crate) flows: Vec<Flow>,
    pub(crate) heads: Vec<FlowHead>,
    /// Number of tasks read per flow: a flow with fewer has no more.
    pub(crate) limit: usize,
}

/// A running task, as far as limits depend on it.
#[derive(Debug, Clone)]
pub(crate) struct RunningTask {
    pub(crate) id: TaskId,
    pub(crate) flow: Flow,
    pub(crate) concurrency: Option<ConcurrencyLimit>,
    pub(crate) leased_at: Timestamp,
}
