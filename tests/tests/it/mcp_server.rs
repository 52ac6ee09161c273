//! `docket mcp` as another agent meets it: the protocol spoken by the official SDK's client over the process's standard
//! input and output, a task put into the backlog, worked on, answered and looked at.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, task::TaskState};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, wait_until,
};
use rmcp::{
    RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, ContentBlock, JsonObject},
    service::RunningService,
};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turns]]
text = "BLOCKED: Which colour?"
[[turns]]
text = "Painting it."
calls = [{ name = "create_file", args = { path = "door.txt", content = "blue\n" } }]
[[turns]]
text = "Done."
"#;

struct McpClient {
    service: RunningService<RoleClient, ()>,
    child: tokio::process::Child,
}

impl McpClient {
    /// A client of `docket mcp`, started with these arguments in this folder.
    async fn start(
        coordinator: &CoordinatorProcess,
        folder: &std::path::Path,
        args: &[&str],
        token: &str,
    ) -> Result<Self> {
        let home = folder.join(".home");
        let env: [(&str, &OsStr); 3] = [
            ("DOCKET_HOME", home.as_os_str()),
            ("DOCKET_URL", coordinator.address().as_ref()),
            ("DOCKET_TOKEN", token.as_ref()),
        ];
        let all: Vec<&str> = ["mcp"].into_iter().chain(args.iter().copied()).collect();
        let mut child = TestProgram::Docket.spawn_with_pipes(folder, &env, &all)?;
        let (input, output) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let service = ().serve((output, input)).await?;
        Ok(Self { service, child })
    }

    async fn list_tools(&self) -> Result<Vec<(String, bool)>> {
        let tools = self.service.list_all_tools().await?;
        let reads = |tool: &rmcp::model::Tool| {
            tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).unwrap_or(false)
        };
        Ok(tools.iter().map(|tool| (tool.name.to_string(), reads(tool))).collect())
    }

    /// The text of a call's result, and whether it is an error.
    async fn call_tool(&self, name: &'static str, args: Value) -> Result<(String, bool)> {
        let args: JsonObject = serde_json::from_value(args)?;
        let result = self.service.call_tool(CallToolRequestParams::new(name).with_arguments(args)).await?;
        let text = result.content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        Ok((text.collect(), result.is_error.unwrap_or(false)))
    }

    async fn call_tool_ok(&self, name: &'static str, args: Value) -> Result<String> {
        let (text, is_error) = self.call_tool(name, args).await?;
        ensure!(!is_error, "{name}: {text}");
        Ok(text)
    }

    async fn shut_down(mut self) -> Result<()> {
        self.service.cancel().await?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "it ends with its client: {status}");
        Ok(())
    }
}

