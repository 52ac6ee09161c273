//! `docket demo --keep`, as a newcomer runs it, and the home that it leaves.

use std::{
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    FinishedProcess, TestProgram, acquire_scenario_slot, is_installed, run_with_input_within,
};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, SemaphorePermit};

/// The longest that a demo may take on a busy machine. The usual limit of a command is shorter.
const DEMO_TIME_MAX: Duration = Duration::from_secs(600);

/// One demo at a time: each uses more processes than the machine has cores.
static ONE_DEMO: Mutex<()> = Mutex::const_new(());

async fn acquire_demo_slot() -> (MutexGuard<'static, ()>, SemaphorePermit<'static>) {
    let turn = ONE_DEMO.lock().await;
    (turn, acquire_scenario_slot().await)
}

async fn run_docket(home: &std::path::Path, args: &[&str]) -> Result<FinishedProcess> {
    run_demo(home, &[("DOCKET_HOME", OsStr::new(home))], args).await
}

async fn run_demo(home: &std::path::Path, env: &[(&str, &OsStr)], args: &[&str]) -> Result<FinishedProcess> {
    run_with_input_within(DEMO_TIME_MAX, TestProgram::Docket, home, (env, args), &[]).await
}

fn parse_lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_passes_and_its_kept_home_is_readable() -> Result<()> {
    let _turn = acquire_demo_slot().await;
    let home = tempfile::tempdir()?;
    let home = home.path();
    let demo = run_docket(home, &["demo", "--keep", "--json"]).await?;
    ensure!(demo.success(), "{}\n{}", demo.stdout, demo.stderr);
    let report = parse_lines(&demo.stdout)?.pop().context("a report")?;
    ensure!(report["ok"] == true && report["verify"]["ok"] == true, "{report:#}");
    let kills = report["kills"].as_array().context("kills")?;
    ensure!(kills.len() == 2, "a run process and a supervisor are killed: {report:#}");

    let tasks = parse_lines(&run_docket(home, &["ps", "--json"]).await?.into_stdout()?)?;
    let left_out = report["left_out"].as_array().map_or(0, Vec::len);
    ensure!(tasks.len() == 5 || left_out > 0, "{} tasks", tasks.len());
    ensure!(tasks.iter().any(|task| task["epoch"].as_u64() > Some(1)), "no task was taken over: {tasks:#?}");
    for task in &tasks {
        ensure!(task["state"] == "completed" && task["runs"] == 1 && task["failures"] == 0, "{task:#}");
        let id = task["id"].as_str().context("an id")?;
        let turns = parse_lines(&run_docket(home, &["replay", id, "--json"]).await?.into_stdout()?)?;
        ensure!(turns.iter().all(|turn| turn["replay"] == "view"), "a replay says which one it is");
        let last = turns.last().context("turns")?;
        ensure!(last["ended"] == "succeeded", "{last:#}");
        let gates = last["gates"].as_array().context("gates")?;
        ensure!(!gates.is_empty() && gates.iter().all(|gate| gate["passed"] == true), "{last:#}");
        // Any part that begins or ends just one id names it; the last digits are what lists show.
        let short = &id[id.len() - 8..];
        let one = parse_lines(
            &run_docket(home, &["replay", short, "--json", "--turn", "1"]).await?.into_stdout()?,
        )?;
        ensure!(one.len() == 1 && one[0]["turn"] == 1, "{one:#?}");
        let patch = run_docket(home, &["diff", id]).await?.into_stdout()?;
        ensure!(patch.contains("diff --git"), "no patch: {patch}");
    }
    let verified = parse_lines(&run_docket(home, &["verify", "--json"]).await?.into_stdout()?)?;
    ensure!(verified[0]["ok"] == true && verified[0]["decisions"].as_u64() > Some(0), "{verified:#?}");
    run_docket(home, &["db", "rebuild"]).await?.into_stdout().map(drop)
}

