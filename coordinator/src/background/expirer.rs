//! Background job that ends expired leases.
//!
//! Invariant: a lease is ended only while this coordinator holds the maintenance lease
//! (`leases/leader_lease.rs`), which has already extended leases whose workers may have had no coordinator to
//! talk to, and only by a clock that was compared with its source after the deadline was read. If the source
//! replies late, only leases overdue by more than the possible clock difference are ended: a slow database
//! delays the end of a lease by its response time but never prevents it.

use std::{sync::Arc, time::Duration};

use docket_schema::ids::{Epoch, IncarnationId, TaskId};

use crate::{
    app::AppState,
    clock::{BootInstant, Clock, jittered_interval},
    decide,
    error_chain::error_chain,
    leases::{LeaderLease, bound_clock_error, check_clock},
    store::{CommandBlobs, CommandError, DecideFn, Store, StoreError},
    wakeups::WakeupBus,
};

/// Leases ended per round; a full round is followed by the next at once.
const ROUND_MAX: u32 = 500;
/// Longest wait between rounds: bounds how late a lost worker is noticed.
const ROUND_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Wait after a store failure.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// Shortest interval between warnings that the database's clock cannot be compared in time.
const WARN_INTERVAL_MS: u64 = 60_000;

/// Result of one round.
struct ExpiryRound {
    /// Number of leases examined.
    checked: u32,
    /// What a late reply says about the clock; `None` if the clocks were compared in time or it did not
    /// matter.
    late_answer: Option<LateAnswer>,
}

/// What a reply that arrived too late for a clock comparison still shows.
#[derive(Clone, Copy)]
enum LateAnswer {
    /// The clocks differ by at most this many milliseconds.
    Bounded(u64),
    /// The clocks differ by a step, so this clock must not end leases.
    Differs,
}

/// Ends expired leases until shutdown.
pub(crate) async fn expire_leases(app: Arc<AppState>, lead: Arc<LeaderLease>) {
    let tenth = Duration::from_millis(app.lease_length.configured_ms() / 10);
    let every = ROUND_INTERVAL_MAX.min(tenth.max(Duration::from_millis(10)));
    let mut warn_from = BootInstant::now();
    loop {
        let wait = match expire_round(&app, &lead).await {
            Ok(ExpiryRound { late_answer: Some(late), .. }) => {
                if BootInstant::now() >= warn_from {
                    warn_late(late);
                    warn_from = BootInstant::now().plus_ms(WARN_INTERVAL_MS);
                }
                jittered_interval(every)
            }
            Ok(ExpiryRound { checked: looked_at, late_answer: None }) if looked_at >= ROUND_MAX => {
                Duration::ZERO
            }
            Ok(_) => jittered_interval(every),
            Err(error) => {
                tracing::warn!("cannot check leases: {}", error_chain(&error));
                jittered_interval(STORE_RETRY)
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
            "the database responds slowly, so lost leases end late by up to the possible clock difference; \
             check the load of the database"
        ),
        LateAnswer::Differs => tracing::warn!(
            "the database responds slowly and its clock differs from this coordinator's; no lease is ended \
             until the clocks agree or the step is followed"
        ),
    }
}

/// Ends the leases whose deadline has passed.
async fn expire_round(app: &AppState, lead: &LeaderLease) -> Result<ExpiryRound, StoreError> {
    let (store, clock) = (&*app.store, &*app.clock);
    let nothing = ExpiryRound { checked: 0, late_answer: None };
    if !lead.can_end_leases() {
        return Ok(nothing);
    }
    let now = clock.now();
    let expired = store.list_expired_leases(now, ROUND_MAX).await?;
    if expired.is_empty() {
        return Ok(nothing);
    }
    // The deadlines may have been written by a coordinator that already follows a step this one has not seen.
    let (late, ahead_ms) = match check_clock(store, clock).await? {
        Some(seen) => {
            lead.handle_clock_observation(seen);
            (None, 0)
        }
        None => match bound_clock_error(store, clock).await? {
            Some(ahead_ms) => (Some(LateAnswer::Bounded(ahead_ms)), ahead_ms),
            None => return Ok(ExpiryRound { checked: 0, late_answer: Some(LateAnswer::Differs) }),
        },
    };
    let count = u32::try_from(expired.len()).unwrap_or(ROUND_MAX);
    for (task, epoch) in expired {
        // The round may have outlasted the leader lease, the process may have been suspended, or the clock
        // may have been stepped.
        if !lead.can_end_leases() {
            return Ok(nothing);
        }
        let lease = ExpiredLease { task, epoch, clock_error_ms: ahead_ms };
        if let Some(worker) = expire_if_overdue(store, clock, &app.wakeups, lease).await? {
            app.lease_length.record_expiry(worker);
        }
    }
    Ok(ExpiryRound { checked: count, late_answer: late })
}

/// A lease found past its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiredLease {
    pub(crate) task: TaskId,
    pub(crate) epoch: Epoch,
    /// How far this clock may be ahead, in milliseconds.
    pub(crate) clock_error_ms: u64,
}

/// Ends a lease that is overdue by more than this clock may be ahead, unless it was renewed meanwhile: a
/// large round takes time, and a worker that was heard from keeps its lease. Returns the worker that lost it.
pub(crate) async fn expire_if_overdue(
    store: &dyn Store,
    clock: &Clock,
    wakes: &WakeupBus,
    ExpiredLease { task, epoch, clock_error_ms: ahead_ms }: ExpiredLease,
) -> Result<Option<IncarnationId>, StoreError> {
    let Some((before, Some(deadline))) = store.get_task(task).await? else { return Ok(None) };
    if deadline.plus_ms(ahead_ms) > clock.now() {
        return Ok(None);
    }
    let decide: DecideFn = Box::new(move |record| decide::expire(record, epoch));
    match store.execute_command(task, decide, CommandBlobs::default(), clock.now()).await {
        Ok((record, _)) => {
            tracing::info!(%task, %epoch, worker = ?before.worker, "a lease expired");
            wakes.notify_state(record.state);
            wakes.notify_lease_lost();
            return Ok(before.worker);
        }
        Err(CommandError::Store(error)) => return Err(error),
        // Another coordinator was faster, or the task has changed.
        Err(CommandError::Rejected(_) | CommandError::TaskNotFound(_)) => {}
        Err(CommandError::Append(error)) => {
            tracing::error!(%task, "could not end a lease: {}", error_chain(&*error));
        }
    }
    Ok(None)
}
