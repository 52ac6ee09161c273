//! `plan_card`: the planned change, before any file is changed.

use docket_schema::artifact::PlanCard;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    card_fields,
};
use crate::calls::{parse_args, parse_workspace_path};

pub const NAME: &str = "plan_card";
pub(in super::super) const DESCRIPTION: &str = "Hands in the plan, which ends planning. Whoever carries it out reads it \
    and the task, and nothing else of what you found out: say in it what matters.";

/// Most files in a plan.
const FILES_MAX: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct PlanCardArgs {
    /// What is wrong or wanted, where, and how it is met.
    summary: String,
    /// The steps, in order, each with a result that can be seen.
    #[schemars(length(min = 1))]
    steps: Vec<String>,
    /// Paths of the files that will be made, changed or removed, tests among them; [] where nothing has to change.
    files: Vec<String>,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &PlanCardArgs) -> ToolOutcome {
    card_fields::card_outcome(NAME, to_plan_card(args), "The PlanCard is taken.")
}

/// Parses the card from a call's arguments.
///
/// # Errors
/// Describes the problem for the model.
pub fn parse_plan_card(args: &Value) -> Result<PlanCard, String> {
    to_plan_card(&parse_args::<PlanCardArgs>(NAME, args)?)
}

fn to_plan_card(args: &PlanCardArgs) -> Result<PlanCard, String> {
    if args.files.len() > FILES_MAX {
        return Err(format!("`files` has {} entries, more than {FILES_MAX}", args.files.len()));
    }
    let path = |path: &String| parse_workspace_path(path).map_err(|error| format!("`files`: {error}"));
    let mut files: Vec<_> = args.files.iter().map(path).collect::<Result<_, _>>()?;
    files.sort_unstable();
    files.dedup();
    Ok(PlanCard {
        summary: card_fields::require_text("summary", &args.summary)?,
        steps: card_fields::require_entries("steps", &args.steps)?,
        files,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::testing::TestWorkspace, *};

    #[test]
    fn plan_is_accepted_or_rejected_with_its_field() {
        let good =
            json!({ "summary": " f is wrong ", "steps": ["mend f"], "files": ["./b.py", "a.py", "a.py"] });
        let card = parse_plan_card(&good).expect("is taken");
        let files: Vec<String> = card.files.iter().map(ToString::to_string).collect();
        assert_eq!(
            (card.summary.as_str(), files),
            ("f is wrong", vec!["a.py".to_owned(), "b.py".to_owned()])
        );
        let mut w = TestWorkspace::new(&[]);
        assert!(!w.call_tool(NAME, good).is_error);
        for (args, why) in [
            (json!({ "summary": "s", "files": [] }), "`steps` is missing"),
            (json!({ "summary": "s", "steps": [], "files": [] }), "`steps` needs at least 1"),
            (json!({ "summary": " ", "steps": ["a"], "files": [] }), "`summary` is empty"),
            (json!({ "summary": "s", "steps": ["a", ""], "files": [] }), "`steps[1]` is empty"),
            (json!({ "summary": "s", "steps": ["a"], "files": ["../x"] }), "`files`"),
            (json!({ "summary": "s", "steps": ["a"], "files": [], "mood": 1 }), "`mood` is unknown"),
        ] {
            let out = w.call_tool(NAME, args.clone());
            assert!(out.is_error && out.text().contains(why), "{args}: {}", out.text());
            assert!(parse_plan_card(&args).is_err());
        }
    }
}
