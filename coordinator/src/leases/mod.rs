//! Foundations of leases: their length, the leader that maintains them, and the clock check.

mod clock_check;
mod leader_lease;
mod lease_length;

pub(crate) use clock_check::{ClockObservation, bound_clock_error, check_clock, set_clock};
pub(crate) use leader_lease::{LeaderLease, LeaderRole, maintain_leadership};
pub(crate) use lease_length::LeaseLength;
