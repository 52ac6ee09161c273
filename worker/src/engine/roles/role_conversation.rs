//! Shared helpers of role-based engines: start a role, request its reply, validate the reply; make the runtime's own
//! calls; run final checks. Pure.
//!
//! An engine checks in this order: [`check_pending_decision`] (requests of people, limits, running children, waiting
//! calls, fixes, compaction, failed attempts), then its own rules, which end in [`ask_role`] if the active role has
//! to continue. Its conclusions are recorded before anything follows from them.

use docket_schema::{
    content::Content,
    message::{CallId, StopReason, ToolUse},
    run::{
        BlockedReason, EngineFact, FailureKind, FinishedCheck, PlanStep, RunOutcome, RunPhase, RunStarted,
        RunState, StepKind, ToolStatus, is_truncated,
    },
};
use serde_json::{Value, json};

use super::json_reply::{ANSWER_INLINE_BYTES_MAX, extract_valid_json};
use crate::engine::{
    core::{
        call_options::current_role,
        decision::{Action, Decision, EngineUpdate, RoleStart},
        nudges,
    },
    rules::{
        escalation,
        first_due::first_due_decision,
        next_request::{
            ask_next_turn, fail_too_many_cut_answers, fail_too_many_empty_answers, retry_after_failure,
        },
        permission, verification,
    },
};
use crate::tools;

/// Consecutive invalid replies before a person is asked or the run ends.
pub(in crate::engine) const INVALID_REPLIES_MAX: u32 = 3;

/// Checks everything that comes before an engine's own rules.
///
/// # Errors
/// The decision that is due first.
pub(in crate::engine) fn check_pending_decision(run: &RunState, pins: &RunStarted) -> Result<(), Decision> {
    check_due_decision(run, pins, pins.settings.time_max_ms)?;
    run.last_failure.as_ref().map_or(Ok(()), |failure| Err(retry_after_failure(run, pins, failure)))
}

/// Like [`check_pending_decision`], without retries after a model failure; `time_max_ms` is what calls of the run may
/// use.
///
/// # Errors
/// The decision that is due first.
pub(in crate::engine) fn check_due_decision(
    run: &RunState,
    pins: &RunStarted,
    time_max_ms: u64,
) -> Result<(), Decision> {
    first_due_decision(run, pins, time_max_ms).map_or(Ok(()), Err)
}

/// The last reply of the active role.
pub(in crate::engine) enum RoleReply<'a> {
    /// Text, without a tool call.
    Final(&'a Content),
    /// Not a final reply; with a reminder if the role needs one.
    NotFinal(Option<&'static str>),
}

/// Returns the last reply of the active role.
///
/// # Errors
/// It refuses to continue, or its replies are truncated again and again.
pub(in crate::engine) fn role_reply<'a>(
    run: &'a RunState,
    pins: &RunStarted,
) -> Result<RoleReply<'a>, Decision> {
    match &run.model_attempts.stop_reason {
        Some(stop) if is_truncated(stop) => {
            fail_too_many_cut_answers(run, pins).map_or(Ok(RoleReply::NotFinal(Some(nudges::TRUNCATED))), Err)
        }
        Some(StopReason::Refusal) if !run.transcript.has_notes() => {
            let who = run.engine_state.role.as_deref().unwrap_or("model");
            let words = match &run.engine_state.last_text {
                Some(Content::Text(text)) => format!(": {}", text.trim()),
                Some(_) | None => ", without a word of why".to_owned(),
            };
            let question = Content::Text(format!("The {who} refuses to go on with the task{words}"));
            Err(Decision::block_run(run, question, BlockedReason::Escalated))
        }
        _ => match &run.engine_state.last_text {
            Some(said) if run.answered_without_tools && !run.transcript.has_notes() => {
                Ok(RoleReply::Final(said))
            }
            Some(_) | None if run.empty_answers > 0 => Ok(RoleReply::NotFinal(Some(nudges::EMPTY))),
            Some(_) | None => Ok(RoleReply::NotFinal(None)),
        },
    }
}

/// Returns the final reply of the active role.
///
/// # Errors
/// There is none yet: the decision that requests it.
pub(in crate::engine) fn require_final_reply<'a>(
    run: &'a RunState,
    pins: &RunStarted,
) -> Result<&'a Content, Decision> {
    let nudge = match (role_reply(run, pins)?, &run.engine_state.problem) {
        (RoleReply::Final(said), _) => return Ok(said),
        (RoleReply::NotFinal(Some(nudge)), _) => Some(nudge.to_owned()),
        (RoleReply::NotFinal(None), Some(problem)) => Some(format!(
            "Your last answer cannot be taken: {problem}\nGive it again, mended, and nothing else."
        )),
        (RoleReply::NotFinal(None), None) => None,
    };
    Err(ask_role(run, pins, nudge))
}

