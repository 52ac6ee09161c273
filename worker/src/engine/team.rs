//! Engine `team`, version 1: orchestrator, architect, coder, tester, reviewer (D10).
//!
//! Rules beyond those that all role-based engines share (`role_conversation`): everything passes through the
//! orchestrator, and there is one sequence, the order of the pinned roles. Before each role the orchestrator is asked
//! for its brief and for the results it should see; the role knows nothing else. Each reply is JSON by its role's
//! schema, and is recorded. A tester's claim that tests passed counts only if one of its own commands ended, and then
//! the runtime runs the final checks itself: their result ends the step. If there are only linters, its last
//! `run_tests` must have passed. After the last role the orchestrator finishes or starts another round, three at
//! most, and one more for a message that a person sends after the last; it cannot finish while a role has sent the
//! work back or a check fails. The final checks decide.

pub mod role_registry;

use docket_schema::{
    content::Content,
    run::{
        BlockedReason, EngineFact, EngineRef, FailureKind, PlanStep, ReviewVerdict, RunOutcome, RunPhase,
        RunStarted, RunState, StepKind,
    },
    task::RoleOverride,
    tool::ToolSet,
};
use serde::Deserialize;
use serde_json::Value;

use self::role_registry::{ORCHESTRATOR, REVIEWER, TESTER};
use super::{
    core::{
        decision::{Action, Decision, RoleStart},
        definition::{Engine, RoleDefinition, RoleError},
    },
    roles::role_conversation::{self, FinalCheckOutcome},
    rules::{budget, escalation, verification},
};

/// Rounds of all roles, or of those from one on.
const ROUNDS_MAX: u32 = 3;
/// Characters of a reply handed to another role: a role's reply is not a file.
const ANSWER_CHARS_MAX: usize = 6000;

/// The `team` engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct TeamEngine;

impl Engine for TeamEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "team".to_owned(), version: 1 }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        role_registry::resolve_role_order(&[]).expect("the built-in registry is tested")
    }

    fn roles_with_overrides(&self, asked: &[RoleOverride]) -> Result<Vec<RoleDefinition>, RoleError> {
        role_registry::resolve_role_order(asked)
    }

    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Wide)
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::decide_within_budget(run, |pins| next_decision(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// Returns the next decision; both variants carry one.
fn next_decision(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    role_conversation::check_pending_decision(run, pins)?;
    let Some(steps) = &run.engine_state.plan else {
        return Ok(role_conversation::record_facts(
            run,
            vec![EngineFact::Planned { steps: round_steps(pins, None) }],
        ));
    };
    match steps.get(run.engine_state.finished_steps.len()) {
        Some(step) => decide_role_turn(run, pins, &step.text),
        None => decide_round_end(run, pins),
    }
}

/// Returns the roles of a round as its steps.
fn round_steps(pins: &RunStarted, from: Option<&str>) -> Vec<PlanStep> {
    let all = role_order(pins);
    let first = from.and_then(|from| all.iter().position(|role| *role == from)).unwrap_or(0);
    all[first..].iter().map(|role| PlanStep { text: (*role).to_owned(), kind: StepKind::Free }).collect()
}

/// Returns the role at which another round begins: the requested one, unless an earlier role sent the work back,
/// because that one has to check the fix.
fn restart_role<'a>(run: &'a RunState, pins: &'a RunStarted, asked: Option<&'a str>) -> Option<&'a str> {
    let failed = run.engine_state.finished_steps.iter().find(|end| !end.success);
    let failed = failed.and_then(|end| run.engine_state.plan.as_ref()?.get(end.step as usize));
    let order = role_order(pins);
    let place = |name: &str| order.iter().position(|role| *role == name);
    let first = [asked, failed.map(|step| step.text.as_str())].into_iter().flatten();
    asked.and_then(|_| first.min_by_key(|name| place(name).unwrap_or(0)))
}

/// Returns the roles that speak in a round, in order.
fn role_order(pins: &RunStarted) -> Vec<&str> {
    pins.roles.iter().map(|role| role.name.as_str()).filter(|role| *role != ORCHESTRATOR).collect()
}

const fn current_round(run: &RunState) -> u32 {
    run.engine_state.corrections + 1
}

