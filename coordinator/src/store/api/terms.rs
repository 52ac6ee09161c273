//! Terms: leases on a background job, of which one coordinator of a store at a time is the holder.

use docket_schema::ids::Timestamp;

/// A background job that one coordinator does for all, while its term lasts. What is done under a term is safe without
/// it, too: a term spares the others the same work, and fences nobody.
#[derive(Debug, Clone)]
pub struct TermRequest {
    /// The job.
    pub name: &'static str,
    /// Who does it.
    pub holder: String,
    /// Until when.
    pub until: Timestamp,
    /// The caller's time: a term that has ended by then is free.
    pub now: Timestamp,
    /// How long a term of this name lasts at most, in milliseconds. One that ends later than that from now was taken by a
    /// clock that was wrong, and is shortened to it.
    pub max_term_ms: u64,
    /// The time that leases are owed where nobody did the job for a while; `None` = none.
    pub deadline_trust: Option<DeadlineTrust>,
}

/// Longest lease that a coordinator can be configured to give, in milliseconds: one hour. Coordinators of one database may
/// give leases of different lengths, and lengths grow (`lease_length.rs`), so this bounds the deadlines that are believed.
pub const LEASE_MS_MAX: u64 = 3_600_000;

/// How far a term trusts the deadlines of leases that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineTrust {
    /// A term that begins later than this after the end of the one before it trusts none: workers may have
    /// lived and found nobody to tell. `None` where the clock was stepped: no deadline is trusted then.
    pub max_gap_ms: Option<u64>,
    /// The length of a lease now, in milliseconds: the least that every lease gets where no deadline is trusted, and the
    /// time to which a deadline further off than [`LEASE_MS_MAX`] is shortened.
    pub lease_ms: u64,
}

/// The holder of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermOutcome {
    /// Another coordinator, whose term has not ended.
    HeldByOther,
    /// The caller.
    Acquired {
        /// It began after a gap, and so many leases were given their time.
        extended_leases: Option<u64>,
    },
}
