//! What a call did on the network, where policy granted it: kept with its result, so that it can be audited.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Places that a call's record names, of each kind.
pub const NETWORK_HOSTS_MAX: usize = 50;

/// What a call reached, and what it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NetworkActivity {
    /// Places that were reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedHost>,
    /// Places that were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedHost>,
    /// Connections and refusals at further places, which are not named.
    #[serde(skip_serializing_if = "crate::event::is_zero")]
    pub left_out: u32,
}

/// A place that a call reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachedHost {
    /// `HOST:PORT`.
    pub place: String,
    /// Connections.
    pub connections: u32,
    /// Bytes sent there.
    pub sent_bytes: u64,
    /// Bytes received from there.
    pub received_bytes: u64,
}

/// A place that a call was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedHost {
    /// `HOST:PORT`, as asked for.
    pub place: String,
    /// Why.
    pub why: String,
    /// How often.
    pub times: u32,
}