/// Returns how many rounds are allowed, including those granted for messages from people.
fn rounds_allowed(run: &RunState) -> u32 {
    let before = run.engine_state.corrections - run.engine_state.counted_corrections();
    current_round(run).max(before + ROUNDS_MAX)
}

/// A role's part of a round: the orchestrator's brief, then its own reply.
fn decide_role_turn(run: &RunState, pins: &RunStarted, role: &str) -> Result<Decision, Decision> {
    let round = current_round(run);
    let about = format!("round {round}");
    if role_conversation::is_active_role(run, role, &about) {
        return decide_after_reply(run, pins, role);
    }
    let wants = OrchestratorRequest::Brief(role);
    let asks = format!("round {round}: a brief for the {role}");
    let order = require_order(run, pins, asks, &wants)?;
    let opening = role_opening(run, pins, &order);
    let facts = vec![EngineFact::Answered { role: ORCHESTRATOR.to_owned(), content: order.content }];
    Ok(role_conversation::start_role(run, facts, RoleStart { role: role.to_owned(), about, opening }))
}

/// Handles a role's reply.
fn decide_after_reply(run: &RunState, pins: &RunStarted, role: &str) -> Result<Decision, Decision> {
    let checking = format!("round {}: checks of what the {role} says", current_round(run));
    if run.engine_state.phase.as_ref() == Some(&checking) {
        let (success, output) = match role_conversation::require_final_checks(run, pins)? {
            FinalCheckOutcome::Passed if !run.undecided.is_empty() => {
                let why =
                    verification::unverified_reason(run, pins).map(|why| why.reason).unwrap_or_default();
                (true, format!("says that tests passed, which is unverified: {why}"))
            }
            FinalCheckOutcome::Passed if !verification::has_meaningful_check(run, pins) => {
                let told =
                    "tests passed, as `run_tests` says; there are no checks that the runtime could run";
                (true, told.to_owned())
            }
            FinalCheckOutcome::Passed => {
                (true, "tests passed, and so did the checks that the runtime ran".to_owned())
            }
            FinalCheckOutcome::Failed => {
                let failing = run.failed_checks.join("; ");
                (false, format!("says that tests passed; the checks that the runtime ran fail: {failing}"))
            }
        };
        return Ok(end_step(run, Vec::new(), (success, output)));
    }
    let proves = verification::has_meaningful_check(run, pins);
    let take = |content: Value| check_plausible(run, role, &content, proves).map(|()| content);
    let content = role_conversation::require_structured_reply(
        run,
        pins,
        &format!("answer of the {role}"),
        take,
        |problem| fail_invalid_replies(run, role, problem),
    )?;
    let fact = EngineFact::Answered { role: role.to_owned(), content: content.clone() };
    if role == TESTER && field_equals(&content, "outcome", "passed") {
        return Ok(role_conversation::record_facts(
            run,
            vec![fact, EngineFact::PhaseBegan { phase: checking }],
        ));
    }
    let success = match role {
        TESTER => !field_equals(&content, "outcome", "failed"),
        REVIEWER => field_equals(&content, "verdict", "approve"),
        // A role that reports itself as not done is believed.
        _ => content.get("done") != Some(&Value::Bool(false)),
    };
    let output = content
        .get("summary")
        .and_then(Value::as_str)
        .map_or_else(|| truncate_answer(&content), escalation::excerpt_first_line);
    Ok(end_step(run, vec![fact], (success, output)))
}

fn end_step(run: &RunState, mut facts: Vec<EngineFact>, (success, output): (bool, String)) -> Decision {
    let step = u32::try_from(run.engine_state.finished_steps.len()).unwrap_or(u32::MAX);
    facts.push(EngineFact::StepEnded { step, success, output: output.into() });
    role_conversation::record_facts(run, facts)
}

fn field_equals(content: &Value, field: &str, word: &str) -> bool {
    content.get(field).and_then(Value::as_str) == Some(word)
}

