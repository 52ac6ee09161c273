//! Runs that give work away: children that read, that write, that are in each other's way; limits, cancels, and a
//! parent that waits without a slot: the worker has one. Whole runs over real HTTP, each proven afterwards.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{ChildView, TaskQuery},
    ids::TaskId,
    run::{BlockedReason, RunEvent, ToolStatus},
    task::{TaskBlockedReason, TaskRecord, TaskState},
    tool::ChildFacts,
};
use docket_tests::{
    model_server::ModelServer,
    system::{RunHistory, SampleRepository, TestProgram, acquire_scenario_slot, run_program, wait_until},
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::json;

use crate::models::ModelFixture;

pub(crate) const FILES: [(&str, &str); 2] =
    [("poem.txt", "one\ntwo\nthree\nfour\nfive\n"), ("other.txt", "other\n")];

/// A task whose run may delegate, submitted.
pub(crate) async fn submit_delegating_task(stage: &ModelFixture, more: &[&str]) -> Result<TaskId> {
    let sample = SampleRepository::new(&FILES)?;
    let url = stage.server.base_url(ModelProvider::OpenAi);
    let mut args = vec!["--model", "openai:main", "--base-url", &url, "--tests", "true"];
    args.extend(more);
    Ok(sample.submit(&stage.coordinator, &args).await?.0)
}

pub(crate) async fn wait_until_ended(stage: &ModelFixture, task: TaskId) -> Result<(TaskRecord, RunHistory)> {
    let view = stage.coordinator.wait_until_ended(task).await;
    let view =
        view.with_context(|| format!("{}\n{}", stage.worker.log_tail(), stage.coordinator.log_tail()))?;
    let history = stage.verified_history(&view.task).await?;
    Ok((view.task, history))
}

/// The children of a task's last run.
pub(crate) async fn list_children(stage: &ModelFixture, task: &TaskRecord) -> Result<Vec<ChildView>> {
    let run = task.last_run.context("a run")?;
    Ok(stage.coordinator.client().list_children(run).await?.children)
}

/// Results of the calls that delegate, in order.
pub(crate) fn delegate_results(history: &RunHistory) -> Vec<(ToolStatus, String, Option<ChildFacts>)> {
    let calls: Vec<_> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ToolRequested(e) if e.tool == "delegate" => Some(e.call.clone()),
            _ => None,
        })
        .collect();
    let results = history.events.iter().filter_map(|event| match event {
        RunEvent::ToolFinished(e) if calls.contains(&e.call) => {
            let text = match &e.content {
                docket_schema::content::Content::Text(text) => text.clone(),
                other => format!("{other:?}"),
            };
            Some((e.status, text, e.facts.child.clone()))
        }
        _ => None,
    });
    results.collect()
}

/// What a run's tree holds at a path, by the command that people use.
pub(crate) async fn file_in_result(stage: &ModelFixture, task: &TaskRecord, path: &str) -> Result<String> {
    let run = task.last_run.context("a run")?.to_string();
    stage.coordinator.run_docket(&["cat", &run, path]).await?.into_stdout()
}

const READS: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "own.txt", content = "own words\n" } }]
[[turns]]
calls = [{ name = "delegate", args = { title = "Look", instructions = "Say what own.txt holds.", model = "openai:cheap" } }]
[[turns]]
when = { last_result_contains = "It holds: own words" }
text = "Done."
"#;

const READER: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "own.txt" } }, { name = "create_file", args = { path = "litter.txt", content = "x\n" } }]
[[turns]]
when = { any_contains = "own words" }
text = "It holds: own words"
"#;

