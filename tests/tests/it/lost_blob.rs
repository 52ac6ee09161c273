//! A blob that a run's log names is lost: the run ends with its reason, for every other process would only
//! meet the same loss again.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    content::BlobRef,
    message::MessagePart,
    run::{FailureKind, RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot,
};
use docket_worker::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};
use sqlx::Connection as _;

/// What the model says in the first turn is too long for its event: it becomes a blob, which every later
/// request needs.
fn long_text_script() -> String {
    let long = "I think about it. ".repeat(5000);
    format!(
        r#"
[[turns]]
text = "{long}"
calls = [{{ name = "create_file", args = {{ path = "a.txt", content = "a\n" }} }}]
[[turns]]
calls = [{{ name = "create_file", args = {{ path = "b.txt", content = "b\n" }} }}]
[[turns]]
text = "Done."
"#
    )
}

/// The blob of a text that went out of line.
fn text_blob(event: &RunEvent) -> Option<BlobRef> {
    let RunEvent::ModelAnswered(answer) = event else { return None };
    answer.parts.iter().find_map(|part| match part {
        MessagePart::Text { text } => text.blob_ref(),
        MessagePart::Thinking { .. } | MessagePart::ToolUse(_) | MessagePart::ToolResult { .. } => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_blob_ends_the_run_with_its_reason() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Short).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(&long_text_script())?;
    let args = ["--model", "scripted:lost", "--attempts", "1", "--script", script.to_str().context("UTF-8")?];

    // Undisturbed, it ends well; and it says where its first result stands.
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task);
    worker.drain().await?;
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    let place = history.events.iter().position(|event| matches!(event, RunEvent::ToolFinished(_)));
    let place = place.context("a result")?;
    let blob = history.events.iter().find_map(text_blob).context("a text out of line")?;

    // The same again, with a worker that dies once that result is in the log; the blob goes with it.
    let seq = history.envelopes[place].seq.0;
    let dies = Failpoint { seq, when: FailpointTiming::After, epoch: 1, whom: FailpointTarget::Supervisor };
    let options = WorkerOptions { failpoints: vec![dies], ..WorkerOptions::default() };
    let mut worker = WorkerProcess::start(&coordinator, &options).await?;
    let (task, _) = sample.submit(&coordinator, &args).await?;
    worker.process().wait().await?;
    let path = coordinator.home().join("docket.db");
    let mut raw = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await?;
    let gone =
        sqlx::query("DELETE FROM blobs WHERE hash = $1").bind(&blob.hash.0[..]).execute(&mut raw).await?;
    ensure!(gone.rows_affected() == 1, "the blob was there");
    raw.close().await?;

    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Discarded, "{:?}", view.task);
    ensure!(view.task.epoch.0 == 2 && view.task.failures == 1 && view.task.crashes == 0, "{:?}", view.task);
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    let Some(RunEvent::RunEnded(ended)) = history.events.last() else {
        anyhow::bail!("{}", history.format_kinds())
    };
    let RunOutcome::Failed { why: FailureKind::Environment, message } = &ended.result else {
        anyhow::bail!("{ended:?}")
    };
    ensure!(message.contains(&blob.hash.to_string()) && message.contains("missing"), "{message}");
    ensure!(view.task.message.as_deref() == Some(message), "people see the reason: {:?}", view.task);
    worker.drain().await
}
