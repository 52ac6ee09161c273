//! The coordinator's only source of time, ids and randomness. Code below it takes them as parameters, so that
//! decisions are repeatable and tests control the time.
//!
//! # How time is followed
//! Deadlines, schedules and `recorded_at` are instants, so the clock must agree with the world. Leases
//! measure how long a worker was silent, so the clock must not jump when a machine's clock is set. These
//! rules ensure both:
//!
//! 1. Between two observations of its source, time advances with the machine's boot clock (`CLOCK_BOOTTIME`,
//!    which cannot be set and includes suspend; `CLOCK_MONOTONIC` where that is missing).
//! 2. The source is the machine's wall clock on SQLite and the database's time on PostgreSQL, so that
//!    coordinators of one database agree regardless of their machines' clocks. It is observed every few
//!    seconds (`leases/clock_check.rs`).
//! 3. A source that differs by at most a second and a half is slewed to: time runs a tenth faster or slower
//!    until it agrees, and never backwards.
//! 4. A source that differs by more has been stepped. The step is logged, counted for `/readyz` and `docket
//!    doctor`, and followed, in either direction, only once it has lasted ten seconds. A step that is undone
//!    earlier changes nothing.
//! 5. When a step is followed, time jumps at once; delaying it would stop retries and schedules for the
//!    length of the step. Every lease is then extended to its full length, and none is ended before that
//!    (`leases/leader_lease.rs`).
//! 6. Times that another clock may have written are believed only within their maximum: a leader lease, a
//!    task lease, a retry's backoff, a provider's next free slot, a schedule's last firing.
//!
//! # Effect on recorded times
//! `recorded_at` increases within a stream while clocks differ by less than two seconds
//! (`store/writer/working_set.rs`), which hides the differences between coordinators. After a followed
//! backward step it goes back with the clock. Nothing orders by it: streams are ordered by seq, the log by
//! position, and cursors are positions. Ids (UUIDv7) use the machine's wall clock but never go back within a
//! process; nothing reads a time from them. Reports count an event in the hour of its `recorded_at`.

mod followed_time;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use docket_schema::{api::ClockHealth, ids::Timestamp};
use nix::time::{ClockId, clock_gettime};
use uuid::Uuid;

pub(crate) use followed_time::ObservedChange;
use followed_time::{FollowedTime, HOLD_US, STEP_MIN_US};

/// Longest round trip, in microseconds, whose reply is usable as a time reading; half of it is the error.
const ROUND_TRIP_MAX_US: i64 = 1_000_000;

/// How long a step must last before it is followed, in milliseconds.
pub(crate) const STEP_HOLD_MS: u64 = HOLD_US.unsigned_abs() / 1000;

/// How far the clock may differ from its source without counting as stepped, in milliseconds.
pub(crate) const STEP_MIN_MS: u64 = STEP_MIN_US.unsigned_abs() / 1000;

/// Microseconds since the machine booted, including suspend. Used to measure elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(pub(crate) i64);

impl BootInstant {
    /// Now.
    pub(crate) fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_BOOTTIME;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_MONOTONIC;
        let read = clock_gettime(COUNTS_SUSPEND).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
        let read = read.expect("every system that docket runs on counts the time since it booted");
        Self(read.tv_sec().saturating_mul(1_000_000).saturating_add(read.tv_nsec() / 1000))
    }

    /// Returns the instant `ms` milliseconds later.
    pub(crate) const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1000)))
    }
}

/// The time as this coordinator follows it; see the module.
#[derive(Debug, Default)]
pub struct Clock {
    state: Mutex<ClockState>,
    /// How far this machine's wall clock is ahead, in microseconds, for tests of wrong clocks.
    wall_offset_us: i64,
}

#[derive(Debug, Default)]
struct ClockState {
    time: Option<FollowedTime>,
    /// Round trip, in microseconds, of the first remote reading this clock started from; `None` if there was
    /// none.
    first_round_trip_us: Option<i64>,
}

impl ClockState {
    /// Returns the followed time, which starts from the wall clock if nothing was observed before.
    fn followed_time(&mut self, now: BootInstant, wall: impl FnOnce() -> Timestamp) -> &mut FollowedTime {
        self.time.get_or_insert_with(|| FollowedTime::starting_at(now, wall()))
    }

