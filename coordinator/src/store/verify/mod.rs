//! Checks of stored data: verification of the log, and rebuild of the projections.

mod event_channel;
mod fold;
mod log_walk;
mod reader;
mod rebuild;
mod rebuild_budgets;
mod rebuild_queues;

pub use fold::StreamFold;
pub use log_walk::{
    LogFault, StreamReport, VerifyReport, verify_listed_stream, verify_log, verify_stream, walk_stream,
};
pub use reader::LogReader;
pub(crate) use rebuild::rebuild_projections;
