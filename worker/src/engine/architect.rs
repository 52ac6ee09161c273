//! Engine `architect`, version 1: a strong model plans and verifies, a cheap one writes (D1–D6).
//!
//! Rules beyond those that all role-based engines share (`role_conversation`): the architect produces a Change Plan;
//! after three invalid ones a person is asked. The coder gets one edit of one file at a time, sees that file with a
//! summary of earlier changes to it, and replies with a patch (`file_patch`). After each action everything that can
//! be checked at once is checked: whether the file parses, what its linters find, how a command ended. If that fails
//! because of a file the run wrote (`faulty_file`), the coder fixes it once. The final checks come after the last
//! action, followed by the verifier, who sees the full diff and the results of the checks.
//!
//! When this makes no progress, the architect plans again: twice, one of these for the verifier's sake. Then a person
//! is asked, whose answer allows another plan; checks that still fail end the run, as under every engine. Messages
//! from people meanwhile go to the architect, and so does the message of a person who continues an ended run.
//!
//! Phases are recorded, and give the progress of the current plan: `write`, `mend` (of the last step if that failed,
//! otherwise of the final checks), `verify`, `plan`.

mod change_plan;
mod faulty_file;
mod file_summary;
mod role_prompts;
#[cfg(test)]
mod tests;

use docket_schema::{
    content::{Content, WorkspacePath},
    run::{
        BlockedReason, EngineFact, EngineRef, FailureKind, FinishedCall, FinishedStep, PlanStep,
        ReviewVerdict, RunStarted, RunState, StepKind, ToolStatus,
    },
};
use serde::Deserialize;
use serde_json::json;

use super::{
    core::{
        decision::{Decision, RoleStart},
        definition::{Engine, RoleDefinition},
    },
    roles::{
        file_patch::{self, FilePatchOutcome, FilePatchTask},
        json_reply,
        role_conversation::{self, FinalCheckOutcome},
    },
    rules::{blockers::blocked_question, budget, verification},
};
use crate::tools;

const ARCHITECT: &str = "architect";
const CODER: &str = "coder";
const VERIFIER: &str = "verifier";

const WRITE_PHASE: &str = "write";
const FIX_PHASE: &str = "mend";
const VERIFY_PHASE: &str = "verify";
const PLAN_PHASE: &str = "plan";

/// Plans after the first one, before a person is asked.
const REPLANS_MAX: u32 = 2;
/// How often the verifier is started before its rejection goes to a person.
const VERIFICATIONS_MAX: u32 = 2;

/// The `architect` engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArchitectEngine;