    /// Starts from a remote reading unless it already started from a better one. Returns `None` while the
    /// best reading took too long.
    fn start_with(
        &mut self,
        now: BootInstant,
        at: BootInstant,
        theirs: Timestamp,
        took: i64,
    ) -> Option<ObservedChange> {
        let before = self.first_round_trip_us;
        if before.is_some_and(|before| before <= took) {
            return None;
        }
        let mut fresh = FollowedTime::starting_at(at, theirs);
        let shown = fresh.read(now);
        let old = self.time.replace(fresh).map(|mut old| old.read(now));
        self.first_round_trip_us = Some(took);
        let by = old.map_or(0, |old| shown.0.saturating_sub(old.0));
        if took > ROUND_TRIP_MAX_US {
            None
        } else if before.is_some() && by.saturating_abs() > STEP_MIN_US {
            // Deadlines may have been written with the less accurate reading.
            Some(ObservedChange::StepFollowed(by))
        } else {
            Some(ObservedChange::Steady)
        }
    }
}

impl Clock {
    pub const fn new() -> Self {
        Self::with_wall_offset(0)
    }

    /// Creates a clock whose machine's wall clock is wrong by this many microseconds, for tests.
    pub const fn with_wall_offset(ahead: i64) -> Self {
        Self {
            state: Mutex::new(ClockState { time: None, first_round_trip_us: None }),
            wall_offset_us: ahead,
        }
    }

    /// Returns this machine's wall clock time, regardless of the followed source.
    fn wall_time(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the only source of time")]
        let now = chrono::Utc::now().timestamp_micros();
        Timestamp(now.saturating_add(self.wall_offset_us))
    }

    fn lock_state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Timestamp {
        let mut state = self.lock_state();
        let now = BootInstant::now();
        state.followed_time(now, || self.wall_time()).read(now)
    }

    /// Returns the earliest time that this clock has shown within the last `ms` milliseconds. Nothing written
    /// since then has an earlier time, even if a step was followed meanwhile.
    pub fn earliest_shown_within(&self, ms: u64) -> Timestamp {
        let mut state = self.lock_state();
        let now = BootInstant::now();
        state.followed_time(now, || self.wall_time()).earliest_shown_within(now, ms)
    }

    /// Observes this machine's wall clock.
    pub(crate) fn observe_wall(&self) -> ObservedChange {
        let mut state = self.lock_state();
        let now = BootInstant::now();
        let wall = self.wall_time();
        let change = state.followed_time(now, || wall).observe(now, now, wall);
        drop(state);
        log_change(change, "this machine's");
        change
    }

    /// Observes a remote clock that was read at `asked` and returned `theirs`. Returns `None` if the round
    /// trip was too long to be usable. The first reading is adopted at once, before anything is served; if it
    /// was too slow, the next better one is.
    pub(crate) fn observe_answer(&self, asked: BootInstant, theirs: Timestamp) -> Option<ObservedChange> {
        let mut state = self.lock_state();
        let now = BootInstant::now();
        let took = now.0.saturating_sub(asked.0);
        let at = BootInstant(asked.0 + took / 2);
        if state.first_round_trip_us.is_none_or(|before| before > ROUND_TRIP_MAX_US) {
            return state.start_with(now, at, theirs, took);
        }
        if took > ROUND_TRIP_MAX_US {
            return None;
        }
        let change = state.followed_time(now, || theirs).observe(now, at, theirs);
        drop(state);
        log_change(change, "the database's");
        Some(change)
    }

    /// Returns the number of steps followed so far.
    pub(crate) fn followed_steps(&self) -> u64 {
        self.lock_state().time.as_ref().map_or(0, FollowedTime::followed_steps)
    }

    /// Returns the clock steps that this process has seen.
    pub(crate) fn health(&self) -> ClockHealth {
        self.lock_state().time.as_ref().map(FollowedTime::health).unwrap_or_default()
    }
}

/// Logs each step once when it is seen and once when it is followed or undone.
fn log_change(change: ObservedChange, whose: &str) {
    match change {
        ObservedChange::Steady | ObservedChange::StepHeld(_) => {}
        ObservedChange::StepSeen(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock jumped {}; the jump is followed if it lasts for {} s",
            describe_step(by),
            STEP_HOLD_MS / 1000
        ),
        ObservedChange::StepGone(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock, which had jumped {}, has returned to its previous time; the jump was not \
             followed",
            describe_step(by)
        ),
        ObservedChange::StepFollowed(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock jumped {} and stayed there; it is followed now, and leases are extended to their \
             full length",
            describe_step(by)
        ),
    }
}

