//! Tools by which a model returns a structured result instead of free text: a plan, the rationale of a change, a
//! review, the end of the work. They are in no tool set: an engine gives them to its roles.
//!
//! They change nothing. A call's outcome follows from its arguments alone, so an engine parses them again from the
//! log with the functions here and decides by them.

mod card_fields;
pub(super) mod complete_task;
pub(super) mod diff_card;
pub(super) mod plan_card;
pub(super) mod review_report;

pub use complete_task::{NAME as COMPLETE_TASK, parse_completion_summary};
pub use diff_card::{DiffCard, NAME as DIFF_CARD, parse_diff_card};
pub use plan_card::{NAME as PLAN_CARD, parse_plan_card};
pub use review_report::{NAME as REVIEW_REPORT, parse_review_report};
