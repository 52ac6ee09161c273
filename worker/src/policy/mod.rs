//! Policy: what is said of a model's calls before they run (E12). Pure.
//!
//! A shell line is taken apart by bash's grammar, and each command, and each file it is redirected to, is held against
//! every rule of every policy; the strictest verdict wins. That reads what is written, not what it comes to: policy
//! steers what honest work asks for, and the sandbox holds the rest. Called by the engine with what the run pinned,
//! and by whoever loads a policy.

mod call_parts;
mod command_pattern;
mod evaluate;
mod glob;
mod load;
mod network;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod quoting_tests;
mod rule_scope;
#[cfg(test)]
mod tests;
mod visibility;

pub(crate) use command_pattern::matches_wildcard;
pub use evaluate::{DEFAULT_RULE, PolicyDecision, evaluate_policies};
pub use glob::PathGlob;
pub use load::{check_policy, parse_policy};
pub use network::{describe_network, network_grant};
pub use rule_scope::RuleScope;
pub use visibility::{AskVisibility, PathVisibility, VisibilityFilter};

/// A policy in TOML, for tests.
#[cfg(test)]
pub(crate) fn parse_policy_text(text: &str) -> Result<docket_schema::policy::Policy, String> {
    parse_policy(text.parse().expect("TOML"))
}
