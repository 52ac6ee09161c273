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
    BlobsOutside, CoordinatorHints, NewBlob, StoreError,
    blobs::{ExternalBlobStore, PackedBlob, pack},
    db::{Db, store_error},
    writer::{
        Committer, Meters, Request, WriteCommand, WriteRequest,
        write_queue::{self, WAITING_MAX},
    },
};

/// A store on SQLite or PostgreSQL.
pub struct SqlStore {
    db: Db,
    /// The queues of the writers. None are left of a store that was closed.
    queues: Mutex<Vec<mpsc::Sender<WriteRequest>>>,
    /// Each ends when its writer has.
    writers: Mutex<Vec<oneshot::Receiver<()>>>,
    meters: Arc<Meters>,
    hints: Option<Arc<dyn CoordinatorHints>>,
    external: Option<ExternalBlobStore>,
}

impl SqlStore {
    /// Starts the writers, at least one.
    pub(super) fn start<C: Committer>(db: Db, committers: Vec<C>) -> Result<Self, StoreError> {
        let (mut queues, mut writers) = (Vec::new(), Vec::new());
        let meters = Arc::new(Meters::new());
        for committer in committers {
            let (queue, requests) = mpsc::channel(WAITING_MAX);
            let writer = write_queue::start(requests, committer, Arc::clone(&meters))
                .map_err(|source| store_error(db.dialect(), "starting a writer", sqlx::Error::Io(source)))?;
            queues.push(queue);
            writers.push(writer);
        }
        let (queues, writers) = (Mutex::new(queues), Mutex::new(writers));
        Ok(Self { db, queues, writers, meters, hints: None, external: None })
    }

    /// With hints between coordinators.
    pub(super) fn with_hints(self, hints: Arc<dyn CoordinatorHints>) -> Self {
        Self { hints: Some(hints), ..self }
    }

    /// With large blobs outside of the database.
    #[must_use]
    pub fn with_blobs(self, external: BlobsOutside) -> Self {
        Self { external: Some(ExternalBlobStore::new(external)), ..self }
    }

    /// Makes rows of blobs. Large ones are external files by then, if there is a place for them.
    async fn pack(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Result<Vec<PackedBlob>, StoreError> {
        match &self.external {
            Some(external) => external.pack(self, &self.db, blobs, now).await,
            None => pack(blobs).await,
        }
    }

    /// Sends a command to its writer and waits for the reply, which comes when the command is committed or refused.
    async fn write<C: WriteCommand>(&self, command: C) -> Result<C::Done, C::Error> {
        let (request, reply) = Request::channel(command);
        match self.queue_for(&request) {
            // A writer that has ended drops the request, and with it the sender of the reply.
            Some(queue) => drop(queue.send(request).await),
            None => drop(request),
        }
        let closed = || store_error(self.db.dialect(), C::DOING, sqlx::Error::PoolClosed);
        reply.await.unwrap_or_else(|_| Err(closed().into()))
    }

    fn queue_for(&self, request: &WriteRequest) -> Option<mpsc::Sender<WriteRequest>> {
        let queues = self.queues();
        queues.get(write_queue::queue_number(request, queues.len())).cloned()
    }

    fn queues(&self) -> MutexGuard<'_, Vec<mpsc::Sender<WriteRequest>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
