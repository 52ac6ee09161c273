//! Real runs of this release, recorded: real store, worker, sandbox, git; a scripted model over HTTP.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::SubmitRequest,
    blob_refs::event_blobs,
    event::TypedEvent as _,
    export::{ExportHeader, InMemoryExport, VERSION},
    ids::{BlobHash, QueueName, RunId, Seq, StreamId, TaskId},
    run::RunEvent,
    task::{Backoff, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions,
        WorkerProcess, poll_until, send_signal, wait_until,
    },
};
use docket_worker::{
    client::HistoryScope,
    model::{ModelProvider, ScriptedModel},
};

use super::{mcp_recordings, more_recordings, roles};

/// A command that shows that it is in its middle and waits to be let on.
const WAITS: &str = "touch middle; until [ -e go ]; do sleep 0.02; done; rm go middle";

const FILES: [(&str, &str); 4] = [
    ("calc.sh", "add() { echo $(($1 - $2)); }\n"),
    ("tests/run.sh", ". ./calc.sh\n[ \"$(add 2 3)\" = 5 ] || { echo 'FAIL: 2 + 3'; exit 1; }\necho ok\n"),
    (".gitignore", "out/\n"),
    ("data/numbers.txt", "3\n1\n2\n"),
];

fn all_tools_script() -> String {
    format!(
        r#"
[[turns]]
text = "I look around first."
calls = [{{ name = "list_files" }}, {{ name = "read_file", args = {{ path = "calc.sh" }} }}, {{ name = "search_codebase", args = {{ regex = "add" }} }}]
[[turns]]
calls = [{{ name = "run_tests" }}]
[[turns]]
calls = [{{ name = "edit_file", args = {{ path = "calc.sh", edits = [{{ search = "$1 - $2", replace = "$1 + $2" }}] }} }}]
[[turns]]
calls = [{{ name = "run_tests" }}, {{ name = "read_file", args = {{ path = "missing.txt" }} }}]
[[turns]]
[[turns.calls]]
name = "run_command"
args = {{ command = '''{WAITS}; echo kept > out/x; printf 'caf\351' > "$(printf 'n\351')"; chmod 755 calc.sh; ln -s calc.sh link; rm data/numbers.txt; git add -A && git -c user.name=m -c user.email=m@example.org commit -qm step''' }}
[[turns]]
text = "I think that it is done."
[[turns]]
calls = [{{ name = "create_file", args = {{ path = "told.txt", content = "told\n" }} }}]
[[turns]]
text = "Addition adds now, and told.txt is there."
"#
    )
}

const FAILURES: &str = r#"
[[turns]]
thinking = "Where do I begin?"
calls = [{ name = "list_files" }]
fault = { kind = "rate_limited", times = 1, retry_after_ms = 10 }
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
fault = { kind = "empty", times = 1 }
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
fault = { kind = "malformed_arguments", times = 1 }
[[turns]]
text = "Done."
"#;

/// A coordinator and what its runs are recorded from.
pub(super) struct RecordingFixture {
    pub(super) coordinator: CoordinatorProcess,
}

/// A task under way.
pub(super) struct RecordedTask {
    pub(super) task: TaskId,
    pub(super) queue: QueueName,
    pub(super) server: ModelServer,
}

impl RecordingFixture {
    pub(super) async fn start_task(
        &self,
        name: &str,
        script: &str,
        provider: ModelProvider,
        more: &[&str],
    ) -> Result<RecordedTask> {
        self.start_task_on(&FILES, name, script, provider, more).await
    }

    pub(super) async fn start_task_on(
        &self,
        files: &[(&str, &str)],
        name: &str,
        script: &str,
        provider: ModelProvider,
        more: &[&str],
    ) -> Result<RecordedTask> {
        let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
        let sample = SampleRepository::new(files)?;
        let mut args = vec!["--model", "openai:template", "--queue", "template"];
        args.extend(more);
        let (template, mut spec) = sample.submit(&self.coordinator, &args).await?;
        self.coordinator.client().cancel(template, "a template").await?;
        let queue: QueueName = name.parse()?;
        (spec.queue, spec.model) = (queue.clone(), server.model_ref(provider, "golden"));
        (spec.attempts_max, spec.backoff) = (2, Backoff { base_ms: 1, max_ms: 1 });
        // Where it was made on this machine is nobody's concern later.
        if let Some(git) = &mut spec.base.git {
            git.source = "/home/somebody/project".to_owned();
        }
        let answer =
            self.coordinator.client().submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
        let task = answer.tasks.first().context("a task")?.id;
        Ok(RecordedTask { task, queue, server })
    }

