//! The wide set of tools: a run that uses every one of them, on real parts, which then verifies and replays; what a run
//! without the set is refused; and memory that outlives runs, crashes and a person's mind.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{RunEvent, ToolStatus},
    task::TaskState,
    tool::{RecoveryClass, ToolSet},
};
use docket_tests::system::{
    CoordinatorProcess, FinishedProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation,
    TestProgram, WorkerOptions, WorkerProcess, acquire_scenario_slot, run_program,
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    tools,
};
use serde_json::Value;
use tempfile::TempDir;

/// Each of the 26, and `read_output`; the names of those that are to fail end a line with `!`.
const ALL: &str = r#"
[[turns]]
calls = [
  { name = "list_files", args = {} },
  { name = "search_codebase", args = { regex = "sum" } },
  { name = "stat_file", args = { path = "sum.sh" } },
  { name = "read_file", args = { path = "sum.sh" } },
  { name = "git_status", args = {} },
  { name = "git_log", args = {} },
  { name = "memory_recall", args = {} },
]
[[turns]]
calls = [
  { name = "git_branch", args = { name = "fix/sum" } },
  { name = "git_checkout", args = { branch = "fix/sum" } },
  { name = "edit_file", args = { path = "sum.sh", edits = [{ search = "$1 - $2", replace = "$1 + $2" }] } },
  { name = "write_file", args = { path = "notes/one.txt", content = "one\n" } },
  { name = "append_file", args = { path = "notes/one.txt", content = "two\n" } },
  { name = "copy_file", args = { from = "notes/one.txt", to = "notes/copy.txt" } },
  { name = "move_file", args = { from = "notes/copy.txt", to = "notes/moved.txt" } },
  { name = "write_file", args = { path = "scrap", content = "x\n" } },
  { name = "delete_file", args = { path = "scrap" } },
  { name = "make_folder", args = { path = "kept/deep" } },
  { name = "git_diff", args = {} },
]
[[turns]]
calls = [
  { name = "run_tests", args = {} },
  { name = "git_add", args = { paths = ["."] } },
  { name = "git_commit", args = { message = "It adds" } },
  { name = "git_show", args = { rev = "HEAD" } },
  { name = "run_command", args = { command = "seq 1 5000; git log -1 --format='%an'" } },
  { name = "venv_install", args = {} },
  { name = "venv_run", args = { command = "python -c 'import sys; print(sys.prefix != sys.base_prefix)'" } },
]
[[turns]]
calls = [
  { name = "read_output", args = { call = "t3-4", from = 2500, lines = 2 } },
  { name = "read_output", args = { call = "t1-3" } },
  { name = "memory_save", args = { key = "how/test", value = "sh test.sh says it" } },
  { name = "memory_recall", args = { key = "how/test" } },
  { name = "memory_save", args = { key = "gone", value = "soon" } },
  { name = "memory_delete", args = { key = "gone" } },
  { name = "memory_save", args = { key = "of queue", value = "q", scope = "queue" } },
]
[[turns]]
text = "It adds."
"#;

/// What the next run on the repository asks.
const LATER: &str = r#"
[[turns]]
calls = [
  { name = "memory_recall", args = {} },
  { name = "memory_recall", args = { key = "how/test" } },
  { name = "memory_recall", args = { key = "gone" } },
]
[[turns]]
text = "It was known."
"#;

struct ToolHome {
    home: TempDir,
    sample: SampleRepository,
}

impl ToolHome {
    fn new() -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        let sample = SampleRepository::new(&[
            ("sum.sh", "echo $(($1 - $2))\n"),
            ("test.sh", "[ \"$(sh sum.sh 2 3)\" = 5 ] || { echo 'FAIL: 2 + 3'; exit 1; }\n"),
        ])?;
        Ok(Self { home, sample })
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let env: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", self.home.path().as_os_str())];
        run_program(TestProgram::Docket, self.home.path(), &env, args).await
    }

    /// Plays a script to its end; gives its run and its events.
    async fn play_script(&self, script: &str, more: &[&str]) -> Result<(String, Vec<Value>)> {
        let script = self.sample.write_script(script)?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a UTF-8 path");
        let (script, repo) = (text(&script)?, text(self.sample.path())?);
        let mut args = vec!["run", "Do it", "--repo", &repo, "--script", &script, "--model", "scripted:x"];
        args.extend(["--tests", "sh test.sh", "--attempts", "1"]);
        args.extend(more);
        let done = self.run_docket(&args).await?;
        let tasks = parse_lines(&self.run_docket(&["ps", "--json"]).await?.into_stdout()?)?;
        let id = tasks[0]["run"].as_str().with_context(|| format!("{done:?}"))?.to_owned();
        let events = parse_lines(&self.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?)?;
        Ok((id, events))
    }
}

