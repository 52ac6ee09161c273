//! The OpenAPI document against a running coordinator: schemathesis makes requests of it, good ones and bad ones, with
//! an administrator's token, and looks whether the answers are those that it tells of.
//!
//! Where schemathesis is missing the test says that it skips; in CI it fails. How it asks, and what it leaves out and
//! why, stands in `openapi/schemathesis.toml`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::SubmitRequest, ids::BatchId, task::TaskSpec};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, has_python_modules, print_notice, run_with_input_within,
};
use serde_json::Value;
use uuid::Uuid;

/// Longest that it may take before it is ended: a hang fails, a busy machine does not.
const ALL_REQUESTS: Duration = Duration::from_secs(600);
/// Requests of each operation beyond those of its coverage phase.
const MAX_EXAMPLES: u32 = 15;
/// Operations of the document that it must have asked, of some eighty; and requests in all.
const OPERATIONS_MIN: usize = 75;
const REQUESTS_MIN: usize = 1500;

const PROGRAM: &str = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())";

const SCRIPT: &str = r#"
[[turns]]
text = "I make a file."
calls = [{ name = "create_file", args = { path = "b.txt", content = "two\n" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_undocumented_answers() -> Result<()> {
    let place = tempfile::tempdir()?;
    if !has_python_modules("schemathesis.cli").await {
        return Ok(());
    }
    let _room = acquire_scenario_slot().await;
    // It tries wrong tokens as well, faster than a person would.
    let env = [("DOCKET_AUTH_FAILURES_PER_MINUTE", "1000000")];
    let coordinator =
        CoordinatorProcess::start_with_env(StoreLocation::HomeFolder, LeaseDuration::Usual, &env).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("UTF-8")?;
    let args = ["--model", "scripted:asked", "--script", script];
    let (_, spec) = sample.submit(&coordinator, &args).await?;
    let batch = BatchId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
    let request = SubmitRequest { tasks: vec![TaskSpec { batch: Some(batch), ..spec }], ids: None };
    let task = coordinator.client().submit(&request).await?.tasks.first().context("a task")?.id;
    let ended = coordinator.wait_until_ended(task).await?.task.last_run.context("a run")?;
    // Nobody shall do what it submits.
    worker.drain().await?;

    let config = include_str!("openapi/schemathesis.toml")
        .replace("MAX_EXAMPLES", &MAX_EXAMPLES.to_string())
        .replace("TASK", &task.to_string())
        .replace("RUN", &ended.to_string())
        .replace("BATCH", &batch.to_string());
    std::fs::write(place.path().join("schemathesis.toml"), config)?;
    let document = format!("{}/openapi.json", coordinator.address());
    let bearer = format!("Authorization:Bearer {}", coordinator.token());
    let report = place.path().join("report.ndjson");
    let report_at = report.to_str().context("UTF-8")?;
    let args = ["-c", PROGRAM, "--no-color", "run", &document, "-H", &bearer];
    let args = [&args[..], &["--report", "ndjson", "--report-ndjson-path", report_at]].concat();
    let finished =
        run_with_input_within(ALL_REQUESTS, TestProgram::Python, place.path(), (&[], &args), b"").await?;
    ensure!(finished.success(), "{}\n{}\n{}", finished.stdout, finished.stderr, coordinator.log_tail());
    let asked = requests_by_operation(&std::fs::read_to_string(&report)?)?;
    let requests: usize = asked.values().sum();
    print_notice(&format!("{requests} requests to {} operations", asked.len()));
    ensure!(asked.len() >= OPERATIONS_MIN && requests >= REQUESTS_MIN, "{requests} requests: {asked:?}");
    // Whatever it sent, the log holds and the tables are what it says.
    coordinator.end_and_check().await
}

/// How many requests each operation got, by its report of events.
fn requests_by_operation(report: &str) -> Result<BTreeMap<String, usize>> {
    let mut asked = BTreeMap::new();
    for line in report.lines() {
        let event: Value = serde_json::from_str(line)?;
        let Some(finished) = event.get("ScenarioFinished") else { continue };
        let label = finished["recorder"]["label"].as_str().unwrap_or_default().to_owned();
        let cases = finished["recorder"]["interactions"].as_object().map_or(0, serde_json::Map::len);
        *asked.entry(label).or_default() += cases;
    }
    asked.retain(|_, cases| *cases > 0);
    Ok(asked)
}
