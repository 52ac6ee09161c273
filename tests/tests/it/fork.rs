//! Forks as a model's provider sees them: the shared history is sent as it was, to the byte, so that its
//! cache still hits; and what a fork changes is all that differs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{RunId, TaskId},
    run::{Forked, RunEvent},
    task::TaskState,
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

const SCRIPT: &str = r#"
[[turns]]
text = "PLAN:\n- [x] one\n- [x] two"
[[turns.calls]]
name = "create_file"
args = { path = "one.txt", content = "1\n" }
[[turns]]
text = "Two."
[[turns.calls]]
name = "run_command"
args = { command = "echo 2 > two.txt; cat one.txt two.txt" }
[[turns]]
text = "Done."
"#;

/// The same work done by another model.
const OTHER: &str = r#"
[[turns]]
text = "Never asked."
[[turns]]
when = { any_contains = "mind the second" }
text = "Another hand."
[[turns.calls]]
name = "create_file"
args = { path = "two.txt", content = "two\n" }
[[turns]]
text = "Done otherwise."
"#;

struct ForkFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
    server: ModelServer,
    run: RunId,
}

impl ForkFixture {
    async fn new(provider: ModelProvider) -> Result<Self> {
        let parse = |text: &str| ScriptedModel::parse(text.as_bytes());
        let scripts = [("first".to_owned(), parse(SCRIPT)?), ("other".to_owned(), parse(OTHER)?)];
        let server = ModelServer::start_by_model(BTreeMap::from(scripts)).await?;
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
        let (model, url) = (format!("{}:first", provider.name()), server.base_url(provider));
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let (task, _) = sample.submit(&coordinator, &["--model", &model, "--base-url", &url]).await?;
        let run = wait_until_done(&coordinator, task).await?;
        ensure!(server.requests().len() == 3, "three turns");
        Ok(Self { coordinator, worker, server, run })
    }

    /// Forks at turn 1 and gives the runs, once they are done, with the requests of each to its end.
    async fn fork_and_wait(&self, more: &[&str]) -> Result<Vec<(RunId, Vec<Vec<u8>>)>> {
        let before = self.server.requests().len();
        let run = self.run.to_string();
        let args = [&["fork", &run, "--turn", "1", "--json"], more].concat();
        let made = self.coordinator.run_docket(&args).await?.into_stdout()?;
        let mut runs = Vec::new();
        for line in made.lines() {
            let made: Value = serde_json::from_str(line)?;
            let task: TaskId = made["task"].as_str().context("a task")?.parse()?;
            runs.push(wait_until_done(&self.coordinator, task).await?);
        }
        // One worker with one slot: one run after the other.
        let requests: Vec<Vec<u8>> =
            self.server.requests()[before..].iter().map(|request| request.body.to_vec()).collect();
        ensure!(requests.len() == runs.len() * 2, "two turns are left to each: {}", requests.len());
        Ok(runs.into_iter().zip(requests.chunks(2).map(<[_]>::to_vec)).collect())
    }

