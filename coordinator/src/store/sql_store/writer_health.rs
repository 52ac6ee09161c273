//! Health of a store's writers, and closing a store without waiting for a stuck writer.

use std::{sync::PoisonError, time::Duration};

use super::SqlStore;
use crate::store::{
    StoreError, StoreFuture, WriterHealth, WriterStall, queries::lock_holders::find_lock_holders,
};

/// How long closing a store waits for its writers. Anything not committed after that was never acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

impl WriterHealth for SqlStore {
    fn writer_stall(&self) -> Option<WriterStall> {
        let queued: Vec<usize> =
            self.lock_queues().iter().map(|queue| queue.max_capacity() - queue.capacity()).collect();
        let writers = self.metrics.writers();
        let stalls = writers.iter().enumerate().filter_map(|(nth, writer)| {
            // A closed store has no queues left.
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
    /// Stops the writers and the readers without waiting for stuck ones.
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
                "the store did not close within {} s and was abandoned{why}; all acknowledged writes are \
                 durable",
                CLOSE_TIMEOUT.as_secs()
            );
        }
    }
}
