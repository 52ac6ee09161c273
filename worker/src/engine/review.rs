//! Engine `review`, version 2: planner, executor, reviewer, advance (C1–C4).
//!
//! Rules beyond those that all engines with roles share (`seat`): the planner gives steps, and an answer that is no JSON is
//! one step as it stands; the executor does one step with its tools and says how it went, and an answer that cannot be
//! read is a failure; a step that failed goes back to the planner, past the reviewer; else the reviewer gives a verdict,
//! and one that cannot be read is `retry`. An answer is read where it meets its role's JSON Schema. The reviewer is shown the
//! difference itself; by version 1 it was told the names of the files, and no schema was pinned. Each time the planner is asked counts, ten at most. A plan without steps ends
//! the work, one whose steps are all done is made anew. Whatever ends the work, the final checks come after it.

use docket_schema::{
    content::Content,
    run::{
        EngineRef, Fact, FailureKind, Judgement, PlanStep, RunStarted, RunState, StepEnd, StepKind,
        ToolStatus,
    },
    tool::ToolSet,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    core::{
        call_options::role_of,
        decision::{Begins, Decision},
        definition::{Engine, RoleDef},
    },
    roles::{
        answer,
        seat::{self, Checked},
    },
    rules::budget,
};
use crate::tools;

const PLANNER: &str = "planner";
const EXECUTOR: &str = "executor";
const REVIEWER: &str = "reviewer";
/// How often the planner is asked (C4).
const PLANS_MAX: u32 = 10;
/// Steps of a plan that are taken: more are another plan's.
const STEPS_MAX: usize = 50;
/// Ends of steps that the planner and the reviewer are told of, the last ones.
const TOLD_MAX: usize = 12;
/// Characters of what a step came to, where it is told to others.
const OUTPUT_CHARS_MAX: usize = 1500;

const PLANNER_WORDS: &str = "\
You are the planner of a small team that works on a repository. You see its outline, not its files. An executor does your \
steps one after the other, each with the tools of the repository and without your knowledge: say in each step what it \
must know. A reviewer looks at what each step came to.

Answer with a JSON array of steps and nothing else, as strings, in order: [\"…\", \"…\"]. Few steps, each with a result \
that can be seen. Where a step failed or the reviewer wants another way, you are asked again with what was said: plan what \
is left, not what is done. If nothing is left to do, answer [].
";

const EXECUTOR_WORDS: &str = "\
You are the executor of a small team that works on a repository: you do one step of a plan, with tools, and nothing else.
- Read a file before you change it, change as little as the step needs, keep the style that is there.
- Commands run in a sandbox without a network, each from the repository's root.
- A result that is too long is shown in part: `read_output` shows the rest.
When the step is done, or cannot be done, answer without a tool, with one JSON object and nothing else:
{\"success\": true, \"output\": \"what was done, and what whoever goes on must know\"}
or {\"success\": false, \"output\": \"what stands in the way\"}. Say `true` only for what you have seen to work.
";

const REVIEWER_WORDS: &str = "\
You are the reviewer of a small team that works on a repository. You are told the goal, the plan and what its steps came \
to. Judge whether the work gets nearer to the goal, by what was done, not by what was said to be done.

Answer with one JSON object and nothing else: {\"verdict\": \"…\", \"reason\": \"one or two sentences\"}, with one of
- continue: the step did its part; the next one follows.
- retry: it did not; it is to be done another way.
- replan: the plan does not lead to the goal; another is made.
- finish: the goal is reached; nothing is left to do.
";

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Review {
    version: u16,
}

impl Review {
    /// The rules of logs that were begun by them.
    pub const FIRST: Self = Self { version: 1 };
    /// The rules in force.
    pub const SECOND: Self = Self { version: 2 };
}

impl Engine for Review {
    fn id(&self) -> EngineRef {
        EngineRef { name: "review".to_owned(), version: self.version }
    }

    fn roles(&self) -> Vec<RoleDef> {
        let all = tools::specs_of(ToolSet::Wide).into_iter().map(|spec| spec.name);
        let all = all.chain([tools::DELEGATE.to_owned()]).collect();
        let answers = |schema: Value| (self.version > 1).then_some(schema);
        vec![
            RoleDef { answer: answers(plan_schema()), ..RoleDef::of(PLANNER, PLANNER_WORDS) },
            RoleDef {
                tools: all,
                answer: answers(outcome_schema()),
                ..RoleDef::of(EXECUTOR, EXECUTOR_WORDS)
            },
            RoleDef { answer: answers(verdict_schema()), ..RoleDef::of(REVIEWER, REVIEWER_WORDS) },
        ]
    }

    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Wide)
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// A step is a string, or an object with one: models write both, whatever they are told.
fn plan_schema() -> Value {
    let named =
        STEP_NAMES.map(|name| json!({ "required": [name], "properties": { (name): { "type": "string" } } }));
    let object = json!({ "type": "object", "anyOf": named });
    json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, object] } })
}

