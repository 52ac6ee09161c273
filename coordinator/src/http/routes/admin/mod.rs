//! Routes for administrators.

pub(in crate::http) mod archive;
pub(in crate::http) mod health;
pub(in crate::http) mod import_and_gc;
pub(in crate::http) mod metrics;
pub(in crate::http) mod notifications;
pub(in crate::http) mod overview;
pub(in crate::http) mod provider_limits;
pub(in crate::http) mod queues;
pub(in crate::http) mod schedules;
pub(in crate::http) mod status;
pub(in crate::http) mod tokens;
pub(in crate::http) mod ui;
