//! The coordinator's one source of time, ids and randomness. Everything below it takes them as
//! parameters, so that decisions can be repeated and tests can say what time it is.

use std::sync::atomic::{AtomicI64, Ordering};

use docket_schema::ids::Timestamp;
use uuid::Uuid;

/// Wall time that never goes backwards within a process: a stepped clock must not order events
/// against their sequence.
#[derive(Debug, Default)]
pub struct Clock {
    last: AtomicI64,
}

impl Clock {
    /// A clock.
    pub const fn new() -> Self {
        Self { last: AtomicI64::new(0) }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one generator of time here")]
        let now = chrono::Utc::now().timestamp_micros();
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