/// Formats a step's size and direction.
fn describe_step(by_us: i64) -> String {
    let direction = if by_us < 0 { "back" } else { "ahead" };
    let ms = by_us.unsigned_abs().saturating_add(500) / 1000;
    format!("{}.{:03} s {direction}", ms / 1000, ms % 1000)
}

pub fn new_id() -> Uuid {
    #[expect(clippy::disallowed_methods, reason = "the only source of ids")]
    Uuid::now_v7()
}

/// Returns a random number for jitter.
pub fn random_jitter() -> u64 {
    rand::random()
}

/// Returns 32 random bytes from the system's generator for a new store's secret.
pub fn fresh_secret() -> [u8; 32] {
    rand::random()
}

/// Returns a random interval between half of `longest` and all of it, so that pollers do not synchronize.
pub(crate) fn jittered_interval(longest: Duration) -> Duration {
    let half = longest / 2;
    let us = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(random_jitter() % us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: i64 = 3_600_000_000;

    #[test]
    fn wrong_clock_follows_the_database_from_its_first_answer() {
        let (right, wrong) = (Clock::new(), Clock::with_wall_offset(HOUR_US));
        assert!(wrong.now().0 - right.now().0 > HOUR_US / 2);
        wrong.observe_answer(BootInstant::now(), right.now());
        let apart = (wrong.now().0 - right.now().0).abs();
        assert!(apart < HOUR_US / 2, "{apart} us apart");
        assert_eq!(wrong.health().steps, 0, "a beginning is not a step");
    }

    #[test]
    fn late_answer_is_ignored_and_a_step_is_watched() {
        let clock = Clock::new();
        clock.observe_answer(BootInstant::now(), clock.now());
        let far = clock.now().plus_ms(3_600_000);
        let long_ago = BootInstant(BootInstant::now().0 - ROUND_TRIP_MAX_US - 1);
        assert_eq!(clock.observe_answer(long_ago, far), None);
        let before = clock.now();
        let seen = clock.observe_answer(BootInstant::now(), far);
        assert!(matches!(seen, Some(ObservedChange::StepSeen(by)) if by > HOUR_US / 2), "{seen:?}");
        assert!(clock.now().ms_since(before) < 3_600_000 / 2, "it is not followed at once");
        assert_eq!(clock.health().steps, 1);
    }

    #[test]
    fn better_answer_replaces_a_late_first_one() {
        let clock = Clock::new();
        let right = Clock::new().now();
        let ago = |us: i64| BootInstant(BootInstant::now().0 - us);
        assert_eq!(clock.observe_answer(ago(4 * ROUND_TRIP_MAX_US), right.plus_ms(60_000)), None);
        assert_eq!(clock.observe_answer(ago(8 * ROUND_TRIP_MAX_US), right), None, "a worse one says nothing");
        let better = clock.observe_answer(BootInstant::now(), right);
        assert!(matches!(better, Some(ObservedChange::StepFollowed(by)) if by < -50_000_000), "{better:?}");
        assert!(clock.now().ms_since(right) < 30_000);
        assert_eq!(clock.observe_answer(BootInstant::now(), clock.now()), Some(ObservedChange::Steady));
    }

    #[test]
    fn steps_are_described_by_size_and_direction() {
        assert_eq!(describe_step(86_399_999_900), "86400.000 s ahead");
        assert_eq!(describe_step(-4_025_000), "4.025 s back");
    }

    #[test]
    fn jitter_stays_within_its_range() {
        let longest = Duration::from_millis(500);
        let waits: Vec<Duration> = (0..200).map(|_| jittered_interval(longest)).collect();
        assert!(waits.iter().all(|wait| *wait >= longest / 2 && *wait <= longest), "{waits:?}");
        // Of 200 uniform draws at least one falls in the first fifth and one in the last, except with
        // probability 10^-19.
        let fifth = longest / 10;
        for (what, is) in [
            ("early", waits.iter().any(|wait| *wait < longest / 2 + fifth)),
            ("late", waits.iter().any(|wait| *wait > longest - fifth)),
        ] {
            assert!(is, "none is {what}: {waits:?}");
        }
        let several: std::collections::HashSet<&Duration> = waits.iter().collect();
        assert!(several.len() > 150, "only {} differ", several.len());
        assert!(jittered_interval(Duration::ZERO) <= Duration::from_micros(1));
    }
}
