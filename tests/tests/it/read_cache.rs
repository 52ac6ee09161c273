//! The read cache on a real run: what was shown is not shown again, what changed is, and every way of looking
//! back comes to the same.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{content::Content, message::CallId, run::RunEvent, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

const SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "long.txt" }
[[turns.calls]]
name = "read_file"
args = { path = "./long.txt", start_line = 5, end_line = 60 }

[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "long.txt" }
[[turns.calls]]
name = "run_command"
args = { command = "echo more >> long.txt" }
[[turns.calls]]
name = "read_file"
args = { path = "long.txt" }

[[turns]]
[[turns.calls]]
name = "functions.read_file"
args = { path = "long.txt", start_line = 100 }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "seq 1 5000" }

[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "output:t4-0", start_line = 2500, end_line = 2501 }

[[turns]]
text = "Done."
"#;

fn call_result(history: &RunHistory, call: &str) -> Result<(String, Option<CallId>)> {
    let finished = history.events.iter().find_map(|event| match event {
        RunEvent::ToolFinished(finished) if finished.call.0 == call => Some(finished),
        _ => None,
    });
    let finished = finished.with_context(|| format!("no result of {call}"))?;
    let Content::Text(text) = &finished.content else { anyhow::bail!("{call} is not in line") };
    Ok((text.clone(), finished.facts.same_as.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_file_is_shown_once_and_the_run_replays_identically() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let text: String = (1..=100).map(|n| format!("line {n} of a file that is read\n")).collect();
    let sample = SampleRepository::new(&[("long.txt", &text)])?;
    let args = ["--model", "openai:reread", "--queue", "template"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let model = server.model_ref(ModelProvider::Anthropic, "reread");
    let task = coordinator.submit_like(&spec, &"reread".parse()?, model).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task, worker.log_tail());
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    for (call, words, same_as) in [
        ("t1-0", "   100| line 100 of", None),
        ("t1-1", "long.txt: lines 5 to 60 unchanged since turn 1, ", Some("t1-0")),
        ("t2-0", "long.txt: lines 1 to 100 unchanged since turn 1, ", Some("t1-0")),
        ("t2-2", "   101| more\n", None),
        // Two lines are shorter than what would be said of them.
        ("t3-0", "   100| line 100 of a file that is read\n   101| more\n", None),
        // What was cut says where the rest is, and that can be read.
        ("t4-0", "\n[whole output: 5001 lines; read_file shows them, with the path `output:t4-0`]\n", None),
        ("t5-0", "output:t4-0: lines 2500 to 2501 of 5001\n  2500| 2499\n  2501| 2500\n", None),
    ] {
        let (text, to) = call_result(&history, call)?;
        ensure!(
            text.contains(words) && to == same_as.map(|to| CallId(to.to_owned())),
            "{call}: {text} {to:?}"
        );
    }
    let named =
        |event: &RunEvent| matches!(event, RunEvent::ToolRequested(asked) if asked.tool.contains('.'));
    ensure!(!history.events.iter().any(named), "a namespace stands before a tool's name");
    worker.drain().await?;
    // The model was sent the same, and no more of it.
    let last = server.requests().pop().context("a request")?;
    let sent = String::from_utf8_lossy(&last.body).matches("line 70 of a file").count();
    ensure!(sent == 2, "shown {sent} times, not before and after the change");
    history.verify(coordinator.client()).await?;
    let run = history.envelopes[0].stream.to_string();
    let run = run.trim_start_matches("run/");
    for args in [&["verify", run][..], &["replay", run, "--tools"]] {
        let said = coordinator.run_docket(args).await?;
        ensure!(said.success(), "{args:?}: {said:?}");
    }
    coordinator.end_and_check().await
}
