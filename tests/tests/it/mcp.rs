//! Tools of MCP servers in real runs: pinned when a run begins, called in its sandbox, judged by policy, recorded, ended
//! by a crash, and replayed from the log; servers that know a secret, and servers that behave badly.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    content::Content,
    run::{RunEvent, ToolStatus},
    task::TaskState,
    tool::RecoveryClass,
};
use docket_tests::system::{
    CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, TestProgram,
    WorkerOptions, WorkerProcess, acquire_scenario_slot, poll_until, run_program, send_signal,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::golden::{release_command, wait_for_middle};

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

/// Shows that it is in the middle of a call, and waits to be let on: a tool that reads, one that may be called twice, and
/// one that says nothing of itself.
pub(crate) const PATIENT: &str = r#"
import json, os, sys, time
TOOLS = [("count", {"readOnlyHint": True}), ("note", {"idempotentHint": True}), ("post", {}), ("erase", {})]
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        return {"tools": [{"name": name, "description": f"Can {name}.", "inputSchema": schema, "annotations": hints}
                          for name, hints in TOOLS]}
    name, word = params["name"], params["arguments"]["word"]
    open("middle", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.02)
    os.remove("go")
    os.remove("middle")
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

/// It has the network: what a call came to that a crash ended is then nobody's to know.
pub(crate) const PATIENT_SETTINGS: &str = r#"
[mcp.notes]
command = ["python3", "tools/notes.py"]

[policy.network]
hosts = ["127.0.0.1:9"]
commands = ["mcp__notes__*"]

[[policy.rules]]
id = "keep-notes"
verdict = "deny"
tools = ["mcp__notes__er*"]
reason = "notes are kept"
"#;

/// Lets a call go on, and waits until it does.
pub(crate) async fn release_call(folder: &Path) -> Result<()> {
    release_command(folder)?;
    poll_until("a call that goes on", || (!folder.join("middle").exists()).then_some(())).await
}

const INTERRUPTED: &str = r#"
[[turns]]
calls = [{ name = "mcp__notes__count", args = { word = "docket" } }, { name = "mcp__notes__erase", args = { word = "x" } }]
[[turns]]
calls = [{ name = "mcp__notes__note", args = { word = "first" } }]
[[turns]]
calls = [{ name = "mcp__notes__post", args = { word = "first" } }]
[[turns]]
when = { last_result_contains = "unknown" }
text = "Noted, as far as I can tell."
"#;

/// Calls of three tools are each ended in their middle by a kill -9 of the run process. What reads, and what does no harm
/// a second time, is called again; of the other the model is told that nobody knows. A refused call that stood beside the
/// first is refused again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_call_is_repeated_only_if_its_server_allows() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let options = WorkerOptions { settings: PATIENT_SETTINGS.to_owned(), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let sample = SampleRepository::new(&[("tools/notes.py", PATIENT), ("notes.txt", "")])?;
    let script = sample.write_script(INTERRUPTED)?;
    let args = ["--model", "scripted:x", "--script", script.to_str().context("a UTF-8 path")?];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let dies = async || {
        let folder = wait_for_middle(&worker, None).await?;
        worker.run_processes().into_iter().for_each(|run| send_signal(run, Signal::SIGKILL));
        anyhow::Ok(folder)
    };
    for _ in ["count", "note"] {
        let before = dies().await?;
        release_call(&wait_for_middle(&worker, Some(&before)).await?).await?;
    }
    dies().await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed && view.task.crashes == 3, "{:?}", view.task);
    let run = view.task.last_run.context("a run")?;
    let history = coordinator.run_history(run).await?;
    history.verify(coordinator.client()).await?;
    let classes: Vec<RecoveryClass> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ToolRequested(e) => Some(e.class),
            _ => None,
        })
        .collect();
    ensure!(
        classes
            == [
                RecoveryClass::Reads,
                RecoveryClass::External,
                RecoveryClass::Workspace,
                RecoveryClass::External
            ],
        "{classes:?}"
    );
    let ends: Vec<(ToolStatus, &Content)> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ToolFinished(e) => Some((e.status, &e.content)),
            _ => None,
        })
        .collect();
    let is = |nth: usize, status: ToolStatus, said: &str| matches!(ends.get(nth), Some((found, Content::Text(text))) if *found == status && text.contains(said));
    ensure!(is(0, ToolStatus::Ok, "count: 6") && is(1, ToolStatus::Refused, "keep-notes"), "{ends:?}");
    ensure!(is(2, ToolStatus::Ok, "note: 5") && is(3, ToolStatus::Unknown, "unknown"), "{ends:?}");
    ensure!(ends.len() == 4, "{ends:?}");
    // What the first one wrote was gone with its workspace: there is one line.
    let notes = coordinator.run_docket(&["cat", &run.to_string(), "notes.txt"]).await?.into_stdout()?;
    ensure!(notes == "first\n", "{notes}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// A server that hangs, floods, says garbage, and offers another list of tools once it is asked to.
const WILD: &str = r#"
import json, os, sys, time
def tools():
    return ["new", "swap"] if os.path.exists("changed.txt") else ["hang", "flood", "garbage", "swap", "old"]
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "wild", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": f"Can {name}.", "inputSchema": {"type": "object"}}
                          for name in tools()]}
    name = params["name"]
    if name not in tools():
        return None
    if name == "hang":
        time.sleep(600)
    while name == "flood":
        sys.stdout.write("x" * 65536)
    if name == "garbage":
        print("{ this is : no JSON")
        print("neither is this", flush=True)
        sys.stdout.write("\x00\xff[[[[")
        sys.exit(0)
    if name == "swap":
        open("changed.txt", "w").close()
    return {"content": [{"type": "text", "text": f"{name} is done"}]}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        gone = {"code": -32602, "message": "there is no such tool any more"}
        said = {"error": gone} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
