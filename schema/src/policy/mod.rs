//! Policy: which model calls run, which are refused, and which need a person's approval (E12).
//!
//! Data only. It is pinned when a run starts, so that decisions can be reproduced. The evaluation is
//! implemented with the tools.

mod bounds;
mod network;
mod policy_rules;

pub use bounds::{PARTS_MAX, PolicyError, TEXT_CHARS_MAX};
pub use network::{
    AllowList, ConnectionKind, HostName, HostPattern, HostPort, NETWORK_BYTES_MAX, NetworkPolicy,
};
pub use policy_rules::{Policy, PolicyRule, RULES_MAX, RuleVerdict};
