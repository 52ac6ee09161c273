//! `diff_card`: states why a finished change is as it is. The runtime determines the changed files and lines itself.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    card_fields,
};
use crate::calls::parse_args;

pub const NAME: &str = "diff_card";
pub(in super::super) const DESCRIPTION: &str = "Says that the change is made, and why it is made so. The runtime lists \
    the files and lines itself, and runs the project's checks.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct DiffCardArgs {
    /// Why the change is as it is: what it does, and what was weighed.
    rationale: String,
    /// Only where no test can show that it works: why not.
    #[serde(default)]
    not_verified_because: Option<String>,
}

/// The model's statement about a finished change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffCard {
    /// Why the change is as it is.
    pub rationale: String,
    /// Why no test can show that it works.
    pub not_verified_because: Option<String>,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &DiffCardArgs) -> ToolOutcome {
    card_fields::card_outcome(NAME, to_diff_card(args), "It is taken; the checks follow.")
}

/// Parses a call's arguments.
///
/// # Errors
/// Describes the problem for the model.
pub fn parse_diff_card(args: &Value) -> Result<DiffCard, String> {
    to_diff_card(&parse_args::<DiffCardArgs>(NAME, args)?)
}

fn to_diff_card(args: &DiffCardArgs) -> Result<DiffCard, String> {
    let why = args.not_verified_because.as_deref().filter(|why| !why.trim().is_empty());
    Ok(DiffCard {
        rationale: card_fields::require_text("rationale", &args.rationale)?,
        not_verified_because: why
            .map(|why| card_fields::require_text("not_verified_because", why))
            .transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rationale_is_required_and_changed_files_are_not_accepted() {
        let said = parse_diff_card(&json!({ "rationale": "because", "not_verified_because": " " }));
        assert_eq!(said, Ok(DiffCard { rationale: "because".to_owned(), not_verified_because: None }));
        assert!(parse_diff_card(&json!({ "rationale": "" })).is_err_and(|why| why.contains("empty")));
        let files = json!({ "rationale": "r", "files": ["a"] });
        assert!(parse_diff_card(&files).is_err_and(|why| why.contains("`files` is unknown")));
    }
}
