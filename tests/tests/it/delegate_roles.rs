//! Runs of engines with roles that give work away: which role may, what it may want of a child, who plays that, and who
//! is refused and told why. Whole runs over real HTTP, each proven afterwards.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::SubmitRequest,
    run::{PolicyVerdict, RunEvent, ToolStatus},
    task::{TaskRecord, TaskSpec, TaskState},
};
use docket_tests::system::{RunHistory, SampleRepository, acquire_scenario_slot};
use docket_worker::model::ModelProvider;

use crate::{
    delegate::{
        FILES, delegate_results, file_in_result, keep_golden_log, list_children, submit_delegating_task,
        wait_until_ended,
    },
    models::ModelFixture,
};

const READER: &str = r#"
[[turns]]
calls = [
  { name = "read_file", args = { path = "poem.txt" } },
  { name = "create_file", args = { path = "litter.txt", content = "x\n" } },
  { name = "run_command", args = { command = "touch more-litter.txt" } },
]
[[turns]]
text = "The third line is three."
[[turns]]
text = "Nothing is to be changed: The third line is three."
"#;

const WRITER: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "made.txt", content = "made by a child\n" } }]
[[turns]]
text = "Made it."
"#;

/// A run of an engine, with a child that reads by the model `cheap` and one that writes by `spare`.
async fn play_with_children(engine: &str, script: &str) -> Result<(ModelFixture, TaskRecord, RunHistory)> {
    let scripts = [("main", script), ("cheap", READER), ("spare", WRITER)];
    let stage = ModelFixture::new(ModelProvider::OpenAi, &scripts, "").await?;
    let task = submit_delegating_task(&stage, &["--engine", engine, "--delegate", "1"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed && task.runs == 1,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    Ok((stage, task, history))
}

/// How each of the calls that delegate ended, in a word and a part of what was said.
fn check_delegate_results(history: &RunHistory, wanted: &[(ToolStatus, &str)]) -> Result<()> {
    let results = delegate_results(history);
    let fits = |((status, said), (is, text, _)): (&(ToolStatus, &str), &(ToolStatus, String, _))| {
        status == is && text.contains(said)
    };
    ensure!(results.len() == wanted.len() && wanted.iter().zip(&results).all(fits), "{results:?}");
    Ok(())
}

/// Engines of the children, in order; each run of them is proven.
async fn child_engines(stage: &ModelFixture, task: &TaskRecord) -> Result<Vec<String>> {
    let mut engines = Vec::new();
    for child in list_children(stage, task).await? {
        stage.verified_history(&child.view.task).await?;
        engines.push(child.view.task.spec.engine.clone());
    }
    Ok(engines)
}

const REVIEW: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Plan", instructions = "plan it", model = "openai:cheap" } }]
[[talks.turns]]
text = '["Make it"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:cheap" } },
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:spare" } },
  { name = "run_command", args = { command = "cat made.txt >> other.txt" } },
]
[[talks.turns]]
text = '{"success": true, "output": "made"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it is there"}'
"#;

/// The executor gives two pieces away and goes on with what came of both; who has no tools gives nothing away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_executor_delegates() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, task, history) = Box::pin(play_with_children("review", REVIEW)).await?;
    check_delegate_results(
        &history,
        &[
            (ToolStatus::Refused, "the role `planner` has no tools"),
            (ToolStatus::Ok, "The third line is three."),
            (ToolStatus::Ok, "Taken over into your workspace: made.txt"),
        ],
    )?;
    ensure!(history.count_kind("RunBlocked") == 1, "it rests once for both: {}", history.format_kinds());
    ensure!(file_in_result(&stage, &task, "other.txt").await? == "other\nmade by a child\n");
    ensure!(file_in_result(&stage, &task, "litter.txt").await.is_err(), "what was dropped is there");
    ensure!(child_engines(&stage, &task).await? == ["react", "react"]);
    stage.shut_down().await
}

const ARCHITECT: &str = r#"
[[talks]]
role = "architect"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, model = "openai:spare" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", tests = "echo x > made.txt", model = "openai:cheap" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:cheap" } },
]
[[talks.turns]]
text = '{"actions": [{"kind": "command", "cmd": "echo three >> other.txt"}]}'
[[talks]]
role = "verifier"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "it is there"}'
"#;

