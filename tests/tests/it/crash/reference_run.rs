//! The run that all crash scenarios play: twelve turns that look, create, edit, test, run commands
//! of every kind, and hear a word from outside in the middle.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::TaskView,
    ids::{QueueName, TaskId, TreeHash},
    run::RunEvent,
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, RecordedAppend, RepeatedWork, RunHistory, SampleRepository,
        Signal, StoreLocation, WorkerOptions, WorkerProcess, poll_until, send_signal,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};
use tokio::sync::OnceCell;

/// What the run is told after its ninth turn's commands ran and before their results are recorded.
pub(crate) const WORDS: &str = "please write told.txt as well";

/// The turn whose results wait for the words.
const TOLD_AFTER_TURN: u32 = 9;

const FILES: [(&str, &str); 5] = [
    ("calc.sh", "add() { echo $(($1 - $2)); }\n"),
    ("tests/run.sh", ". ./calc.sh\n[ \"$(add 2 3)\" = 5 ] || { echo 'FAIL: 2 + 3'; exit 1; }\necho ok\n"),
    ("notes.txt", "first\nsecond\n"),
    ("data/numbers.txt", "3\n1\n2\n"),
    ("data/old.txt", "old\n"),
];

const SCRIPT: &str = r#"
[[turns]]
text = "I look around first."
[[turns.calls]]
name = "list_files"
[[turns.calls]]
name = "read_file"
args = { path = "calc.sh" }
[[turns.calls]]
name = "search_codebase"
args = { regex = "add" }

[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "lib/twice.sh", content = "twice() { add \"$1\" \"$1\"; }\n" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo one >> log.txt" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo two >> log.txt; wc -l < log.txt" }
[[turns.calls]]
name = "create_file"
args = { path = "docs/a.md", content = "A page\n" }
[[turns.calls]]
name = "run_command"
args = { command = "cp docs/a.md docs/b.md && echo three >> log.txt" }

[[turns]]
[[turns.calls]]
name = "run_tests"

[[turns]]
[[turns.calls]]
name = "edit_file"
args = { path = "calc.sh", edits = [{ search = "add() { echo $(($1 - $2)); }", replace = "add() { echo $(($1 + $2)); }" }] }

[[turns]]
[[turns.calls]]
name = "run_tests"

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "mv notes.txt docs/notes.txt && ln -s notes.txt docs/link && chmod 755 lib/twice.sh && rm data/old.txt" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "git add -A && git -c user.name=m -c user.email=m@example.org commit -qm step && git rev-list --count HEAD > commits.txt; echo four >> log.txt" }

[[turns]]
when = { any_contains = "please write told.txt" }
[[turns.calls]]
name = "create_file"
args = { path = "told.txt", content = "told\n" }
[[turns.or]]
[[turns.or.calls]]
name = "create_file"
args = { path = "untold.txt", content = "not told\n" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "sort data/numbers.txt > data/sorted.txt; echo five >> log.txt; cat log.txt commits.txt" }
[[turns.calls]]
name = "read_file"
args = { path = "log.txt" }

[[turns]]
text = "Addition adds now, and the tests pass."
"#;

/// What the undisturbed run came to.
#[derive(Debug, Clone)]
pub(crate) struct ReferenceRun {
    /// The tree at its end.
    pub(crate) tree: TreeHash,
    /// The tree at its end where nobody says the words.
    pub(crate) silent_tree: TreeHash,
    /// Its appends by the worker, in order; the words from outside are none.
    pub(crate) appends: Vec<RecordedAppend>,
    /// Where the words stand in the log.
    pub(crate) told_at: u64,
    /// How often a model was asked.
    pub(crate) model_calls: u64,
}

/// The undisturbed run, played once per test process.
pub(crate) async fn reference_run() -> Result<&'static ReferenceRun> {
    static STORY: OnceCell<ReferenceRun> = OnceCell::const_new();
    STORY.get_or_try_init(|| Box::pin(ReferenceRun::play_undisturbed())).await
}

