//! Engines: what to do next, as a plain function of the recorded state.
//!
//! No clock, no randomness, no IO: the same log gives the same decision on any machine. The driver
//! performs decisions and records them; replay derives them again and compares.

mod answer;
mod architect;
mod asked;
mod blockers;
#[cfg(test)]
mod blockers_tests;
mod budget;
mod compaction;
mod decision;
mod delegation;
#[cfg(test)]
mod delegation_tests;
mod early_end;
mod escalation;
#[cfg(test)]
mod escalation_tests;
#[cfg(test)]
mod example_tests;
pub mod json_schema;
mod models;
#[cfg(test)]
mod models_tests;
#[cfg(test)]
mod outage_tests;
mod patching;
mod permission;
#[cfg(test)]
mod permission_tests;
mod plan;
mod planning;
#[cfg(test)]
mod planning_tests;
pub mod prompt;
mod react;
#[cfg(test)]
pub(crate) mod react_tests;
mod review;
mod seat;
mod sop;
pub mod team;
mod verification;
#[cfg(test)]
mod verification_tests;

pub(crate) use answer::ANSWER_INLINE_BYTES_MAX;
pub use architect::Architect;
pub use asked::{RoleError, roles_of};
pub(crate) use budget::most;
pub use budget::{FirstCall, first_call_tokens_min};
pub(crate) use compaction::summary_call;
pub use decision::*;
pub use delegation::gives_nothing_away;
pub(crate) use delegation::{Allowance, allowances, delegates, not_for_pieces};
pub use plan::Plan;
pub use react::React;
pub use review::Review;
pub use sop::Sop;
pub use team::Team;
pub(crate) use verification::{must_parse, unverified};

use docket_schema::{
    content::BlobRef,
    message::{ModelRef, Part, Role},
    run::{Conversation, EngineRef, Purpose, RoleSpec, RunStarted, RunState, WriteScope},
    task::RoleAsked,
    tool::ToolSet,
};

/// See the module.
pub trait Engine: Send + Sync {
    /// Name and version of its rules.
    fn id(&self) -> EngineRef;

    /// The roles of its conversations; none where it has one of its own.
    fn roles(&self) -> Vec<RoleDef> {
        Vec::new()
    }

    /// Its roles, where a task says what they are, in the order in which they speak.
    ///
    /// # Errors
    /// What cannot be said of them.
    fn roles_asked(&self, asked: &[RoleAsked]) -> Result<Vec<RoleDef>, RoleError> {
        asked::fixed(self, asked)
    }

    /// The set that its roles' tools are of, where it is not the task's to choose.
    fn tool_set(&self) -> Option<ToolSet> {
        None
    }

    /// How much of a budget of time, in milliseconds, calls may use as things stand: whoever has a last word leaves it time.
    fn time_for_calls(&self, _run: &RunState, budget_ms: u64) -> u64 {
        budget_ms
    }

    /// What to do next. Called only while the run is `Deciding`.
    fn decide(&self, run: &RunState) -> Decision;
}

/// A role as an engine defines it; what of it a run pins is in [`RoleSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RoleDef {
    /// Its name.
    pub name: String,
    /// What stands in its system prompt, before its tools and the project.
    pub words: String,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// JSON Schema that its last answer must meet.
    pub answer: Option<serde_json::Value>,
    /// Whether it is told of the project: its rules, how it is tested, its outline.
    pub sees_project: bool,
    /// Which files its tools may write.
    pub writes: WriteScope,
}

impl RoleDef {
    /// A role without tools that is told of the project, and answers with text.
    pub fn of(name: &str, words: &str) -> Self {
        Self {
            name: name.to_owned(),
            words: words.to_owned(),
            tools: Vec::new(),
            answer: None,
            sees_project: true,
            writes: WriteScope::Any,
        }
    }
}

/// The largest answer of a call that no budget makes smaller.
pub fn usual_output_tokens(pins: &RunStarted, purpose: Purpose, model: &ModelRef) -> u32 {
    let terms = pins.models.terms_of(model);
    match purpose {
        Purpose::Compact => compaction::summary_tokens_max(pins, terms),
        Purpose::Decide | Purpose::Plan | Purpose::Review => answer_tokens_max(pins, terms),
    }
}

/// The role in hand, as it was pinned.
pub(crate) fn role_of<'a>(run: &RunState, pins: &'a RunStarted) -> Option<&'a RoleSpec> {
    let name = run.work.role.as_deref()?;
    pins.roles.iter().find(|role| role.name == name)
}

/// The system prompt and the tools of whoever is asked next.
pub(crate) fn texts_of(run: &RunState, pins: &RunStarted) -> (BlobRef, BlobRef) {
    let of_role = role_of(run, pins).map(|role| (role.system, role.tools));
    of_role.unwrap_or((pins.prompts.system, pins.prompts.tools))
}

/// How a model is to answer, as the run has pinned it: its role's word first, then the settings, which are the main
/// model's, then its own terms. Nobody thinks about a summary.
pub fn manner_of(
    (pins, role): (&RunStarted, Option<&RoleSpec>),
    purpose: Purpose,
    model: &ModelRef,
    said: &Conversation,
) -> Manner {
    let terms = pins.models.terms_of(model);
    let own = (*model == pins.models.main).then_some(&pins.settings);
    let (of_role, temperature) = match role {
        Some(role) if role.model == *model => (role.effort, role.temperature_milli),
        Some(_) | None => (None, None),
    };
    let effort = match purpose {
        Purpose::Compact => None,
        Purpose::Decide | Purpose::Plan | Purpose::Review => {
            of_role.or_else(|| own.and_then(|settings| settings.effort)).or(terms.effort)
        }
    };
    let temperature_milli = temperature
        .or_else(|| own.and_then(|settings| settings.temperature_milli))
        .or(terms.temperature_milli);
    let thought = effort.and_then(|_| thought_before(said, model));
    Manner { effort, temperature_milli, completion_tokens: terms.completion_tokens, thought }
}

/// Whether the answer whose calls the conversation's end brings the results of began with a thought of `model`; none
/// where no call waits for its result.
fn thought_before(said: &Conversation, model: &ModelRef) -> Option<bool> {
    let mut last = said.since(said.len().saturating_sub(2));
    let (answer, results) = (&last.next()?.message, &last.next()?.message);
    let brings = results.parts.iter().any(|part| matches!(part, Part::ToolResult { .. }));
    let own = |provider: &str| provider == model.provider || provider == model.to_string();
    let thought = |part: &Part| matches!(part, Part::Thinking { provider, .. } if own(provider));
    (brings && answer.role == Role::Assistant).then(|| answer.parts.iter().any(thought))
}

/// The engines of this build, every version that is still supported.
pub fn engines() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(React),
        Box::new(Plan),
        Box::new(Review::FIRST),
        Box::new(Review::SECOND),
        Box::new(Architect),
        Box::new(Team),
        Box::new(Sop),
    ]
}

/// Their names, each once, in the order in which engines are listed everywhere.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for EngineRef { name, .. } in engines().iter().map(|engine| engine.id()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The engine of this name and version.
pub fn engine(id: &EngineRef) -> Option<Box<dyn Engine>> {
    engines().into_iter().find(|engine| engine.id() == *id)
}

/// The newest version of the engine of this name.
pub fn newest(name: &str) -> Option<Box<dyn Engine>> {
    engines().into_iter().filter(|engine| engine.id().name == name).max_by_key(|engine| engine.id().version)
}
