//! A run: its events, and the state they fold to.

#[cfg(test)]
mod blocked_tests;
pub(crate) mod config;
#[cfg(test)]
mod engine_state_tests;
pub(crate) mod events;
pub(crate) mod fold;
#[cfg(test)]
mod forked_tests;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod tests;

pub use config::*;
pub use events::*;
pub use state::*;
