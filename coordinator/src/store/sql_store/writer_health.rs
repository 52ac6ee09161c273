//! The health of a store's writers, and its end, which does not wait for a writer that is stuck.

use std::{sync::PoisonError, time::Duration};

use super::SqlStore;
use crate::store::{
    StoreError, StoreFuture, WriterHealth, WriterStall, queries::lock_holders::find_lock_holders,
};

/// How long a store that is closed waits for its writers. What they have not committed by then was never acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

impl WriterHealth for SqlStore {
    fn writer_stall(&self) -> Option<WriterStall> {
        let queued: Vec<usize> =
            self.lock_queues().iter().map(|queue| queue.max_capacity() - queue.capacity()).collect();
        let writers = self.metrics.writers();
        let stalls = writers.iter().enumerate().filter_map(|(nth, writer)| {
            // A store that was closed has no queues left.
            writer.find_stall(queued.get(nth).copied().unwrap_or(0))
        });
        stalls.max_by_key(|stall| stall.stalled_for)
    }

    fn check_writable(&self) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(self.pool.check_writable())
    }

    fn lock_holders(&self) -> StoreFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(find_lock_holders(&self.pool))
    }
}

impl SqlStore {
    /// Ends the writers and the connections for reading, and does not wait for what is stuck.
    pub(super) async fn shut_down(&self) {
        self.lock_queues().clear();
        let writers = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let ending = async {
            for writer in writers {
                // The sender is dropped, never used.
                let _ = writer.await;
            }
            self.pool.close().await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, ending).await.is_err() {
            let why = self.writer_stall().map_or_else(String::new, |stall| format!(" ({stall})"));
            tracing::error!(
                "the store did not close within {} s and is left as it is{why}; all that was acknowledged is kept",
                CLOSE_TIMEOUT.as_secs()
            );
        }
    }
}
