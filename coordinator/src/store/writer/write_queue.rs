//! The lane to a writer: a bounded queue, drained as far as it goes into one transaction.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Instant,
};

use docket_schema::ids::StreamId;
use tokio::sync::{mpsc, oneshot};

use super::{
    ask::{Answered, Ask, Job},
    meters::Meters,
    progress::{WriterProgress, is_progress},
};

/// Asks that may wait: beyond this callers wait before they ask, so that memory is bounded.
pub(super) const WAITING_MAX: usize = 4096;

/// Asks of one transaction: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 1024;

/// How often the writer lets others run while the queue still grows.
const YIELDS_MAX: u32 = 8;

/// Writes batches.
pub(super) trait Committer: Send + 'static {
    /// It blocks the thread it runs on, and so has one to itself.
    const HAS_A_THREAD: bool;

    /// Takes the record of its progress, on which it notes what keeps it from writing.
    fn report_to(&mut self, progress: Arc<WriterProgress>);

    /// Carries out asks that may share a transaction; one answer each.
    fn batch(&mut self, asks: &[&Ask]) -> impl Future<Output = Vec<Answered>> + Send;

    /// Carries out an ask that has a transaction of its own.
    fn lone(&mut self, ask: &Ask) -> impl Future<Output = Answered> + Send;

    /// After a transaction, once its answers are on their way: what must be done between two of them.
    fn between(&mut self) {}

    /// Ends.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Which of `lanes` an ask takes. Appends to a stream always take the same, for they must keep their order. Commands on a
/// task do so too, and not the first, unless it is all there is: while the first leases, what was leased is finished
/// beside it.
pub(super) fn of(ask: &Ask, lanes: usize) -> usize {
    match ask {
        Ask::Append(append) => of_stream(&append.stream, lanes),
        Ask::Command(command) if lanes > 1 => 1 + of_stream(&StreamId::Task(command.task), lanes - 1),
        _ => 0,
    }
}

fn of_stream(stream: &StreamId, lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    stream.hash(&mut hasher);
    // None are left of a store that was closed.
    (hasher.finish() % lanes.max(1) as u64) as usize
}

/// Starts the writer. The receiver ends when the writer has.
pub(super) fn start<C: Committer>(
    queue: mpsc::Receiver<Job>,
    mut committer: C,
    meters: Arc<Meters>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ends, ended) = oneshot::channel::<()>();
    let progress = meters.add_writer();
    committer.report_to(Arc::clone(&progress));
    if C::HAS_A_THREAD {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        std::thread::Builder::new().name("docket-writer".to_owned()).spawn(move || {
            runtime.block_on(run(queue, committer, (&meters, &progress)));
            drop(ends);
        })?;
    } else {
        tokio::spawn(async move {
            run(queue, committer, (&meters, &progress)).await;
            drop(ends);
        });
    }
    Ok(ended)
}

/// Runs until every sender is gone.
async fn run<C: Committer>(
    mut queue: mpsc::Receiver<Job>,
    mut committer: C,
    seen: (&Meters, &WriterProgress),
) {
    let (_, progress) = seen;
    let mut jobs: Vec<Job> = Vec::new();
    while queue.recv_many(&mut jobs, BATCH_MAX).await > 0 {
        // On a thread of its own others ask while it writes, and giving the processor away may cost
        // more than a transaction.
        if !C::HAS_A_THREAD {
            gather(&mut queue, &mut jobs).await;
        }
        let mut batch: Vec<Job> = Vec::new();
        for job in jobs.drain(..) {
            if job.ask.is_lone() {
                flush(&mut committer, &mut batch, seen).await;
                progress.begin(&[&job.ask]);
                let answer = committer.lone(&job.ask).await;
                let is_progress = is_progress(std::slice::from_ref(&answer));
                // Who asked may have gone.
                let _ = job.reply.send(answer);
                committer.between();
                progress.end(is_progress);
            } else {
                batch.push(job);
            }
        }
        flush(&mut committer, &mut batch, seen).await;
    }
    committer.close().await;
}

/// Takes what else waits, and gives those that are about to ask the time to do so: a transaction
/// costs the same for one as for many.
async fn gather(queue: &mut mpsc::Receiver<Job>, jobs: &mut Vec<Job>) {
    for _ in 0..YIELDS_MAX {
        tokio::task::yield_now().await;
        let before = jobs.len();
        while jobs.len() < BATCH_MAX {
            match queue.try_recv() {
                Ok(job) => jobs.push(job),
                Err(_) => break,
            }
        }
        if jobs.len() == before || jobs.len() >= BATCH_MAX {
            break;
        }
    }
}

async fn flush<C: Committer>(committer: &mut C, batch: &mut Vec<Job>, seen: (&Meters, &WriterProgress)) {
    let (meters, progress) = seen;
    if batch.is_empty() {
        return;
    }
    let asks: Vec<&Ask> = batch.iter().map(|job| &job.ask).collect();
    let began = Instant::now();
    progress.begin(&asks);
    let answers = committer.batch(&asks).await;
    meters.batch(began, &asks, &answers);
    let is_progress = is_progress(&answers);
    for (job, answer) in batch.drain(..).zip(answers) {
        let _ = job.reply.send(answer);
    }
    committer.between();
    progress.end(is_progress);
}