/// The child sees what its parent wrote, and its own changes are dropped. There is one slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_child_answers_and_its_changes_are_dropped() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", READS), ("cheap", READER)], "").await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed && task.runs == 1,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    let blocked = history
        .events
        .iter()
        .any(|event| matches!(event, RunEvent::RunBlocked(e) if e.why == BlockedReason::Child));
    ensure!(blocked && history.count_kind("Delegated") == 1, "{}", history.format_kinds());
    let results = delegate_results(&history);
    let [(status, text, Some(facts))] = &results[..] else { anyhow::bail!("{results:?}") };
    ensure!(*status == ToolStatus::Ok && text.contains("litter.txt; that is dropped"), "{text}");
    ensure!(facts.tokens > 0 && facts.merged.is_empty(), "{facts:?}");
    let children = list_children(&stage, &task).await?;
    let [child] = &children[..] else { anyhow::bail!("{children:?}") };
    let child = &child.view.task;
    ensure!(child.state == TaskState::Completed && child.spec.queue == task.spec.queue, "{child:?}");
    ensure!(child.spec.settings.delegation_depth_max == Some(0), "{child:?}");
    stage.verified_history(child).await?;
    ensure!(file_in_result(&stage, &task, "litter.txt").await.is_err(), "what was dropped is there");
    // Told and proven with its children, by the commands that people use.
    let run = task.last_run.context("a run")?.to_string();
    let (id, below) = (child.id.to_string(), child.last_run.context("a run")?.to_string());
    let replay = stage.coordinator.run_docket(&["replay", &run, "--children"]).await?.into_stdout()?;
    ensure!(replay.contains("delegated by t2-0: Look") && replay.contains("It holds: own words"), "{replay}");
    let logs = stage.coordinator.run_docket(&["logs", &run, "--children"]).await?.into_stdout()?;
    ensure!(logs.contains(&id) && logs.matches("RunStarted").count() == 2, "{logs}");
    let verified =
        stage.coordinator.run_docket(&["verify", &run, "--children", "--json"]).await?.into_stdout()?;
    let report: serde_json::Value = serde_json::from_str(&verified)?;
    ensure!(report["runs"] == 2 && report["tasks"] == 1 && report["ok"] == true, "{verified}");
    for run in [&run, &below] {
        let tools = stage.coordinator.run_docket(&["replay", run, "--tools"]).await?;
        ensure!(tools.success(), "{tools:?}");
    }
    stage.shut_down().await
}

const WRITES: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "poem.txt" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "poem.txt", edits = [{ search = "five", replace = "FIVE" }] } }]
[[turns]]
calls = [
  { name = "delegate", args = { title = "First", instructions = "first child", writes = true, model = "openai:cheap" } },
  { name = "delegate", args = { title = "Second", instructions = "second child", writes = true, model = "openai:spare" } },
  { name = "read_file", args = { path = "poem.txt" } },
]
[[turns]]
when = { last_result_contains = "THREE" }
text = "Done."
"#;

fn writer_script(line: &str, to: &str, file: &str) -> String {
    format!(
        "[[turns]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"poem.txt\" }} }}]\n\
         [[turns]]\ncalls = [{{ name = \"edit_file\", args = {{ path = \"poem.txt\", edits = [{{ search = \"{line}\", \
         replace = \"{to}\" }}] }} }}, {{ name = \"create_file\", args = {{ path = \"{file}\", content = \"{to}\\n\" }} }}]\n\
         [[turns]]\ntext = \"Changed {line}.\"\n"
    )
}

/// Two children write the same file at different lines, at the same time; the parent goes on when both are done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_writing_children_are_merged() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (one, two) = (writer_script("one", "ONE", "one.md"), writer_script("three", "THREE", "two.md"));
    let scripts = [("main", WRITES), ("cheap", one.as_str()), ("spare", two.as_str())];
    let stage = ModelFixture::new(ModelProvider::OpenAi, &scripts, "").await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    ensure!(file_in_result(&stage, &task, "poem.txt").await? == "ONE\ntwo\nTHREE\nfour\nFIVE\n");
    for (file, text) in [("one.md", "ONE\n"), ("two.md", "THREE\n")] {
        ensure!(file_in_result(&stage, &task, file).await? == text);
    }
    let results = delegate_results(&history);
    ensure!(
        results.len() == 2 && results.iter().all(|(_, text, _)| text.contains("Taken over")),
        "{results:?}"
    );
    let rests = history.count_kind("RunBlocked");
    ensure!(rests == 1 && history.count_kind("ChildAnswered") == 2, "{}", history.format_kinds());
    stage.shut_down().await
}

const CONFLICTS: &str = r#"
[[turns]]
calls = [
  { name = "delegate", args = { title = "First", instructions = "first child", writes = true, model = "openai:cheap" } },
  { name = "delegate", args = { title = "Second", instructions = "second child", writes = true, model = "openai:spare" } },
]
[[turns]]
when = { last_result_contains = "Conflict in poem.txt" }
text = "Done."
"#;

