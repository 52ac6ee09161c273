//! `docket archive` as a user meets it: archived runs are read as if they were here, come back as they were,
//! and no death of the coordinator loses one; to a folder, and to S3-compatible storage.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::{
    archive::{ArchiveSettings, KeepFor, RetentionPolicy},
    clock::Clock,
    server::{self, ServerConfig},
};
use docket_schema::{
    ids::{RunId, Seq},
    run::RunOutcome,
    snapshot::Manifest,
    task::TaskSpec,
};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        fixture::{new_blob, note_event, task_spec},
    },
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, RunningProcess, SampleRepository, TestProgram,
        acquire_scenario_slot, fresh_database, has_program, print_notice, run_program, wait_until,
    },
};
use serde_json::Value;

/// The package that holds a server which speaks S3, and its version.
const S3_SERVER: &str = "moto[s3,server]==5.2.1";

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "two" }] } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "seq 1 4000; head -c 3000 /dev/zero > c.bin" } }]
[[turns]]
text = "Done."
"#;

/// A home in which one task has ended.
struct ArchiveHome {
    home: tempfile::TempDir,
    _sample: SampleRepository,
    task: String,
    run: String,
    more: Vec<(&'static str, String)>,
}

impl ArchiveHome {
    async fn new(to: &str, more: Vec<(&'static str, String)>) -> Result<Self> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("docket.toml"), format!("[archive]\nto = \"{to}\"\n"))?;
        let sample = SampleRepository::new(&[("a.txt", "one\n"), ("d.txt", "stays\n")])?;
        let script = sample.write_script(SCRIPT)?;
        let mut house = Self { home, _sample: sample, task: String::new(), run: String::new(), more };
        let (repo, script) =
            (house._sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
        house
            .run_docket(&["run", "Old work", "--repo", repo, "--model", "scripted:s", "--script", script])
            .await?
            .into_stdout()?;
        let task = parse_json(&house.run_docket(&["ps", "--json"]).await?.into_stdout()?)?;
        house.task = task["id"].as_str().context("a task")?.to_owned();
        house.run = task["run"].as_str().context("a run")?.to_owned();
        Ok(house)
    }

    fn env(&self) -> Vec<(&str, &OsStr)> {
        let more = self.more.iter().map(|(name, value)| (*name, OsStr::new(value.as_str())));
        [("DOCKET_HOME", self.home.path().as_os_str())].into_iter().chain(more).collect()
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        run_program(TestProgram::Docket, self.home.path(), &self.env(), args).await
    }

    /// What commands say of the run.
    async fn collect_views(&self) -> Result<Vec<String>> {
        let (run, mut seen) = (self.run.as_str(), Vec::new());
        for args in [
            &["replay", run, "--json"][..],
            &["diff", run],
            &["logs", run],
            &["cat", run, "a.txt"],
            &["blame", run, "a.txt"],
            &["show", run, "--json"],
            &["export", run, "--format", "jsonl"],
            &["verify", run, "--json"],
        ] {
            seen.push(self.run_docket(args).await?.into_stdout().with_context(|| format!("{args:?}"))?);
        }
        Ok(seen)
    }

    async fn archive_all(&self) -> Result<Value> {
        parse_json(&self.run_docket(&["archive", "--older-than", "0h", "--json"]).await?.into_stdout()?)
    }

    async fn is_here(&self) -> Result<bool> {
        Ok(!self.run_docket(&["ps", "--json"]).await?.into_stdout()?.trim().is_empty())
    }

    async fn verify_log(&self) -> Result<()> {
        self.run_docket(&["verify", "--archives"]).await?.into_stdout()?;
        self.run_docket(&["db", "rebuild"]).await?.into_stdout().map(drop)
    }
}

fn parse_json(text: &str) -> Result<Value> {
    serde_json::from_str(text.lines().next().context("a line")?).with_context(|| text.to_owned())
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() { found.extend(list_files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

/// From the archive a run is read as from the log; and it comes back.
async fn check_archive_and_restore(house: &ArchiveHome) -> Result<()> {
    let before = house.collect_views().await?;
    ensure!(before[1].contains("+two") && before[3] == "two\n", "what is compared was changed: {before:?}");
    let dry = parse_json(
        &house.run_docket(&["archive", "--older-than", "0h", "--dry-run", "--json"]).await?.into_stdout()?,
    )?;
    ensure!(dry["archived"][0]["task"] == house.task.as_str() && house.is_here().await?, "{dry}");
    let young =
        parse_json(&house.run_docket(&["archive", "--older-than", "1d", "--json"]).await?.into_stdout()?)?;
    ensure!(young["archived"].as_array().is_some_and(Vec::is_empty), "{young}");
    let done = house.archive_all().await?;
    ensure!(done["archived"][0]["task"] == house.task.as_str() && !house.is_here().await?, "{done}");
    house.run_docket(&["gc"]).await?.into_stdout()?;
    let after = house.collect_views().await?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    }
    ensure!(!house.is_here().await?, "looking at it brings nothing back");
    let left = std::fs::read_dir(house.home.path().join("scratch"))?.count();
    ensure!(left == 0, "{left} files are left behind");
    for args in [["retry", &house.task], ["resume", &house.run]] {
        let refused = house.run_docket(&args).await?;
        ensure!(refused.code() == Some(4) && refused.stderr.contains("archive restore"), "{refused:?}");
    }
    house.verify_log().await?;
    house.run_docket(&["archive", "restore", &house.run]).await?.into_stdout()?;
    ensure!(house.is_here().await? && house.collect_views().await? == before, "as it was");
    let twice = house.run_docket(&["archive", "restore", &house.run]).await?;
    ensure!(twice.code() == Some(3), "{twice:?}");
    house.verify_log().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_archived_to_a_folder_and_restored() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let mut house = ArchiveHome::new(&format!("file://{}/a", folder.path().display()), Vec::new()).await?;
    check_archive_and_restore(&house).await?;
    house.archive_all().await?;
    let kept = list_files(&folder.path().join("a"));
    ensure!(kept.len() == 2, "one family, its file and its line: {kept:?}");

    // A file that was touched is found, and nothing is made of it.
    let file = kept.iter().find(|path| path.extension() == Some(OsStr::new("docket"))).context("a file")?;
    let whole = std::fs::read(file)?;
    let mut bad = whole.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    std::fs::write(file, &bad)?;
    house.run_docket(&["verify"]).await?.into_stdout()?;
    for args in [&["verify", "--archives"][..], &["show", &house.run], &["archive", "restore", &house.run]] {
        let found = house.run_docket(args).await?;
        ensure!(found.code() == Some(6), "{args:?}: {found:?}");
    }
    // One that is cut, empty, longer or gone is named, and the files after it are read all the same.
    let name = file.file_name().and_then(OsStr::to_str).context("a name")?;
    let longer: Vec<u8> = whole.iter().copied().chain([0]).collect();
    for bytes in [Some(&whole[..whole.len() - 100]), Some(&[][..]), Some(&longer[..]), None] {
        match bytes {
            Some(bytes) => std::fs::write(file, bytes)?,
            None => std::fs::remove_file(file)?,
        }
        for args in [&["verify", "--archives"][..], &["show", &house.run]] {
            let found = house.run_docket(args).await?;
            let said = format!("{}{}", found.stdout, found.stderr);
            ensure!(found.code() == Some(6) && said.contains(name), "{args:?}: {found:?}");
        }
    }
    std::fs::write(file, &whole)?;
    // Moved to elsewhere: nothing is made where it was, and the setting says where it is now.
    std::fs::rename(folder.path().join("a"), folder.path().join("b"))?;
    let lost = house.run_docket(&["show", &house.run]).await?;
    ensure!(lost.code() == Some(6) && lost.stderr.contains("archive.to"), "{lost:?}");
    let lost = house.run_docket(&["verify", "--archives"]).await?;
    ensure!(lost.code() == Some(6) && lost.stdout.contains(name), "{lost:?}");
    ensure!(!folder.path().join("a").exists(), "whoever reads makes no folder");
    house.more.push(("DOCKET_ARCHIVE_TO", format!("file://{}/b", folder.path().display())));
    house.run_docket(&["show", &house.run]).await?.into_stdout()?;
    house.run_docket(&["verify", "--archives"]).await?.into_stdout()?;
    ensure!(!folder.path().join("a").exists(), "whoever reads makes no folder");
    house.run_docket(&["archive", "restore", &house.task]).await?.into_stdout()?;
    house.verify_log().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_archive_location_blocks_nothing_else() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let house = ArchiveHome::new(&format!("file://{}", folder.path().display()), Vec::new()).await?;
    house.archive_all().await?;
    let file =
        list_files(folder.path()).into_iter().find(|path| path.extension() == Some(OsStr::new("docket")));
    let file = file.context("a file")?;
    // What stands in the way of its folder: whether the file holds is not known.
    let inside = file.parent().context("a folder")?;
    let aside = folder.path().join("aside");
    std::fs::rename(inside, &aside)?;
    std::fs::write(inside, "a file")?;
    let unread = house.run_docket(&["verify", "--archives", "--json"]).await?;
    let said = parse_json(&unread.stdout)?;
    let told = said["archives_unread"][0].as_str().context("what was not read")?;
    ensure!(unread.code() == Some(5) && told.contains("not a directory"), "{unread:?}");
    ensure!(said["streams"].as_u64() > Some(0), "the log is told of: {said}");
    std::fs::remove_file(inside)?;
    std::fs::rename(&aside, inside)?;
    house.verify_log().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_death_while_archiving_loses_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let house = ArchiveHome::new(&format!("file://{}", folder.path().display()), Vec::new()).await?;
    let before = house.collect_views().await?;
    for (at, is_here) in [("copied", true), ("removed", false)] {
        let env = [("DOCKET_ARCHIVE_DIES", OsStr::new(at))];
        let args = ["serve", "--json", "--listen", "127.0.0.1:0"];
        let (mut coordinator, _) =
            RunningProcess::start_docket("serve", house.home.path(), &env, &args).await?;
        let cut = house.run_docket(&["archive", "--older-than", "0h"]).await?;
        ensure!(!cut.success(), "{at}: {cut:?}");
        ensure!(!coordinator.wait().await?.success(), "{at}: it dies");
        ensure!(list_files(folder.path()).len() == 2, "{at}: {:?}", list_files(folder.path()));
        ensure!(house.is_here().await? == is_here && house.collect_views().await? == before, "{at}");
        house.verify_log().await?;
    }
    let again = house.archive_all().await?;
    ensure!(again["archived"].as_array().is_some_and(Vec::is_empty), "it is done: {again}");
    house.run_docket(&["archive", "restore", &house.run]).await?.into_stdout()?;
    house.archive_all().await?;
    ensure!(list_files(folder.path()).len() == 2, "the same name again");
    house.verify_log().await
}

/// A server that speaks S3, with a bucket `old-runs`: or `None` where none can be had.
async fn start_s3_server(folder: &Path) -> Result<Option<(RunningProcess, String)>> {
    const SERVE: &str = r"
import contextlib, io, threading
import boto3
from moto.server import ThreadedMotoServer
with contextlib.redirect_stdout(io.StringIO()):
    server = ThreadedMotoServer(ip_address='127.0.0.1', port=0)
    server.start()
port = server.get_host_and_port()[1]
key = {'aws_access_key_id': 'key', 'aws_secret_access_key': 'x', 'region_name': 'us-east-1'}
boto3.client('s3', endpoint_url=f'http://127.0.0.1:{port}', **key).create_bucket(Bucket='old-runs')
print(port, flush=True)
threading.Event().wait()
";
    if !has_program("python3") {
        return Ok(None);
    }
    let packages = folder.join("packages");
    let mut env: Vec<(&str, &OsStr)> = Vec::new();
    if !run_program(TestProgram::Python, folder, &[], &["-c", "import moto.server, flask"]).await?.success() {
        let target = packages.to_str().context("UTF-8")?;
        let args = ["-m", "pip", "install", "--quiet", "--target", target, S3_SERVER];
        let got = run_program(TestProgram::Python, folder, &[], &args).await?;
        if !got.success() {
            let why = got.stderr;
            ensure!(std::env::var_os("CI").is_none(), "{S3_SERVER} cannot be had: {why}");
            print_notice(&format!(
                "S3 was NOT tried: {S3_SERVER} cannot be had from the package index: {why}"
            ));
            return Ok(None);
        }
        env.push(("PYTHONPATH", packages.as_os_str()));
    }
    let (server, port) =
        RunningProcess::start_program(TestProgram::Python, "s3", folder, &env, &["-c", SERVE]).await?;
    let url = format!("http://127.0.0.1:{}", port.trim());
    Ok(Some((server, url)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_archived_to_a_bucket_and_restored() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let Some((_server, url)) = start_s3_server(folder.path()).await? else { return Ok(()) };
    let keys = vec![
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "not a secret".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL", url.clone()),
        ("DOCKET_BLOBS_TO", "s3://old-runs/blobs".to_owned()),
        ("DOCKET_BLOBS_OVER", "1".to_owned()),
    ];
    let house = ArchiveHome::new("s3://old-runs/deep/er", keys).await?;
    check_archive_and_restore(&house).await?;
    drop(rustls::crypto::ring::default_provider().install_default());
    let listed = reqwest::get(format!("{url}/old-runs?list-type=2")).await?.text().await?;
    ensure!(listed.contains("deep/er/") && listed.contains(".index.json"), "{listed}");
    ensure!(listed.contains("<Key>blobs/"), "its blobs are there, too: {listed}");
    // Without its keys nothing is removed.
    let home = house.home.path();
    let env = [("DOCKET_HOME", home.as_os_str()), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1".as_ref())];
    let refused = run_program(TestProgram::Docket, home, &env, &["archive", "--older-than", "0h"]).await?;
    ensure!(!refused.success() && house.is_here().await?, "nothing goes where nobody answers: {refused:?}");
    Ok(())
}

/// With every blob outside of the database: a run is shown, proven, archived, brought back, exported and copied to
/// another home; what is lost is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_external_blobs_is_archived_and_exported() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| format!("file://{}/{name}", folder.path().display());
    let outside = vec![("DOCKET_BLOBS_TO", at("blobs")), ("DOCKET_BLOBS_OVER", "1".to_owned())];
    let house = ArchiveHome::new(&at("archive"), outside).await?;
    let blobs = folder.path().join("blobs");
    let kept = list_files(&blobs);
    ensure!(kept.len() > 3, "{kept:?}");
    check_archive_and_restore(&house).await?;

    // To a home that keeps its blobs in the database, and to a copy of this one.
    let exported = folder.path().join("run.docket");
    let path = exported.to_str().context("UTF-8")?;
    house.run_docket(&["export", &house.run, "-o", path]).await?.into_stdout()?;
    let other = [("DOCKET_HOME", folder.path().join("other").into_os_string())];
    let other: Vec<(&str, &OsStr)> = other.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    run_program(TestProgram::Docket, folder.path(), &other, &["import", path]).await?.into_stdout()?;
    run_program(TestProgram::Docket, folder.path(), &other, &["verify", &house.run]).await?.into_stdout()?;
    let copy = folder.path().join("copy.db");
    house.run_docket(&["db", "backup", copy.to_str().context("UTF-8")?]).await?.into_stdout()?;
    let store = format!("sqlite:{}", copy.display());
    house.run_docket(&["verify", "--store", &store]).await?.into_stdout()?;

    // What is lost, or altered, is named.
    let lost = kept.iter().find(|path| path.is_file()).context("a file")?;
    let name = lost.file_name().and_then(OsStr::to_str).context("a name")?;
    let whole = std::fs::read(lost)?;
    std::fs::remove_file(lost)?;
    let found = house.run_docket(&["verify"]).await?;
    ensure!(found.code() == Some(6) && found.stdout.contains(name), "{found:?}");
    let mut bad = whole.clone();
    bad[whole.len() / 2] ^= 1;
    std::fs::write(lost, bad)?;
    let found = house.run_docket(&["verify"]).await?;
    ensure!(found.code() == Some(6) && found.stdout.contains(&name[..64]), "{found:?}");
    std::fs::write(lost, &whole)?;
    house.verify_log().await
}

/// An import of the same file knows what is archived, the batch counts it, and it is found by its title.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_tasks_are_not_imported_again() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    let to = format!("file://{}/archive", folder.path().display());
    let env = [("DOCKET_HOME", home.as_os_str()), ("DOCKET_ARCHIVE_TO", to.as_ref())];
    let docket = async |args: &[&str]| -> Result<FinishedProcess> {
        run_program(TestProgram::Docket, folder.path(), &env, args).await
    };
    let sample = SampleRepository::new(&[
        ("a.txt", "one\n"),
        ("todo.md", "- [ ] Mend the roof\n- [ ] Paint the shed\n"),
    ])?;
    let todo = sample.path().join("todo.md");
    let repo = sample.path().to_str().context("UTF-8")?;
    let todo = todo.to_str().context("UTF-8")?;
    let import = async || {
        parse_json(
            &docket(&["import", todo, "--repo", repo, "--model", "openai:none", "--batch", "todo", "--json"])
                .await?
                .into_stdout()?,
        )
    };
    ensure!(import().await?["submitted"] == 2);
    docket(&["cancel", "--batch", "todo", "--yes"]).await?.into_stdout()?;
    docket(&["archive", "--older-than", "0h"]).await?.into_stdout()?;
    ensure!(docket(&["ps", "--json"]).await?.into_stdout()?.is_empty(), "or nothing is shown");
    let again = import().await?;
    ensure!(again["submitted"] == 0 && again["duplicates"] == 2, "{again}");
    let batch = parse_json(&docket(&["batch", "todo", "--json"]).await?.into_stdout()?)?;
    ensure!(batch["tasks"] == 2 && batch["archived"] == 2, "{batch}");
    let list = docket(&["archive", "list", "--title", "*ROOF*"]).await?.into_stdout()?;
    ensure!(list.contains("Mend the roof") && list.contains("cancelled") && list.contains("todo"), "{list}");
    ensure!(!list.contains("shed"), "{list}");
    // When without where would do nothing.
    let env = [("DOCKET_HOME", home.as_os_str()), ("DOCKET_ARCHIVE_AFTER", OsStr::new("90d"))];
    let refused = run_program(TestProgram::Docket, folder.path(), &env, &["ps"]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("archive.to"), "{refused:?}");
    let refused = docket(&["ps", "--state", "archived"]).await?;
    ensure!(refused.stderr.contains("docket archive list"), "{refused:?}");
    let line = parse_json(
        &docket(&["archive", "list", "--batch", "todo", "--queue", "default", "--json"])
            .await?
            .into_stdout()?,
    )?;
    let id = line["id"].as_str().context("an id")?;
    // Who waits for one that failed is told of it, though it is archived.
    let waits = ["submit", "After", "--repo", repo, "--model", "openai:none", "--after", id, "--json"];
    let waits = parse_json(&docket(&waits).await?.into_stdout()?)?;
    let waits = waits["id"].as_str().context("an id")?;
    let why = docket(&["why", waits]).await?.into_stdout()?;
    ensure!(why.contains(id) && why.contains("was cancelled"), "{why}");
    docket(&["archive", "restore", id]).await?.into_stdout()?;
    docket(&["db", "rebuild"]).await?.into_stdout()?;
    let batch = parse_json(&docket(&["batch", "todo", "--json"]).await?.into_stdout()?)?;
    ensure!(batch["tasks"] == 2 && batch["archived"] == 1, "{batch}");
    let listed = docket(&["ps", "--batch", "todo"]).await?;
    ensure!(listed.stderr.contains("1 of the batch's 2 tasks are archived"), "{listed:?}");

    // A whole batch comes back, and so do several that are named; one that is not there brings none back.
    docket(&["archive", "restore", "--batch", "todo"]).await?.into_stdout()?;
    let all = async || -> Result<u64> {
        let batch = parse_json(&docket(&["batch", "todo", "--json"]).await?.into_stdout()?)?;
        batch["archived"].as_u64().context("a count")
    };
    ensure!(all().await? == 0);
    let none = docket(&["archive", "restore", "--batch", "todo"]).await?;
    ensure!(none.code() == Some(3) && none.stderr.contains("batch `todo` has no archived tasks"), "{none:?}");
    docket(&["cancel", waits]).await?.into_stdout()?;
    let young = docket(&["archive", "--older-than", "1h"]).await?.into_stdout()?;
    ensure!(all().await? == 0, "{young}");
    docket(&["archive", "--older-than", "0h"]).await?.into_stdout()?;
    let gone = all().await?;
    ensure!(gone == 2, "{gone}");
    let list = docket(&["archive", "list", "--batch", "todo", "--json"]).await?.into_stdout()?;
    let ids = list.lines().map(|line| Ok(parse_json(line)?["id"].as_str().context("an id")?.to_owned()));
    let ids: Vec<String> = ids.collect::<Result<_>>()?;
    let wrong = docket(&["archive", "restore", &ids[0], "ffffffff"]).await?;
    ensure!(wrong.code() == Some(3) && all().await? == 2, "{wrong:?}");
    let back = docket(&["archive", "restore", &ids[0], &ids[1]]).await?.into_stdout()?;
    ensure!(back.contains("2 tasks with 0 runs") && all().await? == 0, "{back}");
    Ok(())
}

/// Over HTTP, with another coordinator's store: the reader has the file from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_runs_are_read_through_the_coordinator_on_postgres() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let to = format!("file://{}", folder.path().display());
    let place = fresh_database(&cluster).await?;
    let coordinator =
        CoordinatorProcess::start_with_env(place, LeaseDuration::Usual, &[("DOCKET_ARCHIVE_TO", &to)])
            .await?;
    let from = ArchiveHome::new(&to, Vec::new()).await?;
    let file = from.home.path().join("run.docket");
    let path = file.to_str().context("UTF-8")?;
    from.run_docket(&["export", &from.run, "-o", path]).await?.into_stdout()?;
    coordinator.run_docket(&["import", path]).await?.into_stdout()?;
    let before = coordinator.run_docket(&["replay", &from.run, "--json"]).await?.into_stdout()?;
    let done = parse_json(
        &coordinator.run_docket(&["archive", "--older-than", "0h", "--json"]).await?.into_stdout()?,
    )?;
    ensure!(done["archived"][0]["task"] == from.task.as_str(), "{done}");
    ensure!(
        coordinator.run_docket(&["replay", &from.run, "--json"]).await?.into_stdout()? == before,
        "the same"
    );
    coordinator.run_docket(&["verify", "--archives"]).await?.into_stdout()?;
    let refused = coordinator.run_docket(&["import", path]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("archive restore"), "{refused:?}");
    coordinator.run_docket(&["archive", "restore", &from.task]).await?.into_stdout()?;
    ensure!(
        coordinator.run_docket(&["replay", &from.run, "--json"]).await?.into_stdout()? == before,
        "the same"
    );
    coordinator.end_and_check().await
}

/// A coordinator archives by its settings: queues of their own, and not what a queue keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_archives_by_queue_retention() -> Result<()> {
    let world = StoreFixture::open(TestDatabase::new(&DatabaseKind::Sqlite, "retention").await).await;
    let manifest = Manifest::default().encode();
    world.store.put_blobs(vec![new_blob(&manifest)], world.now()).await?;
    let mut tasks = Vec::new();
    for queue in ["default", "ci", "main"] {
        let mut asked: TaskSpec = task_spec(queue);
        asked.queue = queue.parse()?;
        asked.base.manifest = new_blob(&manifest).blob;
        let task = world.submit(asked).await;
        let worker = world.new_worker();
        let lease = worker.lease_one().await;
        world.append(lease.run, Seq(0), lease.record.epoch, vec![note_event(1)]).await?;
        worker.end_run(&lease, RunOutcome::Succeeded).await;
        tasks.push((task, lease.run));
    }
    let folder = tempfile::tempdir()?;
    let queues = BTreeMap::from([("ci".parse()?, KeepFor::Ms(1)), ("main".parse()?, KeepFor::Forever)]);
    let archive = ArchiveSettings {
        url: Some(format!("file://{}/a", folder.path().display())),
        retention: RetentionPolicy { others: KeepFor::Ms(1), queues },
        scratch_folder: folder.path().to_owned(),
        interval: Some(Duration::from_millis(20)),
        ..ArchiveSettings::default()
    };
    let is_here = async |run: RunId| world.store.get_run(run).await.ok().flatten().is_some();
    let config = |archive| ServerConfig { archive, ..ServerConfig::loopback(0, Vec::new()) };
    // Two coordinators on one store: one has the term.
    let one = server::start_server(Arc::clone(&world.store), config(archive.clone()), Arc::new(Clock::new()))
        .await?;
    let two = server::start_server(Arc::clone(&world.store), config(archive.clone()), Arc::new(Clock::new()))
        .await?;
    wait_until("two tasks in the archive", async || {
        (!is_here(tasks[0].1).await && !is_here(tasks[1].1).await).then_some(())
    })
    .await?;
    one.shutdown().await;
    two.shutdown().await;
    ensure!(is_here(tasks[2].1).await, "`main` keeps for ever");
    world.check_consistency().await;
    let stub = world.store.find_stub(tasks[0].0.0).await?.context("a stub")?;
    ensure!(stub.location.ends_with("/a"), "{stub:?}");
    Ok(())
}
