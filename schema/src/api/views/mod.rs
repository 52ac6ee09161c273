//! Read-only views: overview, reports, history of a run.

pub(super) mod history;
pub(super) mod overview;
pub(super) mod report;

pub use history::*;
pub use overview::*;
pub use report::*;
