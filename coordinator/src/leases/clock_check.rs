//! Compares this coordinator's clock with its source: the machine's wall clock, or the database's where coordinators share
//! one. The rules are those of `clock.rs`; what a step means for leases is in `leader_lease.rs`.

use docket_schema::ids::Timestamp;

use crate::{
    clock::{BootInstant, Clock, ObservedChange, STEP_HOLD_MS, STEP_MIN_MS},
    store::{Store, StoreError},
};

/// How often the database's clock is asked for at the start before the best answer must do.
const START_ATTEMPTS_MAX: u32 = 5;

/// Within how many milliseconds of each other coordinators of one database follow a step of its clock: each sees it when
/// it asks next, and follows it when it has held. As long again as between two questions is for answers that are late.
pub(super) const FOLLOW_SPREAD_MS: u64 = STEP_HOLD_MS + 2 * 5_000;

/// What was seen of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockObservation {
    /// No step, or one of this machine's own clock that is not followed, and so concerns no deadline.
    Steady,
    /// A step of this machine's own clock was followed.
    OwnFollowed,
    /// The database's clock is stepped, or was until now.
    SharedStepped,
    /// A step of the database's clock was followed.
    SharedFollowed,
}

/// Looks at the source of the clock. `None` where the database's answer took too long to say anything.
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

/// Bounds how far this clock may be from the database's, in milliseconds, by an answer that may be late. `None` where
/// they certainly differ by a step.
///
/// A late answer cannot say that the clocks agree, but it was read between the question and its arrival: if it lies
/// between what this clock showed then, give or take what is no step ([`STEP_MIN_MS`]), the two differ by no more than
/// the answer took and that. So the bound grows with the answer's delay, and a step never hides in it.
pub(crate) async fn bound_clock_error(store: &dyn Store, clock: &Clock) -> Result<Option<u64>, StoreError> {
    let asked = clock.now();
    let Some(theirs) = store.database_time().await? else { return Ok(Some(0)) };
    Ok(bound_error(asked, theirs, clock.now()))
}

/// As [`bound_clock_error`], of a question asked and answered at these times of this clock.
fn bound_error(asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> Option<u64> {
    let is_between = asked <= theirs.plus_ms(STEP_MIN_MS) && theirs <= answered.plus_ms(STEP_MIN_MS);
    is_between.then(|| answered.ms_since(asked).saturating_add(STEP_MIN_MS))
}

/// Sets the clock before anything is served: asks again where the database is slow to answer, as it is where many
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
