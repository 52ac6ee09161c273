//! What an engine is: a name with a version, roles, tools, and one function that decides. Engines implement it; whoever
//! runs or replays a log calls it.

use docket_schema::{
    run::{EngineRef, RunState, WriteScope},
    task::RoleOverride,
    tool::ToolSet,
};

use super::decision::Decision;

/// See the module.
pub trait Engine: Send + Sync {
    /// Name and version of its rules.
    fn engine_ref(&self) -> EngineRef;

    /// The roles of its conversations; none where it has one of its own.
    fn default_roles(&self) -> Vec<RoleDefinition> {
        Vec::new()
    }

    /// Its roles, where a task says what they are, in the order in which they speak.
    ///
    /// # Errors
    /// What cannot be said of them.
    fn roles_with_overrides(&self, asked: &[RoleOverride]) -> Result<Vec<RoleDefinition>, RoleError> {
        match asked.iter().find(|role| role.defines_role()) {
            None => Ok(self.default_roles()),
            Some(role) => Err(RoleError::Fixed { role: role.name.clone(), engine: self.engine_ref().name }),
        }
    }

    /// The set that its roles' tools are of, where it is not the task's to choose.
    fn tool_set(&self) -> Option<ToolSet> {
        None
    }

    /// How much of a budget of time, in milliseconds, calls may use as things stand: whoever has a last word leaves it time.
    fn call_time_budget_ms(&self, _run: &RunState, budget_ms: u64) -> u64 {
        budget_ms
    }

    /// Whether a model may call this tool as things stand, beyond what its role and policy say.
    fn allows_tool(&self, _run: &RunState, _tool: &str) -> bool {
        true
    }

    /// What to do next. Called only while the run is `Deciding`.
    fn decide(&self, run: &RunState) -> Decision;
}

/// A role as an engine defines it; what of it a run pins is in [`docket_schema::run::RoleSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RoleDefinition {
    /// Its name.
    pub name: String,
    /// What stands in its system prompt, before its tools and the project.
    pub prompt: String,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// JSON Schema that its last answer must meet.
    pub reply_schema: Option<serde_json::Value>,
    /// Whether it is told of the project: its rules, how it is tested, its outline.
    pub sees_project: bool,
    /// Which files its tools may write.
    pub write_scope: WriteScope,
}

impl RoleDefinition {
    /// A role without tools that is told of the project, and answers with text.
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

/// What is asked of a role and cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The engine has no role of this name.
    #[error("there is no role `{role}`; {}", describe_known_roles(.engine, .known))]
    Unknown {
        /// The name.
        role: String,
        /// The engine.
        engine: String,
        /// The roles that it has.
        known: Vec<String>,
    },
    /// The engine's roles are what they are.
    #[error(
        "the roles of the engine `{engine}` are fixed: of `{role}` only model, effort, temperature and context_tokens_max can be said"
    )]
    Fixed {
        /// The role.
        role: String,
        /// The engine.
        engine: String,
    },
    /// A role has no such key.
    #[error("there is no `{key}` of the role `{role}`")]
    Key {
        /// The role.
        role: String,
        /// The key.
        key: String,
    },
    /// What is said of what a role is cannot be.
    #[error("`{key}` of the role `{role}` must be {must}")]
    Value {
        /// The role.
        role: String,
        /// `prompt`, `tools`, `answer`, `after` …
        key: &'static str,
        /// What it must be.
        must: String,
    },
}

fn describe_known_roles(engine: &str, known: &[String]) -> String {
    match known {
        [] => format!("the engine `{engine}` has no roles"),
        known => format!("the engine `{engine}` has {}", known.join(", ")),
    }
}
