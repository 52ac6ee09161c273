//! Engine `team`, version 1: orchestrator, architect, coder, tester, reviewer (D10).
//!
//! Rules beyond those that all engines with roles share (`seat`): all passes through the orchestrator, and there is one
//! sequence, which is the order of the pinned roles. Before each role the orchestrator is asked for its brief and for the
//! results that it is to see; the role knows nothing else. Each answer is JSON by its role's schema, and is recorded. A
//! tester's word that tests passed is not taken unless a command of its own ended, and then the runtime runs the final
//! checks itself: what they say is the step's end. Where there are none but linters, its own last `run_tests` must have
//! passed. After the last role the orchestrator finishes or has another round,
//! three at most, and one more for what a person says after the last; what a role sent back, or a check that fails, it
//! cannot finish. The final checks have the last word.

pub mod registry;

use docket_schema::{
    content::Content,
    run::{
        BlockedWhy, EngineRef, Fact, FailureKind, Judgement, Phase, PlanStep, RunOutcome, RunStarted,
        RunState, StepKind,
    },
    task::RoleAsked,
    tool::ToolSet,
};
use serde::Deserialize;
use serde_json::Value;

use self::registry::{ORCHESTRATOR, REVIEWER, TESTER};
use super::{
    core::{
        decision::{Act, Begins, Decision},
        definition::{Engine, RoleDef, RoleError},
    },
    roles::seat::{self, Checked},
    rules::{budget, escalation, verification},
};

/// Rounds of all roles, or of those from one on.
const ROUNDS_MAX: u32 = 3;
/// Characters of an answer that is handed over: a role's answer is no file.
const ANSWER_CHARS_MAX: usize = 6000;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Team;

impl Engine for Team {
    fn id(&self) -> EngineRef {
        EngineRef { name: "team".to_owned(), version: 1 }
    }

    fn roles(&self) -> Vec<RoleDef> {
        registry::sequence(&[]).expect("the built-in registry is tested")
    }

    fn roles_asked(&self, asked: &[RoleAsked]) -> Result<Vec<RoleDef>, RoleError> {
        registry::sequence(asked)
    }

    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Wide)
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// What is next; either way round a decision.
fn next(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    seat::first(run, pins)?;
    let Some(steps) = &run.work.plan else {
        return Ok(seat::conclude(run, vec![Fact::Planned { steps: steps_from(pins, None) }]));
    };
    match steps.get(run.work.ended.len()) {
        Some(step) => worked(run, pins, &step.text),
        None => decided(run, pins),
    }
}

/// The roles of a round, as its steps.
fn steps_from(pins: &RunStarted, from: Option<&str>) -> Vec<PlanStep> {
    let all = sequence(pins);
    let first = from.and_then(|from| all.iter().position(|role| *role == from)).unwrap_or(0);
    all[first..].iter().map(|role| PlanStep { text: (*role).to_owned(), kind: StepKind::Free }).collect()
}

/// Where another round begins: at the role that is asked for, unless one before it sent the work back. What that found is
/// for it to find mended.
fn begins_with<'a>(run: &'a RunState, pins: &'a RunStarted, asked: Option<&'a str>) -> Option<&'a str> {
    let failed = run.work.ended.iter().find(|end| !end.success);
    let failed = failed.and_then(|end| run.work.plan.as_ref()?.get(end.step as usize));
    let order = sequence(pins);
    let place = |name: &str| order.iter().position(|role| *role == name);
    let first = [asked, failed.map(|step| step.text.as_str())].into_iter().flatten();
    asked.and_then(|_| first.min_by_key(|name| place(name).unwrap_or(0)))
}

/// The roles that speak in a round, in their order.
fn sequence(pins: &RunStarted) -> Vec<&str> {
    pins.roles.iter().map(|role| role.name.as_str()).filter(|role| *role != ORCHESTRATOR).collect()
}

const fn round_of(run: &RunState) -> u32 {
    run.work.corrections + 1
}

/// How many rounds there are, those that a person's words are worth among them.
fn rounds(run: &RunState) -> u32 {
    let before = run.work.corrections - run.work.corrections_counted();
    round_of(run).max(before + ROUNDS_MAX)
}

/// A role's part of a round: the orchestrator's brief, then its own answer.
fn worked(run: &RunState, pins: &RunStarted, role: &str) -> Result<Decision, Decision> {
    let round = round_of(run);
    let about = format!("round {round}");
    if seat::is_at(run, role, &about) {
        return answered(run, pins, role);
    }
    let wants = Wants::Brief(role);
    let asks = format!("round {round}: a brief for the {role}");
    let order = ordered(run, pins, asks, &wants)?;
    let opening = handed(run, pins, &order);
    let facts = vec![Fact::Answered { role: ORCHESTRATOR.to_owned(), content: order.content }];
    Ok(seat::begin(run, facts, Begins { role: role.to_owned(), about, opening }))
}

