//! The store implementation on both databases: reads go to the pool, writes to a writer's queue.
//!
//! Each part of [`Store`](super::Store) has a file in `sql_store/`, and each method is one line: a query, or
//! a command whose reply is awaited.

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
    /// Queues of the writers; empty once the store is closed.
    queues: Mutex<Vec<mpsc::Sender<WriteRequest>>>,
    /// Each completes when its writer has ended.
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

    /// Adds hints between coordinators.
    pub(super) fn with_hints(self, hints: Arc<dyn CoordinatorHints>) -> Self {
        Self { coordinator_hints: Some(hints), ..self }
    }

    /// Stores large blobs outside the database.
    #[must_use]
    pub fn with_external_blobs(self, external: ExternalBlobSettings) -> Self {
        Self { external_blobs: Some(ExternalBlobStore::new(external)), ..self }
    }

    /// Builds rows of blobs. Large ones are first written to external files, if configured.
    async fn pack_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Result<Vec<PackedBlob>, StoreError> {
        match &self.external_blobs {
            Some(external) => external.pack_blobs(self, &self.pool, blobs, now).await,
            None => pack_blobs(blobs).await,
        }
    }

    /// Sends a command to its writer and waits for the reply, which is sent once the command is committed or
    /// refused.
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
