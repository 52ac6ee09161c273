//! What runs cost and how well they went, told by the binary: over a backlog of scripted tasks that really ran.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::run::RunEvent;
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot,
};
use docket_worker::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};
use serde_json::{Value, json};

/// One test fails before anybody begins.
const TESTS: &str = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_old(self):\n        self.fail('old')\n\n    \
                     def test_ok(self):\n        import a\n        self.assertEqual(a.one(), 1)\n";

/// Looks, is refused an edit, edits well.
const GOOD: &str = r#"
[[turns]]
text = "PLAN:\n- [ ] say two as well"
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "nowhere to be found", replace = "x" }] } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 1\n", replace = "    return 1\n\n\ndef two():\n    return 2\n" }] } }]
[[turns]]
text = "PLAN:\n- [x] say two as well\n\nDone."
"#;

/// Breaks what worked, says that it is done, is sent back and mends it.
const SENT_BACK: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "return 1", replace = "return 3" }] } }]
[[turns]]
text = "Done."
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "return 3", replace = "return 1" }] } }]
[[turns]]
text = "Done."
"#;

fn metric_row<'a>(metrics: &'a Value, name: &str) -> Result<&'a Value> {
    let all = metrics.as_array().context("metrics")?;
    all.iter().find(|view| view["metric"] == name).context("listed")
}

