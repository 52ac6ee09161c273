//! Roles: what a model of a run is told to be, and what it may do. Pinned when the run begins; a run without roles has
//! one conversation, of its engine's own.
//!
//! Each time a role is taken up a conversation of its own begins: it holds what its engine gives it, and nothing that
//! was said under another role. What came of the conversation before is in the log, and in [`crate::run::Work`].

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampling::ReasoningEffort;
use crate::{content::BlobRef, message::ModelRef};

/// Longest name of a role, in bytes.
pub const ROLE_NAME_BYTES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleSpec {
    /// `planner`, `executor`, `coder` …
    pub name: String,
    /// The model that plays it.
    pub model: ModelRef,
    /// Its system prompt.
    pub system: BlobRef,
    /// Specifications of its tools, as a JSON array.
    pub tools: BlobRef,
    /// Names of its tools: a call of any other is refused by the runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may: Vec<String>,
    /// JSON Schema that its last answer must meet; none = its answer is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<serde_json::Value>,
    /// Sampling temperature in thousandths; none = as its model has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// How hard it thinks; none = as its model has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Most tokens of a file that it is given; 0 = as its model's window allows.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub context_tokens_max: u64,
    /// Which files its tools may write.
    #[serde(default, skip_serializing_if = "WriteScope::is_any")]
    pub writes: WriteScope,
}

/// Which files the tools of a role may write by themselves; what its commands write no path tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteScope {
    /// All of the workspace.
    #[default]
    Any,
    /// Files of tests, and what lies in folders of tests.
    Tests,
}

impl WriteScope {
    /// Whether nothing is said.
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
