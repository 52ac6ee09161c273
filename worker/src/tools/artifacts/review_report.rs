//! `review_report`: what may go wrong with the change, and what must or should be done about it.

use docket_schema::artifact::ReviewReport;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    given,
};
use crate::calls::parse;

/// The name.
pub const NAME: &str = "review_report";
pub(in super::super) const DESCRIPTION: &str = "Hands in the review, which ends it. What stands in must_change sends the \
    work back; recommendations do not.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// What may go wrong, one entry at least: where you see nothing, an entry that says why.
    #[schemars(length(min = 1))]
    risks: Vec<String>,
    /// What is worth doing, now or later; may be [].
    recommendations: Vec<String>,
    /// What is wrong and has to be mended before the task may end; left out where nothing is.
    #[serde(default)]
    must_change: Option<Vec<String>>,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &Args) -> ToolOutcome {
    given::answer(NAME, report(args), "The ReviewReport is taken.")
}

/// The report that a call hands in.
///
/// # Errors
/// What is wrong with it, for the model.
pub fn review_report(args: &Value) -> Result<ReviewReport, String> {
    report(&parse::<Args>(NAME, args)?)
}

fn report(args: &Args) -> Result<ReviewReport, String> {
    Ok(ReviewReport {
        risks: given::list("risks", &args.risks)?,
        recommendations: given::list("recommendations", &args.recommendations)?,
        must_change: given::list("must_change", args.must_change.as_deref().unwrap_or_default())?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_review_names_a_risk() {
        let report = review_report(&json!({ "risks": ["none: one constant"], "recommendations": [] }));
        assert!(report.is_ok_and(|report| report.must_change.is_empty()));
        for (args, why) in [
            (json!({ "risks": [], "recommendations": [] }), "`risks` needs at least 1"),
            (json!({ "risks": [" "], "recommendations": [] }), "`risks[0]` is empty"),
            (json!({ "risks": ["r"] }), "`recommendations` is missing"),
        ] {
            assert!(review_report(&args).is_err_and(|told| told.contains(why)), "{args}");
        }
    }
}
