//! `docket answer`: a run that asks a person frees its slot, and goes on where it stood with question and
//! answer before the model.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::TaskView,
    ids::{QueueName, TaskId},
    run::RunEvent,
    task::{TaskBlockedReason, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, fresh_database, poll_until, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

/// Asks after its first turn; the third turn stands on the answer.
const ASKS: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
text = "BLOCKED: which port shall it listen on?\nThe task names two."
[[turns]]
calls = [{ name = "run_command", args = { command = "cat one.txt; echo 8080 > port.txt" } }]
[[turns]]
text = "Done."
"#;

/// Cannot edit a file, three times; with the answer it can.
const STUCK: &str = r#"
[[turns]]
calls = [
    { name = "read_file", args = { path = "a.txt" } },
    { name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "b" }] } },
]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "two", replace = "b" }] } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "three", replace = "b" }] } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "a", replace = "b" }] } }]
[[turns]]
text = "Done."
"#;

const ASKS_NOTHING: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "two.txt", content = "two\n" } }]
[[turns]]
text = "Done."
"#;

const QUESTION: &str = "which port shall it listen on?";
const ANSWER: &str = "Port 8080; the tests use it as well.";

struct AnswerFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
}

impl AnswerFixture {
    async fn wait_until_blocked(&self, task: TaskId) -> Result<TaskView> {
        let rests = wait_until("a task that asks", async || {
            let view = self.coordinator.client().get_task(task).await.ok()?;
            (view.task.state.is_ended() || view.task.state == TaskState::Blocked).then_some(view)
        });
        rests.await.with_context(|| self.worker.log_tail())
    }

    async fn wait_until_ended(&self, task: TaskId) -> Result<TaskView> {
        self.coordinator.wait_until_ended(task).await.with_context(|| self.worker.log_tail())
    }

    async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout()
    }
}

async fn check_question_and_answer(place: StoreLocation) -> Result<()> {
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    let asks = ModelServer::start(ScriptedModel::parse(ASKS.as_bytes())?).await?;
    let other = ModelServer::start(ScriptedModel::parse(ASKS_NOTHING.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:asks", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "asks".parse()?;
    let options = WorkerOptions { slots: 1, queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let stage = AnswerFixture { coordinator, worker };

    let model = asks.model_ref(ModelProvider::OpenAi, "asks");
    let task = stage.coordinator.submit_like(&spec, &queue, model).await?;
    let id = task.to_string();
    let view = stage.wait_until_blocked(task).await?;
    ensure!(view.task.blocked_why == Some(TaskBlockedReason::Person), "{:?}", view.task);
    ensure!(view.runs[0].status == "blocked" && asks.call_count() == 2, "{view:?}");
    let run = view.task.run.context("the run that asks")?;
    poll_until("no run process", || stage.worker.run_processes().is_empty().then_some(())).await?;

    // Its one slot is another's, to that one's end.
    let model = other.model_ref(ModelProvider::OpenAi, "other");
    let second = stage.coordinator.submit_like(&spec, &queue, model).await?;
    let done = stage.wait_until_ended(second).await?.task;
    ensure!(done.state == TaskState::Completed, "{:?}", done.message);
    let refused = stage.coordinator.run_docket(&["answer", &second.to_string(), "x"]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("docket resume"), "{refused:?}");

    // Wherever it is looked at, it says what it asks and how it is answered.
    for looked in [&["ps"][..], &["show", &id], &["show", &run.to_string()]] {
        let shown = stage.docket_output(looked).await?;
        ensure!(shown.contains(QUESTION) && shown.contains("docket answer"), "{looked:?}: {shown}");
        ensure!(shown.contains("The task names two."), "all of it: {shown}");
    }
    let row: Value =
        serde_json::from_str(&stage.docket_output(&["show", &run.to_string(), "--json"]).await?)?;
    ensure!(row["question"].as_str().is_some_and(|text| text.contains(QUESTION)), "{row}");

    let empty = stage.coordinator.run_docket(&["answer", &id, " "]).await?;
    ensure!(empty.code() == Some(2) && empty.stderr.contains("answer it with"), "{empty:?}");
    ensure!(asks.call_count() == 2, "it waits on");
    let file = sample.path().join(".git").join("answer.md");
    std::fs::write(&file, format!("{ANSWER}\n"))?;
    let args = ["answer", &run.to_string(), "--json", "--file", file.to_str().context("UTF-8")?];
    let row: Value = serde_json::from_str(&stage.docket_output(&args).await?)?;
    ensure!(row["id"] == id.as_str() && row["state"] == "available", "{row}");

    let view = stage.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed && view.runs.len() == 1, "{:?}", view.task);
    ensure!(view.task.last_run == Some(run), "the same run went on");
    let counts = (view.task.epoch.0, view.task.failures, view.task.crashes);
    ensure!(counts == (2, 0, 0) && asks.call_count() == 4, "nothing is counted or repeated: {counts:?}");
    let requests = asks.requests();
    ensure!(!String::from_utf8_lossy(&requests[1].body).contains(ANSWER));
    let next = String::from_utf8_lossy(&requests[2].body).into_owned();
    let (question, answer) = (next.find(QUESTION), next.find(ANSWER));
    ensure!(question.is_some() && question < answer, "question, then answer: {next}");

    let history = stage.coordinator.run_history(run).await?;
    history.verify(stage.coordinator.client()).await?;
    let at = history.events.iter().position(|event| matches!(event, RunEvent::RunBlocked(_)));
    let at = at.with_context(|| history.format_kinds())?;
    ensure!(matches!(history.events[at + 1], RunEvent::BlockerAnswered(_)), "{}", history.format_kinds());
    let followed = stage.docket_output(&["follow", &id]).await?;
    for words in [QUESTION, "The task names two.", "docket answer", "answered: Port 8080"] {
        ensure!(followed.contains(words), "{words}: {followed}");
    }
    let listed = stage.docket_output(&["ps"]).await?;
    ensure!(!listed.contains("docket answer"), "nobody asks any more: {listed}");
    stage.worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_asks_frees_its_slot_and_continues_with_the_answer() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_question_and_answer(StoreLocation::HomeFolder)).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_question_and_answer(fresh_database(&cluster).await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_run_asks_by_itself_and_gets_question_and_answer() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(STUCK.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:stuck", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "stuck".parse()?;
    let options = WorkerOptions { slots: 1, queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let stage = AnswerFixture { coordinator, worker };
    let model = server.model_ref(ModelProvider::Anthropic, "stuck");
    let task = stage.coordinator.submit_like(&spec, &queue, model).await?;

    let view = stage.wait_until_blocked(task).await?;
    let message = view.task.message.clone().unwrap_or_default();
    let question = "3 attempts to change `a.txt` failed, in turns 1, 2 and 3.";
    ensure!(
        view.task.blocked_why == Some(TaskBlockedReason::Person) && message.starts_with(question),
        "{view:?}"
    );
    ensure!(server.call_count() == 3, "no fourth attempt is paid for");
    stage.docket_output(&["answer", &task.to_string(), "The file holds one letter."]).await?;
    let view = stage.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed && view.runs.len() == 1, "{:?}", view.task);
    let requests = server.requests();
    let next = String::from_utf8_lossy(&requests[3].body).into_owned();
    let (question, answer) = (next.find(question), next.find("The file holds one letter."));
    ensure!(question.is_some() && question < answer, "question, then answer: {next}");
    let history = stage.coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    stage.worker.drain().await?;
    stage.coordinator.end_and_check().await
}
