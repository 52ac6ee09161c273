//! The queue of a writer, with group commit: all waiting requests share one transaction. Bounded, so that
//! callers wait instead of filling memory.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Instant,
};

use docket_schema::ids::StreamId;
use tokio::sync::{mpsc, oneshot};

use super::{
    metrics::WriterMetrics,
    progress::WriterProgress,
    write_command::{BatchCommand, ExclusiveCommand, WriteRequest},
};

/// Most waiting requests; beyond this callers wait before they enqueue.
pub(crate) const QUEUE_CAPACITY: usize = 4096;

/// Commands per transaction; bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 1024;

/// How often the writer yields while the queue still grows.
const YIELDS_MAX: u32 = 8;

/// Executes commands on one database.
pub(crate) trait BatchCommitter: Send + 'static {
    /// Whether it blocks its thread and therefore needs a dedicated one.
    const NEEDS_THREAD: bool;

    /// Sets the progress record, on which it reports obstacles to writing.
    fn set_progress(&mut self, progress: Arc<WriterProgress>);

    /// Executes commands that may share a transaction. Afterwards each is decided, and the decisions are
    /// committed.
    fn commit_batch(&mut self, batch: &mut [BatchCommand]) -> impl Future<Output = ()> + Send;

    /// Executes a command in a separate transaction; like [`BatchCommitter::commit_batch`].
    fn commit_exclusive(&mut self, command: &mut ExclusiveCommand) -> impl Future<Output = ()> + Send;

    /// Called after a transaction, once its replies are sent, for work between two transactions.
    fn after_transaction(&mut self) {}

    /// Closes the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Returns the queue of a request among `queues`. Appends to a stream always use the same one, to keep their
/// order. So do commands on a task, but never the first unless it is the only one: while the first leases
/// tasks, leased ones are finished on another.
pub(crate) fn queue_number(request: &WriteRequest, queues: usize) -> usize {
    if let WriteRequest::BatchCommand(BatchCommand::Append(append)) = request {
        stream_queue_number(&append.command.stream, queues)
    } else if let WriteRequest::BatchCommand(BatchCommand::Task(task)) = request
        && queues > 1
    {
        1 + stream_queue_number(&StreamId::Task(task.command.task), queues - 1)
    } else {
        0
    }
}

fn stream_queue_number(stream: &StreamId, queues: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    stream.hash(&mut hasher);
    // A closed store has no queues left.
    (hasher.finish() % queues.max(1) as u64) as usize
}

/// Starts a writer. The receiver completes when the writer has ended.
pub(crate) fn start_writer<C: BatchCommitter>(
    queue: mpsc::Receiver<WriteRequest>,
    mut committer: C,
    meters: Arc<WriterMetrics>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ends, ended) = oneshot::channel::<()>();
    let progress = meters.add_writer();
    committer.set_progress(Arc::clone(&progress));
    let writer = WriterLoop { committer, metrics: meters, progress };
    if C::NEEDS_THREAD {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        std::thread::Builder::new().name("docket-writer".to_owned()).spawn(move || {
            runtime.block_on(writer.run(queue));
            drop(ends);
        })?;
    } else {
        tokio::spawn(async move {
            writer.run(queue).await;
            drop(ends);
        });
    }
    Ok(ended)
}

struct WriterLoop<C> {
    committer: C,
    metrics: Arc<WriterMetrics>,
    progress: Arc<WriterProgress>,
}

impl<C: BatchCommitter> WriterLoop<C> {
    /// Runs until every sender is gone.
    async fn run(mut self, mut queue: mpsc::Receiver<WriteRequest>) {
        let mut requests: Vec<WriteRequest> = Vec::new();
        while queue.recv_many(&mut requests, BATCH_MAX).await > 0 {
            // Requests for a writer with a dedicated thread arrive while it writes, and yielding may cost
            // more than a transaction.
            if !C::NEEDS_THREAD {
                gather_requests(&mut queue, &mut requests).await;
            }
            let mut batch: Vec<BatchCommand> = Vec::new();
            for request in requests.drain(..) {
                match request {
                    WriteRequest::BatchCommand(command) => batch.push(command),
                    WriteRequest::ExclusiveCommand(command) => {
                        self.commit_batch(std::mem::take(&mut batch)).await;
                        self.commit_exclusive(command).await;
                    }
                }
            }
            self.commit_batch(batch).await;
        }
        self.committer.close().await;
    }

    async fn commit_batch(&mut self, mut batch: Vec<BatchCommand>) {
        let Some(first) = batch.first() else { return };
        let began = Instant::now();
        self.progress.begin_transaction(first.pending().describe_operation(), batch.len());
        self.committer.commit_batch(&mut batch).await;
        self.metrics.count_batch(began, &batch);
        // The database executed at least one of them, or a decision refused it.
        let is_progress = batch.iter().any(|command| command.pending().store_error().is_none());
        batch.iter_mut().for_each(|command| command.pending_mut().send_reply());
        self.committer.after_transaction();
        self.progress.end_transaction(is_progress);
    }

    async fn commit_exclusive(&mut self, mut command: ExclusiveCommand) {
        self.progress.begin_transaction(command.pending().describe_operation(), 1);
        self.committer.commit_exclusive(&mut command).await;
        let is_progress = command.pending().store_error().is_none();
        command.pending_mut().send_reply();
        self.committer.after_transaction();
        self.progress.end_transaction(is_progress);
    }
}

/// Takes all waiting requests and gives callers that are about to send one the time to do so: a transaction
/// costs the same for one as for many.
async fn gather_requests(queue: &mut mpsc::Receiver<WriteRequest>, requests: &mut Vec<WriteRequest>) {
    for _ in 0..YIELDS_MAX {
        tokio::task::yield_now().await;
        let before = requests.len();
        while requests.len() < BATCH_MAX {
            match queue.try_recv() {
                Ok(request) => requests.push(request),
                Err(_) => break,
            }
        }
        if requests.len() == before || requests.len() >= BATCH_MAX {
            break;
        }
    }
}
