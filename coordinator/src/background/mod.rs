//! Background jobs of a coordinator: end expired leases, make due tasks available, turn inbox rows into
//! tasks, fire schedules, exchange wake-up hints, tail system streams (tokens, limits, budgets), deliver
//! notifications, record rejected requests, archive old tasks, and report a stuck store writer.
//!
//! Every job is idempotent, so any number of coordinators can run them on one store. Jobs that maintain the
//! store as a whole run under a leader lease (`leases/leader_lease.rs`) to avoid duplicate work. They use the
//! application state and know nothing about HTTP.

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
