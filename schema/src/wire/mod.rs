//! HTTP bodies. Coordinator, worker and CLI share these and nothing else.

mod carry;
mod delivery;
mod fork;
mod lease;
mod limit;
mod limits;
mod log;
mod problem;
mod queue;
mod schedule;
mod task;
mod token;

pub use carry::*;
pub use delivery::*;
pub use fork::*;
pub use lease::*;
pub use limit::*;
pub use limits::*;
pub use log::*;
pub use problem::*;
pub use queue::*;
pub use schedule::*;
pub use task::*;
pub use token::*;
