//! The sample projects' own runners: found, pinned as a final check, and read.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, tool::TestCounts};
use docket_tests::system::{has, room};

use super::House;

/// Files of a sample project, with their text.
fn tree(name: &str) -> Result<Vec<(String, String)>> {
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
type Counted = Option<(bool, bool)>;

/// The project and the beginning of its test line.
const PROJECTS: [(&str, &str, Counted); 3] = [
    ("pantry", "p=python3;", Some((true, true))),
    ("textbox", "cargo test --no-fail-fast", Some((true, true))),
    ("logcut", "sh tests/run.sh", None),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_projects_are_tested_by_the_runners_that_are_found() -> Result<()> {
    let _room = room().await;
    let house = House::new("[run]\ncorrections_max = 0\n").await?;
    let script = "[[turns]]\ncalls = [{ name = \"run_tests\" }]\n[[turns]]\ntext = \"Done.\"\n";
    for (name, line, counted) in PROJECTS {
        if name == "pantry" && !has("python3") {
            continue;
        }
        let files = tree(name)?;
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let played = house.play(name, &files, script).await?;
        let gate = played.history.events.iter().find_map(|event| match event {
            RunEvent::RunStarted(started) => started.gates.iter().find(|gate| gate.name == "tests").cloned(),
            _ => None,
        });
        let gate = gate.with_context(|| format!("{name}: no tests are pinned"))?;
        ensure!(gate.command.starts_with(line), "{name}: {}", gate.command);
        let result = *played.results().first().context("a result")?;
        let told = super::Played::text(result);
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
        ensure!(played.checks() == ["tests failed"], "{name}: {:?}", played.checks());
    }
    house.end().await
}