impl Engine for ArchitectEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "architect".to_owned(), version: 1 }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        let looks = ["list_files", "search_codebase", tools::READ_FILE, tools::DELEGATE].map(str::to_owned);
        vec![
            RoleDefinition {
                tools: looks.into(),
                ..RoleDefinition::new(ARCHITECT, role_prompts::ARCHITECT_PROMPT)
            },
            // The coder sees one file (D3); the architect supplies what it must know about others.
            RoleDefinition {
                sees_project: false,
                ..RoleDefinition::new(
                    CODER,
                    &format!("{}\n{}", role_prompts::CODER_PROMPT, file_patch::PATCH_INSTRUCTIONS),
                )
            },
            RoleDefinition::new(VERIFIER, role_prompts::VERIFIER_PROMPT),
        ]
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::decide_within_budget(run, |pins| next_decision(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// Returns the next decision; both variants carry one.
fn next_decision(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    role_conversation::check_pending_decision(run, pins)?;
    let Some(steps) = &run.engine_state.plan else { return decide_planning(run, pins) };
    if has_message_for_architect(run) {
        return Ok(request_new_plan(run, "a person has something to say, which stands below"));
    }
    if let Some((verdict, reason)) = &run.engine_state.last_verdict {
        return Ok(match verdict {
            ReviewVerdict::Finish => role_conversation::succeed_run(run),
            ReviewVerdict::Continue | ReviewVerdict::Retry | ReviewVerdict::Replan => {
                request_new_plan(run, &format!("the verifier does not accept the work: {reason}"))
            }
        });
    }
    let phase = run.engine_state.phase.as_deref();
    if phase == Some(VERIFY_PHASE) {
        return decide_verification(run, pins);
    }
    let last = run.engine_state.finished_steps.last();
    match (last.filter(|end| !end.success), phase == Some(FIX_PHASE)) {
        (Some(failed), true) => decide_step_fix(run, pins, failed, steps),
        (None, true) => decide_checks_fix(run, pins),
        (Some(failed), false) => {
            Ok(request_new_plan(run, &role_prompts::describe_failed_step(failed, steps)))
        }
        (None, false) => {
            let at = last.map_or(0, |end| end.step as usize + 1);
            match steps.get(at) {
                Some(step) => decide_step(run, pins, at, step),
                None => decide_final_checks(run, pins),
            }
        }
    }
}

/// Whether a person sent a message that the architect must read: no other role knows the task, except a verifier
/// whose verdicts a person was asked about.
fn has_message_for_architect(run: &RunState) -> bool {
    let work = &run.engine_state;
    let of_verdict = work.role.as_deref() == Some(VERIFIER)
        && work.invalid_answers >= role_conversation::INVALID_REPLIES_MAX;
    let failed = work.finished_steps.last().is_some_and(|end| !end.success)
        && work.phase.as_deref() != Some(FIX_PHASE);
    let stopped = work.last_verdict.is_some() || failed;
    // The result of an action is recorded first, and if the work stopped for a reason, the reason is reported.
    let has_result = finished_command(run).is_some()
        || work.finished_calls.last().is_some_and(file_patch::is_patch_result);
    !work.unread_messages.is_empty() && !of_verdict && !has_result && (!stopped || is_accepted(run))
}

fn is_accepted(run: &RunState) -> bool {
    matches!(run.engine_state.last_verdict, Some((ReviewVerdict::Finish, _)))
}

fn phase_began_fact(phase: &str) -> EngineFact {
    EngineFact::PhaseBegan { phase: phase.to_owned() }
}

/// The architect's part.
fn decide_planning(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.engine_state.plans + 1);
    if !role_conversation::is_active_role(run, ARCHITECT, &about) {
        let opening = role_prompts::architect_opening(run, pins);
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: ARCHITECT.to_owned(), about, opening },
        ));
    }
    if let Some(decision) = invalid_reply_question(run, "plan") {
        return Ok(decision);
    }
    let said = role_conversation::require_final_reply(run, pins)?;
    if let Some(question) = blocked_question(Some(said), false) {
        return Ok(Decision::block_run(run, question, BlockedReason::Model));
    }
    Ok(
        match change_plan::parse_change_plan(
            role_conversation::inline_text(said),
            &run.policies,
            pins.settings.role_rules > 0,
        ) {
            Ok(steps) => role_conversation::record_facts(
                run,
                vec![EngineFact::Planned { steps }, phase_began_fact(WRITE_PHASE)],
            ),
            Err(problem) => role_conversation::record_facts(
                run,
                vec![EngineFact::Invalid { what: "plan".to_owned(), problem }],
            ),
        },
    )
}

/// Returns the question to a person after too many invalid replies in a row. It is due right after the last of them:
/// a person's answer goes to the role, and so does any other message since.
fn invalid_reply_question(run: &RunState, what: &str) -> Option<Decision> {
    let work = &run.engine_state;
    let waits = work.last_text.is_none() && work.finished_calls.is_empty() && run.empty_answers == 0;
    if work.counted_invalid_answers() < role_conversation::INVALID_REPLIES_MAX
        || !waits
        || run.transcript.has_notes()
    {
        return None;
    }
    let problem = work.problem.as_deref().unwrap_or_default();
    let question = format!(
        "{} answers in a row were to be a {what} and cannot be taken; the last one: {problem}\n\nWhat shall the {} do? \
         It is asked again with your words.",
        work.invalid_answers,
        work.role.as_deref().unwrap_or(ARCHITECT)
    );
    Some(Decision::block_run(run, question.into(), BlockedReason::Escalated))
}

/// Requests another plan from the architect. After too many plans a person is asked instead, whose answer guides the
/// next one.
fn request_new_plan(run: &RunState, reason: &str) -> Decision {
    let work = &run.engine_state;
    let refused = work.last_verdict.is_some() && work.counted_role_starts(VERIFIER) >= VERIFICATIONS_MAX;
    if (refused || is_last_plan(run)) && work.unread_messages.is_empty() {
        let question = format!(
            "The work does not get on: {reason}\n\nIt was planned {} times. Say another way, or what you mended: the \
             architect plans anew with your words.",
            work.plans
        );
        return Decision::block_run(run, question.into(), BlockedReason::Escalated);
    }
    role_conversation::record_facts(
        run,
        vec![EngineFact::PlanDropped { reason: reason.to_owned() }, phase_began_fact(PLAN_PHASE)],
    )
}

