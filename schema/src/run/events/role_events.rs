//! Roles that are pinned after the start of a run, and those that are taken up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::config::{role_spec::RoleSpec, run_config::OtherModel};
use crate::{content::Content, ids::DecisionHash, tool::ToolSet};

/// The roles of an engine that a run goes on with after a fork: what `RunStarted` would have pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolesPinned {
    /// The roles.
    pub roles: Vec<RoleSpec>,
    /// Their models beside the run's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<OtherModel>,
    /// The set that the roles' tools are of, where that is another one now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_set: Option<ToolSet>,
}

/// A role is taken up: its conversation begins with these words, and knows of no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleBegan {
    /// The role.
    pub role: String,
    /// What for, in a line for people: `step 2 of 5: add the parser`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The first message, part by part.
    pub opening: Vec<Content>,
    /// The decision.
    pub decision: DecisionHash,
}
