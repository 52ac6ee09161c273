//! Real servers in a real sandbox: one written with the standard library alone, and one with the official Python SDK.

use std::{collections::BTreeMap, fs, os::unix::fs::chown, path::PathBuf};

use docket_sandbox::{BackendChoice, CommandSpec, Sandbox, SandboxConfig, SecretEnv, workspace_owner};
use docket_schema::run::ExternalTool;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{McpServer, McpServers, McpToolCall, call_tool, inherited_env, list_tools, parse_servers};
use crate::tools::{ToolOutcome, ToolSettings, testing::has_program};

/// A server whose tools count, take notes, hang, crash and flood.
const SERVER: &str = r#"
import json, os, sys, time
LOOKS = {"readOnlyHint": True}
TOOLS = [("count", LOOKS), ("note", {"idempotentHint": True}), ("fail", {}), ("hang", {}), ("die", {}), ("flood", {}),
         ("endless", {}), ("garbage", {}), ("env", LOOKS), ("not a name", {}), ("note", LOOKS)]
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        return {"tools": [{"name": name, "description": f"Can {name}.", "inputSchema": schema, "annotations": hints}
                          for name, hints in TOOLS]}
    name, word = params["name"], params.get("arguments", {}).get("word", "")
    if name == "hang":
        time.sleep(60)
    if name == "die":
        print("out of ink", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if name == "garbage":
        print("{ this is : no JSON", flush=True)
        print("[1, 2", flush=True)
        os._exit(0)
    if name == "env":
        return {"content": [{"type": "text", "text": repr(os.getcwd() if word == "cwd" else os.environ.get(word))}]}
    if name == "note":
        with open("notes.txt", "a") as notes:
            notes.write(word + "\n")
    text = "x" * int(word) if name in ("flood", "fail") and word else f"{name}: {len(word)}"
    return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

struct McpTestBed {
    folder: TempDir,
    sandbox: Sandbox,
    servers: McpServers,
    settings: ToolSettings,
}

impl McpTestBed {
    async fn new(backend: BackendChoice, server: McpServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("server.py"), SERVER).unwrap();
        if let Some((uid, gid)) = workspace_owner() {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let sandbox = Sandbox::prepare(SandboxConfig::new(backend, folder.path())).await.unwrap();
        let all = BTreeMap::from([("notes".to_owned(), server)]);
        let servers = McpServers { by_name: all, inherited_env: SecretEnv::default() };
        Self { folder, sandbox, servers, settings: ToolSettings::default() }
    }

    async fn in_sandbox() -> Self {
        Self::new(BackendChoice::Auto, server_config(&["python3", "server.py"])).await
    }

    async fn call(&self, tool: &str, args: Value) -> ToolOutcome {
        let tool = ExternalTool {
            name: format!("mcp__notes__{tool}"),
            server: "notes".to_owned(),
            tool: tool.to_owned(),
            read_only: false,
            idempotent: false,
        };
        call_tool(
            &self.sandbox,
            &self.servers,
            &self.settings,
            McpToolCall { tool: &tool, args: &args, network: None },
        )
        .await
    }

    fn notes_path(&self) -> PathBuf {
        self.folder.path().join("notes.txt")
    }
}

fn server_config(command: &[&str]) -> McpServer {
    McpServer {
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        tools: vec![],
        required: true,
        timeout_ms: 20_000,
        env: SecretEnv::default(),
        env_from: vec![],
    }
}

#[tokio::test]
async fn sandboxed_server_lists_its_tools_with_hints() {
    if !has_program("python3") {
        return;
    }
    let mut place = McpTestBed::in_sandbox().await;
    let listed = list_tools(&place.sandbox, &place.servers).await.unwrap().tools;
    let hints = |name: &str| {
        let found = listed.iter().find(|listed| listed.spec.name == format!("mcp__notes__{name}"));
        found.map(|listed| (listed.tool.read_only, listed.tool.idempotent, listed.spec.description.clone()))
    };
    assert_eq!(hints("count"), Some((true, false, "Can count.".to_owned())));
    assert_eq!(hints("note"), Some((false, true, "Can note.".to_owned())));
    assert_eq!(hints("die"), Some((false, false, "Can die.".to_owned())));
    // A model could not call it.
    assert_eq!((listed.len(), hints("not a name")), (9, None));
    assert!(listed.is_sorted_by(|a, b| a.spec.name < b.spec.name));
    place.servers.by_name.get_mut("notes").unwrap().tools = vec!["c*".to_owned(), "die".to_owned()];
    let names: Vec<_> = list_tools(&place.sandbox, &place.servers)
        .await
        .unwrap()
        .tools
        .into_iter()
        .map(|l| l.tool.tool)
        .collect();
    assert_eq!(names, ["count", "die"]);
}

#[tokio::test]
async fn call_returns_output_and_writes_to_the_workspace() {
    if !has_program("python3") {
        return;
    }
    let place = McpTestBed::in_sandbox().await;
    let out = place.call("count", json!({"word": "docket"})).await;
    assert_eq!((out.text().as_ref(), out.is_error), ("count: 6\n", false));
    let out = place.call("note", json!({"word": "first"})).await;
    assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
    place.call("note", json!({"word": "second"})).await;
    assert_eq!(fs::read_to_string(place.notes_path()).unwrap(), "first\nsecond\n");
    let out = place.call("fail", json!({})).await;
    assert!(
        out.is_error && out.facts.error_signature.is_some() && out.text() == "fail: 0\n",
        "{}",
        out.text()
    );
}

#[tokio::test]
async fn long_output_is_truncated_and_stored_in_full() {
    if !has_program("python3") {
        return;
    }
    let place = McpTestBed::in_sandbox().await;
    let out = place.call("flood", json!({"word": "900000"})).await;
    assert!(!out.is_error && out.text().chars().count() < 5000, "{}", out.text().len());
    assert_eq!(out.full_output.map(|full| full.len()), Some(900_001));
    let out = place.call("fail", json!({"word": "900000"})).await;
    assert!(out.is_error && out.text().chars().count() < 5000, "{}", out.text().len());
    assert_eq!(out.full_output.map(|full| full.len()), Some(900_001), "of what failed as well");
}

#[tokio::test]
async fn hanging_crashing_or_missing_server_returns_an_error() {
    if !has_program("python3") {
        return;
    }
    let mut place = McpTestBed::in_sandbox().await;
    let out = place.call("die", json!({})).await;
    assert!(out.is_error && out.text().contains("it ended with status 3"), "{}", out.text());
    assert!(out.text().contains("it said: out of ink"), "{}", out.text());
    place.servers.by_name.get_mut("notes").unwrap().timeout_ms = 1500;
    let out = place.call("hang", json!({})).await;
    assert!(out.is_error && out.text().contains("it did not answer within 1.5 s"), "{}", out.text());
    place.servers.by_name.insert("notes".to_owned(), server_config(&["echo", "good day"]));
    let out = place.call("count", json!({})).await;
    assert!(out.is_error && out.text().contains("does not speak MCP"), "{}", out.text());
    place.servers.by_name.insert("notes".to_owned(), server_config(&["no-such-server"]));
    let out = place.call("count", json!({})).await;
    assert!(out.is_error && out.text().contains("no-such-server"), "{}", out.text());
    place.servers.by_name.clear();
    let out = place.call("count", json!({})).await;
    assert!(out.is_error && out.text().contains("this worker has no MCP server `notes`"), "{}", out.text());
}

/// Calls a tool and returns its outcome and duration in milliseconds.
async fn timed_call(place: &McpTestBed, tool: &str) -> (ToolOutcome, u128) {
    let begun = std::time::Instant::now();
    (place.call(tool, json!({})).await, begun.elapsed().as_millis())
}

#[tokio::test]
async fn flooding_or_garbage_server_is_stopped_within_its_limits() {
    if !has_program("python3") {
        return;
    }
    let mut place = McpTestBed::in_sandbox().await;
    place.servers.by_name.get_mut("notes").unwrap().timeout_ms = 8000;
    let (out, took_ms) = timed_call(&place, "endless").await;
    assert!(out.is_error && took_ms < 12_000, "{took_ms} ms: {}", out.text());
    assert!(out.text().contains("it says more than is read"), "{}", out.text());
    let (out, took_ms) = timed_call(&place, "garbage").await;
    assert!(out.is_error && took_ms < 12_000, "{took_ms} ms: {}", out.text());
    // The next call works as usual.
    assert_eq!(place.call("count", json!({"word": "docket"})).await.text(), "count: 6\n");
}

#[tokio::test]
async fn server_variables_reach_only_its_process() {
    if !has_program("python3") {
        return;
    }
    let mut place = McpTestBed::in_sandbox().await;
    let server = place.servers.by_name.get_mut("notes").unwrap();
    server.env.0.insert("NOTES_AT".to_owned(), "north".to_owned());
    server.env_from = vec!["NOTES_TOKEN".to_owned()];
    place.servers.inherited_env.0.insert("NOTES_TOKEN".to_owned(), "t0ken-of-notes".to_owned());
    let lost = place.call("env", json!({"word": "NOTES_AT"})).await;
    assert!(lost.is_error && lost.text().contains("name its files by whole paths"), "{}", lost.text());
    place.servers.inherited_env = SecretEnv::default();
    let server = place.servers.by_name.get_mut("notes").unwrap();
    server.command[1] = format!("{}/server.py", docket_sandbox::WORKSPACE_INSIDE);
    // A run cannot begin without a required server: the reason names it.
    let lacking = place.call("env", json!({"word": "NOTES_TOKEN"})).await;
    assert!(lacking.is_error && lacking.text().contains("`NOTES_TOKEN`"), "{}", lacking.text());
    let (failed, error) = list_tools(&place.sandbox, &place.servers).await.unwrap_err();
    assert_eq!((failed.as_str(), error.to_string().contains("`NOTES_TOKEN`")), ("notes", true));
    // An optional server is left out and named.
    place.servers.by_name.get_mut("notes").unwrap().required = false;
    let offered = list_tools(&place.sandbox, &place.servers).await.unwrap();
    let [left_out] = &offered.unavailable_servers[..] else { panic!("{offered:?}") };
    assert!(offered.tools.is_empty() && left_out.server == "notes", "{offered:?}");
    assert!(left_out.why.contains("`NOTES_TOKEN`"), "{left_out:?}");
    place.servers.by_name.get_mut("notes").unwrap().required = true;
    let has = |name: &str| (name == "NOTES_TOKEN").then(|| "t0ken-of-notes".to_owned());
    place.servers.inherited_env = inherited_env(&place.servers.by_name, has);
    assert_eq!(format!("{:?}", place.servers.inherited_env), r#"{"NOTES_TOKEN"}"#);
    let seen = async |name: &str| place.call("env", json!({ "word": name })).await.text().into_owned();
    assert_eq!(seen("NOTES_AT").await, "'north'\n");
    assert_eq!(seen("NOTES_TOKEN").await, "'t0ken-of-notes'\n");
    assert_eq!(seen("HOME").await, "'/home/docket'\n");
    // Code that it loaded from the workspace would have the secret.
    assert_eq!(seen("cwd").await, "'/'\n");
    assert_eq!(seen("DOCKET_WORKSPACE").await, format!("'{}'\n", docket_sandbox::WORKSPACE_INSIDE));
    let mut spec = CommandSpec::new(["/bin/sh", "-c", "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"]);
    spec.timeout = std::time::Duration::from_secs(20);
    let out = place.sandbox.run(spec).await.unwrap();
    let text = String::from_utf8_lossy(&out.stdout.bytes);
    assert!(text.contains("HOME=") && !text.contains("NOTES_") && !text.contains("t0ken"), "{text}");
    // The secret is redacted for the model once the redactor knows it, as in a run.
    place.settings.redactor = docket_schema::redact::Redactor::new(["t0ken-of-notes".to_owned()]);
    let out = place.call("env", json!({"word": "NOTES_TOKEN"})).await;
    assert!(!out.is_error && !out.text().contains("t0ken-of-notes"), "{}", out.text());
}

/// A server made with the SDK that most servers use. The sandbox does not show its location, so it runs without one.
const SDK_SERVER: &str = r#"
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
server = MCPServer("words")
@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def shout(word: str) -> str:
    "Shouts."
    return word.upper()
server.run()
"#;

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skipped part must be visible")]
async fn server_of_the_official_python_sdk_works() {
    if !has_program("python3") {
        return;
    }
    let python = "import sys; from mcp.server import mcpserver; print(sys.executable)";
    let place = McpTestBed::new(BackendChoice::None, server_config(&["python3", "-c", SDK_SERVER])).await;
    let mut spec = CommandSpec::new(["python3", "-c", python]);
    spec.timeout = std::time::Duration::from_secs(60);
    let found = place.sandbox.run(spec).await.unwrap();
    let python = String::from_utf8_lossy(&found.stdout.bytes).trim().to_owned();
    if python.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "CI needs the Python package mcp; .ci/run installs it");
        eprintln!("skipped: there is no Python package mcp");
        return;
    }
    let listed = list_tools(&place.sandbox, &place.servers).await.unwrap().tools;
    assert_eq!(listed.len(), 1);
    assert!(
        listed[0].tool.read_only && listed[0].spec.input_schema["properties"]["word"]["type"] == "string"
    );
    let out = place.call("shout", json!({"word": "docket"})).await;
    assert_eq!((out.text().as_ref(), out.is_error), ("DOCKET\n", false));
    let out = place.call("shout", json!({"word": 7, "more": []})).await;
    assert!(out.is_error, "{}", out.text());
}

