//! A run: its events, and the state they fold to.

mod event;
mod pin;
mod state;
mod transcript;

#[cfg(test)]
mod tests;

pub use event::*;
pub use pin::*;
pub use state::*;
pub use transcript::*;