async fn create_token(coordinator: &CoordinatorProcess, name: &str, role: &str) -> Result<String> {
    let made = ["token", "create", "--name", name, "--role", role, "--expires", "1h", "--json"];
    let made: Value = serde_json::from_str(&coordinator.run_docket(&made).await?.into_stdout()?)?;
    Ok(made["secret"].as_str().context("a secret")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_client_submits_inspects_and_answers() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = SampleRepository::new(&[("README.md", "# A door\n")])?;
    let script = sample.write_script(SCRIPT)?;
    std::fs::create_dir_all(sample.path().join(".home"))?;
    std::fs::write(sample.path().join(".git/info/exclude"), ".home\n")?;
    let agent = McpClient::start(
        &coordinator,
        sample.path(),
        &[],
        &create_token(&coordinator, "agent", "submit").await?,
    )
    .await?;
    let names = agent.list_tools().await?;
    ensure!(names.len() == 8 && names.iter().filter(|(_, reads)| *reads).count() == 4, "{names:?}");

    // A script is nothing an agent can give, so the blocked task is submitted beside it; its own has no such model.
    let (refused, is_error) = agent.call_tool("docket_submit", json!({ "task": "Paint the door" })).await?;
    ensure!(is_error && refused.contains("no model"), "{refused}");
    let (wrong, is_error) =
        agent.call_tool("docket_submit", json!({ "task": "x", "colour": "blue" })).await?;
    ensure!(is_error && wrong.contains("colour"), "{wrong}");
    let model = "openai:none";
    // Nobody takes it there, so it does not end between two calls.
    coordinator.run_docket(&["queue", "pause", "nobodys"]).await?.into_stdout()?;
    let args = json!({ "task": "Paint the gate\nblue", "model": model, "queue": "nobodys", "dedup": "-gate", "priority": -5, "max_cost": 0.5 });
    let (unpriced, is_error) = agent.call_tool("docket_submit", args).await?;
    ensure!(!is_error && unpriced.starts_with("task "), "{unpriced}");
    let again = agent
        .call_tool_ok(
            "docket_submit",
            json!({ "task": "Paint the gate", "model": model, "queue": "nobodys", "dedup": "-gate" }),
        )
        .await?;
    ensure!(again.contains("already"), "{again}");
    let gate = unpriced.split_whitespace().nth(1).context("an id")?.to_owned();
    let view = coordinator.client().get_task(gate.parse()?).await?;
    ensure!(view.task.spec.title == "Paint the gate" && view.task.spec.priority == -5, "{view:?}");
    agent.call_tool_ok("docket_cancel", json!({ "task": gate, "reason": "only tried" })).await?;

    let script = script.to_str().context("UTF-8")?;
    let (task, _) = sample.submit(&coordinator, &["--model", "scripted:mcp", "--script", script]).await?;
    wait_until("a question", async || {
        let view = coordinator.client().get_task(task).await.ok()?;
        (view.task.state == TaskState::Blocked).then_some(())
    })
    .await
    .with_context(|| worker.log_tail())?;
    let status = agent.call_tool_ok("docket_status", json!({ "task": task.to_string() })).await?;
    for word in ["blocked", "Which colour?", "docket answer", "turn 1"] {
        ensure!(status.contains(word), "{word}: {status}");
    }
    let listed = agent.call_tool_ok("docket_list", json!({ "state": "blocked" })).await?;
    ensure!(listed.contains(&task.to_string()) && listed.contains("Which colour?"), "{listed}");
    // A run that rests hears it as well, once it goes on.
    let words = json!({ "task": task.to_string(), "words": "with a gloss" });
    let told = agent.call_tool_ok("docket_tell", words).await?;
    let run = coordinator.client().get_task(task).await?.task.last_run.context("a run")?;
    ensure!(told.contains(&run.to_string()), "{told}");
    agent.call_tool_ok("docket_answer", json!({ "task": task.to_string(), "answer": "blue" })).await?;
    coordinator.wait_until_ended(task).await?;
    let history = coordinator.run_history(run).await?;
    let heard = history.events.iter().any(|event| match event {
        RunEvent::Told(said) => serde_json::to_string(said).is_ok_and(|said| said.contains("with a gloss")),
        _ => false,
    });
    ensure!(heard, "nothing was told");
    let logs = agent.call_tool_ok("docket_logs", json!({ "task": task.to_string(), "turns": 2 })).await?;
    ensure!(
        logs.contains("Painting it.") && logs.contains("create_file") && !logs.contains("\nturn 1 "),
        "{logs}"
    );
    // Contents of files are for administrators.
    let (diff, is_error) = agent.call_tool("docket_diff", json!({ "task": task.to_string() })).await?;
    ensure!(is_error && diff.contains("role"), "{diff}");
    let (none, is_error) = agent.call_tool("docket_status", json!({ "task": "ffffffff" })).await?;
    ensure!(is_error && none.contains("ffffffff"), "{none}");
    agent.shut_down().await?;

    let agent = McpClient::start(&coordinator, sample.path(), &["--read-only"], coordinator.token()).await?;
    ensure!(agent.list_tools().await?.iter().all(|(_, reads)| *reads), "only what reads");
    let refused = agent.call_tool("docket_cancel", json!({ "task": task.to_string() })).await;
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("no tool")),
        "what is not offered is not done"
    );
    let diff = agent.call_tool_ok("docket_diff", json!({ "task": task.to_string() })).await?;
    ensure!(diff.contains("+blue"), "{diff}");
    agent.shut_down().await
}
