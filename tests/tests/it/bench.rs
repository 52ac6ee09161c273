//! `docket bench` and `docket-bench` as programs: every figure that they declare is measured, a figure that is missing fails
//! the program by its name, and nothing is left behind. Figures are checked for being there and possible, and never for
//! being good.

use std::{collections::BTreeSet, ffi::OsStr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        FinishedProcess, TestProgram, acquire_scenario_slot, docket_binary, is_installed, run_program,
        run_with_input_within,
    },
};
use serde_json::{Value, json};

/// Groups of stores and of the coordinator.
const OF_STORES: [&str; 8] =
    ["latency", "sqlite", "http", "drain", "finished", "overview", "followers", "fold"];
/// Groups with runs and their processes.
const OF_RUNS: [&str; 4] = ["turns", "workers", "sandbox", "storage"];
/// Groups of one part each.
const OF_PARTS: [&str; 4] = ["snapshots", "edit", "engine", "search"];
/// Groups at a PostgreSQL server.
const OF_POSTGRES: [&str; 5] =
    ["postgres", "drain-postgres", "finished-postgres", "overview-postgres", "followers-postgres"];

/// What a user sizes a machine with. The last one needs a PostgreSQL server.
const OF_USERS: [&str; 15] = [
    "raw_commits_per_s",
    "appends_per_s",
    "append_ratio",
    "submit_tasks_per_s",
    "drain_tasks_per_s",
    "submit_to_run_ms_p50",
    "drain_isolated_tasks_per_s",
    "turn_overhead_ms_p50",
    "rss_run_mb",
    "rss_supervisor_mb",
    "spawn_sandboxed_ms_p50",
    "sandbox_overhead_ms_p50",
    "materialize_ms",
    "snapshot_ms_p50",
    "appends_per_s_postgres",
];

/// Beyond the programs' own limits of a group or a part, which name what they were at.
const TIME_MAX: Duration = Duration::from_secs(300);

/// A figure as `docket-bench --list` declares it.
struct DeclaredFigure {
    group: String,
    figure: String,
    may_be_zero: bool,
}

async fn list_declared_figures(home: &Path) -> Result<Vec<DeclaredFigure>> {
    let listed =
        run_program(TestProgram::DocketBench, home, &[], &["--list", "--json"]).await?.into_stdout()?;
    let rows = listed.lines().map(|line| {
        let row: Value = serde_json::from_str(line)?;
        let text = |key: &str| row[key].as_str().map(str::to_owned).with_context(|| line.to_owned());
        let may_be_zero = row["may_be_zero"].as_bool().with_context(|| line.to_owned())?;
        Ok(DeclaredFigure { group: text("group")?, figure: text("figure")?, may_be_zero })
    });
    rows.collect()
}

/// Runs one of the two in a folder of its own, which it must leave empty.
async fn run_bench_tool(
    tool: TestProgram,
    home: &Path,
    env: &[(&str, &OsStr)],
    args: &[&str],
) -> Result<FinishedProcess> {
    let stores = tempfile::tempdir()?;
    let folder = stores.path().to_string_lossy().into_owned();
    let args = [args, &["--store-dir", &folder]].concat();
    let env = [&[("DOCKET_HOME", OsStr::new(home))], env].concat();
    let done = run_with_input_within(TIME_MAX, tool, home, (&env, &args), b"").await?;
    ensure!(std::fs::read_dir(stores.path())?.next().is_none(), "something is left: {}", done.stderr);
    Ok(done)
}

async fn run_docket_bench(home: &Path, env: &[(&str, &OsStr)], args: &[&str]) -> Result<FinishedProcess> {
    let docket = docket_binary().to_string_lossy();
    let args = [&["--json", "--docket", &docket], args].concat();
    run_bench_tool(TestProgram::DocketBench, home, env, &args).await
}

/// Runs the command that users have. It must end with `code`, and have measured the figures of `sizes` and no other.
async fn check_sizes_are_measured(args: &[&str], code: i32, sizes: &[&str]) -> Result<(Value, String)> {
    let home = tempfile::tempdir()?;
    let args = [&["bench", "--json", "--quick"], args].concat();
    let done = run_bench_tool(TestProgram::Docket, home.path(), &[], &args).await?;
    ensure!(done.code() == Some(code), "{:?}: {}", done.code(), done.stderr);
    let said: Value = serde_json::from_str(&done.stdout)?;
    for figure in OF_USERS {
        let (value, is_expected) = (said[figure].as_f64(), sizes.contains(&figure));
        ensure!(value.is_some_and(|value| value > 0.0) == is_expected, "{figure} is {value:?}: {said}");
        ensure!(said[format!("{figure}_reason")].is_string() != is_expected, "{figure}: {said}");
    }
    let about = ["version", "debug_build", "quick", "cpus", "took_s", "figures_missing"];
    for name in said.as_object().context("an object")?.keys() {
        let figure = name.strip_suffix("_reason").unwrap_or(name);
        ensure!(OF_USERS.contains(&figure) || about.contains(&figure), "no test knows {name}: {said}");
    }
    Ok((said, done.stderr))
}

