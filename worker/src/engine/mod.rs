//! Engines: what to do next, as a plain function of the recorded state.
//!
//! No clock, no randomness, no IO: the same log gives the same decision on any machine. The driver
//! performs decisions and records them; replay derives them again and compares.

mod blockers;
#[cfg(test)]
mod blockers_tests;
mod budget;
mod compaction;
mod decision;
mod early_end;
mod escalation;
#[cfg(test)]
mod escalation_tests;
mod models;
#[cfg(test)]
mod models_tests;
#[cfg(test)]
mod outage_tests;
mod permission;
#[cfg(test)]
mod permission_tests;
mod planning;
#[cfg(test)]
mod planning_tests;
pub mod prompt;
mod react;
#[cfg(test)]
mod react_tests;
mod verification;
#[cfg(test)]
mod verification_tests;

pub(crate) use compaction::summary_call;
pub use decision::*;
pub use react::React;
pub(crate) use verification::must_parse;

use docket_schema::{
    message::{ModelRef, Part, Role},
    run::{Conversation, EngineRef, Purpose, RunStarted, RunState},
};

/// See the module.
pub trait Engine: Send + Sync {
    /// Name and version of its rules.
    fn id(&self) -> EngineRef;

    /// What to do next. Called only while the run is `Deciding`.
    fn decide(&self, run: &RunState) -> Decision;
}

/// The largest answer of a call that no budget makes smaller.
pub fn usual_output_tokens(pins: &RunStarted, purpose: Purpose, model: &ModelRef) -> u32 {
    let terms = pins.models.terms_of(model);
    match purpose {
        Purpose::Compact => compaction::summary_tokens_max(pins, terms),
        Purpose::Decide | Purpose::Plan | Purpose::Review => answer_tokens_max(pins, terms),
    }
}

/// How a model is to answer, as the run has pinned it: settings are the main model's, and go over its own terms.
/// Nobody thinks about a summary.
pub fn manner_of(pins: &RunStarted, purpose: Purpose, model: &ModelRef, said: &Conversation) -> Manner {
    let terms = pins.models.terms_of(model);
    let own = (*model == pins.models.main).then_some(&pins.settings);
    let effort = match purpose {
        Purpose::Compact => None,
        Purpose::Decide | Purpose::Plan | Purpose::Review => {
            own.and_then(|settings| settings.effort).or(terms.effort)
        }
    };
    let temperature_milli = own.and_then(|settings| settings.temperature_milli).or(terms.temperature_milli);
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
    vec![Box::new(React)]
}

/// The engine of this name and version.
pub fn engine(id: &EngineRef) -> Option<Box<dyn Engine>> {
    engines().into_iter().find(|engine| engine.id() == *id)
}

/// The newest version of the engine of this name.
pub fn newest(name: &str) -> Option<Box<dyn Engine>> {
    engines().into_iter().filter(|engine| engine.id().name == name).max_by_key(|engine| engine.id().version)
}
