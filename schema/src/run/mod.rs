//! A run: its events, and the state they fold to.

mod event;
mod pin;
mod state;
mod transcript;

pub use event::*;
pub use pin::*;
pub use state::*;
pub use transcript::*;
