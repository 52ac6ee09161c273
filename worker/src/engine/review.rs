//! Engine `review`, version 2: planner, executor, reviewer, advance (C1–C4).
//!
//! Rules beyond those that all role-based engines share (`role_conversation`): the planner gives steps, and a reply
//! that is not JSON counts as one step; the executor does one step with its tools and reports the result, and an
//! unreadable report is a failure; a failed step goes back to the planner without review; otherwise the reviewer
//! gives a verdict, and an unreadable one is `retry`. A reply is read if it matches its role's JSON Schema. The
//! reviewer sees the diff itself; in version 1 it saw only the names of the files, and no schema was pinned. Each
//! planner call counts, ten at most. A plan without steps ends the work; after a plan whose steps are all done,
//! another one is requested. Whatever ends the work, the final checks come after it.

use docket_schema::{
    content::Content,
    run::{
        EngineFact, EngineRef, FailureKind, FinishedStep, PlanStep, ReviewVerdict, RunStarted, RunState,
        StepKind, ToolStatus,
    },
    tool::ToolSet,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    core::{
        call_options::current_role,
        decision::{Decision, RoleStart},
        definition::{Engine, RoleDefinition},
    },
    roles::{
        json_reply,
        role_conversation::{self, FinalCheckOutcome},
    },
    rules::budget,
};
use crate::tools;

const PLANNER: &str = "planner";
const EXECUTOR: &str = "executor";
const REVIEWER: &str = "reviewer";
/// How often the planner is called (C4).
const PLANS_MAX: u32 = 10;
/// Steps accepted from a plan: the rest is left to another plan.
const STEPS_MAX: usize = 50;
/// Most recent step results reported to the planner and the reviewer.
const STEP_RESULTS_MAX: usize = 12;
/// Characters of a step's output when it is reported to other roles.
const OUTPUT_CHARS_MAX: usize = 1500;

const PLANNER_PROMPT: &str = "\
You are the planner of a small team that works on a repository. You see its outline, not its files. An executor does your \
steps one after the other, each with the tools of the repository and without your knowledge: say in each step what it \
must know. A reviewer looks at what each step came to.

