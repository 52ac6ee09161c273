//! Policy: what is said of a model's calls before they run (E12). Pure.
//!
//! A shell line is taken apart by bash's grammar, and each command, and each file it is redirected to, is held against
//! every rule of every policy; the strictest verdict wins. That reads what is written, not what it comes to: policy
//! steers what honest work asks for, and the sandbox holds the rest. Called by the engine with what the run pinned,
//! and by whoever loads a policy.

mod glob;
mod judge;
mod load;
mod network;
#[cfg(test)]
mod oracle_tests;
mod pattern;
#[cfg(test)]
mod quoting_tests;
mod reach;
mod sight;
#[cfg(test)]
mod tests;
mod unit;

pub use glob::PathGlob;
pub use judge::{DEFAULT, Judgement, judge};
pub use load::{check, read};
pub use network::{network, told};
pub(crate) use pattern::is_like;
pub use reach::Reach;
pub use sight::{Asking, Looks, Sight};

/// A policy in TOML, for tests.
#[cfg(test)]
pub(crate) fn parse(text: &str) -> Result<docket_schema::policy::Policy, String> {
    read(text.parse().expect("TOML"))
}