/// The task's last run is a golden log as well.
pub(crate) async fn keep_golden_log(stage: &ModelFixture, task: &TaskRecord, name: &str) -> Result<()> {
    let run = task.last_run.context("a run")?.to_string();
    crate::golden::keep_golden_log(stage.coordinator.home(), &run, name).await
}

/// Of two that changed the same line the first one's stays, and the model is told of the other, whose run stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflict_between_children_is_reported_and_nothing_is_lost() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (one, two) = (writer_script("one", "ONE", "one.md"), writer_script("one", "EINS", "two.md"));
    let scripts = [("main", CONFLICTS), ("cheap", one.as_str()), ("spare", two.as_str())];
    let stage = ModelFixture::new(ModelProvider::OpenAi, &scripts, "").await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    ensure!(file_in_result(&stage, &task, "poem.txt").await?.starts_with("ONE\ntwo\n"));
    ensure!(
        file_in_result(&stage, &task, "two.md").await? == "EINS\n",
        "what is in nobody's way is taken over"
    );
    let results = delegate_results(&history);
    let (_, text, facts) = results.last().context("a result")?;
    let facts = facts.as_ref().context("facts")?;
    let run = facts.run.context("a run")?.to_string();
    ensure!(facts.conflicts.len() == 1 && facts.merged.len() == 1, "{facts:?}");
    ensure!(text.contains("ONE\n=======\nEINS") && text.contains(&run), "{text}");
    let theirs = stage.coordinator.run_docket(&["cat", &run, "poem.txt"]).await?.into_stdout()?;
    ensure!(theirs.starts_with("EINS\n"), "{theirs}");
    keep_golden_log(&stage, &task, "delegate-conflict").await?;
    stage.shut_down().await
}

const DEEP: &str = r#"
[[turns]]
calls = [
  { name = "delegate", args = { title = "First", instructions = "go deeper", model = "openai:cheap" } },
  { name = "delegate", args = { title = "Second", instructions = "go deeper", model = "openai:cheap" } },
]
[[turns]]
text = "Done."
"#;

const DEEPER: &str = r#"
[[turns]]
calls = [{ name = "delegate", args = { title = "Deeper", instructions = "and deeper" } }]
[[turns]]
when = { last_result_contains = "there is no tool `delegate`" }
text = "As deep as it goes."
"#;

/// Beyond the number and the depth nothing is given away: the model is told, and works on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegation_beyond_depth_or_count_is_refused() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let settings = "[run]\nchildren_max = 1\n";
    let stage =
        ModelFixture::new(ModelProvider::OpenAi, &[("main", DEEP), ("cheap", DEEPER)], settings).await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    let results = delegate_results(&history);
    let refused = results.iter().find(|(status, ..)| *status == ToolStatus::Refused).context("a refusal")?;
    ensure!(
        refused.1.contains("(children_max)") && refused.1.contains("do the rest yourself"),
        "{refused:?}"
    );
    let children = list_children(&stage, &task).await?;
    ensure!(children.len() == 1 && children[0].view.task.state == TaskState::Completed, "{children:?}");
    let too_deep = stage.coordinator.client().all_events(
        children[0].view.task.last_run.context("a run")?,
        docket_worker::client::HistoryScope::Own,
    );
    let told = "there is no tool `delegate`";
    let asked = too_deep
        .await?
        .iter()
        .any(|event| event.kind == "ToolFinished" && event.payload.as_str().contains(told));
    ensure!(asked, "what is too deep is refused where it is asked for");
    keep_golden_log(&stage, &task, "delegate-refused").await?;
    keep_golden_log(&stage, &children[0].view.task, "delegate-too-deep").await?;
    stage.shut_down().await
}

const GREEDY: &str = r#"
[[turns]]
calls = [{ name = "delegate", args = { title = "All", instructions = "all of it", budget_tokens = 900_000, model = "openai:cheap" } }]
[[turns]]
when = { last_result_contains = "tokens are left, and it asks for 900000" }
calls = [{ name = "delegate", args = { title = "Some", instructions = "some of it", budget_tokens = 20_000, model = "openai:cheap" } }]
[[turns]]
text = "Done."
"#;

