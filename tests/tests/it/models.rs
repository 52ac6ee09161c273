//! Several models in one run, budgets, and what goes wrong with a provider: whole runs over real HTTP, in every
//! protocol, each proven afterwards.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{ModelAnswered, ModelRequested, RunEvent},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, wait_until,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};
use serde_json::Value;

pub(crate) const PROTOCOLS: [ModelProvider; 3] =
    [ModelProvider::Anthropic, ModelProvider::OpenAi, ModelProvider::OpenAiResponses];

/// What the models of these tests cost: the main one ten times what the cheap one does.
pub(crate) fn price_settings() -> String {
    let of = |name: &str, price: u32| {
        format!(
            "[prices.\"{name}\"]\ninput = \"{price}\"\noutput = \"{price}\"\ncache_read = \"0\"\n\
             cache_write = \"{price}\"\ncontext_tokens = 100_000\noutput_tokens_max = 4000\n"
        )
    };
    ["openai", "anthropic"]
        .map(|provider| {
            let model = |name: &str| format!("{provider}:{name}");
            of(&model("main"), 10) + &of(&model("cheap"), 1) + &of(&model("spare"), 2)
        })
        .concat()
}

pub(crate) struct ModelFixture {
    pub(crate) coordinator: CoordinatorProcess,
    pub(crate) server: ModelServer,
    pub(crate) worker: WorkerProcess,
    provider: ModelProvider,
}

impl ModelFixture {
    /// A server with these scripts by model, and a worker with these settings.
    pub(crate) async fn new(
        provider: ModelProvider,
        scripts: &[(&str, &str)],
        settings: &str,
    ) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let mut by_model = BTreeMap::new();
        for (name, script) in scripts {
            by_model.insert((*name).to_owned(), ScriptedModel::parse(script.as_bytes())?);
        }
        let server = ModelServer::start_by_model(by_model).await?;
        // Whoever submits and whoever works know the same prices.
        std::fs::write(coordinator.home().join("docket.toml"), price_settings())?;
        let settings = format!("{settings}\n{}", price_settings());
        let worker =
            WorkerProcess::start(&coordinator, &WorkerOptions { settings, ..Default::default() }).await?;
        Ok(Self { coordinator, server, worker, provider })
    }

    /// A task with these flags, as it rests or has ended.
    pub(crate) async fn submit_and_wait(&self, more: &[&str]) -> Result<TaskRecord> {
        let sample = SampleRepository::new(&[("long.txt", &"a line to be read\n".repeat(60))])?;
        let named = |name: &str| format!("{}:{name}", self.provider.name());
        let (model, url) = (named("main"), self.server.base_url(self.provider));
        let more: Vec<String> =
            more.iter().map(|arg| arg.strip_prefix('@').map_or_else(|| (*arg).to_owned(), named)).collect();
        let mut args = vec!["--model", &model, "--base-url", &url, "--tests", "test -e a.txt"];
        args.extend(more.iter().map(String::as_str));
        let (task, _) = sample.submit(&self.coordinator, &args).await?;
        self.wait_until_resting(task).await
    }

    pub(crate) async fn wait_until_resting(&self, task: docket_schema::ids::TaskId) -> Result<TaskRecord> {
        let rests = wait_until("a task that rests", async || {
            let task = self.coordinator.client().get_task(task).await.ok()?.task;
            let waits = matches!(task.state, TaskState::Blocked | TaskState::Retryable);
            (task.state.is_ended() || waits).then_some(task)
        });
        rests.await.with_context(|| self.worker.log_tail())
    }

    /// The whole history of its run, proven.
    pub(crate) async fn verified_history(&self, task: &TaskRecord) -> Result<RunHistory> {
        let run = task.run.or(task.last_run).context("a run")?;
        let history = self.coordinator.run_history(run).await?;
        history.verify(self.coordinator.client()).await?;
        Ok(history)
    }

    /// The models that were asked, in order.
    pub(crate) fn requested_models(&self) -> Result<Vec<String>> {
        let name = |body: &[u8]| -> Result<String> {
            let body: Value = serde_json::from_slice(body)?;
            Ok(body["model"].as_str().context("a model")?.to_owned())
        };
        self.server.requests().iter().map(|request| name(&request.body)).collect()
    }

    pub(crate) async fn shut_down(self) -> Result<()> {
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

fn model_calls(history: &RunHistory) -> Vec<(&ModelRequested, Option<&ModelAnswered>)> {
    let asked = history.events.iter().filter_map(|event| match event {
        RunEvent::ModelRequested(e) => Some(e),
        _ => None,
    });
    let answer = |call: &ModelRequested| {
        history.events.iter().find_map(|event| match event {
            RunEvent::ModelAnswered(e) if e.call == call.call => Some(e),
            _ => None,
        })
    };
    asked.map(|asked| (asked, answer(asked))).collect()
}

const CHEAP: &str = r#"
[[turns]]
thinking = "a cheap thought"
calls = [{ name = "list_files" }]
[[turns]]
thinking = "a second one"
calls = [{ name = "read_file", args = { path = "long.txt" } }, { name = "create_file", args = { path = "a.txt", content = "cheap\n" } }]
"#;
const MAIN: &str = r#"
[[turns]]
text = "It is not asked here."
[[turns]]
text = "It is not asked here."
[[turns]]
when = { last_result_contains = "changes are not this model's" }
calls = [{ name = "create_file", args = { path = "a.txt", content = "main\n" } }]
[[turns]]
text = "Done."
"#;

/// A cheap model explores, the main one changes; each costs what it costs, and hears only its own thoughts.
async fn check_explore_model(provider: ModelProvider) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(provider, &[("cheap", CHEAP), ("main", MAIN)], "").await?;
    let task = stage.submit_and_wait(&["--explore-model", "@cheap"]).await?;
    ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.log_tail());
    ensure!(
        stage.requested_models()? == ["cheap", "cheap", "main", "main"],
        "{:?}",
        stage.requested_models()?
    );
    let history = stage.verified_history(&task).await?;
    let mut sum = 0;
    for (asked, answered) in model_calls(&history) {
        let answered = answered.context("an answer")?;
        let nusd = if asked.model.name == "main" { 10_000 } else { 1000 };
        let tokens = answered.usage.input_tokens + answered.usage.output_tokens;
        ensure!(tokens > 0 && answered.cost_nusd == tokens * nusd, "{answered:?}");
        sum += answered.cost_nusd;
    }
    let run = task.last_run.context("a run")?.to_string();
    let shown: Value =
        serde_json::from_str(&stage.coordinator.run_docket(&["show", &run, "--json"]).await?.into_stdout()?)?;
    let cost = shown["cost_usd"].as_f64().context("a cost")?;
    ensure!((cost * 1e9).round() == sum as f64 && shown["priced"] == true, "{shown}");
    ensure!(shown["model"].as_str().is_some_and(|text| text.contains("cheap explores")), "{shown}");
    let bodies: Vec<String> =
        stage.server.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    ensure!(bodies[1].contains("a cheap thought") && !bodies[2].contains("thought"), "{}", bodies[2]);
    let file = stage.coordinator.run_docket(&["cat", &run, "a.txt"]).await?.into_stdout()?;
    ensure!(file == "main\n", "{file}");
    stage.shut_down().await
}

