//! `complete_task`: ends the work. There is no other way to end it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    card_fields,
};
use crate::calls::parse_args;

pub const NAME: &str = "complete_task";
pub(in super::super) const DESCRIPTION: &str = "Ends the task; nothing else does. Allowed once all gates have passed, and \
    in the last turn before a limit.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CompleteTaskArgs {
    /// For people: what was done and why; where the work is not done, what is left and how it stands.
    summary: String,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &CompleteTaskArgs) -> ToolOutcome {
    card_fields::card_outcome(NAME, card_fields::require_text("summary", &args.summary), "The task ends.")
}

/// Extracts the summary from a call's arguments.
///
/// # Errors
/// Describes the problem for the model.
pub fn parse_completion_summary(args: &Value) -> Result<String, String> {
    card_fields::require_text("summary", &parse_args::<CompleteTaskArgs>(NAME, args)?.summary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complete_task_requires_a_summary() {
        assert_eq!(parse_completion_summary(&json!({ "summary": " done " })).as_deref(), Ok("done"));
        for args in [json!({}), json!({ "summary": "" }), json!({ "summary": "x".repeat(6001) })] {
            assert!(parse_completion_summary(&args).is_err(), "{args}");
        }
    }
}
