//! Tools by which a model hands a structured result to the runtime, in place of words that would have to be read: a plan,
//! the reason of a change, a review, the end of the work. In no set: an engine gives them to its roles.
//!
//! They touch nothing. What a call comes to follows from its arguments alone, so that an engine reads them again from
//! the log, by the functions here, and concludes from them.

mod card_fields;
pub(super) mod complete_task;
pub(super) mod diff_card;
pub(super) mod plan_card;
pub(super) mod review_report;

pub use complete_task::{NAME as COMPLETE_TASK, parse_completion_summary};
pub use diff_card::{DiffCard, NAME as DIFF_CARD, parse_diff_card};
pub use plan_card::{NAME as PLAN_CARD, parse_plan_card};
pub use review_report::{NAME as REVIEW_REPORT, parse_review_report};
