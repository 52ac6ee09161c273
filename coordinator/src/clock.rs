//! The coordinator's one source of time, ids and randomness. Everything below it takes them as
//! parameters, so that decisions can be repeated and tests can say what time it is.
//!
//! # How time is followed
//! Deadlines, schedules and `recorded_at` are instants, so the clock must agree with the world; leases measure how long
//! something was silent, so it must never leap because a machine's clock was set. Both hold by these rules:
//!
//! 1. Between two observations of its source the time is what the machine counts since it booted (`CLOCK_BOOTTIME`,
//!    which no one can set and which counts suspend; `CLOCK_MONOTONIC` where there is none).
//! 2. The source is this machine's wall clock on SQLite, and the database's time on PostgreSQL, so that coordinators of
//!    one database agree whatever their machines say. It is observed every few seconds (`leases/clock_check.rs`).
//! 3. A source that is at most a second and a half off is slewed to: time runs a tenth faster or slower until it agrees, and never
//!    backwards.
//! 4. A source that is further off has been stepped. The step is logged, counted for `/readyz` and `docket doctor`, and
//!    followed only when it has held for ten seconds, in either direction. One that is undone before then changes nothing.
//! 5. When a step is followed, time leaps with it at once; holding it back would stop retries and schedules for as long
//!    as the step was. Every lease then gets its whole time again, and none is ended for that time (`leases/leader_lease.rs`).
//! 6. Whatever another clock may have written is believed only within its longest length: a term, a lease, a retry's
//!    wait, a provider's next free moment, a schedule's last firing.
//!
//! # What that means for recorded times
//! `recorded_at` rises within a stream while clocks differ by less than two seconds (`store/desk.rs`), which hides the
//! differences between coordinators. After a followed step backwards it goes back with the clock. Nothing orders by it:
//! streams are ordered by seq, the log by position, and cursors are positions. Ids (UUIDv7) take the machine's wall
//! clock, but never go back within a process; nothing reads a time from them. Reports count an event in the hour it bears.

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

/// Longest question, in microseconds, whose answer says what time it is elsewhere: half of it is the error.
const ROUND_TRIP_MAX_US: i64 = 1_000_000;

/// How long a step must hold before it is followed, in milliseconds.
pub(crate) const STEP_HOLD_MS: u64 = HOLD_US.unsigned_abs() / 1000;

/// By how much the clock may differ from its source without a step being seen, in milliseconds.
pub(crate) const STEP_MIN_MS: u64 = STEP_MIN_US.unsigned_abs() / 1000;

/// Microseconds since the machine booted, suspend included: the difference of two is how long something took.
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

    /// This moment, `ms` milliseconds later.
    pub(crate) const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1000)))
    }
}

/// The time as this coordinator follows it: see the module.
#[derive(Debug, Default)]
pub struct Clock {
    state: Mutex<ClockState>,
    /// How far this machine's wall clock is ahead, in microseconds: tests have machines that are wrong.
    wall_offset_us: i64,
}

#[derive(Debug, Default)]
struct ClockState {
    time: Option<FollowedTime>,
    /// How long the answer took, in microseconds, that a source elsewhere gave first and that this clock began with; `None`
    /// where none was asked.
    first_round_trip_us: Option<i64>,
}

impl ClockState {
    /// The time, which begins with the wall clock's where nothing was observed before.
    fn followed_time(&mut self, now: BootInstant, wall: impl FnOnce() -> Timestamp) -> &mut FollowedTime {
        self.time.get_or_insert_with(|| FollowedTime::starting_at(now, wall()))
    }

    /// Begins with an answer, unless it began with a better one. `None` while the best one took too long.
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
            // Deadlines may have been written by the worse one.
            Some(ObservedChange::StepFollowed(by))
        } else {
            Some(ObservedChange::Steady)
        }
    }
}

impl Clock {
    /// A clock.
    pub const fn new() -> Self {
        Self::with_wall_offset(0)
    }

    /// The clock of a machine whose own is wrong by so many microseconds: for tests.
    pub const fn with_wall_offset(ahead: i64) -> Self {
        Self {
            state: Mutex::new(ClockState { time: None, first_round_trip_us: None }),
            wall_offset_us: ahead,
        }
    }

    /// What this machine's wall clock says, whatever is followed.
    fn wall_time(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one generator of time here")]
        let now = chrono::Utc::now().timestamp_micros();
        Timestamp(now.saturating_add(self.wall_offset_us))
    }

    fn lock_state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        let mut state = self.lock_state();
        let now = BootInstant::now();
        state.followed_time(now, || self.wall_time()).read(now)
    }

    /// The earliest time that this clock has shown within the last `ms`, as far as this process knows: what was written
    /// since then bears no earlier one, also where a step was followed meanwhile.
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

    /// Observes another clock, which was asked at `asked` and said `theirs`. `None` where the answer took so long that
    /// it says nothing. The first answer is believed at once, for it is given before anything is served; if it took too
    /// long, so is the next better one.
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

    /// How many steps were followed until now.
    pub(crate) fn followed_steps(&self) -> u64 {
        self.lock_state().time.as_ref().map_or(0, FollowedTime::followed_steps)
    }

    /// The steps of the source that this process has seen.
    pub(crate) fn health(&self) -> ClockHealth {
        self.lock_state().time.as_ref().map(FollowedTime::health).unwrap_or_default()
    }
}

/// Says once of each step that it was seen, and once what came of it.
fn log_change(change: ObservedChange, whose: &str) {
    match change {
        ObservedChange::Steady | ObservedChange::StepHeld(_) => {}
        ObservedChange::StepSeen(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock jumped {}; it is followed if that holds for {} s",
            describe_step(by),
            STEP_HOLD_MS / 1000
        ),
        ObservedChange::StepGone(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock, which had jumped {}, is right again; it was not followed",
            describe_step(by)
        ),
        ObservedChange::StepFollowed(by) => tracing::warn!(
            by_ms = by / 1000,
            "{whose} clock jumped {} and stayed there: it is followed now, and leases get their whole time again",
            describe_step(by)
        ),
    }
}

/// A step in words: how far, and in which direction.
fn describe_step(by_us: i64) -> String {
    let direction = if by_us < 0 { "back" } else { "ahead" };
    let ms = by_us.unsigned_abs().saturating_add(500) / 1000;
    format!("{}.{:03} s {direction}", ms / 1000, ms % 1000)
}

/// A new id: UUIDv7, so that ids sort by when they were made.
pub fn new_id() -> Uuid {
    #[expect(clippy::disallowed_methods, reason = "this is the one generator of ids here")]
    Uuid::now_v7()
}

/// A random number for jitter.
pub fn random_jitter() -> u64 {
    rand::random()
}

/// Thirty-two random bytes from the system's generator: a store's secret, made once.
pub fn fresh_secret() -> [u8; 32] {
    rand::random()
}

/// Between half of `longest` and all of it: pollers must not fall into step.
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
        // Spread over all of it: of 200 even draws some are in the first fifth and some in the last, but once in 10^19.
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