const fn is_last_plan(run: &RunState) -> bool {
    run.engine_state.counted_plans() > REPLANS_MAX
}

/// Carries out a step; returns its end once it has one.
fn decide_step(run: &RunState, pins: &RunStarted, at: usize, step: &PlanStep) -> Result<Decision, Decision> {
    match &step.kind {
        StepKind::Edit { path, hints } => {
            let about = format!("step {}: {path}", at + 1);
            let patch = FilePatchTask {
                role: CODER,
                about,
                path,
                instructions: role_prompts::coder_instructions(step, hints),
            };
            Ok(match file_patch::advance_patch(run, pins, &patch)? {
                FilePatchOutcome::Applied(output) if has_edit_problems(run) => {
                    role_conversation::record_facts(
                        run,
                        vec![
                            step_ended_fact(at, false, output),
                            file_summarized_fact(run, path, step),
                            phase_began_fact(FIX_PHASE),
                        ],
                    )
                }
                FilePatchOutcome::Applied(output) => role_conversation::record_facts(
                    run,
                    vec![step_ended_fact(at, true, output), file_summarized_fact(run, path, step)],
                ),
                FilePatchOutcome::Unchanged(output) => {
                    role_conversation::record_facts(run, vec![step_ended_fact(at, true, output)])
                }
                FilePatchOutcome::GivenUp(problem) => {
                    role_conversation::record_facts(run, vec![step_ended_fact(at, false, problem.into())])
                }
            })
        }
        StepKind::Command { command, expect } => {
            let done = finished_command(run).ok_or_else(|| {
                role_conversation::call_own_tools(run, Vec::new(), vec![run_command_call(command)])
            })?;
            let success = meets_expectation(done, expect);
            let mut facts = vec![step_ended_fact(at, success, done.content.clone())];
            // A command that was refused, did not end, or was expected to fail is not evidence against a file.
            let says = !success && done.exit.is_some() && expect != change_plan::EXPECT_FAIL;
            if says && faulty_file::find_faulty_file(&[&done.content], &run.files_written).is_some() {
                facts.push(phase_began_fact(FIX_PHASE));
            }
            Ok(role_conversation::record_facts(run, facts))
        }
        // A Change Plan has no other steps.
        StepKind::Message | StepKind::Free | StepKind::Tests { .. } => Ok(role_conversation::record_facts(
            run,
            vec![step_ended_fact(at, true, step.text.clone().into())],
        )),
    }
}

