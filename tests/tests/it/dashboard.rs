//! The dashboard in a real browser: Chromium, driven by `tests/browser/`, at a coordinator with a worker whose models
//! follow scripts.
//!
//! `DOCKET_SCREENSHOTS=DIR` keeps pictures. Where Node, its packages (`npm ci` in `tests/browser`) or Chromium are
//! missing a test says that it skips; in CI it fails.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::TaskId, task::TaskState};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, print_notice, run_program, run_with_input_within, wait_until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The cases of a file, each of whose waits has a limit of its own.
const ALL_CASES: Duration = Duration::from_secs(900);
/// What the driver ends with where there is no browser.
const NO_BROWSER: i32 = 3;

const DONE: &str = r#"
after_end = "repeat_last"
[[turns]]
text = "I look around first."
calls = [{ name = "create_file", args = { path = "door.txt", content = "blue\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "cat door.txt" } }]
[[turns]]
text = "Done."
"#;

const ASKS: &str = r#"
[[turns]]
text = "BLOCKED: Which colour is the door?"
[[turns]]
text = "Done, as you said."
"#;

const FAILS: &str = r#"
after_end = "repeat_last"
[[turns]]
calls = [{ name = "run_command", args = { command = "false" } }]
"#;

/// Words and names that a page might take for its own.
const HOSTILE: &str = r#"
[[turns]]
text = "<img src=x onerror=alert(1)> \u202Edeltit"
calls = [{ name = "create_file", args = { path = "<b>bold.html", content = "<script>alert(2)</script>\n" } }]
[[turns]]
text = "Done."
"#;

const SLOW: &str = r#"
after_end = "repeat_last"
[[turns]]
delay_ms = 1000
calls = [{ name = "run_command", args = { command = "true" } }]
"#;

/// An output of which the model reads a part.
const LONG: &str = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "seq 1 9000" } }]
[[turns]]
text = "Done."
"#;

/// Whoever is told of failed tasks, and does not take it.
const DEAF: &str = r#"
[[notify]]
name = "deaf"
command = ["/bin/false"]
on = ["task.failed"]
attempts_max = 1
"#;

fn browser_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// A coordinator with something of each kind in its log.
struct DashboardFixture {
    coordinator: CoordinatorProcess,
    _worker: WorkerProcess,
    tasks: BTreeMap<&'static str, String>,
    read: String,
    submit: String,
    _home: TempDir,
}

async fn submit_task(
    coordinator: &CoordinatorProcess,
    sample: &SampleRepository,
    title: &str,
    script: &str,
    more: &[&str],
) -> Result<TaskId> {
    let script = sample.write_script(script)?;
    let script = script.to_str().context("UTF-8")?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let args = ["submit", title, "--json", "--repo", repo, "--model", "scripted:ui", "--script", script];
    let row = coordinator.run_docket(&[&args[..], more].concat()).await?.into_stdout()?;
    let row: Value = serde_json::from_str(&row)?;
    Ok(row["id"].as_str().context("an id")?.parse()?)
}

/// A token of this role.
async fn create_token(coordinator: &CoordinatorProcess, role: &str) -> Result<String> {
    let args = ["token", "create", "--name", role, "--role", role, "--json"];
    let made: Value = serde_json::from_str(&coordinator.run_docket(&args).await?.into_stdout()?)?;
    Ok(made["secret"].as_str().context("a secret")?.to_owned())
}

async fn wait_for_state(coordinator: &CoordinatorProcess, task: TaskId, state: TaskState) -> Result<()> {
    wait_until("a task's state", async || {
        let view = coordinator.client().get_task(task).await.ok()?;
        (view.task.state == state).then_some(())
    })
    .await
}

impl DashboardFixture {
    async fn new() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let archive =
            format!("{DEAF}\n[archive]\nto = \"file://{}\"\n", home.path().join("put-away").display());
        std::fs::write(home.path().join("docket.toml"), archive)?;
        let coordinator =
            CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual)
                .await?;
        // What cases put into other queues stays where they put it.
        let options = WorkerOptions { slots: 3, queue: Some("default".parse()?), ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        let sample = SampleRepository::new(&[("README.md", "# A door\n")])?;
        let done = submit_task(&coordinator, &sample, "Paint the door", DONE, &[]).await?;
        let asks = submit_task(&coordinator, &sample, "Which colour", ASKS, &[]).await?;
        let limits = ["--turns", "2", "--attempts", "1"];
        let fails = submit_task(&coordinator, &sample, "Always fails", FAILS, &limits).await?;
        let hostile = submit_task(&coordinator, &sample, "Say <b>it</b>", HOSTILE, &[]).await?;
        let long = submit_task(&coordinator, &sample, "Count far", LONG, &[]).await?;
        wait_for_state(&coordinator, hostile, TaskState::Completed).await?;
        wait_for_state(&coordinator, long, TaskState::Completed).await?;
        wait_for_state(&coordinator, done, TaskState::Completed).await?;
        wait_for_state(&coordinator, asks, TaskState::Blocked).await?;
        wait_for_state(&coordinator, fails, TaskState::Discarded).await?;
        let slow = submit_task(&coordinator, &sample, "Goes on and on", SLOW, &["--turns", "1000"]).await?;
        wait_for_state(&coordinator, slow, TaskState::Running).await?;
        let run = coordinator.client().get_task(done).await?.task.last_run.context("a run")?;
        let (read, submit) =
            (create_token(&coordinator, "read").await?, create_token(&coordinator, "submit").await?);
        let tasks = [
            ("done", done.to_string()),
            ("waits", done.to_string()),
            ("asks", asks.to_string()),
            ("fails", fails.to_string()),
            ("slow", slow.to_string()),
            ("long", long.to_string()),
            ("hostile", hostile.to_string()),
            ("run", run.to_string()),
        ];
        Ok(Self {
            coordinator,
            _worker: worker,
            tasks: tasks.into_iter().collect(),
            read,
            submit,
            _home: home,
        })
    }
}