fn outcome_schema() -> Value {
    json!({
        "type": "object",
        "required": ["success"],
        "properties": { "success": { "type": "boolean" }, "output": { "type": "string" } },
    })
}

fn verdict_schema() -> Value {
    json!({
        "type": "object",
        "required": ["verdict"],
        "properties": {
            "verdict": { "enum": ["continue", "retry", "replan", "finish"] },
            "reason": { "type": "string" },
        },
    })
}

/// What is next; either way round a decision.
fn next(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    seat::first(run, pins)?;
    let Some(steps) = &run.work.plan else { return planned(run, pins) };
    if steps.is_empty() {
        return finished(run, pins);
    }
    let Some(last) = run.work.ended.last() else { return executed(run, pins, 0, steps) };
    if !last.success {
        let reason = format!("step {} failed: {}", last.step + 1, short(&last.output));
        return Ok(seat::conclude(run, vec![Fact::PlanDropped { reason }]));
    }
    match &run.work.judged {
        None => judged(run, pins, last, steps),
        Some((Judgement::Finish, _)) => finished(run, pins),
        Some((Judgement::Continue, _)) => match run.work.ended.len() {
            at if at < steps.len() => executed(run, pins, at, steps),
            _ => dropped(run, "all its steps are done, and the goal is not reached"),
        },
        Some((verdict @ (Judgement::Retry | Judgement::Replan), reason)) => {
            let wants = match verdict {
                Judgement::Retry => "another way",
                Judgement::Replan | Judgement::Continue | Judgement::Finish => "another plan",
            };
            dropped(run, format!("the reviewer wants {wants}: {reason}").trim_end_matches([':', ' ']))
        }
    }
}

fn dropped(run: &RunState, reason: &str) -> Result<Decision, Decision> {
    Ok(seat::conclude(run, vec![Fact::PlanDropped { reason: reason.to_owned() }]))
}

/// Nothing is left to do: the final checks have the last word.
fn finished(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    match seat::checks(run, pins)? {
        Checked::Passed if seat::is_spoken_to(run) => dropped(run, seat::SPOKEN),
        Checked::Passed => Ok(seat::succeed(run)),
        Checked::Failed => dropped(run, "the final checks failed"),
    }
}

fn planned(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.work.plans + 1);
    if !seat::is_at(run, PLANNER, &about) {
        if run.work.plans_counted() >= PLANS_MAX && !seat::is_spoken_to(run) {
            let why = run.work.dropped.as_deref().unwrap_or("no plan led to the goal");
            let message = format!("the planner was asked {PLANS_MAX} times; the last time, {why}");
            return Ok(Decision::fail(run, FailureKind::Plan, &message));
        }
        let opening = for_planner(run, pins);
        return Ok(seat::begin(run, Vec::new(), Begins { role: PLANNER.to_owned(), about, opening }));
    }
    let Content::Text(said) = seat::speak(run, pins)? else { return Ok(too_long(run)) };
    let steps = steps_of(said, schema(run, pins));
    Ok(seat::conclude(run, vec![Fact::Planned { steps }]))
}

/// A plan that no request can quote is no plan without steps, which would end the work: it is asked for again.
fn too_long(run: &RunState) -> Decision {
    let problem = seat::too_long();
    if run.work.invalid_counted() + 1 >= seat::INVALID_MAX {
        let message =
            format!("{} plans in a row could not be taken; the last one: {problem}", seat::INVALID_MAX);
        return Decision::fail(run, FailureKind::Plan, &message);
    }
    seat::conclude(run, vec![Fact::Invalid { what: "plan".to_owned(), problem }])
}

fn executed(run: &RunState, pins: &RunStarted, at: usize, steps: &[PlanStep]) -> Result<Decision, Decision> {
    let about = format!("plan {}, step {} of {}", run.work.plans, at + 1, steps.len());
    if !seat::is_at(run, EXECUTOR, &about) {
        let mut opening = vec![seat::task(pins), goes_before(run, steps)];
        opening.push(format!("Your step, {} of {}: {}", at + 1, steps.len(), steps[at].text).into());
        return Ok(seat::begin(run, Vec::new(), Begins { role: EXECUTOR.to_owned(), about, opening }));
    }
    let said = seat::speak(run, pins)?;
    let (success, output) = outcome_of(seat::words(said), schema(run, pins));
    let step = u32::try_from(at).unwrap_or(u32::MAX);
    Ok(seat::conclude(run, vec![Fact::StepEnded { step, success, output: output.into() }]))
}