#[test]
fn invalid_section_is_rejected_with_its_field() {
    let said = |text: &str| parse_servers(text.parse().unwrap()).map(drop).unwrap_err();
    for (text, want) in [
        (
            "[Notes]\ncommand = ['a']",
            "`Notes`: a server name must be 1 to 24 of the characters a-z, 0-9 and -",
        ),
        ("[notes]\ncommand = []", "`notes`: `command` is empty"),
        ("[notes]\ncommand = ['a']\nport = 1", "`notes`: unknown field `port`"),
        ("[notes]\ncommand = ['a']\ntimeout_ms = 1", "`notes`: `timeout_ms` must be from 100 to 3600000"),
        ("notes = 1", "`notes`: "),
        ("[notes]\ncommand = ['a']\nenv = { '1a' = 'x' }", "`notes`: `1a` is not a valid variable name"),
        ("[notes]\ncommand = ['a']\nenv_from = ['A=B']", "`notes`: `A=B` is not a valid variable name"),
        ("[notes]\ncommand = ['a']\nenv = { A = 'x' }\nenv_from = ['A']", "the variable `A` is listed twice"),
        ("[notes]\ncommand = ['a']\nenv = { A = 1 }", "`notes`: "),
    ] {
        assert!(said(text).contains(want), "{}", said(text));
    }
    let read =
        parse_servers("[a]\ncommand = ['x', 'y']\n[b]\ncommand = ['z']\ntools = ['get*']".parse().unwrap())
            .unwrap();
    assert_eq!((read["a"].timeout_ms, read["b"].tools.len()), (60_000, 1));
}
