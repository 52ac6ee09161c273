//! Options of the next model call as pinned by the run: the active role with its system prompt and tools, its
//! sampling options, and the length of a reply. Pure.

use docket_schema::{
    content::BlobRef,
    message::{MessagePart, MessageRole, ModelRef},
    run::{CallPurpose, Conversation, ModelTerms, RoleSpec, RunStarted, RunState},
};

use super::decision::SamplingOptions;

/// Longest summary to request.
const SUMMARY_TOKENS_MAX: u32 = 2048;

/// Returns the active role, as it was pinned.
pub(crate) fn current_role<'a>(run: &RunState, pins: &'a RunStarted) -> Option<&'a RoleSpec> {
    let name = run.engine_state.role.as_deref()?;
    pins.roles.iter().find(|role| role.name == name)
}

/// Returns the system prompt and the tools of the next call.
pub(crate) fn prompt_and_tools(run: &RunState, pins: &RunStarted) -> (BlobRef, BlobRef) {
    let of_role = current_role(run, pins).map(|role| (role.system, role.tools));
    of_role.unwrap_or((pins.prompts.system, pins.prompts.tools))
}

/// Returns the sampling options pinned by the run: the role's first, then the settings of the main model, then the
/// model's own terms. Summaries use no reasoning.
pub(crate) fn sampling_options(
    (pins, role): (&RunStarted, Option<&RoleSpec>),
    purpose: CallPurpose,
    model: &ModelRef,
    said: &Conversation,
) -> SamplingOptions {
    let terms = pins.models.terms_for(model);
    let own = (*model == pins.models.main).then_some(&pins.settings);
    let (of_role, temperature) = match role {
        Some(role) if role.model == *model => (role.effort, role.temperature_milli),
        Some(_) | None => (None, None),
    };
    let effort = match purpose {
        CallPurpose::Compact => None,
        CallPurpose::Decide | CallPurpose::Plan | CallPurpose::Review => {
            of_role.or_else(|| own.and_then(|settings| settings.effort)).or(terms.effort)
        }
    };
    let temperature_milli = temperature
        .or_else(|| own.and_then(|settings| settings.temperature_milli))
        .or(terms.temperature_milli);
    let thought = effort.and_then(|_| began_with_thinking(said, model));
    SamplingOptions { effort, temperature_milli, completion_tokens: terms.completion_tokens, thought }
}

/// Whether the reply whose call results end the conversation began with reasoning of `model`; `None` if no call waits
/// for its result.
fn began_with_thinking(said: &Conversation, model: &ModelRef) -> Option<bool> {
    let mut last = said.entries_from(said.len().saturating_sub(2));
    let (answer, results) = (&last.next()?.message, &last.next()?.message);
    let brings = results.parts.iter().any(|part| matches!(part, MessagePart::ToolResult { .. }));
    let own = |provider: &str| provider == model.provider || provider == model.to_string();
    let thought =
        |part: &MessagePart| matches!(part, MessagePart::Thinking { provider, .. } if own(provider));
    (brings && answer.role == MessageRole::Assistant).then(|| answer.parts.iter().any(thought))
}

/// Returns the longest reply of a call that no budget shortens.
pub(crate) fn default_output_tokens(pins: &RunStarted, purpose: CallPurpose, model: &ModelRef) -> u32 {
    let terms = pins.models.terms_for(model);
    match purpose {
        CallPurpose::Compact => summary_tokens_max(pins, terms),
        CallPurpose::Decide | CallPurpose::Plan | CallPurpose::Review => answer_tokens_max(pins, terms),
    }
}

/// Returns the longest reply a run may request: its setting, or the model's own limit if that is lower.
pub(in crate::engine) fn answer_tokens_max(pins: &RunStarted, terms: &ModelTerms) -> u32 {
    let wanted = pins.settings.output_tokens_max;
    match u32::try_from(terms.output_tokens_max) {
        Ok(0) | Err(_) => wanted,
        Ok(cap) => wanted.min(cap),
    }
}

/// Returns the longest summary to request if no budget shortens it.
pub(in crate::engine) fn summary_tokens_max(pins: &RunStarted, terms: &ModelTerms) -> u32 {
    answer_tokens_max(pins, terms).min(SUMMARY_TOKENS_MAX)
}