fn judged(
    run: &RunState,
    pins: &RunStarted,
    last: &StepEnd,
    steps: &[PlanStep],
) -> Result<Decision, Decision> {
    let about = format!("plan {}, step {} of {}", run.work.plans, last.step + 1, steps.len());
    if !seat::is_at(run, REVIEWER, &about) {
        let mut opening = vec![seat::task(pins), goes_before(run, steps)];
        opening.extend(changes(run, pins)?);
        return Ok(seat::begin(run, Vec::new(), Begins { role: REVIEWER.to_owned(), about, opening }));
    }
    let said = seat::speak(run, pins)?;
    let (verdict, reason) = verdict_of(seat::words(said), schema(run, pins));
    Ok(seat::conclude(run, vec![Fact::Judged { verdict, reason }]))
}

/// What its answer must meet of whoever is in hand.
fn schema<'a>(run: &RunState, pins: &'a RunStarted) -> Option<&'a Value> {
    role_of(run, pins)?.answer.as_ref()
}

/// What was changed, as the reviewer sees it: the difference; names, where policy lets nobody look.
///
/// # Errors
/// The runtime looks first.
fn changes(run: &RunState, pins: &RunStarted) -> Result<Vec<Content>, Decision> {
    if pins.engine.version < 2 {
        return Ok(vec![seat::what_changed(run)]);
    }
    let shown = run.work.done.last().filter(|done| done.tool.call.is_own());
    let shown = shown.ok_or_else(|| seat::call(run, Vec::new(), vec![seat::show_changes(run)]))?;
    Ok(match shown.status {
        ToolStatus::Ok => {
            let words = "The whole difference, from the repository as it was to what it is now:".into();
            vec![words, shown.content.clone()]
        }
        ToolStatus::Error | ToolStatus::Refused | ToolStatus::Unknown => vec![seat::what_changed(run)],
    })
}

fn for_planner(run: &RunState, pins: &RunStarted) -> Vec<Content> {
    let mut opening = vec![seat::task(pins)];
    let Some(why) = &run.work.dropped else { return opening };
    opening.push(format!("You planned before, and are asked again: {why}").into());
    if !run.work.ended.is_empty() {
        opening.push(ends(run));
    }
    opening.push(seat::what_changed(run));
    for check in &run.work.failed_checks {
        opening.push(format!("The check `{}` said:", check.name).into());
        opening.push(check.content.clone());
    }
    opening
}

/// The plan, with what its steps came to.
fn goes_before(run: &RunState, steps: &[PlanStep]) -> Content {
    let lines = steps.iter().enumerate().map(|(nth, step)| {
        let mark = if nth < run.work.ended.len() { "x" } else { " " };
        format!("- [{mark}] {}\n", step.text)
    });
    let plan: String = lines.collect();
    let Content::Text(ends) = ends(run) else { return plan.into() };
    format!("The plan:\n{plan}{ends}").into()
}

fn ends(run: &RunState) -> Content {
    let ended = &run.work.ended;
    let mut text = String::new();
    for end in &ended[ended.len().saturating_sub(TOLD_MAX)..] {
        let how = if end.success { "is done" } else { "failed" };
        text.push_str(&format!("\nStep {} {how}: {}", end.step + 1, short(&end.output)));
    }
    if text.is_empty() { text.into() } else { format!("\nWhat its steps came to:{text}").into() }
}

fn short(content: &Content) -> String {
    match content {
        Content::Text(text) => {
            let mut short: String = text.trim().chars().take(OUTPUT_CHARS_MAX).collect();
            if short.len() < text.trim().len() {
                short.push('…');
            }
            short
        }
        Content::B64(_) | Content::Blob(_) => "(too long to be quoted)".to_owned(),
    }
}

/// The steps of an answer; what is no array of them is one step as it stands (C1).
fn steps_of(said: &str, schema: Option<&Value>) -> Vec<PlanStep> {
    let step = |text: String| PlanStep { text, kind: StepKind::Free };
    let texts = match answer::fitting(said, schema) {
        // Brackets among words say nothing of what is left to do.
        Ok(Value::Array(steps)) if steps.is_empty() && !answer::is_alone(said) => None,
        Ok(Value::Array(steps)) => steps.into_iter().map(text_of).collect::<Option<Vec<String>>>(),
        Ok(_) | Err(_) => None,
    };
    let texts = texts.unwrap_or_else(|| vec![said.trim().to_owned()]);
    texts.into_iter().filter(|text| !text.trim().is_empty()).take(STEPS_MAX).map(step).collect()
}