const THRIFTY: &str = "[[turns]]\ntext = \"That was little.\"\n";

/// A child's budget is of its parent's rest, and what it used counts there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_budget_is_taken_from_the_parent() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", GREEDY), ("cheap", THRIFTY)], "").await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1", "--max-tokens", "200000"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    ensure!(
        task.state == TaskState::Completed,
        "{:?} {} {:?}",
        task.message,
        history.format_kinds(),
        delegate_results(&history)
    );
    let children = list_children(&stage, &task).await?;
    let [child] = &children[..] else { anyhow::bail!("{children:?}") };
    ensure!(child.view.task.spec.settings.tokens_max == Some(20_000), "{child:?}");
    let results = delegate_results(&history);
    let used = results.iter().find_map(|(.., facts)| facts.as_ref()).context("facts")?.tokens;
    let state = docket_schema::history::FoldedRun::from_events(history.envelopes.clone())?.state().clone();
    ensure!(used > 0 && state.totals.children.tokens == used, "{:?}", state.totals);
    let own = state.totals.usage.input_tokens + state.totals.usage.output_tokens;
    ensure!(state.model_attempts.spending(&state.totals).tokens >= own + used, "{:?}", state.totals);
    keep_golden_log(&stage, &task, "delegate-budget").await?;
    stage.shut_down().await
}

const MAKES: &str = r#"
[[turns]]
calls = [{ name = "delegate", args = { title = "Make it", instructions = "Make made.txt.", writes = true, tests = "test -e made.txt", model = "openai:cheap" } }]
[[turns]]
when = { last_result_contains = "is discarded" }
text = "Done without it."
"#;

const FAILS: &str = "after_end = \"repeat_last\"\n[[turns]]\ntext = \"It is there.\"\n";

/// A child that fails is tried once: each try would have its whole budget. Whoever gave it away hears why, and pays for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_child_has_one_attempt_and_counts_in_parent_cost() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", MAKES), ("cheap", FAILS)], "").await?;
    let task = submit_delegating_task(&stage, &["--delegate", "1", "--max-tokens", "200000"]).await?;
    let (task, history) = wait_until_ended(&stage, task).await?;
    let results = delegate_results(&history);
    ensure!(task.state == TaskState::Completed, "{:?} {results:?}", task.message);
    let children = list_children(&stage, &task).await?;
    let [child] = &children[..] else { anyhow::bail!("{children:?}") };
    ensure!(child.view.task.state == TaskState::Discarded && child.view.runs.len() == 1, "{child:?}");
    let facts = results.iter().find_map(|(.., facts)| facts.as_ref()).context("facts")?;
    ensure!(facts.tokens > 0 && facts.worked_ms > 0, "{facts:?}");
    // What it cost is told where people ask what the task cost, by its own line.
    let run = child.view.runs[0].id.to_string();
    for of in [task.id.to_string(), task.last_run.context("a run")?.to_string()] {
        let cost =
            stage.coordinator.run_docket(&["cost", &of, "--by", "run", "--json"]).await?.into_stdout()?;
        let cost: serde_json::Value = serde_json::from_str(&cost)?;
        let lines = cost["lines"].as_array().context("lines")?;
        ensure!(lines.len() == 2 && lines.iter().any(|line| line["run"] == run.as_str()), "{cost}");
        let tokens = |sums: &serde_json::Value| {
            let names = ["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"];
            names.iter().filter_map(|name| sums["usage"][*name].as_u64()).sum::<u64>()
        };
        let all = docket_schema::history::FoldedRun::from_events(history.envelopes.clone())?.state().clone();
        let spent = all.model_attempts.spending(&all.totals).tokens;
        ensure!(tokens(&cost["total"]) == spent, "{spent}: {cost}");
        // Whoever gave it away would have asked its own model.
        ensure!(cost["savings"]["strong"] == serde_json::json!(["openai:main"]), "{cost}");
    }
    keep_golden_log(&stage, &task, "delegate-child-fails").await?;
    stage.shut_down().await
}

const ASKS: &str = "[[turns]]\ntext = \"BLOCKED: Which way?\"\n";

