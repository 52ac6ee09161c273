//! Engines with roles: each of them from a plan to its end, with a way that fails; and a run that goes on under another
//! engine than it began with.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{export::InMemoryExport, ids::RunId, task::TaskState};
use docket_worker::model::ModelProvider;

use super::{is_missing, record::RecordingFixture};

const FILES: [(&str, &str); 1] = [("a.py", "def f():\n    return 1\n")];
const TESTS: [&str; 2] = ["--tests", "python3 -c 'import a; assert a.f() == 2'"];

/// A react run that only looks, and what the planner and the executor of `plan` say: a plan that is none, a patch of another
/// file, then both as they should be.
const PLAN: &str = r#"
[[turns]]
calls = [{ name = "list_files" }]
[[turns]]
text = "BLOCKED: What is f to return?"
[[talks]]
role = "planner"
[[talks.turns]]
text = "I would change a.py."
[[talks.turns]]
text = '{"steps": [{"kind": "edit", "path": "a.py", "text": "return 2"}, {"kind": "command", "command": "true"}]}'
[[talks]]
role = "executor"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: a.py
-    return 1
+    return 2
*** End Patch"""
[[talks]]
role = "executor"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: b.py
-x
+y
*** End Patch"""
"#;

/// A step that fails, another plan, a verdict that cannot be read, a third plan without steps.
const REVIEW: &str = r#"
[[talks]]
role = "planner"
opening_contains = "the reviewer wants another way"
[[talks.turns]]
text = '[]'
[[talks]]
role = "planner"
opening_contains = "asked again"
[[talks.turns]]
text = '["Mend f"]'
[[talks]]
role = "planner"
[[talks.turns]]
text = 'Look at it.'
[[talks]]
role = "executor"
opening_contains = "Mend f"
[[talks.turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[talks.turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 2" }] } }]
[[talks.turns]]
text = '{"success": true, "output": "f returns 2"}'
[[talks]]
role = "executor"
[[talks.turns]]
text = 'There is nothing to see.'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = 'Well done.'
"#;

/// A file that is made and changed again, by a second try; a command that fails for it, and is mended; a verdict that sends
/// the architect back; final checks.
const ARCHITECT: &str = r#"
[[talks]]
role = "architect"
opening_contains = "asked again"
[[talks.turns]]
text = '{"actions": [{"kind": "edit", "file": "b.py", "description": "add h"}]}'
[[talks]]
role = "architect"
[[talks.turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[talks.turns]]
text = '''{"actions": [{"kind": "edit", "file": "b.py", "description": "make g"},
 {"kind": "edit", "file": "a.py", "description": "return 2", "hints": "g of b.py returns 2"},
 {"kind": "command", "cmd": "python3 -c 'import a; assert a.f() == 2'"}, {"kind": "message", "text": "g is new"}]}'''
[[talks]]
role = "coder"
opening_contains = "add h"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: b.py
     return 2
+
+
+def h():
+    return 3
*** End Patch"""
[[talks]]
role = "coder"
opening_contains = "Mend the cause"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: a.py
-    return b.g(
+    return b.g()
*** End Patch"""
[[talks]]
role = "coder"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: a.py
-def f():
-    return 1
+import b
+
+
+def f():
+    return b.g(
*** End Patch"""
[[talks]]
role = "coder"
opening_contains = "return 2"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: b.py
-x
+y
*** End Patch"""
[[talks]]
role = "coder"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: b.py
+def g():
+    return 2
*** End Patch"""
[[talks]]
role = "verifier"
opening_contains = "(plan 2"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "all of it is there"}'
[[talks]]
role = "verifier"
[[talks.turns]]
text = '{"verdict": "reject", "reason": "h is missing"}'
"#;

/// Three plans that are none.
const ARCHITECT_BLOCKED: &str = r#"
after_end = "repeat_last"
[[talks]]
role = "architect"
[[talks.turns]]
text = "I would change a.py."
[[talks.turns]]
text = '{"actions": [{"kind": "edit", "file": "../a.py", "description": "return 2"}]}'
[[talks.turns]]
text = '{"actions": []}'
"#;

/// A write before there is a plan, a plan that is none, a claim that is not true, a report without a risk; and what is
/// right after each.
const SOP: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "create_file", args = { path = "b.py", content = "x = 1\n" } }]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = [], files = [] } }]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2"], files = ["a.py"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.py" } },
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 3" }] } },
  { name = "diff_card", args = { rationale = "all tests pass" } },
]
[[talks.turns]]
calls = [
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "return 3", replace = "return 2" }] } },
  { name = "create_file", args = { path = "b.py", content = "from a import f\n\nx = f()\n" } },
  { name = "diff_card", args = { rationale = "f was wrong, and is used now" } },
]
[[talks]]
role = "reviewer"
[[talks.turns]]
text = "It looks good."
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["b.py runs f when it is imported"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "f returns 2" } }]
"#;

/// Its last turn comes while it still makes its change.
const SOP_LIMIT: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2"], files = ["a.py"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.py" } },
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 2" }] } },
]
[[talks.turns]]
calls = [
  { name = "run_tests" },
  { name = "complete_task", args = { summary = "f returns 2, and nobody has looked at it" } },
]
"#;

/// Two rounds: an answer against its schema, a file that is not the tester's to write, a lie of its, which the checks find.
const TEAM: &str = r#"
[[talks]]
role = "orchestrator"
opening_contains = "It cannot be finished"
[[talks.turns]]
text = '{"action": "finish"}'
[[talks.turns]]
text = '{"action": "again", "reason": "f still returns 1", "from": "coder"}'
[[talks]]
role = "orchestrator"
opening_contains = "All roles have spoken"
[[talks.turns]]
text = '{"action": "finish", "reason": "done", "summary": "f returns 2"}'
[[talks]]
role = "orchestrator"
opening_contains = "Brief the coder now, for round 2"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Mend f at last.", "results": ["checks"]}'
[[talks]]
role = "orchestrator"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Do your part.", "results": ["task", "changes"]}'
[[talks]]
role = "architect"
[[talks.turns]]
text = 'Let f return 2.'
[[talks.turns]]
text = '{"design": "Let f return 2.", "files": [{"path": "a.py", "change": "return 2"}]}'
[[talks]]
role = "coder"
opening_contains = "at last"
[[talks.turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[talks.turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 2" }] } }]
[[talks.turns]]
text = '{"done": true, "summary": "f returns 2"}'
[[talks]]
role = "coder"
[[talks.turns]]
text = '{"done": true, "summary": "nothing was to be done"}'
[[talks]]
role = "tester"
[[talks.turns]]
calls = [{ name = "write_file", args = { path = "b.py", content = "x = 1\n" } }, { name = "run_command", args = { command = "true" } }]
[[talks.turns]]
text = '{"outcome": "passed", "summary": "all is well"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "approve", "summary": "right"}'
"#;

/// An architect that never answers as it is to.
const TEAM_FAILS: &str = r#"
[[talks]]
role = "orchestrator"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Do your part.", "results": ["task"]}'
[[talks]]
role = "architect"
[[talks.turns]]
text = 'Let f return 2.'
[[talks.turns]]
text = '{"design": 2}'
[[talks.turns]]
text = '{"design": "Let f return 2.", "files": [{"path": 1}]}'
"#;

/// What a child does that is asked to mend f; whoever only wants it looked at drops the same.
const CHILD: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 2" }] } }]
[[turns]]
text = "f returns 2."
"#;

/// An executor that gives two pieces away, one of which writes, and a planner that may not.
const REVIEW_DELEGATES: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Plan", instructions = "Plan it." } }]
[[talks.turns]]
text = '["Have f mended"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [
  { name = "write_file", args = { path = "b.py", content = "x = 1\n" } },
  { name = "delegate", args = { title = "Look", instructions = "Say what f returns." } },
  { name = "delegate", args = { title = "Mend", instructions = "Let f return 2.", writes = true, engine = "react" } },
  { name = "read_file", args = { path = "a.py" } },
]
[[talks.turns]]
text = '{"success": true, "output": "f returns 2"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it does"}'
"#;

/// A planner that asks, and may not have anything written; a builder that has it written, and says so in the same answer.
const SOP_DELEGATES: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Mend", instructions = "Let f return 2.", writes = true } },
  { name = "delegate", args = { title = "Look", instructions = "Say what f returns." } },
]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2"], files = ["a.py"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "delegate", args = { title = "Mend", instructions = "Let f return 2.", writes = true, engine = "react" } },
  { name = "diff_card", args = { rationale = "f was wrong" } },
]
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["who relied on 1"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "f returns 2" } }]
"#;

async fn record_engine(
    stage: &RecordingFixture,
    engine: &str,
    script: &str,
    provider: ModelProvider,
) -> Result<InMemoryExport> {
    record_engine_until(stage, (engine, engine, TaskState::Completed), script, provider).await
}

async fn record_engine_until(
    stage: &RecordingFixture,
    (name, engine, end): (&str, &str, TaskState),
    script: &str,
    provider: ModelProvider,
) -> Result<InMemoryExport> {
    let more = [&TESTS[..], &["--engine", engine]].concat();
    let scene = stage.start_task_on(&FILES, name, script, provider, &more).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, end).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// Those that the release has not yet, by name.
pub(super) async fn record_missing(stage: &RecordingFixture) -> Result<Vec<(&'static str, InMemoryExport)>> {
    let mut all = Vec::new();
    let whole = [
        ("plan", PLAN, ModelProvider::OpenAi),
        ("review", REVIEW, ModelProvider::Anthropic),
        ("architect", ARCHITECT, ModelProvider::OpenAi),
        ("team", TEAM, ModelProvider::Anthropic),
        ("sop", SOP, ModelProvider::OpenAi),
    ];
    for (engine, script, provider) in whole.into_iter().filter(|(engine, ..)| is_missing(engine)) {
        all.push((engine, record_engine(stage, engine, script, provider).await?));
    }
    for (name, engine, script) in
        [("review-2-delegates", "review", REVIEW_DELEGATES), ("sop-delegates", "sop", SOP_DELEGATES)]
    {
        if is_missing(name) {
            all.push((name, record_with_children(stage, (name, engine), script).await?));
        }
    }
    if is_missing("another-engine") {
        all.push(("another-engine", record_engine_change(stage).await?));
    }
    if is_missing("architect-blocked") {
        all.push(("architect-blocked", record_architect_blocked(stage).await?));
    }
    if is_missing("sop-limit") {
        all.push(("sop-limit", record_at_limit(stage).await?));
    }
    if is_missing("team-put-back") {
        // The tester changes by a command what is not its own.
        let script = TEAM.replace("command = \"true\"", "command = \"echo x > b.py; touch tests.md\"");
        let end = ("team-put-back", "team", TaskState::Completed);
        all.push(("team-put-back", record_engine_until(stage, end, &script, ModelProvider::OpenAi).await?));
    }
    if is_missing("team-fails") {
        let end = ("team-fails", "team", TaskState::Discarded);
        all.push(("team-fails", record_engine_until(stage, end, TEAM_FAILS, ModelProvider::OpenAi).await?));
    }
    Ok(all)
}

/// A run that gives work away; its children play the same script, without a role.
async fn record_with_children(
    stage: &RecordingFixture,
    (name, engine): (&str, &str),
    script: &str,
) -> Result<InMemoryExport> {
    let script = format!("{CHILD}{script}");
    let more = [&TESTS[..], &["--engine", engine, "--delegate", "1"]].concat();
    let scene = stage.start_task_on(&FILES, name, &script, ModelProvider::OpenAi, &more).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// A run that fails, with what it did until then.
async fn record_at_limit(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let more = [&TESTS[..], &["--engine", "sop", "--turns", "3"]].concat();
    let scene = stage.start_task_on(&FILES, "sop-limit", SOP_LIMIT, ModelProvider::Anthropic, &more).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Discarded).await?;
    worker.drain().await?;
    let run = stage.task_run(&scene).await?;
    stage.coordinator.client().retry(scene.task, &docket_schema::api::RetryRequest::default()).await?;
    stage.coordinator.client().cancel(scene.task, "after all").await?;
    stage.export_run(run).await
}

/// A run that a person has to help.
async fn record_architect_blocked(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let more = [&TESTS[..], &["--engine", "architect"]].concat();
    let scene = stage
        .start_task_on(&FILES, "architect-blocked", ARCHITECT_BLOCKED, ModelProvider::Anthropic, &more)
        .await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Blocked).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// Begun by `react`, gone on with by `plan`.
async fn record_engine_change(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let scene = stage.start_task_on(&FILES, "another-engine", PLAN, ModelProvider::OpenAi, &TESTS).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Blocked).await?;
    let run = stage.task_run(&scene).await?.to_string();
    let args = ["fork", &run, "--turn", "1", "--engine", "plan", "--json"].map(str::to_owned);
    let said: serde_json::Value =
        serde_json::from_str(&stage.coordinator.run_docket(&args).await?.into_stdout()?)?;
    let forked: RunId = said["run"].as_str().context("the fork's run")?.parse()?;
    let task = stage.coordinator.client().get_run(forked).await?.task;
    let view = stage.coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{view:?}");
    worker.drain().await?;
    stage.export_run(forked).await
}
