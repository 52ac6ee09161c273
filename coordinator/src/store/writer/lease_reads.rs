//! What the lease requests of a batch read once for all of them.

use std::collections::{HashMap, HashSet};

use docket_schema::{
    ids::{BatchId, IncarnationId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{ConcurrencyLimit, Flow},
};

use crate::decide::FlowHead;

/// See the module. The batch's own changes are not in it.
#[derive(Debug, Default)]
pub(crate) struct LeaseReads {
    pub(crate) requests: usize,
    /// Leases that all of them ask for together.
    pub(crate) leases_wanted: usize,
    /// Their workers; `None` = the database does not know it.
    pub(crate) workers: HashMap<IncarnationId, Option<StoredWorker>>,
    /// Settings of queues, and the batches whose budget is spent.
    pub(crate) queues: Option<(HashMap<QueueName, QueueSettings>, HashSet<BatchId>)>,
    pub(crate) heads: Option<CachedHeads>,
    /// On PostgreSQL: a choice under limits is expected, so its lock is taken before anything else.
    pub(crate) expects_limits: bool,
    /// Running tasks, read under that lock.
    pub(crate) running: Option<Vec<RunningTask>>,
    /// A choice depended on limits.
    pub(crate) depended_on_limits: bool,
    /// How long a worker counts as alive after it was last heard of.
    pub(crate) lease_ms: u64,
    /// Queues of one task that a living worker serves by name.
    pub(crate) claimed_queues: Option<HashSet<QueueName>>,
}

/// A worker as the database knows it.
#[derive(Debug, Clone)]
pub(crate) struct StoredWorker {
    /// A person wants it to take no more.
    pub(crate) drain: bool,
    /// Number of its last request that got leases, and these leases in JSON.
    pub(crate) cached_answer: Option<(u64, String)>,
}

/// The first tasks of some flows.
#[derive(Debug)]
pub(crate) struct CachedHeads {
    pub(crate) flows: Vec<Flow>,
    pub(crate) heads: Vec<FlowHead>,
    /// So many were read of each: a flow with fewer has no more.
    pub(crate) limit: usize,
}

/// A running task, as limits see it.
#[derive(Debug, Clone)]
pub(crate) struct RunningTask {
    pub(crate) id: TaskId,
    pub(crate) flow: Flow,
    pub(crate) concurrency: Option<ConcurrencyLimit>,
    pub(crate) leased_at: Timestamp,
}
