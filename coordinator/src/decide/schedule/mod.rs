//! Schedules: when they fire, and what is due then.

pub(super) mod cron;
pub(super) mod fire;
pub(super) mod make_available;
