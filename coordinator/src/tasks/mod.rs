//! What a coordinator does by itself: gives back leases that nobody renews, makes tasks available
//! whose time has come, fires schedules, wakes those who wait for either, learns
//! of tokens that others revoked, and writes down which calls were refused.
//!
//! Every task here is idempotent: any number of coordinators run them on one store at a time.

mod expirer;
mod limits;
mod refused;
mod scheduler;
mod schedules;
mod tokens;
mod wake;

#[cfg(test)]
pub(crate) use expirer::end_if_past;
pub(crate) use expirer::expire_leases;
pub(crate) use limits::follow_limits;
pub(crate) use refused::write_refused;
pub(crate) use scheduler::make_due_available;
pub(crate) use schedules::fire_schedules;
pub(crate) use tokens::follow_tokens;
pub use wake::Wakes;
pub(crate) use wake::{FollowerGuard, jittered};
