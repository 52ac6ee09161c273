//! A run whose model asks for more than a machine has: each such command is ended and told so, the run is ended with
//! a reason, and other runs on the same worker do not notice.

use anyhow::{Context as _, Result, ensure};
use docket_sandbox::{SandboxLayer, probe_host};
use docket_schema::{
    ids::QueueName,
    run::{FailureKind, RunEvent, RunOutcome},
    task::TaskState,
    tool::ExceededResource,
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

/// Each is harmless but for the bound that ends it: nothing of it is larger than some hundred megabytes.
const HOSTILE: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "for n in 1 2 3 4 5 6 7 8; do (head -c 60000000 /dev/zero | tail -n 1 | (sleep 5; cat >/dev/null)) & done; wait" }
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "python3 -c 'import os,time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.01)'" }
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "for n in 1 2 3 4 5 6 7 8; do head -c 30000000 /dev/zero > fill$n; sleep 0.1; done; sleep 30" }
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "yes" }
[[turns]]
text = "Never said."
"#;

const PEACEFUL: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "sleep 1; echo one > made" }
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "sleep 1; head -c 20000000 /dev/zero | wc -c >> made" }
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "for n in 1 2 3 4 5; do sleep 0.5 & done; wait; cat made" }
[[turns]]
text = "Done."
"#;

const LIMITS: &str = r#"
[worker]
memory = "128MiB"
processes = 80
disk = "100MiB"
output = "16MiB"
[run]
exceeded_max = 4
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
async fn resource_bombs_are_ended_and_other_runs_finish() -> Result<()> {
    docket_tests::needs!("python3");
    let grouped =
        probe_host().layers.iter().any(|s| s.layer == SandboxLayer::Cgroup && s.missing_because.is_none());
    if !grouped {
        eprintln!("no control group can be made here: the bombs were not tried");
        return Ok(());
    }
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let hostile = ModelServer::start(ScriptedModel::parse(HOSTILE.as_bytes())?).await?;
    let peaceful = ModelServer::start(ScriptedModel::parse(PEACEFUL.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:x", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "bombs".parse()?;
    let bomb =
        coordinator.submit_like(&spec, &queue, hostile.model_ref(ModelProvider::Anthropic, "x")).await?;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(
            coordinator.submit_like(&spec, &queue, peaceful.model_ref(ModelProvider::Anthropic, "x")).await?,
        );
    }
    let options = WorkerOptions {
        queue: Some(queue.clone()),
        settings: LIMITS.to_owned(),
        slots: 4,
        ..WorkerOptions::default()
    };
    let worker = WorkerProcess::start(&coordinator, &options).await?;

    let view = coordinator.wait_until_ended(bomb).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Discarded, "{:?} {:?}", view.task.state, view.task.message);
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    let finished = history.events.iter().filter_map(|event| match event {
        RunEvent::ToolFinished(finished) => Some(finished.facts.exceeded),
        _ => None,
    });
    let exceeded: Vec<Option<ExceededResource>> = finished.collect();
    let want = [
        ExceededResource::Memory,
        ExceededResource::Processes,
        ExceededResource::Disk,
        ExceededResource::Output,
    ]
    .map(Some);
    ensure!(exceeded == want, "{exceeded:?}");
    let Some(RunEvent::RunEnded(end)) = history.events.last() else { anyhow::bail!("no end") };
    let RunOutcome::Failed { why: FailureKind::Limit, message } = &end.result else {
        anyhow::bail!("{end:?}")
    };
    ensure!(message.contains("disk space, memory, output, processes"), "{message}");

    for other in others {
        let view = coordinator.wait_until_ended(other).await.with_context(|| worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
        ensure!(view.task.crashes == 0 && view.task.failures == 0, "{:?}", view.task);
        let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
        for event in &history.events {
            if let RunEvent::ToolFinished(finished) = event {
                ensure!(finished.facts.exit == Some(0), "{finished:?}");
            }
        }
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}
