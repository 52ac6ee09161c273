//! Policy on a real run: what is denied is an event and told to the model, and what is asked about waits for a person.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    content::Content,
    ids::QueueName,
    run::{PolicyVerdict, RunEvent, ToolStatus},
    task::TaskState,
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, fresh_database, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

const SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo first > made; git push origin main" }
[[turns.calls]]
name = "run_command"
args = { command = "echo second > made" }
[[turns.calls]]
name = "run_command"
args = { command = "rm old.txt" }

[[turns]]
text = "Done."
"#;

const POLICY: &str = r#"
[[policy.rules]]
id = "no-push"
verdict = "deny"
commands = ["git push *"]
reason = "results are taken from the workspace"
matches = ["cd a && git push"]
misses = ["git status"]

[[policy.rules]]
id = "deletes"
verdict = "ask"
labels = ["deletes"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_calls_are_recorded_and_asked_calls_wait_for_a_person() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("old.txt", "old\n")])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:x", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "policy".parse()?;
    let options =
        WorkerOptions { queue: Some(queue.clone()), settings: POLICY.to_owned(), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::Anthropic, "x")).await?;
    let blocked = wait_until("a run that asks", async || {
        let record = coordinator.client().get_task(task).await.ok()?.task;
        (record.state == TaskState::Blocked || record.state.is_ended()).then_some(record)
    });
    let blocked = blocked.await.with_context(|| worker.log_tail())?;
    ensure!(blocked.state == TaskState::Blocked, "{:?}", blocked.message);
    let run = blocked.run.context("a run")?;
    let shown = coordinator.run_docket(&["show", &run.to_string()]).await?.into_stdout()?;
    ensure!(shown.contains("rule `deletes`") && shown.contains("rm old.txt"), "{shown}");
    coordinator.run_docket(&["answer", &run.to_string(), "yes"]).await?.into_stdout()?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);

    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    let (mut verdicts, mut results) = (Vec::new(), Vec::new());
    for event in &history.events {
        if let RunEvent::ToolRequested(asked) = event {
            verdicts.push(match &asked.policy {
                PolicyVerdict::Allow { rule } => format!("allow {rule}"),
                PolicyVerdict::Deny { rule, .. } => format!("deny {rule}"),
                PolicyVerdict::Ask { rule, .. } => format!("ask {rule}"),
            });
        } else if let RunEvent::ToolFinished(finished) = event {
            let Content::Text(text) = &finished.content else { anyhow::bail!("not in line") };
            results.push((finished.status, text.clone()));
        }
    }
    ensure!(verdicts == ["deny no-push", "allow default", "allow deletes"], "{verdicts:?}");
    ensure!(results[0].0 == ToolStatus::Refused && results[2].0 == ToolStatus::Ok, "{results:?}");
    ensure!(
        results[0].1.contains("results are taken from the workspace: git push origin main"),
        "{results:?}"
    );
    // Of a line that holds what is denied nothing was run.
    let made = coordinator.run_docket(&["cat", &run.to_string(), "made"]).await?.into_stdout()?;
    ensure!(made == "second\n", "{made}");
    let gone = coordinator.run_docket(&["cat", &run.to_string(), "old.txt"]).await?;
    ensure!(!gone.success(), "{gone:?}");
    let json = coordinator.run_docket(&["show", &run.to_string(), "--json"]).await?.into_stdout()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    ensure!(json["denials"] == 1, "{json}");
    worker.drain().await?;

    coordinator.end_and_check().await
}

async fn check_permission_answers(place: StoreLocation) -> Result<()> {
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("old.txt", "old\n")])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:x", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "policy".parse()?;
    let options =
        WorkerOptions { queue: Some(queue.clone()), settings: POLICY.to_owned(), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::Anthropic, "x")).await?;
    let rests = async || {
        wait_until("a run that asks", async || {
            let record = coordinator.client().get_task(task).await.ok()?.task;
            (record.state == TaskState::Blocked || record.state.is_ended()).then_some(record)
        })
        .await
        .with_context(|| worker.log_tail())
    };
    let asked = rests().await?;
    let run = asked.run.context("a run")?;
    // Words to the run do not hide what it asks.
    coordinator.run_docket(&["tell", &run.to_string(), "take care"]).await?.into_stdout()?;
    for wrong in ["maybe", "sure", "yes, but only this once", "always until noon", "nope", " "] {
        let refused = coordinator.run_docket(&["answer", &task.to_string(), wrong]).await?;
        let says = ["`yes`", "`always`", "`no`", "stays open", &format!("`{wrong}` does not answer that")];
        let said = says.iter().all(|word| refused.stderr.contains(word)) || wrong == " ";
        ensure!(refused.code() == Some(2) && said, "{wrong}: {refused:?}");
        let error = coordinator.client().answer_task(task, wrong).await.err().context("over HTTP as well")?;
        let problem = error.problem().context("an answer of the coordinator's")?;
        ensure!(problem.status == 400 && problem.field.as_deref() == Some("text"), "{wrong}: {problem:?}");
    }
    let still = coordinator.client().get_task(task).await?.task;
    ensure!(
        (still.state, still.seq) == (TaskState::Blocked, asked.seq),
        "the question stays open: {still:?}"
    );
    coordinator.run_docket(&["answer", &task.to_string(), "no,", "keep", "it"]).await?.into_stdout()?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let requests = server.requests();
    let last = String::from_utf8_lossy(&requests.last().context("a request")?.body).into_owned();
    ensure!(last.contains("a person was asked, and says: keep it"), "{last}");
    coordinator.run_history(run).await?.verify(coordinator.client()).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_question_accepts_only_yes_no_and_always() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_permission_answers(StoreLocation::HomeFolder)).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_permission_answers(fresh_database(&cluster).await?)).await
}
