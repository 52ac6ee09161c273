//! Engine `plan`, version 1: plan-and-execute (B1). One model call produces an ordered list of typed steps; they run
//! in order; the final checks come at the end; a failure leads to another plan, up to a limit.
//!
//! Rules beyond those that all role-based engines share (`role_conversation`): the planner is asked until it gives a
//! valid plan, three times at most; a step that changes a file is one call of the executor, which sees only that file
//! (`file_patch`); the runtime runs commands and tests itself; the first step that fails, or failing checks, send the
//! planner back with the output.

use docket_schema::{
    content::Content,
    run::{
        EngineFact, EngineRef, FailureKind, FinishedCall, PlanStep, RunStarted, RunState, StepKind,
        ToolStatus,
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
    rules::budget,
};

const PLANNER: &str = "planner";
const EXECUTOR: &str = "executor";
/// Steps allowed in a plan: a longer one is several tasks.
const STEPS_MAX: usize = 40;

const PLANNER_PROMPT: &str = "\
You plan a change of a repository for somebody who carries it out step by step, without asking you again. You see the \
project's outline, not its files; whoever changes a file sees that file, your words for the step, and nothing else: \
name what it must know of other files (names, signatures, formats).

Answer with one JSON object and nothing else:
{\"steps\": [
  {\"kind\": \"edit\", \"path\": \"src/a.py\", \"text\": \"what is to be changed in it\", \"hints\": \"what to know\"},
  {\"kind\": \"command\", \"command\": \"a shell line\", \"expect\": \"pass\", \"text\": \"what for\"},
  {\"kind\": \"tests\", \"path\": \"tests/test_a.py\"},
  {\"kind\": \"message\", \"text\": \"words for people\"}
]}
A file that is not there yet is made by `edit`, too. `expect` is how a command is to end: `pass`, as where it is left out, \
or `fail`. Order the steps so that each can rely on those before it. Plan as few \
as the task needs, each file once if that does. The project's own tests and linters run at the end by themselves.
";

const EXECUTOR_PROMPT: &str = "\
You carry out one step of a plan: a change of one file, which you are shown. Do what the step says and no more.
";

/// The `plan` engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanEngine;

impl Engine for PlanEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "plan".to_owned(), version: 1 }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        vec![
            RoleDefinition::new(PLANNER, PLANNER_PROMPT),
            RoleDefinition::new(EXECUTOR, &format!("{EXECUTOR_PROMPT}\n{}", file_patch::PATCH_INSTRUCTIONS)),
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
    if let Some(failed) = run.engine_state.finished_steps.last().filter(|end| !end.success) {
        let why = format!("step {} failed", failed.step + 1);
        return Ok(request_new_plan(run, pins, why));
    }
    let at = run.engine_state.finished_steps.len();
    match steps.get(at) {
        Some(step) => decide_step(run, pins, at, step),
        None => match role_conversation::require_final_checks(run, pins)? {
            FinalCheckOutcome::Passed if role_conversation::has_unread_user_message(run) => {
                Ok(request_new_plan(run, pins, role_conversation::USER_MESSAGE_REASON.to_owned()))
            }
            FinalCheckOutcome::Passed => Ok(role_conversation::succeed_run(run)),
            FinalCheckOutcome::Failed => {
                Ok(request_new_plan(run, pins, "the final checks failed".to_owned()))
            }
        },
    }
}

/// Drops the plan and requests another, unless there were too many.
fn request_new_plan(run: &RunState, pins: &RunStarted, reason: String) -> Decision {
    if run.engine_state.counted_corrections() >= pins.settings.corrections_max
        && !role_conversation::has_unread_user_message(run)
    {
        let said = run.engine_state.finished_steps.iter().rev().find(|end| !end.success);
        let said = said.map(|end| first_line(&end.output)).unwrap_or_default();
        let message =
            format!("{reason} after {} corrections of the plan {said}", run.engine_state.corrections);
        return Decision::fail_run(run, FailureKind::Plan, message.trim());
    }
    let failed = run.engine_state.finished_steps.last().filter(|end| !end.success);
    let output = failed.map(|end| first_line(&end.output)).unwrap_or_default();
    let reason = format!("{reason} {output}").trim().to_owned();
    role_conversation::record_facts(
        run,
        vec![EngineFact::Correcting { reason: reason.clone() }, EngineFact::PlanDropped { reason }],
    )
}

/// The planner's part.
fn decide_planning(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    let about = match run.engine_state.corrections {
        0 => "the plan".to_owned(),
        nth => format!("correction {nth}"),
    };
    if !role_conversation::is_active_role(run, PLANNER, &about) {
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role: PLANNER.to_owned(), about, opening: planner_opening(run, pins) },
        ));
    }
    let said = role_conversation::inline_text(role_conversation::require_final_reply(run, pins)?);
    match parse_plan(said, pins.settings.role_rules > 1) {
        Ok(steps) => Ok(role_conversation::record_facts(run, vec![EngineFact::Planned { steps }])),
        Err(problem)
            if run.engine_state.counted_invalid_answers() + 1 >= role_conversation::INVALID_REPLIES_MAX =>
        {
            let message = format!(
                "{} plans in a row could not be taken; the last one: {problem}",
                role_conversation::INVALID_REPLIES_MAX
            );
            Ok(Decision::fail_run(run, FailureKind::Plan, &message))
        }
        Err(problem) => Ok(role_conversation::record_facts(
            run,
            vec![EngineFact::Invalid { what: "plan".to_owned(), problem }],
        )),
    }
}

