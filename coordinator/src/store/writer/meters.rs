//! What the store's writers count, and how far a rebuild has come.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{
    ask::{Answered, Ask},
    progress::WriterProgress,
};
use crate::meter::{Histogram, HistogramView};

/// Asks of one transaction.
const BATCH_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 128, 512, 1024];

/// See the module.
#[derive(Debug)]
pub(super) struct Meters {
    appends: AtomicU64,
    commands: AtomicU64,
    leases: AtomicU64,
    failed: AtomicU64,
    batch_asks: Histogram,
    batch_times: Histogram,
    writers: Mutex<Vec<Arc<WriterProgress>>>,
}

/// What the store did since it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreMeters {
    /// Appends by holders, followers and the inbox of runs that were answered without a fault of the store.
    pub appends: u64,
    /// Commands and submits likewise.
    pub commands: u64,
    /// Leases that were granted.
    pub leases: u64,
    /// Asks that the store could not do.
    pub failed: u64,
    /// How many asks shared a transaction.
    pub batch_asks: HistogramView,
    /// How long such a transaction took, with all its tries.
    pub batch_times: HistogramView,
}

/// How far a rebuild of what is derived has come: streams looked at, and of how many; zeros before it begins.
#[derive(Debug, Default)]
pub struct Rebuilding {
    done: AtomicU64,
    streams: AtomicU64,
}

impl Rebuilding {
    /// Streams that were looked at, and how many there are.
    pub fn seen(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.streams.load(Ordering::Relaxed))
    }

    /// Also where a transaction that failed is tried again.
    pub(super) fn begins(&self, streams: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.streams.store(streams, Ordering::Relaxed);
    }

    pub(super) fn looked_at_one(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Meters {
    pub(super) fn new() -> Self {
        Self {
            appends: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            leases: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            batch_asks: Histogram::new(&BATCH_BOUNDS, 1.0),
            batch_times: Histogram::of_times(),
            writers: Mutex::default(),
        }
    }

    /// The progress of a further writer.
    pub(super) fn add_writer(&self) -> Arc<WriterProgress> {
        let progress = Arc::new(WriterProgress::default());
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&progress));
        progress
    }

    /// The progress of every writer, in the order of their lanes.
    pub(super) fn writers(&self) -> Vec<Arc<WriterProgress>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a batch that began at `began` and is answered now.
    pub(super) fn batch(&self, began: Instant, asks: &[&Ask], answers: &[Answered]) {
        self.batch_asks.add(asks.len() as u64);
        self.batch_times.add(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        for answer in answers {
            if answer.fault().is_some() {
                self.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            match answer {
                Answered::Append(_) => self.appends.fetch_add(1, Ordering::Relaxed),
                Answered::Command(_) | Answered::Submit(_) => self.commands.fetch_add(1, Ordering::Relaxed),
                Answered::Lease(Ok(leased)) => {
                    self.leases.fetch_add(leased.leases.len() as u64, Ordering::Relaxed)
                }
                Answered::Lease(Err(_))
                | Answered::Heartbeat(_)
                | Answered::PutBlobs(_)
                | Answered::TouchBlobs(_)
                | Answered::Import(_)
                | Answered::DropBlobs(_)
                | Answered::DrainWorker(_)
                | Answered::TakeInbox(_)
                | Answered::ActInbox(_)
                | Answered::Permit(_)
                | Answered::CallEnded(_)
                | Answered::Reserve(_)
                | Answered::CountBatch(_)
                | Answered::Remove(_)
                | Answered::Restore(_)
                | Answered::Term(_)
                | Answered::Secret(_)
                | Answered::Rebuild(_) => 0,
            };
        }
    }

    pub(super) fn view(&self) -> StoreMeters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StoreMeters {
            appends: of(&self.appends),
            commands: of(&self.commands),
            leases: of(&self.leases),
            failed: of(&self.failed),
            batch_asks: self.batch_asks.view(),
            batch_times: self.batch_times.view(),
        }
    }
}
