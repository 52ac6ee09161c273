//! Roles: the prompt and the permissions of each model of a run, pinned when the run starts. A run without
//! roles has a single conversation defined by its engine.
//!
//! Each time a role starts, a new conversation begins. It contains what the engine provides and nothing from
//! other roles. The results of earlier conversations are in the log and in [`crate::run::RoleEngineState`].

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampling::ReasoningEffort;
use crate::{content::BlobRef, message::ModelRef};

/// Maximum length of a role's name, in bytes.
pub const ROLE_NAME_BYTES_MAX: usize = 64;

/// A role. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleSpec {
    /// `planner`, `executor`, `coder` …
    pub name: String,
    /// The role's model.
    pub model: ModelRef,
    /// The role's system prompt.
    pub system: BlobRef,
    /// Specifications of its tools, as a JSON array.
    pub tools: BlobRef,
    /// Names of its tools; the runtime refuses calls of any other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may: Vec<String>,
    /// JSON Schema for its final reply; if absent, the reply is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<serde_json::Value>,
    /// Sampling temperature in thousandths; if absent, the model's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Reasoning effort; if absent, the model's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Maximum number of tokens of a file in its context; 0 means as many as fit the model's window.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub context_tokens_max: u64,
    /// The files that its tools may write.
    #[serde(default, skip_serializing_if = "WriteScope::is_any")]
    pub writes: WriteScope,
}

/// The files that a role's own tools may write. Files written by its commands are not covered, because the
/// paths are unknown in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteScope {
    /// The complete workspace.
    #[default]
    Any,
    /// Test files, and files in test folders.
    Tests,
}

impl WriteScope {
    /// Whether the scope is unrestricted.
    pub const fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

impl FromStr for WriteScope {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "tests" => Ok(Self::Tests),
            _ => Err("it must be any or tests"),
        }
    }
}

impl RoleSpec {
    /// Whether the role has this tool.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.may.iter().any(|name| name == tool)
    }
}