/// What a driver said, without the cases that hold.
fn failed_cases(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("ok ")).collect::<Vec<_>>().join("\n")
}

/// Carries out the cases of one file of `tests/browser/cases`.
async fn run_browser_cases(cases: &str) -> Result<()> {
    let probe = run_program(TestProgram::Node, &browser_folder(), &[], &["--version"]).await;
    let packages = browser_folder().join("node_modules/playwright-core").is_dir();
    if probe.is_err() || !packages {
        print_notice("skipped: no node here, or no packages (npm ci in tests/browser)");
        ensure!(std::env::var_os("CI").is_none(), "CI needs them; .ci/run installs them");
        return Ok(());
    }
    let _room = acquire_scenario_slot().await;
    let house = DashboardFixture::new().await?;
    let told = json!({
        "url": house.coordinator.address(),
        "tokens": { "admin": house.coordinator.token(), "read": house.read, "submit": house.submit },
        "tasks": house.tasks,
        "only": format!("{cases}:"),
        "chromium": std::env::var("DOCKET_CHROMIUM").ok(),
    });
    let (asked, how) = (told.to_string(), (&[][..], &["run.js"][..]));
    let ended =
        run_with_input_within(ALL_CASES, TestProgram::Node, &browser_folder(), how, asked.as_bytes()).await?;
    if ended.code() == Some(NO_BROWSER) {
        print_notice(&format!("skipped: {}", ended.stderr.trim()));
        ensure!(std::env::var_os("CI").is_none(), "CI needs it; .ci/run installs it: {}", ended.stderr);
        return Ok(());
    }
    let said = ended.stdout.trim_end();
    let tally = said.lines().last().and_then(|line| line.strip_suffix(" cases hold")?.split_once(" of "));
    let hold = ended.success() && tally.is_some_and(|(held, all)| held == all && all != "0");
    ensure!(hold, "{}\n{}\n{}", house.coordinator.log_tail(), failed_cases(said), ended.stderr.trim_end());
    print_notice(said);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_signs_in_and_out() -> Result<()> {
    run_browser_cases("signin").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overview_is_live_and_answers_questions() -> Result<()> {
    run_browser_cases("overview").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlog_is_searched_sorted_and_edited() -> Result<()> {
    run_browser_cases("backlog").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_compared_with_their_targets() -> Result<()> {
    run_browser_cases("metrics").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_stepped_through_forked_and_compared() -> Result<()> {
    run_browser_cases("run").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_text_themes_and_lost_coordinators_are_handled() -> Result<()> {
    run_browser_cases("pages").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_accessible_in_both_themes_and_on_a_phone() -> Result<()> {
    run_browser_cases("looks").await
}

/// Without a browser: where it is, and how one gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_command_prints_a_signed_in_url_or_fails_without_a_server() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let said = coordinator.run_docket(&["dashboard", "--print"]).await?.into_stdout()?;
    let address = coordinator.address();
    let given = said.trim().strip_prefix(&format!("{address}/ui/#token=")).context("an address")?.to_owned();
    // Not the home's own, which never ends: a browser keeps what it once had.
    ensure!(given != coordinator.token() && given.starts_with("dkt_"), "{said}");
    let listed = coordinator.run_docket(&["token", "list", "--json"]).await?.into_stdout()?;
    let browser = listed.lines().find(|line| line.contains("browser-")).context("a token for the browser")?;
    let browser: Value = serde_json::from_str(browser)?;
    ensure!(browser["expires_at"].is_string() && browser["role"] == "admin", "{browser}");
    // No terminal and no desktop: it prints, and opens nothing.
    let plain = coordinator.run_docket(&["dashboard"]).await?.into_stdout()?;
    ensure!(plain.starts_with(&format!("{address}/ui/#token=dkt_")) && plain.lines().count() == 1, "{plain}");
    let row: Value =
        serde_json::from_str(&coordinator.run_docket(&["dashboard", "--json"]).await?.into_stdout()?)?;
    ensure!(row["address"] == format!("{address}/ui/"), "{row}");
    // A token that is given is the one that is used, here as elsewhere: fewer rights stay fewer.
    let made = coordinator
        .run_docket(&["token", "create", "--name", "eve", "--role", "read", "--json"])
        .await?
        .into_stdout()?;
    let made: Value = serde_json::from_str(&made)?;
    let eve = made["secret"].as_str().context("a secret")?;
    let env = [("DOCKET_HOME", coordinator.home().as_os_str()), ("DOCKET_TOKEN", eve.as_ref())];
    let hers = run_program(TestProgram::Docket, coordinator.home(), &env, &["dashboard", "--print"])
        .await?
        .into_stdout()?;
    ensure!(hers.trim().ends_with(eve), "{hers}");
    let refused = run_program(TestProgram::Docket, coordinator.home(), &env, &["token", "list"]).await?;
    ensure!(refused.code() == Some(4), "{refused:?}");
    let home = tempfile::tempdir()?;
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let nobody = run_program(TestProgram::Docket, home.path(), &env, &["dashboard", "--print"]).await?;
    ensure!(nobody.code() == Some(5) && nobody.stderr.contains("docket up"), "{nobody:?}");
    Ok(())
}
