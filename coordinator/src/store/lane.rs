//! The lane to the writer: a bounded queue, drained as far as it goes into one transaction.

use tokio::sync::mpsc;

use super::ask::{Answered, Ask, Job};

/// Asks that may wait: beyond this callers wait before they ask, so that memory is bounded.
pub(super) const WAITING_MAX: usize = 4096;

/// Asks of one transaction: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 1024;

/// How often the writer lets others run while the queue still grows.
const YIELDS_MAX: u32 = 8;

/// Writes batches.
pub(super) trait Committer: Send + 'static {
    /// Carries out asks that may share a transaction; one answer each.
    fn batch(&mut self, asks: &[&Ask]) -> impl Future<Output = Vec<Answered>> + Send;

    /// Carries out an ask that has a transaction of its own.
    fn lone(&mut self, ask: &Ask) -> impl Future<Output = Answered> + Send;

    /// Ends.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Runs until every sender is gone.
pub(super) async fn run<C: Committer>(mut queue: mpsc::Receiver<Job>, mut committer: C) {
    let mut jobs: Vec<Job> = Vec::new();
    while queue.recv_many(&mut jobs, BATCH_MAX).await > 0 {
        gather(&mut queue, &mut jobs).await;
        let mut batch: Vec<Job> = Vec::new();
        for job in jobs.drain(..) {
            if job.ask.is_lone() {
                flush(&mut committer, &mut batch).await;
                let answer = committer.lone(&job.ask).await;
                // Who asked may have gone.
                let _ = job.reply.send(answer);
            } else {
                batch.push(job);
            }
        }
        flush(&mut committer, &mut batch).await;
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

async fn flush<C: Committer>(committer: &mut C, batch: &mut Vec<Job>) {
    if batch.is_empty() {
        return;
    }
    let asks: Vec<&Ask> = batch.iter().map(|job| &job.ask).collect();
    let answers = committer.batch(&asks).await;
    for (job, answer) in batch.drain(..).zip(answers) {
        let _ = job.reply.send(answer);
    }
}
