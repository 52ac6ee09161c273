//! Events that pin roles after the start of a run, and that start a role.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::config::{role_spec::RoleSpec, run_config::OtherModel};
use crate::{content::Content, ids::DecisionHash, tool::ToolSet};

/// Roles of the engine with which a run continues after a fork: what `RunStarted` would have pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolesPinned {
    /// The roles.
    pub roles: Vec<RoleSpec>,
    /// Their models, in addition to the run's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<OtherModel>,
    /// The roles' tool set, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_set: Option<ToolSet>,
}

/// A role started: its conversation begins with these messages and contains no others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleBegan {
    /// The role.
    pub role: String,
    /// The purpose, as one line for people: `step 2 of 5: add the parser`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The parts of the first message.
    pub opening: Vec<Content>,
    /// The decision.
    pub decision: DecisionHash,
}