/// What a role says, and what comes of it.
fn answered(run: &RunState, pins: &RunStarted, role: &str) -> Result<Decision, Decision> {
    let checking = format!("round {}: checks of what the {role} says", round_of(run));
    if run.work.phase.as_ref() == Some(&checking) {
        let (success, output) = match seat::checks(run, pins)? {
            Checked::Passed if !run.undecided.is_empty() => {
                let why = verification::unverified(run, pins).map(|why| why.reason).unwrap_or_default();
                (true, format!("says that tests passed, which is unverified: {why}"))
            }
            Checked::Passed if !verification::proves(run, pins) => {
                let told =
                    "tests passed, as `run_tests` says; there are no checks that the runtime could run";
                (true, told.to_owned())
            }
            Checked::Passed => (true, "tests passed, and so did the checks that the runtime ran".to_owned()),
            Checked::Failed => {
                let failing = run.failed_checks.join("; ");
                (false, format!("says that tests passed; the checks that the runtime ran fail: {failing}"))
            }
        };
        return Ok(ended(run, Vec::new(), (success, output)));
    }
    let proves = verification::proves(run, pins);
    let take = |content: Value| plausible(run, role, &content, proves).map(|()| content);
    let content =
        seat::answer(run, pins, &format!("answer of the {role}"), take, |problem| spent(run, role, problem))?;
    let fact = Fact::Answered { role: role.to_owned(), content: content.clone() };
    if role == TESTER && says(&content, "outcome", "passed") {
        return Ok(seat::conclude(run, vec![fact, Fact::PhaseBegan { phase: checking }]));
    }
    let success = match role {
        TESTER => !says(&content, "outcome", "failed"),
        REVIEWER => says(&content, "verdict", "approve"),
        // Whoever says that it is not done is believed.
        _ => content.get("done") != Some(&Value::Bool(false)),
    };
    let output =
        content.get("summary").and_then(Value::as_str).map_or_else(|| short(&content), escalation::cut);
    Ok(ended(run, vec![fact], (success, output)))
}

fn ended(run: &RunState, mut facts: Vec<Fact>, (success, output): (bool, String)) -> Decision {
    let step = u32::try_from(run.work.ended.len()).unwrap_or(u32::MAX);
    facts.push(Fact::StepEnded { step, success, output: output.into() });
    seat::conclude(run, facts)
}

fn says(content: &Value, field: &str, word: &str) -> bool {
    content.get(field).and_then(Value::as_str) == Some(word)
}

/// Whether an answer can be so, by what was seen of its role; what it says of tests is proven by checks later, where
/// there are any.
fn plausible(run: &RunState, role: &str, content: &Value, proves: bool) -> Result<(), String> {
    if role != TESTER || !says(content, "outcome", "passed") {
        return Ok(());
    }
    let so = "`/outcome`: it is \"passed\"";
    if run.work.commands_ended == 0 {
        return Err(format!("{so}, and you ran nothing: run the tests, or say \"none\""));
    }
    if !proves && !run.work.tests_passed {
        return Err(format!(
            "{so}, and nothing shows it: your last `run_tests` did not pass, or there was none after your last edit or command. \
             Run it; where it finds no tests, say \"none\" and what you looked at"
        ));
    }
    Ok(())
}

fn spent(run: &RunState, role: &str, problem: &str) -> Decision {
    let count = seat::INVALID_MAX;
    let message =
        format!("{count} answers of the {role} in a row could not be taken; the last one: {problem}");
    Decision::fail(run, FailureKind::Plan, &message)
}

