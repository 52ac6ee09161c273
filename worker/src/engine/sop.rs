//! Engine `sop`, version 1: a fixed procedure in phases, each with what a model may do in it, and four artifacts (E1–E7).
//!
//! understand → plan → implement → verify → review → complete. The runtime looks at the workspace; a planner reads and
//! hands in a PlanCard; a builder makes the change and says why; the runtime lists what changed (DiffCard) and runs the
//! checks (TestReport); a reviewer who knows nothing of the builder's thoughts hands in a ReviewReport, of what is not
//! trivial; `complete_task` ends the run, and nothing else ends it well. Between phases stand quality gates; one that
//! fails sends the work back to the phase that can mend it, so many times and no more.
//!
//! A conversation for each mode (plan, build, review), not one for all: whoever builds is not led by everything that was
//! read on the way to the plan, and whoever reviews sees the task, the plan and the change, and not the reasons that the
//! builder talked itself into. What has to be known goes over in artifacts, which people read as well. Within a mode
//! the conversation goes on: failed checks come back to the builder who knows what it did.

mod cards;
mod limits;
mod mode;
mod openings;
mod words;

use docket_schema::{
    artifact::{DIFF_CARD, DiffCard, PLAN_CARD, PlanCard, REVIEW_REPORT, ReviewReport, TEST_REPORT},
    content::Content,
    run::{
        BlockedWhy, Done, EngineRef, Fact, FailureKind, GateVerdict, ModelFailed, Phase, PlanStep,
        RunOutcome, RunStarted, RunState, StepKind, ToolStatus,
    },
    tool::ToolSet,
};
use serde_json::{Value, json};

use self::{
    cards::{artifact, kept},
    limits::{is_near, near_limit, nearly_used_up},
    mode::{BUILDER, PLANNER, REVIEWER, SopPhase},
};
use super::{
    core::{
        decision::{Act, Begins, Decision},
        definition::{Engine, RoleDef},
        limits::turns_allowed,
    },
    roles::seat::{self, Heard, INVALID_MAX},
    rules::{blockers::blocked_question, budget, next_request::ask_again, permission, verification},
};
use crate::tools;

/// The gate after `implement`: something is there that can show whether the change works.
const TESTS_EXIST: &str = "tests_exist";
/// The gate after `verify`: it works, as far as the project's checks tell.
const TESTS_PASS: &str = "tests_pass";
/// The gate after `review`: what may go wrong was told.
const RISK_REPORTED: &str = "risk_reported";

/// Answers in a row without a tool, after which nothing is to be expected any more.
const IDLE_MAX: u32 = 3;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sop;

impl Engine for Sop {
    fn id(&self) -> EngineRef {
        EngineRef { name: mode::ENGINE.to_owned(), version: 1 }
    }

    fn roles(&self) -> Vec<RoleDef> {
        let role = |name, words, tools: Vec<&str>| RoleDef {
            tools: tools.into_iter().map(str::to_owned).collect(),
            ..RoleDef::of(name, words)
        };
        vec![
            role(
                PLANNER,
                words::PLANNER,
                [&mode::READS[..], &[tools::PLAN_CARD, tools::COMPLETE_TASK, tools::DELEGATE]].concat(),
            ),
            role(
                BUILDER,
                words::BUILDER,
                [
                    &mode::READS[..],
                    &mode::BUILDS,
                    &[tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK, tools::DELEGATE],
                ]
                .concat(),
            ),
            role(
                REVIEWER,
                words::REVIEWER,
                [&mode::READS[..], &[tools::REVIEW_REPORT, tools::COMPLETE_TASK, tools::DELEGATE]].concat(),
            ),
        ]
    }