/// Checks whether a reply is consistent with what its role was seen to do; claims about tests are proven later by
/// checks, if there are any.
fn check_plausible(run: &RunState, role: &str, content: &Value, proves: bool) -> Result<(), String> {
    if role != TESTER || !field_equals(content, "outcome", "passed") {
        return Ok(());
    }
    let so = "`/outcome`: it is \"passed\"";
    if run.engine_state.commands_ended == 0 {
        return Err(format!("{so}, and you ran nothing: run the tests, or say \"none\""));
    }
    if !proves && !run.engine_state.tests_passed {
        return Err(format!(
            "{so}, and nothing shows it: your last `run_tests` did not pass, or there was none after your last edit or command. \
             Run it; where it finds no tests, say \"none\" and what you looked at"
        ));
    }
    Ok(())
}

fn fail_invalid_replies(run: &RunState, role: &str, problem: &str) -> Decision {
    let count = role_conversation::INVALID_REPLIES_MAX;
    let message =
        format!("{count} answers of the {role} in a row could not be taken; the last one: {problem}");
    Decision::fail_run(run, FailureKind::Plan, &message)
}

/// All roles of the round have spoken.
fn decide_round_end(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let round = current_round(run);
    let mut asks = format!("round {round}: what follows");
    if let Some((ReviewVerdict::Finish, _)) = &run.engine_state.last_verdict {
        match role_conversation::require_final_checks(run, pins)? {
            // The orchestrator reads the message and decides again.
            FinalCheckOutcome::Passed if role_conversation::has_unread_user_message(run) => {
                return Ok(role_conversation::record_facts(run, vec![user_message_fact()]));
            }
            FinalCheckOutcome::Passed => return Ok(succeed_with_last_reply(run)),
            FinalCheckOutcome::Failed => asks = format!("round {round}: the final checks failed"),
        }
    }
    let held = open_objection(run);
    // A message after the last round grants one more. That is recorded before the orchestrator reads it.
    let is_heard = matches!(run.engine_state.last_verdict, Some((ReviewVerdict::Continue, _)));
    let is_last = run.engine_state.counted_corrections() + 1 >= ROUNDS_MAX && !is_heard;
    if is_last && role_conversation::has_unread_user_message(run) {
        return Ok(role_conversation::record_facts(run, vec![user_message_fact()]));
    }
    if let Some(why) = held.as_ref().filter(|_| is_last) {
        return Ok(fail_out_of_rounds(run, pins, why));
    }
    let order = require_order(
        run,
        pins,
        asks,
        &OrchestratorRequest::Decision { objection: held, role_order: role_order(pins) },
    )?;
    let reason = order.reply.reason.clone();
    let fact = EngineFact::Answered { role: ORCHESTRATOR.to_owned(), content: order.content };
    match order.reply.action {
        OrchestratorAction::Finish => Ok(role_conversation::record_facts(
            run,
            vec![fact, EngineFact::Judged { verdict: ReviewVerdict::Finish, reason }],
        )),
        OrchestratorAction::Again | OrchestratorAction::HandOver | OrchestratorAction::Ask if is_last => {
            Ok(fail_out_of_rounds(run, pins, &reason))
        }
        OrchestratorAction::Again | OrchestratorAction::HandOver | OrchestratorAction::Ask => {
            let steps = round_steps(pins, restart_role(run, pins, order.reply.from.as_deref()));
            let judged = EngineFact::Judged { verdict: ReviewVerdict::Retry, reason: reason.clone() };
            Ok(role_conversation::record_facts(
                run,
                vec![fact, judged, EngineFact::Correcting { reason }, EngineFact::Planned { steps }],
            ))
        }
    }
}

/// Returns the fact for a message from a person: the orchestrator reads it, and may start another round for it.
fn user_message_fact() -> EngineFact {
    EngineFact::Judged {
        verdict: ReviewVerdict::Continue,
        reason: role_conversation::USER_MESSAGE_REASON.to_owned(),
    }
}

/// Returns why the work cannot be finished now.
fn open_objection(run: &RunState) -> Option<String> {
    if run.engine_state.checks_passed == Some(false) {
        return Some(format!("the checks fail: {}", run.failed_checks.join("; ")));
    }
    let failed = run.engine_state.finished_steps.iter().find(|end| !end.success)?;
    let role = run.engine_state.plan.as_ref()?.get(failed.step as usize)?;
    Some(format!("the {} sent it back: {}", role.text, role_conversation::inline_text(&failed.output)))
}

