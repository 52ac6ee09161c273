//! Engine `architect`, version 1: a strong model plans and verifies, a cheap one writes (D1–D6).
//!
//! Rules beyond those that all engines with roles share (`seat`): the architect gives a Change Plan, and a third one that
//! cannot be taken is a person's. The coder is given one edit at a time, of one file, which it sees with what was done to
//! it before, and answers with a patch (`patching`). After each action what can be told at once is looked at: whether the
//! file parses, what its linters find, how a command ended. Where that fails for what was written (`local`), the coder
//! mends it once. The final checks come after the last action, and then the verifier, who sees the whole difference and
//! what the checks said.
//!
//! What does not get on this way goes back to the architect: twice, once of these for the verifier's sake. Then a person
//! is asked, whose answer buys another plan; checks that still fail end the run, as under every engine. Whatever a person
//! says meanwhile is the architect's to plan by, and so is what somebody says who goes on with a run that ended.
//!
//! Phases are recorded, and say where the plan in force stands: `write`, `mend` (of the last step where that failed, of
//! the final checks otherwise), `verify`, `plan`.

mod change_plan;
mod local;
mod openings;
mod summary;
#[cfg(test)]
mod tests;

use docket_schema::{
    content::{Content, WorkPath},
    run::{
        BlockedWhy, Done, EngineRef, Fact, FailureKind, Judgement, PlanStep, RunStarted, RunState, StepEnd,
        StepKind, ToolStatus,
    },
};
use serde::Deserialize;
use serde_json::json;

use super::{
    core::{
        decision::{Begins, Decision},
        definition::{Engine, RoleDef},
    },
    roles::{
        answer,
        patching::{self, Patch, Patched},
        seat::{self, Checked},
    },
    rules::{blockers::blocked_question, budget, verification},
};
use crate::tools;

const ARCHITECT: &str = "architect";
const CODER: &str = "coder";
const VERIFIER: &str = "verifier";

const WRITE: &str = "write";
const MEND: &str = "mend";
const VERIFY: &str = "verify";
const PLAN: &str = "plan";

/// Plans after the first, before a person is asked.
const REPLANS_MAX: u32 = 2;
/// How often the verifier is taken up before its refusal is a person's.
const VERDICTS_MAX: u32 = 2;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Architect;

impl Engine for Architect {
    fn id(&self) -> EngineRef {
        EngineRef { name: "architect".to_owned(), version: 1 }
    }