Answer with a JSON array of steps and nothing else, as strings, in order: [\"…\", \"…\"]. Few steps, each with a result \
that can be seen. Where a step failed or the reviewer wants another way, you are asked again with what was said: plan what \
is left, not what is done. If nothing is left to do, answer [].
";

const EXECUTOR_PROMPT: &str = "\
You are the executor of a small team that works on a repository: you do one step of a plan, with tools, and nothing else.
- Read a file before you change it, change as little as the step needs, keep the style that is there.
- Commands run in a sandbox without a network, each from the repository's root.
- A result that is too long is shown in part: `read_output` shows the rest.
When the step is done, or cannot be done, answer without a tool, with one JSON object and nothing else:
{\"success\": true, \"output\": \"what was done, and what whoever goes on must know\"}
or {\"success\": false, \"output\": \"what stands in the way\"}. Say `true` only for what you have seen to work.
";

const REVIEWER_PROMPT: &str = "\
You are the reviewer of a small team that works on a repository. You are told the goal, the plan and what its steps came \
to. Judge whether the work gets nearer to the goal, by what was done, not by what was said to be done.

Answer with one JSON object and nothing else: {\"verdict\": \"…\", \"reason\": \"one or two sentences\"}, with one of
- continue: the step did its part; the next one follows.
- retry: it did not; it is to be done another way.
- replan: the plan does not lead to the goal; another is made.
- finish: the goal is reached; nothing is left to do.
";

/// The `review` engine.
#[derive(Debug, Clone, Copy)]
pub struct ReviewEngine {
    version: u16,
}

impl ReviewEngine {
    /// The rules for logs that began under them.
    pub const V1: Self = Self { version: 1 };
    /// The current rules.
    pub const V2: Self = Self { version: 2 };
}

impl Engine for ReviewEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "review".to_owned(), version: self.version }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        let all = tools::tool_specs(ToolSet::Wide).into_iter().map(|spec| spec.name);
        let all = all.chain([tools::DELEGATE.to_owned()]).collect();
        let answers = |schema: Value| (self.version > 1).then_some(schema);
        vec![
            RoleDefinition {
                reply_schema: answers(plan_schema()),
                ..RoleDefinition::new(PLANNER, PLANNER_PROMPT)
            },
            RoleDefinition {
                tools: all,
                reply_schema: answers(outcome_schema()),
                ..RoleDefinition::new(EXECUTOR, EXECUTOR_PROMPT)
            },
            RoleDefinition {
                reply_schema: answers(verdict_schema()),
                ..RoleDefinition::new(REVIEWER, REVIEWER_PROMPT)
            },
        ]
    }

    fn tool_set(&self) -> Option<ToolSet> {
        Some(ToolSet::Wide)
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::decide_within_budget(run, |pins| next_decision(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// A step is a string, or an object that contains one: models write both, whatever the instructions say.
fn plan_schema() -> Value {
    let named = STEP_TEXT_KEYS
        .map(|name| json!({ "required": [name], "properties": { (name): { "type": "string" } } }));
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

/// Returns the next decision; both variants carry one.
fn next_decision(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    role_conversation::check_pending_decision(run, pins)?;
    let Some(steps) = &run.engine_state.plan else { return decide_planning(run, pins) };
    if steps.is_empty() {
        return decide_final_checks(run, pins);
    }
    let Some(last) = run.engine_state.finished_steps.last() else {
        return decide_execution(run, pins, 0, steps);
    };
    if !last.success {
        let reason = format!("step {} failed: {}", last.step + 1, truncate_output(&last.output));
        return Ok(role_conversation::record_facts(run, vec![EngineFact::PlanDropped { reason }]));
    }
    match &run.engine_state.last_verdict {
        None => decide_review(run, pins, last, steps),
        Some((ReviewVerdict::Finish, _)) => decide_final_checks(run, pins),
        Some((ReviewVerdict::Continue, _)) => match run.engine_state.finished_steps.len() {
            at if at < steps.len() => decide_execution(run, pins, at, steps),
            _ => drop_plan(run, "all its steps are done, and the goal is not reached"),
        },
        Some((verdict @ (ReviewVerdict::Retry | ReviewVerdict::Replan), reason)) => {
            let wants = match verdict {
                ReviewVerdict::Retry => "another way",
                ReviewVerdict::Replan | ReviewVerdict::Continue | ReviewVerdict::Finish => "another plan",
            };
            drop_plan(run, format!("the reviewer wants {wants}: {reason}").trim_end_matches([':', ' ']))
        }
    }
}

fn drop_plan(run: &RunState, reason: &str) -> Result<Decision, Decision> {
    Ok(role_conversation::record_facts(run, vec![EngineFact::PlanDropped { reason: reason.to_owned() }]))
}

/// No work is left: the final checks decide.
fn decide_final_checks(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    match role_conversation::require_final_checks(run, pins)? {
        FinalCheckOutcome::Passed if role_conversation::has_unread_user_message(run) => {
            drop_plan(run, role_conversation::USER_MESSAGE_REASON)
        }
        FinalCheckOutcome::Passed => Ok(role_conversation::succeed_run(run)),
        FinalCheckOutcome::Failed => drop_plan(run, "the final checks failed"),
    }
}

fn decide_planning(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = format!("plan {}", run.engine_state.plans + 1);
    if !role_conversation::is_active_role(run, PLANNER, &about) {
        if run.engine_state.counted_plans() >= PLANS_MAX && !role_conversation::has_unread_user_message(run) {
            let why = run.engine_state.plan_drop_reason.as_deref().unwrap_or("no plan led to the goal");
            let message = format!("the planner was asked {PLANS_MAX} times; the last time, {why}");
            return Ok(Decision::fail_run(run, FailureKind::Plan, &message));
        }
        let opening = planner_opening(run, pins);
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: PLANNER.to_owned(), about, opening },
        ));
    }
    let Content::Text(said) = role_conversation::require_final_reply(run, pins)? else {
        return Ok(reject_oversized_plan(run));
    };
    let steps = parse_steps(said, current_reply_schema(run, pins));
    Ok(role_conversation::record_facts(run, vec![EngineFact::Planned { steps }]))
}

/// Rejects a plan too long to be quoted in a request. It does not count as a plan without steps, which would end the
/// work: it is requested again.
fn reject_oversized_plan(run: &RunState) -> Decision {
    let problem = role_conversation::reply_too_long_message();
    if run.engine_state.counted_invalid_answers() + 1 >= role_conversation::INVALID_REPLIES_MAX {
        let message = format!(
            "{} plans in a row could not be taken; the last one: {problem}",
            role_conversation::INVALID_REPLIES_MAX
        );
        return Decision::fail_run(run, FailureKind::Plan, &message);
    }
    role_conversation::record_facts(run, vec![EngineFact::Invalid { what: "plan".to_owned(), problem }])
}

fn decide_execution(
    run: &RunState,
    pins: &RunStarted,
    at: usize,
    steps: &[PlanStep],
) -> Result<Decision, Decision> {
    let about = format!("plan {}, step {} of {}", run.engine_state.plans, at + 1, steps.len());
    if !role_conversation::is_active_role(run, EXECUTOR, &about) {
        let mut opening = vec![role_conversation::task_content(pins), format_plan_progress(run, steps)];
        opening.push(format!("Your step, {} of {}: {}", at + 1, steps.len(), steps[at].text).into());
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: EXECUTOR.to_owned(), about, opening },
        ));
    }
    let said = role_conversation::require_final_reply(run, pins)?;
    let (success, output) =
        parse_outcome(role_conversation::inline_text(said), current_reply_schema(run, pins));
    let step = u32::try_from(at).unwrap_or(u32::MAX);
    Ok(role_conversation::record_facts(
        run,
        vec![EngineFact::StepEnded { step, success, output: output.into() }],
    ))
}