fn taken<T: DeserializeOwned>(said: &str, schema: Option<&Value>) -> Result<T, String> {
    answer::fitting(said, schema)?;
    answer::taken(said)
}

/// Names under which models put the words of a step.
const STEP_NAMES: [&str; 4] = ["step", "description", "text", "action"];

/// A step as models write it: a string, or an object with one.
fn text_of(step: Value) -> Option<String> {
    match step {
        Value::String(text) => Some(text),
        Value::Object(fields) => {
            let named = STEP_NAMES.iter().find_map(|name| fields.get(*name)?.as_str());
            named.map(str::to_owned)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

#[derive(Deserialize)]
struct Outcome {
    success: bool,
    #[serde(default)]
    output: String,
}

/// How a step went; an answer that cannot be read is a failure (C2).
fn outcome_of(said: &str, schema: Option<&Value>) -> (bool, String) {
    match taken::<Outcome>(said, schema) {
        Ok(outcome) => (outcome.success, outcome.output),
        Err(why) => (false, format!("the executor's answer cannot be read ({why}): {}", said.trim())),
    }
}

#[derive(Deserialize)]
struct Verdict {
    verdict: Judgement,
    #[serde(default)]
    reason: String,
}

/// A verdict; one that cannot be read is `retry` (C3).
fn verdict_of(said: &str, schema: Option<&Value>) -> (Judgement, String) {
    match taken::<Verdict>(said, schema) {
        Ok(Verdict { verdict, reason }) => (verdict, reason),
        Err(why) => (Judgement::Retry, format!("the verdict cannot be read: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(said: &str) -> Vec<String> {
        let texts = |schema: Option<&Value>| -> Vec<String> {
            steps_of(said, schema).into_iter().map(|step| step.text).collect()
        };
        let schema = plan_schema();
        let by_schema = texts(Some(&schema));
        assert_eq!(by_schema, texts(None), "the schema takes what is read without it, and nothing else");
        by_schema
    }

    #[test]
    fn a_plan_that_is_no_array_is_one_step() {
        assert_eq!(texts("[\"a\", \"b\"]"), ["a", "b"]);
        assert_eq!(texts("```json\n[{\"step\": \"a\"}, \"b\"]\n```"), ["a", "b"]);
        assert_eq!(texts("First look, then mend."), ["First look, then mend."]);
        assert_eq!(texts("[\"a\", 7]"), ["[\"a\", 7]"]);
        assert_eq!(texts("[{\"note\": \"a\"}]"), ["[{\"note\": \"a\"}]"]);
        assert!(texts("[]").is_empty() && texts("```json\n[]\n```").is_empty());
        let prose = "Return `[]` where nothing is found, then run the tests.";
        assert_eq!(texts(prose), [prose]);
    }

    #[test]
    fn an_outcome_that_cannot_be_read_is_a_failure_and_such_a_verdict_a_retry() {
        let schema = outcome_schema();
        let outcome_of = |said| outcome_of(said, Some(&schema));
        assert_eq!(outcome_of(r#"{"success": true, "output": "ok"}"#), (true, "ok".to_owned()));
        let (success, output) = outcome_of("It works!");
        assert!(!success && output.contains("It works!"));
        let (success, output) = outcome_of(r#"{"success": "true", "output": "ok"}"#);
        assert!(!success && output.contains("/success"), "{output}");
        let schema = verdict_schema();
        let verdict_of = |said| verdict_of(said, Some(&schema));
        assert_eq!(
            verdict_of(r#"{"verdict": "finish", "reason": "r"}"#),
            (Judgement::Finish, "r".to_owned())
        );
        for said in ["go on", r#"{"verdict": "maybe"}"#, "{}", r#"{"verdict": "finish", "reason": 7}"#] {
            assert_eq!(verdict_of(said).0, Judgement::Retry, "{said}");
        }
    }

    #[test]
    fn both_versions_are_there_and_the_second_is_in_force() {
        for review in [Review::FIRST, Review::SECOND] {
            assert_eq!(super::super::engine(&review.id()).map(|engine| engine.id()), Some(review.id()));
            let schemas = review.roles().iter().filter(|role| role.answer.is_some()).count();
            assert_eq!(schemas, if review.version == 1 { 0 } else { 3 });
        }
        assert_eq!(super::super::newest("review").map(|engine| engine.id().version), Some(2));
    }
}