/// Run processes that die while either model is asked: the same model is asked the same again, with the same bound
/// that the budget set to its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_call_is_repeated_with_the_same_model() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scripts = [("cheap", CHEAP), ("main", MAIN)];
    let args = ["--explore-model", "@cheap"];
    let stage = ModelFixture::new(ModelProvider::OpenAiResponses, &scripts, "").await?;
    let task = stage.submit_and_wait(&args).await?;
    let history = stage.verified_history(&task).await?;
    let used: u64 = model_calls(&history)
        .iter()
        .filter_map(|(_, answer)| answer.map(|answer| answer.usage.input_tokens + answer.usage.output_tokens))
        .sum();
    let seq_of = |nth: usize| {
        let mut asked = history.envelopes.iter().filter(|event| event.kind == "ModelRequested");
        asked.nth(nth).map(|event| event.seq.0).context("a request")
    };
    let at = |seq, epoch| Failpoint { seq, when: FailpointTiming::After, epoch, whom: FailpointTarget::Run };
    // A recovery is an event more before the second.
    let failpoints = vec![at(seq_of(1)?, 1), at(seq_of(3)? + 1, 2)];
    stage.worker.drain().await?;
    let settings = price_settings();
    let options = WorkerOptions { settings, failpoints, ..Default::default() };
    let worker = WorkerProcess::start(&stage.coordinator, &options).await?;
    let stage = ModelFixture { worker, ..stage };
    let before = stage.server.call_count();
    // All calls fit; the last one cannot have the largest answer.
    let budget = (used + 1500).to_string();
    let again = stage.submit_and_wait(&["--explore-model", "@cheap", "--max-tokens", &budget]).await?;
    ensure!(again.state == TaskState::Completed, "{again:?}\n{}", stage.worker.log_tail());
    let history = stage.verified_history(&again).await?;
    ensure!(history.count_kind("RunRecovered") == 2, "{}", history.format_kinds());
    let asked = stage.requested_models()?.split_off(usize::try_from(before)?);
    // They died before they asked: nobody is asked twice.
    ensure!(asked == ["cheap", "cheap", "main", "main"], "{asked:?}");
    let bounds: Vec<Option<u32>> =
        model_calls(&history).iter().map(|(asked, _)| asked.output_tokens_max).collect();
    ensure!(bounds[3].is_some(), "{bounds:?}");
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore_model_reads_and_main_model_edits_with_anthropic() -> Result<()> {
    Box::pin(check_explore_model(ModelProvider::Anthropic)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explore_model_reads_and_main_model_edits_with_responses() -> Result<()> {
    Box::pin(check_explore_model(ModelProvider::OpenAiResponses)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fallback_model_replaces_an_overloaded_model_for_a_while() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let main = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Not heard."
fault = { kind = "overloaded", times = 99 }
[[turns]]
text = "Not heard."
fault = { kind = "server_error", times = 99 }
[[turns]]
text = "Done."
"#;
    let spare = r#"
[[turns]]
text = "It is not asked here."
[[turns]]
calls = [{ name = "run_command", args = { command = "echo 2 >> a.txt" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo 3 >> a.txt" } }]
"#;
    let scripts = [("main", main), ("spare", spare)];
    let stage =
        ModelFixture::new(ModelProvider::OpenAi, &scripts, "[run]\nfallback_after = 2\nfallback_turns = 1\n")
            .await?;
    let task = stage.submit_and_wait(&["--fallback-model", "@spare"]).await?;
    ensure!(task.state == TaskState::Completed && task.runs == 1, "{task:?}\n{}", stage.worker.log_tail());
    // Two overloads, then the other; after its turn one attempt; and back.
    let expected = ["main", "main", "main", "spare", "main", "spare", "main"];
    ensure!(stage.requested_models()? == expected, "{:?}", stage.requested_models()?);
    let history = stage.verified_history(&task).await?;
    ensure!(
        history.count_kind("ModelFailed") == 3 && history.count_kind("ModelAnswered") == 4,
        "{}",
        history.format_kinds()
    );
    let run = task.last_run.context("a run")?.to_string();
    ensure!(stage.coordinator.run_docket(&["cat", &run, "a.txt"]).await?.into_stdout()? == "1\n2\n3\n");
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_end_a_run_before_the_call_that_would_exceed_them() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
after_end = "repeat_last"
[[turns]]
calls = [{ name = "run_command", args = { command = "sleep 1.2; echo {{turn}} > a.txt" } }]
"#;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", script)], "").await?;
    // What the first request counts, its fourth byte a token.
    let probe = stage.submit_and_wait(&["--turns", "1", "--attempts", "1"]).await?;
    ensure!(probe.state == TaskState::Discarded && stage.server.call_count() == 1, "{probe:?}");
    ensure!(probe.message.as_deref().is_some_and(|said| said.contains("cap of 1 turns")), "{probe:?}");
    let tokens = stage.server.requests()[0].body.len() / 4;
    let (twice, dollars) = ((tokens * 19 / 10).to_string(), format!("{:.3}", tokens as f64 * 10e-6 * 1.9));
    for (flag, value, said) in [
        ("--max-tokens", twice.as_str(), "does not pay for another call"),
        ("--max-cost", &dollars, "does not pay for another call: $"),
        ("--max-time", "1s", "the budget of time is used up"),
    ] {
        let before = stage.server.call_count();
        let task = stage.submit_and_wait(&[flag, value]).await?;
        let message = task.message.clone().unwrap_or_default();
        ensure!(message.contains(said), "{flag} {value}: {message}");
        // Another run would spend it again.
        ensure!(task.state == TaskState::Discarded && task.runs == 1, "{flag}: {task:?}");
        ensure!(
            stage.server.call_count() == before + 1,
            "{flag}: {} calls",
            stage.server.call_count() - before
        );
        stage.verified_history(&task).await?;
    }
    // Whoever goes on with it gives it another.
    let (before, task) = (stage.server.call_count(), stage.submit_and_wait(&["--max-tokens", &twice]).await?);
    let id = task.id.to_string();
    ensure!(stage.coordinator.run_docket(&["resume", &id]).await?.success());
    let again = wait_until("the end of a second run", async || {
        let task = stage.coordinator.client().get_task(task.id).await.ok()?.task;
        (task.state.is_ended() && task.runs == 2).then_some(task)
    });
    let again = again.await.with_context(|| stage.worker.log_tail())?;
    ensure!(again.message.is_some_and(|said| said.contains("does not pay for another call")));
    ensure!(stage.server.call_count() == before + 2, "one call in each budget");
    stage.shut_down().await
}

/// Calls of one answer: those that read together, those that change in their order, all results in that of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_answer_are_recorded_in_order() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
[[turns]]
calls = [
    { name = "read_file", args = { path = "long.txt" } },
    { name = "list_files" },
    { name = "create_file", args = { path = "a.txt", content = "one\n" } },
    { name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "two" }] } },
    { name = "run_command", args = { command = "echo three >> a.txt" } },
    { name = "read_file", args = { path = "a.txt" } },
    { name = "search_codebase", args = { regex = "three" } },
]
[[turns]]
when = { last_result_contains = "three" }
text = "Done."
"#;
    let stage = ModelFixture::new(ModelProvider::OpenAiResponses, &[("main", script)], "").await?;
    let task = stage.submit_and_wait(&[]).await?;
    ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.log_tail());
    let history = stage.verified_history(&task).await?;
    let mut finished = Vec::new();
    for event in &history.events {
        if let RunEvent::ToolFinished(e) = event {
            finished.push((e.call.to_string(), format!("{:?}", e.content)));
        }
    }
    let order: Vec<&str> = finished.iter().map(|(call, _)| call.as_str()).collect();
    ensure!(order == ["t1-0", "t1-1", "t1-2", "t1-3", "t1-4", "t1-5", "t1-6"], "{order:?}");
    for (at, holds) in [(0, "a line to be read"), (1, "long.txt"), (5, "two"), (5, "three"), (6, "a.txt")] {
        ensure!(finished[at].1.contains(holds), "{at} lacks {holds}: {}", finished[at].1);
    }
    stage.shut_down().await
}

