//! A run: its events, and the state they fold to.

#[cfg(test)]
mod blocked_tests;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod fold;
#[cfg(test)]
mod forked_tests;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod work_tests;

pub use config::*;
pub use events::*;
pub use state::*;