    pub(super) async fn start_worker(&self, scene: &RecordedTask) -> Result<WorkerProcess> {
        self.start_worker_with(scene, "").await
    }

    pub(super) async fn start_worker_with(
        &self,
        scene: &RecordedTask,
        settings: &str,
    ) -> Result<WorkerProcess> {
        let (queue, settings) = (Some(scene.queue.clone()), settings.to_owned());
        let options = WorkerOptions { queue, settings, ..WorkerOptions::default() };
        WorkerProcess::start(&self.coordinator, &options).await
    }

    pub(super) async fn task_run(&self, scene: &RecordedTask) -> Result<RunId> {
        self.coordinator.client().get_task(scene.task).await?.task.last_run.context("a run")
    }

    pub(super) async fn wait_for_state(&self, scene: &RecordedTask, state: TaskState) -> Result<()> {
        let view = wait_until("a task's state", async || {
            let view = self.coordinator.client().get_task(scene.task).await.ok()?;
            (view.task.state == state || view.task.state.is_ended()).then_some(view.task)
        });
        let task = view.await.with_context(|| {
            format!("{} calls; {}", scene.server.call_count(), self.coordinator.log_tail())
        })?;
        ensure!(task.state == state, "{} and not {state}: {:?}", task.state, task.message);
        Ok(())
    }

    /// A run with its lineage, the tasks of all of it, and all they name.
    pub(super) async fn export_run(&self, run: RunId) -> Result<InMemoryExport> {
        let client = self.coordinator.client();
        let history = client.all_events(run, HistoryScope::WithAncestors).await?;
        let mut tasks: Vec<TaskId> = Vec::new();
        for event in &history {
            let task = match RunEvent::decode(&event.kind, event.version, event.payload.as_str())? {
                RunEvent::RunStarted(e) => e.task,
                RunEvent::Forked(e) => e.task,
                _ => continue,
            };
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
        let task = *tasks.last().context("a run has a task")?;
        let mut events = Vec::new();
        for task in tasks {
            events.extend(client.list_stream_events(&StreamId::Task(task), Seq(0), None).await?.events);
        }
        events.extend(history);
        let mut blobs = std::collections::BTreeMap::new();
        for event in &events {
            for named in event_blobs(event)? {
                let missing: Vec<BlobHash> = client.missing_blobs(&[named.blob.hash]).await?;
                if missing.is_empty() && !blobs.contains_key(&named.blob.hash) {
                    blobs.insert(named.blob.hash, client.get_blob(&named.blob).await?.to_vec());
                }
            }
        }
        let made_by = format!("docket {}", env!("CARGO_PKG_VERSION"));
        let header = ExportHeader { version: VERSION, run, task, made_by };
        events.iter_mut().for_each(|event| event.position.0 = 0);
        Ok(InMemoryExport { header, events, blobs })
    }
}

pub(crate) async fn wait_for_middle(worker: &WorkerProcess, but: Option<&PathBuf>) -> Result<PathBuf> {
    let at = poll_until("a command in its middle", || {
        worker.workspaces().into_iter().find(|folder| Some(folder) != but && folder.join("middle").exists())
    });
    at.await.with_context(|| worker.log_tail())
}

pub(crate) fn release_command(folder: &std::path::Path) -> Result<()> {
    Ok(std::fs::write(folder.join("go"), "")?)
}

/// All of them, by name.
pub(super) async fn record_all() -> Result<Vec<(&'static str, InMemoryExport)>> {
    let stage = RecordingFixture {
        coordinator: CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Patient).await?,
    };
    let mut all = if super::is_missing(LAST) { Box::pin(record_react(&stage)).await? } else { Vec::new() };
    all.extend(Box::pin(roles::record_missing(&stage)).await?);
    if super::is_missing("external-tools") {
        all.push(("external-tools", Box::pin(mcp_recordings::record_external_tools(&stage)).await?));
    }
    Ok(all)
}