"#;

const WILD_SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "mcp__wild__hang" }, { name = "mcp__wild__flood" }, { name = "mcp__wild__garbage" }]
[[turns]]
calls = [{ name = "mcp__wild__old" }, { name = "mcp__wild__swap" }, { name = "mcp__wild__old" }, { name = "mcp__wild__new" }]
[[turns]]
text = "That was wild."
"#;

/// Each of it is an error that says what happened, within the limits of a call; the run goes on, with the tools that it
/// pinned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misbehaving_server_fails_only_its_call() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let settings = "[mcp.wild]\ncommand = [\"python3\", \"tools/wild.py\"]\ntimeout_ms = 4000\n";
    let home = McpHome::with_files(settings, &[("tools/wild.py", WILD)])?;
    let (id, events, done) = home.play_script(WILD_SCRIPT, "react").await?;
    ensure!(done.success(), "{done:?}");
    let results: Vec<_> = events_of_kind(&events, "ToolFinished").collect();
    let wanted = [
        ("error", "it did not answer within 4.0 s"),
        ("error", "it says more than is read"),
        ("error", "the MCP server `wild` failed"),
        ("ok", "old is done"),
        ("ok", "swap is done"),
        ("error", "there is no such tool any more"),
        ("error", "there is no tool `mcp__wild__new`"),
    ];
    ensure!(results.len() == wanted.len(), "{results:?}");
    for ((status, said), result) in wanted.iter().zip(&results) {
        let is = result["status"] == *status && result["content"].to_string().contains(said);
        ensure!(is, "{status}, {said}: {result}");
        // The limit, the grace, and a machine that is busy.
        ensure!(result["duration_ms"].as_u64().is_some_and(|took_ms| took_ms < 12_000), "{result}");
    }
    home.run_docket(&["verify", &id]).await?.into_stdout()?;
    Ok(())
}

