//! Storage per turn does not grow with the turn number (invariant 10): a real run of many equal
//! turns, its log weighed turn by turn.

use std::{collections::BTreeMap, ffi::OsStr, fmt::Write as _};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_program};
use serde_json::Value;

const TURNS: u64 = 45;
/// Turn 10 against turn 40. The requests of these turns differ by thirty turns of history.
const EARLY: u64 = 10;
const LATE: u64 = 40;

#[tokio::test]
async fn storage_per_turn_does_not_grow() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let home = home.path();
    let env = [("DOCKET_HOME", OsStr::new(home))];
    let mut script = String::new();
    for turn in 0..TURNS {
        writeln!(script, "[[turns]]\ntext = \"One more.\"")?;
        writeln!(
            script,
            "calls = [{{ name = \"create_file\", args = {{ path = \"f{turn:04}.txt\", content = \"{turn:04}\" }} }}]"
        )?;
    }
    script.push_str("[[turns]]\ntext = \"Done.\"\n");
    std::fs::write(home.join("many.toml"), script)?;
    std::fs::write(home.join("docket.toml"), "[run]\nturns_max = 60\n")?;
    let args = ["run", "Many files", "--empty", "--model", "scripted:many", "--script", "many.toml"];
    run_program(TestProgram::Docket, home, &env, &args).await?.into_stdout()?;

    let tasks = run_program(TestProgram::Docket, home, &env, &["ps", "--json"]).await?.into_stdout()?;
    let task: Value = serde_json::from_str(tasks.lines().next().context("a task")?)?;
    let id = task["run"].as_str().context("a run")?;
    let log = run_program(TestProgram::Docket, home, &env, &["logs", id, "--json"]).await?.into_stdout()?;
    let mut bytes = BTreeMap::<u64, usize>::new();
    let mut request_bytes = BTreeMap::<u64, u64>::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line)?;
        let turn = event["turn"].as_u64().context("a turn")?;
        *bytes.entry(turn).or_default() += event["payload"].to_string().len();
        if let Some(size) = event["payload"]["request_bytes"].as_u64() {
            request_bytes.insert(turn, size);
        }
    }
    // The control: what the model was sent did grow, so a log that kept requests would show it.
    ensure!(request_bytes[&LATE] > request_bytes[&EARLY] + 3000, "{request_bytes:?}");
    let (early, late) = (bytes[&EARLY], bytes[&LATE]);
    ensure!(late * 10 <= early * 11, "turn {EARLY} holds {early} bytes, turn {LATE} {late}");
    Ok(())
}