/// All roles of the round have spoken.
fn decided(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let round = round_of(run);
    let mut asks = format!("round {round}: what follows");
    if let Some((Judgement::Finish, _)) = &run.work.judged {
        match seat::checks(run, pins)? {
            // It hears that, and decides anew.
            Checked::Passed if seat::is_spoken_to(run) => {
                return Ok(seat::conclude(run, vec![spoken()]));
            }
            Checked::Passed => return Ok(succeeded(run)),
            Checked::Failed => asks = format!("round {round}: the final checks failed"),
        }
    }
    let held = held(run);
    // What a person says after the last round is worth one more. It is recorded before the orchestrator reads it.
    let is_heard = matches!(run.work.judged, Some((Judgement::Continue, _)));
    let is_last = run.work.corrections_counted() + 1 >= ROUNDS_MAX && !is_heard;
    if is_last && seat::is_spoken_to(run) {
        return Ok(seat::conclude(run, vec![spoken()]));
    }
    if let Some(why) = held.as_ref().filter(|_| is_last) {
        return Ok(out_of_rounds(run, pins, why));
    }
    let order = ordered(run, pins, asks, &Wants::Decision { held, sequence: sequence(pins) })?;
    let reason = order.said.reason.clone();
    let fact = Fact::Answered { role: ORCHESTRATOR.to_owned(), content: order.content };
    match order.said.action {
        Action::Finish => {
            Ok(seat::conclude(run, vec![fact, Fact::Judged { verdict: Judgement::Finish, reason }]))
        }
        Action::Again | Action::HandOver | Action::Ask if is_last => Ok(out_of_rounds(run, pins, &reason)),
        Action::Again | Action::HandOver | Action::Ask => {
            let steps = steps_from(pins, begins_with(run, pins, order.said.from.as_deref()));
            let judged = Fact::Judged { verdict: Judgement::Retry, reason: reason.clone() };
            Ok(seat::conclude(run, vec![fact, judged, Fact::Correcting { reason }, Fact::Planned { steps }]))
        }
    }
}

/// A person has something to say: the orchestrator hears it, and may have another round for it.
fn spoken() -> Fact {
    Fact::Judged { verdict: Judgement::Continue, reason: seat::SPOKEN.to_owned() }
}

/// Why the work cannot be finished as it is.
fn held(run: &RunState) -> Option<String> {
    if run.work.checked == Some(false) {
        return Some(format!("the checks fail: {}", run.failed_checks.join("; ")));
    }
    let failed = run.work.ended.iter().find(|end| !end.success)?;
    let role = run.work.plan.as_ref()?.get(failed.step as usize)?;
    Some(format!("the {} sent it back: {}", role.text, seat::words(&failed.output)))
}

fn out_of_rounds(run: &RunState, pins: &RunStarted, why: &str) -> Decision {
    if run.work.checked == Some(false) {
        return Decision::fail(run, FailureKind::Gates, &verification::still_failing(run, pins));
    }
    Decision::fail(
        run,
        FailureKind::Plan,
        &format!("the task is not done after {} rounds: {why}", round_of(run)),
    )
}

/// Ends the run well, with the orchestrator's last words.
fn succeeded(run: &RunState) -> Decision {
    let last = run.work.answers.get(ORCHESTRATOR);
    let said = |field: &str| last.and_then(|last| last.get(field)).and_then(Value::as_str);
    let summary = said("summary").or_else(|| said("reason")).map(Content::from);
    Decision { phase: Phase::Verifying, act: Act::End { result: RunOutcome::Succeeded, summary } }
}

/// What is wanted of the orchestrator.
enum Wants<'a> {
    /// A brief for this role.
    Brief(&'a str),
    /// Whether it is done.
    Decision {
        /// Why it is not, where that is known.
        held: Option<String>,
        /// The roles that a round can begin with.
        sequence: Vec<&'a str>,
    },
}

