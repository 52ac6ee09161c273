//! `diff_card`: the change is made; why so. Which files and lines it changed, the runtime finds out by itself.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    given,
};
use crate::calls::parse;

/// The name.
pub const NAME: &str = "diff_card";
pub(in super::super) const DESCRIPTION: &str = "Says that the change is made, and why it is made so. The runtime lists \
    the files and lines itself, and runs the project's checks.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// Why the change is as it is: what it does, and what was weighed.
    rationale: String,
    /// Only where no test can show that it works: why not.
    #[serde(default)]
    not_verified_because: Option<String>,
}

/// What is said of a change that is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Implemented {
    /// Why it is as it is.
    pub rationale: String,
    /// Why no test can show that it works.
    pub not_verified_because: Option<String>,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &Args) -> ToolOutcome {
    given::answer(NAME, said(args), "It is taken; the checks follow.")
}

/// What a call says.
///
/// # Errors
/// What is wrong with it, for the model.
pub fn implemented(args: &Value) -> Result<Implemented, String> {
    said(&parse::<Args>(NAME, args)?)
}

fn said(args: &Args) -> Result<Implemented, String> {
    let why = args.not_verified_because.as_deref().filter(|why| !why.trim().is_empty());
    Ok(Implemented {
        rationale: given::text("rationale", &args.rationale)?,
        not_verified_because: why.map(|why| given::text("not_verified_because", why)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_wanted_and_nothing_of_what_changed() {
        let said = implemented(&json!({ "rationale": "because", "not_verified_because": " " }));
        assert_eq!(said, Ok(Implemented { rationale: "because".to_owned(), not_verified_because: None }));
        assert!(implemented(&json!({ "rationale": "" })).is_err_and(|why| why.contains("empty")));
        let files = json!({ "rationale": "r", "files": ["a"] });
        assert!(implemented(&files).is_err_and(|why| why.contains("`files` is unknown")));
    }
}
