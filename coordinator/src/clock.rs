//! The coordinator's one source of time, ids and randomness. Everything below it takes them as
//! parameters, so that decisions can be repeated and tests can say what time it is.

use std::sync::atomic::{AtomicI64, Ordering};

use docket_schema::ids::Timestamp;
use uuid::Uuid;

/// Longest question, in microseconds, whose answer says what time it is elsewhere: half of it is the error.
const QUESTION_MAX: i64 = 1_000_000;

/// Wall time that never goes backwards within a process: a stepped clock must not order events
/// against their sequence. Coordinators of one database take its time, for each writes deadlines that another reads.
#[derive(Debug, Default)]
pub struct Clock {
    last: AtomicI64,
    /// What the machine's clock is behind the one that is followed, in microseconds.
    behind: AtomicI64,
    /// What this machine's clock is ahead: tests have machines that are wrong.
    ahead: i64,
}

impl Clock {
    /// A clock.
    pub const fn new() -> Self {
        Self::on_a_machine_ahead(0)
    }

    /// The clock of a machine whose own is wrong by so many microseconds: for tests.
    pub const fn on_a_machine_ahead(ahead: i64) -> Self {
        Self { last: AtomicI64::new(0), behind: AtomicI64::new(0), ahead }
    }

    /// What this machine says, whatever is followed.
    pub(crate) fn of_this_machine(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one generator of time here")]
        let now = chrono::Utc::now().timestamp_micros();
        Timestamp(now.saturating_add(self.ahead))
    }

    /// Follows another clock, which said `theirs` between `asked` and now by this machine's. It is asked before
    /// anybody is told a time, so that none was told that is still to come.
    pub(crate) fn follow(&self, asked: Timestamp, theirs: Timestamp) {
        let took = self.of_this_machine().0.saturating_sub(asked.0);
        if (0..=QUESTION_MAX).contains(&took) {
            self.behind.store(theirs.0.saturating_sub(asked.0 + took / 2), Ordering::Relaxed);
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        let now = self.of_this_machine().0.saturating_add(self.behind.load(Ordering::Relaxed));
        let last = self.last.fetch_max(now, Ordering::Relaxed);
        Timestamp(now.max(last))
    }
}

/// A new id: UUIDv7, so that ids sort by when they were made.
pub fn new_id() -> Uuid {
    #[expect(clippy::disallowed_methods, reason = "this is the one generator of ids here")]
    Uuid::now_v7()
}

/// A random number for jitter.
pub fn jitter() -> u64 {
    rand::random()
}

/// Thirty-two random bytes from the system's generator: a store's secret, made once.
pub fn fresh_secret() -> [u8; 32] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AN_HOUR_US: i64 = 3_600_000_000;

    #[test]
    fn a_wrong_clock_follows_another_unless_the_answer_took_too_long() {
        let (right, wrong) = (Clock::new(), Clock::on_a_machine_ahead(AN_HOUR_US));
        let asked = wrong.of_this_machine();
        let long_ago = Timestamp(asked.0 - QUESTION_MAX - 1);
        wrong.follow(long_ago, right.now());
        assert_eq!(wrong.behind.load(Ordering::Relaxed), 0, "who answers late says nothing");
        wrong.follow(asked, right.now());
        let apart = (wrong.now().0 - right.now().0).abs();
        assert!(apart < AN_HOUR_US / 2, "{apart} us apart");
    }
}