/// The scripted model over HTTP, and how often it was asked.
pub(crate) async fn start_model_server() -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?)
}

/// Submits the story's task once, held back: what others of its kind are copied from.
pub(crate) async fn submit_template(coordinator: &CoordinatorProcess) -> Result<TaskSpec> {
    let sample = SampleRepository::new(&FILES)?;
    let args = ["--model", "openai:crash", "--tests", "sh tests/run.sh", "--queue", "template"];
    let (task, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(task, "a template").await?;
    Ok(spec)
}

/// Submits the story's task for `server` to think about, into a queue of its own.
pub(crate) async fn submit_reference_task(
    coordinator: &CoordinatorProcess,
    spec: &TaskSpec,
    queue: &QueueName,
    server: &ModelServer,
) -> Result<TaskId> {
    coordinator.submit_like(spec, queue, server.model_ref(ModelProvider::OpenAi, "crash")).await
}

/// A point at which a run process stops before an append, so that words can be said.
pub(crate) fn sleep_point(seq: u64, epoch: u64) -> Failpoint {
    Failpoint { seq, when: FailpointTiming::Before, epoch, whom: FailpointTarget::Sleeper }
}

impl ReferenceRun {
    async fn play_undisturbed() -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let spec = submit_template(&coordinator).await?;
        // Once without words, to learn where they belong: up to there both runs are the same.
        let silent = Self::run_undisturbed(&coordinator, &spec, None).await?;
        let results = silent.0.appends().into_iter().find(|append| {
            let first = &silent.0.envelopes[usize::try_from(append.seqs.start() - 1).unwrap_or(0)];
            first.turn.0 == TOLD_AFTER_TURN && first.kind == "ToolFinished"
        });
        let told_at = *results.context("results of the turn that waits for words")?.seqs.start();
        let (history, model_calls) = Self::run_undisturbed(&coordinator, &spec, Some(told_at)).await?;
        ensure!(
            history.envelopes[usize::try_from(told_at - 1)?].kind == "Told",
            "{}",
            history.format_kinds()
        );
        let tree = history.final_tree().context("a tree at the end")?;
        let silent_tree = silent.0.final_tree().context("a tree at the end")?;
        ensure!(silent_tree != tree, "the words make no difference");
        ensure!(
            model_calls == 12 && history.count_kind("ModelAnswered") == 12,
            "twelve turns: {}",
            history.format_kinds()
        );
        let failed = history.events.iter().filter(|event| match event {
            RunEvent::ToolFinished(done) => done.facts.exit.is_some_and(|status| status != 0),
            _ => false,
        });
        ensure!(
            failed.count() == 1,
            "the first run of the tests fails, nothing else does: {:?}",
            history.events
        );
        let mut appends = history.appends();
        appends.retain(|append| append.kinds != ["Told"]);
        check_appends(&appends).with_context(|| history.format_kinds())?;
        coordinator.end_and_check().await?;
        Ok(Self { tree, silent_tree, appends, told_at, model_calls })
    }

    async fn run_undisturbed(
        coordinator: &CoordinatorProcess,
        spec: &TaskSpec,
        told_at: Option<u64>,
    ) -> Result<(RunHistory, u64)> {
        let server = start_model_server().await?;
        let queue: QueueName = if told_at.is_some() { "told" } else { "silent" }.parse()?;
        let failpoints = told_at.map(|seq| sleep_point(seq, 1)).into_iter().collect();
        let options = WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
        let worker = WorkerProcess::start(coordinator, &options).await?;
        let task = submit_reference_task(coordinator, spec, &queue, &server).await?;
        if told_at.is_some() {
            let asleep = poll_until("a run process that sleeps", || worker.suspended_run()).await;
            let pid = asleep.with_context(|| format!("{}\n{}", worker.log_tail(), coordinator.log_tail()))?;
            let run = coordinator.client().get_task(task).await?.task.last_run.context("a run")?;
            coordinator.client().send_message(run, WORDS).await?;
            send_signal(pid, Signal::SIGCONT);
        }
        let view = coordinator.wait_until_ended(task).await?;
        let history = completed_history(coordinator, &view).await?;
        worker.drain().await?;
        Ok((history, server.call_count()))
    }
}

