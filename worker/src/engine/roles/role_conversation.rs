//! What all engines with roles share: how a role is taken up, asked, and heard; the calls that the runtime makes itself;
//! the final checks. Pure.
//!
//! An engine asks in this order: [`first`] (wishes of people, limits, children that are out, calls that wait, mending,
//! compaction, attempts that failed), then its own rules, which end in [`speak`] where the role in hand has to say more. Whatever it concludes is
//! recorded before anything follows from it.

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

/// Answers in a row that cannot be taken before it is a person's, or the run's end.
pub(in crate::engine) const INVALID_REPLIES_MAX: u32 = 3;

/// What comes before an engine's own rules.
///
/// # Errors
/// The decision that is due first.
pub(in crate::engine) fn check_pending_decision(run: &RunState, pins: &RunStarted) -> Result<(), Decision> {
    check_due_decision(run, pins, pins.settings.time_max_ms)?;
    run.last_failure.as_ref().map_or(Ok(()), |failure| Err(retry_after_failure(run, pins, failure)))
}

/// As [`first`], but for what follows a model's failure; `time_max_ms` is what calls of the run may take.
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

/// What the role in hand said last.
pub(in crate::engine) enum RoleReply<'a> {
    /// Words, without a tool.
    Final(&'a Content),
    /// Nothing that could be its last word; what it is told of that, where it has to be told anything.
    NotFinal(Option<&'static str>),
}

/// What the role in hand said last.
///
/// # Errors
/// It refuses to go on, or its answers are cut again and again.
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

/// The last word of the role in hand.
///
/// # Errors
/// It has not said it: what is to be done for that.
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

/// Asks the role in hand, with these words at the end, unless it is not to go on.
pub(in crate::engine) fn ask_role(run: &RunState, pins: &RunStarted, nudge: Option<String>) -> Decision {
    fail_too_many_empty_answers(run, pins).unwrap_or_else(|| ask_next_turn(run, pins, nudge))
}

/// The last word of the role in hand as the JSON that its schema wants, and that `take` takes; what is said of a role
/// without a schema is one string.
///
/// # Errors
/// It has not said it; or it cannot be taken: it is told what is wrong, and after [`INVALID_MAX`] answers in a row `spent`
/// says what follows.
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

/// What is wrong with an answer that stands in no event.
pub(in crate::engine) fn reply_too_long_message() -> String {
    format!("it is longer than the {ANSWER_INLINE_BYTES_MAX} bytes that an answer may have: say less")
}

/// An answer as its schema wants it.
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

/// Takes up a role, after these facts.
pub(in crate::engine) fn start_role(run: &RunState, facts: Vec<EngineFact>, begins: RoleStart) -> Decision {
    update_decision(run, EngineUpdate { facts, begins: Some(begins) })
}

/// Has the runtime make these calls, after these facts.
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

/// Whether the role is in hand, for this.
pub(in crate::engine) fn is_active_role(run: &RunState, role: &str, about: &str) -> bool {
    run.engine_state.role.as_deref() == Some(role) && run.engine_state.about == about
}

/// The task as everybody is told it.
pub(in crate::engine) const fn task_content(pins: &RunStarted) -> Content {
    Content::Blob(pins.prompts.task)
}

/// How the final checks stand.
pub(in crate::engine) enum FinalCheckOutcome {
    /// All passed, or there are none; or some decide nothing, and the run is to complete unverified.
    Passed,
    /// Some failed: `run.work.failed_checks` has what they said.
    Failed,
}

/// The final checks, once all work is done.
///
/// # Errors
/// They are to be run; or they failed too often.
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

/// What the checks said of the work as it is. Where there is none, what an earlier round's said is of other work.
pub(in crate::engine) fn current_round_checks<'a>(
    run: &'a RunState,
    pins: &RunStarted,
) -> &'a [FinishedCheck] {
    let are_old = pins.settings.role_rules > 0 && verification::final_checks(run, pins).is_empty();
    if are_old { &[] } else { &run.engine_state.finished_checks }
}

/// Whether a person said what no model has read: whoever would end the run hears it first.
pub(in crate::engine) fn has_unread_user_message(run: &RunState) -> bool {
    !run.engine_state.unread_messages.is_empty()
}

/// Why a plan is dropped that nothing else is wrong with.
pub(in crate::engine) const USER_MESSAGE_REASON: &str = "a person has something to say, which stands below";

/// The call that shows what was changed, but for what policy lets nobody read.
pub(in crate::engine) fn show_changes_call(run: &RunState) -> (&'static str, Value) {
    let unseen = permission::hidden_changed_files(run);
    let args = if unseen.is_empty() { json!({}) } else { json!({ "leave_out": unseen }) };
    (tools::SHOW_CHANGES, args)
}

/// What was changed cannot be judged: policy keeps the runtime from looking. None where it was shown.
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

/// Ends the run well. Its last words are what its steps were: the last answer was for the runtime.
pub(in crate::engine) fn succeed_run(run: &RunState) -> Decision {
    let steps: String =
        run.engine_state.plan.iter().flatten().map(|step| format!("- {}\n", format_step(step))).collect();
    let summary = if steps.is_empty() { None } else { Some(format!("What was done:\n{steps}").into()) };
    Decision { phase: RunPhase::Verifying, act: Action::End { result: RunOutcome::Succeeded, summary } }
}

/// A step in a line.
fn format_step(step: &PlanStep) -> String {
    match &step.kind {
        StepKind::Free | StepKind::Message => step.text.clone(),
        StepKind::Edit { path, .. } => format!("{path}: {}", step.text),
        StepKind::Command { command, .. } => format!("`{command}`"),
        StepKind::Tests { path: Some(path) } => format!("tests of {path}"),
        StepKind::Tests { path: None } => "tests".to_owned(),
    }
}

/// The files that differ from what the run began with, in a line.
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

/// The words of an answer that stands in its event; what is longer is no structured answer.
pub(in crate::engine) fn inline_text(said: &Content) -> &str {
    match said {
        Content::Text(text) => text,
        Content::B64(_) | Content::Blob(_) => "",
    }
}
