//! A task's own policy, and one that is changed while its run works: in force beside the worker's, never in its place.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{PolicyVerdict, RunEvent},
    task::TaskState,
    tool::RecoveryClass,
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, poll_until,
};

/// The worker's: of the network it says nothing.
const OF_WORKER: &str = r#"
[[policy.rules]]
id = "worker-no-push"
verdict = "deny"
commands = ["git push *"]
"#;

/// The task's: would allow the worker's, were that how it is, and wants the network.
const OF_TASK: &str = r#"
[[rules]]
id = "task-no-touch"
verdict = "deny"
commands = ["touch *"]
reason = "this task makes no empty files"
matches = ["cd a && touch b"]
[[rules]]
id = "task-push"
verdict = "allow"
commands = ["git push *"]
[network]
hosts = ["127.0.0.1:9"]
"#;

/// The one that takes the task's place.
const LATER: &str = r#"
[[rules]]
id = "later-no-echo"
verdict = "deny"
commands = ["echo *"]
"#;

const SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "git push" }
[[turns.calls]]
name = "run_command"
args = { command = "touch a" }
[[turns.calls]]
name = "run_command"
args = { command = "printf waits > waits; while [ ! -e go ]; do sleep 0.05; done" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo b > b" }
[[turns.calls]]
name = "run_command"
args = { command = "touch c" }
[[turns.calls]]
name = "run_command"
args = { command = "git push" }

[[turns]]
text = "Done."
"#;

/// Verdict, rule and class of each call.
fn call_verdicts(history: &RunHistory) -> Vec<(String, RecoveryClass)> {
    let one = |event: &RunEvent| {
        let RunEvent::ToolRequested(asked) = event else { return None };
        let said = match &asked.policy {
            PolicyVerdict::Allow { rule } => format!("allow {rule}"),
            PolicyVerdict::Deny { rule, .. } => format!("deny {rule}"),
            PolicyVerdict::Ask { rule, .. } => format!("ask {rule}"),
        };
        Some((said, asked.class))
    };
    history.events.iter().filter_map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_policy_adds_to_the_worker_policy_and_can_change_mid_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let options = WorkerOptions { settings: OF_WORKER.to_owned(), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let folder = tempfile::tempdir()?;
    let (of_task, later) = (folder.path().join("task.toml"), folder.path().join("later.toml"));
    std::fs::write(&of_task, OF_TASK)?;
    std::fs::write(&later, LATER)?;
    let (of_task, later) = (of_task.to_str().context("UTF-8")?, later.to_str().context("UTF-8")?);
    let script = script.to_str().context("UTF-8")?;
    let args = ["--model", "scripted:policy", "--script", script, "--policy", of_task];
    let (task, spec) = sample.submit(&coordinator, &args).await?;
    ensure!(spec.policy.as_ref().is_some_and(|policy| policy.rules.len() == 2), "{:?}", spec.policy);

    let workspace = poll_until("a run that waits", || {
        worker.workspaces().into_iter().find(|workspace| workspace.join("waits").exists())
    });
    let workspace = workspace.await.with_context(|| worker.log_tail())?;
    let run = coordinator.client().get_task(task).await?.task.run.context("a run")?.to_string();
    coordinator.run_docket(&["policy", "set", &run, later]).await?.into_stdout()?;
    std::fs::write(workspace.join("go"), "")?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);

    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    use RecoveryClass::{External, Workspace};
    let expected = [
        ("deny worker-no-push", External),
        ("deny task-no-touch", Workspace),
        ("allow default", Workspace),
        ("deny later-no-echo", Workspace),
        ("allow default", Workspace),
        ("deny worker-no-push", External),
    ];
    let found = call_verdicts(&history);
    ensure!(found.iter().map(|(said, class)| (said.as_str(), *class)).eq(expected), "{found:?}");
    coordinator.run_docket(&["verify", &run]).await?.into_stdout()?;
    let logs = coordinator.run_docket(&["logs", &run]).await?.into_stdout()?;
    ensure!(logs.contains("1 rules replace the task's policy"), "{logs}");

    let json = coordinator.run_docket(&["policy", "show", &run, "--json"]).await?.into_stdout()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    ensure!(json["policies"][0]["rules"][0]["id"] == "worker-no-push", "{json}");
    ensure!(json["policies"][1]["rules"][0]["id"] == "later-no-echo", "{json}");
    ensure!(json["policies"].as_array().is_some_and(|all| all.len() == 2), "{json}");
    let pushed = serde_json::json!({ "verdict": "deny", "rule": "worker-no-push", "calls": 2 });
    ensure!(json["verdicts"].as_array().is_some_and(|all| all.contains(&pushed)), "{json}");
    let shown = coordinator.run_docket(&["policy", "show", &run]).await?.into_stdout()?;
    ensure!(shown.contains("later-no-echo") && shown.contains("4 calls refused (66.7 %)"), "{shown}");
    let json = coordinator.run_docket(&["show", &run, "--json"]).await?.into_stdout()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    ensure!(
        json["policy_denial_rate"].as_f64().is_some_and(|rate| (rate - 4.0 / 6.0).abs() < 1e-9),
        "{json}"
    );
    // What has ended has no next turn.
    let refused = coordinator.run_docket(&["policy", "set", &run, later]).await?;
    ensure!(!refused.success(), "{refused:?}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_failing_its_own_examples_is_rejected_before_submit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.toml");
    std::fs::write(&file, format!("{LATER}misses = [\"ls; echo x\"]\n"))?;
    let file = file.to_str().context("UTF-8")?;
    let args = ["--model", "scripted:p", "--script", script.to_str().context("UTF-8")?, "--policy", file];
    let refused = sample.submit(&coordinator, &args).await;
    let said = format!("{:#}", refused.err().context("it was taken")?);
    ensure!(said.contains("rules[0].misses[0] must not be matched by `later-no-echo`"), "{said}");
    let checked = coordinator.run_docket(&["policy", "check", file]).await?;
    ensure!(!checked.success(), "{checked:?}");
    std::fs::write(file, LATER)?;
    let said =
        coordinator.run_docket(&["policy", "check", file, "--", "ls && echo x"]).await?.into_stdout()?;
    ensure!(said == "deny by `later-no-echo`: echo x\n", "{said}");
    coordinator.end_and_check().await
}
