//! The worker's one source of ids and randomness. Time is the coordinator's: it stamps every event.
//! Durations are measured with `std::time::Instant`, which no one can set. It does not count suspend, on purpose: a run
//! is not stalled by the time in which nothing on its machine ran. Whether it has kept its lease meanwhile is the
//! coordinator's to say, and the epoch fences what it writes.

use docket_schema::ids::IncarnationId;

/// A new incarnation id: each start of a worker is another worker.
pub fn new_incarnation() -> IncarnationId {
    #[expect(clippy::disallowed_methods, reason = "this is the one generator of ids here")]
    IncarnationId(uuid::Uuid::now_v7())
}

/// A random number for jitter.
pub fn random_jitter() -> u64 {
    rand::random()
}