fn planner_opening(run: &RunState, pins: &RunStarted) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    if run.engine_state.corrections == 0 {
        return opening;
    }
    opening.push(
        "A plan was carried out before this, and something failed. Its changes are in the repository. Plan only what \
         corrects that."
            .into(),
    );
    opening.push(format!("What was done until now:\n{}", run.ledger.render(LEDGER_BYTES_MAX)).into());
    if let Some(reason) = &run.engine_state.plan_drop_reason {
        opening.push(format!("What failed: {reason}").into());
    }
    for check in &run.engine_state.failed_checks {
        opening.push(format!("The check `{}` said:", check.name).into());
        opening.push(check.content.clone());
    }
    opening
}

/// Bytes of the ledger shown to the planner for a correction.
const LEDGER_BYTES_MAX: usize = 8 * 1024;

/// Carries out a step; returns its end once it has one.
fn decide_step(run: &RunState, pins: &RunStarted, at: usize, step: &PlanStep) -> Result<Decision, Decision> {
    let ended = |success, output: Content| {
        let step = u32::try_from(at).unwrap_or(u32::MAX);
        Ok(role_conversation::record_facts(run, vec![EngineFact::StepEnded { step, success, output }]))
    };
    match &step.kind {
        StepKind::Edit { path, hints } => {
            let words = step_instructions(run, step, hints);
            let about = format!("step {}: {path}", at + 1);
            match file_patch::advance_patch(
                run,
                pins,
                &FilePatchTask { role: EXECUTOR, about, path, instructions: words },
            )? {
                FilePatchOutcome::Applied(output) | FilePatchOutcome::Unchanged(output) => {
                    ended(true, output)
                }
                FilePatchOutcome::GivenUp(problem) => ended(false, problem.into()),
            }
        }
        StepKind::Command { command, expect } => match finished_call(run, "run_command") {
            Some(done) => ended(meets_expectation(done, expect), done.content.clone()),
            None => Ok(role_conversation::call_own_tools(
                run,
                Vec::new(),
                vec![("run_command", json!({ "command": command }))],
            )),
        },
        StepKind::Tests { path } => match finished_call(run, "run_tests") {
            Some(done) => ended(done.status == ToolStatus::Ok && done.exit == Some(0), done.content.clone()),
            None => {
                let args = path.as_ref().map_or_else(|| json!({}), |path| json!({ "test_path": path }));
                Ok(role_conversation::call_own_tools(run, Vec::new(), vec![("run_tests", args)]))
            }
        },
        StepKind::Message | StepKind::Free => ended(true, step.text.clone().into()),
    }
}

/// Returns the runtime's own call of this tool for the current step, once finished.
fn finished_call<'a>(run: &'a RunState, tool: &str) -> Option<&'a FinishedCall> {
    // Calls from before the end of the last step do not count.
    let done = run.engine_state.finished_calls.last()?;
    (done.tool.call.is_runtime() && done.tool.name == tool).then_some(done)
}

/// Whether a command ended as the plan expects.
fn meets_expectation(done: &FinishedCall, expect: &str) -> bool {
    let fails = expect.trim().eq_ignore_ascii_case("fail");
    done.status == ToolStatus::Ok && done.exit.is_some_and(|exit| (exit == 0) != fails)
}

fn step_instructions(run: &RunState, step: &PlanStep, hints: &str) -> Vec<Content> {
    let mut words = vec![format!("The step: {}", step.text).into()];
    if !hints.is_empty() {
        words.push(format!("What to know: {hints}").into());
    }
    let changed: Vec<String> = run.files_written.iter().map(ToString::to_string).collect();
    if !changed.is_empty() {
        words.push(format!("Files that were changed before this step: {}", changed.join(", ")).into());
    }
    words
}

