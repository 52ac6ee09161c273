//! Network activity of a call with a network grant, recorded with its result for auditing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of destinations listed in a call's record, of each kind.
pub const NETWORK_HOSTS_MAX: usize = 50;

/// The destinations that a call reached, and those it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NetworkActivity {
    /// Destinations reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedHost>,
    /// Destinations refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedHost>,
    /// Number of connections and refusals at further destinations that are not listed.
    #[serde(skip_serializing_if = "crate::event::is_zero")]
    pub left_out: u32,
}

/// A destination that a call reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachedHost {
    /// `HOST:PORT`.
    pub place: String,
    /// Number of connections.
    pub connections: u32,
    /// Bytes sent there.
    pub sent_bytes: u64,
    /// Bytes received from there.
    pub received_bytes: u64,
}

/// A destination that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedHost {
    /// `HOST:PORT`, as requested.
    pub place: String,
    /// The reason.
    pub why: String,
    /// Number of refusals.
    pub times: u32,
}