    async fn shut_down(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

async fn wait_until_done(coordinator: &CoordinatorProcess, task: TaskId) -> Result<RunId> {
    let view = coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    view.task.last_run.context("a run")
}

/// What a provider's cache goes by: system, tools, and then the blocks of all messages, in their order.
fn cacheable_blocks(body: &[u8]) -> Result<Vec<Value>> {
    let body: Value = serde_json::from_slice(body)?;
    let mut blocks = vec![body["system"].clone(), body["instructions"].clone(), body["tools"].clone()];
    for message in body["messages"].as_array().or(body["input"].as_array()).context("messages")? {
        blocks.push(message["role"].clone());
        match &message["content"] {
            Value::Array(parts) => blocks.extend(parts.iter().cloned()),
            _ => blocks.push(message.clone()),
        }
    }
    // Where to cache is said anew with each request, and is no part of what is cached.
    fn remove_cache_marks(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("cache_control");
                fields.values_mut().for_each(remove_cache_marks);
            }
            Value::Array(items) => items.iter_mut().for_each(remove_cache_marks),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    blocks.iter_mut().for_each(remove_cache_marks);
    Ok(blocks)
}

async fn check_shared_prefix(provider: ModelProvider) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ForkFixture::new(provider).await?;
    let parents = stage.server.requests()[1].body.to_vec();
    // Without a change the very request is sent again: three samples of one turn.
    for (run, requests) in stage.fork_and_wait(&["--count", "3"]).await? {
        ensure!(requests[0] == parents, "run {run}: {}", String::from_utf8_lossy(&requests[0]));
    }
    let hinted = stage.fork_and_wait(&["--hint", "mind the second"]).await?.remove(0).1.remove(0);
    let (shared, longer) = (cacheable_blocks(&parents)?, cacheable_blocks(&hinted)?);
    ensure!(longer.starts_with(&shared) && longer.len() > shared.len(), "{longer:#?}\n{shared:#?}");
    ensure!(longer.last().is_some_and(|last| last.to_string().contains("mind the second")), "{longer:#?}");
    // Where nothing moves it holds of the bytes: up to the end of the shared messages.
    let behind = match provider {
        ModelProvider::OpenAi => Some("],\"tools\":"),
        ModelProvider::OpenAiResponses => Some("],\"include\":"),
        ModelProvider::Anthropic | ModelProvider::Scripted => None,
    };
    if let Some(behind) = behind {
        let text = String::from_utf8(parents)?;
        let end = text.find(behind).context("what follows the messages")?;
        ensure!(hinted.starts_with(&text.as_bytes()[..end]));
    }
    stage.shut_down().await
}

#[tokio::test]
async fn fork_request_shares_its_parents_prefix_with_openai() -> Result<()> {
    check_shared_prefix(ModelProvider::OpenAi).await
}

#[tokio::test]
async fn fork_request_shares_its_parents_prefix_with_responses() -> Result<()> {
    check_shared_prefix(ModelProvider::OpenAiResponses).await
}

#[tokio::test]
async fn fork_request_shares_its_parents_prefix_with_anthropic() -> Result<()> {
    check_shared_prefix(ModelProvider::Anthropic).await
}

#[tokio::test]
async fn fork_with_another_model_uses_its_own_parameters() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ForkFixture::new(ModelProvider::OpenAi).await?;
    let prices = "[prices.\"openai:other\"]\ninput = \"3\"\noutput = \"5\"\ncache_read = \"1\"\ncache_write = \"3\"\n\
                  context_tokens = 100_000\noutput_tokens_max = 4000\n";
    std::fs::write(stage.coordinator.home().join("docket.toml"), prices)?;
    let run = stage.run.to_string();
    for (wrong, said) in [
        (["--engine", "planner"], "unknown engine `planner`; this build has react"),
        (["--hint", " "], "--hint must be"),
        (["--model", "scripted:none"], "specify --script FILE"),
    ] {
        let refused = stage.coordinator.run_docket(&["fork", &run, wrong[0], wrong[1]]).await?;
        ensure!(refused.code() == Some(2) && refused.stderr.contains(said), "{refused:?}");
    }
    let refused = stage.coordinator.run_docket(&["fork", &run, "--turn", "99"]).await?;
    ensure!(refused.code() == Some(3) && refused.stderr.contains("has turns 0 to 3"), "{refused:?}");

    let url = stage.server.base_url(ModelProvider::OpenAi);
    let change =
        ["--model", "openai:other", "--base-url", &url, "--engine", "react", "--hint", "mind the second"];
    let (run, requests) = stage.fork_and_wait(&change).await?.remove(0);
    let asked: Value = serde_json::from_slice(&requests[0])?;
    ensure!(asked["model"] == "other", "{asked}");
    let history = stage.coordinator.run_history(run).await?;
    let forked = history.events.iter().find_map(|event| match event {
        RunEvent::Forked(Forked { models, .. }) => models.clone(),
        _ => None,
    });
    let terms = forked.context("models are pinned anew")?.terms;
    ensure!(
        (terms.priced, terms.prices.output_nusd, terms.context_tokens) == (true, 5000, 100_000),
        "{terms:?}"
    );
    history.verify(stage.coordinator.client()).await?;
    let shown = stage.coordinator.run_docket(&["show", &run.to_string(), "--json"]).await?.into_stdout()?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["model"].as_str().is_some_and(|model| model.starts_with("openai:other")), "{shown}");
    stage.shut_down().await
}
