//! A run: its events, and the state they fold to.

mod asking;
mod compacted;
mod event;
mod event_inbox;
mod event_work;
mod hands;
mod history;
mod known_failures;
mod ledger;
mod permits;
mod pin;
mod reads;
mod state;
mod transcript;
mod transition;
mod troubles;

#[cfg(test)]
mod blocked_tests;
#[cfg(test)]
mod tests;

pub use asking::*;
pub use compacted::*;
pub use event::*;
pub use event_inbox::*;
pub use event_work::*;
pub use hands::*;
pub use history::*;
pub use known_failures::*;
pub use ledger::*;
pub use permits::*;
pub use pin::*;
pub use reads::*;
pub use state::*;
pub use transcript::*;
pub use troubles::*;
