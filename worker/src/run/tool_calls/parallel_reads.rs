//! Runs read-only calls in parallel. Reading is blocking work, so each call has a thread: futures that never yield
//! would run one after the other. The tool executor calls this; results keep the order of the calls.

/// Parallel reads at most: beyond that the disk is the bottleneck, and a reply may contain a hundred calls.
pub(in crate::run) const PARALLEL_READS_MAX: usize = 8;

/// Runs all of `calls`, at most [`PARALLEL_READS_MAX`] at a time.
pub(in crate::run) fn par_map_bounded<C: Sync, R: Send>(calls: &[C], run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let mut results = Vec::with_capacity(calls.len());
    for calls in calls.chunks(PARALLEL_READS_MAX) {
        std::thread::scope(|scope| {
            let running: Vec<_> = calls.iter().map(|call| scope.spawn(|| run(call))).collect();
            for one in running {
                match one.join() {
                    Ok(result) => results.push(result),
                    // Propagates the panic as if it had happened in this thread.
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
    results
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use super::*;

    /// Each of two slow readers ends only once the other has begun.
    #[test]
    fn slow_reads_overlap_and_results_keep_call_order() {
        let (first, second) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let calls = [("first", first.0, Mutex::new(second.1)), ("second", second.0, Mutex::new(first.1))];
        let met = par_map_bounded(&calls, |(name, tell, hear)| {
            tell.send(()).unwrap();
            let heard = hear.lock().unwrap().recv_timeout(Duration::from_secs(20));
            (*name, heard.is_ok())
        });
        assert_eq!(met, [("first", true), ("second", true)]);
    }

    #[test]
    fn parallelism_is_bounded_and_no_call_is_lost() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let calls: Vec<usize> = (0..50).collect();
        let done = par_map_bounded(&calls, |call| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            *call
        });
        assert_eq!(done, calls);
        assert!(most.load(Ordering::SeqCst) <= PARALLEL_READS_MAX);
    }
}
