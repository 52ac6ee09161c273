//! Engine `sop`, version 1: a fixed procedure in phases, each with its allowed tools, and four artifacts (E1–E7).
//!
//! understand → plan → implement → verify → review → complete. The runtime surveys the workspace; a planner reads and
//! submits a PlanCard; a builder makes the change and explains it; the runtime lists the changes (DiffCard) and runs
//! the checks (TestReport); a reviewer who does not see the builder's reasoning submits a ReviewReport, unless the
//! change is trivial; only `complete_task` ends the run as succeeded. Between phases are quality gates; one that
//! fails sends the work back to the phase that can fix it, up to a limit.
//!
//! Each mode (plan, build, review) has its own conversation: the builder is not distracted by everything read during
//! planning, and the reviewer sees the task, the plan and the change, but not the builder's justifications. Artifacts
//! carry over what must be known, and people read them as well. Within a mode the conversation continues: failed
//! checks come back to the builder who knows what it did.

mod artifacts;
mod last_turn;
mod role_openings;
mod role_prompts;
mod sop_phase;

use docket_schema::{
    artifact::{DIFF_CARD, DiffCard, PLAN_CARD, PlanCard, REVIEW_REPORT, ReviewReport, TEST_REPORT},
    content::Content,
    run::{
        BlockedReason, EngineFact, EngineRef, FailureKind, FinishedCall, GateVerdict, ModelFailed, PlanStep,
        RunOutcome, RunPhase, RunStarted, RunState, StepKind, ToolStatus,
    },
    tool::ToolSet,
};
use serde_json::{Value, json};

use self::{
    artifacts::{artifact_fact, load_artifact},
    last_turn::{find_near_limit, is_nearly_used_up, nearly_used_up_message},
    sop_phase::{BUILDER, PLANNER, REVIEWER, SopPhase},
};
use super::{
    core::{
        decision::{Action, Decision, RoleStart},
        definition::{Engine, RoleDefinition},
        limits::turns_allowed,
    },
    roles::role_conversation::{self, INVALID_REPLIES_MAX, RoleReply},
    rules::{
        blockers::blocked_question, budget, next_request::retry_after_failure, permission, verification,
    },
};
use crate::tools;

/// The gate after `implement`: something exists that can show whether the change works.
const TESTS_EXIST: &str = "tests_exist";
/// The gate after `verify`: the change works, as far as the project's checks tell.
const TESTS_PASS: &str = "tests_pass";
/// The gate after `review`: risks were reported.
const RISK_REPORTED: &str = "risk_reported";

/// Consecutive replies without a tool call after which the role is given up.
const IDLE_ANSWERS_MAX: u32 = 3;

/// The `sop` engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SopEngine;

