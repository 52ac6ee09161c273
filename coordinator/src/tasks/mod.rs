//! What a coordinator does by itself: gives back leases that nobody renews, makes tasks available
//! whose time has come, makes tasks of what stands in the inbox, fires schedules, wakes those who wait for either,
//! learns of tokens that others revoked, tells people and programs elsewhere what needs them, writes down which calls were refused, archives what is old, and says when the store's writer is stuck.
//!
//! Every task here is idempotent: any number of coordinators may run them on one store at a time. Those that look
//! after the store as a whole do so under a term (`leases/leader_lease.rs`), to spare the others the same work. They
//! work on the application's state and know nothing of HTTP.

mod archiver;
mod expirer;
mod follow;
mod hints;
mod inbox;
mod notifications;
mod refused;
mod scheduler;
mod schedules;
mod tail;
mod writer_watch;

pub(crate) use archiver::archive_old;
pub(crate) use expirer::expire_leases;
#[cfg(test)]
pub(crate) use expirer::{ExpiredLease, end_if_past};
pub(crate) use follow::follow_clock;
pub(crate) use hints::{follow_hints, send_hints};
pub(crate) use inbox::take_inbox;
pub use inbox::take_inbox_once;
pub(crate) use notifications::tell_of_news;
pub(crate) use refused::write_refused;
pub(crate) use scheduler::make_due_available;
pub(crate) use schedules::fire_schedules;
pub(crate) use tail::tail_streams;
pub(crate) use writer_watch::watch_writers;
