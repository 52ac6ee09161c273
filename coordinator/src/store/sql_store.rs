//! The store as its callers have it, on either database: reads go to the pool, writes to the queue of a writer.
//!
//! Each part of [`Store`](super::Store) is a file of `sql_store/`, and each of its methods one line: a query, or a command
//! whose reply is waited for.

mod admin;
mod archives;
mod blob_store;
mod event_log;
mod queue_reads;
mod task_queue;
mod writer_health;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use docket_schema::ids::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    CoordinatorHints, ExternalBlobSettings, NewBlob, StoreError,
    blobs::{ExternalBlobStore, PackedBlob, pack_blobs},
    db::{DbPool, store_error},
    writer::{
        BatchCommitter, PendingCommand, WriteCommand, WriteRequest, WriterMetrics,
        write_queue::{self, QUEUE_CAPACITY},
    },
};

/// A store on SQLite or PostgreSQL.
pub struct SqlStore {
    pool: DbPool,
    /// The queues of the writers. None are left of a store that was closed.
    queues: Mutex<Vec<mpsc::Sender<WriteRequest>>>,
    /// Each ends when its writer has.
    writers: Mutex<Vec<oneshot::Receiver<()>>>,
    metrics: Arc<WriterMetrics>,
    coordinator_hints: Option<Arc<dyn CoordinatorHints>>,
    external_blobs: Option<ExternalBlobStore>,
}

impl SqlStore {
    /// Starts the writers, at least one.
    pub(super) fn start<C: BatchCommitter>(db: DbPool, committers: Vec<C>) -> Result<Self, StoreError> {
        let (mut queues, mut writers) = (Vec::new(), Vec::new());
        let meters = Arc::new(WriterMetrics::new());
        for committer in committers {
            let (queue, requests) = mpsc::channel(QUEUE_CAPACITY);
            let writer = write_queue::start_writer(requests, committer, Arc::clone(&meters))
                .map_err(|source| store_error(db.dialect(), "starting a writer", sqlx::Error::Io(source)))?;
            queues.push(queue);
            writers.push(writer);
        }
        let (queues, writers) = (Mutex::new(queues), Mutex::new(writers));
        Ok(Self { pool: db, queues, writers, metrics: meters, coordinator_hints: None, external_blobs: None })
    }

    /// With hints between coordinators.
    pub(super) fn with_hints(self, hints: Arc<dyn CoordinatorHints>) -> Self {
        Self { coordinator_hints: Some(hints), ..self }
    }

    /// With large blobs outside of the database.
    #[must_use]
    pub fn with_external_blobs(self, external: ExternalBlobSettings) -> Self {
        Self { external_blobs: Some(ExternalBlobStore::new(external)), ..self }
    }

    /// Makes rows of blobs. Large ones are external files by then, if there is a place for them.
    async fn pack_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Result<Vec<PackedBlob>, StoreError> {
        match &self.external_blobs {
            Some(external) => external.pack_blobs(self, &self.pool, blobs, now).await,
            None => pack_blobs(blobs).await,
        }
    }

    /// Sends a command to its writer and waits for the reply, which comes when the command is committed or refused.
    async fn execute_write<C: WriteCommand>(&self, command: C) -> Result<C::Done, C::Error> {
        let (request, reply) = PendingCommand::channel(command);
        match self.queue_for(&request) {
            // A writer that has ended drops the request, and with it the sender of the reply.
            Some(queue) => drop(queue.send(request).await),
            None => drop(request),
        }
        let closed = || store_error(self.pool.dialect(), C::DOING, sqlx::Error::PoolClosed);
        reply.await.unwrap_or_else(|_| Err(closed().into()))
    }

    fn queue_for(&self, request: &WriteRequest) -> Option<mpsc::Sender<WriteRequest>> {
        let queues = self.lock_queues();
        queues.get(write_queue::queue_number(request, queues.len())).cloned()
    }

    fn lock_queues(&self) -> MutexGuard<'_, Vec<mpsc::Sender<WriteRequest>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
