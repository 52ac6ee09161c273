//! The sample projects' own runners: found, pinned as a final check, and read.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, tool::TestCounts};
use docket_tests::system::{acquire_scenario_slot, has_program};

use super::CheckFixture;

/// Files of a sample project, with their text.
fn read_tree(name: &str) -> Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("projects").join(name).join("tree");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&root)?.to_string_lossy().into_owned();
            // What a test run leaves behind is no part of a project.
            if name.contains("__pycache__") || name.starts_with("target") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((name, std::fs::read_to_string(path)?));
            }
        }
    }
    Ok(found)
}

/// Whether some of a project's tests pass, and some do not, as it stands; none where its runner counts nothing.
type CountedTests = Option<(bool, bool)>;

/// The project and the beginning of its test line.
const PROJECTS: [(&str, &str, CountedTests); 3] = [
    ("pantry", "p=python3;", Some((true, true))),
    ("textbox", "cargo test --no-fail-fast", Some((true, true))),
    ("logcut", "sh tests/run.sh", None),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_projects_are_tested_by_detected_runners() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = CheckFixture::new("[run]\ncorrections_max = 0\n").await?;
    let script = "[[turns]]\ncalls = [{ name = \"run_tests\" }]\n[[turns]]\ntext = \"Done.\"\n";
    for (name, line, counted) in PROJECTS {
        if name == "pantry" && !has_program("python3") {
            continue;
        }
        let files = read_tree(name)?;
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let played = house.play_script(name, &files, script).await?;
        let gate = played.history.events.iter().find_map(|event| match event {
            RunEvent::RunStarted(started) => started.gates.iter().find(|gate| gate.name == "tests").cloned(),
            _ => None,
        });
        let gate = gate.with_context(|| format!("{name}: no tests are pinned"))?;
        ensure!(gate.command.starts_with(line), "{name}: {}", gate.command);
        let result = *played.tool_results().first().context("a result")?;
        let told = super::CheckedRun::result_text(result);
        ensure!(told.starts_with(&gate.command), "{name}: {told}");
        let counts = result.facts.tests;
        let seen = counts.map(|TestCounts { passed, failed, errors, .. }| (passed > 0, failed + errors > 0));
        ensure!(
            seen == counted && result.facts.exit.is_some_and(|exit| exit != 0),
            "{name}: {counts:?}\n{told}"
        );
        if counted.is_some() {
            ensure!(told.contains("first failure:"), "{name}: {told}");
        }
        ensure!(played.final_checks() == ["tests failed"], "{name}: {:?}", played.final_checks());
    }
    house.shut_down().await
}
