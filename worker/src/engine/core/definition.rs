//! The engine interface: a name with a version, roles, tools, and one function that decides. Engines implement it;
//! the run executor and replay call it.

use docket_schema::{
    run::{EngineRef, RunState, WriteScope},
    task::RoleOverride,
    tool::ToolSet,
};

use super::decision::Decision;

/// A decision procedure for runs.
pub trait Engine: Send + Sync {
    /// Name and version of its rules.
    fn engine_ref(&self) -> EngineRef;

    /// The roles of its conversations; none if the engine has a single conversation of its own.
    fn default_roles(&self) -> Vec<RoleDefinition> {
        Vec::new()
    }

    /// Returns its roles with a task's overrides, in the order in which they speak.
    ///
    /// # Errors
    /// An override that is not allowed.
    fn roles_with_overrides(&self, asked: &[RoleOverride]) -> Result<Vec<RoleDefinition>, RoleError> {
        match asked.iter().find(|role| role.defines_role()) {
            None => Ok(self.default_roles()),
            Some(role) => Err(RoleError::Fixed { role: role.name.clone(), engine: self.engine_ref().name }),
        }
    }

    /// The tool set of its roles, if the task cannot choose it.
    fn tool_set(&self) -> Option<ToolSet> {
        None
    }

    /// Returns how much of a time budget, in milliseconds, calls may use now: an engine with a last turn reserves
    /// time for it.
    fn call_time_budget_ms(&self, _run: &RunState, budget_ms: u64) -> u64 {
        budget_ms
    }

    /// Whether a model may call this tool now, in addition to the limits of role and policy.
    fn allows_tool(&self, _run: &RunState, _tool: &str) -> bool {
        true
    }

    /// Returns the next decision. Called only while the run is `Deciding`.
    fn decide(&self, run: &RunState) -> Decision;
}

/// A role as an engine defines it; the pinned part of it is [`docket_schema::run::RoleSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RoleDefinition {
    /// Its name.
    pub name: String,
    /// Its part of the system prompt, before its tools and the project.
    pub prompt: String,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// JSON Schema that its final reply must match.
    pub reply_schema: Option<serde_json::Value>,
    /// Whether its prompt describes the project: rules, tests, outline.
    pub sees_project: bool,
    /// Which files its tools may write.
    pub write_scope: WriteScope,
}

impl RoleDefinition {
    /// Creates a role without tools that sees the project and replies with text.
    pub fn new(name: &str, words: &str) -> Self {
        Self {
            name: name.to_owned(),
            prompt: words.to_owned(),
            tools: Vec::new(),
            reply_schema: None,
            sees_project: true,
            write_scope: WriteScope::Any,
        }
    }
}

/// Why a role override is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The engine has no role of this name.
    #[error("there is no role `{role}`; {}", describe_known_roles(.engine, .known))]
    Unknown {
        /// The name.
        role: String,
        /// The engine.
        engine: String,
        /// Its roles.
        known: Vec<String>,
    },
    /// The engine's roles are fixed.
    #[error(
        "the roles of the engine `{engine}` are fixed: of `{role}` only model, effort, temperature and context_tokens_max can be said"
    )]
    Fixed {
        /// The role.
        role: String,
        /// The engine.
        engine: String,
    },
    /// Roles have no such key.
    #[error("there is no `{key}` of the role `{role}`")]
    Key {
        /// The role.
        role: String,
        /// The key.
        key: String,
    },
    /// The value of a key is invalid.
    #[error("`{key}` of the role `{role}` must be {must}")]
    Value {
        /// The role.
        role: String,
        /// `prompt`, `tools`, `answer`, `after` …
        key: &'static str,
        /// What the value must be.
        must: String,
    },
}

fn describe_known_roles(engine: &str, known: &[String]) -> String {
    match known {
        [] => format!("the engine `{engine}` has no roles"),
        known => format!("the engine `{engine}` has {}", known.join(", ")),
    }
}