    // Files are made or changed line by line: no tool of these writes a whole one anew.
    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Core)
    }

    // A call that goes on to the very end would leave no time to say how things stand (E6).
    fn time_for_calls(&self, run: &RunState, budget_ms: u64) -> u64 {
        if run.work.last_turn.is_some() || SopPhase::of(run) == Some(SopPhase::Complete) {
            return budget_ms;
        }
        limits::before_last_turn(budget_ms)
    }

    fn allows_now(&self, run: &RunState, tool: &str) -> bool {
        SopPhase::of(run).is_some_and(|at| at.allows(tool))
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// What is next; either way round a decision.
fn next(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let time_max_ms = Sop.time_for_calls(run, pins.settings.time_max_ms);
    seat::ready(run, pins, time_max_ms).map_err(|decision| mode::gated(run, decision))?;
    if let Some(failure) = &run.last_failure {
        failed(run, pins, failure)?;
    }
    if let Some(decision) = seat::blind(run) {
        return Ok(decision);
    }
    match SopPhase::of(run) {
        None | Some(SopPhase::Understand) => understood(run, pins),
        Some(SopPhase::Plan) => planned(run, pins),
        Some(SopPhase::Implement) => implemented(run, pins),
        Some(SopPhase::Verify) => verified(run, pins),
        Some(SopPhase::Review) => reviewed(run, pins),
        Some(SopPhase::Complete) => completed(run, pins),
    }
}

/// What follows a model's failure: where what is left of the time is the last turn's, that turn; or another attempt.
///
/// # Errors
/// The decision; none where it failed before the last turn, which is due.
fn failed(run: &RunState, pins: &RunStarted, failure: &ModelFailed) -> Result<(), Decision> {
    let attempt = || Err(ask_again(run, pins, failure));
    match (&run.work.last_turn, SopPhase::of(run)) {
        (Some((turn, _)), _) if run.turn < *turn => Ok(()),
        (Some(_), _) | (None, Some(SopPhase::Complete)) => attempt(),
        (None, phase) => {
            let spent = run.asking.spent(&run.totals).worked_ms;
            let after = spent.saturating_add(failure.retry_in_ms.unwrap_or(0));
            if failure.needs_person || !is_near(pins.settings.time_max_ms, after, 0) {
                return attempt();
            }
            Err(last_turn(run, phase.unwrap_or(SopPhase::Understand), &nearly_used_up("time")))
        }
    }
}

/// The runtime looks at the workspace, then the planner begins.
fn understood(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let Some(survey) = own(run, tools::SURVEY) else {
        let begins = run.work.phase.is_none().then(|| phase(SopPhase::Understand));
        let requires: Vec<String> = pins.requires.iter().map(ToString::to_string).collect();
        let call = (tools::SURVEY, json!({ "requires": requires }));
        return Ok(seat::call(run, begins.into_iter().collect(), vec![call]));
    };
    if survey.status != ToolStatus::Ok {
        let why = super::rules::escalation::cut(seat::words(&survey.content));
        return Ok(Decision::fail(run, FailureKind::Environment, &format!("the preflight failed: {why}")));
    }
    let opening = openings::planner(run, pins, &survey.content);
    let begins = Begins { role: PLANNER.to_owned(), about: "the plan".to_owned(), opening };
    Ok(seat::begin(run, vec![phase(SopPhase::Plan)], begins))
}

/// The planner's part.
fn planned(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    match handed_in(run, tools::PLAN_CARD, tools::plan_card) {
        Some(Ok(card)) => {
            let steps = card.steps.iter().map(|text| PlanStep { text: text.clone(), kind: StepKind::Free });
            let facts = vec![
                Fact::Planned { steps: steps.collect() },
                artifact(PLAN_CARD, &card),
                phase(SopPhase::Implement),
            ];
            let opening = openings::builder(pins, &card);
            let begins = Begins { role: BUILDER.to_owned(), about: "the change".to_owned(), opening };
            Ok(seat::begin(run, facts, begins))
        }
        Some(Err(problem)) => Ok(invalid(run, PLAN_CARD, problem, FailureKind::Plan)),
        None => asked(run, pins),
    }
}

/// The builder's part, until it says that the change is made; then the gate `tests_exist`.
fn implemented(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let corrections_max = pins.settings.corrections_max;
    if run.corrections_counted() > corrections_max {
        return Ok(Decision::fail(run, FailureKind::Gates, &verification::still_failing(run, pins)));
    }
    if let Some(message) = failed_too_often(run, TESTS_EXIST, corrections_max + 1) {
        return Ok(Decision::fail(run, FailureKind::Gates, &message));
    }
    if let Some(shown) = own(run, tools::SHOW_CHANGES) {
        let card = cards::diff_card(run, shown);
        let (verdict, reason) = cards::tests_exist(run, pins, &card);
        let mut facts = vec![artifact(DIFF_CARD, &card), gate(TESTS_EXIST, verdict, reason)];
        match verdict {
            GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => {
                facts.push(phase(SopPhase::Verify));
            }
            GateVerdict::Failed => {}
        }
        return Ok(seat::conclude(run, facts));
    }
    match handed_in(run, tools::DIFF_CARD, tools::implemented) {
        Some(Ok(said)) => {
            let content =
                json!({ "rationale": said.rationale, "not_verified_because": said.not_verified_because });
            let answered = Fact::Answered { role: BUILDER.to_owned(), content };
            Ok(seat::call(run, vec![answered], vec![seat::show_changes(run)]))
        }
        Some(Err(problem)) => Ok(invalid(run, DIFF_CARD, problem, FailureKind::Gates)),
        None => asked(run, pins),
    }
}

/// The checks run, and say what the TestReport says; then the gate `tests_pass`.
fn verified(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let checks = verification::checks(run, pins);
    if run.work.checked.is_none() && !checks.is_empty() {
        return Ok(verification::check(run, pins, checks));
    }
    let report = cards::test_report(run, pins);
    let (verdict, reason) = cards::tests_pass(run, &report);
    let report = artifact(TEST_REPORT, &report);
    match verdict {
        GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => {
            let facts = vec![report, gate(TESTS_PASS, verdict, reason), phase(SopPhase::Review)];
            // Once more: what a check mended by itself is part of the change.
            Ok(seat::call(run, facts, vec![seat::show_changes(run)]))
        }
        GateVerdict::Failed => {
            // What failed stands in the builder's conversation; the gate's reason follows it.
            let facts = vec![report, phase(SopPhase::Implement), gate(TESTS_PASS, verdict, reason)];
            Ok(seat::conclude(run, facts))
        }
    }
}

/// The reviewer's part, or of what is trivial the builder's own look at it; then the gate `risk_reported`.
fn reviewed(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    if let Some(message) = failed_too_often(run, RISK_REPORTED, INVALID_MAX) {
        return Ok(Decision::fail(run, FailureKind::Gates, &message));
    }
    if let Some(shown) = own(run, tools::SHOW_CHANGES) {
        let card = cards::diff_card(run, shown);
        if kept::<DiffCard>(run, DIFF_CARD).as_ref() != Some(&card) {
            return Ok(seat::conclude(run, vec![artifact(DIFF_CARD, &card)]));
        }
        // What policy hides is no part of the card, and small for nobody.
        let is_trivial = cards::is_trivial(&card, pins) && permission::unseen(run).is_empty();
        if !is_trivial && run.work.role.as_deref() != Some(REVIEWER) {
            let nth = run.work.roles_begun.get(REVIEWER).map_or(1, |begun| begun + 1);
            let opening = openings::reviewer(run, pins, &card, &shown.content);
            let begins = Begins { role: REVIEWER.to_owned(), about: format!("review {nth}"), opening };
            return Ok(seat::begin(run, Vec::new(), begins));
        }
    }
    match handed_in(run, tools::REVIEW_REPORT, tools::review_report) {
        Some(Ok(report)) => Ok(reported(run, pins, &report)),
        Some(Err(problem)) => {
            Ok(seat::conclude(run, vec![gate(RISK_REPORTED, GateVerdict::Failed, problem)]))
        }
        None if matches!(seat::heard(run, pins)?, Heard::Words(_)) && !is_blocked(run) => {
            let reason = "no ReviewReport was handed in: words do not count".to_owned();
            Ok(seat::conclude(run, vec![gate(RISK_REPORTED, GateVerdict::Failed, reason)]))
        }
        None => asked(run, pins),
    }
}

/// A ReviewReport is there: on to the end, or back to the builder.
fn reported(run: &RunState, pins: &RunStarted, report: &ReviewReport) -> Decision {
    let told = match report.risks.len() {
        1 => "1 risk is told".to_owned(),
        many => format!("{many} risks are told"),
    };
    let mut facts = vec![artifact(REVIEW_REPORT, report), gate(RISK_REPORTED, GateVerdict::Passed, told)];
    let Some(first) = report.must_change.first() else {
        facts.push(phase(SopPhase::Complete));
        return seat::conclude(run, facts);
    };
    if run.work.corrections_counted() >= pins.settings.corrections_max && !seat::is_spoken_to(run) {
        let message = format!(
            "after {} rounds of correction the review still wants a change: {}",
            run.work.corrections,
            super::rules::escalation::cut(first)
        );
        return Decision::fail(run, FailureKind::Gates, &message);
    }
    let reason = format!("the review wants a change: {}", super::rules::escalation::cut(first));
    facts.extend([Fact::Correcting { reason }, phase(SopPhase::Implement)]);
    if run.work.role.as_deref() == Some(BUILDER) {
        return seat::conclude(run, facts);
    }
    let about = format!("the change, round {}", run.work.corrections + 2);
    let opening = openings::rework(run, pins, report);
    seat::begin(run, facts, Begins { role: BUILDER.to_owned(), about, opening })
}

/// The end.
fn completed(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let Some((turn, reason)) = &run.work.last_turn else {
        if seat::is_spoken_to(run)
            && let Some(card) = kept::<PlanCard>(run, PLAN_CARD)
        {
            return Ok(spoken_to(run, pins, &card));
        }
        return match handed_in(run, tools::COMPLETE_TASK, tools::completion) {
            Some(Ok(summary)) => Ok(end(RunOutcome::Succeeded, summary.into())),
            Some(Err(problem)) => Ok(invalid(run, tools::COMPLETE_TASK, problem, FailureKind::Gates)),
            None => asked(run, pins),
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
    if let Some(shown) = own(run, tools::SHOW_CHANGES) {
        let card = cards::diff_card(run, shown);
        if kept::<DiffCard>(run, DIFF_CARD).as_ref() != Some(&card) {
            return Ok(seat::conclude(run, vec![artifact(DIFF_CARD, &card)]));
        }
        let message = format!("{reason}; {kept_work}");
        return Ok(end(RunOutcome::Failed { why, message }, card.rationale.into()));
    }
    match handed_in(run, tools::COMPLETE_TASK, tools::completion) {
        Some(Ok(summary)) => {
            let answered =
                Fact::Answered { role: BUILDER.to_owned(), content: json!({ "rationale": summary }) };
            Ok(seat::call(run, vec![answered], vec![seat::show_changes(run)]))
        }
        Some(Err(problem)) => {
            let message = format!(
                "{reason}, and its last turn called `complete_task` with what could not be taken: {}; {kept_work}",
                super::rules::escalation::cut(&problem)
            );
            Ok(Decision::fail(run, why, &message))
        }
        None if run.turn >= *turn => {
            let message = format!("{reason}, and its last turn did not call `complete_task`; {kept_work}");
            Ok(Decision::fail(run, why, &message))
        }
        None => asked(run, pins),
    }
}

/// A person speaks once all is done: the builder hears it, and what it changes goes the same way again.
fn spoken_to(run: &RunState, pins: &RunStarted, card: &PlanCard) -> Decision {
    let facts = vec![Fact::Correcting { reason: seat::SPOKEN.to_owned() }, phase(SopPhase::Implement)];
    let about = format!("the change, round {}", run.work.corrections + 2);
    let mut opening = openings::builder(pins, card);
    opening
        .push("This was done, and reviewed. Now a person has something to say, which stands below.".into());
    seat::begin(run, facts, Begins { role: BUILDER.to_owned(), about, opening })
}

/// Asks the role in hand to go on, unless a limit is near: then one turn is left.
fn asked(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let at = SopPhase::of(run).unwrap_or(SopPhase::Understand);
    let told = match seat::heard(run, pins)? {
        // What was said before says nothing of it, whatever that was.
        _ if at == SopPhase::Complete && run.work.last_turn.is_some() => mode::words(run, at),
        Heard::Words(_) => {
            if let Some(question) = blocked_question(run.last_text.as_ref(), true) {
                return Ok(Decision::block(run, question, BlockedWhy::Model));
            }
            if run.idle_counted() >= IDLE_MAX {
                let message = format!(
                    "{IDLE_MAX} answers in a row called no tool, in phase `{at}`: a run of engine `sop` ends by \
                     `complete_task` alone, and its phase by `{}`",
                    at.ends_by()
                );
                return Ok(Decision::fail(run, FailureKind::EmptyAnswers, &message));
            }
            Some(mode::idle_words(at))
        }
        Heard::Silent(Some(_)) if run.empty_answers > 0 => Some(mode::idle_words(at)),
        Heard::Silent(Some(nudge)) => Some(nudge.to_owned()),
        Heard::Silent(None) => mode::words(run, at),
    };
    match near_limit(run, pins).filter(|_| at != SopPhase::Complete) {
        Some(which) => Ok(last_turn(run, at, &which)),
        None => Ok(seat::ask(run, pins, told)),
    }
}

/// One turn is left, since `which` limit is near.
fn last_turn(run: &RunState, at: SopPhase, which: &str) -> Decision {
    let reason = format!("{which} in phase `{at}`");
    let last = Fact::LastTurn { turn: run.turn.next(), reason };
    seat::conclude(run, vec![last, phase(SopPhase::Complete)])
}

fn is_blocked(run: &RunState) -> bool {
    blocked_question(run.last_text.as_ref(), true).is_some()
}

/// What was handed in by the last answer: what it says, or what is wrong with it.
fn handed_in<T>(
    run: &RunState,
    tool: &str,
    read: impl Fn(&Value) -> Result<T, String>,
) -> Option<Result<T, String>> {
    let is_meant = |done: &&Done| !done.tool.call.is_own() && done.tool.name == tool;
    let done = run.work.done.iter().rev().find(is_meant)?;
    match done.status {
        ToolStatus::Ok => Some(read(&done.tool.args)),
        ToolStatus::Error => Some(Err(seat::words(&done.content).to_owned())),
        // It was not its time, which its result says.
        ToolStatus::Refused | ToolStatus::Unknown => None,
    }
}

/// The runtime's own call of this tool, if nothing came after it.
fn own<'a>(run: &'a RunState, tool: &str) -> Option<&'a Done> {
    run.work.done.last().filter(|done| done.tool.call.is_own() && done.tool.name == tool)
}

/// What cannot be taken is handed in again, unless it was too often.
fn invalid(run: &RunState, what: &str, problem: String, why: FailureKind) -> Decision {
    if run.work.invalid_counted() + 1 >= INVALID_MAX && !seat::is_spoken_to(run) {
        let message =
            format!("{INVALID_MAX} times in a row no {what} could be taken; the last one: {problem}");
        return Decision::fail(run, why, &message);
    }
    seat::conclude(run, vec![Fact::Invalid { what: what.to_owned(), problem }])
}

fn failed_too_often(run: &RunState, gate: &str, max: u32) -> Option<String> {
    let stands = run.work.quality.get(gate).filter(|stands| stands.failed_counted() >= max)?;
    Some(format!(
        "the quality gate `{gate}` failed {} times; the last time: {}",
        stands.failed, stands.reason
    ))
}

fn end(result: RunOutcome, summary: Content) -> Decision {
    Decision { phase: Phase::Verifying, act: Act::End { result, summary: Some(summary) } }
}

fn phase(phase: SopPhase) -> Fact {
    Fact::PhaseBegan { phase: phase.as_str().to_owned() }
}

fn gate(gate: &str, verdict: GateVerdict, reason: String) -> Fact {
    Fact::QualityGate { gate: gate.to_owned(), verdict, reason }
}
