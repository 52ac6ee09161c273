//! A task of the backlog: what is asked, its events, and the state they fold to.

mod conditions;
mod delegated;
mod delivery;
mod event;
mod flow;
mod inbox;
mod priority;
mod record;
mod role;
mod spec;
mod state;
#[cfg(test)]
mod tests;

pub use conditions::*;
pub use delegated::*;
pub use delivery::*;
pub use event::*;
pub use flow::*;
pub use inbox::*;
pub use priority::PRIORITY_MAX;
pub(crate) use priority::read_priority;
pub use record::*;
pub use role::*;
pub use spec::*;
pub use state::*;
