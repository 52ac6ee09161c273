//! What a person says of a run that had ended well is heard before the run that goes on may end, whatever its engine.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, task::TaskState};
use docket_tests::system::{Coordinator, LeaseTime, Place, Sample, Worker, WorkerOptions, room};

const PLAN: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '{"steps": [{"kind": "message", "text": "nothing is to be done"}]}'
"#;

const REVIEW: &str = r#"
[[talks]]
role = "planner"
opening_contains = "asked again"
[[talks.turns]]
text = "[]"
[[talks]]
role = "planner"
[[talks.turns]]
text = '["look"]'
[[talks]]
role = "executor"
[[talks.turns]]
text = '{"success": true, "output": "looked"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "nothing is to be done"}'
"#;

const TEAM: &str = r#"
[[talks]]
role = "orchestrator"
opening_contains = "All roles have spoken"
[[talks.turns]]
text = '{"action": "finish", "summary": "nothing was to be done"}'
[[talks.turns]]
text = '{"action": "finish", "summary": "nor was it after that"}'
[[talks]]
role = "orchestrator"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Do your part.", "results": ["task"]}'
[[talks]]
role = "architect"
[[talks.turns]]
text = '{"design": "Nothing.", "files": []}'
[[talks]]
role = "coder"
[[talks.turns]]
text = '{"done": true, "summary": "nothing"}'
[[talks]]
role = "tester"
[[talks.turns]]
text = '{"outcome": "none", "summary": "there is nothing to test"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "approve", "summary": "right"}'
"#;

const SOP: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "a note is missing", steps = ["note it"], files = ["n.txt"] } }]
[[talks]]
role = "builder"
opening_contains = "a person has something to say"
[[talks.turns]]
calls = [
  { name = "create_file", args = { path = "m.txt", content = "more\n" } },
  { name = "diff_card", args = { rationale = "more is wanted", not_verified_because = "a note" } },
]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "create_file", args = { path = "n.txt", content = "noted\n" } },
  { name = "diff_card", args = { rationale = "it is wanted", not_verified_because = "a note" } },
]
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: a note"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "noted" } }]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: two notes"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "noted, and more" } }]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_goes_on_with_what_was_rejected_is_asked_with_the_persons_words() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    for (engine, script) in [("plan", PLAN), ("review", REVIEW), ("team", TEAM), ("sop", SOP)] {
        let sample = Sample::new(&[("a.txt", "a\n")])?;
        let script = sample.script(script)?;
        let script = script.to_str().context("UTF-8")?;
        let args =
            ["--model", "scripted:x", "--script", script, "--engine", engine, "--tests", "test -e a.txt"];
        let (task, _) = sample.submit(&coordinator, &args).await?;
        let first = coordinator.ended(task).await?.task;
        ensure!(first.state == TaskState::Completed, "{engine}: {first:?}\n{}", worker.tail());
        coordinator.docket(&["reject", &task.to_string(), "--comment", "It is not done"]).await?.ok()?;
        let second = coordinator.ended(task).await?.task;
        ensure!(second.state == TaskState::Completed, "{engine}: {second:?}\n{}", worker.tail());
        ensure!(second.last_run != first.last_run, "{engine}: no run went on");
        let history = coordinator.history(second.last_run.context("a run")?).await?;
        history.verify(coordinator.client()).await?;
        let forked = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)));
        let own = &history.events[forked.context("it stands on the first")?..];
        let asked = own.iter().filter(|event| matches!(event, RunEvent::ModelRequested(_))).count();
        ensure!(asked > 0, "{engine}: nobody heard the words: {}", history.kinds());
        let checked = own.iter().any(|event| matches!(event, RunEvent::GateFinished(_)));
        ensure!(checked || engine == "team", "{engine}: its checks did not run again");
    }
    worker.drain().await?;
    Ok(())
}
