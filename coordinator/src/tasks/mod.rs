//! What a coordinator does by itself: gives back leases that nobody renews, makes tasks available
//! whose time has come, and wakes those who wait for either.
//!
//! Every task here is idempotent: any number of coordinators run them on one store at a time.

mod expirer;
mod scheduler;
mod wake;

#[cfg(test)]
pub(crate) use expirer::end_if_past;
pub(crate) use expirer::expire_leases;
pub(crate) use scheduler::make_due_available;
pub use wake::Wakes;
pub(crate) use wake::{FollowerGuard, jittered};
