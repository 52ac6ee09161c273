//! Schedules: when they fire, and which tasks are due.

pub(super) mod cron;
pub(super) mod fire;
pub(super) mod make_available;
