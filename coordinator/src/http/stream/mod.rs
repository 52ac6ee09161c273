//! Events as they are recorded: pages of the log and server-sent events.

pub(super) mod event_log;
pub(super) mod sse;
