//! What a coordinator does by itself: gives back leases that nobody renews, makes tasks available
//! whose time has come, makes tasks of what stands in the inbox, fires schedules, wakes those who wait for either,
//! learns of tokens that others revoked, tells people and programs elsewhere what needs them, writes down which calls were refused, archives what is old, and says when the store's writer is stuck.
//!
//! Every task here is idempotent: any number of coordinators may run them on one store at a time. Those that look
//! after the store as a whole do so under a term (`leases/leader_lease.rs`), to spare the others the same work. They
//! work on the application's state and know nothing of HTTP.

mod archiver;
mod auth_failure_writer;
mod clock_follower;
mod expirer;
mod hints;
mod inbox;
mod notifications;
mod scheduler;
mod schedules;
mod stream_tailer;
mod writer_watch;

pub(crate) use archiver::archive_old_tasks;
pub(crate) use auth_failure_writer::write_auth_failures;
pub(crate) use clock_follower::follow_clock;
pub(crate) use expirer::expire_leases;
#[cfg(test)]
pub(crate) use expirer::{ExpiredLease, expire_if_overdue};
pub(crate) use hints::{follow_hints, send_hints};
pub(crate) use inbox::consume_inbox;
pub use inbox::consume_inbox_once;
pub(crate) use notifications::start_notifications;
pub(crate) use scheduler::make_due_available;
pub(crate) use schedules::fire_schedules;
pub(crate) use stream_tailer::tail_streams;
pub(crate) use writer_watch::watch_writers;
