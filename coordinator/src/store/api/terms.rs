//! Terms: leader leases on a background job, held by one coordinator of a store at a time.

use docket_schema::ids::Timestamp;

/// Request for a term of a background job that one coordinator does for all. Work done under a term must be
/// safe without it: a term only avoids duplicate work and fences no one.
#[derive(Debug, Clone)]
pub struct TermRequest {
    /// Name of the job.
    pub name: &'static str,
    /// The requesting coordinator.
    pub holder: String,
    /// Requested end of the term.
    pub until: Timestamp,
    /// The caller's time; a term that ended before it is free.
    pub now: Timestamp,
    /// Longest length of a term of this name, in milliseconds. A stored term that ends later than this from
    /// now was written by a wrong clock and is shortened.
    pub max_term_ms: u64,
    /// How to treat lease deadlines after a gap; `None` if the job does not depend on them.
    pub deadline_trust: Option<DeadlineTrust>,
}

/// Longest lease that can be configured, in milliseconds: one hour. Coordinators of one database can use
/// different lease lengths, and lengths grow (`lease_length.rs`), so this bounds the deadlines that are
/// believed.
pub const LEASE_MS_MAX: u64 = 3_600_000;

/// How far a new term trusts existing lease deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineTrust {
    /// Longest gap since the previous term after which deadlines are still trusted: after a longer one living
    /// workers may have found no coordinator. `None` after a clock step: no deadline is trusted.
    pub max_gap_ms: Option<u64>,
    /// Current lease length, in milliseconds: the minimum extension of every lease if deadlines are not
    /// trusted, and the length to which a deadline further away than [`LEASE_MS_MAX`] is shortened.
    pub lease_ms: u64,
}

/// Outcome of a term request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermOutcome {
    /// Another coordinator holds the term.
    HeldByOther,
    /// The caller holds the term.
    Acquired {
        /// Number of leases extended because the term began after a gap.
        extended_leases: Option<u64>,
    },
}