/// The orchestrator's answer.
#[derive(Debug, Clone, Deserialize)]
struct Said {
    action: Action,
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
enum Action {
    HandOver,
    Finish,
    Again,
    Ask,
}

/// An order, with the answer as it was.
struct Order {
    said: Said,
    content: Value,
}

/// The orchestrator's part; a question of its own is a person's.
///
/// # Errors
/// The decision, until it has answered as it is wanted to.
fn ordered(run: &RunState, pins: &RunStarted, about: String, wants: &Wants<'_>) -> Result<Order, Decision> {
    if !seat::is_at(run, ORCHESTRATOR, &about) {
        let opening = for_orchestrator(run, pins, wants);
        return Err(seat::begin(run, Vec::new(), Begins { role: ORCHESTRATOR.to_owned(), about, opening }));
    }
    let take = |content: Value| {
        let said: Said = serde_json::from_value(content.clone()).map_err(|error| error.to_string())?;
        fits(run, &said, wants).map(|()| Order { said, content })
    };
    let order = seat::answer(run, pins, "order", take, |problem| spent(run, ORCHESTRATOR, problem))?;
    if order.said.action == Action::Ask {
        return Err(Decision::block(run, order.said.question.into(), BlockedWhy::Model));
    }
    Ok(order)
}

/// Whether an order is what is wanted now.
fn fits(run: &RunState, said: &Said, wants: &Wants<'_>) -> Result<(), String> {
    let needs = |field: &str, text: &str| match text.trim() {
        "" => Err(format!("`/{field}`: it is missing")),
        _ => Ok(()),
    };
    match (said.action, wants) {
        (Action::Ask, _) => needs("question", &said.question),
        (Action::HandOver, Wants::Brief(_)) => {
            needs("brief", &said.brief)?;
            let known = results(run);
            let is_known = |name: &String| known.iter().any(|known| known == name);
            match said.results.iter().position(|name| !is_known(name)) {
                None => Ok(()),
                Some(nth) => {
                    Err(format!("`/results/{nth}`: there is no such result; there are {}", known.join(", ")))
                }
            }
        }
        (Action::Finish | Action::Again, Wants::Brief(role)) => {
            Err(format!("`/action`: it must be \"hand_over\", with the brief for the {role}"))
        }
        (Action::Finish, Wants::Decision { held: Some(why), .. }) => {
            Err(format!("`/action`: it cannot be \"finish\": {why}"))
        }
        (Action::Finish, Wants::Decision { held: None, .. }) => Ok(()),
        (Action::Again, Wants::Decision { sequence, .. }) => {
            needs("reason", &said.reason)?;
            match said.from.as_deref() {
                Some(from) if !sequence.contains(&from) => {
                    Err(format!("`/from`: it must be one of {}", sequence.join(", ")))
                }
                Some(_) | None => Ok(()),
            }
        }
        (Action::HandOver, Wants::Decision { .. }) => {
            Err("`/action`: all roles have spoken; it must be \"finish\" or \"again\"".to_owned())
        }
    }
}

/// Names of what can be handed over.
fn results(run: &RunState) -> Vec<String> {
    let answers = run.work.answers.keys().filter(|role| *role != ORCHESTRATOR).cloned();
    ["task", "changes", "checks"].into_iter().map(str::to_owned).chain(answers).collect()
}

/// What a role is told: the brief and the results that the orchestrator names, and nothing else.
fn handed(run: &RunState, pins: &RunStarted, order: &Order) -> Vec<Content> {
    let mut opening: Vec<Content> = vec![format!("Your brief:\n{}", order.said.brief.trim()).into()];
    for name in &order.said.results {
        match (name.as_str(), run.work.answers.get(name)) {
            ("task", _) => {
                opening.push("The task, in its own words:".into());
                opening.push(seat::task(pins));
            }
            ("changes", _) => opening.push(seat::what_changed(run)),
            ("checks", _) => opening.extend(checks(run)),
            (role, Some(answer)) => {
                opening.push(format!("What the {role} answered:\n{}", short(answer)).into())
            }
            (_, None) => {}
        }
    }
    opening
}

fn checks(run: &RunState) -> Vec<Content> {
    if run.work.failed_checks.is_empty() {
        return vec!["No check that was run failed.".into()];
    }
    let said = |check: &docket_schema::run::FailedCheck| {
        [format!("The check `{}` said:", check.name).into(), check.content.clone()]
    };
    run.work.failed_checks.iter().flat_map(said).collect()
}

fn for_orchestrator(run: &RunState, pins: &RunStarted, wants: &Wants<'_>) -> Vec<Content> {
    let sequence = sequence(pins);
    let mut opening = vec![
        seat::task(pins),
        format!(
            "Round {} of {}. The order of the roles: {}.",
            round_of(run),
            rounds(run),
            sequence.join(" → ")
        )
        .into(),
    ];
    let steps = run.work.plan.as_deref().unwrap_or_default();
    for role in &sequence {
        let Some(answer) = run.work.answers.get(*role) else { continue };
        let at = steps.iter().position(|step| step.text == *role);
        let end = at.and_then(|at| run.work.ended.get(at));
        let when = match end {
            Some(end) if end.success => "in this round".to_owned(),
            Some(end) => {
                format!("in this round, and it is held against the work ({})", seat::words(&end.output))
            }
            None => "in an earlier round".to_owned(),
        };
        opening.push(format!("What the {role} answered {when}:\n{}", short(answer)).into());
    }
    opening.push(seat::what_changed(run));
    if !run.work.failed_checks.is_empty() {
        opening.extend(checks(run));
    }
    opening.push(match wants {
        Wants::Brief(role) => {
            let results = results(run).join(", ");
            let round = round_of(run);
            format!("Brief the {role} now, for round {round}: `hand_over`. It can be handed: {results}.")
                .into()
        }
        Wants::Decision { held: Some(why), .. } => {
            format!("All roles have spoken. It cannot be finished: {why}. Have another round: `again`.")
                .into()
        }
        Wants::Decision { held: None, .. } => {
            "All roles have spoken, and nothing is held against the work. Decide: `finish` or `again`.".into()
        }
    });
    opening
}

/// An answer as others read it.
fn short(answer: &Value) -> String {
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