fn parse_lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).context("a line is no JSON")).collect()
}

/// The results of a run: tool, status, and what was said, where that stands in the event.
fn tool_results(events: &[Value]) -> Vec<(String, String, String)> {
    let asked = |call: &Value| {
        let of = |event: &&Value| event["kind"] == "ToolRequested" && event["payload"]["call"] == *call;
        events.iter().find(of).map_or(Value::Null, |event| event["payload"]["tool"].clone())
    };
    let finished = events.iter().filter(|event| event["kind"] == "ToolFinished");
    finished
        .map(|event| {
            let payload = &event["payload"];
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (text(&asked(&payload["call"])), text(&payload["status"]), text(&payload["content"]["text"]))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_using_every_wide_tool_verifies_and_replays() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let home = ToolHome::new()?;
    let (run, events) = home.play_script(ALL, &["--tools", "wide"]).await?;
    let said = tool_results(&events);
    for spec in tools::tool_specs(ToolSet::Wide) {
        ensure!(said.iter().any(|(tool, _, _)| *tool == spec.name), "{} was not used", spec.name);
    }
    for (tool, status, text) in &said {
        ensure!(status == "ok", "{tool}: {status}: {text}");
    }
    let of = |tool: &str| -> Vec<&str> {
        said.iter().filter(|(of, _, _)| of == tool).map(|(_, _, text)| text.as_str()).collect()
    };
    ensure!(
        of("git_show").iter().any(|text| text.contains("Author: docket <docket@localhost>")),
        "{said:#?}"
    );
    ensure!(of("venv_run").iter().any(|text| text.contains("True")), "{said:#?}");
    ensure!(
        of("read_output").first().is_some_and(|text| text.contains("lines 2500 to 2501 of 5002")),
        "{said:#?}"
    );
    // A result that was shown whole is an output as well.
    ensure!(of("read_output").get(1).is_some_and(|text| text.contains("$1 - $2")), "{said:#?}");
    ensure!(of("memory_recall").get(1) == Some(&"sh test.sh says it"), "{said:#?}");
    let ended = events.last().context("an end")?;
    ensure!(ended["kind"] == "RunEnded" && ended.to_string().contains("succeeded"), "{ended}");

    // The work is there, and what the environment holds is no part of it.
    let diff = home.run_docket(&["diff", &run]).await?.into_stdout()?;
    for path in ["sum.sh", "notes/one.txt", "notes/moved.txt"] {
        ensure!(diff.contains(path), "{path} in {diff}");
    }
    ensure!(!diff.contains("scrap") && !diff.contains("venv") && !diff.contains("notes/copy"), "{diff}");

    home.run_docket(&["verify", &run]).await?.into_stdout()?;
    let before = home.run_docket(&["memory", "--json"]).await?.into_stdout()?;
    let replayed = home.run_docket(&["replay", &run, "--tools", "--json"]).await?;
    ensure!(replayed.success(), "{replayed:?}");
    let rows = parse_lines(&replayed.stdout)?;
    let calls = rows.iter().flat_map(|row| row["calls"].as_array().into_iter().flatten());
    // The check at the end is not asked for.
    for call in calls.filter(|call| call["ran"] != "skipped") {
        let beyond = call["tool"].as_str().is_some_and(|tool| tool.starts_with("memory_"));
        ensure!(call["ran"] == if beyond { "external" } else { "again" }, "{call}");
    }
    ensure!(
        home.run_docket(&["memory", "--json"]).await?.into_stdout()? == before,
        "a replay remembered something"
    );

    // Another run knows what this one remembered; it is of the core, which has no such tool.
    let (_, later) = home.play_script(LATER, &["--tools", "wide"]).await?;
    let said = tool_results(&later);
    ensure!(said[0].2.contains("1 keys\nhow/test (18 bytes): sh test.sh says it"), "{said:#?}");
    ensure!(said[1].2 == "sh test.sh says it" && said[2].1 == "error", "{said:#?}");
    check_memory_commands(&home).await
}

/// People list, show and delete.
async fn check_memory_commands(home: &ToolHome) -> Result<()> {
    let repo = home.sample.path().to_str().context("a UTF-8 path")?;
    let all = parse_lines(&home.run_docket(&["memory", "list", "--json"]).await?.into_stdout()?)?;
    ensure!(all.len() == 2, "{all:#?}");
    // `docket run` has a queue of its own for each run.
    let queue = all.iter().find_map(|one| one["scope"]["queue"].as_str()).context("a queue")?;
    let list = home.run_docket(&["memory", "list", "--queue", queue]).await?.into_stdout()?;
    ensure!(list.contains("of queue") && !list.contains("how/test"), "{list}");
    let shown = home.run_docket(&["memory", "show", "how/test", "--repo", repo]).await?.into_stdout()?;
    ensure!(shown.trim_end() == "sh test.sh says it", "{shown}");
    let unsaid = home.run_docket(&["memory", "show", "how/test"]).await?;
    ensure!(!unsaid.success() && unsaid.stderr.contains("specify --repo DIR or --queue QUEUE"), "{unsaid:?}");
    home.run_docket(&["memory", "delete", "how/test", "--repo", repo]).await?.into_stdout()?;
    let gone = home.run_docket(&["memory", "delete", "how/test", "--repo", repo]).await?;
    ensure!(!gone.success() && gone.stderr.contains("no memory has the key"), "{gone:?}");
    home.run_docket(&["verify"]).await?.into_stdout()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpinned_tool_is_refused_as_unknown() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = ToolHome::new()?;
    let script = r#"
[[turns]]
calls = [
  { name = "write_file", args = { path = "new.txt", content = "x\n" } },
  { name = "delete_file", args = { path = "test.sh" } },
  { name = "memory_save", args = { key = "k", value = "v" } },
  { name = "read_output", args = { call = "t1-0" } },
]
[[turns]]
calls = [
  { name = "read_file", args = { path = "sum.sh" } },
  { name = "edit_file", args = { path = "sum.sh", edits = [{ search = "$1 - $2", replace = "$1 + $2" }] } },
]
[[turns]]
text = "It adds."
"#;
    let (run, events) = home.play_script(script, &[]).await?;
    let said = tool_results(&events);
    for (tool, status, text) in &said[..4] {
        ensure!(status == "error" && text.contains(&format!("there is no tool `{tool}`")), "{tool}: {text}");
        ensure!(text.contains("read_file, edit_file, create_file, search_codebase"), "{text}");
    }
    ensure!(said[4..].iter().all(|(_, status, _)| status == "ok"), "{said:#?}");
    let diff = home.run_docket(&["diff", &run]).await?.into_stdout()?;
    ensure!(!diff.contains("new.txt") && !diff.contains("test.sh"), "{diff}");
    ensure!(home.run_docket(&["memory", "--json"]).await?.into_stdout()?.is_empty(), "it was remembered");
    home.run_docket(&["verify", &run]).await?.into_stdout()?;
    // The other way round: what only the seven have.
    let script = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"a\", content = \"\" } }]\n[[turns]]\ntext = \"So.\"\n";
    let (_, events) = home.play_script(script, &["--tools", "wide"]).await?;
    ensure!(tool_results(&events)[0].2.contains("there is no tool `create_file`"), "{events:#?}");
    Ok(())
}

/// Two notes, one after the other.
const NOTES: &str = r#"
[[turns]]
calls = [{ name = "memory_save", args = { key = "k", value = "one" } }, { name = "memory_save", args = { key = "l", value = "two" } }]
[[turns]]
text = "Noted."
"#;

/// The place of the first result of a run.
fn first_result(history: &RunHistory) -> Result<u64> {
    let found = history.envelopes.iter().find(|event| event.kind == "ToolFinished");
    Ok(found.context("a result")?.seq.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_save_with_lost_reply_is_applied_once() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("README", "One file.\n")])?;
    let script = sample.write_script(NOTES)?;
    let script = script.to_str().context("a UTF-8 path")?;
    let args = ["--model", "scripted:notes", "--script", script, "--tools", "wide"];
    // Undisturbed first: it says where the results stand.
    let (worker, options) =
        (WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?, WorkerOptions::default());
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task.message, worker.log_tail());
    let undisturbed = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    let seq = first_result(&undisturbed)?;
    worker.drain().await?;

    let dies = Failpoint { seq, when: FailpointTiming::Before, epoch: 1, whom: FailpointTarget::Run };
    let worker =
        WorkerProcess::start(&coordinator, &WorkerOptions { failpoints: vec![dies], ..options }).await?;
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task.message, worker.log_tail());
    ensure!(view.task.epoch.0 == 2, "nobody died");
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    for event in &history.events {
        if let RunEvent::ToolFinished(finished) = event {
            ensure!(finished.status == ToolStatus::Ok, "{finished:?}");
        }
        if let RunEvent::ToolRequested(open) = event {
            ensure!(open.class == RecoveryClass::Workspace, "{open:?}");
            ensure!(open.labels == ["memory"], "{open:?}");
        }
    }
    // Two by either run: none twice.
    let saved = coordinator.run_docket(&["memory", "list", "--json"]).await?.into_stdout()?;
    ensure!(parse_lines(&saved)?.len() == 2, "{saved}");
    let log =
        parse_lines(&coordinator.run_docket(&["logs", "system/memory", "--json"]).await?.into_stdout()?)?;
    ensure!(log.len() == 4 && log.iter().all(|event| event["kind"] == "MemorySaved"), "{log:#?}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Results as they are shown whole, one a turn, until the window is full; then the first is asked for.
fn long_script() -> String {
    let mut script = String::new();
    for turn in 1..=60 {
        let command = format!("seq -f 'turn {turn} line %g of what is said' 100");
        script.push_str(&format!(
            "[[turns]]\ncalls = [{{ name = \"run_command\", args = {{ command = \"{command}\" }} }}]\n"
        ));
    }
    script.push_str("[[turns]]\ncalls = [{ name = \"read_output\", args = { call = \"t1-0\" } }]\n");
    script.push_str("[[turns]]\ncalls = [{ name = \"edit_file\", args = { path = \"sum.sh\", edits = [{ search = \"$1 - $2\", replace = \"$1 + $2\" }] } }]\n");
    script.push_str("[[turns]]\ntext = \"Done.\"\n");
    script
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_result_keeps_both_ends_and_can_be_read_in_full() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = ToolHome::new()?;
    let settings = "[prices.\"scripted:x\"]\ninput = \"0\"\noutput = \"0\"\ncache_read = \"0\"\ncache_write = \"0\"\n\
                    context_tokens = 48_000\noutput_tokens_max = 1000\n";
    std::fs::write(home.home.path().join("docket.toml"), settings)?;
    let (run, events) = home.play_script(&long_script(), &["--tools", "wide", "--turns", "80"]).await?;
    // The last 24 messages stay whole: twelve answers with their results.
    let at = events.iter().position(|event| event["kind"] == "Compacted").context("it is made shorter")?;
    let answered = events[..at].iter().filter(|event| event["kind"] == "ModelAnswered").count();
    let names = events[at]["payload"]["cleared"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|cleared| cleared["call"].as_str()).collect();
    let first_whole = answered.checked_sub(12).context("twelve answers")?;
    let gone: Vec<String> = (1..=first_whole).map(|turn| format!("t{turn}-0")).collect();
    ensure!(names == gone, "after {answered} answers: {names:?}");
    let cleared = events.iter().filter(|event| event["kind"] == "Compacted");
    let cleared: Vec<&Value> =
        cleared.flat_map(|event| event["payload"]["cleared"].as_array().into_iter().flatten()).collect();
    let first = cleared.iter().find(|cleared| cleared["call"] == "t1-0").context("the first result stays")?;
    let line = first["line"].as_str().context("a text")?;
    for part in [
        "turn 1 line 1 of",
        "characters left out; read_output shows them, with call `t1-0`",
        "turn 1 line 100 of",
    ] {
        ensure!(line.contains(part), "{part} in {line}");
    }
    ensure!(!line.contains("turn 1 line 50 of"), "{line}");
    let said = tool_results(&events);
    let whole = &said.iter().find(|(tool, _, _)| tool == "read_output").context("it is asked for")?.2;
    ensure!(whole.contains("turn 1 line 50 of"), "{whole}");
    home.run_docket(&["verify", &run]).await?.into_stdout()?;
    crate::golden::keep_golden_log(home.home.path(), &run, "wide-shortened").await
}