fn metric_ratio(metrics: &Value, name: &str) -> Result<(u64, u64)> {
    let ratio = &metric_row(metrics, name)?["ratio"];
    Ok((ratio["of"].as_u64().context("of")?, ratio["all"].as_u64().context("all")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_and_metrics_of_a_backlog_are_exact() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let files =
        [("a.py", "def one():\n    return 1\n"), ("test_a.py", TESTS), (".gitignore", "__pycache__\n")];
    let sample = SampleRepository::new(&files)?;
    let folder = tempfile::tempdir()?;
    let docket = async |args: &[&str]| coordinator.run_docket(args).await;
    let mut tasks = Vec::new();
    for (name, script) in [("good", GOOD), ("sent-back", SENT_BACK)] {
        let script = sample.write_script(script)?;
        let file = folder.path().join(format!("{name}.jsonl"));
        std::fs::write(&file, json!({ "text": name }).to_string())?;
        let file = file.to_str().context("UTF-8")?;
        let repo = sample.path().to_str().context("UTF-8")?;
        let script = script.to_str().context("UTF-8")?;
        let flags = ["--batch", "todo", "--repo", repo, "--model", "scripted:s", "--script", script];
        docket(&[&["import", file][..], &flags].concat()).await?.into_stdout()?;
    }
    let settings = "[run]\nauto_lint = false\n".to_owned();
    let options = WorkerOptions { settings, base_checks: true, ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let waited = docket(&["batch", "todo", "--wait"]).await?;
    ensure!(waited.code() == Some(0), "{waited:?} {}", worker.log_tail());

    // The tests ran before each, on one tree: once.
    let (mut said, mut calls, mut shared, mut named) = (0, 0, 0, BTreeMap::new());
    for line in docket(&["ps", "--json"]).await?.into_stdout()?.lines() {
        let row: Value = serde_json::from_str(line)?;
        tasks.push(row["id"].as_str().context("an id")?.to_owned());
        named.insert(row["title"].as_str().context("a title")?.to_owned(), tasks.len() - 1);
        let task = coordinator.client().get_task(tasks[tasks.len() - 1].parse()?).await?;
        let run = task.task.last_run.context("a run")?;
        let history = coordinator.run_history(run).await?;
        ensure!(history.count_kind("BaseChecked") == 1, "{}", history.format_kinds());
        for event in &history.events {
            if let RunEvent::BaseChecked(checked) = event {
                ensure!(!checked.passed && checked.facts.failing.len() == 1, "{checked:?}");
                shared += u32::from(checked.shared);
            } else if let RunEvent::ModelAnswered(answered) = event {
                said += answered.usage.request_tokens();
                calls += 1;
            }
        }
        docket(&["replay", &run.to_string(), "--verify"]).await?.into_stdout()?;
    }
    ensure!(shared == 1, "the second took what the first had found: {shared}");

    let cost = docket(&["cost", "--batch", "todo", "--json"]).await?.into_stdout()?;
    let cost: Value = serde_json::from_str(&cost)?;
    let usage = &cost["total"]["usage"];
    let asked = ["input_tokens", "cache_read_tokens", "cache_write_tokens"];
    let told: u64 = asked.iter().filter_map(|name| usage[*name].as_u64()).sum();
    ensure!(told == said && cost["total"]["answered"] == calls, "{cost}: the log says {said} in {calls}");
    let week = docket(&["cost", "--jsonl"]).await?.into_stdout()?;
    ensure!(week.lines().count() == calls, "this week: {week}");
    for line in week.lines() {
        let row: Value = serde_json::from_str(line)?;
        let keys: Vec<&String> = row.as_object().context("an object")?.keys().collect();
        ensure!(row["role"] == "agent" && row["model"] == "scripted:s" && keys.len() == 6, "{row}");
    }
    let shown = docket(&["cost", &tasks[0], "--by", "call"]).await?.into_stdout()?;
    ensure!(shown.contains("agent  scripted:s") && shown.contains("CACHE READ"), "{shown}");
    let nobody = docket(&["cost", "--week", "2020-W01"]).await?.into_stdout()?;
    ensure!(nobody.contains("all") && nobody.lines().count() == 2, "{nobody}");

    let left_out = docket(&["metrics"]).await?.into_stdout()?;
    ensure!(left_out.contains("0 tasks") && left_out.contains("2 scripted tasks not included"), "{left_out}");
    let report = docket(&["metrics", "--scripted", "--json"]).await?.into_stdout()?;
    let report: Value = serde_json::from_str(&report)?;
    let all = &report["all"];
    let measured = |name, expected: (u64, u64)| -> Result<()> {
        let found = metric_ratio(all, name)?;
        ensure!(found == expected, "{name} is {found:?} and not {expected:?}: {report}");
        Ok(())
    };
    measured("task_success_rate", (2, 2))?;
    measured("patch_apply_rate", (3, 4))?;
    measured("tool_error_rate", (1, 6))?;
    measured("test_pass_rate", (2, 2))?;
    measured("build_pass_rate", (2, 2))?;
    measured("regression_rate", (0, 2))?;
    measured("rework_rate", (1, 2))?;
    measured("policy_denial_rate", (0, 2))?;
    measured("artifact_completeness", (1, 1))?;
    ensure!(
        metric_ratio(all, "time_to_plan_s")?.1 == 1 && metric_ratio(all, "time_to_complete_s")?.1 == 2,
        "{report}"
    );
    ensure!(
        report["weeks"].as_array().map(Vec::len) == Some(1) && report["weeks"][0]["tasks"] == 2,
        "{report}"
    );
    let sent_back = &tasks[*named.get("sent-back").context("it is listed")?];
    let one = docket(&["metrics", sent_back, "--scripted"]).await?.into_stdout()?;
    let unmeasured =
        one.lines().any(|line| line.starts_with("artifact_completeness") && line.ends_with(" -"));
    ensure!(
        unmeasured && one.contains("rework_rate") && one.contains("! 1.000") && one.contains(">= 0.8"),
        "{one}"
    );

    worker.drain().await?;
    coordinator.end_and_check().await
}

/// What the checks leave before the work is put back, and a death around their record changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baseline_checks_leave_no_trace_after_any_crash() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for when in [None, Some(FailpointTiming::Before), Some(FailpointTiming::After)] {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let script = sample.write_script(
            "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"b.txt\", content = \"b\\n\" } }]\n\
             [[turns]]\ntext = \"Done.\"\n",
        )?;
        let fail = |when| Failpoint { seq: 2, when, epoch: 1, whom: FailpointTarget::Run };
        let options = WorkerOptions {
            base_checks: true,
            failpoints: when.map(fail).into_iter().collect(),
            ..WorkerOptions::default()
        };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        let script = script.to_str().context("UTF-8")?;
        let tests = "[ -e b.txt ] || { touch left.txt; rm a.txt; exit 1; }";
        let flags = ["--model", "scripted:s", "--script", script, "--tests", tests];
        let (task, _) = sample.submit(&coordinator, &flags).await?;
        let run = coordinator.wait_until_ended(task).await?.task.last_run.context("a run")?;
        let history = coordinator.run_history(run).await?;
        let kinds = history.format_kinds();
        ensure!(
            history.count_kind("BaseChecked") == 1
                && history.envelopes[1 + usize::from(when == Some(FailpointTiming::Before))].kind
                    == "BaseChecked",
            "{kinds}"
        );
        ensure!(history.count_kind("RunRecovered") == usize::from(when.is_some()), "{when:?}: {kinds}");
        let diff = coordinator.run_docket(&["diff", &run.to_string()]).await?.into_stdout()?;
        ensure!(
            diff.contains("b.txt") && !diff.contains("left.txt") && !diff.contains("a.txt"),
            "{when:?}: {diff}"
        );
        coordinator.run_docket(&["replay", &run.to_string(), "--verify"]).await?.into_stdout()?;
        worker.drain().await?;
        coordinator.end_and_check().await?;
    }
    Ok(())
}
