//! `complete_task`: the end of the work, and the only one.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    given,
};
use crate::calls::parse;

/// The name.
pub const NAME: &str = "complete_task";
pub(in super::super) const DESCRIPTION: &str = "Ends the task; nothing else does. Allowed once all gates have passed, and \
    in the last turn before a limit.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// For people: what was done and why; where the work is not done, what is left and how it stands.
    summary: String,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &Args) -> ToolOutcome {
    given::answer(NAME, given::text("summary", &args.summary), "The task ends.")
}

/// The last words of a call.
///
/// # Errors
/// What is wrong with them, for the model.
pub fn completion(args: &Value) -> Result<String, String> {
    given::text("summary", &parse::<Args>(NAME, args)?.summary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_has_last_words() {
        assert_eq!(completion(&json!({ "summary": " done " })).as_deref(), Ok("done"));
        for args in [json!({}), json!({ "summary": "" }), json!({ "summary": "x".repeat(6001) })] {
            assert!(completion(&args).is_err(), "{args}");
        }
    }
}