/// Every fault that a run outlives, each in a turn of its own; a turn that is not told what it must be has no line.
const FAULTS: &str = r#"
[[turns]]
text = "PLAN:\n- [x] all of it"
calls = [{ name = "read_file", args = { path = "long.txt" } }]
fault = { kind = "rate_limited", retry_after_ms = 120 }
[[turns]]
calls = [{ name = "read_file", args = { path = "long.txt", start_line = 2 } }]
fault = { kind = "rate_limited" }
[[turns]]
calls = [{ name = "run_command", args = { command = "echo once >> a.txt" } }]
fault = { kind = "reset" }
[[turns]]
calls = [{ name = "run_command", args = { command = "echo once >> a.txt" } }]
fault = { kind = "cut_stream" }
[[turns]]
calls = [{ name = "run_command", args = { command = "echo once >> a.txt" } }]
fault = { kind = "error_in_stream" }
[[turns]]
calls = [{ name = "read_file", args = { path = "long.txt", start_line = 3 } }]
fault = { kind = "server_error" }
[[turns]]
calls = [{ name = "read_file", args = { path = "long.txt", start_line = 4 } }]
fault = { kind = "overloaded" }
[[turns]]
calls = [{ name = "create_file", args = { path = "b.txt", content = "b" } }]
fault = { kind = "malformed_arguments" }
[[turns]]
when = { last_result_contains = "not a JSON object" }
calls = [{ name = "create_file", args = { path = "b.txt", content = "b" } }]
fault = { kind = "unknown_tool" }
[[turns]]
when = { last_result_contains = "there are read_file, edit_file" }
calls = [{ name = "create_file", args = { path = "b.txt", content = "b" } }]
fault = { kind = "empty" }
[[turns]]
calls = [{ name = "create_file", args = { path = "c.txt", content = "a very long file" } }]
fault = { kind = "output_limit" }
[[turns]]
when = { last_result_contains = "do it in smaller parts" }
calls = [{ name = "create_file", args = { path = "c.txt", content = "c" } }]
delay_ms = 1200
[[turns]]
text = "I am done with more than half of"
fault = { kind = "output_limit" }
[[turns]]
when = { last_text_contains = "smaller parts" }
calls = [{ name = "run_command", args = { command = "echo once >> a.txt" } }]
fault = { kind = "context_too_long" }
[[turns]]
text = "Done."
"#;