/// The last of those of `react`, which are recorded together.
const LAST: &str = "early-end";

async fn record_react(stage: &RecordingFixture) -> Result<Vec<(&'static str, InMemoryExport)>> {
    let mut all = Vec::new();
    Box::pin(record_all_tools_and_fork(stage, &mut all)).await?;
    all.push(("cancelled", Box::pin(record_cancelled(stage)).await?));
    all.push(("model-failures", Box::pin(record_failures(stage)).await?));
    all.push(("crashes", Box::pin(record_crashes(stage)).await?));
    all.push(("outcome-unknown", Box::pin(record_unknown_outcome(stage)).await?));
    all.push(("blocked", Box::pin(record_blocked(stage)).await?));
    all.push(("failed", Box::pin(record_failed(stage)).await?));
    all.push(("mended", Box::pin(record_fixed_findings(stage)).await?));
    all.push(("compacted", Box::pin(more_recordings::record_compacted(stage)).await?));
    all.push(("provider-block", Box::pin(more_recordings::record_provider_block(stage)).await?));
    all.push(("rested", Box::pin(more_recordings::record_paused_and_blocked(stage)).await?));
    all.push(("several-models", Box::pin(more_recordings::record_several_models(stage)).await?));
    all.push((LAST, Box::pin(more_recordings::record_early_end(stage)).await?));
    Ok(all)
}

