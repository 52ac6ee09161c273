//! Secrets of a repository, of a task and of the worker: none of them in a prompt or an event, all of them where they
//! were in the files.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    blob_refs::{BlobRole, event_blobs},
    event::TypedEvent as _,
    ids::QueueName,
    run::{RunEvent, ToolStatus},
    task::TaskState,
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

/// Put together here, so that no scanner takes this file for a leak.
fn sample_secrets() -> [(&'static str, String); 4] {
    let random = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK9m";
    [
        ("GitHub token", format!("ghp_{}", &random[..36])),
        ("AWS key", format!("AKIA{}", "QWERTZ1234567890")),
        ("OpenAI key", format!("sk-proj-{random}")),
        ("configured value", "correct-horse-battery".to_owned()),
    ]
}

/// It reads the secrets in each way there is, and tries to write back what it was shown.
const SCRIPT: &str = r#"
[[turns]]
text = "PLAN:\n- [x] look"
calls = [
  { name = "read_file", args = { path = "deploy.sh" } },
  { name = "search_codebase", args = { regex = "TOKEN=" } },
]
[[turns]]
calls = [{ name = "run_command", args = { command = "cat deploy.sh; for i in $(seq 900); do echo line $i of what is said; done; cat deploy.sh >&2; exit 3" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "printf 'x%.0s' $(seq 1970); echo; grep -o 'ghp_.*' deploy.sh; printf 'y%.0s' $(seq 4000)" } }]
[[turns]]
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "deploy.sh"
edits = [{ search = "echo start", replace = "echo start [REDACTED: GitHub token]" }]
[[turns]]
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "deploy.sh"
edits = [{ search = "echo start", replace = "echo begin" }]
[[turns]]
text = "Pass correct-horse-battery, key SERVERS-KEY."
[[turns.calls]]
name = "run_command"
args = { command = "echo 'correct-horse-battery SERVERS-KEY' | wc -c" }
[[turns]]
text = "BLOCKED: which account?"
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_redacted_in_prompts_and_events_but_kept_in_files() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let [github, aws, openai, configured] = sample_secrets();
    let deploy = format!("#!/bin/sh\nTOKEN={}\nPASS={}\necho start\n", github.1, configured.1);
    let env = [("DOCKET_REDACT", "DEPLOY_PASS"), ("DEPLOY_PASS", configured.1.as_str())];
    let coordinator =
        CoordinatorProcess::start_with_env(StoreLocation::HomeFolder, LeaseDuration::Usual, &env).await?;
    // A server that echoes the key it was called with, in an answer that is none of a refusal.
    let script = SCRIPT.replace("SERVERS-KEY", ModelServer::DEFAULT_KEY);
    let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
    let rules = format!("Deploy with {}.\n", openai.1);
    let sample = SampleRepository::new(&[("deploy.sh", &deploy), ("AGENTS.md", &rules)])?;
    let args =
        ["--model", "openai:template", "--queue", "template", "--attempts", "1", "--tests", "cat deploy.sh"];
    let (template, mut spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    spec.text = format!("Use {} to deploy.", aws.1);
    spec.title = format!("Deploy {} as {}", aws.1, configured.1);
    spec.setup = vec!["cat deploy.sh".to_owned()];
    let queue: QueueName = "secrets".parse()?;
    let options = WorkerOptions {
        queue: Some(queue.clone()),
        settings: "[worker]\nredact = [\"DEPLOY_PASS\"]\n".to_owned(),
        env: vec![("DEPLOY_PASS".to_owned(), configured.1.clone())],
        ..WorkerOptions::default()
    };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::Anthropic, "x")).await?;
    let blocked = wait_until("a run that asks", async || {
        let record = coordinator.client().get_task(task).await.ok()?.task;
        (record.state == TaskState::Blocked || record.state.is_ended()).then_some(record)
    });
    let blocked = blocked.await.with_context(|| worker.log_tail())?;
    ensure!(blocked.state == TaskState::Blocked, "{:?}", blocked.message);
    let run = blocked.run.context("a run")?.to_string();
    coordinator
        .run_docket(&["answer", &run, &format!("that of {}, which is {}", github.1, configured.1)])
        .await?
        .into_stdout()?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);

    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    let results: Vec<_> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ToolFinished(result) => Some(result),
            _ => None,
        })
        .collect();
    let statuses: Vec<ToolStatus> = results.iter().map(|result| result.status).collect();
    use ToolStatus::{Error, Ok as Done};
    let expected = [Done, Done, Done, Done, Error, Done, Done];
    ensure!(statuses == expected, "{statuses:?}");
    ensure!(results[2].full.is_some(), "the command said more than is shown");

    // Every event, every blob that holds words of it, every request.
    let mut said: Vec<(String, Vec<u8>)> = Vec::new();
    for (envelope, event) in history.envelopes.iter().zip(&history.events) {
        said.push((event.kind().to_owned(), envelope.payload.as_str().as_bytes().to_vec()));
        for named in event_blobs(envelope)?.iter().filter(|named| named.role == BlobRole::Required) {
            if matches!(event, RunEvent::RunStarted(started) if started.base.manifest == named.blob) {
                continue;
            }
            let bytes = coordinator.client().get_blob(&named.blob).await;
            // A base's pack, which holds files as they are.
            let Ok(bytes) = bytes else { continue };
            if !matches!(event, RunEvent::RunStarted(started) if !is_prompt_blob(started, named.blob)) {
                said.push((format!("a blob of {}", event.kind()), bytes.to_vec()));
            }
        }
    }
    let task = coordinator.client().get_task(task).await?;
    said.push(("the task".to_owned(), serde_json::to_vec(&task)?));
    said.extend(server.requests().into_iter().map(|asked| ("a request".to_owned(), asked.body.to_vec())));
    let holds = |bytes: &[u8], part: &str| String::from_utf8_lossy(bytes).contains(part);
    for (kind, secret) in sample_secrets() {
        for (what, bytes) in &said {
            // Nor its first half: a result is cut in its middle.
            let half = &secret[..secret.len() / 2];
            ensure!(!holds(bytes, half), "{what} holds a {kind}: {}", String::from_utf8_lossy(bytes));
        }
        let mark = format!("[REDACTED: {kind}]");
        ensure!(said.iter().any(|(what, bytes)| what == "a request" && holds(bytes, &mark)), "{mark}");
    }
    for (what, bytes) in &said {
        ensure!(!holds(bytes, ModelServer::DEFAULT_KEY), "{what} holds the worker's key");
    }
    ensure!(!worker.log_tail().contains(&configured.1));

    // The file, as it was but for the edit.
    let cat = coordinator
        .run_docket(&["cat", &view.task.last_run.context("a run")?.to_string(), "deploy.sh"])
        .await?;
    ensure!(cat.into_stdout()? == deploy.replace("echo start", "echo begin"));
    worker.drain().await?;
    coordinator.end_and_check().await
}

fn is_prompt_blob(started: &docket_schema::run::RunStarted, blob: docket_schema::content::BlobRef) -> bool {
    let prompts = &started.prompts;
    [prompts.system, prompts.tools, prompts.task].contains(&blob)
}
