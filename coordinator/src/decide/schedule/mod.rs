//! Schedules: when they fire, and what is due then.

pub(super) mod cron;
pub(super) mod due;
pub(super) mod fire;
