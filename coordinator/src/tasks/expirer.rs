//! Gives back leases that nobody renews.
//!
//! Invariant: no lease is ended but under this coordinator's term (`term.rs`), which gave every lease its time
//! where workers may have been alive and unheard before it, and by a clock that was compared with its source after the
//! deadline was read.

use std::{sync::Arc, time::Duration};

use docket_schema::ids::{Epoch, IncarnationId, TaskId};
use tokio_util::sync::CancellationToken;

use super::{Lead, Wakes, check_clock, jittered};
use crate::{
    clock::Clock,
    decide,
    http::error_chain,
    lease_length::LeaseLength,
    store::{CommandBlobs, CommandError, Decide, Store, StoreError},
};

/// Leases ended in one round; the next round follows at once while there are as many.
const ROUND_MAX: u32 = 500;
/// Longest wait between two rounds: how late a lost worker may be noticed.
const ROUND_EVERY_MAX: Duration = Duration::from_secs(1);
/// Wait after the store failed.
const STORE_RETRY: Duration = Duration::from_millis(500);

/// Runs until `shutdown`.
pub(crate) async fn expire_leases(
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    wakes: Arc<Wakes>,
    lead: Arc<Lead>,
    lease_length: Arc<LeaseLength>,
    shutdown: CancellationToken,
) {
    let tenth = Duration::from_millis(lease_length.configured_ms() / 10);
    let every = ROUND_EVERY_MAX.min(tenth.max(Duration::from_millis(10)));
    loop {
        let wait = match expire_round(store.as_ref(), &clock, &wakes, &lead, &lease_length).await {
            Ok(ended) if ended >= ROUND_MAX => Duration::ZERO,
            Ok(_) => jittered(every),
            Err(error) => {
                tracing::warn!("leases are not looked at for now: {}", error_chain(&error));
                jittered(STORE_RETRY)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Ends the leases whose deadline has passed; answers how many were looked at.
async fn expire_round(
    store: &dyn Store,
    clock: &Clock,
    wakes: &Wakes,
    lead: &Lead,
    lease_length: &LeaseLength,
) -> Result<u32, StoreError> {
    if !lead.may_end_leases() {
        return Ok(0);
    }
    let now = clock.now();
    let expired = store.expired(now, ROUND_MAX).await?;
    if expired.is_empty() {
        return Ok(0);
    }
    // Their deadlines may have been written by a coordinator that follows a step which this one has not seen yet.
    match check_clock(store, clock).await? {
        Some(seen) => lead.heed(seen),
        None => return Ok(0),
    }
    let count = u32::try_from(expired.len()).unwrap_or(ROUND_MAX);
    for (task, epoch) in expired {
        // A round may take longer than the term, the whole process may have stood still, or the clock was stepped.
        if !lead.may_end_leases() {
            return Ok(0);
        }
        if let Some(worker) = end_if_past(store, clock, wakes, task, epoch).await? {
            lease_length.record_expiry(worker);
        }
    }
    Ok(count)
}

/// Ends a lease that was found past its deadline, unless it was renewed since: a round of many takes a
/// while, and who was heard of meanwhile keeps the lease. Answers the worker that lost it.
pub(crate) async fn end_if_past(
    store: &dyn Store,
    clock: &Clock,
    wakes: &Wakes,
    task: TaskId,
    epoch: Epoch,
) -> Result<Option<IncarnationId>, StoreError> {
    let Some((before, Some(deadline))) = store.task(task).await? else { return Ok(None) };
    if deadline > clock.now() {
        return Ok(None);
    }
    let decide: Decide = Box::new(move |record| decide::expire(record, epoch));
    match store.command(task, decide, CommandBlobs::default(), clock.now()).await {
        Ok((record, _)) => {
            tracing::info!(%task, %epoch, worker = ?before.worker, "a lease expired");
            wakes.task_is(record.state);
            wakes.leases();
            return Ok(before.worker);
        }
        Err(CommandError::Store(error)) => return Err(error),
        // Another coordinator was faster, or the task moved on.
        Err(CommandError::Rejected(_) | CommandError::NoTask(_)) => {}
        Err(CommandError::Append(error)) => {
            tracing::error!(%task, "a lease could not be ended: {}", error_chain(&*error));
        }
    }
    Ok(None)
}
