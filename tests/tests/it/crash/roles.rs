//! A run of each engine with roles, and one kill at one place of its log: the run process, or its supervisor with it.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TreeHash},
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        Again, Append, Coordinator, History, LONG, LeaseTime, Sample, Worker, WorkerOptions, room, say,
    },
    talks::{idle_team, talk},
};
use docket_worker::{
    bootstrap::{FailWhen, FailWhom, Failpoint},
    model::{Provider, ScriptedModel},
};
use tokio::task::JoinSet;

use super::scenario::{Victim, place};

/// A plan with a file that is made, one that is changed by a second try, and a command that adds to a file: run twice, it
/// would add twice.
const PLAN: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '''{"steps": [{"kind": "edit", "path": "made.txt", "text": "make it"},
 {"kind": "command", "command": "echo once >> log.txt"},
 {"kind": "edit", "path": "log.txt", "text": "say two"}]}'''
[[talks]]
role = "executor"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: log.txt
-zero
+two
*** End Patch"""
[[talks]]
role = "executor"
opening_contains = "The file `log.txt`"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: log.txt
-nine
+two
*** End Patch"""
[[talks]]
role = "executor"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: made.txt
+made
*** End Patch"""
"#;

/// A step that fails after it wrote, another plan, a verdict, the end.
const REVIEW: &str = r#"
[[talks]]
role = "planner"
opening_contains = "asked again"
[[talks.turns]]
text = '["Make it", "Add to it"]'
[[talks]]
role = "planner"
[[talks.turns]]
text = '["Try it"]'
[[talks]]
role = "executor"
opening_contains = "of 1: Try it"
[[talks.turns]]
calls = [{ name = "run_command", args = { command = "echo tried >> log.txt" } }]
[[talks.turns]]
text = "It did not work."
[[talks]]
role = "executor"
opening_contains = "of 2: Make it"
[[talks.turns]]
calls = [{ name = "write_file", args = { path = "made.txt", content = "made\n" } }]
[[talks.turns]]
text = '{"success": true, "output": "made"}'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [{ name = "run_command", args = { command = "cat made.txt >> log.txt" } }]
[[talks.turns]]
text = '{"success": true, "output": "added"}'
[[talks]]
role = "reviewer"
opening_contains = "Step 2 is done"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it is there"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "continue", "reason": "made"}'
"#;

/// A file that is made by a second try, a command that adds to a file, the difference, a verdict.
const ARCHITECT: &str = r#"
[[talks]]
role = "architect"
[[talks.turns]]
text = '''{"actions": [{"kind": "edit", "file": "made.txt", "description": "make it"},
 {"kind": "command", "cmd": "cat made.txt >> log.txt"}]}'''
[[talks]]
role = "coder"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: made.txt
+made
*** End Patch"""
[[talks]]
role = "coder"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: made.txt
-nothing
+made
*** End Patch"""
[[talks]]
role = "verifier"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "it is there"}'
"#;

/// One round: a command that adds to a file, a test of it, checks of what the tester says, the end.
fn team() -> String {
    let command = |line: &str| format!("!{{ name = \"run_command\", args = {{ command = \"{line}\" }} }}");
    [
        talk("orchestrator", "All roles have spoken", &[r#"{"action": "finish", "summary": "added"}"#]),
        talk(
            "orchestrator",
            "",
            &[r#"{"action": "hand_over", "brief": "Do your part.", "results": ["task"]}"#],
        ),
        talk("coder", "", &[&command("echo once >> log.txt"), r#"{"done": true, "summary": "added"}"#]),
        talk(
            "tester",
            "",
            &[&command("grep -c once log.txt"), r#"{"outcome": "passed", "summary": "it is there once"}"#],
        ),
        idle_team(),
    ]
    .concat()
}

/// A plan, a file that is made, a command that adds to another: two files, which a reviewer looks at. The runtime's own
/// calls, the check and each card are boundaries as well.
const SOP: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "two files", steps = ["make one"], files = ["made.txt", "log.txt"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "create_file", args = { path = "made.txt", content = "made\n" } },
  { name = "run_command", args = { command = "cat made.txt >> log.txt" } },
  { name = "diff_card", args = { rationale = "both are wanted" } },
]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: two words"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "made" } }]
"#;

/// What the undisturbed run came to.
struct Undisturbed {
    tree: TreeHash,
    /// Where its appends begin.
    seqs: BTreeSet<u64>,
    answers: usize,
    concluded: usize,
}

async fn template(coordinator: &Coordinator, engine: &str) -> Result<TaskSpec> {
    let sample = Sample::new(&[("log.txt", "zero\n")])?;
    let args = ["--model", "openai:x", "--queue", "template", "--engine", engine, "--tests", "true"];
    let (task, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(task, "a template").await?;
    Ok(spec)
}

async fn model(script: &str) -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?)
}

async fn undisturbed(coordinator: &Coordinator, spec: &TaskSpec, script: &str) -> Result<Undisturbed> {
    let (server, queue) = (model(script).await?, "undisturbed".parse::<QueueName>()?);
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = Worker::start(coordinator, &options).await?;
    let task = coordinator.submit_like(spec, &queue, server.model(Provider::OpenAi, "x")).await?;
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let history = coordinator.history(view.task.last_run.context("a run")?).await?;
    let appends: Vec<Append> = history.appends();
    worker.drain().await?;
    Ok(Undisturbed {
        tree: history.tree().context("a tree at the end")?,
        seqs: appends.iter().map(|append| *append.seqs.start()).collect(),
        answers: history.count("ModelAnswered"),
        concluded: history.count("Concluded"),
    })
}

async fn play(
    whole: &Undisturbed,
    (victim, seq, when): (Victim, u64, FailWhen),
    host: &Coordinator,
    (spec, script): (&TaskSpec, &str),
) -> Result<()> {
    let server = model(script).await?;
    let queue: QueueName = format!("{}-{victim:?}-{seq}-{when:?}", spec.engine).parse()?;
    let whom = match victim {
        Victim::Supervisor => FailWhom::Supervisor,
        Victim::Run | Victim::Coordinator | Victim::Unanswered => FailWhom::Run,
    };
    let options =
        |failpoints| WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
    let mut worker = Worker::start(host, &options(vec![Failpoint { seq, when, epoch: 1, whom }])).await?;
    let task = host.submit_like(spec, &queue, server.model(Provider::OpenAi, "x")).await?;
    let deadline = tokio::time::Instant::now() + LONG;
    let view = loop {
        ensure!(tokio::time::Instant::now() < deadline, "the run does not end\n{}", worker.tail());
        if worker.process().ended().is_some() {
            worker = Worker::start(host, &options(Vec::new())).await?;
        }
        match host.client().task(task).await {
            Ok(view) if view.task.state.is_ended() => break view,
            Ok(_) | Err(_) => tokio::time::sleep(std::time::Duration::from_millis(25)).await,
        }
    };
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task.message, worker.tail());
    let history: History = host.history(view.task.last_run.context("a run")?).await?;
    let kinds = || history.kinds();
    ensure!(history.tree() == Some(whole.tree), "another tree than undisturbed: {}", kinds());
    ensure!(history.count("ModelAnswered") == whole.answers, "answers lost or doubled: {}", kinds());
    ensure!(history.count("Concluded") == whole.concluded, "conclusions lost or doubled: {}", kinds());
    let Again { model_calls, batches } = history.again()?;
    ensure!(model_calls <= 1 && batches <= 1, "{model_calls}, {batches}: {}", kinds());
    // Who dies before anything is in the log leaves no trace in it, and who dies behind its end none to recover.
    let first = whole.seqs.first() == Some(&seq) && when == FailWhen::Before;
    let last = whole.seqs.last() == Some(&seq) && when == FailWhen::After;
    ensure!(last || first || history.count("RunRecovered") > 0, "nobody died: {}", kinds());
    history.verify(host.client()).await
}

/// Kills at every boundary of a run of each engine.
pub(crate) async fn sweep_roles() -> Result<()> {
    let mut failed = Vec::new();
    let both = &[Victim::Run, Victim::Supervisor][..];
    // A run of the team has more boundaries than the others, and no other kinds of them.
    for (engine, script, victims) in [
        ("plan", PLAN.to_owned(), both),
        ("review", REVIEW.to_owned(), both),
        ("architect", ARCHITECT.to_owned(), both),
        ("team", team(), &[Victim::Run]),
        ("sop", SOP.to_owned(), both),
    ] {
        let host = Arc::new(Coordinator::start(place(None).await?, LeaseTime::Short).await?);
        let spec = Arc::new(template(&host, engine).await?);
        let whole = Arc::new(undisturbed(&host, &spec, &script).await?);
        ensure!(whole.seqs.len() > 10 && whole.concluded > 3, "{engine}: {:?}", whole.seqs);
        let mut scenarios = JoinSet::new();
        for victim in victims.iter().copied() {
            for (seq, when) in
                whole.seqs.iter().flat_map(|seq| [(*seq, FailWhen::Before), (*seq, FailWhen::After)])
            {
                let permit = room().await;
                let (whole, host, spec) = (Arc::clone(&whole), Arc::clone(&host), Arc::clone(&spec));
                let script = script.clone();
                scenarios.spawn(async move {
                    let _permit = permit;
                    let crash = (victim, seq, when);
                    (crash, Box::pin(play(&whole, crash, &host, (&spec, &script))).await)
                });
            }
        }
        say(&format!("{} boundaries of a run of `{engine}`", scenarios.len()));
        while let Some(joined) = scenarios.join_next().await {
            let (crash, played) = joined.context("a scenario panicked")?;
            failed.extend(played.err().map(|error| format!("{engine} {crash:?}: {error:?}")));
        }
        Arc::into_inner(host).context("all scenarios are over")?.end_and_check().await?;
    }
    ensure!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n\n"));
    Ok(())
}
