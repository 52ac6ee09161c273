//! Gives back leases that nobody renews.
//!
//! Invariant: no lease is ended but under this coordinator's term (`leases/leader_lease.rs`), which gave every lease its time
//! where workers may have been alive and unheard before it, and by a clock that was compared with its source after the
//! deadline was read. Where the source answers late, only leases are ended that are past their deadline by more than the
//! clocks can differ: a slow database delays the end of a lease by as long as its answers take, and never prevents it.

use std::{sync::Arc, time::Duration};

use docket_schema::ids::{Epoch, IncarnationId, TaskId};

use crate::{
    app::AppState,
    clock::{Clock, Elapsed, jittered},
    decide,
    error_chain::error_chain,
    leases::{Lead, bound_clock_error, check_clock},
    store::{CommandBlobs, CommandError, Decide, Store, StoreError},
    wakeups::Wakes,
};

/// Leases ended in one round; the next round follows at once while there are as many.
const ROUND_MAX: u32 = 500;
/// Longest wait between two rounds: how late a lost worker may be noticed.
const ROUND_EVERY_MAX: Duration = Duration::from_secs(1);
/// Wait after the store failed.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// How often it is said at most that the database's clock cannot be compared in time.
const WARN_EVERY_MS: u64 = 60_000;

/// What a round found.
struct ExpiryRound {
    /// Leases that were looked at.
    looked_at: u32,
    /// What a late answer says of the clock; none where the clock was compared in time, or did not matter.
    late: Option<LateAnswer>,
}

/// What an answer says that came too late to compare clocks by it.
#[derive(Clone, Copy)]
enum LateAnswer {
    /// The clocks differ by at most so many milliseconds.
    Bounded(u64),
    /// The clocks differ by a step: no lease may be ended by this one.
    Differs,
}

/// Runs until the shutdown.
pub(crate) async fn expire_leases(app: Arc<AppState>, lead: Arc<Lead>) {
    let tenth = Duration::from_millis(app.lease_length.configured_ms() / 10);
    let every = ROUND_EVERY_MAX.min(tenth.max(Duration::from_millis(10)));
    let mut warn_from = Elapsed::now();
    loop {
        let wait = match expire_round(&app, &lead).await {
            Ok(ExpiryRound { late: Some(late), .. }) => {
                if Elapsed::now() >= warn_from {
                    warn_late(late);
                    warn_from = Elapsed::now().plus_ms(WARN_EVERY_MS);
                }
                jittered(every)
            }
            Ok(ExpiryRound { looked_at, late: None }) if looked_at >= ROUND_MAX => Duration::ZERO,
            Ok(_) => jittered(every),
            Err(error) => {
                tracing::warn!("leases are not looked at for now: {}", error_chain(&error));
                jittered(STORE_RETRY)
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn warn_late(late: LateAnswer) {
    match late {
        LateAnswer::Bounded(late_ms) => tracing::warn!(
            late_ms,
            "the database answers slowly, so lost leases end late by as much as the clocks may differ; look for what \
             keeps the database busy"
        ),
        LateAnswer::Differs => tracing::warn!(
            "the database answers slowly and its clock differs from this coordinator's: no lease is ended until they \
             agree or the step is followed"
        ),
    }
}

/// Ends the leases whose deadline has passed.
async fn expire_round(app: &AppState, lead: &Lead) -> Result<ExpiryRound, StoreError> {
    let (store, clock) = (&*app.store, &*app.clock);
    let nothing = ExpiryRound { looked_at: 0, late: None };
    if !lead.may_end_leases() {
        return Ok(nothing);
    }
    let now = clock.now();
    let expired = store.expired(now, ROUND_MAX).await?;
    if expired.is_empty() {
        return Ok(nothing);
    }
    // Their deadlines may have been written by a coordinator that follows a step which this one has not seen yet.
    let (late, ahead_ms) = match check_clock(store, clock).await? {
        Some(seen) => {
            lead.heed(seen);
            (None, 0)
        }
        None => match bound_clock_error(store, clock).await? {
            Some(ahead_ms) => (Some(LateAnswer::Bounded(ahead_ms)), ahead_ms),
            None => return Ok(ExpiryRound { looked_at: 0, late: Some(LateAnswer::Differs) }),
        },
    };
    let count = u32::try_from(expired.len()).unwrap_or(ROUND_MAX);
    for (task, epoch) in expired {
        // A round may take longer than the term, the whole process may have stood still, or the clock was stepped.
        if !lead.may_end_leases() {
            return Ok(nothing);
        }
        let lease = ExpiredLease { task, epoch, ahead_ms };
        if let Some(worker) = end_if_past(store, clock, &app.wakes, lease).await? {
            app.lease_length.record_expiry(worker);
        }
    }
    Ok(ExpiryRound { looked_at: count, late })
}

/// A lease that was found past its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiredLease {
    pub(crate) task: TaskId,
    pub(crate) epoch: Epoch,
    /// By how much this clock may be ahead, in milliseconds.
    pub(crate) ahead_ms: u64,
}

/// Ends a lease that is past its deadline by more than this clock may be ahead, unless it was
/// renewed since: a round of many takes a while, and a worker that was heard of meanwhile keeps the lease. Answers the
/// worker that lost it.
pub(crate) async fn end_if_past(
    store: &dyn Store,
    clock: &Clock,
    wakes: &Wakes,
    ExpiredLease { task, epoch, ahead_ms }: ExpiredLease,
) -> Result<Option<IncarnationId>, StoreError> {
    let Some((before, Some(deadline))) = store.task(task).await? else { return Ok(None) };
    if deadline.plus_ms(ahead_ms) > clock.now() {
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