/// Calls the active role with this reminder, unless it must not continue.
pub(in crate::engine) fn ask_role(run: &RunState, pins: &RunStarted, nudge: Option<String>) -> Decision {
    fail_too_many_empty_answers(run, pins).unwrap_or_else(|| ask_next_turn(run, pins, nudge))
}

/// Returns the final reply of the active role as the JSON that its schema requires and `take` accepts; `take` gets a
/// single string from a role without a schema.
///
/// # Errors
/// There is none yet, or it is invalid: the role gets the reason, and after [`INVALID_REPLIES_MAX`] replies in a row
/// `spent` decides.
pub(in crate::engine) fn require_structured_reply<T>(
    run: &RunState,
    pins: &RunStarted,
    what: &str,
    take: impl FnOnce(Value) -> Result<T, String>,
    spent: impl FnOnce(&str) -> Decision,
) -> Result<T, Decision> {
    let said = require_final_reply(run, pins)?;
    let schema = current_role(run, pins).and_then(|role| role.answer.as_ref());
    match parse_structured_reply(said, schema).and_then(take) {
        Ok(taken) => Ok(taken),
        Err(problem) if run.engine_state.counted_invalid_answers() + 1 >= INVALID_REPLIES_MAX => {
            Err(spent(&problem))
        }
        Err(problem) => Err(record_facts(run, vec![EngineFact::Invalid { what: what.to_owned(), problem }])),
    }
}

/// Returns the message about a reply that does not fit in its event.
pub(in crate::engine) fn reply_too_long_message() -> String {
    format!("it is longer than the {ANSWER_INLINE_BYTES_MAX} bytes that an answer may have: say less")
}

/// Parses a reply by its schema.
fn parse_structured_reply(said: &Content, schema: Option<&Value>) -> Result<Value, String> {
    let Content::Text(text) = said else {
        return Err(reply_too_long_message());
    };
    let Some(schema) = schema else { return Ok(Value::String(text.trim().to_owned())) };
    extract_valid_json(text, Some(schema))
}

/// Records facts, and decides again.
pub(in crate::engine) fn record_facts(run: &RunState, facts: Vec<EngineFact>) -> Decision {
    update_decision(run, EngineUpdate { facts, begins: None })
}

/// Starts a role, after these facts.
pub(in crate::engine) fn start_role(run: &RunState, facts: Vec<EngineFact>, begins: RoleStart) -> Decision {
    update_decision(run, EngineUpdate { facts, begins: Some(begins) })
}

/// Makes the runtime's own calls, after these facts.
pub(in crate::engine) fn call_own_tools(
    run: &RunState,
    mut facts: Vec<EngineFact>,
    calls: Vec<(&str, Value)>,
) -> Decision {
    let calls = (run.engine_state.own_calls..).zip(calls).map(|(nth, (name, args))| ToolUse {
        call: CallId::for_runtime(nth),
        name: name.to_owned(),
        args,
        malformed: None,
    });
    facts.push(EngineFact::Calls { calls: calls.collect() });
    record_facts(run, facts)
}

fn update_decision(run: &RunState, conclusion: EngineUpdate) -> Decision {
    Decision { phase: run.phase, act: Action::Conclude(Box::new(conclusion)) }
}

/// Whether the role is active, with this purpose.
pub(in crate::engine) fn is_active_role(run: &RunState, role: &str, about: &str) -> bool {
    run.engine_state.role.as_deref() == Some(role) && run.engine_state.about == about
}

/// The task as every role sees it.
pub(in crate::engine) const fn task_content(pins: &RunStarted) -> Content {
    Content::Blob(pins.prompts.task)
}

/// The result of the final checks.
pub(in crate::engine) enum FinalCheckOutcome {
    /// All passed, or there are none; or some are undecided, and the run is to complete unverified.
    Passed,
    /// Some failed: `run.engine_state.failed_checks` has their output.
    Failed,
}