async fn check_faults_are_survived(provider: ModelProvider) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(provider, &[("main", FAULTS)], "").await?;
    let task = stage.submit_and_wait(&[]).await?;
    ensure!(
        task.state == TaskState::Completed && task.runs == 1,
        "{provider:?} {task:?}\n{}",
        stage.worker.log_tail()
    );
    let history = stage.verified_history(&task).await?;
    let mut failed = Vec::new();
    for event in &history.events {
        if let RunEvent::ModelFailed(e) = event {
            failed.push((e.error.as_str(), e.retry_in_ms));
        }
    }
    let kinds: Vec<&str> = failed.iter().map(|(kind, _)| *kind).collect();
    let expected = [
        "rate_limited",
        "rate_limited",
        "cut_stream",
        "cut_stream",
        "overloaded",
        "server",
        "overloaded",
        "context_too_long",
    ];
    ensure!(kinds == expected, "{provider:?}: {kinds:?}");
    // What the provider asks for is kept, within a quarter of a second; else a wait of our own; no wait helps the last.
    ensure!(failed[0].1.is_some_and(|ms| (120..=370).contains(&ms)), "{failed:?}");
    ensure!(failed[1..7].iter().all(|(_, ms)| ms.is_some_and(|ms| ms <= 500)), "{failed:?}");
    ensure!(
        failed[7].1.is_none() && history.count_kind("Compacted") == 1,
        "{failed:?} {}",
        history.format_kinds()
    );
    // Nothing was done twice: four lines, of which three came behind a broken answer.
    let run = task.last_run.context("a run")?.to_string();
    let file = stage.coordinator.run_docket(&["cat", &run, "a.txt"]).await?.into_stdout()?;
    ensure!(file == "once\n".repeat(4), "{file}");
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_survives_provider_faults_with_anthropic() -> Result<()> {
    Box::pin(check_faults_are_survived(ModelProvider::Anthropic)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_survives_provider_faults_with_chat_completions() -> Result<()> {
    Box::pin(check_faults_are_survived(ModelProvider::OpenAi)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_survives_provider_faults_with_responses() -> Result<()> {
    Box::pin(check_faults_are_survived(ModelProvider::OpenAiResponses)).await
}

/// A refusal is told to a person, and what cannot be mended is asked once: in every protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_model_errors_are_not_retried() -> Result<()> {
    let refuses = r#"
[[turns]]
text = "I will not do that."
fault = { kind = "refusal" }
[[turns]]
when = { any_contains = "our own server" }
calls = [{ name = "create_file", args = { path = "a.txt", content = "x" } }]
[[turns]]
text = "Done."
"#;
    let too_long = "[[turns]]\ntext = 'x'\nfault = { kind = 'context_too_long', times = 99 }\n";
    let wrong = "[[turns]]\nwhen = { any_contains = 'never said' }\ntext = 'x'\n";
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("main", refuses)], "").await?;
        let task = stage.submit_and_wait(&[]).await?;
        let why = task.blocked_why;
        ensure!(task.state == TaskState::Blocked && why == Some(TaskBlockedReason::Person), "{task:?}");
        let message = task.message.clone().unwrap_or_default();
        ensure!(message.contains("refuses") && message.contains("I will not do that."), "{message}");
        let said =
            stage.coordinator.run_docket(&["answer", &task.id.to_string(), "It is our own server."]).await?;
        ensure!(said.success(), "{said:?}");
        let done = stage.coordinator.wait_until_ended(task.id).await?.task;
        ensure!(done.state == TaskState::Completed && stage.server.call_count() == 3, "{done:?}");
        stage.verified_history(&done).await?;
        stage.shut_down().await?;
        for (script, told) in [(too_long, "too long"), (wrong, "no alternative")] {
            let stage = ModelFixture::new(provider, &[("main", script)], "").await?;
            let task = stage.submit_and_wait(&["--attempts", "1"]).await?;
            let message = task.message.clone().unwrap_or_default();
            ensure!(task.state == TaskState::Discarded && message.contains(told), "{task:?}");
            ensure!(
                stage.server.call_count() == 1,
                "{provider:?} {told}: {} calls",
                stage.server.call_count()
            );
            stage.shut_down().await?;
        }
    }
    Ok(())
}