/// All seven tools, tests that fail and are mended, a gate that fails, words in the middle, a commit of the
/// model's, setup, a path left out; then a fork of it, which is superseded in its middle by its resume.
async fn record_all_tools_and_fork(
    stage: &RecordingFixture,
    all: &mut Vec<(&'static str, InMemoryExport)>,
) -> Result<()> {
    let setup = "mkdir -p out && echo made > out/setup.log && echo ready > ready.txt";
    let more = ["--tests", "sh tests/run.sh", "--require", "told.txt", "--setup", setup];
    let scene = stage.start_task("whole", &all_tools_script(), ModelProvider::OpenAi, &more).await?;
    let worker = stage.start_worker(&scene).await?;
    let folder = wait_for_middle(&worker, None).await?;
    let run = stage.task_run(&scene).await?;
    stage.coordinator.client().send_message(run, "please write told.txt as well").await?;
    release_command(&folder)?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    all.push(("whole", stage.export_run(run).await?));

    let args =
        ["fork", &run.to_string(), "--turn", "3", "--hint", "Keep it short.", "--json"].map(str::to_owned);
    let said: serde_json::Value =
        serde_json::from_str(&stage.coordinator.run_docket(&args).await?.into_stdout()?)?;
    let forked: RunId = said["run"].as_str().context("the fork's run")?.parse()?;
    let folder = wait_for_middle(&worker, Some(&folder)).await?;
    let args = ["resume", &forked.to_string(), "--turn", "4"].map(str::to_owned);
    stage.coordinator.run_docket(&args).await?.into_stdout()?;
    let task = stage.coordinator.client().get_run(forked).await?.task;
    let folder = wait_for_middle(&worker, Some(&folder)).await?;
    release_command(&folder)?;
    let view = stage.coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{view:?}");
    all.push(("fork-superseded", stage.export_run(forked).await?));
    all.push(("fork-resumed", stage.export_run(view.task.last_run.context("a run")?).await?));
    worker.drain().await
}

async fn record_cancelled(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script =
        format!("[[turns]]\ncalls = [{{ name = \"run_command\", args = {{ command = '''{WAITS}''' }} }}]\n");
    let scene = stage.start_task("cancelled", &script, ModelProvider::OpenAi, &[]).await?;
    let worker = stage.start_worker(&scene).await?;
    wait_for_middle(&worker, None).await?;
    stage.coordinator.client().cancel(scene.task, "no longer wanted").await?;
    stage.wait_for_state(&scene, TaskState::Cancelled).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

async fn record_failures(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let scene =
        stage.start_task("failures", FAILURES, ModelProvider::Anthropic, &["--tests", "true"]).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// The run process dies; then its supervisor; then a worker drains; the fourth ends it.
async fn record_crashes(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = format!(
        "[[turns]]\ncalls = [{{ name = \"create_file\", args = {{ path = \"a.txt\", content = \"a\\n\" }} }}]\n\
         [[turns]]\ncalls = [{{ name = \"run_command\", args = {{ command = '''{WAITS}; echo b >> b.txt''' }} }}]\n\
         [[turns]]\ntext = \"Done.\"\n"
    );
    let scene = stage.start_task("crashes", &script, ModelProvider::OpenAi, &["--tests", "true"]).await?;
    let mut first = stage.start_worker(&scene).await?;
    let folder = wait_for_middle(&first, None).await?;
    first.run_processes().into_iter().for_each(|run| send_signal(run, Signal::SIGKILL));
    wait_for_middle(&first, Some(&folder)).await?;
    first.process().kill().await?;
    let second = stage.start_worker(&scene).await?;
    let folder = wait_for_middle(&second, None).await?;
    send_signal(second.pid(), Signal::SIGTERM);
    release_command(&folder)?;
    second.drain().await?;
    let third = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    third.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// A command that may reach beyond the workspace is not run again after a crash.
async fn record_unknown_outcome(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = format!(
        "[[turns]]\ncalls = [{{ name = \"run_command\", args = {{ command = '''curl --version > version.txt; {WAITS}''' }} }}]\n\
         [[turns]]\ntext = \"Done, as far as I can tell.\"\n"
    );
    let scene = stage.start_task("unknown", &script, ModelProvider::OpenAi, &["--tests", "true"]).await?;
    let worker = stage.start_worker(&scene).await?;
    wait_for_middle(&worker, None).await?;
    worker.run_processes().into_iter().for_each(|run| send_signal(run, Signal::SIGKILL));
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// Linters after edits: one finds, one is not there; a final check that is mended without the model, then one
/// that goes back to it.
async fn record_fixed_findings(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let settings = "[tests]\ncommand = \"test -e a.txt\"\n[lint.none]\nextensions = [\"md\"]\ncheck = \"no-such-linter\"\n\
                    [lint.words]\nextensions = [\"txt\"]\ncheck = \"! grep -n BAD {files} /dev/null\"\n\
                    fix = \"sed -i s/BAD/GOOD/ {files}\"\n";
    let script = r#"
[[turns]]
calls = [
  { name = "create_file", args = { path = "a.txt", content = "BAD BAD\n" } },
  { name = "create_file", args = { path = "a.md", content = "a\n" } },
]
[[turns]]
text = "Done."
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "GOOD BAD", replace = "best" }] } }]
[[turns]]
text = "Done now."
"#;
    let files = [("docket.toml", settings)];
    let scene = stage.start_task_on(&files, "mended", script, ModelProvider::Anthropic, &[]).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

async fn record_blocked(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = "[[turns]]\ntext = \"BLOCKED: Which unit is meant?\"\n";
    let scene = stage.start_task("blocked", script, ModelProvider::OpenAi, &[]).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Blocked).await?;
    worker.drain().await?;
    stage.coordinator.client().cancel(scene.task, "nobody knows").await?;
    stage.export_run(stage.task_run(&scene).await?).await
}

/// A conversation that is too long: two runs fail, and the task is given up; then it is wanted again, and is not.
async fn record_failed(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let script = "[[turns]]\ntext = \"x\"\nfault = { kind = \"context_too_long\", times = 9 }\n";
    let scene = stage.start_task("failed", script, ModelProvider::OpenAi, &[]).await?;
    let worker = stage.start_worker(&scene).await?;
    stage.wait_for_state(&scene, TaskState::Discarded).await?;
    worker.drain().await?;
    let run = stage.task_run(&scene).await?;
    stage.coordinator.client().retry(scene.task, &docket_schema::api::RetryRequest::default()).await?;
    stage.coordinator.client().cancel(scene.task, "after all").await?;
    stage.export_run(run).await
}