fn first_line(content: &Content) -> String {
    match content {
        Content::Text(text) => super::rules::escalation::excerpt_first_line(text),
        Content::B64(_) | Content::Blob(_) => String::new(),
    }
}

#[derive(Deserialize)]
struct PlanReply {
    steps: Vec<PlanReplyStep>,
}

#[derive(Deserialize)]
struct PlanReplyStep {
    kind: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    hints: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    expect: String,
}

/// Parses the steps of a plan and checks that each can be carried out. `exact` = an expectation must be one of two
/// words; earlier rules read any other as the first of them.
fn parse_plan(said: &str, exact: bool) -> Result<Vec<PlanStep>, String> {
    let PlanReply { steps } = json_reply::parse_json_reply(said)?;
    match steps.len() {
        0 => return Err("`steps` is empty".to_owned()),
        many if many > STEPS_MAX => return Err(format!("`steps` has {many} entries, more than {STEPS_MAX}")),
        _ => {}
    }
    steps
        .into_iter()
        .enumerate()
        .map(|(nth, step)| parse_step(step, exact).map_err(|why| format!("steps[{nth}]: {why}")))
        .collect()
}

fn parse_step(step: PlanReplyStep, exact: bool) -> Result<PlanStep, String> {
    let kind = match step.kind.as_str() {
        "edit" | "create" => {
            let path = step.path.filter(|path| !path.trim().is_empty()).ok_or("`path` is missing")?;
            let path = crate::tools::work_path_of(&path)
                .ok_or_else(|| format!("`{path}` is no path in the repository"))?;
            if step.text.trim().is_empty() {
                return Err("`text` is empty: say what is to be changed".to_owned());
            }
            StepKind::Edit { path, hints: step.hints }
        }
        "command" if step.command.trim().is_empty() => return Err("`command` is empty".to_owned()),
        "command" if exact && !is_valid_expectation(&step.expect) => {
            return Err(format!("`expect` is `{}`; it must be pass or fail", step.expect));
        }
        "command" => StepKind::Command { command: step.command, expect: step.expect },
        "tests" => StepKind::Tests { path: step.path.filter(|path| !path.is_empty()) },
        "message" => StepKind::Message,
        other => return Err(format!("`kind` is `{other}`; it must be edit, command, tests or message")),
    };
    Ok(PlanStep { text: step.text, kind })
}

/// Whether this is a valid expectation for a command; if omitted, it must pass.
fn is_valid_expectation(expect: &str) -> bool {
    ["", "pass", "fail"].iter().any(|word| expect.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use docket_schema::content::WorkspacePath;

    use super::*;

    #[test]
    fn plan_is_parsed_or_rejected_with_the_step_index() {
        let plan = r#"{"steps": [{"kind": "edit", "path": "./a.py", "text": "add f"}, {"kind": "tests"},
                      {"kind": "command", "command": "make"}, {"kind": "message", "text": "hello"}]}"#;
        let steps = parse_plan(plan, true).expect("is taken");
        assert_eq!(
            steps[0].kind,
            StepKind::Edit { path: WorkspacePath::new("a.py").expect("a path"), hints: String::new() }
        );
        assert_eq!((steps.len(), &steps[1].kind), (4, &StepKind::Tests { path: None }));
        for (said, why) in [
            ("no", "no JSON"),
            (r#"{"steps": []}"#, "empty"),
            (r#"{"steps": [{"kind": "edit", "text": "x"}]}"#, "steps[0]: `path` is missing"),
            (r#"{"steps": [{"kind": "edit", "path": "../x", "text": "x"}]}"#, "no path in the repository"),
            (r#"{"steps": [{"kind": "tests"}, {"kind": "dance"}]}"#, "steps[1]: `kind` is `dance`"),
        ] {
            assert!(parse_plan(said, true).is_err_and(|told| told.contains(why)), "{said}");
        }
        let expects = |word: &str, exact| {
            let step = json!({ "kind": "command", "command": "make", "expect": word });
            parse_plan(&json!({ "steps": [step] }).to_string(), exact)
        };
        for word in ["", "pass", "fail", " Fail "] {
            assert!(expects(word, true).is_ok(), "{word}");
        }
        for word in ["success", "0", "failure"] {
            let told = expects(word, true).expect_err(word);
            assert_eq!(told, format!("steps[0]: `expect` is `{word}`; it must be pass or fail"));
            assert!(expects(word, false).is_ok(), "as in older logs");
        }
    }
}