/// As in images of Rust: cargo and rustup are where their variables say, and nothing is below the home.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_passes_with_toolchains_outside_the_home() -> Result<()> {
    let _turn = acquire_demo_slot().await;
    let home = tempfile::tempdir()?;
    let own = std::env::home_dir().context("a home")?;
    let tools = [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")]
        .map(|(name, below)| (name, std::env::var_os(name).unwrap_or_else(|| own.join(below).into())));
    let mut env = vec![("DOCKET_HOME", home.path().as_os_str()), ("HOME", home.path().as_os_str())];
    env.extend(tools.iter().map(|(name, path)| (*name, path.as_os_str())));
    let demo = run_demo(home.path(), &env, &["demo", "--json"]).await?;
    ensure!(demo.success(), "{}\n{}", demo.stdout, demo.stderr);
    let report = parse_lines(&demo.stdout)?.pop().context("a report")?;
    let left_out = report["left_out"].as_array().context("what was left out")?;
    // Of the projects one is in Python; what the others need, this test has itself.
    let is_expected = |line: &Value| {
        !is_installed("python3") && line.as_str().is_some_and(|line| line.contains("python3 does not work"))
    };
    ensure!(report["ok"] == true && left_out.iter().all(is_expected), "{report:#}");
    Ok(())
}

/// A toolchain that is on the path and does not work in the sandbox, such as rustup's `cargo` under another HOME, is left
/// out and named. The rest of the demo ends well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_skips_a_broken_toolchain() -> Result<()> {
    let _turn = acquire_demo_slot().await;
    let home = tempfile::tempdir()?;
    // A `cargo` that is there and fails, as rustup's does where no toolchain is installed.
    let programs = tempfile::tempdir()?;
    std::fs::set_permissions(programs.path(), std::fs::Permissions::from_mode(0o755))?;
    let cargo = programs.path().join("cargo");
    std::fs::write(&cargo, "#!/bin/sh\necho 'error: no default toolchain' >&2\nexit 1\n")?;
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let env = [
        ("DOCKET_HOME", home.path().as_os_str()),
        ("HOME", home.path().as_os_str()),
        ("PATH", OsStr::new(&path)),
        ("CARGO_HOME", OsStr::new("")),
        ("RUSTUP_HOME", OsStr::new("")),
    ];
    let demo = run_demo(home.path(), &env, &["demo", "--json"]).await?;
    ensure!(demo.success(), "{}\n{}", demo.stdout, demo.stderr);
    let report = parse_lines(&demo.stdout)?.pop().context("a report")?;
    let left_out = report["left_out"].as_array().context("what was left out")?;
    let names_cargo = |line: &Value| line.as_str().is_some_and(|line| line.contains("cargo does not work"));
    ensure!(report["ok"] == true && left_out.iter().any(names_cargo), "{report:#}");
    Ok(())
}

/// Threads that use all the processor time they get, two for each core. They end when this is dropped.
struct BusyLoops {
    ended: Arc<AtomicBool>,
}

impl BusyLoops {
    fn start() -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * std::thread::available_parallelism()?.get() {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Ok(Self { ended })
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_passes_on_a_busy_machine() -> Result<()> {
    let _turn = acquire_demo_slot().await;
    let home = tempfile::tempdir()?;
    let _busy = BusyLoops::start()?;
    let demo = run_docket(home.path(), &["demo", "--json"]).await?;
    ensure!(demo.success(), "{}\n{}", demo.stdout, demo.stderr);
    let report = parse_lines(&demo.stdout)?.pop().context("a report")?;
    ensure!(report["ok"] == true, "{report:#}");
    // Where leases are lost again and again, tasks end after many of them.
    let leases =
        report["tasks"].as_array().context("tasks")?.iter().filter_map(|task| task["leases"].as_u64());
    ensure!(leases.clone().all(|leases| leases <= 6), "{report:#}");
    Ok(())
}
