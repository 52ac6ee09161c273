//! A run: its events, and the state they fold to.

mod asking;
mod author;
mod check_verdict;
mod compacted;
mod compaction;
mod conclusion;
mod delegation;
mod event;
mod event_inbox;
mod event_role;
mod event_work;
mod external;
mod hands;
mod known_failures;
mod ledger;
mod permits;
mod pin;
mod quality;
mod reads;
mod role;
mod run_state;
mod sampling;
mod stage;
mod totals;
mod transcript;
mod transition;
mod troubles;
mod unverified_policy;
mod work;

#[cfg(test)]
mod blocked_tests;
#[cfg(test)]
mod forked_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod work_tests;

pub use asking::*;
pub use author::*;
pub use check_verdict::*;
pub use compacted::*;
pub use compaction::*;
pub use conclusion::*;
pub use delegation::*;
pub use event::*;
pub use event_inbox::*;
pub use event_role::*;
pub use event_work::*;
pub use external::*;
pub use hands::*;
pub use known_failures::*;
pub use ledger::*;
pub use permits::*;
pub use pin::*;
pub use quality::*;
pub use reads::*;
pub use role::*;
pub use run_state::*;
pub use sampling::*;
pub use stage::*;
pub use totals::*;
pub use transcript::*;
pub use troubles::*;
pub use unverified_policy::*;
pub use work::*;
