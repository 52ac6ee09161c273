//! How a time source is followed. Pure, so that every rule of `clock.rs` can be tested with arbitrary
//! readings.

use std::collections::VecDeque;

use docket_schema::{
    api::{ClockHealth, ClockStep, ClockStepState},
    ids::Timestamp,
};

use super::BootInstant;

/// A source that differs by more than this, in microseconds, has been stepped; smaller differences are
/// slewed. A reading over the network is off by at most half a second, so two readings cannot differ this
/// much without a step.
pub(super) const STEP_MIN_US: i64 = 1_500_000;

/// How long, in microseconds, a stepped source must keep its new time before it is followed. A step undone
/// within this time changes nothing.
pub(super) const HOLD_US: i64 = 10_000_000;

/// A slew takes ten times the size of the correction, so time runs a tenth faster or slower and never
/// backwards.
const SLEW_DIVISOR: i64 = 10;

/// Followed steps that are remembered for [`FollowedTime::earliest_shown_within`].
const STEPS_MAX: usize = 32;

/// Result of an observation of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObservedChange {
    /// The source agrees or almost agrees.
    Steady,
    /// The source was stepped by this many microseconds: seen for the first time and not followed yet.
    StepSeen(i64),
    StepHeld(i64),
    /// The step seen before was undone without being followed.
    StepGone(i64),
    /// The step has lasted long enough: the source's new time is now this clock's.
    StepFollowed(i64),
}

/// A step that was seen and is not followed yet.
#[derive(Debug, Clone, Copy)]
struct WatchedStep {
    new_offset: i64,
    seen_at: BootInstant,
    shown_at: Timestamp,
}

/// Time that advances with the boot clock and follows a source by the rules of `clock.rs`.
#[derive(Debug)]
pub(super) struct FollowedTime {
    /// Offset added to the elapsed time.
    offset: i64,
    /// Offset that slewing moves towards.
    target: i64,
    slewed_at: BootInstant,
    pending_step: Option<WatchedStep>,
    followed_history: VecDeque<(BootInstant, i64)>,
    /// Number of steps in `steps` that were followed.
    followed_steps: u64,
    steps_seen: u64,
    last_step: Option<ClockStep>,
}

impl FollowedTime {
    /// Creates a clock that starts with the source's time at `now`.
    pub(super) const fn starting_at(now: BootInstant, source: Timestamp) -> Self {
        let offset = source.0.saturating_sub(now.0);
        Self {
            offset,
            target: offset,
            slewed_at: now,
            pending_step: None,
            followed_history: VecDeque::new(),
            followed_steps: 0,
            steps_seen: 0,
            last_step: None,
        }
    }

    /// Returns the time at `now`.
    pub(super) fn read(&mut self, now: BootInstant) -> Timestamp {
        let passed = now.0.saturating_sub(self.slewed_at.0).max(0);
        let most = passed / SLEW_DIVISOR;
        // Otherwise readings in quick succession would round every correction down to nothing.
        if most > 0 {
            self.offset += (self.target - self.offset).clamp(-most, most);
            self.slewed_at = now;
        }
        Timestamp(now.0.saturating_add(self.offset))
    }

    /// Observes the source's time at `at`, which is `now` or shortly before.
    pub(super) fn observe(&mut self, now: BootInstant, at: BootInstant, source: Timestamp) -> ObservedChange {
        let shown_at = self.read(now);
        let offset = source.0.saturating_sub(at.0);
        let by = offset.saturating_sub(self.offset);
        if by.saturating_abs() <= STEP_MIN_US {
            self.target = offset;
            return match self.pending_step.take() {
                None => ObservedChange::Steady,
                Some(step) => {
                    let gone = step.new_offset.saturating_sub(self.offset);
                    self.record_step(step.shown_at, gone, ClockStepState::Gone);
                    ObservedChange::StepGone(gone)
                }
            };
        }
        match self.pending_step {
            Some(step) if offset.saturating_sub(step.new_offset).saturating_abs() <= STEP_MIN_US => {
                if now.0.saturating_sub(step.seen_at.0) < HOLD_US {
                    return ObservedChange::StepHeld(by);
                }
                (self.offset, self.target, self.pending_step) = (offset, offset, None);
                if self.followed_history.len() >= STEPS_MAX {
                    self.followed_history.pop_front();
                }
                self.followed_history.push_back((now, by));
                self.followed_steps += 1;
                self.record_step(step.shown_at, by, ClockStepState::Followed);
                ObservedChange::StepFollowed(by)
            }
            Some(_) | None => {
                self.pending_step = Some(WatchedStep { new_offset: offset, seen_at: now, shown_at });
                self.steps_seen += 1;
                self.record_step(shown_at, by, ClockStepState::Watched);
                ObservedChange::StepSeen(by)
            }
        }
    }

