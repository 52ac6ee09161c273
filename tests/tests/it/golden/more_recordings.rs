//! More real runs, recorded: what came after the first ones.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::SubmitRequest,
    export::InMemoryExport,
    ids::QueueName,
    task::{TaskBlockedReason, TaskSpec, TaskState},
};
use docket_tests::system::wait_until;
use docket_worker::model::ModelProvider;

use super::record::{RecordingFixture, release_command, wait_for_middle};

/// A small window: results are cleared, steps dropped, the oldest summarized, once by a model and once by rule; a
/// file is read again that still stands there.
pub(super) async fn record_compacted(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let long: String = (1..=150).map(|n| format!("line {n} of what is to be read\n")).collect();
    let mut script = "[summary]\ntext = \"It was read.\"\nfault = { kind = \"server_error\", times = 1 }\n\
                      [[turns]]\ntext = \"PLAN:\\n- [x] read\"\n\
                      calls = [{ name = \"read_file\", args = { path = \"long.txt\" } }, \
                      { name = \"read_file\", args = { path = \"long.txt\" } }]\n"
        .to_owned();
    for n in 1..18 {
        script.push_str(&format!(
            "[[turns]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"long.txt\", start_line = {n} }} }}, \
             {{ name = \"edit_file\", args = {{ path = \"long.txt\", edits = [{{ search = \"line {n} of\", \
             replace = \"LINE {n} of\" }}] }} }}]\n"
        ));
    }
    script.push_str("[[turns]]\ntext = \"Done.\"\n");
    let settings = "[prices.\"anthropic:golden\"]\ninput = \"3\"\noutput = \"5\"\ncache_read = \"1\"\n\
                    cache_write = \"3\"\ncontext_tokens = 14_000\noutput_tokens_max = 1000\n";
    let files = [("long.txt", long.as_str())];
    let scene = stage
        .start_task_on(&files, "compacted", &script, ModelProvider::Anthropic, &["--tests", "true"])
        .await?;
    let worker = stage.start_worker_with(&scene, settings).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    let export = stage.export_run(stage.task_run(&scene).await?).await?;
    let compactions = export.events.iter().filter(|event| event.kind == "Compacted").count();
    ensure!(compactions >= 2, "{compactions} compactions");
    Ok(export)
}

/// Credit that is used up: the run waits, and goes on where it stood.
pub(super) async fn record_provider_block(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = "[[turns]]\ncalls = [{ name = \"list_files\" }]\n\
                  fault = { kind = \"spend_limit\", times = 1 }\n[[turns]]\ntext = \"Done.\"\n";
    let scene =
        stage.start_task("provider-block", script, ModelProvider::Anthropic, &["--tests", "true"]).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Blocked).await?;
    stage.coordinator.run_docket(&["retry", &scene.task.to_string()]).await?.into_stdout()?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// Held before anybody had it, let go, paused in its middle, asked and answered.
pub(super) async fn record_paused_and_blocked(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "touch middle; until [ -e go ]; do sleep 0.02; done; rm go middle" }
[[turns]]
text = "BLOCKED: Which unit is meant?"
[[turns]]
calls = [{ name = "create_file", args = { path = "unit.txt", content = "metre\n" } }]
[[turns]]
text = "Done."
"#;
    let scene = stage.start_task("rested", script, ModelProvider::OpenAi, &["--tests", "true"]).await?;
    let task = scene.task.to_string();
    let docket = async |args: &[&str]| stage.coordinator.run_docket(args).await?.into_stdout();
    docket(&["pause", &task]).await?;
    docket(&["unpause", &task]).await?;
    let worker = stage.start_worker(&scene).await?;
    let folder = wait_for_middle(&worker, None).await?;
    docket(&["pause", &task]).await?;
    release_command(&folder)?;
    stage.wait_for_state(&scene, TaskState::Blocked).await?;
    docket(&["unpause", &task]).await?;
    let asks = wait_until("a question", async || {
        let record = stage.coordinator.client().get_task(scene.task).await.ok()?.task;
        (record.blocked_why == Some(TaskBlockedReason::Person)).then_some(())
    });
    asks.await?;
    docket(&["answer", &task, "metres"]).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// One model looks around, another changes, a third stands in while that is overloaded; an answer is cut.
pub(super) async fn record_several_models(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = r#"
[[turns]]
calls = [{ name = "list_files" }]
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "create_file", args = { path = "b.txt", content = "b\n" } }]
fault = { kind = "overloaded", times = 3, retry_after_ms = 1 }
[[turns]]
text = "Done, as far as"
fault = { kind = "output_limit", times = 1 }
[[turns]]
text = "Done."
"#;
    let mut scene =
        stage.start_task("template", script, ModelProvider::OpenAiResponses, &["--tests", "true"]).await?;
    let (_, spec) = (scene.task, stage.coordinator.client().get_task(scene.task).await?.task.spec);
    stage.coordinator.client().cancel(scene.task, "a template").await?;
    let queue: QueueName = "several-models".parse()?;
    let model = |name: &str| scene.server.model_ref(ModelProvider::OpenAiResponses, name);
    let spec = TaskSpec {
        queue: queue.clone(),
        explore_model: Some(model("scout")),
        fallback_model: Some(model("stand-in")),
        ..spec
    };
    let answer = stage.coordinator.client().submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
    (scene.task, scene.queue) = (answer.tasks.first().context("a task")?.id, queue);
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// No plan, then what is required and tests that pass: nobody has to say that it is done. A secret on the way.
pub(super) async fn record_early_end(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "echo DEPLOY_TOKEN=hunter2Xq9vTz4; cat config.txt" } }]
[[turns]]
[[turns.calls]]
name = "create_file"
[turns.calls.args]
path = "test_it.py"
content = "import unittest\n\n\nclass It(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue(True)\n"
[[turns]]
calls = [{ name = "run_tests" }]
"#;
    let files = [
        ("config.txt", "level = 3\n"),
        ("AGENTS.md", "Keep it short.\n"),
        ("web/CLAUDE.md", "Two spaces.\n"),
    ];
    let more = ["--tests", "python3 -m unittest", "--require", "test_it.py", "--complexity", "high"];
    let scene = stage.start_task_on(&files, "early-end", script, ModelProvider::OpenAi, &more).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}
