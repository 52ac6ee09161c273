//! Policy engine: decides whether a model's calls are allowed, denied or need approval before they run (E12). Pure.
//!
//! A shell line is parsed with bash's grammar. Each command, and each file it is redirected to, is checked against
//! every rule of every policy, and the strictest verdict wins. This examines the text of a command, not its effects at
//! run time: policy guides well-behaved models, and the sandbox confines the rest. Called by the engine with the
//! policies that the run pinned, and when a policy is loaded.

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

/// Parses a policy from TOML, for tests.
#[cfg(test)]
pub(crate) fn parse_policy_text(text: &str) -> Result<docket_schema::policy::Policy, String> {
    parse_policy(text.parse().expect("TOML"))
}
