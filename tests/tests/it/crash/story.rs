//! The run that all crash scenarios play: twelve turns that look, create, edit, test, run commands
//! of every kind, and hear a word from outside in the middle.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId, TreeHash},
    run::RunEvent,
    task::{TaskSpec, TaskState},
    wire::TaskView,
};
use docket_tests::{
    model_server::ModelServer,
    system::{Again, Append, Coordinator, History, Place, Sample, Signal, Worker, WorkerOptions, seen, send},
};
use docket_worker::{
    bootstrap::{FailWhen, FailWhom, Failpoint},
    model::{Provider, ScriptedModel},
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
pub(crate) struct Story {
    /// The tree at its end.
    pub(crate) tree: TreeHash,
    /// Its appends by the worker, in order; the words from outside are none.
    pub(crate) appends: Vec<Append>,
    /// Where the words stand in the log.
    pub(crate) told_at: u64,
    /// How often a model was asked.
    pub(crate) model_calls: u64,
}

/// The undisturbed run, played once per test process.
pub(crate) async fn story() -> Result<&'static Story> {
    static STORY: OnceCell<Story> = OnceCell::const_new();
    STORY.get_or_try_init(|| Box::pin(Story::play())).await
}

/// The scripted model over HTTP, and how often it was asked.
pub(crate) async fn model() -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?)
}

/// Submits the story's task once, held back: what others of its kind are copied from.
pub(crate) async fn template(coordinator: &Coordinator) -> Result<TaskSpec> {
    let sample = Sample::new(&FILES)?;
    let args = ["--model", "openai:crash", "--tests", "sh tests/run.sh", "--queue", "template"];
    let (task, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(task, "a template").await?;
    Ok(spec)
}

/// Submits the story's task for `server` to think about, into a queue of its own.
pub(crate) async fn submit(
    coordinator: &Coordinator,
    spec: &TaskSpec,
    queue: &QueueName,
    server: &ModelServer,
) -> Result<TaskId> {
    coordinator.submit_like(spec, queue, server.model(Provider::OpenAi, "crash")).await
}

/// A point at which a run process stops before an append, so that words can be said.
pub(crate) fn sleeper(seq: u64, epoch: u64) -> Failpoint {
    Failpoint { seq, when: FailWhen::Before, epoch, whom: FailWhom::Sleeper }
}

impl Story {
    async fn play() -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home).await?;
        let spec = template(&coordinator).await?;
        // Once without words, to learn where they belong: up to there both runs are the same.
        let silent = Self::undisturbed(&coordinator, &spec, None).await?;
        let results = silent.0.appends().into_iter().find(|append| {
            let first = &silent.0.envelopes[usize::try_from(append.seqs.start() - 1).unwrap_or(0)];
            first.turn.0 == TOLD_AFTER_TURN && first.kind == "ToolFinished"
        });
        let told_at = *results.context("results of the turn that waits for words")?.seqs.start();
        let (history, model_calls) = Self::undisturbed(&coordinator, &spec, Some(told_at)).await?;
        ensure!(history.envelopes[usize::try_from(told_at - 1)?].kind == "Told", "{}", history.kinds());
        let tree = history.tree().context("a tree at the end")?;
        ensure!(silent.0.tree() != Some(tree), "the words make no difference");
        ensure!(
            model_calls == 12 && history.count("ModelAnswered") == 12,
            "twelve turns: {}",
            history.kinds()
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
        check_appends(&appends).with_context(|| history.kinds())?;
        coordinator.end_and_check().await?;
        Ok(Self { tree, appends, told_at, model_calls })
    }

    async fn undisturbed(
        coordinator: &Coordinator,
        spec: &TaskSpec,
        told_at: Option<u64>,
    ) -> Result<(History, u64)> {
        let server = model().await?;
        let queue: QueueName = if told_at.is_some() { "told" } else { "silent" }.parse()?;
        let failpoints = told_at.map(|seq| sleeper(seq, 1)).into_iter().collect();
        let options = WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
        let worker = Worker::start(coordinator, &options).await?;
        let task = submit(coordinator, spec, &queue, &server).await?;
        if told_at.is_some() {
            let pid = seen("a run process that sleeps", || worker.sleeper()).await?;
            let run = coordinator.client().task(task).await?.task.last_run.context("a run")?;
            coordinator.client().tell(run, WORDS).await?;
            send(pid, Signal::SIGCONT);
        }
        let view = coordinator.ended(task).await?;
        let history = completed(coordinator, &view).await?;
        worker.drain().await?;
        Ok((history, server.calls()))
    }
}

/// The history of a task that must be completed by its first run.
pub(crate) async fn completed(coordinator: &Coordinator, view: &TaskView) -> Result<History> {
    let task = &view.task;
    let history = coordinator.history(task.last_run.context("a run")?).await?;
    ensure!(
        task.state == TaskState::Completed && task.runs == 1 && task.failures == 0,
        "{} after {} runs: {:?}; {}",
        task.state,
        task.runs,
        task.message,
        history.kinds()
    );
    Ok(history)
}

/// What a log must hold whatever crashed while it was written.
pub(crate) async fn check(
    story: &Story,
    coordinator: &Coordinator,
    history: &History,
    model_calls: u64,
) -> Result<()> {
    let kinds = || history.kinds();
    ensure!(history.tree() == Some(story.tree), "another tree than undisturbed: {}", kinds());
    ensure!(history.count("Told") == 1, "words lost or doubled: {}", kinds());
    ensure!(history.count("RunStarted") == 1 && history.count("RunEnded") == 1, "{}", kinds());
    ensure!(
        history.count("ModelAnswered") as u64 == story.model_calls,
        "answers lost or doubled: {}",
        kinds()
    );
    let Again { model_calls: asked_again, batches } = history.again()?;
    ensure!(asked_again <= 1 && batches <= 1, "{asked_again} calls and {batches} batches again: {}", kinds());
    ensure!(model_calls <= story.model_calls + 1, "the model was asked {model_calls} times: {}", kinds());
    history.verify(coordinator.client()).await
}

/// Appends are what the design says: results with the intents that follow from them. So a crash has
/// no other boundaries than before and after each of these.
fn check_appends(appends: &[Append]) -> Result<()> {
    let is_intent =
        |kind: &str| matches!(kind, "ModelRequested" | "ToolRequested" | "GateRequested" | "RunEnded");
    for append in appends {
        let last = append.kinds.last().context("an append holds events")?;
        let pins = append.kinds == ["RunStarted"];
        let intents = append.kinds.iter().skip_while(|kind| !is_intent(kind)).all(|kind| is_intent(kind));
        ensure!(pins || (is_intent(last) && intents), "results without intents: {:?}", append.kinds);
    }
    // The start, then two a turn: what is asked, what came of it; and the end of the gates.
    ensure!(appends.len() == 27 || appends.len() == 26, "{} appends", appends.len());
    Ok(())
}
