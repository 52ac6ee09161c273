//! Prompts as a model's server gets them: the project's layers alike for all tasks, the task's behind them, and an end
//! that needs no words.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

const LOOKS: &str = r#"
[[turns]]
calls = [{ name = "list_files" }]
[[turns]]
text = "Nothing is to be done."
"#;

fn collect_texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(collect_texts).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => {
            fields.get("text").or(fields.get("content")).map_or_else(String::new, collect_texts)
        }
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_one_tree_share_an_identical_prompt_prefix() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(LOOKS.as_bytes())?).await?;
    server.enable_cache_reporting();
    let sample = SampleRepository::new(&[
        ("AGENTS.md", "Prices are in cents.\n"),
        ("CLAUDE.md", "Nobody reads this.\n"),
        ("Cargo.toml", "[package]\nname = \"shop\"\n"),
        ("web/CLAUDE.md", "Two spaces.\n"),
        ("web/package.json", "{}\n"),
        ("src/main.rs", "fn main() {}\n"),
    ])?;
    let args = ["--model", "openai:template", "--queue", "template", "--tests", "true"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "prompts".parse()?;
    let options = WorkerOptions { slots: 1, queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let mut runs = Vec::new();
    for text in ["Mend the rounding.", "Refactor the prices and migrate all of it to a new store."] {
        let mut spec = spec.clone();
        (spec.title, spec.text) = (text.to_owned(), text.to_owned());
        let task =
            coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::Anthropic, "x")).await?;
        let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
        runs.push(view.task.last_run.context("a run")?);
    }
    let asked: Vec<Value> =
        server.requests().iter().map(|got| serde_json::from_slice(&got.body)).collect::<Result<_, _>>()?;
    ensure!(asked.len() == 4, "{} requests", asked.len());
    ensure!(
        asked.iter().all(|body| body["system"] == asked[0]["system"] && body["tools"] == asked[0]["tools"])
    );
    let system = collect_texts(&asked[0]["system"]);
    for told in [
        "Built with: Rust (cargo).",
        "In web/: JavaScript (npm).",
        "src/: main.rs",
        "# What AGENTS.md says\nPrices are in cents.",
        "# What web/CLAUDE.md says about web/",
    ] {
        ensure!(system.contains(told), "{told}: {system}");
    }
    ensure!(!system.contains("Nobody reads this"), "of two in a folder the first counts");
    let tasks: Vec<String> = asked.iter().map(|body| collect_texts(&body["messages"][0])).collect();
    ensure!(tasks[0].contains("Mend the rounding.") && !tasks[0].contains("Before your first change"));
    ensure!(tasks[2].contains("# Before your first change\nThis task looks large."), "{}", tasks[2]);
    // No plan was given: the next request asks for it.
    ensure!(collect_texts(&asked[1]["messages"]).contains("You gave no plan yet."), "{}", asked[1]);
    ensure!(!collect_texts(&asked[0]["messages"]).contains("You gave no plan yet."));

    // What of it the provider's cache held: of the second task's first request all but the task.
    let shown = coordinator.run_docket(&["show", "--json", &runs[1].to_string()]).await?.into_stdout()?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["cache_hit_percent"].as_u64().is_some_and(|hit| (30..=100).contains(&hit)), "{shown}");
    let shown = coordinator.run_docket(&["show", &runs[1].to_string()]).await?.into_stdout()?;
    ensure!(shown.contains("% cached by the provider)"), "{shown}");
    for run in runs {
        coordinator.run_history(run).await?.verify(coordinator.client()).await?;
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}

const BUILDS: &str = r#"
[[turns]]
text = "PLAN:\n- [x] write it\n- [x] test it"
[[turns.calls]]
name = "create_file"
args = { path = "double.py", content = "def double(x):\n    return x * 2\n" }
[[turns.calls]]
name = "create_file"
[turns.calls.args]
path = "test_double.py"
content = "import unittest\n\nfrom double import double\n\n\nclass DoubleTest(unittest.TestCase):\n    def test_double(self):\n        self.assertEqual(double(2), 4)\n"
[[turns]]
calls = [{ name = "run_tests" }]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_required_files_and_passing_tests_ends_early() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    // A third request would be refused: the script has no more.
    let server = ModelServer::start(ScriptedModel::parse(BUILDS.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("README.md", "Numbers.\n")])?;
    let args = [
        "--model",
        "openai:template",
        "--queue",
        "template",
        "--attempts",
        "1",
        "--tests",
        "python3 -m unittest",
        "--require",
        "double.py",
        "--require",
        "test_double.py",
    ];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "early".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task = coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "x")).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task.message, worker.log_tail());
    ensure!(server.call_count() == 2, "{} calls", server.call_count());
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    let checks = history.count_kind("GateFinished");
    ensure!(
        checks >= 2,
        "what is required and the tests are checked all the same: {}",
        history.format_kinds()
    );
    history.verify(coordinator.client()).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}