fn fail_out_of_rounds(run: &RunState, pins: &RunStarted, why: &str) -> Decision {
    if run.engine_state.checks_passed == Some(false) {
        return Decision::fail_run(run, FailureKind::Gates, &verification::still_failing_message(run, pins));
    }
    Decision::fail_run(
        run,
        FailureKind::Plan,
        &format!("the task is not done after {} rounds: {why}", current_round(run)),
    )
}

/// Ends the run as succeeded, with the orchestrator's last reply as its summary.
fn succeed_with_last_reply(run: &RunState) -> Decision {
    let last = run.engine_state.answers.get(ORCHESTRATOR);
    let said = |field: &str| last.and_then(|last| last.get(field)).and_then(Value::as_str);
    let summary = said("summary").or_else(|| said("reason")).map(Content::from);
    Decision { phase: RunPhase::Verifying, act: Action::End { result: RunOutcome::Succeeded, summary } }
}

/// What the orchestrator is asked for.
enum OrchestratorRequest<'a> {
    /// A brief for this role.
    Brief(&'a str),
    /// Whether the work is done.
    Decision {
        /// Why it is not, if known.
        objection: Option<String>,
        /// The roles at which a round can begin.
        role_order: Vec<&'a str>,
    },
}

/// The orchestrator's reply.
#[derive(Debug, Clone, Deserialize)]
struct OrchestratorReply {
    action: OrchestratorAction,
    #[serde(default)]
    brief: String,
    #[serde(default)]
    results: Vec<String>,
    #[serde(default)]
    reason: String,
    from: Option<String>,
    #[serde(default)]
    question: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrchestratorAction {
    HandOver,
    Finish,
    Again,
    Ask,
}

/// An order, with the original reply.
struct OrchestratorOrder {
    reply: OrchestratorReply,
    content: Value,
}

/// Returns the orchestrator's order; a question in it goes to a person.
///
/// # Errors
/// The decision, until the reply is what was asked for.
fn require_order(
    run: &RunState,
    pins: &RunStarted,
    about: String,
    wants: &OrchestratorRequest<'_>,
) -> Result<OrchestratorOrder, Decision> {
    if !role_conversation::is_active_role(run, ORCHESTRATOR, &about) {
        let opening = orchestrator_opening(run, pins, wants);
        return Err(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: ORCHESTRATOR.to_owned(), about, opening },
        ));
    }
    let take = |content: Value| {
        let said: OrchestratorReply =
            serde_json::from_value(content.clone()).map_err(|error| error.to_string())?;
        check_order(run, &said, wants).map(|()| OrchestratorOrder { reply: said, content })
    };
    let order = role_conversation::require_structured_reply(run, pins, "order", take, |problem| {
        fail_invalid_replies(run, ORCHESTRATOR, problem)
    })?;
    if order.reply.action == OrchestratorAction::Ask {
        return Err(Decision::block_run(run, order.reply.question.into(), BlockedReason::Model));
    }
    Ok(order)
}

/// Checks whether an order is what was asked for.
fn check_order(
    run: &RunState,
    said: &OrchestratorReply,
    wants: &OrchestratorRequest<'_>,
) -> Result<(), String> {
    let needs = |field: &str, text: &str| match text.trim() {
        "" => Err(format!("`/{field}`: it is missing")),
        _ => Ok(()),
    };
    match (said.action, wants) {
        (OrchestratorAction::Ask, _) => needs("question", &said.question),
        (OrchestratorAction::HandOver, OrchestratorRequest::Brief(_)) => {
            needs("brief", &said.brief)?;
            let known = result_names(run);
            let is_known = |name: &String| known.iter().any(|known| known == name);
            match said.results.iter().position(|name| !is_known(name)) {
                None => Ok(()),
                Some(nth) => {
                    Err(format!("`/results/{nth}`: there is no such result; there are {}", known.join(", ")))
                }
            }
        }
        (OrchestratorAction::Finish | OrchestratorAction::Again, OrchestratorRequest::Brief(role)) => {
            Err(format!("`/action`: it must be \"hand_over\", with the brief for the {role}"))
        }
        (OrchestratorAction::Finish, OrchestratorRequest::Decision { objection: Some(why), .. }) => {
            Err(format!("`/action`: it cannot be \"finish\": {why}"))
        }
        (OrchestratorAction::Finish, OrchestratorRequest::Decision { objection: None, .. }) => Ok(()),
        (OrchestratorAction::Again, OrchestratorRequest::Decision { role_order: sequence, .. }) => {
            needs("reason", &said.reason)?;
            match said.from.as_deref() {
                Some(from) if !sequence.contains(&from) => {
                    Err(format!("`/from`: it must be one of {}", sequence.join(", ")))
                }
                Some(_) | None => Ok(()),
            }
        }
        (OrchestratorAction::HandOver, OrchestratorRequest::Decision { .. }) => {
            Err("`/action`: all roles have spoken; it must be \"finish\" or \"again\"".to_owned())
        }
    }
}

