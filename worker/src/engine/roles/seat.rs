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
        BlockedWhy, CheckEnd, Fact, FailureKind, Phase, PlanStep, RunOutcome, RunStarted, RunState, StepKind,
        ToolStatus, is_cut,
    },
};
use serde_json::{Value, json};

use super::answer::{ANSWER_INLINE_BYTES_MAX, fitting};
use crate::engine::{
    core::{
        call_options::role_of,
        decision::{Act, Begins, Conclusion, Decision},
        nudges,
    },
    rules::{
        due_first::due_first,
        escalation,
        next_request::{ask_again, ask_next_turn, too_often_cut, too_often_empty},
        permission, verification,
    },
};
use crate::tools;

/// Answers in a row that cannot be taken before it is a person's, or the run's end.
pub(in crate::engine) const INVALID_MAX: u32 = 3;

/// What comes before an engine's own rules.
///
/// # Errors
/// The decision that is due first.
pub(in crate::engine) fn first(run: &RunState, pins: &RunStarted) -> Result<(), Decision> {
    ready(run, pins, pins.settings.time_max_ms)?;
    run.last_failure.as_ref().map_or(Ok(()), |failure| Err(ask_again(run, pins, failure)))
}

/// As [`first`], but for what follows a model's failure; `time_max_ms` is what calls of the run may take.
///
/// # Errors
/// The decision that is due first.
pub(in crate::engine) fn ready(run: &RunState, pins: &RunStarted, time_max_ms: u64) -> Result<(), Decision> {
    due_first(run, pins, time_max_ms).map_or(Ok(()), Err)
}

/// What the role in hand said last.
pub(in crate::engine) enum Heard<'a> {
    /// Words, without a tool.
    Words(&'a Content),
    /// Nothing that could be its last word; what it is told of that, where it has to be told anything.
    Silent(Option<&'static str>),
}

/// What the role in hand said last.
///
/// # Errors
/// It refuses to go on, or its answers are cut again and again.
pub(in crate::engine) fn heard<'a>(run: &'a RunState, pins: &RunStarted) -> Result<Heard<'a>, Decision> {
    match &run.asking.stop {
        Some(stop) if is_cut(stop) => {
            too_often_cut(run, pins).map_or(Ok(Heard::Silent(Some(nudges::CUT))), Err)
        }
        Some(StopReason::Refusal) if !run.transcript.has_notes() => {
            let who = run.work.role.as_deref().unwrap_or("model");
            let words = match &run.work.said {
                Some(Content::Text(text)) => format!(": {}", text.trim()),
                Some(_) | None => ", without a word of why".to_owned(),
            };
            let question = Content::Text(format!("The {who} refuses to go on with the task{words}"));
            Err(Decision::block(run, question, BlockedWhy::Escalated))
        }
        _ => match &run.work.said {
            Some(said) if run.answered_without_tools && !run.transcript.has_notes() => Ok(Heard::Words(said)),
            Some(_) | None if run.empty_answers > 0 => Ok(Heard::Silent(Some(nudges::EMPTY))),
            Some(_) | None => Ok(Heard::Silent(None)),
        },
    }
}

/// The last word of the role in hand.
///
/// # Errors
/// It has not said it: what is to be done for that.
pub(in crate::engine) fn speak<'a>(run: &'a RunState, pins: &RunStarted) -> Result<&'a Content, Decision> {
    let nudge = match (heard(run, pins)?, &run.work.problem) {
        (Heard::Words(said), _) => return Ok(said),
        (Heard::Silent(Some(nudge)), _) => Some(nudge.to_owned()),
        (Heard::Silent(None), Some(problem)) => Some(format!(
            "Your last answer cannot be taken: {problem}\nGive it again, mended, and nothing else."
        )),
        (Heard::Silent(None), None) => None,
    };
    Err(ask(run, pins, nudge))
}

/// Asks the role in hand, with these words at the end, unless it is not to go on.
pub(in crate::engine) fn ask(run: &RunState, pins: &RunStarted, nudge: Option<String>) -> Decision {
    too_often_empty(run, pins).unwrap_or_else(|| ask_next_turn(run, pins, nudge))
}

/// The last word of the role in hand as the JSON that its schema wants, and that `take` takes; what is said of a role
/// without a schema is one string.
///
/// # Errors
/// It has not said it; or it cannot be taken: it is told what is wrong, and after [`INVALID_MAX`] answers in a row `spent`
/// says what follows.
pub(in crate::engine) fn answer<T>(
    run: &RunState,
    pins: &RunStarted,
    what: &str,
    take: impl FnOnce(Value) -> Result<T, String>,
    spent: impl FnOnce(&str) -> Decision,
) -> Result<T, Decision> {
    let said = speak(run, pins)?;
    let schema = role_of(run, pins).and_then(|role| role.answer.as_ref());
    match structured(said, schema).and_then(take) {
        Ok(taken) => Ok(taken),
        Err(problem) if run.work.invalid_counted() + 1 >= INVALID_MAX => Err(spent(&problem)),
        Err(problem) => Err(conclude(run, vec![Fact::Invalid { what: what.to_owned(), problem }])),
    }
}

/// What is wrong with an answer that stands in no event.
pub(in crate::engine) fn too_long() -> String {
    format!("it is longer than the {ANSWER_INLINE_BYTES_MAX} bytes that an answer may have: say less")
}

/// An answer as its schema wants it.
fn structured(said: &Content, schema: Option<&Value>) -> Result<Value, String> {
    let Content::Text(text) = said else {
        return Err(too_long());
    };
    let Some(schema) = schema else { return Ok(Value::String(text.trim().to_owned())) };
    fitting(text, Some(schema))
}

