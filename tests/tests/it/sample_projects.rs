//! What an engineer would hand over: a small program from its requirements, and a change to a project that is there;
//! with a mistake of each kind on the way, which the loop itself lets the model mend.

use anyhow::{Context as _, Result, ensure};
use docket_schema::run::{RunEvent, ToolStatus};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_program};

use super::checks::{CheckFixture, CheckedRun, is_ruff_available};

const REQUIREMENTS: &str = "\
# Task tracker

- `python3 -m tracker add TITLE` adds a task and prints its number, from 1.
- `python3 -m tracker done NUMBER` finishes it.
- `python3 -m tracker list` prints what is open, one a line.
- Tasks are kept in `tasks.json`. A task needs a title.
";

fn call_statuses(played: &CheckedRun) -> Vec<&'static str> {
    let word = |status| match status {
        ToolStatus::Ok => "ok",
        ToolStatus::Error => "error",
        ToolStatus::Refused => "refused",
        ToolStatus::Unknown => "unknown",
    };
    played.tool_results().iter().map(|result| word(result.status)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_tracker_is_built_from_its_requirements() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    if !is_ruff_available().await {
        return Ok(());
    }
    let house = CheckFixture::new("").await?;
    let files = [("requirements.md", REQUIREMENTS)];
    let played = house.play_script("tracker", &files, include_str!("sample_projects/script.toml")).await?;
    played.assert_succeeded()?;
    let last = played.history.envelopes.last().context("events")?;
    ensure!(last.turn.0 <= 30, "{} turns", last.turn);
    // Each mistake came back as what it was, once, and the next answer mended it.
    let statuses = call_statuses(&played);
    let expected = ["ok", "ok", "ok", "error", "ok", "error", "ok", "ok", "ok", "ok", "ok", "ok", "ok"];
    ensure!(statuses == expected, "{statuses:?}");
    let texts: Vec<String> = played.tool_results().into_iter().map(CheckedRun::result_text).collect();
    ensure!(texts[2].contains("F401") && texts[2].contains("`os`"), "the linter tells: {}", texts[2]);
    ensure!(texts[3].contains("4| import os\n     5| from pathlib import Path"), "{}", texts[3]);
    ensure!(texts[5].contains("JSON"), "{}", texts[5]);
    ensure!(texts[8].contains("1 failed") && texts[8].contains("test_what_was_added"), "{}", texts[8]);
    ensure!(texts[10].contains("4 passed"), "{}", texts[10]);
    ensure!(texts[12].contains("2 read it\n") && !texts[12].contains("1 write it"), "{}", texts[12]);
    let mended = ["ruff failed", "ruff mended", "ruff passed", "tests passed"];
    let checks = played.final_checks();
    ensure!(mended.iter().all(|check| checks.iter().any(|done| done == check)), "{checks:?}");
    ensure!(played.asked.len() == 12, "the end was mended without the model: {} calls", played.asked.len());

    // What it left is what was wanted, by the word of the tools themselves.
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    let place = tree.to_str().context("UTF-8")?;
    house.docket_output(&["checkout", &played.run_id()?.to_string(), place]).await?;
    let python = async |args: &[&str]| run_program(TestProgram::Python, &tree, &[], args).await;
    let lint = python(&["-m", "ruff", "check", "--no-cache", "."]).await?;
    ensure!(lint.success(), "{lint:?}");
    let tests = python(&["-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]).await?;
    ensure!(tests.success() && tests.stderr.contains("Ran 4 tests"), "{tests:?}");
    let used = python(&["-B", "-m", "tracker", "add", "a", "task"]).await?;
    ensure!(used.success() && used.stdout == "1\n", "{used:?}");
    ensure!(!tree.join("tasks.json.bak").exists() && tree.join("requirements.md").exists());
    house.shut_down().await
}

const PYPROJECT: &str = "[project]\nname = \"shop\"\nversion = \"1.0\"\n\n[tool.ruff]\nline-length = 90\n";
const PACKAGE: &str =
    "{\n  \"name\": \"shop\",\n  \"private\": true,\n  \"license\": \"MIT\",\n  \"type\": \"module\"\n}\n";
const SHOP: &str = "def total(prices):\n    return sum(prices)\n";
const SHOP_TEST: &str = "import unittest\n\nfrom shop import total\n\n\nclass TotalTest(unittest.TestCase):\n    \
                         def test_sum(self):\n        self.assertEqual(total([1, 2]), 3)\n";

/// Twice it tries to write a configuration of its own; what was asked for is in another file.
const CHANGE: &str = r#"
[[turns]]
text = "PLAN:\n- [x] add a tax"
calls = [
  { name = "read_file", args = { path = "shop.py" } },
  { name = "read_file", args = { path = "package.json" } },
]
[[turns]]
calls = [{ name = "create_file", args = { path = "pyproject.toml", content = "[project]\nname = \"mine\"\n" } }]
[[turns]]
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "package.json"
edits = [{ search = "{\n  \"name\": \"shop\",\n  \"private\": true,\n  \"license\": \"MIT\",\n  \"type\": \"module\"\n}\n", replace = "{}\n" }]
[[turns]]
[[turns.calls]]
name = "edit_file"
[turns.calls.args]
path = "shop.py"
edits = [{ search = "def total(prices):\n    return sum(prices)", replace = "def total(prices, tax=0):\n    return sum(prices) * (100 + tax) // 100" }]
[[turns]]
text = "`total` takes a tax in percent."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_project_is_changed_without_touching_its_configuration() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let house = CheckFixture::new("").await?;
    let files = [
        ("pyproject.toml", PYPROJECT),
        ("package.json", PACKAGE),
        ("shop.py", SHOP),
        ("test_shop.py", SHOP_TEST),
    ];
    let played = house.play_script("shop", &files, CHANGE).await?;
    played.assert_succeeded()?;
    ensure!(call_statuses(&played) == ["ok", "ok", "error", "error", "ok"], "{:?}", call_statuses(&played));
    let texts: Vec<String> = played.tool_results().into_iter().map(CheckedRun::result_text).collect();
    ensure!(texts[2].contains("exists already") && texts[2].contains("never replaced whole"), "{}", texts[2]);
    ensure!(texts[3].contains("not replaced whole"), "{}", texts[3]);
    let changed: Vec<String> = played
        .history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::SnapshotTaken(taken) => Some(taken),
            _ => None,
        })
        .flat_map(|taken| taken.changes.iter().map(|change| change.path.to_string()))
        .collect();
    ensure!(changed == ["shop.py"], "{changed:?}");
    house.shut_down().await
}
