//! Checks of what is stored: the log walked from end to end, and the projections derived from it again.

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
