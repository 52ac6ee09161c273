//! HTTP bodies. Coordinator, worker and CLI share these and nothing else.

mod fork;
mod carry;
mod lease;
mod limits;
mod log;
mod problem;
mod task;

pub use fork::*;
pub use carry::*;
pub use lease::*;
pub use limits::*;
pub use log::*;
pub use problem::*;
pub use task::*;