impl Engine for SopEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: sop_phase::ENGINE_NAME.to_owned(), version: 1 }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        let role = |name, words, tools: Vec<&str>| RoleDefinition {
            tools: tools.into_iter().map(str::to_owned).collect(),
            ..RoleDefinition::new(name, words)
        };
        vec![
            role(
                PLANNER,
                role_prompts::PLANNER_PROMPT,
                [&sop_phase::READ_TOOLS[..], &[tools::PLAN_CARD, tools::COMPLETE_TASK, tools::DELEGATE]]
                    .concat(),
            ),
            role(
                BUILDER,
                role_prompts::BUILDER_PROMPT,
                [
                    &sop_phase::READ_TOOLS[..],
                    &sop_phase::BUILD_TOOLS,
                    &[tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK, tools::DELEGATE],
                ]
                .concat(),
            ),
            role(
                REVIEWER,
                role_prompts::REVIEWER_PROMPT,
                [&sop_phase::READ_TOOLS[..], &[tools::REVIEW_REPORT, tools::COMPLETE_TASK, tools::DELEGATE]]
                    .concat(),
            ),
        ]
    }

    // Files are created, or edited line by line: no tool of this set overwrites an existing file as a whole.
    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Core)
    }

    // A call that used all the time would leave none to report the state of the work (E6).
    fn call_time_budget_ms(&self, run: &RunState, budget_ms: u64) -> u64 {
        if run.engine_state.last_turn.is_some() || SopPhase::from_run(run) == Some(SopPhase::Complete) {
            return budget_ms;
        }
        last_turn::time_before_last_turn(budget_ms)
    }

    fn allows_tool(&self, run: &RunState, tool: &str) -> bool {
        SopPhase::from_run(run).is_some_and(|at| at.allows_tool(tool))
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::decide_within_budget(run, |pins| next_decision(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// Returns the next decision; both variants carry one.
fn next_decision(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let time_max_ms = SopEngine.call_time_budget_ms(run, pins.settings.time_max_ms);
    role_conversation::check_due_decision(run, pins, time_max_ms)
        .map_err(|decision| sop_phase::deny_disallowed_calls(run, decision))?;
    if let Some(failure) = &run.last_failure {
        handle_model_failure(run, pins, failure)?;
    }
    if let Some(decision) = role_conversation::changes_hidden_decision(run) {
        return Ok(decision);
    }
    match SopPhase::from_run(run) {
        None | Some(SopPhase::Understand) => decide_survey(run, pins),
        Some(SopPhase::Plan) => decide_planning(run, pins),
        Some(SopPhase::Implement) => decide_implementation(run, pins),
        Some(SopPhase::Verify) => decide_verification(run, pins),
        Some(SopPhase::Review) => decide_review(run, pins),
        Some(SopPhase::Complete) => decide_completion(run, pins),
    }
}

/// Decides what follows a model's failure: the last turn if only its time is left, otherwise another attempt.
///
/// # Errors
/// The decision. `Ok` if the failure came before the last turn, which is due.
fn handle_model_failure(run: &RunState, pins: &RunStarted, failure: &ModelFailed) -> Result<(), Decision> {
    let attempt = || Err(retry_after_failure(run, pins, failure));
    match (&run.engine_state.last_turn, SopPhase::from_run(run)) {
        (Some((turn, _)), _) if run.turn < *turn => Ok(()),
        (Some(_), _) | (None, Some(SopPhase::Complete)) => attempt(),
        (None, phase) => {
            let spent = run.model_attempts.spending(&run.totals).worked_ms;
            let after = spent.saturating_add(failure.retry_in_ms.unwrap_or(0));
            if failure.needs_person || !is_nearly_used_up(pins.settings.time_max_ms, after, 0) {
                return attempt();
            }
            Err(start_last_turn(run, phase.unwrap_or(SopPhase::Understand), &nearly_used_up_message("time")))
        }
    }
}

/// The runtime surveys the workspace, then the planner begins.
fn decide_survey(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let Some(survey) = own_call_result(run, tools::SURVEY) else {
        let begins = run.engine_state.phase.is_none().then(|| phase_began_fact(SopPhase::Understand));
        let requires: Vec<String> = pins.requires.iter().map(ToString::to_string).collect();
        let call = (tools::SURVEY, json!({ "requires": requires }));
        return Ok(role_conversation::call_own_tools(run, begins.into_iter().collect(), vec![call]));
    };
    if survey.status != ToolStatus::Ok {
        let why =
            super::rules::escalation::excerpt_first_line(role_conversation::inline_text(&survey.content));
        return Ok(Decision::fail_run(
            run,
            FailureKind::Environment,
            &format!("the preflight failed: {why}"),
        ));
    }
    let opening = role_openings::planner_opening(run, pins, &survey.content);
    let begins = RoleStart { role: PLANNER.to_owned(), about: "the plan".to_owned(), opening };
    Ok(role_conversation::start_role(run, vec![phase_began_fact(SopPhase::Plan)], begins))
}

/// The planner's part.
fn decide_planning(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    match submitted_artifact(run, tools::PLAN_CARD, tools::parse_plan_card) {
        Some(Ok(card)) => {
            let steps = card.steps.iter().map(|text| PlanStep { text: text.clone(), kind: StepKind::Free });
            let facts = vec![
                EngineFact::Planned { steps: steps.collect() },
                artifact_fact(PLAN_CARD, &card),
                phase_began_fact(SopPhase::Implement),
            ];
            let opening = role_openings::builder_opening(pins, &card);
            let begins = RoleStart { role: BUILDER.to_owned(), about: "the change".to_owned(), opening };
            Ok(role_conversation::start_role(run, facts, begins))
        }
        Some(Err(problem)) => Ok(reject_artifact(run, PLAN_CARD, problem, FailureKind::Plan)),
        None => ask_active_role(run, pins),
    }
}

/// The builder's part, until it reports the change as made; then the gate `tests_exist`.
fn decide_implementation(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let corrections_max = pins.settings.corrections_max;
    if run.counted_corrections() > corrections_max {
        return Ok(Decision::fail_run(
            run,
            FailureKind::Gates,
            &verification::still_failing_message(run, pins),
        ));
    }
    if let Some(message) = gate_failed_too_often(run, TESTS_EXIST, corrections_max + 1) {
        return Ok(Decision::fail_run(run, FailureKind::Gates, &message));
    }
    if let Some(shown) = own_call_result(run, tools::SHOW_CHANGES) {
        let card = artifacts::build_diff_card(run, shown);
        let (verdict, reason) = artifacts::check_tests_exist(run, pins, &card);
        let mut facts =
            vec![artifact_fact(DIFF_CARD, &card), quality_gate_fact(TESTS_EXIST, verdict, reason)];
        match verdict {
            GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => {
                facts.push(phase_began_fact(SopPhase::Verify));
            }
            GateVerdict::Failed => {}
        }
        return Ok(role_conversation::record_facts(run, facts));
    }
    match submitted_artifact(run, tools::DIFF_CARD, tools::parse_diff_card) {
        Some(Ok(said)) => {
            let content =
                json!({ "rationale": said.rationale, "not_verified_because": said.not_verified_because });
            let answered = EngineFact::Answered { role: BUILDER.to_owned(), content };
            Ok(role_conversation::call_own_tools(
                run,
                vec![answered],
                vec![role_conversation::show_changes_call(run)],
            ))
        }
        Some(Err(problem)) => Ok(reject_artifact(run, DIFF_CARD, problem, FailureKind::Gates)),
        None => ask_active_role(run, pins),
    }
}

/// Runs the checks, which fill the TestReport; then the gate `tests_pass`.
fn decide_verification(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let checks = verification::final_checks(run, pins);
    if run.engine_state.checks_passed.is_none() && !checks.is_empty() {
        return Ok(verification::run_checks(run, pins, checks));
    }
    let report = artifacts::build_test_report(run, pins);
    let (verdict, reason) = artifacts::check_tests_pass(run, &report);
    let report = artifact_fact(TEST_REPORT, &report);
    match verdict {
        GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => {
            let facts = vec![
                report,
                quality_gate_fact(TESTS_PASS, verdict, reason),
                phase_began_fact(SopPhase::Review),
            ];
            // Shown again: automatic fixes of checks are part of the change.
            Ok(role_conversation::call_own_tools(run, facts, vec![role_conversation::show_changes_call(run)]))
        }
        GateVerdict::Failed => {
            // The failure is in the builder's conversation; the gate's reason follows it.
            let facts = vec![
                report,
                phase_began_fact(SopPhase::Implement),
                quality_gate_fact(TESTS_PASS, verdict, reason),
            ];
            Ok(role_conversation::record_facts(run, facts))
        }
    }
}

/// The reviewer's part, or for a trivial change the builder's own review; then the gate `risk_reported`.
fn decide_review(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    if let Some(message) = gate_failed_too_often(run, RISK_REPORTED, INVALID_REPLIES_MAX) {
        return Ok(Decision::fail_run(run, FailureKind::Gates, &message));
    }
    if let Some(shown) = own_call_result(run, tools::SHOW_CHANGES) {
        let card = artifacts::build_diff_card(run, shown);
        if load_artifact::<DiffCard>(run, DIFF_CARD).as_ref() != Some(&card) {
            return Ok(role_conversation::record_facts(run, vec![artifact_fact(DIFF_CARD, &card)]));
        }
        // Changes that policy hides are missing on the card, and never count as trivial.
        let is_trivial =
            artifacts::is_trivial_change(&card, pins) && permission::hidden_changed_files(run).is_empty();
        if !is_trivial && run.engine_state.role.as_deref() != Some(REVIEWER) {
            let nth = run.engine_state.role_starts.get(REVIEWER).map_or(1, |begun| begun + 1);
            let opening = role_openings::reviewer_opening(run, pins, &card, &shown.content);
            let begins = RoleStart { role: REVIEWER.to_owned(), about: format!("review {nth}"), opening };
            return Ok(role_conversation::start_role(run, Vec::new(), begins));
        }
    }
    match submitted_artifact(run, tools::REVIEW_REPORT, tools::parse_review_report) {
        Some(Ok(report)) => Ok(accept_review_report(run, pins, &report)),
        Some(Err(problem)) => Ok(role_conversation::record_facts(
            run,
            vec![quality_gate_fact(RISK_REPORTED, GateVerdict::Failed, problem)],
        )),
        None if matches!(role_conversation::role_reply(run, pins)?, RoleReply::Final(_))
            && !is_blocked(run) =>
        {
            let reason = "no ReviewReport was handed in: words do not count".to_owned();
            Ok(role_conversation::record_facts(
                run,
                vec![quality_gate_fact(RISK_REPORTED, GateVerdict::Failed, reason)],
            ))
        }
        None => ask_active_role(run, pins),
    }
}

/// Handles a submitted ReviewReport: on to the end, or back to the builder.
fn accept_review_report(run: &RunState, pins: &RunStarted, report: &ReviewReport) -> Decision {
    let told = match report.risks.len() {
        1 => "1 risk is told".to_owned(),
        many => format!("{many} risks are told"),
    };
    let mut facts = vec![
        artifact_fact(REVIEW_REPORT, report),
        quality_gate_fact(RISK_REPORTED, GateVerdict::Passed, told),
    ];
    let Some(first) = report.must_change.first() else {
        facts.push(phase_began_fact(SopPhase::Complete));
        return role_conversation::record_facts(run, facts);
    };
    if run.engine_state.counted_corrections() >= pins.settings.corrections_max
        && !role_conversation::has_unread_user_message(run)
    {
        let message = format!(
            "after {} rounds of correction the review still wants a change: {}",
            run.engine_state.corrections,
            super::rules::escalation::excerpt_first_line(first)
        );
        return Decision::fail_run(run, FailureKind::Gates, &message);
    }
    let reason =
        format!("the review wants a change: {}", super::rules::escalation::excerpt_first_line(first));
    facts.extend([EngineFact::Correcting { reason }, phase_began_fact(SopPhase::Implement)]);
    if run.engine_state.role.as_deref() == Some(BUILDER) {
        return role_conversation::record_facts(run, facts);
    }
    let about = format!("the change, round {}", run.engine_state.corrections + 2);
    let opening = role_openings::rework_opening(run, pins, report);
    role_conversation::start_role(run, facts, RoleStart { role: BUILDER.to_owned(), about, opening })
}

/// The end.
fn decide_completion(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let Some((turn, reason)) = &run.engine_state.last_turn else {
        if role_conversation::has_unread_user_message(run)
            && let Some(card) = load_artifact::<PlanCard>(run, PLAN_CARD)
        {
            return Ok(rework_for_user_message(run, pins, &card));
        }
        return match submitted_artifact(run, tools::COMPLETE_TASK, tools::parse_completion_summary) {
            Some(Ok(summary)) => Ok(end_run(RunOutcome::Succeeded, summary.into())),
            Some(Err(problem)) => Ok(reject_artifact(run, tools::COMPLETE_TASK, problem, FailureKind::Gates)),
            None => ask_active_role(run, pins),
        };
    };
    let why = if turn.0 >= turns_allowed(run, &pins.settings) {
        FailureKind::TurnLimit
    } else {
        FailureKind::Limit
    };
    let kept_work = match run.overlay.len() {
        0 => "nothing was changed".to_owned(),
        1 => "its work so far is kept: 1 path is changed".to_owned(),
        many => format!("its work so far is kept: {many} paths are changed"),
    };
    if let Some(shown) = own_call_result(run, tools::SHOW_CHANGES) {
        let card = artifacts::build_diff_card(run, shown);
        if load_artifact::<DiffCard>(run, DIFF_CARD).as_ref() != Some(&card) {
            return Ok(role_conversation::record_facts(run, vec![artifact_fact(DIFF_CARD, &card)]));
        }
        let message = format!("{reason}; {kept_work}");
        return Ok(end_run(RunOutcome::Failed { why, message }, card.rationale.into()));
    }
    match submitted_artifact(run, tools::COMPLETE_TASK, tools::parse_completion_summary) {
        Some(Ok(summary)) => {
            let answered =
                EngineFact::Answered { role: BUILDER.to_owned(), content: json!({ "rationale": summary }) };
            Ok(role_conversation::call_own_tools(
                run,
                vec![answered],
                vec![role_conversation::show_changes_call(run)],
            ))
        }
        Some(Err(problem)) => {
            let message = format!(
                "{reason}, and its last turn called `complete_task` with what could not be taken: {}; {kept_work}",
                super::rules::escalation::excerpt_first_line(&problem)
            );
            Ok(Decision::fail_run(run, why, &message))
        }
        None if run.turn >= *turn => {
            let message = format!("{reason}, and its last turn did not call `complete_task`; {kept_work}");
            Ok(Decision::fail_run(run, why, &message))
        }
        None => ask_active_role(run, pins),
    }
}

/// A message from a person arrived after all was done: the builder reads it, and its changes pass through the same
/// phases again.
fn rework_for_user_message(run: &RunState, pins: &RunStarted, card: &PlanCard) -> Decision {
    let facts = vec![
        EngineFact::Correcting { reason: role_conversation::USER_MESSAGE_REASON.to_owned() },
        phase_began_fact(SopPhase::Implement),
    ];
    let about = format!("the change, round {}", run.engine_state.corrections + 2);
    let mut opening = role_openings::builder_opening(pins, card);
    opening
        .push("This was done, and reviewed. Now a person has something to say, which stands below.".into());
    role_conversation::start_role(run, facts, RoleStart { role: BUILDER.to_owned(), about, opening })
}

/// Lets the active role continue, unless a limit is near: then one turn is left.
fn ask_active_role(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let at = SopPhase::from_run(run).unwrap_or(SopPhase::Understand);
    let told = match role_conversation::role_reply(run, pins)? {
        // Earlier replies do not count for the last turn.
        _ if at == SopPhase::Complete && run.engine_state.last_turn.is_some() => {
            sop_phase::phase_nudge(run, at)
        }
        RoleReply::Final(_) => {
            if let Some(question) = blocked_question(run.last_text.as_ref(), true) {
                return Ok(Decision::block_run(run, question, BlockedReason::Model));
            }
            if run.counted_idle_answers() >= IDLE_ANSWERS_MAX {
                let message = format!(
                    "{IDLE_ANSWERS_MAX} answers in a row called no tool, in phase `{at}`: a run of engine `sop` ends by \
                     `complete_task` alone, and its phase by `{}`",
                    at.ending_tool()
                );
                return Ok(Decision::fail_run(run, FailureKind::EmptyAnswers, &message));
            }
            Some(sop_phase::idle_nudge(at))
        }
        RoleReply::NotFinal(Some(_)) if run.empty_answers > 0 => Some(sop_phase::idle_nudge(at)),
        RoleReply::NotFinal(Some(nudge)) => Some(nudge.to_owned()),
        RoleReply::NotFinal(None) => sop_phase::phase_nudge(run, at),
    };
    match find_near_limit(run, pins).filter(|_| at != SopPhase::Complete) {
        Some(which) => Ok(start_last_turn(run, at, &which)),
        None => Ok(role_conversation::ask_role(run, pins, told)),
    }
}

/// Starts the last turn, because the limit `which` is near.
fn start_last_turn(run: &RunState, at: SopPhase, which: &str) -> Decision {
    let reason = format!("{which} in phase `{at}`");
    let last = EngineFact::LastTurn { turn: run.turn.next(), reason };
    role_conversation::record_facts(run, vec![last, phase_began_fact(SopPhase::Complete)])
}

fn is_blocked(run: &RunState) -> bool {
    blocked_question(run.last_text.as_ref(), true).is_some()
}

/// Returns the artifact submitted by the last reply, or its problem.
fn submitted_artifact<T>(
    run: &RunState,
    tool: &str,
    read: impl Fn(&Value) -> Result<T, String>,
) -> Option<Result<T, String>> {
    let is_meant = |done: &&FinishedCall| !done.tool.call.is_runtime() && done.tool.name == tool;
    let done = run.engine_state.finished_calls.iter().rev().find(is_meant)?;
    match done.status {
        ToolStatus::Ok => Some(read(&done.tool.args)),
        ToolStatus::Error => Some(Err(role_conversation::inline_text(&done.content).to_owned())),
        // Submitted in the wrong phase, as its result says.
        ToolStatus::Refused | ToolStatus::Unknown => None,
    }
}

/// Returns the runtime's own call of this tool, if nothing came after it.
fn own_call_result<'a>(run: &'a RunState, tool: &str) -> Option<&'a FinishedCall> {
    run.engine_state
        .finished_calls
        .last()
        .filter(|done| done.tool.call.is_runtime() && done.tool.name == tool)
}

/// Rejects an invalid artifact, which must be submitted again, unless it was rejected too often.
fn reject_artifact(run: &RunState, what: &str, problem: String, why: FailureKind) -> Decision {
    if run.engine_state.counted_invalid_answers() + 1 >= INVALID_REPLIES_MAX
        && !role_conversation::has_unread_user_message(run)
    {
        let message =
            format!("{INVALID_REPLIES_MAX} times in a row no {what} could be taken; the last one: {problem}");
        return Decision::fail_run(run, why, &message);
    }
    role_conversation::record_facts(run, vec![EngineFact::Invalid { what: what.to_owned(), problem }])
}

fn gate_failed_too_often(run: &RunState, gate: &str, max: u32) -> Option<String> {
    let stands =
        run.engine_state.quality_gates.get(gate).filter(|stands| stands.counted_failures() >= max)?;
    Some(format!(
        "the quality gate `{gate}` failed {} times; the last time: {}",
        stands.failed, stands.reason
    ))
}

fn end_run(result: RunOutcome, summary: Content) -> Decision {
    Decision { phase: RunPhase::Verifying, act: Action::End { result, summary: Some(summary) } }
}

fn phase_began_fact(phase: SopPhase) -> EngineFact {
    EngineFact::PhaseBegan { phase: phase.as_str().to_owned() }
}

fn quality_gate_fact(gate: &str, verdict: GateVerdict, reason: String) -> EngineFact {
    EngineFact::QualityGate { gate: gate.to_owned(), verdict, reason }
}
