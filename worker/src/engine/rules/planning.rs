//! The plan that every run has (A15, A17): the reminder if there is none, and which turns count as planning.

use docket_schema::{
    content::Content,
    run::{FailureCategory, RunStarted, RunState, extract_plan},
};

use crate::engine::core::nudges;

/// Returns the reminder if one is due with the next request. Limited in number: a model that cannot plan would only
/// pay for it.
pub(in crate::engine) fn plan_reminder(run: &RunState, pins: &RunStarted) -> Option<&'static str> {
    let due = (1..=pins.settings.plan_asks_max).contains(&run.turn.0);
    (due && run.ledger.plan.is_none()).then_some(nudges::NO_PLAN)
}

/// The reminder for a model that ends before its plan is done.
pub(in crate::engine) const STOPPED_EARLY: &str = "You called no tool, which ends the task; but your plan has steps that are not \
                                        ticked. Go on with them. Or, if all is done, say so once more, with the plan ticked.";

/// Whether the last reply ends the task although its plan has open steps. Asked once: a model that repeats it means
/// it.
pub(in crate::engine) fn has_stopped_early(run: &RunState, pins: &RunStarted) -> bool {
    let open = pins.settings.plan_asks_max > 0 && run.ledger.has_open_steps();
    open && run.answered_without_tools && run.idle_answers == 1 && !run.transcript.has_notes()
}

/// The reminder for a model that ends before it began: weak models announce what they will do, and do not do it.
pub(in crate::engine) const NOTHING_DONE: &str = "You called no tool, which ends the task, and nothing was looked at or changed yet. \
                                       If there is something to do, call the tool that does it. If your answer was all \
                                       that the task asks for, give it once more.";

/// The reminder for a model that ends although none of its changes succeeded.
pub(in crate::engine) const NOTHING_CHANGED: &str = "You called no tool, which ends the task; but your change failed, and nothing in the \
                                          repository is changed. Make it again, mended. If the task is done without it, say so once more.";

/// Returns the reminder after a reply that ends the task before anything was done, or although every change failed.
/// Asked once, as above.
pub(in crate::engine) fn idle_end_nudge(run: &RunState, pins: &RunStarted) -> Option<&'static str> {
    let idle = run.answered_without_tools && run.idle_answers == 1 && run.overlay.is_empty();
    if !pins.settings.heed_stops || !idle || run.transcript.has_notes() {
        return None;
    }
    if run.totals.tool_calls == 0 {
        return Some(NOTHING_DONE);
    }
    let failed = run.unresolved_failures.iter().any(|trouble| trouble.kind == FailureCategory::WriteFailed);
    failed.then_some(NOTHING_CHANGED)
}

/// Whether the last reply contained a plan.
pub(in crate::engine) fn is_planning(run: &RunState, pins: &RunStarted) -> bool {
    let text = run.last_text.as_ref().filter(|_| pins.settings.complexity.is_some());
    matches!(text, Some(Content::Text(text)) if extract_plan(text).is_some())
}
