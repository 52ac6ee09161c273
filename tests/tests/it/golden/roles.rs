//! Engines with roles: each of them from a plan to its end, with a way that fails; and a run that goes on under another
//! engine than it began with.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{export::Export, ids::RunId, task::TaskState};
use docket_worker::model::Provider;

use super::record::Stage;

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

async fn played(stage: &Stage, engine: &str, script: &str, provider: Provider) -> Result<Export> {
    let more = [&TESTS[..], &["--engine", engine]].concat();
    let scene = stage.scene_on(&FILES, engine, script, provider, &more).await?;
    let worker = stage.worker(&scene).await?;
    stage.is(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export(stage.run_of(&scene).await?).await
}

/// All of them, by name.
pub(super) async fn all(stage: &Stage) -> Result<Vec<(&'static str, Export)>> {
    Ok(vec![
        ("plan", played(stage, "plan", PLAN, Provider::OpenAi).await?),
        ("review", played(stage, "review", REVIEW, Provider::Anthropic).await?),
        ("another-engine", another_engine(stage).await?),
        ("sop", played(stage, "sop", SOP, Provider::OpenAi).await?),
        ("sop-limit", at_its_limit(stage).await?),
    ])
}

/// A run that fails, with what it did until then.
async fn at_its_limit(stage: &Stage) -> Result<Export> {
    let more = [&TESTS[..], &["--engine", "sop", "--turns", "3"]].concat();
    let scene = stage.scene_on(&FILES, "sop-limit", SOP_LIMIT, Provider::Anthropic, &more).await?;
    let worker = stage.worker(&scene).await?;
    stage.is(&scene, TaskState::Discarded).await?;
    worker.drain().await?;
    let run = stage.run_of(&scene).await?;
    stage.coordinator.client().retry(scene.task, &docket_schema::wire::RetryRequest::default()).await?;
    stage.coordinator.client().cancel(scene.task, "after all").await?;
    stage.export(run).await
}

/// Begun by `react`, gone on with by `plan`.
async fn another_engine(stage: &Stage) -> Result<Export> {
    let scene = stage.scene_on(&FILES, "another-engine", PLAN, Provider::OpenAi, &TESTS).await?;
    let worker = stage.worker(&scene).await?;
    stage.is(&scene, TaskState::Blocked).await?;
    let run = stage.run_of(&scene).await?.to_string();
    let args = ["fork", &run, "--turn", "1", "--engine", "plan", "--json"].map(str::to_owned);
    let said: serde_json::Value = serde_json::from_str(&stage.coordinator.docket(&args).await?.ok()?)?;
    let forked: RunId = said["run"].as_str().context("the fork's run")?.parse()?;
    let task = stage.coordinator.client().run(forked).await?.task;
    let view = stage.coordinator.ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{view:?}");
    worker.drain().await?;
    stage.export(forked).await
}
