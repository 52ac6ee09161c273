//! What a coordinator does by itself: gives back leases that nobody renews, makes tasks available
//! whose time has come, makes tasks of what stands in the inbox, fires schedules, wakes those who wait for either,
//! learns of tokens that others revoked, tells people and programs elsewhere what needs them, writes down which calls were refused, archives what is old, and says when the store's writer is stuck.
//!
//! Every task here is idempotent: any number of coordinators may run them on one store at a time. Those that look
//! after the store as a whole do so under a term (`term.rs`), to spare the others the same work.

mod archiver;
mod expirer;
mod follow;
mod hints;
mod inbox;
mod limits;
mod notifications;
mod refused;
mod scheduler;
mod schedules;
mod term;
mod tokens;
mod wake;
mod writer_watch;

pub(crate) use archiver::archive_old;
#[cfg(test)]
pub(crate) use expirer::end_if_past;
pub(crate) use expirer::expire_leases;
pub(crate) use follow::{ClockSeen, bound_clock_error, check_clock, follow_clock, set_clock};
pub(crate) use hints::{follow_hints, send_hints};
pub(crate) use inbox::take_inbox;
pub use inbox::take_inbox_once;
pub(crate) use limits::follow_limits;
pub(crate) use notifications::tell_of_news;
pub(crate) use refused::write_refused;
pub(crate) use scheduler::make_due_available;
pub(crate) use schedules::fire_schedules;
pub(crate) use term::{Lead, Office, keep_term};
pub(crate) use tokens::follow_tokens;
pub use wake::Wakes;
pub(crate) use wake::jittered;
pub(crate) use writer_watch::watch_writers;
