//! Checks of what is stored: the log walked from end to end, and the projections derived from it again.

mod fold;
mod pages;
mod reader;
mod rebuild;
mod rebuild_budgets;
mod rebuild_queues;
mod walk;

pub use fold::Fold;
pub use reader::LogReader;
pub(crate) use rebuild::rebuild;
pub use walk::{LogFault, Verified, Walked, verify, verify_stream, walk, walk_listed};
