//! Compares this coordinator's clock with its source: the machine's wall clock, or the database's clock where
//! coordinators share one. The rules are in `clock.rs`; the effect of a step on leases is in
//! `leader_lease.rs`.

use docket_schema::ids::Timestamp;

use crate::{
    clock::{BootInstant, Clock, ObservedChange, STEP_HOLD_MS, STEP_MIN_MS},
    store::{Store, StoreError},
};

/// How often the database's clock is read at startup before the best reading is accepted.
const START_ATTEMPTS_MAX: u32 = 5;

/// Time, in milliseconds, within which all coordinators of a database follow a step of its clock: each sees
/// it at its next reading and follows it once it has lasted. One more interval between readings allows for
/// late replies.
pub(super) const FOLLOW_SPREAD_MS: u64 = STEP_HOLD_MS + 2 * 5_000;

/// Result of a clock check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockObservation {
    /// No step, or an unfollowed step of this machine's own clock, which affects no deadline.
    Steady,
    /// A step of this machine's own clock was followed.
    OwnFollowed,
    /// The database's clock is stepped, or was until now.
    SharedStepped,
    /// A step of the database's clock was followed.
    SharedFollowed,
}

/// Observes the source of the clock. Returns `None` if the database's reply took too long to be usable.
pub(crate) async fn check_clock(
    store: &dyn Store,
    clock: &Clock,
) -> Result<Option<ClockObservation>, StoreError> {
    let asked = BootInstant::now();
    let Some(theirs) = store.database_time().await? else {
        return Ok(Some(match clock.observe_wall() {
            ObservedChange::StepFollowed(_) => ClockObservation::OwnFollowed,
            ObservedChange::Steady
            | ObservedChange::StepSeen(_)
            | ObservedChange::StepHeld(_)
            | ObservedChange::StepGone(_) => ClockObservation::Steady,
        }));
    };
    Ok(clock.observe_answer(asked, theirs).map(|change| match change {
        ObservedChange::Steady => ClockObservation::Steady,
        ObservedChange::StepSeen(_) | ObservedChange::StepHeld(_) | ObservedChange::StepGone(_) => {
            ClockObservation::SharedStepped
        }
        ObservedChange::StepFollowed(_) => ClockObservation::SharedFollowed,
    }))
}

/// Bounds the difference between this clock and the database's, in milliseconds, by a reply that may be late.
/// Returns `None` if they certainly differ by a step.
///
/// A late reply cannot show that the clocks agree, but the database was read between request and reply: if
/// its time lies between this clock's times at those moments, within [`STEP_MIN_MS`], the two differ by at
/// most the round trip plus that. The bound grows with the delay, so it never hides a step.
pub(crate) async fn bound_clock_error(store: &dyn Store, clock: &Clock) -> Result<Option<u64>, StoreError> {
    let asked = clock.now();
    let Some(theirs) = store.database_time().await? else { return Ok(Some(0)) };
    Ok(bound_error(asked, theirs, clock.now()))
}

/// Like [`bound_clock_error`], for a request sent and answered at these times of this clock.
fn bound_error(asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> Option<u64> {
    let is_between = asked <= theirs.plus_ms(STEP_MIN_MS) && theirs <= answered.plus_ms(STEP_MIN_MS);
    is_between.then(|| answered.ms_since(asked).saturating_add(STEP_MIN_MS))
}

/// Sets the clock before anything is served. Reads again if the database replies slowly, as it does when many
/// processes start at once.
pub(crate) async fn set_clock(store: &dyn Store, clock: &Clock) -> Result<(), StoreError> {
    for _ in 0..START_ATTEMPTS_MAX {
        if check_clock(store, clock).await?.is_some() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answer_bounds_the_clock_difference() {
        let asked = Timestamp(1_000_000_000);
        let answered = asked.plus_ms(4_000);
        let bound = Some(4_000 + STEP_MIN_MS);
        assert_eq!(bound_error(asked, asked.plus_ms(2_000), answered), bound);
        assert_eq!(bound_error(asked, answered.plus_ms(STEP_MIN_MS), answered), bound, "no step yet");
        assert_eq!(bound_error(asked.plus_ms(STEP_MIN_MS), asked, answered.plus_ms(STEP_MIN_MS)), bound);
        assert_eq!(bound_error(asked, answered.plus_ms(STEP_MIN_MS + 1), answered), None, "theirs is ahead");
        assert_eq!(bound_error(asked.plus_ms(STEP_MIN_MS + 1), asked, answered), None, "theirs is behind");
    }
}