/// The history of a task that must be completed by its first run.
pub(crate) async fn completed_history(
    coordinator: &CoordinatorProcess,
    view: &TaskView,
) -> Result<RunHistory> {
    let task = &view.task;
    let history = coordinator.run_history(task.last_run.context("a run")?).await?;
    ensure!(
        task.state == TaskState::Completed && task.runs == 1 && task.failures == 0,
        "{} after {} runs: {:?}; {}",
        task.state,
        task.runs,
        task.message,
        history.format_kinds()
    );
    Ok(history)
}

/// What a log must hold whatever crashed while it was written. One kill is one recovery, and so at
/// most one model call and one batch are done again. Where a lease expired beside it, for the machine
/// stood still for a second, that is another recovery; the sweep counts those.
pub(crate) async fn check_history(
    story: &ReferenceRun,
    coordinator: &CoordinatorProcess,
    history: &RunHistory,
    model_calls: u64,
) -> Result<()> {
    let kinds = || history.format_kinds();
    ensure!(history.final_tree() == Some(story.tree), "another tree than undisturbed: {}", kinds());
    ensure!(history.count_kind("Told") == 1, "words lost or doubled: {}", kinds());
    ensure!(history.count_kind("RunStarted") == 1 && history.count_kind("RunEnded") == 1, "{}", kinds());
    ensure!(
        history.count_kind("ModelAnswered") as u64 == story.model_calls,
        "answers lost or doubled: {}",
        kinds()
    );
    let RepeatedWork { model_calls: asked_again, batches } = history.repeated_work()?;
    let recoveries = history.count_kind("RunRecovered").max(1);
    ensure!(
        asked_again <= recoveries && batches <= recoveries,
        "{asked_again} calls and {batches} batches again: {}",
        kinds()
    );
    ensure!(
        model_calls <= story.model_calls + recoveries as u64,
        "the model was asked {model_calls} times: {}",
        kinds()
    );
    history.verify(coordinator.client()).await
}

/// [`check`] for a run that nobody said the words to.
pub(crate) async fn check_history_without_message(
    story: &ReferenceRun,
    coordinator: &CoordinatorProcess,
    history: &RunHistory,
) -> Result<()> {
    let kinds = || history.format_kinds();
    ensure!(history.final_tree() == Some(story.silent_tree), "another tree than undisturbed: {}", kinds());
    ensure!(history.count_kind("RunStarted") == 1 && history.count_kind("RunEnded") == 1, "{}", kinds());
    ensure!(
        history.count_kind("ModelAnswered") as u64 == story.model_calls,
        "answers lost or doubled: {}",
        kinds()
    );
    let again = history.repeated_work()?;
    let recoveries = history.count_kind("RunRecovered").max(1);
    ensure!(again.model_calls <= recoveries && again.batches <= recoveries, "{again:?}: {}", kinds());
    history.verify(coordinator.client()).await
}

/// Appends are what the design says: results with the intents that follow from them. So a crash has
/// no other boundaries than before and after each of these.
fn check_appends(appends: &[RecordedAppend]) -> Result<()> {
    let is_intent =
        |kind: &str| matches!(kind, "ModelRequested" | "ToolRequested" | "GateRequested" | "RunEnded");
    for append in appends {
        let last = append.kinds.last().context("an append holds events")?;
        let pins = append.kinds == ["RunStarted"];
        let intents = append.kinds.iter().skip_while(|kind| !is_intent(kind)).all(|kind| is_intent(kind));
        ensure!(pins || (is_intent(last) && intents), "results without intents: {:?}", append.kinds);
    }
    // The start; the first question; for each of eleven turns what was said and what came of it; the
    // last words with the gates, and the end.
    ensure!(appends.len() == 26, "{} appends: {appends:?}", appends.len());
    Ok(())
}
