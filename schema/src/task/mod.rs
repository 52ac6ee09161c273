//! Tasks of the backlog: the specification, the events, and the state they fold to.

mod delegation;
mod delivery_events;
mod delivery_history;
mod field_error;
mod flow;
mod inbox_spec;
mod lease_conditions;
mod priority;
mod role_override;
mod task_event;
mod task_record;
mod task_spec;
#[cfg(test)]
mod tests;

pub use crate::task_state::TaskState;
pub use delegation::*;
pub use delivery_events::*;
pub use delivery_history::*;
pub use field_error::*;
pub use flow::*;
pub use inbox_spec::*;
pub use lease_conditions::*;
pub use priority::PRIORITY_MAX;
pub(crate) use priority::read_priority;
pub use role_override::*;
pub use task_event::*;
pub use task_record::*;
pub use task_spec::*;
