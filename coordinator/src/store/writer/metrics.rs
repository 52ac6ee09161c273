//! Metrics of the store's writers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{progress::WriterProgress, write_command::BatchCommand};
use crate::{metrics::Histogram, store::StoreMetrics};

/// Histogram bounds for commands per transaction.
const BATCH_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 128, 512, 1024];

#[derive(Debug)]
pub(crate) struct WriterMetrics {
    appends: AtomicU64,
    commands: AtomicU64,
    leases: AtomicU64,
    failed_requests: AtomicU64,
    batch_sizes: Histogram,
    batch_times: Histogram,
    writers: Mutex<Vec<Arc<WriterProgress>>>,
}

impl WriterMetrics {
    pub(crate) fn new() -> Self {
        Self {
            appends: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            leases: AtomicU64::new(0),
            failed_requests: AtomicU64::new(0),
            batch_sizes: Histogram::new(&BATCH_BOUNDS, 1.0),
            batch_times: Histogram::for_durations(),
            writers: Mutex::default(),
        }
    }

    /// Adds a writer and returns its progress.
    pub(crate) fn add_writer(&self) -> Arc<WriterProgress> {
        let progress = Arc::new(WriterProgress::default());
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&progress));
        progress
    }

    /// Returns the progress of every writer, in queue order.
    pub(crate) fn writers(&self) -> Vec<Arc<WriterProgress>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a batch that began at `began` and is decided now.
    pub(crate) fn count_batch(&self, began: Instant, batch: &[BatchCommand]) {
        self.batch_sizes.record(batch.len() as u64);
        self.batch_times.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        for command in batch {
            let (counter, count) = if command.pending().store_error().is_some() {
                (&self.failed_requests, 1)
            } else if let BatchCommand::Append(_) = command {
                (&self.appends, 1)
            } else if let BatchCommand::Task(_) | BatchCommand::Submit(_) = command {
                (&self.commands, 1)
            } else if let BatchCommand::Lease(lease) = command
                && let Some(Ok(leased)) = &lease.reply
            {
                (&self.leases, leased.leases.len() as u64)
            } else {
                continue;
            };
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> StoreMetrics {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StoreMetrics {
            appends: load(&self.appends),
            commands: load(&self.commands),
            leases: load(&self.leases),
            failed_requests: load(&self.failed_requests),
            batch_requests: self.batch_sizes.snapshot(),
            batch_times: self.batch_times.snapshot(),
        }
    }
}
