//! The worker's only source of ids and randomness. Wall-clock time comes from the coordinator, which stamps
//! every event. Durations are measured with `std::time::Instant`, which cannot be set. It deliberately does
//! not count suspend: a run is not stalled while its machine sleeps. Whether the run still holds its lease
//! afterwards is decided by the coordinator, and the epoch fences its writes.

use docket_schema::ids::IncarnationId;

/// Returns a new incarnation id. Each start of a worker is a separate incarnation.
pub fn new_incarnation() -> IncarnationId {
    #[expect(clippy::disallowed_methods, reason = "this is the only generator of ids")]
    IncarnationId(uuid::Uuid::now_v7())
}

/// Returns a random number for jitter.
pub fn random_jitter() -> u64 {
    rand::random()
}
