//! The run loop: decide, record, act, record.

pub(super) mod intents;
pub(super) mod run_executor;