/// Records facts, and decides again.
pub(in crate::engine) fn conclude(run: &RunState, facts: Vec<Fact>) -> Decision {
    decided(run, Conclusion { facts, begins: None })
}

/// Takes up a role, after these facts.
pub(in crate::engine) fn begin(run: &RunState, facts: Vec<Fact>, begins: Begins) -> Decision {
    decided(run, Conclusion { facts, begins: Some(begins) })
}

/// Has the runtime make these calls, after these facts.
pub(in crate::engine) fn call(run: &RunState, mut facts: Vec<Fact>, calls: Vec<(&str, Value)>) -> Decision {
    let calls = (run.work.own_calls..).zip(calls).map(|(nth, (name, args))| ToolUse {
        call: CallId::own(nth),
        name: name.to_owned(),
        args,
        malformed: None,
    });
    facts.push(Fact::Calls { calls: calls.collect() });
    conclude(run, facts)
}

fn decided(run: &RunState, conclusion: Conclusion) -> Decision {
    Decision { phase: run.phase, act: Act::Conclude(Box::new(conclusion)) }
}

/// Whether the role is in hand, for this.
pub(in crate::engine) fn is_at(run: &RunState, role: &str, about: &str) -> bool {
    run.work.role.as_deref() == Some(role) && run.work.about == about
}

/// The task as everybody is told it.
pub(in crate::engine) const fn task(pins: &RunStarted) -> Content {
    Content::Blob(pins.prompts.task)
}

/// How the final checks stand.
pub(in crate::engine) enum Checked {
    /// All passed, or there are none; or some decide nothing, and the run is to complete unverified.
    Passed,
    /// Some failed: `run.work.failed_checks` has what they said.
    Failed,
}

/// The final checks, once all work is done.
///
/// # Errors
/// They are to be run; or they failed too often.
pub(in crate::engine) fn checks(run: &RunState, pins: &RunStarted) -> Result<Checked, Decision> {
    match run.work.checked {
        Some(true) => Ok(Checked::Passed),
        Some(false) if run.corrections_counted() > pins.settings.corrections_max && !is_spoken_to(run) => {
            Err(Decision::fail(run, FailureKind::Gates, &verification::still_failing(run, pins)))
        }
        Some(false) => Ok(Checked::Failed),
        None => {
            let checks = verification::checks(run, pins);
            if checks.is_empty() { Ok(Checked::Passed) } else { Err(verification::check(run, pins, checks)) }
        }
    }
}

/// What the checks said of the work as it is. Where there is none, what an earlier round's said is of other work.
pub(in crate::engine) fn checks_of_round<'a>(run: &'a RunState, pins: &RunStarted) -> &'a [CheckEnd] {
    let are_old = pins.settings.role_rules > 0 && verification::checks(run, pins).is_empty();
    if are_old { &[] } else { &run.work.checks }
}

/// Whether a person said what no model has read: whoever would end the run hears it first.
pub(in crate::engine) fn is_spoken_to(run: &RunState) -> bool {
    !run.work.heard.is_empty()
}

/// Why a plan is dropped that nothing else is wrong with.
pub(in crate::engine) const SPOKEN: &str = "a person has something to say, which stands below";

/// The call that shows what was changed, but for what policy lets nobody read.
pub(in crate::engine) fn show_changes(run: &RunState) -> (&'static str, Value) {
    let unseen = permission::unseen(run);
    let args = if unseen.is_empty() { json!({}) } else { json!({ "leave_out": unseen }) };
    (tools::SHOW_CHANGES, args)
}

/// What was changed cannot be judged: policy keeps the runtime from looking. None where it was shown.
pub(in crate::engine) fn blind(run: &RunState) -> Option<Decision> {
    let last = run.work.done.last()?;
    let refused =
        last.tool.call.is_own() && last.tool.name == tools::SHOW_CHANGES && last.status != ToolStatus::Ok;
    let why = escalation::cut(words(&last.content));
    refused.then(|| {
        let message =
            format!("what was changed cannot be shown to whoever judges it; let `read_file` read: {why}");
        Decision::fail(run, FailureKind::Configuration, &message)
    })
}

/// Ends the run well. Its last words are what its steps were: the last answer was for the runtime.
pub(in crate::engine) fn succeed(run: &RunState) -> Decision {
    let steps: String =
        run.work.plan.iter().flatten().map(|step| format!("- {}\n", step_words(step))).collect();
    let summary = if steps.is_empty() { None } else { Some(format!("What was done:\n{steps}").into()) };
    Decision { phase: Phase::Verifying, act: Act::End { result: RunOutcome::Succeeded, summary } }
}

/// A step in a line.
fn step_words(step: &PlanStep) -> String {
    match &step.kind {
        StepKind::Free | StepKind::Message => step.text.clone(),
        StepKind::Edit { path, .. } => format!("{path}: {}", step.text),
        StepKind::Command { command, .. } => format!("`{command}`"),
        StepKind::Tests { path: Some(path) } => format!("tests of {path}"),
        StepKind::Tests { path: None } => "tests".to_owned(),
    }
}

/// The files that differ from what the run began with, in a line.
pub(in crate::engine) fn what_changed(run: &RunState) -> Content {
    let files: Vec<String> = run.overlay.keys().take(FILES_MAX).map(ToString::to_string).collect();
    if files.is_empty() {
        return "Nothing in the repository is changed yet.".into();
    }
    let more = run.overlay.len().saturating_sub(files.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("Changed in the repository until now: {}{more}", files.join(", ")).into()
}

/// Changed files that are named.
const FILES_MAX: usize = 40;

/// The words of an answer that stands in its event; what is longer is no structured answer.
pub(in crate::engine) fn words(said: &Content) -> &str {
    match said {
        Content::Text(text) => text,
        Content::B64(_) | Content::Blob(_) => "",
    }
}
