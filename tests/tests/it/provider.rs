//! A model's provider that wants a person: the run waits, and nothing that was paid is bought again.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::WhyKind,
    ids::{QueueName, RunId},
    run::RunEvent,
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, run_program, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

/// Two turns that are paid, one that is refused once, one that ends it.
fn provider_script(fault: &str) -> String {
    format!(
        r#"
[[turns]]
calls = [{{ name = "create_file", args = {{ path = "a.txt", content = "a\n" }} }}]
[[turns]]
calls = [{{ name = "run_command", args = {{ command = "echo b >> a.txt" }} }}]
[[turns]]
calls = [{{ name = "run_command", args = {{ command = "echo c >> a.txt" }} }}]
fault = {{ kind = "{fault}", times = 1 }}
[[turns]]
text = "Done."
"#
    )
}

async fn wait_until_resting(
    coordinator: &CoordinatorProcess,
    task: docket_schema::ids::TaskId,
) -> Result<TaskRecord> {
    let rests = wait_until("a task that rests", async || {
        let task = coordinator.client().get_task(task).await.ok()?.task;
        (task.state.is_ended() || task.state == TaskState::Blocked).then_some(task)
    });
    rests.await.with_context(|| coordinator.log_tail())
}

/// `fault` at the third turn: one request of it, one run that waits; a person mends the cause and says go on.
async fn check_waits_and_continues(
    provider: ModelProvider,
    fault: &str,
    told: &str,
    act: &str,
) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(provider_script(fault).as_bytes())?).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e a.txt"];
    let (template, mut spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    spec.backoff = docket_schema::task::Backoff { base_ms: 1, max_ms: 1 };
    let queue: QueueName = "paid".parse()?;
    let worker = WorkerProcess::start(
        &coordinator,
        &WorkerOptions { queue: Some(queue.clone()), ..Default::default() },
    )
    .await?;
    let task = coordinator.submit_like(&spec, &queue, server.model_ref(provider, "paid")).await?;

    let stopped = wait_until_resting(&coordinator, task).await?;
    ensure!(
        stopped.state == TaskState::Blocked && stopped.blocked_why == Some(TaskBlockedReason::Provider),
        "{stopped:?}\n{}",
        worker.log_tail()
    );
    let message = stopped.message.clone().unwrap_or_default();
    ensure!(message.contains(told) && message.contains("docket retry"), "{message}");
    ensure!(
        server.call_count() == 3 && stopped.runs == 1 && stopped.failures == 0,
        "{}",
        server.call_count()
    );
    let run = stopped.run.context("a run that can be gone on with")?;

    let said = coordinator.run_docket(&[act, &task.to_string()]).await?;
    ensure!(said.success(), "{said:?}");
    let done = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?.task;
    ensure!(done.state == TaskState::Completed && done.message.is_none(), "{done:?}\n{}", worker.log_tail());
    ensure!(done.last_run == Some(run) && done.runs == 1 && done.failures == 0, "another run: {done:?}");
    let history = coordinator.run_history(run).await?;
    // Four turns and the one that was refused: what was paid before is not asked again.
    ensure!(
        server.call_count() == 5 && history.count_kind("ModelAnswered") == 4,
        "{}",
        history.format_kinds()
    );
    let requests = server.requests();
    ensure!(requests[2].body == requests[3].body, "the turn that was refused is asked to the byte");
    history.verify(coordinator.client()).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_anthropic_credit_blocks_for_a_person() -> Result<()> {
    Box::pin(check_waits_and_continues(
        ModelProvider::Anthropic,
        "spend_limit",
        "credit balance is too low",
        "retry",
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_openai_quota_blocks_for_a_person() -> Result<()> {
    Box::pin(check_waits_and_continues(ModelProvider::OpenAi, "spend_limit", "insufficient_quota", "answer"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_openai_responses_quota_blocks_for_a_person() -> Result<()> {
    Box::pin(check_waits_and_continues(
        ModelProvider::OpenAiResponses,
        "spend_limit",
        "insufficient_quota",
        "retry",
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_refused_once_is_retried_in_the_same_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server =
        ModelServer::start(ScriptedModel::parse(provider_script("unauthorized").as_bytes())?).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e a.txt"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "paid".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..Default::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let model = server.model_ref(ModelProvider::Anthropic, "paid");
    let task = coordinator.submit_like(&spec, &queue, model).await?;
    let done = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?.task;
    ensure!(done.state == TaskState::Completed, "{done:?}\n{}", worker.log_tail());
    ensure!(done.runs == 1 && done.failures == 0 && done.crashes == 0, "{done:?}");
    let history = coordinator.run_history(done.last_run.context("a run")?).await?;
    // Four turns and the one that was refused, which leaves nothing in the run's log.
    ensure!(
        server.call_count() == 5 && history.count_kind("ModelAnswered") == 4,
        "{}",
        history.format_kinds()
    );
    ensure!(history.count_kind("ModelFailed") == 0, "{}", history.format_kinds());
    let requests = server.requests();
    ensure!(requests[2].body == requests[3].body, "the turn that was refused is asked to the byte");
    history.verify(coordinator.client()).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Told at once, by a run that asked nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_key_blocks_the_run_before_any_request() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    for (model, variable) in [
        ("anthropic:x", "ANTHROPIC_API_KEY"),
        ("openai:x", "OPENAI_API_KEY"),
        ("openai-responses:x", "OPENAI_API_KEY"),
    ] {
        let env = [("DOCKET_HOME", home.path().as_os_str()), (variable, "".as_ref())];
        let done = run_program(
            TestProgram::Docket,
            home.path(),
            &env,
            &["run", "Do it", "--empty", "--model", model],
        )
        .await?;
        let told = [variable, "is not set"].iter().all(|word| done.stderr.contains(word));
        ensure!(done.code() == Some(2) && told, "{done:?}");
    }
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let rows = run_program(TestProgram::Docket, home.path(), &env, &["ps", "--json"]).await?.into_stdout()?;
    ensure!(rows.trim().is_empty(), "no task was made: {rows}");
    Ok(())
}

/// Whoever may submit tasks names servers; whoever owns the worker says which of them it speaks to, and with its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_key_is_sent_only_to_listed_servers() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(b"[[turns]]\ntext = \"Done.\"\n")?).await?;
    let env = vec![("DOCKET_BASE_URLS".to_owned(), String::new())];
    let worker =
        WorkerProcess::start(&coordinator, &WorkerOptions { env, ..WorkerOptions::default() }).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let near = server.base_url(ModelProvider::OpenAi);
    let (task, _) = sample.submit(&coordinator, &["--model", "openai:x", "--base-url", &near]).await?;
    let fault_named = async |task| {
        let named = wait_until("a fault of the worker", async || {
            let why = coordinator.client().explain_task(task).await.ok()?;
            (why.kind == WhyKind::WorkerFault).then_some(why.text)
        });
        named.await.with_context(|| worker.log_tail())
    };
    let told = fault_named(task).await?;
    // The server asks for the key, and echoes what it got.
    ensure!(told.contains("status 401"), "{told}");
    ensure!(told.contains("worker.base_urls") && !told.contains("incorrect API key"), "{told}");
    let far = "http://192.0.2.1/v1";
    let (task, _) = sample.submit(&coordinator, &["--model", "openai:x", "--base-url", far]).await?;
    let told = fault_named(task).await?;
    ensure!(told.contains(far) && told.contains("worker.base_urls"), "{told}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Has a task done by a worker with this key at a local server that takes it; gives what the run recorded.
async fn run_with_key(key: &str, script: &str) -> Result<(CoordinatorProcess, RunId, Vec<RunEvent>)> {
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
    server.accept_key(key);
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let (template, mut spec) =
        sample.submit(&coordinator, &["--model", "openai:template", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    spec.attempts_max = 1;
    let env = vec![("OPENAI_API_KEY".to_owned(), key.to_owned())];
    let queue: QueueName = "local".parse()?;
    let options = WorkerOptions { env, queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let model = server.model_ref(ModelProvider::OpenAi, "local");
    let task = coordinator.submit_like(&spec, &queue, model).await?;
    let done = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?.task;
    let run = done.last_run.context("a run")?;
    let history = coordinator.run_history(run).await?;
    history.verify(coordinator.client()).await?;
    worker.drain().await?;
    Ok((coordinator, run, history.events))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_letter_key_does_not_redact_the_refusal() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = "[[turns]]\nfault = { kind = \"context_too_long\", times = 1 }\ntext = \"Done.\"\n";
    let (coordinator, _, events) = run_with_key("x", script).await?;
    let failed: Vec<&str> = events
        .iter()
        .filter_map(
            |event| if let RunEvent::ModelFailed(failed) = event { Some(&*failed.error) } else { None },
        )
        .collect();
    ensure!(failed == ["context_too_long"], "{failed:?}");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placeholder_key_is_not_redacted() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "pull.sh", content = "ollama pull llama3\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "cat pull.sh && echo with ollama" } }]
[[turns]]
text = "Done."
"#;
    let (coordinator, run, events) = run_with_key("ollama", script).await?;
    let said = format!("{events:?}");
    ensure!(said.contains("ollama pull llama3") && said.contains("with ollama"), "{said}");
    ensure!(!said.contains("REDACTED"), "{said}");
    let file = coordinator.run_docket(&["cat", &run.to_string(), "pull.sh"]).await?.into_stdout()?;
    ensure!(file == "ollama pull llama3\n", "{file}");
    coordinator.end_and_check().await
}