/// Each child was bound to read: its log says by which rule it was refused what it tried beside.
async fn check_children_only_read(stage: &ModelFixture, task: &TaskRecord) -> Result<()> {
    for child in list_children(stage, task).await? {
        let task = &child.view.task;
        let by = task.delegated_by.as_ref().context("a child")?;
        if by.writes {
            continue;
        }
        let rules = task.spec.policy.as_ref().map_or(&[][..], |policy| &policy.rules);
        ensure!(rules.len() == 1 && rules[0].tools.iter().any(|tool| tool == "run_command"), "{rules:?}");
        let history = stage.coordinator.run_history(task.last_run.context("a run")?).await?;
        let is_refused = |event: &&RunEvent| match event {
            RunEvent::ToolRequested(open) => {
                matches!(&open.policy, PolicyVerdict::Deny { rule, .. } if rule == "given")
            }
            _ => false,
        };
        let refused = history.events.iter().filter(is_refused).count();
        ensure!(refused == 2, "both that write and run: {}", history.format_kinds());
    }
    Ok(())
}

/// An architect changes nothing itself, and through no child either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn architect_delegates_only_reading_work() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, task, history) = Box::pin(play_with_children("architect", ARCHITECT)).await?;
    check_delegate_results(
        &history,
        &[
            (ToolStatus::Refused, "the role `architect` gives only away what reads"),
            (ToolStatus::Refused, "the role `architect` runs no commands"),
            (ToolStatus::Ok, "It changed no files."),
        ],
    )?;
    ensure!(file_in_result(&stage, &task, "made.txt").await.is_err(), "a child wrote for it");
    check_children_only_read(&stage, &task).await?;
    ensure!(child_engines(&stage, &task).await? == ["react"]);
    keep_golden_log(&stage, &task, "delegate-architect").await?;
    stage.shut_down().await
}

const TEAM: &str = r#"
[[talks]]
role = "orchestrator"
opening_contains = "All roles have spoken"
[[talks.turns]]
text = '{"action": "finish", "summary": "made"}'
[[talks]]
role = "orchestrator"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Do your part.", "results": ["task"]}'
[[talks]]
role = "architect"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Make", instructions = "make it", writes = true, model = "openai:spare" } }]
[[talks.turns]]
text = '{"design": "Make it.", "files": []}'
[[talks]]
role = "coder"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:spare" } }]
[[talks.turns]]
text = '{"done": true, "summary": "made"}'
[[talks]]
role = "tester"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:cheap" } }, { name = "run_command", args = { command = "cat made.txt" } }]
[[talks.turns]]
text = '{"outcome": "passed", "summary": "it is there"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "approve", "summary": "right"}'
"#;

/// Of the team's roles those give work away that list `delegate`: the architect what reads, the coder what writes as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn team_roles_with_the_delegate_tool_delegate() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, task, history) = Box::pin(play_with_children("team", TEAM)).await?;
    check_delegate_results(
        &history,
        &[
            (ToolStatus::Refused, "the role `architect` gives only away what reads"),
            (ToolStatus::Ok, "Taken over into your workspace: made.txt"),
            (ToolStatus::Refused, "the role `tester` has no tool `delegate`"),
        ],
    )?;
    ensure!(file_in_result(&stage, &task, "made.txt").await? == "made by a child\n");
    keep_golden_log(&stage, &task, "delegate-team").await?;
    stage.shut_down().await
}

const SOP: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, model = "openai:spare" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", tests = "echo x > made.txt", model = "openai:cheap" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:cheap" } },
]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "two files", steps = ["make one"], files = ["made.txt", "more.txt"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:spare" } },
  { name = "run_command", args = { command = "cp made.txt more.txt" } },
  { name = "diff_card", args = { rationale = "both are wanted", not_verified_because = "they are only words" } },
]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Mend", instructions = "mend it", writes = true, model = "openai:spare" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:cheap" } },
]
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: two words"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Look", instructions = "look again", model = "openai:cheap" } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "made" } }]
"#;

