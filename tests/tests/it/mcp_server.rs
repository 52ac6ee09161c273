//! `docket mcp` as another agent meets it: the protocol spoken by the official SDK's client over the process's standard
//! input and output, a task put into the backlog, worked on, answered and looked at.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, task::TaskState};
use docket_tests::system::{Coordinator, LeaseTime, Place, Sample, Tool, Worker, WorkerOptions, room, until};
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

struct Agent {
    service: RunningService<RoleClient, ()>,
    child: tokio::process::Child,
}

impl Agent {
    /// A client of `docket mcp`, started with these arguments in this folder.
    async fn start(
        coordinator: &Coordinator,
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
        let mut child = Tool::Docket.spoken_with(folder, &env, &all)?;
        let (input, output) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let service = ().serve((output, input)).await?;
        Ok(Self { service, child })
    }

    async fn names(&self) -> Result<Vec<(String, bool)>> {
        let tools = self.service.list_all_tools().await?;
        let reads = |tool: &rmcp::model::Tool| {
            tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).unwrap_or(false)
        };
        Ok(tools.iter().map(|tool| (tool.name.to_string(), reads(tool))).collect())
    }

    /// The text of a call's result, and whether it is an error.
    async fn call(&self, name: &'static str, args: Value) -> Result<(String, bool)> {
        let args: JsonObject = serde_json::from_value(args)?;
        let result = self.service.call_tool(CallToolRequestParams::new(name).with_arguments(args)).await?;
        let text = result.content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        Ok((text.collect(), result.is_error.unwrap_or(false)))
    }

    async fn good(&self, name: &'static str, args: Value) -> Result<String> {
        let (text, is_error) = self.call(name, args).await?;
        ensure!(!is_error, "{name}: {text}");
        Ok(text)
    }

    async fn end(mut self) -> Result<()> {
        self.service.cancel().await?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "it ends with its client: {status}");
        Ok(())
    }
}

async fn token(coordinator: &Coordinator, name: &str, role: &str) -> Result<String> {
    let made = ["token", "create", "--name", name, "--role", role, "--expires", "1h", "--json"];
    let made: Value = serde_json::from_str(&coordinator.docket(&made).await?.ok()?)?;
    Ok(made["secret"].as_str().context("a secret")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_submits_looks_and_answers() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = Sample::new(&[("README.md", "# A door\n")])?;
    let script = sample.script(SCRIPT)?;
    std::fs::create_dir_all(sample.path().join(".home"))?;
    std::fs::write(sample.path().join(".git/info/exclude"), ".home\n")?;
    let agent =
        Agent::start(&coordinator, sample.path(), &[], &token(&coordinator, "agent", "submit").await?)
            .await?;
    let names = agent.names().await?;
    ensure!(names.len() == 8 && names.iter().filter(|(_, reads)| *reads).count() == 4, "{names:?}");

    // A script is nothing an agent can give, so the blocked task is submitted beside it; its own has no such model.
    let (refused, is_error) = agent.call("docket_submit", json!({ "task": "Paint the door" })).await?;
    ensure!(is_error && refused.contains("no model"), "{refused}");
    let (wrong, is_error) = agent.call("docket_submit", json!({ "task": "x", "colour": "blue" })).await?;
    ensure!(is_error && wrong.contains("colour"), "{wrong}");
    let model = "openai:none";
    // Nobody takes it there, so it does not end between two calls.
    coordinator.docket(&["queue", "pause", "nobodys"]).await?.ok()?;
    let args = json!({ "task": "Paint the gate\nblue", "model": model, "queue": "nobodys", "dedup": "-gate", "priority": -5, "max_cost": 0.5 });
    let (unpriced, is_error) = agent.call("docket_submit", args).await?;
    ensure!(!is_error && unpriced.starts_with("task "), "{unpriced}");
    let again = agent
        .good(
            "docket_submit",
            json!({ "task": "Paint the gate", "model": model, "queue": "nobodys", "dedup": "-gate" }),
        )
        .await?;
    ensure!(again.contains("already"), "{again}");
    let gate = unpriced.split_whitespace().nth(1).context("an id")?.to_owned();
    let view = coordinator.client().task(gate.parse()?).await?;
    ensure!(view.task.spec.title == "Paint the gate" && view.task.spec.priority == -5, "{view:?}");
    agent.good("docket_cancel", json!({ "task": gate, "reason": "only tried" })).await?;

    let script = script.to_str().context("UTF-8")?;
    let (task, _) = sample.submit(&coordinator, &["--model", "scripted:mcp", "--script", script]).await?;
    until("a question", async || {
        let view = coordinator.client().task(task).await.ok()?;
        (view.task.state == TaskState::Blocked).then_some(())
    })
    .await
    .with_context(|| worker.tail())?;
    let status = agent.good("docket_status", json!({ "task": task.to_string() })).await?;
    for word in ["blocked", "Which colour?", "docket answer", "turn 1"] {
        ensure!(status.contains(word), "{word}: {status}");
    }
    let listed = agent.good("docket_list", json!({ "state": "blocked" })).await?;
    ensure!(listed.contains(&task.to_string()) && listed.contains("Which colour?"), "{listed}");
    // A run that rests hears it as well, once it goes on.
    let words = json!({ "task": task.to_string(), "words": "with a gloss" });
    let told = agent.good("docket_tell", words).await?;
    let run = coordinator.client().task(task).await?.task.last_run.context("a run")?;
    ensure!(told.contains(&run.to_string()), "{told}");
    agent.good("docket_answer", json!({ "task": task.to_string(), "answer": "blue" })).await?;
    coordinator.ended(task).await?;
    let history = coordinator.history(run).await?;
    let heard = history.events.iter().any(|event| match event {
        RunEvent::Told(said) => serde_json::to_string(said).is_ok_and(|said| said.contains("with a gloss")),
        _ => false,
    });
    ensure!(heard, "nothing was told");
    let logs = agent.good("docket_logs", json!({ "task": task.to_string(), "turns": 2 })).await?;
    ensure!(
        logs.contains("Painting it.") && logs.contains("create_file") && !logs.contains("\nturn 1 "),
        "{logs}"
    );
    // Contents of files are for administrators.
    let (diff, is_error) = agent.call("docket_diff", json!({ "task": task.to_string() })).await?;
    ensure!(is_error && diff.contains("role"), "{diff}");
    let (none, is_error) = agent.call("docket_status", json!({ "task": "ffffffff" })).await?;
    ensure!(is_error && none.contains("ffffffff"), "{none}");
    agent.end().await?;

    let agent = Agent::start(&coordinator, sample.path(), &["--read-only"], coordinator.token()).await?;
    ensure!(agent.names().await?.iter().all(|(_, reads)| *reads), "only what reads");
    let refused = agent.call("docket_cancel", json!({ "task": task.to_string() })).await;
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("no tool")),
        "what is not offered is not done"
    );
    let diff = agent.good("docket_diff", json!({ "task": task.to_string() })).await?;
    ensure!(diff.contains("+blue"), "{diff}");
    agent.end().await
}
