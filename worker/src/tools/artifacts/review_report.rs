//! `review_report`: risks of a change, and what must or should be done about it.

use docket_schema::artifact::ReviewReport;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    card_fields,
};
use crate::calls::parse_args;

pub const NAME: &str = "review_report";
pub(in super::super) const DESCRIPTION: &str = "Hands in the review, which ends it. What stands in must_change sends the \
    work back; recommendations do not.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ReviewReportArgs {
    /// What may go wrong, one entry at least: where you see nothing, an entry that says why.
    #[schemars(length(min = 1))]
    risks: Vec<String>,
    /// What is worth doing, now or later; may be [].
    recommendations: Vec<String>,
    /// What is wrong and has to be mended before the task may end; left out where nothing is.
    #[serde(default)]
    must_change: Option<Vec<String>>,
}

pub(in super::super) fn run(_: ToolContext<'_>, args: &ReviewReportArgs) -> ToolOutcome {
    card_fields::card_outcome(NAME, to_review_report(args), "The ReviewReport is taken.")
}

/// Parses the report from a call's arguments.
///
/// # Errors
/// Describes the problem for the model.
pub fn parse_review_report(args: &Value) -> Result<ReviewReport, String> {
    to_review_report(&parse_args::<ReviewReportArgs>(NAME, args)?)
}

fn to_review_report(args: &ReviewReportArgs) -> Result<ReviewReport, String> {
    Ok(ReviewReport {
        risks: card_fields::require_entries("risks", &args.risks)?,
        recommendations: card_fields::require_entries("recommendations", &args.recommendations)?,
        must_change: card_fields::require_entries(
            "must_change",
            args.must_change.as_deref().unwrap_or_default(),
        )?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn review_requires_a_risk() {
        let report = parse_review_report(&json!({ "risks": ["none: one constant"], "recommendations": [] }));
        assert!(report.is_ok_and(|report| report.must_change.is_empty()));
        for (args, why) in [
            (json!({ "risks": [], "recommendations": [] }), "`risks` needs at least 1"),
            (json!({ "risks": [" "], "recommendations": [] }), "`risks[0]` is empty"),
            (json!({ "risks": ["r"] }), "`recommendations` is missing"),
        ] {
            assert!(parse_review_report(&args).is_err_and(|told| told.contains(why)), "{args}");
        }
    }
}