/// Under `sop` the phase says what a piece may be: one that reads while somebody plans or reviews, one that writes only
/// while somebody builds, none once all gates have passed. What reads can no more than read. The card of the same answer is heard after the child's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sop_modes_delegate_only_what_they_may_do() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, task, history) = Box::pin(play_with_children("sop", SOP)).await?;
    check_delegate_results(
        &history,
        &[
            (ToolStatus::Refused, "(mode): plan mode only reads"),
            (ToolStatus::Refused, "(mode): the phase is `plan`, which runs nothing"),
            (ToolStatus::Ok, "It changed no files."),
            (ToolStatus::Ok, "Taken over into your workspace: made.txt"),
            (ToolStatus::Refused, "(mode): review mode only reads"),
            (ToolStatus::Ok, "It changed no files."),
            (ToolStatus::Refused, "(mode): all gates have passed"),
        ],
    )?;
    check_children_only_read(&stage, &task).await?;
    ensure!(file_in_result(&stage, &task, "more.txt").await? == "made by a child\n");
    ensure!(child_engines(&stage, &task).await? == ["react", "react", "react"]);
    stage.shut_down().await
}

const INHERITS: &str = r#"
[[talks]]
role = "planner"
opening_contains = "This is a piece of another agent's work"
[[talks.turns]]
text = '["Make it for them"]'
[[talks]]
role = "planner"
[[talks.turns]]
text = '["Have it made"]'
[[talks]]
role = "executor"
opening_contains = "Make it for them"
[[talks.turns]]
calls = [{ name = "write_file", args = { path = "made.txt", content = "made by a child\n" } }]
[[talks.turns]]
text = '{"success": true, "output": "made for them"}'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Make", instructions = "make it", writes = true } }]
[[talks.turns]]
text = '{"success": true, "output": "they made it"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it is there"}'
"#;

/// A piece that writes is played as its parent is, where nobody says otherwise: planner, executor, reviewer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_child_uses_the_parent_engine() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, task, history) = Box::pin(play_with_children("review", INHERITS)).await?;
    check_delegate_results(&history, &[(ToolStatus::Ok, "Taken over into your workspace: made.txt")])?;
    ensure!(child_engines(&stage, &task).await? == ["review"]);
    ensure!(file_in_result(&stage, &task, "made.txt").await? == "made by a child\n");
    stage.shut_down().await
}

const PLAN: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '{"steps": [{"kind": "command", "command": "true"}]}'
"#;

/// No role of `plan` calls tools: the flag is refused before anything is stored, and a task that asks for it past the
/// flag ends with the reason. A worker whose settings let any run delegate runs it as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_without_delegation_is_refused_at_submit() -> Result<()> {
    const WHY: &str = "a run of the engine `plan` gives nothing away: none of its roles calls tools";
    let _room = acquire_scenario_slot().await;
    let settings = "[run]\ndelegation_depth_max = 1\n";
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", PLAN)], settings).await?;
    let sample = SampleRepository::new(&FILES)?;
    let repo = sample.path().to_str().context("a UTF-8 path")?;
    let args = ["submit", "Do it", "--repo", repo, "--model", "openai:main", "--engine", "plan"];
    let said = stage.coordinator.run_docket(&[&args[..], &["--delegate", "1"]].concat()).await?;
    ensure!(said.stderr.contains(&format!("--delegate: {WHY}")) && !said.success(), "{said:?}");
    let (task, history) =
        wait_until_ended(&stage, submit_delegating_task(&stage, &["--engine", "plan"]).await?).await?;
    ensure!(task.state == TaskState::Completed, "{:?} {}", task.message, history.format_kinds());
    let mut spec = TaskSpec { attempts_max: 1, ..task.spec };
    spec.settings.delegation_depth_max = Some(1);
    let answer = stage.coordinator.client().submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
    let task = stage.coordinator.wait_until_ended(answer.tasks.first().context("a task")?.id).await?.task;
    ensure!(task.state == TaskState::Discarded, "{task:?}");
    ensure!(task.message.as_ref().is_some_and(|said| said.contains(WHY)), "{:?}", task.message);
    stage.shut_down().await
}