/// What a server sees of its environment.
const KNOWS: &str = r#"
import json, os, sys
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "knows", "version": "1"}}
    if method == "tools/list":
        print("listed with", os.environ.get("KNOWS_TOKEN"), file=sys.stderr, flush=True)
        return {"tools": [{"name": "env", "description": "Tells. " + os.environ["KNOWS_TOKEN"],
                           "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    name = params["arguments"]["name"]
    return {"content": [{"type": "text", "text": f"{name} is {os.environ.get(name)}"}]}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

const KNOWS_SETTINGS: &str = r#"
[mcp.knows]
command = ["python3", "/workspace/tools/knows.py"]
env = { KNOWS_AT = "north" }
env_from = ["KNOWS_TOKEN"]
"#;

const KNOWS_SCRIPT: &str = r#"
[[turns]]
calls = [
  { name = "mcp__knows__env", args = { name = "KNOWS_AT" } },
  { name = "mcp__knows__env", args = { name = "KNOWS_TOKEN" } },
  { name = "run_command", args = { command = "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; echo looked" } },
]
[[turns]]
text = "Seen."
"#;

/// What a server takes of the worker's environment reaches its process: no other command has it, no prompt, no event and
/// no file of docket's holds it, and whoever looks is shown names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_secret_reaches_only_the_server() -> Result<()> {
    docket_tests::needs!("python3");
    const TOKEN: &str = "ktok-4f9a1c77e2";
    let _room = acquire_scenario_slot().await;
    let mut home = McpHome::with_files(KNOWS_SETTINGS, &[("tools/knows.py", KNOWS)])?;
    home.env.push(("KNOWS_TOKEN", TOKEN));
    let (id, events, done) = home.play_script(KNOWS_SCRIPT, "react").await?;
    ensure!(done.success(), "{done:?}");
    let said: Vec<String> =
        events_of_kind(&events, "ToolFinished").map(|result| result["content"].to_string()).collect();
    ensure!(said.len() == 3 && said[0].contains("KNOWS_AT is north"), "{said:?}");
    ensure!(said[1].contains("KNOWS_TOKEN is [REDACTED"), "{said:?}");
    ensure!(said[2].contains("looked") && !said[2].contains("KNOWS_"), "{said:?}");
    home.run_docket(&["verify", &id]).await?.into_stdout()?;
    let doctor = home.run_docket(&["doctor"]).await?.stdout;
    ensure!(doctor.contains("MCP server `knows`: python3, receives KNOWS_AT, KNOWS_TOKEN"), "{doctor}");
    let request = home.run_docket(&["replay", &id, "--turn", "1", "--request"]).await?.into_stdout()?;
    ensure!(request.contains("mcp__knows__env"), "{request}");
    for text in [&format!("{events:?}"), &doctor, &request, &done.stdout, &done.stderr] {
        ensure!(!text.contains(TOKEN), "{text}");
    }
    let mut files = 0;
    check_absent_from_files(home.home.path(), TOKEN.as_bytes(), &mut files)?;
    ensure!(files > 0, "no file was looked at");
    // Where it is not set no run begins, and the reason has its name.
    let home = McpHome::with_files(KNOWS_SETTINGS, &[("tools/knows.py", KNOWS)])?;
    let done = home.run_task(KNOWS_SCRIPT, "react").await?;
    let is_named = done.stderr.contains("`KNOWS_TOKEN`") && done.stderr.contains("not set");
    ensure!(done.code() == Some(1) && is_named, "{done:?}");
    let doctor = home.run_docket(&["doctor"]).await?.stdout;
    ensure!(doctor.contains("not set here: KNOWS_TOKEN"), "{doctor}");
    Ok(())
}

/// `docket doctor` starts the servers: one that does not work is not called good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_starts_mcp_servers() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let settings = "[mcp.absent]\ncommand = [\"/nonexistent/server\"]\n[mcp.ends]\ncommand = [\"false\"]\n\
                    [mcp.inside]\ncommand = [\"sh\", \"tools/server.sh\"]\n";
    let home = McpHome::with_files(settings, &[("a.txt", "a\n")])?;
    let doctor = home.run_docket(&["doctor"]).await?.stdout;
    let line = |name: &str| doctor.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    for name in ["`absent`", "`ends`"] {
        ensure!(line(name).contains("does not work in an empty workspace"), "{doctor}");
        ensure!(!line(name).trim_start().starts_with("ok"), "{doctor}");
    }
    ensure!(line("`inside`").contains("not tested: its command refers to files in a workspace"), "{doctor}");
    Ok(())
}

/// No file below a folder holds these bytes.
fn check_absent_from_files(folder: &Path, bytes: &[u8], files: &mut usize) -> Result<()> {
    for at in std::fs::read_dir(folder)? {
        let path = at?.path();
        if path.is_dir() {
            check_absent_from_files(&path, bytes, files)?;
        } else if path.is_file() {
            *files += 1;
            let held = std::fs::read(&path)?;
            ensure!(!held.windows(bytes.len()).any(|part| part == bytes), "{}", path.display());
        }
    }
    Ok(())
}

struct McpHome {
    home: TempDir,
    sample: SampleRepository,
    env: Vec<(&'static str, &'static str)>,
}

impl McpHome {
    fn new(settings: &str) -> Result<Self> {
        Self::with_files(settings, &[("tools/notes.py", SERVER), ("notes.txt", "")])
    }

    fn with_files(settings: &str, files: &[(&str, &str)]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        std::fs::write(home.path().join("docket.toml"), settings)?;
        Ok(Self { home, sample: SampleRepository::new(files)?, env: Vec::new() })
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let mut env: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", self.home.path().as_os_str())];
        env.extend(self.env.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        run_program(TestProgram::Docket, self.home.path(), &env, args).await
    }

    /// Runs a task whose model plays a script.
    async fn run_task(&self, script: &str, engine: &str) -> Result<FinishedProcess> {
        let script = self.sample.write_script(script)?;
        let script = script.to_str().context("a UTF-8 path")?;
        let repo = self.sample.path().to_str().context("a UTF-8 path")?;
        let args = ["run", "Note it", "--repo", repo, "--script", script, "--model", "scripted:x"];
        self.run_docket(&[&args[..], &["--engine", engine]].concat()).await
    }

    /// Plays a script through an engine; gives its run, its events and how the command ended.
    async fn play_script(&self, script: &str, engine: &str) -> Result<(String, Vec<Value>, FinishedProcess)> {
        let done = self.run_task(script, engine).await?;
        let tasks = parse_lines(&self.run_docket(&["ps", "--json"]).await?.into_stdout()?)?;
        let id = tasks[0]["run"].as_str().with_context(|| format!("{done:?}"))?.to_owned();
        let events = parse_lines(&self.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?)?;
        Ok((id, events, done))
    }
}

fn parse_lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).context("a line is no JSON")).collect()
}

