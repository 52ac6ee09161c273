//! Bodies that are only read: the overview, reports, the past of a run.

pub(super) mod overview;
pub(super) mod past;
pub(super) mod report;

pub use overview::*;
pub use past::*;
pub use report::*;