/// Runs the final checks, once all work is done.
///
/// # Errors
/// They are to be run, or they failed too often.
pub(in crate::engine) fn require_final_checks(
    run: &RunState,
    pins: &RunStarted,
) -> Result<FinalCheckOutcome, Decision> {
    match run.engine_state.checks_passed {
        Some(true) => Ok(FinalCheckOutcome::Passed),
        Some(false)
            if run.counted_corrections() > pins.settings.corrections_max && !has_unread_user_message(run) =>
        {
            Err(Decision::fail_run(run, FailureKind::Gates, &verification::still_failing_message(run, pins)))
        }
        Some(false) => Ok(FinalCheckOutcome::Failed),
        None => {
            let checks = verification::final_checks(run, pins);
            if checks.is_empty() {
                Ok(FinalCheckOutcome::Passed)
            } else {
                Err(verification::run_checks(run, pins, checks))
            }
        }
    }
}

/// Returns the check results for the current work. If there are none, results of an earlier round describe other
/// work.
pub(in crate::engine) fn current_round_checks<'a>(
    run: &'a RunState,
    pins: &RunStarted,
) -> &'a [FinishedCheck] {
    let are_old = pins.settings.role_rules > 0 && verification::final_checks(run, pins).is_empty();
    if are_old { &[] } else { &run.engine_state.finished_checks }
}

/// Whether a message from a person is unread by any model: a role that would end the run reads it first.
pub(in crate::engine) fn has_unread_user_message(run: &RunState) -> bool {
    !run.engine_state.unread_messages.is_empty()
}

/// The reason for dropping an otherwise valid plan.
pub(in crate::engine) const USER_MESSAGE_REASON: &str = "a person has something to say, which stands below";

/// Returns the call that shows the changes, except files that policy hides.
pub(in crate::engine) fn show_changes_call(run: &RunState) -> (&'static str, Value) {
    let unseen = permission::hidden_changed_files(run);
    let args = if unseen.is_empty() { json!({}) } else { json!({ "leave_out": unseen }) };
    (tools::SHOW_CHANGES, args)
}

/// Returns the decision if the changes cannot be judged because policy keeps the runtime from reading them; `None` if
/// they were shown.
pub(in crate::engine) fn changes_hidden_decision(run: &RunState) -> Option<Decision> {
    let last = run.engine_state.finished_calls.last()?;
    let refused =
        last.tool.call.is_runtime() && last.tool.name == tools::SHOW_CHANGES && last.status != ToolStatus::Ok;
    let why = escalation::excerpt_first_line(inline_text(&last.content));
    refused.then(|| {
        let message =
            format!("what was changed cannot be shown to whoever judges it; let `read_file` read: {why}");
        Decision::fail_run(run, FailureKind::Configuration, &message)
    })
}

/// Ends the run as succeeded. Its summary lists the steps, because the last reply was addressed to the runtime.
pub(in crate::engine) fn succeed_run(run: &RunState) -> Decision {
    let steps: String =
        run.engine_state.plan.iter().flatten().map(|step| format!("- {}\n", format_step(step))).collect();
    let summary = if steps.is_empty() { None } else { Some(format!("What was done:\n{steps}").into()) };
    Decision { phase: RunPhase::Verifying, act: Action::End { result: RunOutcome::Succeeded, summary } }
}

/// Formats a step in one line.
fn format_step(step: &PlanStep) -> String {
    match &step.kind {
        StepKind::Free | StepKind::Message => step.text.clone(),
        StepKind::Edit { path, .. } => format!("{path}: {}", step.text),
        StepKind::Command { command, .. } => format!("`{command}`"),
        StepKind::Tests { path: Some(path) } => format!("tests of {path}"),
        StepKind::Tests { path: None } => "tests".to_owned(),
    }
}

/// Lists the files that differ from the run's base in one line.
pub(in crate::engine) fn format_changed_files(run: &RunState) -> Content {
    let files: Vec<String> = run.overlay.keys().take(CHANGED_FILES_MAX).map(ToString::to_string).collect();
    if files.is_empty() {
        return "Nothing in the repository is changed yet.".into();
    }
    let more = run.overlay.len().saturating_sub(files.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("Changed in the repository until now: {}{more}", files.join(", ")).into()
}

/// Changed files that are named.
const CHANGED_FILES_MAX: usize = 40;

/// Returns the text of a reply that is stored in its event; a longer one is not a structured reply.
pub(in crate::engine) fn inline_text(said: &Content) -> &str {
    match said {
        Content::Text(text) => text,
        Content::B64(_) | Content::Blob(_) => "",
    }
}