/// Fixes a step once that failed because of a file the run wrote; the result of the fix is the step's end.
fn decide_step_fix(
    run: &RunState,
    pins: &RunStarted,
    failed: &FinishedStep,
    steps: &[PlanStep],
) -> Result<Decision, Decision> {
    let at = failed.step as usize;
    let Some(step) = steps.get(at) else { return Ok(request_new_plan(run, "the plan has no such step")) };
    let over = |success, output, more: Option<EngineFact>| {
        let facts = [step_ended_fact(at, success, output), phase_began_fact(WRITE_PHASE)];
        Ok(role_conversation::record_facts(run, facts.into_iter().chain(more).collect()))
    };
    let command = match &step.kind {
        StepKind::Command { command, expect } => {
            if let Some(done) = finished_command(run) {
                return over(meets_expectation(done, expect), done.content.clone(), None);
            }
            Some(command)
        }
        StepKind::Edit { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => None,
    };
    let Some(path) = faulty_file_of_step(run, failed, step) else {
        return over(false, failed.output.clone(), None);
    };
    let about = format!("step {}: mend {path}", at + 1);
    let words = role_prompts::fix_instructions(
        &role_prompts::describe_failed_step(failed, steps),
        vec![failed.output.clone()],
    );
    match (
        file_patch::advance_patch(
            run,
            pins,
            &FilePatchTask { role: CODER, about, path: &path, instructions: words },
        )?,
        command,
    ) {
        (FilePatchOutcome::Applied(_), Some(command)) => {
            let facts = vec![file_summarized_fact(run, &path, &fix_step(step))];
            Ok(role_conversation::call_own_tools(run, facts, vec![run_command_call(command)]))
        }
        (FilePatchOutcome::Applied(output), None) => {
            over(!has_edit_problems(run), output, Some(file_summarized_fact(run, &path, &fix_step(step))))
        }
        // A linter finding may be something a later step uses: the final checks decide.
        (FilePatchOutcome::Unchanged(output), None) => over(true, output, None),
        (FilePatchOutcome::Unchanged(_), Some(_)) => over(false, failed.output.clone(), None),
        (FilePatchOutcome::GivenUp(problem), _) => over(false, problem.into(), None),
    }
}

/// Returns the file that made a step fail.
fn faulty_file_of_step(run: &RunState, failed: &FinishedStep, step: &PlanStep) -> Option<WorkspacePath> {
    match &step.kind {
        StepKind::Edit { path, .. } => Some(path.clone()),
        StepKind::Command { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => {
            faulty_file::find_faulty_file(&[&failed.output], &run.files_written)
        }
    }
}

/// Returns the step as described to the coder when its result is fixed.
fn fix_step(step: &PlanStep) -> PlanStep {
    PlanStep { text: format!("mended: {}", step_text(step)), kind: StepKind::Free }
}

fn step_text(step: &PlanStep) -> &str {
    match &step.kind {
        StepKind::Command { command, .. } => command,
        StepKind::Edit { .. } | StepKind::Message | StepKind::Free | StepKind::Tests { .. } => &step.text,
    }
}

/// All actions are done: runs the final checks, and then the verifier.
fn decide_final_checks(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    Ok(match role_conversation::require_final_checks(run, pins)? {
        FinalCheckOutcome::Passed => role_conversation::call_own_tools(
            run,
            vec![phase_began_fact(VERIFY_PHASE)],
            vec![role_conversation::show_changes_call(run)],
        ),
        FinalCheckOutcome::Failed if faulty_file::faulty_file_of_checks(run).is_some() => {
            role_conversation::record_facts(run, vec![phase_began_fact(FIX_PHASE)])
        }
        FinalCheckOutcome::Failed => decide_unfixed_checks(run, pins),
    })
}

/// Fixes final checks once that failed because of a file the run wrote.
fn decide_checks_fix(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let begun = if run.engine_state.role.as_deref() == Some(CODER) {
        run.engine_state.about.strip_prefix(FIX_ABOUT_PREFIX)
    } else {
        None
    };
    match (run.engine_state.checks_passed, begun) {
        (Some(true), _) => return decide_final_checks(run, pins),
        // They ran again.
        (Some(false), Some(_)) => {
            return role_conversation::require_final_checks(run, pins)
                .map(|_| decide_unfixed_checks(run, pins));
        }
        (Some(false), None) | (None, _) => {}
    }
    // The failure text may have changed by now: keep the file that the fix began with.
    let path = begun.and_then(|name| run.files_written.iter().find(|path| path.to_string() == name).cloned());
    let Some(path) = path.or_else(|| faulty_file::faulty_file_of_checks(run)) else {
        return Ok(decide_unfixed_checks(run, pins));
    };
    let contents = run.engine_state.failed_checks.iter().map(|check| check.content.clone()).collect();
    let words = role_prompts::fix_instructions("The final checks fail.", contents);
    let patch = FilePatchTask {
        role: CODER,
        about: format!("{FIX_ABOUT_PREFIX}{path}"),
        path: &path,
        instructions: words,
    };
    match file_patch::advance_patch(run, pins, &patch)? {
        // The summary first; all actions are done, and the checks come after it.
        FilePatchOutcome::Applied(_) if pins.settings.role_rules > 0 => {
            let step = PlanStep { text: "mended: the final checks".to_owned(), kind: StepKind::Free };
            Ok(role_conversation::record_facts(
                run,
                vec![file_summarized_fact(run, &path, &step), phase_began_fact(WRITE_PHASE)],
            ))
        }
        FilePatchOutcome::Applied(_) => decide_final_checks(run, pins),
        FilePatchOutcome::Unchanged(_) | FilePatchOutcome::GivenUp(_) => Ok(decide_unfixed_checks(run, pins)),
    }
}

/// Prefix of the coder's `about` line when it fixes the final checks.
const FIX_ABOUT_PREFIX: &str = "final checks: mend ";

/// Checks fail, and the coder cannot fix them.
fn decide_unfixed_checks(run: &RunState, pins: &RunStarted) -> Decision {
    if is_last_plan(run) && run.engine_state.unread_messages.is_empty() {
        return Decision::fail_run(run, FailureKind::Gates, &verification::still_failing_message(run, pins));
    }
    request_new_plan(run, "the final checks failed")
}

/// The verifier's part, after the checks have passed.
fn decide_verification(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.engine_state.plans);
    if !role_conversation::is_active_role(run, VERIFIER, &about) {
        if let Some(decision) = role_conversation::changes_hidden_decision(run) {
            return Ok(decision);
        }
        let shown =
            run.engine_state.finished_calls.last().filter(|done| done.tool.name == tools::SHOW_CHANGES);
        let shown = shown.ok_or_else(|| {
            role_conversation::call_own_tools(
                run,
                Vec::new(),
                vec![role_conversation::show_changes_call(run)],
            )
        })?;
        let opening = role_prompts::verifier_opening(run, pins, &shown.content);
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: VERIFIER.to_owned(), about, opening },
        ));
    }
    if let Some(decision) = invalid_reply_question(run, "verdict") {
        return Ok(decision);
    }
    let said = role_conversation::inline_text(role_conversation::require_final_reply(run, pins)?);
    Ok(match parse_verdict(said) {
        Ok((verdict, reason)) => {
            role_conversation::record_facts(run, vec![EngineFact::Judged { verdict, reason }])
        }
        Err(problem) => role_conversation::record_facts(
            run,
            vec![EngineFact::Invalid { what: "verdict".to_owned(), problem }],
        ),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerifierVerdict {
    Accept,
    Reject,
}

#[derive(Deserialize)]
struct VerifierReply {
    verdict: VerifierVerdict,
    #[serde(default)]
    reason: String,
}

fn parse_verdict(said: &str) -> Result<(ReviewVerdict, String), String> {
    match json_reply::parse_json_reply::<VerifierReply>(said)? {
        VerifierReply { verdict: VerifierVerdict::Accept, reason } => Ok((ReviewVerdict::Finish, reason)),
        VerifierReply { verdict: VerifierVerdict::Reject, reason } if reason.trim().is_empty() => {
            Err("`reason` is empty: say what the work lacks, for whoever plans it".to_owned())
        }
        VerifierReply { verdict: VerifierVerdict::Reject, reason } => Ok((ReviewVerdict::Replan, reason)),
    }
}

fn step_ended_fact(at: usize, success: bool, output: Content) -> EngineFact {
    EngineFact::StepEnded { step: u32::try_from(at).unwrap_or(u32::MAX), success, output }
}

/// Returns the fact that adds the patch just applied to the file's summary.
fn file_summarized_fact(run: &RunState, path: &WorkspacePath, step: &PlanStep) -> EngineFact {
    let before = run.engine_state.summaries.get(path).map(String::as_str);
    let text =
        file_summary::append_summary_entry(before, step_text(step), run.engine_state.finished_calls.last());
    EngineFact::Summarized { path: path.clone(), text }
}

/// Whether the file is visibly worse after the patch: it has more parse errors, or a linter finds something.
fn has_edit_problems(run: &RunState) -> bool {
    run.engine_state.finished_calls.last().is_some_and(|done| {
        done.has_findings || matches!(&done.content, Content::Text(text) if tools::reports_worse_syntax(text))
    })
}

fn run_command_call(command: &str) -> (&'static str, serde_json::Value) {
    ("run_command", json!({ "command": command }))
}

/// Returns the runtime's own command for the current step, once finished.
fn finished_command(run: &RunState) -> Option<&FinishedCall> {
    let done = run.engine_state.finished_calls.last()?;
    (done.tool.call.is_runtime() && done.tool.name == "run_command").then_some(done)
}

/// Whether a command ended as the plan expects.
fn meets_expectation(done: &FinishedCall, expect: &str) -> bool {
    let fails = expect == change_plan::EXPECT_FAIL;
    done.status == ToolStatus::Ok && done.exit.is_some_and(|exit| (exit == 0) != fails)
}
