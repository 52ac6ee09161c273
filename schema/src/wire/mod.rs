//! HTTP bodies. Coordinator, worker and CLI share these and nothing else.

mod archive;
mod batch;
mod bulk;
mod carry;
mod delivery;
mod fork;
mod inbox;
mod lease;
mod limit;
mod limits;
mod log;
mod problem;
mod query;
mod queue;
mod schedule;
mod task;
mod token;

pub use archive::*;
pub use batch::*;
pub use bulk::*;
pub use carry::*;
pub use delivery::*;
pub use fork::*;
pub use inbox::*;
pub use lease::*;
pub use limit::*;
pub use limits::*;
pub use log::*;
pub use problem::*;
pub use query::*;
pub use queue::*;
pub use schedule::*;
pub use task::*;
pub use token::*;