fn decide_review(
    run: &RunState,
    pins: &RunStarted,
    last: &FinishedStep,
    steps: &[PlanStep],
) -> Result<Decision, Decision> {
    let about = format!("plan {}, step {} of {}", run.engine_state.plans, last.step + 1, steps.len());
    if !role_conversation::is_active_role(run, REVIEWER, &about) {
        let mut opening = vec![role_conversation::task_content(pins), format_plan_progress(run, steps)];
        opening.extend(changes_for_reviewer(run, pins)?);
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: REVIEWER.to_owned(), about, opening },
        ));
    }
    let said = role_conversation::require_final_reply(run, pins)?;
    let (verdict, reason) =
        parse_verdict(role_conversation::inline_text(said), current_reply_schema(run, pins));
    Ok(role_conversation::record_facts(run, vec![EngineFact::Judged { verdict, reason }]))
}

/// Returns the reply schema of the active role.
fn current_reply_schema<'a>(run: &RunState, pins: &'a RunStarted) -> Option<&'a Value> {
    current_role(run, pins)?.answer.as_ref()
}

/// Returns the changes as the reviewer sees them: the diff, or only names if policy hides the content.
///
/// # Errors
/// The decision to inspect the changes first.
fn changes_for_reviewer(run: &RunState, pins: &RunStarted) -> Result<Vec<Content>, Decision> {
    if pins.engine.version < 2 {
        return Ok(vec![role_conversation::format_changed_files(run)]);
    }
    let shown = run.engine_state.finished_calls.last().filter(|done| done.tool.call.is_runtime());
    let shown = shown.ok_or_else(|| {
        role_conversation::call_own_tools(run, Vec::new(), vec![role_conversation::show_changes_call(run)])
    })?;
    Ok(match shown.status {
        ToolStatus::Ok => {
            let words = "The whole difference, from the repository as it was to what it is now:".into();
            vec![words, shown.content.clone()]
        }
        ToolStatus::Error | ToolStatus::Refused | ToolStatus::Unknown => {
            vec![role_conversation::format_changed_files(run)]
        }
    })
}

fn planner_opening(run: &RunState, pins: &RunStarted) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    let Some(why) = &run.engine_state.plan_drop_reason else { return opening };
    opening.push(format!("You planned before, and are asked again: {why}").into());
    if !run.engine_state.finished_steps.is_empty() {
        opening.push(format_step_results(run));
    }
    opening.push(role_conversation::format_changed_files(run));
    for check in &run.engine_state.failed_checks {
        opening.push(format!("The check `{}` said:", check.name).into());
        opening.push(check.content.clone());
    }
    opening
}

/// Renders the plan with the results of its steps.
fn format_plan_progress(run: &RunState, steps: &[PlanStep]) -> Content {
    let lines = steps.iter().enumerate().map(|(nth, step)| {
        let mark = if nth < run.engine_state.finished_steps.len() { "x" } else { " " };
        format!("- [{mark}] {}\n", step.text)
    });
    let plan: String = lines.collect();
    let Content::Text(ends) = format_step_results(run) else { return plan.into() };
    format!("The plan:\n{plan}{ends}").into()
}

fn format_step_results(run: &RunState) -> Content {
    let ended = &run.engine_state.finished_steps;
    let mut text = String::new();
    for end in &ended[ended.len().saturating_sub(STEP_RESULTS_MAX)..] {
        let how = if end.success { "is done" } else { "failed" };
        text.push_str(&format!("\nStep {} {how}: {}", end.step + 1, truncate_output(&end.output)));
    }
    if text.is_empty() { text.into() } else { format!("\nWhat its steps came to:{text}").into() }
}