fn events_of_kind<'a>(events: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["kind"] == kind).map(|event| &event["payload"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_calls_server_tools_under_policy() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = McpHome::new(SETTINGS)?;
    let (id, events, done) = home.play_script(SCRIPT, "react").await?;
    ensure!(done.success(), "{done:?}");
    let pinned = &events_of_kind(&events, "RunStarted").next().context("a start")?["external"];
    ensure!(pinned.as_array().is_some_and(|tools| tools.len() == 3), "{pinned}");
    let intents: Vec<_> = events_of_kind(&events, "ToolRequested")
        .map(|asked| (asked["class"].as_str().unwrap_or_default(), asked["labels"].to_string()))
        .collect();
    ensure!(intents[0] == ("reads", r#"["reads","external"]"#.to_owned()), "{intents:?}");
    ensure!(intents[1] == ("workspace", r#"["external"]"#.to_owned()), "{intents:?}");
    let results: Vec<_> = events_of_kind(&events, "ToolFinished")
        .map(|done| (done["status"].as_str().unwrap_or_default(), done["content"].to_string()))
        .collect();
    ensure!(results[0].0 == "ok" && results[0].1.contains("count: 6"), "{results:?}");
    ensure!(results[1].0 == "ok" && results[1].1.contains("note: 5"), "{results:?}");
    ensure!(results[2].0 == "refused" && results[2].1.contains("keep-notes"), "{results:?}");
    ensure!(results[3].0 == "error" && results[3].1.contains("there is no tool"), "{results:?}");
    let diff = home.run_docket(&["diff", &id]).await?.into_stdout()?;
    ensure!(diff.contains("+first"), "{diff}");
    home.run_docket(&["verify", &id]).await?.into_stdout()?;
    let replayed = parse_lines(&home.run_docket(&["replay", &id, "--tools", "--json"]).await?.stdout)?;
    let mut calls = replayed.iter().flat_map(|row| row["calls"].as_array().into_iter().flatten());
    let ran = calls.find(|call| call["tool"] == "mcp__notes__note").context("the call")?;
    ensure!(ran["ran"] == "external", "{ran}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_that_run_commands_have_server_tools_and_planners_do_not() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = McpHome::new(SETTINGS)?;
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
    let (id, events, done) = home.play_script(script, "review").await?;
    ensure!(done.success(), "{done:?}");
    // Beside those, the runtime shows the reviewer what was changed.
    let of_models = |done: &&Value| !done["call"].as_str().is_some_and(|call| call.starts_with('r'));
    let statuses: Vec<_> = events_of_kind(&events, "ToolFinished")
        .filter(of_models)
        .map(|done| done["status"].clone())
        .collect();
    ensure!(statuses == ["refused", "ok"], "{statuses:?}");
    let diff = home.run_docket(&["diff", &id]).await?.into_stdout()?;
    ensure!(diff.contains("+yours") && !diff.contains("mine"), "{diff}");
    home.run_docket(&["verify", &id]).await?.into_stdout()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_fails_at_once_if_a_required_server_does_not_start() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = McpHome::new("[mcp.broken]\ncommand = ['sh', '-c', 'echo no key >&2; exit 4']\n")?;
    let done = home.run_task(SCRIPT, "react").await?;
    ensure!(done.code() == Some(1), "{done:?}");
    for part in ["MCP server `broken`", "status 4", "no key", "docket up"] {
        ensure!(done.stderr.contains(part), "{part} in {done:?}");
    }
    let tasks = parse_lines(&home.run_docket(&["ps", "--json"]).await?.into_stdout()?)?;
    ensure!(tasks[0]["state"] == "available" && tasks[0]["failures"] == 0, "{tasks:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optional_server_that_does_not_start_is_skipped_and_logged() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let broken = "[mcp.broken]\nrequired = false\ncommand = ['sh', '-c', 'echo no key >&2; exit 4']\n";
    let home = McpHome::new(&format!("{SETTINGS}\n{broken}"))?;
    let (id, events, done) = home.play_script(SCRIPT, "react").await?;
    ensure!(done.success(), "{done:?}");
    let started = events_of_kind(&events, "RunStarted").next().context("a start")?;
    let left_out = &started["servers_left_out"];
    ensure!(left_out.as_array().is_some_and(|all| all.len() == 1), "{left_out}");
    let why = left_out[0]["why"].as_str().unwrap_or_default();
    ensure!(left_out[0]["server"] == "broken" && why.contains("no key"), "{left_out}");
    ensure!(started["external"].as_array().is_some_and(|tools| tools.len() == 3), "{started}");
    let request = home.run_docket(&["replay", &id, "--turn", "1", "--request"]).await?.into_stdout()?;
    ensure!(request.contains("mcp__notes__count") && !request.contains("mcp__broken__"), "{request}");
    home.run_docket(&["verify", &id]).await?.into_stdout()?;
    Ok(())
}