/// Measures each group with the least effort, and checks each figure that it owns.
async fn check_groups_measure_their_figures(groups: &[&str], server: Option<&str>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let declared = list_declared_figures(home.path()).await?;
    for group in groups {
        let mut args = vec!["--smoke", "--only", *group];
        args.extend(server.iter().flat_map(|url| ["--postgres", *url]));
        let done = run_docket_bench(home.path(), &[], &args).await?;
        ensure!(done.code() == Some(0), "{group}: {:?}: {}", done.code(), done.stderr);
        let said: Value = serde_json::from_str(&done.stdout)?;
        let owned: Vec<_> = declared.iter().filter(|one| one.group == *group).collect();
        ensure!(!owned.is_empty(), "{group} owns no figure");
        for DeclaredFigure { figure, may_be_zero, .. } in owned {
            let value = said[figure.as_str()].as_f64();
            let possible = value.is_some_and(|value| if *may_be_zero { value >= 0.0 } else { value > 0.0 });
            ensure!(possible, "{group}: {figure} is {value:?}: {said}");
        }
        ensure!(said["figures_owed"] == Value::Array(Vec::new()), "{said}");
        let of_others = declared.iter().find(|one| one.group != *group).context("another group")?;
        ensure!(said[of_others.figure.as_str()].is_null(), "it was not measured: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_bench_measures_every_sizing_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (said, _) = check_sizes_are_measured(&[], 0, &OF_USERS[..OF_USERS.len() - 1]).await?;
    ensure!(said["figures_missing"] == json!([]), "without a server nothing is missing: {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_bench_measures_every_postgres_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    check_sizes_are_measured(&["--postgres", cluster.url()], 0, &OF_USERS).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_figure_fails_docket_bench_by_name() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    // Nobody listens there.
    let server = ["--postgres", "postgres://docket@127.0.0.1:1/docket"];
    let (said, stderr) = check_sizes_are_measured(&server, 1, &OF_USERS[..OF_USERS.len() - 1]).await?;
    ensure!(said["figures_missing"] == json!(["appends_per_s_postgres"]), "{said}");
    ensure!(stderr.contains("figure appends_per_s_postgres was not measured"), "{stderr}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bench_group_has_a_test() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let declared: BTreeSet<String> =
        list_declared_figures(home.path()).await?.into_iter().map(|one| one.group).collect();
    let all = [&OF_STORES[..], &OF_RUNS, &OF_PARTS, &OF_POSTGRES].concat();
    let tested: BTreeSet<String> = all.into_iter().map(str::to_owned).collect();
    ensure!(declared == tested, "{declared:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_groups_measure_every_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_groups_measure_their_figures(&OF_STORES, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_groups_measure_every_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_groups_measure_their_figures(&OF_RUNS, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_groups_measure_every_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let has_ripgrep = is_installed("rg");
    // Without ripgrep that group owes its figures, which the test below is about.
    let groups: Vec<&str> = OF_PARTS.into_iter().filter(|group| has_ripgrep || *group != "search").collect();
    check_groups_measure_their_figures(&groups, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_groups_measure_every_figure() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    check_groups_measure_their_figures(&OF_POSTGRES, Some(cluster.url())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_figure_fails_the_bench_by_name() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (home, nothing) = (tempfile::tempdir()?, tempfile::tempdir()?);
    // Nothing to compare with is found here.
    let path = [("PATH", nothing.path().as_os_str())];
    let done = run_docket_bench(home.path(), &path, &["--smoke", "--only", "search"]).await?;
    ensure!(done.code() == Some(1), "{:?}: {}", done.code(), done.stderr);
    let said: Value = serde_json::from_str(&done.stdout)?;
    for one in list_declared_figures(home.path()).await?.iter().filter(|one| one.group == "search") {
        let figure = one.figure.as_str();
        ensure!(
            done.stderr.contains(&format!("figure {figure} was not measured")),
            "{figure}: {}",
            done.stderr
        );
        ensure!(said[figure].is_null() && said[format!("{figure}_reason")].is_string(), "{figure}: {said}");
        let owed = said["figures_owed"].as_array().context("a list")?;
        ensure!(owed.iter().any(|owed| owed == figure), "{figure}: {said}");
    }
    let refused =
        run_docket_bench(home.path(), &[("DATABASE_URL", OsStr::new(""))], &["--only", "postgres"]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("--postgres"), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bench_cleans_up_and_has_a_strict_mode() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let groups = ["snapshots", "edit"];
    let mut args = vec!["--smoke", "--strict"];
    groups.iter().for_each(|group| args.extend(["--only", *group]));
    let done = run_docket_bench(home.path(), &[], &args).await?;
    let said: Value = serde_json::from_str(&done.stdout)?;
    let missed = said["targets_missed"].as_array().is_some_and(|missed| !missed.is_empty());
    ensure!(done.code() == Some(if missed { 8 } else { 0 }), "{:?}: {said}", done.code());
    let took = |name: &str| said[format!("took_{name}s")].as_f64().unwrap_or(-1.0);
    ensure!(took("cleanup_") >= 0.0 && took("snapshots_") > 0.0, "{said}");
    // Rounded to tenths each.
    let parts = groups.iter().map(|group| took(&format!("{group}_"))).sum::<f64>() + took("cleanup_");
    ensure!(took("") + 0.5 >= parts, "the whole is less than its parts: {said}");
    Ok(())
}