fn truncate_output(content: &Content) -> String {
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

/// Parses the steps of a reply; anything but an array counts as one step (C1).
fn parse_steps(said: &str, schema: Option<&Value>) -> Vec<PlanStep> {
    let step = |text: String| PlanStep { text, kind: StepKind::Free };
    let texts = match json_reply::extract_valid_json(said, schema) {
        // Empty brackets within a text do not mean that nothing is left to do.
        Ok(Value::Array(steps)) if steps.is_empty() && !json_reply::is_only_json(said) => None,
        Ok(Value::Array(steps)) => steps.into_iter().map(step_text).collect::<Option<Vec<String>>>(),
        Ok(_) | Err(_) => None,
    };
    let texts = texts.unwrap_or_else(|| vec![said.trim().to_owned()]);
    texts.into_iter().filter(|text| !text.trim().is_empty()).take(STEPS_MAX).map(step).collect()
}

fn parse_reply<T: DeserializeOwned>(said: &str, schema: Option<&Value>) -> Result<T, String> {
    json_reply::extract_valid_json(said, schema)?;
    json_reply::parse_json_reply(said)
}

/// Keys under which models put the text of a step.
const STEP_TEXT_KEYS: [&str; 4] = ["step", "description", "text", "action"];

/// Reads a step as models write it: a string, or an object that contains one.
fn step_text(step: Value) -> Option<String> {
    match step {
        Value::String(text) => Some(text),
        Value::Object(fields) => {
            let named = STEP_TEXT_KEYS.iter().find_map(|name| fields.get(*name)?.as_str());
            named.map(str::to_owned)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

#[derive(Deserialize)]
struct StepOutcomeReply {
    success: bool,
    #[serde(default)]
    output: String,
}

/// Parses how a step went; an unreadable reply is a failure (C2).
fn parse_outcome(said: &str, schema: Option<&Value>) -> (bool, String) {
    match parse_reply::<StepOutcomeReply>(said, schema) {
        Ok(outcome) => (outcome.success, outcome.output),
        Err(why) => (false, format!("the executor's answer cannot be read ({why}): {}", said.trim())),
    }
}

#[derive(Deserialize)]
struct ReviewVerdictReply {
    verdict: ReviewVerdict,
    #[serde(default)]
    reason: String,
}

/// Parses a verdict; an unreadable one is `retry` (C3).
fn parse_verdict(said: &str, schema: Option<&Value>) -> (ReviewVerdict, String) {
    match parse_reply::<ReviewVerdictReply>(said, schema) {
        Ok(ReviewVerdictReply { verdict, reason }) => (verdict, reason),
        Err(why) => (ReviewVerdict::Retry, format!("the verdict cannot be read: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_texts(said: &str) -> Vec<String> {
        let texts = |schema: Option<&Value>| -> Vec<String> {
            parse_steps(said, schema).into_iter().map(|step| step.text).collect()
        };
        let schema = plan_schema();
        let by_schema = texts(Some(&schema));
        assert_eq!(by_schema, texts(None), "the schema takes what is read without it, and nothing else");
        by_schema
    }

    #[test]
    fn plan_that_is_not_an_array_is_one_step() {
        assert_eq!(parse_texts("[\"a\", \"b\"]"), ["a", "b"]);
        assert_eq!(parse_texts("```json\n[{\"step\": \"a\"}, \"b\"]\n```"), ["a", "b"]);
        assert_eq!(parse_texts("First look, then mend."), ["First look, then mend."]);
        assert_eq!(parse_texts("[\"a\", 7]"), ["[\"a\", 7]"]);
        assert_eq!(parse_texts("[{\"note\": \"a\"}]"), ["[{\"note\": \"a\"}]"]);
        assert!(parse_texts("[]").is_empty() && parse_texts("```json\n[]\n```").is_empty());
        let prose = "Return `[]` where nothing is found, then run the tests.";
        assert_eq!(parse_texts(prose), [prose]);
    }

    #[test]
    fn unreadable_outcome_is_a_failure_and_unreadable_verdict_a_retry() {
        let schema = outcome_schema();
        let outcome_of = |said| parse_outcome(said, Some(&schema));
        assert_eq!(outcome_of(r#"{"success": true, "output": "ok"}"#), (true, "ok".to_owned()));
        let (success, output) = outcome_of("It works!");
        assert!(!success && output.contains("It works!"));
        let (success, output) = outcome_of(r#"{"success": "true", "output": "ok"}"#);
        assert!(!success && output.contains("/success"), "{output}");
        let schema = verdict_schema();
        let verdict_of = |said| parse_verdict(said, Some(&schema));
        assert_eq!(
            verdict_of(r#"{"verdict": "finish", "reason": "r"}"#),
            (ReviewVerdict::Finish, "r".to_owned())
        );
        for said in ["go on", r#"{"verdict": "maybe"}"#, "{}", r#"{"verdict": "finish", "reason": 7}"#] {
            assert_eq!(verdict_of(said).0, ReviewVerdict::Retry, "{said}");
        }
    }

    #[test]
    fn both_versions_are_registered_and_the_second_is_newest() {
        for review in [ReviewEngine::V1, ReviewEngine::V2] {
            assert_eq!(
                super::super::find_engine(&review.engine_ref()).map(|engine| engine.engine_ref()),
                Some(review.engine_ref())
            );
            let schemas = review.default_roles().iter().filter(|role| role.reply_schema.is_some()).count();
            assert_eq!(schemas, if review.version == 1 { 0 } else { 3 });
        }
        assert_eq!(super::super::newest_engine("review").map(|engine| engine.engine_ref().version), Some(2));
    }
}