/// Returns the names of results that can be handed over.
fn result_names(run: &RunState) -> Vec<String> {
    let answers = run.engine_state.answers.keys().filter(|role| *role != ORCHESTRATOR).cloned();
    ["task", "changes", "checks"].into_iter().map(str::to_owned).chain(answers).collect()
}

/// Returns a role's opening: only the brief and the results that the orchestrator names.
fn role_opening(run: &RunState, pins: &RunStarted, order: &OrchestratorOrder) -> Vec<Content> {
    let mut opening: Vec<Content> = vec![format!("Your brief:\n{}", order.reply.brief.trim()).into()];
    for name in &order.reply.results {
        match (name.as_str(), run.engine_state.answers.get(name)) {
            ("task", _) => {
                opening.push("The task, in its own words:".into());
                opening.push(role_conversation::task_content(pins));
            }
            ("changes", _) => opening.push(role_conversation::format_changed_files(run)),
            ("checks", _) => opening.extend(format_failed_checks(run)),
            (role, Some(answer)) => {
                opening.push(format!("What the {role} answered:\n{}", truncate_answer(answer)).into())
            }
            (_, None) => {}
        }
    }
    opening
}

fn format_failed_checks(run: &RunState) -> Vec<Content> {
    if run.engine_state.failed_checks.is_empty() {
        return vec!["No check that was run failed.".into()];
    }
    let said = |check: &docket_schema::run::FailedCheck| {
        [format!("The check `{}` said:", check.name).into(), check.content.clone()]
    };
    run.engine_state.failed_checks.iter().flat_map(said).collect()
}

fn orchestrator_opening(run: &RunState, pins: &RunStarted, wants: &OrchestratorRequest<'_>) -> Vec<Content> {
    let sequence = role_order(pins);
    let mut opening = vec![
        role_conversation::task_content(pins),
        format!(
            "Round {} of {}. The order of the roles: {}.",
            current_round(run),
            rounds_allowed(run),
            sequence.join(" → ")
        )
        .into(),
    ];
    let steps = run.engine_state.plan.as_deref().unwrap_or_default();
    for role in &sequence {
        let Some(answer) = run.engine_state.answers.get(*role) else { continue };
        let at = steps.iter().position(|step| step.text == *role);
        let end = at.and_then(|at| run.engine_state.finished_steps.get(at));
        let when = match end {
            Some(end) if end.success => "in this round".to_owned(),
            Some(end) => {
                format!(
                    "in this round, and it is held against the work ({})",
                    role_conversation::inline_text(&end.output)
                )
            }
            None => "in an earlier round".to_owned(),
        };
        opening.push(format!("What the {role} answered {when}:\n{}", truncate_answer(answer)).into());
    }
    opening.push(role_conversation::format_changed_files(run));
    if !run.engine_state.failed_checks.is_empty() {
        opening.extend(format_failed_checks(run));
    }
    opening.push(match wants {
        OrchestratorRequest::Brief(role) => {
            let results = result_names(run).join(", ");
            let round = current_round(run);
            format!("Brief the {role} now, for round {round}: `hand_over`. It can be handed: {results}.")
                .into()
        }
        OrchestratorRequest::Decision { objection: Some(why), .. } => {
            format!("All roles have spoken. It cannot be finished: {why}. Have another round: `again`.")
                .into()
        }
        OrchestratorRequest::Decision { objection: None, .. } => {
            "All roles have spoken, and nothing is held against the work. Decide: `finish` or `again`.".into()
        }
    });
    opening
}

/// Renders a reply for other roles.
fn truncate_answer(answer: &Value) -> String {
    let text = match answer {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut short: String = text.chars().take(ANSWER_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