    fn roles(&self) -> Vec<RoleDef> {
        let looks = ["list_files", "search_codebase", tools::READ_FILE, tools::DELEGATE].map(str::to_owned);
        vec![
            RoleDef { tools: looks.into(), ..RoleDef::of(ARCHITECT, openings::ARCHITECT_WORDS) },
            // It sees one file (D3): what it must know of others, the architect says.
            RoleDef {
                sees_project: false,
                ..RoleDef::of(CODER, &format!("{}\n{}", openings::CODER_WORDS, patching::HOW))
            },
            RoleDef::of(VERIFIER, openings::VERIFIER_WORDS),
        ]
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// What is next; either way round a decision.
fn next(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    seat::first(run, pins)?;
    let Some(steps) = &run.work.plan else { return planned(run, pins) };
    if is_spoken_to(run) {
        return Ok(replan(run, "a person has something to say, which stands below"));
    }
    if let Some((verdict, reason)) = &run.work.judged {
        return Ok(match verdict {
            Judgement::Finish => seat::succeed(run),
            Judgement::Continue | Judgement::Retry | Judgement::Replan => {
                replan(run, &format!("the verifier does not accept the work: {reason}"))
            }
        });
    }
    let phase = run.work.phase.as_deref();
    if phase == Some(VERIFY) {
        return verified(run, pins);
    }
    let last = run.work.ended.last();
    match (last.filter(|end| !end.success), phase == Some(MEND)) {
        (Some(failed), true) => step_mended(run, pins, failed, steps),
        (None, true) => checks_mended(run, pins),
        (Some(failed), false) => Ok(replan(run, &openings::failure(failed, steps))),
        (None, false) => {
            let at = last.map_or(0, |end| end.step as usize + 1);
            match steps.get(at) {
                Some(step) => acted(run, pins, at, step),
                None => checked(run, pins),
            }
        }
    }
}

/// Whether a person said what the architect has to hear: of the others none knows the task, but for a verifier whose
/// verdicts a person was asked about.
fn is_spoken_to(run: &RunState) -> bool {
    let work = &run.work;
    let of_verdict = work.role.as_deref() == Some(VERIFIER) && work.invalid >= seat::INVALID_MAX;
    let failed = work.ended.last().is_some_and(|end| !end.success) && work.phase.as_deref() != Some(MEND);
    let stopped = work.judged.is_some() || failed;
    // What an action came to is recorded first, and where the work stopped for a reason, the reason is told.
    let has_result = ran(run).is_some() || work.done.last().is_some_and(patching::applies);
    !work.heard.is_empty() && !of_verdict && !has_result && (!stopped || is_accepted(run))
}

fn is_accepted(run: &RunState) -> bool {
    matches!(run.work.judged, Some((Judgement::Finish, _)))
}

fn began(phase: &str) -> Fact {
    Fact::PhaseBegan { phase: phase.to_owned() }
}

/// The architect's part.
fn planned(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.work.plans + 1);
    if !seat::is_at(run, ARCHITECT, &about) {
        let opening = openings::for_architect(run, pins);
        return Ok(seat::begin(run, Vec::new(), Begins { role: ARCHITECT.to_owned(), about, opening }));
    }
    if let Some(decision) = given_up(run, "plan") {
        return Ok(decision);
    }
    let said = seat::speak(run, pins)?;
    if let Some(question) = blocked_question(Some(said), false) {
        return Ok(Decision::block(run, question, BlockedWhy::Model));
    }
    Ok(match change_plan::steps_of(seat::words(said), &run.policies, pins.settings.role_rules > 0) {
        Ok(steps) => seat::conclude(run, vec![Fact::Planned { steps }, began(WRITE)]),
        Err(problem) => seat::conclude(run, vec![Fact::Invalid { what: "plan".to_owned(), problem }]),
    })
}

/// The question to a person, once too many answers in a row could not be taken. It is due right behind the last of them:
/// a person's answer goes to the role, and so does whatever else was said since.
fn given_up(run: &RunState, what: &str) -> Option<Decision> {
    let work = &run.work;
    let waits = work.said.is_none() && work.done.is_empty() && run.empty_answers == 0;
    if work.invalid_counted() < seat::INVALID_MAX || !waits || run.transcript.has_notes() {
        return None;
    }
    let problem = work.problem.as_deref().unwrap_or_default();
    let question = format!(
        "{} answers in a row were to be a {what} and cannot be taken; the last one: {problem}\n\nWhat shall the {} do? \
         It is asked again with your words.",
        work.invalid,
        work.role.as_deref().unwrap_or(ARCHITECT)
    );
    Some(Decision::block(run, question.into(), BlockedWhy::Escalated))
}

/// Back to the architect, unless it planned too often: then a person is asked, whose words it plans by.
fn replan(run: &RunState, reason: &str) -> Decision {
    let work = &run.work;
    let refused = work.judged.is_some() && work.begun_counted(VERIFIER) >= VERDICTS_MAX;
    if (refused || is_last_plan(run)) && work.heard.is_empty() {
        let question = format!(
            "The work does not get on: {reason}\n\nIt was planned {} times. Say another way, or what you mended: the \
             architect plans anew with your words.",
            work.plans
        );
        return Decision::block(run, question.into(), BlockedWhy::Escalated);
    }
    seat::conclude(run, vec![Fact::PlanDropped { reason: reason.to_owned() }, began(PLAN)])
}

const fn is_last_plan(run: &RunState) -> bool {
    run.work.plans_counted() > REPLANS_MAX
}

/// A step's part; its end, once it has one.
fn acted(run: &RunState, pins: &RunStarted, at: usize, step: &PlanStep) -> Result<Decision, Decision> {
    match &step.kind {
        StepKind::Edit { path, hints } => {
            let about = format!("step {}: {path}", at + 1);
            let patch = Patch { role: CODER, about, path, words: openings::for_coder(step, hints) };
            Ok(match patching::patched(run, pins, &patch)? {
                Patched::Done(output) if is_unhealthy(run) => seat::conclude(
                    run,
                    vec![ended(at, false, output), summarized(run, path, step), began(MEND)],
                ),
                Patched::Done(output) => {
                    seat::conclude(run, vec![ended(at, true, output), summarized(run, path, step)])
                }
                Patched::Unchanged(output) => seat::conclude(run, vec![ended(at, true, output)]),
                Patched::GivenUp(problem) => seat::conclude(run, vec![ended(at, false, problem.into())]),
            })
        }
        StepKind::Command { command, expect } => {
            let done = ran(run).ok_or_else(|| seat::call(run, Vec::new(), vec![run_command(command)]))?;
            let success = meets(done, expect);
            let mut facts = vec![ended(at, success, done.content.clone())];
            // What was refused, did not end, or was to fail is no fault of a file's.
            let says = !success && done.exit.is_some() && expect != change_plan::FAIL;
            if says && local::culprit(&[&done.content], &run.files_written).is_some() {
                facts.push(began(MEND));
            }
            Ok(seat::conclude(run, facts))
        }
        // A Change Plan has no others.
        StepKind::Message | StepKind::Free | StepKind::Tests { .. } => {
            Ok(seat::conclude(run, vec![ended(at, true, step.text.clone().into())]))
        }
    }
}

/// A step that failed for what was written, mended once; what it comes to then is its end.
fn step_mended(
    run: &RunState,
    pins: &RunStarted,
    failed: &StepEnd,
    steps: &[PlanStep],
) -> Result<Decision, Decision> {
    let at = failed.step as usize;
    let Some(step) = steps.get(at) else { return Ok(replan(run, "the plan has no such step")) };
    let over = |success, output, more: Option<Fact>| {
        let facts = [ended(at, success, output), began(WRITE)];
        Ok(seat::conclude(run, facts.into_iter().chain(more).collect()))
    };
    let command = match &step.kind {
        StepKind::Command { command, expect } => {
            if let Some(done) = ran(run) {
                return over(meets(done, expect), done.content.clone(), None);
            }
            Some(command)
        }
        StepKind::Edit { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => None,
    };
    let Some(path) = culprit_of(run, failed, step) else { return over(false, failed.output.clone(), None) };
    let about = format!("step {}: mend {path}", at + 1);
    let words = openings::for_mending(&openings::failure(failed, steps), vec![failed.output.clone()]);
    match (patching::patched(run, pins, &Patch { role: CODER, about, path: &path, words })?, command) {
        (Patched::Done(_), Some(command)) => {
            let facts = vec![summarized(run, &path, &mending(step))];
            Ok(seat::call(run, facts, vec![run_command(command)]))
        }
        (Patched::Done(output), None) => {
            over(!is_unhealthy(run), output, Some(summarized(run, &path, &mending(step))))
        }
        // What its linters find may be another step's to use: the final checks have the last word.
        (Patched::Unchanged(output), None) => over(true, output, None),
        (Patched::Unchanged(_), Some(_)) => over(false, failed.output.clone(), None),
        (Patched::GivenUp(problem), _) => over(false, problem.into(), None),
    }
}

/// The file for which a step failed.
fn culprit_of(run: &RunState, failed: &StepEnd, step: &PlanStep) -> Option<WorkPath> {
    match &step.kind {
        StepKind::Edit { path, .. } => Some(path.clone()),
        StepKind::Command { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => {
            local::culprit(&[&failed.output], &run.files_written)
        }
    }
}

/// A step as it is told where its outcome was mended.
fn mending(step: &PlanStep) -> PlanStep {
    PlanStep { text: format!("mended: {}", step_words(step)), kind: StepKind::Free }
}

fn step_words(step: &PlanStep) -> &str {
    match &step.kind {
        StepKind::Command { command, .. } => command,
        StepKind::Edit { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => &step.text,
    }
}

/// All actions are done: the final checks, and whoever has a part after them.
fn checked(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    Ok(match seat::checks(run, pins)? {
        Checked::Passed => seat::call(run, vec![began(VERIFY)], vec![seat::show_changes(run)]),
        Checked::Failed if local::of_checks(run).is_some() => seat::conclude(run, vec![began(MEND)]),
        Checked::Failed => unmended(run, pins),
    })
}

/// Final checks that failed for what was written, mended once.
fn checks_mended(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let begun =
        if run.work.role.as_deref() == Some(CODER) { run.work.about.strip_prefix(MENDS) } else { None };
    match (run.work.checked, begun) {
        (Some(true), _) => return checked(run, pins),
        // They ran again.
        (Some(false), Some(_)) => {
            return seat::checks(run, pins).map(|_| unmended(run, pins));
        }
        (Some(false), None) | (None, _) => {}
    }
    // What failed may read otherwise by now: the file stays the one that was begun with.
    let path = begun.and_then(|name| run.files_written.iter().find(|path| path.to_string() == name).cloned());
    let Some(path) = path.or_else(|| local::of_checks(run)) else { return Ok(unmended(run, pins)) };
    let contents = run.work.failed_checks.iter().map(|check| check.content.clone()).collect();
    let words = openings::for_mending("The final checks fail.", contents);
    let patch = Patch { role: CODER, about: format!("{MENDS}{path}"), path: &path, words };
    match patching::patched(run, pins, &patch)? {
        // The summary first; all actions are done, and the checks come after it.
        Patched::Done(_) if pins.settings.role_rules > 0 => {
            let step = PlanStep { text: "mended: the final checks".to_owned(), kind: StepKind::Free };
            Ok(seat::conclude(run, vec![summarized(run, &path, &step), began(WRITE)]))
        }
        Patched::Done(_) => checked(run, pins),
        Patched::Unchanged(_) | Patched::GivenUp(_) => Ok(unmended(run, pins)),
    }
}

/// What the coder is taken up for that mends the final checks.
const MENDS: &str = "final checks: mend ";

/// Checks fail, and the coder cannot help it.
fn unmended(run: &RunState, pins: &RunStarted) -> Decision {
    if is_last_plan(run) && run.work.heard.is_empty() {
        return Decision::fail(run, FailureKind::Gates, &verification::still_failing(run, pins));
    }
    replan(run, "the final checks failed")
}

/// The verifier's part, after the checks have passed.
fn verified(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.work.plans);
    if !seat::is_at(run, VERIFIER, &about) {
        if let Some(decision) = seat::blind(run) {
            return Ok(decision);
        }
        let shown = run.work.done.last().filter(|done| done.tool.name == tools::SHOW_CHANGES);
        let shown = shown.ok_or_else(|| seat::call(run, Vec::new(), vec![seat::show_changes(run)]))?;
        let opening = openings::for_verifier(run, pins, &shown.content);
        return Ok(seat::begin(run, Vec::new(), Begins { role: VERIFIER.to_owned(), about, opening }));
    }
    if let Some(decision) = given_up(run, "verdict") {
        return Ok(decision);
    }
    let said = seat::words(seat::speak(run, pins)?);
    Ok(match verdict_of(said) {
        Ok((verdict, reason)) => seat::conclude(run, vec![Fact::Judged { verdict, reason }]),
        Err(problem) => seat::conclude(run, vec![Fact::Invalid { what: "verdict".to_owned(), problem }]),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Accept,
    Reject,
}

#[derive(Deserialize)]
struct Judged {
    verdict: Verdict,
    #[serde(default)]
    reason: String,
}

fn verdict_of(said: &str) -> Result<(Judgement, String), String> {
    match answer::taken::<Judged>(said)? {
        Judged { verdict: Verdict::Accept, reason } => Ok((Judgement::Finish, reason)),
        Judged { verdict: Verdict::Reject, reason } if reason.trim().is_empty() => {
            Err("`reason` is empty: say what the work lacks, for whoever plans it".to_owned())
        }
        Judged { verdict: Verdict::Reject, reason } => Ok((Judgement::Replan, reason)),
    }
}

fn ended(at: usize, success: bool, output: Content) -> Fact {
    Fact::StepEnded { step: u32::try_from(at).unwrap_or(u32::MAX), success, output }
}

/// The file's summary with the patch that was applied just now.
fn summarized(run: &RunState, path: &WorkPath, step: &PlanStep) -> Fact {
    let before = run.work.summaries.get(path).map(String::as_str);
    let text = summary::with(before, step_words(step), run.work.done.last());
    Fact::Summarized { path: path.clone(), text }
}

/// Whether what a patch made of its file is told at once to be wrong: it parses worse, or a linter finds something.
fn is_unhealthy(run: &RunState) -> bool {
    run.work.done.last().is_some_and(|done| {
        done.findings || matches!(&done.content, Content::Text(text) if tools::says_worse(text))
    })
}

fn run_command(command: &str) -> (&'static str, serde_json::Value) {
    ("run_command", json!({ "command": command }))
}

/// The runtime's own command, done for the step in hand.
fn ran(run: &RunState) -> Option<&Done> {
    let done = run.work.done.last()?;
    (done.tool.call.is_own() && done.tool.name == "run_command").then_some(done)
}

/// Whether a command ended as the plan expects.
fn meets(done: &Done, expect: &str) -> bool {
    let fails = expect == change_plan::FAIL;
    done.status == ToolStatus::Ok && done.exit.is_some_and(|exit| (exit == 0) != fails)
}
