//! Policy: which calls of a model are run, which are refused, and of which a person is asked (E12).
//!
//! Data only; it is pinned where a run begins, so that a decision can be made again. How calls are held against it
//! stands beside the tools.

mod bounds;
mod network;
mod policy_rules;

pub use bounds::{PARTS_MAX, PolicyError, TEXT_CHARS_MAX};
pub use network::{
    AllowList, ConnectionKind, HostName, HostPattern, HostPort, NETWORK_BYTES_MAX, NetworkPolicy,
};
pub use policy_rules::{Policy, PolicyRule, RULES_MAX, RuleVerdict};