const WAITS: &str = r#"
[[turns]]
calls = [{ name = "delegate", args = { title = "Ask", instructions = "ask a person", model = "openai:cheap" } }]
[[turns]]
text = "Done."
"#;

/// A parent that waits for a child that waits for a person: told by `show`, `ps` and `why`, and cancelled as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_reaches_all_descendants() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let middle = WAITS.replace("cheap", "spare");
    let scripts = [("main", WAITS), ("cheap", middle.as_str()), ("spare", ASKS)];
    let stage = ModelFixture::new(ModelProvider::OpenAi, &scripts, "").await?;
    let (sample, client) = (SampleRepository::new(&FILES)?, stage.coordinator.client());
    let backlog = sample.path().join(".git/night.jsonl");
    let lines = [
        json!({ "key": "first", "text": "Do what the script says", "delegate": 2 }),
        json!({ "text": "What comes then", "after": ["first"] }),
    ];
    std::fs::write(&backlog, lines.map(|line| format!("{line}\n")).concat())?;
    let path = |path: &Path| Ok::<_, anyhow::Error>(path.to_str().context("UTF-8")?.to_owned());
    let (file, repo, url) =
        (path(&backlog)?, path(sample.path())?, stage.server.base_url(ModelProvider::OpenAi));
    let import = ["import", &file, "--repo", &repo, "--batch", "night", "--model", "openai:main"];
    let import = [&import[..], &["--base-url", &url, "--tests", "true"]].concat();
    stage.coordinator.run_docket(&import).await?.into_stdout()?;
    let first = TaskQuery { title: Some("Do what the script says".to_owned()), ..TaskQuery::default() };
    let id = client.list_tasks(&first).await?.tasks.first().context("a task")?.id;
    let family = wait_until("a grandchild that asks", async || {
        let top = client.get_task(id).await.ok()?.task;
        let child = client.list_children(top.last_run?).await.ok()?.children.into_iter().next()?.view.task;
        let below = client.list_children(child.last_run?).await.ok()?.children.into_iter().next()?.view.task;
        (below.blocked_why == Some(TaskBlockedReason::Person)).then_some([top, child, below])
    });
    let [top, child, below] = family.await.with_context(|| stage.worker.log_tail())?;
    ensure!(top.blocked_why == Some(TaskBlockedReason::Child) && top.worker.is_none(), "{top:?}");
    ensure!(child.blocked_why == Some(TaskBlockedReason::Child), "{child:?}");
    let show = stage.coordinator.run_docket(&["show", &id.to_string()]).await?.into_stdout()?;
    ensure!(show.contains(&child.id.to_string()), "{show}");
    let show = stage.coordinator.run_docket(&["show", &child.id.to_string()]).await?.into_stdout()?;
    ensure!(show.contains(&id.to_string()) && show.contains(&below.id.to_string()), "{show}");
    let why = stage.coordinator.run_docket(&["why", &id.to_string()]).await?.into_stdout()?;
    ensure!(why.contains(&child.id.to_string()), "{why}");
    // Nothing of the batch goes on by itself, nor does what comes after the parent: whoever waits for it waits no longer.
    let waited = stage.coordinator.run_docket(&["batch", "night", "--wait", "--json"]).await?;
    let waited: serde_json::Value = serde_json::from_str(waited.stdout.lines().last().context("a batch")?)?;
    ensure!(waited["tasks"] == 4 && waited["behind_children"] == 1, "{waited}");
    // Of another batch nobody can say so: the children of that parent, which are not of it, may work.
    std::fs::write(&backlog, format!("{}\n", json!({ "text": "Later", "after": [id.to_string()] })))?;
    let other = import.iter().map(|arg| if *arg == "night" { "other" } else { arg }).collect::<Vec<_>>();
    stage.coordinator.run_docket(&other).await?.into_stdout()?;
    let other = stage.coordinator.run_docket(&["batch", "other", "--json"]).await?.into_stdout()?;
    let other: serde_json::Value = serde_json::from_str(other.lines().last().context("a batch")?)?;
    ensure!(other["tasks"] == 1 && other["behind_children"] == 0, "{other}");
    client.cancel(id, "no longer wanted").await?;
    for task in [&top, &child, &below] {
        let task = client.get_task(task.id).await?.task;
        ensure!(task.state == TaskState::Cancelled && task.waits_for.is_empty(), "{task:?}");
    }
    keep_golden_log(&stage, &top, "delegate-cancelled").await?;
    stage.shut_down().await
}

