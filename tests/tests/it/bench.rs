//! `docket bench` as a program: every group measures every figure that it owns, a figure that is missing fails the command
//! by its name, and nothing is left behind. Figures are checked for being there and possible, and never for being good.

use std::{collections::BTreeSet, ffi::OsStr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    pg_cluster::Cluster,
    system::{Finished, Tool, is_installed, room, run, run_fed_within},
};
use serde_json::Value;

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

/// Beyond the bench's own limit of a group, which names what it was at.
const GROUP_TIME_MAX: Duration = Duration::from_secs(200);

/// A figure as `docket bench --list` declares it.
struct Declared {
    group: String,
    figure: String,
    may_be_zero: bool,
}

async fn declared(home: &Path) -> Result<Vec<Declared>> {
    let env = [("DOCKET_HOME", OsStr::new(home))];
    let listed = run(Tool::Docket, home, &env, &["bench", "--list", "--json"]).await?.ok()?;
    let rows = listed.lines().map(|line| {
        let row: Value = serde_json::from_str(line)?;
        let text = |key: &str| row[key].as_str().map(str::to_owned).with_context(|| line.to_owned());
        let may_be_zero = row["may_be_zero"].as_bool().with_context(|| line.to_owned())?;
        Ok(Declared { group: text("group")?, figure: text("figure")?, may_be_zero })
    });
    rows.collect()
}

async fn bench(home: &Path, env: &[(&str, &OsStr)], args: &[&str]) -> Result<Finished> {
    let stores = tempfile::tempdir()?;
    let folder = stores.path().to_string_lossy().into_owned();
    let args = [&["bench", "--json", "--store-dir", &folder], args].concat();
    let env = [&[("DOCKET_HOME", OsStr::new(home))], env].concat();
    let done = run_fed_within(GROUP_TIME_MAX, Tool::Docket, home, (&env, &args), b"").await?;
    ensure!(std::fs::read_dir(stores.path())?.next().is_none(), "something is left: {}", done.stderr);
    Ok(done)
}

/// Measures each group with the least effort, and checks each figure that it owns.
async fn each_measures_what_it_owns(groups: &[&str], server: Option<&str>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let declared = declared(home.path()).await?;
    for group in groups {
        let mut args = vec!["--smoke", "--only", *group];
        args.extend(server.iter().flat_map(|url| ["--postgres", *url]));
        let done = bench(home.path(), &[], &args).await?;
        ensure!(done.code() == Some(0), "{group}: {:?}: {}", done.code(), done.stderr);
        let said: Value = serde_json::from_str(&done.stdout)?;
        let owned: Vec<_> = declared.iter().filter(|one| one.group == *group).collect();
        ensure!(!owned.is_empty(), "{group} owns no figure");
        for Declared { figure, may_be_zero, .. } in owned {
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
async fn every_group_is_measured_by_a_test_here() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let declared: BTreeSet<String> = declared(home.path()).await?.into_iter().map(|one| one.group).collect();
    let all = [&OF_STORES[..], &OF_RUNS, &OF_PARTS, &OF_POSTGRES].concat();
    let tested: BTreeSet<String> = all.into_iter().map(str::to_owned).collect();
    ensure!(declared == tested, "{declared:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_stores_measure_every_figure_they_own() -> Result<()> {
    let _room = room().await;
    each_measures_what_it_owns(&OF_STORES, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_with_runs_measure_every_figure_they_own() -> Result<()> {
    let _room = room().await;
    each_measures_what_it_owns(&OF_RUNS, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_one_part_measure_every_figure_they_own() -> Result<()> {
    let _room = room().await;
    let has_ripgrep = is_installed("rg");
    // Without ripgrep that group owes its figures, which the test below is about.
    let groups: Vec<&str> = OF_PARTS.into_iter().filter(|group| has_ripgrep || *group != "search").collect();
    each_measures_what_it_owns(&groups, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_postgres_measure_every_figure_they_own() -> Result<()> {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    each_measures_what_it_owns(&OF_POSTGRES, Some(cluster.url())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_figure_that_is_missing_fails_the_bench_by_its_name() -> Result<()> {
    let _room = room().await;
    let (home, nothing) = (tempfile::tempdir()?, tempfile::tempdir()?);
    // Nothing to compare with is found here.
    let path = [("PATH", nothing.path().as_os_str())];
    let done = bench(home.path(), &path, &["--smoke", "--only", "search"]).await?;
    ensure!(done.code() == Some(1), "{:?}: {}", done.code(), done.stderr);
    let said: Value = serde_json::from_str(&done.stdout)?;
    for one in declared(home.path()).await?.iter().filter(|one| one.group == "search") {
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
    let refused = bench(home.path(), &[("DATABASE_URL", OsStr::new(""))], &["--only", "postgres"]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("--postgres"), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_removes_all_it_made_counts_that_and_is_strict_when_asked() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let groups = ["snapshots", "edit"];
    let mut args = vec!["--smoke", "--strict"];
    groups.iter().for_each(|group| args.extend(["--only", *group]));
    let done = bench(home.path(), &[], &args).await?;
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
