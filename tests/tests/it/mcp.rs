//! Tools of MCP servers in real runs: pinned when a run begins, called in its sandbox, judged by policy, recorded, and
//! replayed from the log.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Finished, Sample, Tool, room, run};
use serde_json::Value;
use tempfile::TempDir;

/// A server of the project's own, as a repository may bring one.
const SERVER: &str = r#"
import json, sys
TOOLS = [("count", {"readOnlyHint": True}), ("note", {}), ("erase", {})]
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        return {"tools": [{"name": name, "description": f"Can {name}.", "inputSchema": schema, "annotations": hints}
                          for name, hints in TOOLS]}
    name, word = params["name"], params["arguments"]["word"]
    if name == "note":
        with open("notes.txt", "a") as notes:
            notes.write(word + "\n")
    return {"content": [{"type": "text", "text": f"{name}: {len(word)}"}]}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

const SETTINGS: &str = r#"
[mcp.notes]
command = ["python3", "tools/notes.py"]

[[policy.rules]]
id = "keep-notes"
verdict = "deny"
tools = ["mcp__notes__er*"]
reason = "notes are kept"
"#;

const SCRIPT: &str = r#"
[[turns]]
calls = [
  { name = "mcp__notes__count", args = { word = "docket" } },
  { name = "mcp__notes__note", args = { word = "first" } },
  { name = "mcp__notes__erase", args = { word = "first" } },
  { name = "mcp__other__note", args = { word = "first" } },
]
[[turns]]
text = "Noted."
"#;

struct Home {
    home: TempDir,
    sample: Sample,
}

impl Home {
    fn new(settings: &str) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        std::fs::write(home.path().join("docket.toml"), settings)?;
        Ok(Self { home, sample: Sample::new(&[("tools/notes.py", SERVER), ("notes.txt", "")])? })
    }

    async fn docket(&self, args: &[&str]) -> Result<Finished> {
        let env: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", self.home.path().as_os_str())];
        run(Tool::Docket, self.home.path(), &env, args).await
    }

    /// Plays a script through an engine; gives its run, its events and how the command ended.
    async fn play(&self, script: &str, engine: &str) -> Result<(String, Vec<Value>, Finished)> {
        let script = self.sample.script(script)?;
        let script = script.to_str().context("a UTF-8 path")?;
        let repo = self.sample.path().to_str().context("a UTF-8 path")?;
        let args = ["run", "Note it", "--repo", repo, "--script", script, "--model", "scripted:x"];
        let done = self.docket(&[&args[..], &["--engine", engine]].concat()).await?;
        let tasks = lines(&self.docket(&["ps", "--json"]).await?.ok()?)?;
        let id = tasks[0]["run"].as_str().with_context(|| format!("{done:?}"))?.to_owned();
        let events = lines(&self.docket(&["logs", &id, "--json"]).await?.ok()?)?;
        Ok((id, events, done))
    }
}

fn lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).context("a line is no JSON")).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["kind"] == kind).map(|event| &event["payload"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_calls_a_servers_tools_and_policy_judges_them() -> Result<()> {
    let _room = room().await;
    let home = Home::new(SETTINGS)?;
    let (id, events, done) = home.play(SCRIPT, "react").await?;
    ensure!(done.success(), "{done:?}");
    let pinned = &of_kind(&events, "RunStarted").next().context("a start")?["external"];
    ensure!(pinned.as_array().is_some_and(|tools| tools.len() == 3), "{pinned}");
    let intents: Vec<_> = of_kind(&events, "ToolRequested")
        .map(|asked| (asked["class"].as_str().unwrap_or_default(), asked["labels"].to_string()))
        .collect();
    ensure!(intents[0] == ("reads", r#"["reads","external"]"#.to_owned()), "{intents:?}");
    ensure!(intents[1] == ("workspace", r#"["external"]"#.to_owned()), "{intents:?}");
    let results: Vec<_> = of_kind(&events, "ToolFinished")
        .map(|done| (done["status"].as_str().unwrap_or_default(), done["content"].to_string()))
        .collect();
    ensure!(results[0].0 == "ok" && results[0].1.contains("count: 6"), "{results:?}");
    ensure!(results[1].0 == "ok" && results[1].1.contains("note: 5"), "{results:?}");
    ensure!(results[2].0 == "refused" && results[2].1.contains("keep-notes"), "{results:?}");
    ensure!(results[3].0 == "error" && results[3].1.contains("there is no tool"), "{results:?}");
    let diff = home.docket(&["diff", &id]).await?.ok()?;
    ensure!(diff.contains("+first"), "{diff}");
    home.docket(&["verify", &id]).await?.ok()?;
    let replayed = lines(&home.docket(&["replay", &id, "--tools", "--json"]).await?.stdout)?;
    let mut calls = replayed.iter().flat_map(|row| row["calls"].as_array().into_iter().flatten());
    let ran = calls.find(|call| call["tool"] == "mcp__notes__note").context("the call")?;
    ensure!(ran["ran"] == "external", "{ran}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_runs_commands_has_a_servers_tools_and_a_planner_has_not() -> Result<()> {
    let _room = room().await;
    let home = Home::new(SETTINGS)?;
    let script = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [ { name = "mcp__notes__note", args = { word = "mine" } } ]
[[talks.turns]]
text = '["note it"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [ { name = "mcp__notes__note", args = { word = "yours" } } ]
[[talks.turns]]
text = '{"success": true, "output": "noted"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "noted"}'
"#;
    let (id, events, done) = home.play(script, "review").await?;
    ensure!(done.success(), "{done:?}");
    let statuses: Vec<_> = of_kind(&events, "ToolFinished").map(|done| done["status"].clone()).collect();
    ensure!(statuses == ["refused", "ok"], "{statuses:?}");
    let diff = home.docket(&["diff", &id]).await?.ok()?;
    ensure!(diff.contains("+yours") && !diff.contains("mine"), "{diff}");
    home.docket(&["verify", &id]).await?.ok()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_ends_the_run_with_its_name_and_reason() -> Result<()> {
    let _room = room().await;
    let home = Home::new("[mcp.broken]\ncommand = ['sh', '-c', 'echo no key >&2; exit 4']\n")?;
    let (_, events, done) = home.play(SCRIPT, "react").await?;
    ensure!(!done.success(), "{done:?}");
    let ended = of_kind(&events, "RunEnded").next().context("an end")?["result"].to_string();
    for part in ["MCP server `broken`", "status 4", "no key"] {
        ensure!(ended.contains(part), "{part} in {ended}");
    }
    Ok(())
}
