//! What tools of servers and policies come to under engines with roles and phases.

use anyhow::{Context as _, Result, ensure};
use docket_tests::scripted_talks::{
    FunctionChange, function_change_talks, join_talks, replace_line_patch, role_talk,
};
use serde_json::Value;

use super::{EngineRun, FILES, play_with_policy, run_engine};

/// A server with a tool that says that it only reads, and one that does not.
const SERVER: &str = r#"
import json, sys
TOOLS = [("count", {"readOnlyHint": True}), ("note", {})]
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

/// Both of its tools, and with them what ends the phase.
fn script_calling_both_tools(word: &str, ends: &str) -> String {
    format!(
        "!{{ name = \"mcp__notes__count\", args = {{ word = \"{word}\" }} }}, {{ name = \"mcp__notes__note\", args = {{ word = \"{word}\" }} }}, {ends}"
    )
}

/// The calls of a server's tools, in order: which, how it ended, and the rule that it was judged by.
fn server_calls(played: &EngineRun) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |kind: &'static str| {
        played.events.iter().filter(move |event| event["kind"] == kind).map(|event| &event["payload"])
    };
    let ended = |call: &Value| {
        of("ToolFinished").find(|done| done["call"] == *call).map(|done| text(&done["status"]))
    };
    let asked = of("ToolRequested").filter(|asked| text(&asked["tool"]).starts_with("mcp__"));
    asked
        .map(|asked| {
            let name = text(&asked["tool"]).replace("mcp__notes__", "");
            (name, ended(&asked["call"]).unwrap_or_default(), text(&asked["policy"]["rule"]))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_tools_are_limited_to_sop_modes_that_allow_them() -> Result<()> {
    docket_tests::needs!("python3");
    let plan =
        "{ name = \"plan_card\", args = { summary = \"s\", steps = [\"mend f\"], files = [\"a.py\"] } }";
    let mends = "{ name = \"run_command\", args = { command = \"sed -i 's/return 1/return 2/' a.py\" } }, \
                 { name = \"diff_card\", args = { rationale = \"it was wrong\" } }";
    let reports =
        "{ name = \"review_report\", args = { risks = [\"none: two words\"], recommendations = [] } }";
    let ends = "{ name = \"complete_task\", args = { summary = \"f gives 2\" } }";
    let settings = "[mcp.notes]\ncommand = [\"python3\", \"notes.py\"]\n";
    let files = [&FILES[..], &[("notes.py", SERVER), (".gitignore", "notes.txt\n__pycache__/\n")]].concat();
    let flags =
        ["--model", "scripted:x", "--engine", "sop", "--tests", "python3 -c 'import a; assert a.f() == 2'"];
    // Who builds is the one who runs commands, and reviews its own small change: it has both tools in review mode, too.
    let builder = [
        script_calling_both_tools("build", mends),
        script_calling_both_tools("review", reports),
        script_calling_both_tools("last", ends),
    ];
    let turns: Vec<&str> = builder.iter().map(String::as_str).collect();
    let talks = [
        role_talk("planner", "", &[&script_calling_both_tools("plan", plan)]),
        role_talk("builder", "", &turns),
    ];
    let small = run_engine(&files, &talks.concat(), settings, &flags).await?;
    ensure!(small.outcome == "succeeded", "{}", small.outcome);
    let found = server_calls(&small);
    let found: Vec<(&str, &str, &str)> =
        found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    ensure!(
        found
            == [
                ("count", "refused", "role"),
                ("note", "refused", "mode"),
                ("count", "ok", "builtin"),
                ("note", "ok", "builtin"),
                ("count", "ok", "builtin"),
                ("note", "refused", "mode"),
                ("count", "refused", "mode"),
                ("note", "refused", "mode"),
            ],
        "{found:#?}"
    );
    // A reviewer of its own runs no commands, and has no server's tools at all.
    let more = "{ name = \"create_file\", args = { path = \"b.py\", content = \"x = 1\\n\" } }, ";
    let reviewer = [script_calling_both_tools("review", reports), format!("!{ends}")];
    let turns: Vec<&str> = reviewer.iter().map(String::as_str).collect();
    let talks = [
        role_talk("planner", "", &[&format!("!{plan}")]),
        role_talk("builder", "", &[&format!("!{more}{mends}")]),
        role_talk("reviewer", "", &turns),
    ];
    let large = run_engine(&files, &talks.concat(), settings, &flags).await?;
    ensure!(large.outcome == "succeeded", "{}", large.outcome);
    let found: Vec<String> = server_calls(&large)
        .into_iter()
        .map(|(name, status, rule)| format!("{name} {status} {rule}"))
        .collect();
    ensure!(found == ["count refused role", "note refused mode"], "{found:?}");
    Ok(())
}

/// What is not named is denied.
fn allow_only(tools: &str) -> String {
    format!(
        "default = \"deny\"\n[[rules]]\nid = \"tools\"\nverdict = \"allow\"\ntools = [{tools}]\n\
         [[rules]]\nid = \"runners\"\nverdict = \"allow\"\ntools = [\"run_command\"]\ncommands = [\"sed *\", \"echo *\", \"python3 *\"]\n\
         [[rules]]\nid = \"kept\"\nverdict = \"deny\"\ntools = [\"read_file\"]\npaths = [\"kept.txt\"]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sop_and_architect_finish_under_a_deny_by_default_policy() -> Result<()> {
    docket_tests::needs!("python3");
    for engine in ["sop", "architect"] {
        let script =
            join_talks(&[function_change_talks(engine, FunctionChange { from: 1, to: 2, at: "", round: 1 })]);
        let played = play_with_policy(
            engine,
            &script,
            &allow_only("\"read_file\", \"edit_file\", \"search_codebase\""),
        )
        .await?;
        ensure!(
            played.outcome == "succeeded" && played.diff.contains("+    return 2"),
            "{engine}: {}",
            played.outcome
        );
        // Where nothing may be read, nothing can be done; that is said, and is the end.
        let played = play_with_policy(engine, &script, "default = \"deny\"\n").await?;
        ensure!(played.diff.is_empty(), "{engine}: {}", played.diff);
        let told = match engine {
            "sop" => {
                played.outcome.starts_with("environment: ") && played.outcome.contains("the preflight failed")
            }
            _ => played.outcome.starts_with("blocked: ") && played.outcome.contains("policy does not allow"),
        };
        ensure!(told && played.outcome.contains("default"), "{engine}: {}", played.outcome);
        if engine == "sop" {
            played.keep_golden_log("sop-preflight").await?;
        }
        // Reading alone: the change is refused, and the run ends all the same.
        let played =
            play_with_policy(engine, &script, &allow_only("\"read_file\"").replace("\"sed *\", ", ""))
                .await?;
        ensure!(played.outcome != "succeeded", "{engine}: {}", played.outcome);
        ensure!(!played.diff.contains("return 2"), "{engine}: {}", played.diff);
    }
    Ok(())
}

/// What nobody may read is shown to nobody who judges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_files_reach_no_reviewer_or_verifier() -> Result<()> {
    docket_tests::needs!("python3");
    // Quoted as TOML and JSON want it; what it writes stands nowhere else.
    let hides = r#"python3 -c \"open('kept.txt', 'w').write('hush' * 2)\""#;
    let sop = [
        role_talk(
            "planner",
            "",
            &[
                "!{ name = \"plan_card\", args = { summary = \"s\", steps = [\"mend f\"], files = [\"a.py\"] } }",
            ],
        ),
        role_talk(
            "builder",
            "",
            &[&format!(
                "!{{ name = \"run_command\", args = {{ command = \"sed -i 's/return 1/return 2/' a.py\" }} }}, {{ name = \"run_command\", args = {{ command = \"{hides}\" }} }}, {{ name = \"diff_card\", args = {{ rationale = \"r\" }} }}"
            )],
        ),
        role_talk(
            "reviewer",
            "",
            &[
                "!{ name = \"review_report\", args = { risks = [\"none\"], recommendations = [] } }",
                "!{ name = \"complete_task\", args = { summary = \"done\" } }",
            ],
        ),
    ];
    let plan = format!(
        r#"{{"actions": [{{"kind": "edit", "file": "a.py", "description": "return 2"}}, {{"kind": "command", "cmd": "{hides}"}}]}}"#
    );
    let architect = [
        role_talk("architect", "", &[&plan]),
        role_talk("coder", "", &[&replace_line_patch("a.py", "    return 1", "    return 2")]),
        role_talk("verifier", "", &[r#"{"verdict": "accept", "reason": "right"}"#]),
    ];
    let policy = allow_only("\"read_file\", \"edit_file\"");
    for (engine, judge, talks) in [("sop", "reviewer", sop), ("architect", "verifier", architect)] {
        let played = play_with_policy(engine, &talks.concat(), &policy).await?;
        ensure!(played.outcome == "succeeded", "{engine}: {}", played.outcome);
        // It is there, and it is told that it changed.
        ensure!(played.diff.contains("hushhush"), "{engine}: {}", played.diff);
        let begun = played
            .events
            .iter()
            .find(|event| event["kind"] == "RoleBegan" && event["payload"]["role"] == judge);
        let opening =
            begun.with_context(|| format!("{engine}: a {judge}"))?["payload"]["opening"].to_string();
        ensure!(opening.contains("kept.txt") && opening.contains("return 2"), "{engine}: {opening}");
        ensure!(!opening.contains("hushhush"), "{engine}: {opening}");
        let conclusions =
            played.events.iter().filter(|event| event["kind"] == "Concluded").map(ToString::to_string);
        ensure!(
            !conclusions.into_iter().any(|said| said.contains("hushhush")),
            "{engine}: an artifact shows it"
        );
    }
    Ok(())
}
