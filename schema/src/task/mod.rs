//! A task of the backlog: what is asked, its events, and the state they fold to.

mod conditions;
mod delegated;
mod deliveries;
mod delivery;
mod event;
mod field_error;
mod flow;
mod inbox;
mod priority;
mod record;
mod role;
mod spec;
#[cfg(test)]
mod tests;

pub use crate::task_state::TaskState;
pub use conditions::*;
pub use delegated::*;
pub use deliveries::*;
pub use delivery::*;
pub use event::*;
pub use field_error::*;
pub use flow::*;
pub use inbox::*;
pub use priority::PRIORITY_MAX;
pub(crate) use priority::read_priority;
pub use record::*;
pub use role::*;
pub use spec::*;