const RESTS: &str = r#"
[[turns]]
calls = [{ name = "list_files" }]
[[turns]]
text = "BLOCKED: Shall I?"
[[turns]]
when = { any_contains = "go on then" }
text = "Rested."
"#;

/// A pause of a parent reaches the child that is asked about, and both go on when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_and_unpause_reach_children() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", WAITS), ("cheap", RESTS)], "").await?;
    let id = submit_delegating_task(&stage, &["--delegate", "1"]).await?;
    let client = stage.coordinator.client();
    let child = wait_until("a child that asks", async || {
        let top = client.get_task(id).await.ok()?.task;
        let child = client.list_children(top.last_run?).await.ok()?.children.into_iter().next()?.view.task;
        (child.blocked_why == Some(TaskBlockedReason::Person)).then_some(child.id)
    });
    let child = child.await.with_context(|| stage.worker.log_tail())?;
    let act = async |verb: &str, id: TaskId| {
        stage.coordinator.run_docket(&[verb, &id.to_string()]).await?.into_stdout()
    };
    // No worker may have it between the answer and the pause.
    act("pause", id).await?;
    stage.coordinator.run_docket(&["answer", &child.to_string(), "go on then"]).await?.into_stdout()?;
    act("pause", id).await?;
    let rests = wait_until("a family that rests", async || {
        let task = client.get_task(child).await.ok()?.task;
        let rests = task.blocked_why == Some(TaskBlockedReason::Paused);
        (rests || task.state.is_ended()).then_some(task)
    });
    let rests = rests.await?;
    let top = client.get_task(id).await?.task;
    ensure!(!top.state.is_ended(), "it was asked to rest: {top:?}");
    act("unpause", id).await?;
    let (top, history) = wait_until_ended(&stage, id).await?;
    ensure!(top.state == TaskState::Completed, "{:?} {} {rests:?}", top.message, history.format_kinds());
    ensure!(
        history.count_kind("PauseRequested") >= 1 && history.count_kind("Unpaused") >= 1,
        "{}",
        history.format_kinds()
    );
    stage.shut_down().await
}

/// `docket run` goes on where its task waits for a piece that it gave away: its own worker does that piece too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_waits_for_delegated_work() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scripts = [("main", READS), ("cheap", READER)];
    let scripts = scripts.map(|(name, text)| Ok((name.to_owned(), ScriptedModel::parse(text.as_bytes())?)));
    let server = ModelServer::start_by_model(scripts.into_iter().collect::<Result<_>>()?).await?;
    let (sample, home) = (SampleRepository::new(&FILES)?, tempfile::tempdir()?);
    let (repo, url) = (sample.path().to_str().context("UTF-8")?, server.base_url(ModelProvider::OpenAi));
    let env =
        [("DOCKET_HOME", home.path().as_os_str()), ("OPENAI_API_KEY", OsStr::new(ModelServer::DEFAULT_KEY))];
    let model = ["--model", "openai:main", "--base-url", &url, "--tests", "true", "--delegate", "1"];
    let args = [&["run", "Look", "--json", "--repo", repo][..], &model].concat();
    let ended = run_program(TestProgram::Docket, home.path(), &env, &args).await?;
    ensure!(ended.success(), "{ended:?}");
    let row: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().context("a row")?)?;
    ensure!(row["state"] == "completed", "{row}");
    let log =
        run_program(TestProgram::Docket, home.path(), &env, &["logs", row["run"].as_str().context("a run")?])
            .await?
            .into_stdout()?;
    ensure!(log.contains("ChildAnswered"), "{log}");
    // It is shown to its end, and nothing of it twice.
    ensure!(
        ended.stderr.matches("turn 1 ").count() > 0 && ended.stderr.contains("turn 3 "),
        "{}",
        ended.stderr
    );
    let mut lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("delegate")).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    ensure!(lines.len() == all, "{}", ended.stderr);
    Ok(())
}
