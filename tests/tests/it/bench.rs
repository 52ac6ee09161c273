//! `docket bench` as a program: what it says, what it ends with, what it leaves behind. No figure is looked at.

use std::ffi::OsStr;

use anyhow::{Result, ensure};
use docket_tests::system::{Tool, room, run};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_removes_all_it_made_counts_that_and_is_strict_when_asked() -> Result<()> {
    let _room = room().await;
    let (home, stores) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let env = [("DOCKET_HOME", OsStr::new(home.path()))];
    let folder = stores.path().to_string_lossy().into_owned();
    let mut args = vec!["bench", "--quick", "--json", "--store-dir", &folder];
    // Followers and the overview see to it themselves that all comes, once and in order.
    let groups = ["snapshots", "storage", "overview", "followers"];
    groups.iter().for_each(|group| args.extend(["--only", *group]));
    args.push("--strict");
    let done = run(Tool::Docket, home.path(), &env, &args).await?;
    ensure!(std::fs::read_dir(stores.path())?.next().is_none(), "something is left: {}", done.stderr);
    let said: Value = serde_json::from_str(&done.stdout)?;
    let missed = said["targets_missed"].as_array().is_some_and(|missed| !missed.is_empty());
    ensure!(done.code() == Some(if missed { 8 } else { 0 }), "{:?}: {said}", done.code());
    let took = |name: &str| said[format!("took_{name}s")].as_f64().unwrap_or(-1.0);
    ensure!(took("cleanup_") >= 0.0 && took("snapshots_") > 0.0 && took("followers_") > 0.0, "{said}");
    for figure in ["followers_append_ratio", "followers_kb_each", "overview_ms_p95"] {
        ensure!(said[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {said}");
    }
    // Rounded to tenths each.
    let parts = groups.iter().map(|group| took(&format!("{group}_"))).sum::<f64>() + took("cleanup_");
    ensure!(took("") + 0.5 >= parts, "the whole is less than its parts: {said}");
    Ok(())
}