    fn record_step(&mut self, seen_at: Timestamp, by_us: i64, state: ClockStepState) {
        self.last_step = Some(ClockStep { seen_at, by_ms: by_us / 1000, state });
    }

    /// Returns the earliest time shown within the last `ms` milliseconds. Nothing written since then has an
    /// earlier time, however the clock was set meanwhile.
    pub(super) fn earliest_shown_within(&mut self, now: BootInstant, ms: u64) -> Timestamp {
        let us = i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let since = now.0.saturating_sub(us);
        let mut offset = self.read(now).0.saturating_sub(now.0);
        let mut earliest = i64::MAX;
        for (at, by) in self.followed_history.iter().rev().take_while(|(at, _)| at.0 > since) {
            earliest = earliest.min(at.0.saturating_add(offset));
            offset = offset.saturating_sub(*by);
        }
        Timestamp(earliest.min(since.saturating_add(offset)))
    }

    /// Returns the number of followed steps.
    pub(super) const fn followed_steps(&self) -> u64 {
        self.followed_steps
    }

    /// Returns the steps that were seen.
    pub(super) const fn health(&self) -> ClockHealth {
        ClockHealth { steps: self.steps_seen, last: self.last_step }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const DAY: i64 = 24 * HOUR;
    const BEGIN: i64 = 1_800_000_000 * SECOND;

    /// A source that is off by `apart` from the given seconds on, observed once a second.
    struct SourceScenario {
        time: FollowedTime,
        apart: Vec<(i64, i64)>,
    }

    impl SourceScenario {
        fn new(apart: &[(i64, i64)]) -> Self {
            Self { time: FollowedTime::starting_at(BootInstant(0), Timestamp(BEGIN)), apart: apart.to_vec() }
        }

        fn offset_at(&self, second: i64) -> i64 {
            self.apart.iter().rev().find(|(from, _)| *from <= second).map_or(0, |(_, apart)| *apart)
        }

        /// Returns what was observed each second and the clock's error at that time.
        fn run_seconds(&mut self, seconds: i64) -> Vec<(ObservedChange, i64)> {
            (1..=seconds)
                .map(|second| {
                    let now = BootInstant(second * SECOND);
                    let source = Timestamp(BEGIN + now.0 + self.offset_at(second));
                    let change = self.time.observe(now, now, source);
                    (change, self.time.read(now).0 - BEGIN - now.0)
                })
                .collect()
        }
    }

    #[test]
    fn undone_step_changes_no_reading() {
        for by in [DAY, -HOUR, 4 * SECOND] {
            let mut story = SourceScenario::new(&[(5, by), (10, 0)]);
            let told = story.run_seconds(60);
            assert!(told.iter().all(|(_, apart)| *apart == 0), "{told:?}");
            assert_eq!((told[4].0, told[9].0), (ObservedChange::StepSeen(by), ObservedChange::StepGone(by)));
            let last = story.time.health().last.expect("it is remembered");
            assert_eq!((last.by_ms, last.state), (by / 1000, ClockStepState::Gone));
            assert_eq!(story.time.health().steps, 1);
        }
    }

    #[test]
    fn step_that_holds_is_followed_in_both_directions() {
        for by in [DAY, -HOUR] {
            let mut story = SourceScenario::new(&[(5, by), (40, 0)]);
            let told = story.run_seconds(80);
            let followed: Vec<(usize, i64)> = told
                .iter()
                .enumerate()
                .filter_map(|(at, (change, _))| match change {
                    ObservedChange::StepFollowed(by) => Some((at + 1, *by)),
                    ObservedChange::Steady
                    | ObservedChange::StepSeen(_)
                    | ObservedChange::StepHeld(_)
                    | ObservedChange::StepGone(_) => None,
                })
                .collect();
            assert_eq!(followed, [(15, by), (50, -by)], "each ten seconds after it was seen");
            assert_eq!((told[13].1, told[14].1, told[48].1, told[49].1), (0, by, by, 0));
        }
    }

    #[test]
    fn unstable_source_is_never_followed() {
        let jumps: Vec<(i64, i64)> = (1..30).map(|n| (n * 5, (n % 3 - 1) * n * HOUR)).collect();
        let told = SourceScenario::new(&jumps).run_seconds(150);
        assert!(told.iter().all(|(_, apart)| *apart == 0), "{told:?}");
    }

    #[test]
    fn earliest_shown_time_includes_followed_steps() {
        let second = |story: &mut SourceScenario, at: i64, ms: u64| {
            story.time.earliest_shown_within(BootInstant(at * SECOND), ms).0 - BEGIN
        };
        let mut steady = SourceScenario::new(&[]);
        steady.run_seconds(100);
        assert_eq!(second(&mut steady, 100, 60_000), 40 * SECOND);
        // A day ahead from second 60 on: a record written at second 50 has no later time than that.
        let mut ahead = SourceScenario::new(&[(50, DAY)]);
        ahead.run_seconds(100);
        assert_eq!(second(&mut ahead, 100, 60_000), 40 * SECOND);
        assert_eq!(second(&mut ahead, 100, 10_000), DAY + 90 * SECOND, "the step is longer ago");
        // An hour back: the earliest time is the one shown right after the step.
        let mut back = SourceScenario::new(&[(50, -HOUR)]);
        back.run_seconds(100);
        assert_eq!(second(&mut back, 100, 60_000), 60 * SECOND - HOUR);
    }

    proptest! {
        /// Whatever the source says: between two readings time never runs backwards or more than a tenth too
        /// fast, except at a step that was seen at least ten seconds before and is followed.
        #[test]
        fn time_jumps_only_after_a_held_step(
            readings in prop::collection::vec((1i64..3_000, prop_oneof![
                4 => -400_000i64..400_000,
                1 => Just(DAY), 1 => Just(-HOUR), 1 => Just(4 * SECOND),
            ]), 1..200)
        ) {
            let mut time = FollowedTime::starting_at(BootInstant(0), Timestamp(BEGIN));
            let (mut now, mut before) = (BootInstant(0), Timestamp(BEGIN));
            let mut steps: Vec<(i64, i64)> = Vec::new();
            for (wait_ms, apart) in readings {
                now = BootInstant(now.0 + wait_ms * 1000);
                let source = Timestamp(BEGIN + now.0 + apart);
                let change = time.observe(now, now, source);
                let shown = time.read(now);
                let (passed, real) = (shown.0 - before.0, wait_ms * 1000);
                match change {
                    ObservedChange::StepFollowed(by) => {
                        let (seen_at, was) = *steps.last().expect("it was seen");
                        prop_assert!(now.0 - seen_at >= HOLD_US);
                        prop_assert!((source.0 - now.0 - was).abs() <= STEP_MIN_US);
                        prop_assert!(by.abs() > STEP_MIN_US);
                        prop_assert_eq!(shown, source);
                    }
                    ObservedChange::StepSeen(_) => steps.push((now.0, source.0 - now.0)),
                    ObservedChange::Steady | ObservedChange::StepHeld(_) | ObservedChange::StepGone(_) => {}
                }
                if !matches!(change, ObservedChange::StepFollowed(_)) {
                    prop_assert!(passed >= 0 && (passed - real).abs() <= real / SLEW_DIVISOR + 1, "{} of {}", passed, real);
                }
                before = shown;
            }
        }
    }
}
