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
    archive::{ArchiveSettings, KeepFor, Retention},
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
        Database, Kind, World,
        world::{blob, note, spec},
    },
    pg_cluster::Cluster,
    system::{Coordinator, Finished, LeaseTime, Proc, Sample, Tool, fresh_database, room, run, say, until},
};
use serde_json::Value;

/// The package that holds a server which speaks S3, and its version.
const S3_SERVER: &str = "moto[s3,server]==5.2.1";

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "two" }] } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "seq 1 4000; head -c 3000 /dev/zero > c.bin" } }]
[[turns]]
text = "Done."
"#;

/// A home in which one task has ended.
struct House {
    home: tempfile::TempDir,
    _sample: Sample,
    task: String,
    run: String,
    more: Vec<(&'static str, String)>,
}

impl House {
    async fn new(to: &str, more: Vec<(&'static str, String)>) -> Result<Self> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("docket.toml"), format!("[archive]\nto = \"{to}\"\n"))?;
        let sample = Sample::new(&[("a.txt", "one\n"), ("d.txt", "stays\n")])?;
        let script = sample.script(SCRIPT)?;
        let mut house = Self { home, _sample: sample, task: String::new(), run: String::new(), more };
        let (repo, script) =
            (house._sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
        house
            .docket(&["run", "Old work", "--repo", repo, "--model", "scripted:s", "--script", script])
            .await?
            .ok()?;
        let task = json(&house.docket(&["ps", "--json"]).await?.ok()?)?;
        house.task = task["id"].as_str().context("a task")?.to_owned();
        house.run = task["run"].as_str().context("a run")?.to_owned();
        Ok(house)
    }

    fn env(&self) -> Vec<(&str, &OsStr)> {
        let more = self.more.iter().map(|(name, value)| (*name, OsStr::new(value.as_str())));
        [("DOCKET_HOME", self.home.path().as_os_str())].into_iter().chain(more).collect()
    }

    async fn docket(&self, args: &[&str]) -> Result<Finished> {
        run(Tool::Docket, self.home.path(), &self.env(), args).await
    }

    /// What commands say of the run.
    async fn seen(&self) -> Result<Vec<String>> {
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
            seen.push(self.docket(args).await?.ok().with_context(|| format!("{args:?}"))?);
        }
        Ok(seen)
    }

    async fn archive(&self) -> Result<Value> {
        json(&self.docket(&["archive", "--older-than", "0h", "--json"]).await?.ok()?)
    }

    async fn is_here(&self) -> Result<bool> {
        Ok(!self.docket(&["ps", "--json"]).await?.ok()?.trim().is_empty())
    }

    async fn whole(&self) -> Result<()> {
        self.docket(&["verify", "--archives"]).await?.ok()?;
        self.docket(&["db", "rebuild"]).await?.ok().map(drop)
    }
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text.lines().next().context("a line")?).with_context(|| text.to_owned())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

/// From the archive a run is read as from the log; and it comes back.
async fn there_and_back(house: &House) -> Result<()> {
    let before = house.seen().await?;
    let dry = json(&house.docket(&["archive", "--older-than", "0h", "--dry-run", "--json"]).await?.ok()?)?;
    ensure!(dry["archived"][0]["task"] == house.task.as_str() && house.is_here().await?, "{dry}");
    let young = json(&house.docket(&["archive", "--older-than", "1d", "--json"]).await?.ok()?)?;
    ensure!(young["archived"].as_array().is_some_and(Vec::is_empty), "{young}");
    let done = house.archive().await?;
    ensure!(done["archived"][0]["task"] == house.task.as_str() && !house.is_here().await?, "{done}");
    house.docket(&["gc"]).await?.ok()?;
    let after = house.seen().await?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    }
    ensure!(!house.is_here().await?, "looking at it brings nothing back");
    let left = std::fs::read_dir(house.home.path().join("scratch"))?.count();
    ensure!(left == 0, "{left} files are left behind");
    for args in [["retry", &house.task], ["resume", &house.run]] {
        let refused = house.docket(&args).await?;
        ensure!(refused.code() == Some(4) && refused.stderr.contains("archive restore"), "{refused:?}");
    }
    house.whole().await?;
    house.docket(&["archive", "restore", &house.run]).await?.ok()?;
    ensure!(house.is_here().await? && house.seen().await? == before, "as it was");
    let twice = house.docket(&["archive", "restore", &house.run]).await?;
    ensure!(twice.code() == Some(3), "{twice:?}");
    house.whole().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_to_a_folder_and_comes_back() -> Result<()> {
    let _room = room().await;
    let folder = tempfile::tempdir()?;
    let house = House::new(&format!("file://{}/a", folder.path().display()), Vec::new()).await?;
    there_and_back(&house).await?;
    house.archive().await?;
    let kept = files(&folder.path().join("a"));
    ensure!(kept.len() == 2, "one family, its file and its line: {kept:?}");

    // A file that was touched is found, and nothing is made of it.
    let file = kept.iter().find(|path| path.extension() == Some(OsStr::new("docket"))).context("a file")?;
    let whole = std::fs::read(file)?;
    let mut bad = whole.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    std::fs::write(file, &bad)?;
    house.docket(&["verify"]).await?.ok()?;
    for args in [&["verify", "--archives"][..], &["show", &house.run], &["archive", "restore", &house.run]] {
        let found = house.docket(args).await?;
        ensure!(found.code() == Some(6), "{args:?}: {found:?}");
    }
    std::fs::remove_file(file)?;
    let gone = house.docket(&["show", &house.run]).await?;
    ensure!(!gone.success(), "{gone:?}");
    std::fs::write(file, &whole)?;
    house.docket(&["archive", "restore", &house.task]).await?.ok()?;
    house.whole().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_on_the_way_loses_nothing() -> Result<()> {
    let _room = room().await;
    let folder = tempfile::tempdir()?;
    let house = House::new(&format!("file://{}", folder.path().display()), Vec::new()).await?;
    let before = house.seen().await?;
    for (at, is_here) in [("copied", true), ("removed", false)] {
        let env = [("DOCKET_ARCHIVE_DIES", OsStr::new(at))];
        let args = ["serve", "--json", "--listen", "127.0.0.1:0"];
        let (mut coordinator, _) = Proc::start("serve", house.home.path(), &env, &args).await?;
        let cut = house.docket(&["archive", "--older-than", "0h"]).await?;
        ensure!(!cut.success(), "{at}: {cut:?}");
        ensure!(!coordinator.wait().await?.success(), "{at}: it dies");
        ensure!(files(folder.path()).len() == 2, "{at}: {:?}", files(folder.path()));
        ensure!(house.is_here().await? == is_here && house.seen().await? == before, "{at}");
        house.whole().await?;
    }
    let again = house.archive().await?;
    ensure!(again["archived"].as_array().is_some_and(Vec::is_empty), "it is done: {again}");
    house.docket(&["archive", "restore", &house.run]).await?.ok()?;
    house.archive().await?;
    ensure!(files(folder.path()).len() == 2, "the same name again");
    house.whole().await
}

/// A server that speaks S3, with a bucket `old-runs`: or `None` where none can be had.
async fn s3(folder: &Path) -> Result<Option<(Proc, String)>> {
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
    let packages = folder.join("packages");
    let mut env: Vec<(&str, &OsStr)> = Vec::new();
    if !run(Tool::Python, folder, &[], &["-c", "import moto.server, flask"]).await?.success() {
        let target = packages.to_str().context("UTF-8")?;
        let args = ["-m", "pip", "install", "--quiet", "--target", target, S3_SERVER];
        let got = run(Tool::Python, folder, &[], &args).await?;
        if !got.success() {
            let why = got.stderr;
            ensure!(std::env::var_os("CI").is_none(), "{S3_SERVER} cannot be had: {why}");
            say(&format!("S3 was NOT tried: {S3_SERVER} cannot be had from the package index: {why}"));
            return Ok(None);
        }
        env.push(("PYTHONPATH", packages.as_os_str()));
    }
    let (server, port) = Proc::start_tool(Tool::Python, "s3", folder, &env, &["-c", SERVE]).await?;
    let url = format!("http://127.0.0.1:{}", port.trim());
    Ok(Some((server, url)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_to_a_bucket_and_comes_back() -> Result<()> {
    let _room = room().await;
    let folder = tempfile::tempdir()?;
    let Some((_server, url)) = s3(folder.path()).await? else { return Ok(()) };
    let keys = vec![
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "not a secret".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL", url.clone()),
    ];
    let house = House::new("s3://old-runs/deep/er", keys).await?;
    there_and_back(&house).await?;
    drop(rustls::crypto::ring::default_provider().install_default());
    let listed = reqwest::get(format!("{url}/old-runs?list-type=2")).await?.text().await?;
    ensure!(listed.contains("deep/er/") && listed.contains(".index.json"), "{listed}");
    // Without its keys nothing is removed.
    let home = house.home.path();
    let env = [("DOCKET_HOME", home.as_os_str()), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1".as_ref())];
    let refused = run(Tool::Docket, home, &env, &["archive", "--older-than", "0h"]).await?;
    ensure!(!refused.success() && house.is_here().await?, "nothing goes where nobody answers: {refused:?}");
    Ok(())
}

/// Over HTTP, with another coordinator's store: the reader has the file from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_archived_runs_are_read_through_the_coordinator() -> Result<()> {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let to = format!("file://{}", folder.path().display());
    let place = fresh_database(&cluster).await?;
    let coordinator =
        Coordinator::start_with_env(place, LeaseTime::Usual, &[("DOCKET_ARCHIVE_TO", &to)]).await?;
    let from = House::new(&to, Vec::new()).await?;
    let file = from.home.path().join("run.docket");
    let path = file.to_str().context("UTF-8")?;
    from.docket(&["export", &from.run, "-o", path]).await?.ok()?;
    coordinator.docket(&["import", path]).await?.ok()?;
    let before = coordinator.docket(&["replay", &from.run, "--json"]).await?.ok()?;
    let done = json(&coordinator.docket(&["archive", "--older-than", "0h", "--json"]).await?.ok()?)?;
    ensure!(done["archived"][0]["task"] == from.task.as_str(), "{done}");
    ensure!(coordinator.docket(&["replay", &from.run, "--json"]).await?.ok()? == before, "the same");
    coordinator.docket(&["verify", "--archives"]).await?.ok()?;
    let refused = coordinator.docket(&["import", path]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("archive restore"), "{refused:?}");
    coordinator.docket(&["archive", "restore", &from.task]).await?.ok()?;
    ensure!(coordinator.docket(&["replay", &from.run, "--json"]).await?.ok()? == before, "the same");
    coordinator.end_and_check().await
}

/// A coordinator archives by its settings: queues of their own, and not what a queue keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_is_by_queue_and_by_itself() -> Result<()> {
    let world = World::open(Database::new(&Kind::Sqlite, "retention").await).await;
    let manifest = Manifest::default().encode();
    world.store.put_blobs(vec![blob(&manifest)], world.now()).await?;
    let mut tasks = Vec::new();
    for queue in ["default", "ci", "main"] {
        let mut asked: TaskSpec = spec(queue);
        asked.queue = queue.parse()?;
        asked.base.manifest = blob(&manifest).blob;
        let task = world.submit(asked).await;
        let worker = world.worker();
        let lease = worker.lease_one().await;
        world.append(lease.run, Seq(0), lease.record.epoch, vec![note(1)]).await?;
        worker.end(&lease, RunOutcome::Succeeded).await;
        tasks.push((task, lease.run));
    }
    let folder = tempfile::tempdir()?;
    let queues = BTreeMap::from([("ci".parse()?, KeepFor::Ms(1)), ("main".parse()?, KeepFor::Ever)]);
    let archive = ArchiveSettings {
        to: Some(format!("file://{}/a", folder.path().display())),
        retention: Retention { others: KeepFor::Ms(1), queues },
        scratch: folder.path().to_owned(),
        every: Some(Duration::from_millis(20)),
        dies: None,
    };
    let is_here = async |run: RunId| world.store.run(run).await.ok().flatten().is_some();
    let config = |archive| ServerConfig { archive, ..ServerConfig::loopback(0, Vec::new()) };
    // Two coordinators on one store: one has the term.
    let one =
        server::start(Arc::clone(&world.store), config(archive.clone()), Arc::new(Clock::new())).await?;
    let two =
        server::start(Arc::clone(&world.store), config(archive.clone()), Arc::new(Clock::new())).await?;
    until("two tasks in the archive", async || {
        (!is_here(tasks[0].1).await && !is_here(tasks[1].1).await).then_some(())
    })
    .await?;
    one.shutdown().await;
    two.shutdown().await;
    ensure!(is_here(tasks[2].1).await, "`main` keeps for ever");
    world.check().await;
    let stub = world.store.stub(tasks[0].0.0).await?.context("a stub")?;
    ensure!(stub.place.ends_with("/a"), "{stub:?}");
    Ok(())
}
