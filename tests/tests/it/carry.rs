//! A run carried from one installation to another, and what other programs make of it; and that garbage
//! collection keeps what a log needs.

use std::{
    ffi::OsStr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use docket_schema::{content::BlobRef, export::Export, task::TaskState};
use docket_tests::{
    pg_cluster::Cluster,
    system::{
        Coordinator, Finished, LeaseTime, Place, Sample, Tool, Worker, WorkerOptions, fresh_database, room,
        run, run_fed, say,
    },
};
use serde_json::Value;
use sqlx::Connection as _;

/// The package that holds the models of ATIF v1.7, and its version.
const ATIF: &str = "atif==1.7.0";

/// Places at which a file is altered, and cut.
const ALTERATIONS: u64 = 24;

/// Two turns of work that read, edit, run and leave a binary file and a long output behind.
const SCRIPT: &str = r#"
[[turns]]
text = "First a look."
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
text = "Now the work."
calls = [
  { name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "two" }] } },
  { name = "create_file", args = { path = "b/new.txt", content = "new\n" } },
]
[[turns]]
calls = [{ name = "run_command", args = { command = "seq 1 4000; head -c 3000 /dev/zero | tr '\\0' '\\377' > c.bin; rm d.txt; ln -s a.txt link" } }]
[[turns]]
text = "Done."
"#;

async fn docket<A: AsRef<OsStr>>(home: &Path, args: &[A]) -> Result<Finished> {
    run(Tool::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text.lines().next().context("a line")?).with_context(|| text.to_owned())
}

/// A home in which one run has ended; the run, and where its repository is.
async fn worked(home: &Path) -> Result<(String, Sample)> {
    let sample = Sample::new(&[("a.txt", "one\n"), ("d.txt", "goes\n"), ("e.txt", "stays\n")])?;
    let script = sample.script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Carry me", "--repo", repo, "--model", "scripted:s", "--script", script];
    docket(home, &args).await?.ok()?;
    let task = json(&docket(home, &["ps", "--json"]).await?.ok()?)?;
    Ok((task["run"].as_str().context("a run")?.to_owned(), sample))
}

async fn export(home: &Path, id: &str, name: &str, args: &[&str]) -> Result<PathBuf> {
    let path = home.join(name);
    let mut all = vec!["export", id, "-o", path.to_str().context("UTF-8")?];
    all.extend(args);
    docket(home, &all).await?.ok()?;
    Ok(path)
}

/// What `docket` says of a run that must not depend on where it stands.
async fn seen(docket: impl AsyncFn(&[&str]) -> Result<Finished>, id: &str) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for args in [&["replay", id, "--json"][..], &["diff", id], &["logs", id]] {
        seen.push(docket(args).await?.ok()?);
    }
    Ok(seen)
}

/// A pipe can be read once; it is checked whole before anything is written all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_comes_through_a_pipe() -> Result<()> {
    let _room = room().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = worked(from.path()).await?;
    let packed = std::fs::read(export(from.path(), &id, "run.docket", &[]).await?)?;
    let plain = std::fs::read(export(from.path(), &id, "run.jsonl", &["--plain"]).await?)?;
    let there = seen(async |args| docket(from.path(), args).await, &id).await?;
    for (name, bytes) in [("-", &packed), ("/dev/stdin", &packed), ("-", &plain)] {
        let home = tempfile::tempdir()?;
        let import = async |bytes: &[u8]| {
            let env = [("DOCKET_HOME", home.path().as_os_str())];
            run_fed(Tool::Docket, home.path(), &env, &["import", name, "--json"], bytes).await
        };
        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        for bad in [&damaged[..], &bytes[..bytes.len() - 9]] {
            let refused = import(bad).await?;
            ensure!(
                refused.code() == Some(6) && refused.stderr.contains("nothing was imported"),
                "{refused:?}"
            );
            ensure!(docket(home.path(), &["ps", "--json"]).await?.ok()?.is_empty(), "{name}");
        }
        let said = json(&import(bytes).await?.ok()?)?;
        ensure!(said["run"] == id.as_str(), "{said}");
        ensure!(seen(async |args| docket(home.path(), args).await, &id).await? == there, "{name}");
        docket(home.path(), &["verify"]).await?.ok()?;
        let left = std::fs::read_dir(home.path().join("scratch"))?.count();
        ensure!(left == 0, "{left} files are left behind");
    }
    Ok(())
}

/// The task's stream names a newer run that stayed behind: the task's id means the run that came along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_means_its_last_run_that_is_here() -> Result<()> {
    let _room = room().await;
    let from = tempfile::tempdir()?;
    let (old, _sample) = worked(from.path()).await?;
    let view = json(&docket(from.path(), &["show", &old, "--json"]).await?.ok()?)?;
    let task = view["task"].as_str().context("a task")?.to_owned();
    docket(from.path(), &["resume", &old, "--turn", "1"]).await?.ok()?;
    let newer = json(&docket(from.path(), &["ps", "--json"]).await?.ok()?)?;
    ensure!(newer["run"] != old.as_str(), "the task has a newer run: {newer}");
    let file = export(from.path(), &old, "old.docket", &[]).await?;

    let home = tempfile::tempdir()?;
    docket(home.path(), &["import".as_ref(), file.as_os_str()]).await?.ok()?;
    for args in [&["replay", "--json"][..], &["diff"], &["export", "--format", "jsonl"], &["follow"]] {
        let said = async |id: &str| {
            let all: Vec<&str> =
                args[..1].iter().copied().chain([id]).chain(args[1..].iter().copied()).collect();
            docket(home.path(), &all).await?.ok()
        };
        ensure!(said(&task).await? == said(&old).await?, "{args:?}");
    }
    let shown = json(&docket(home.path(), &["show", &task, "--json"]).await?.ok()?)?;
    ensure!(shown["run"] == old.as_str(), "{shown}");
    let checked = async || -> Result<()> {
        docket(home.path(), &["verify"]).await?.ok()?;
        let rebuilt = json(&docket(home.path(), &["db", "rebuild", "--json"]).await?.ok()?)?;
        ensure!(rebuilt["differences"].as_array().is_none_or(Vec::is_empty), "{rebuilt}");
        Ok(())
    };
    checked().await?;
    let forked = json(&docket(home.path(), &["fork", &task, "--turn", "1", "--json"]).await?.ok()?)?;
    ensure!(forked["parent"] == old.as_str(), "{forked}");
    let resumed = json(&docket(home.path(), &["resume", &task, "--json"]).await?.ok()?)?;
    let run = resumed["run"].as_str().context("a run")?;
    let run = json(&docket(home.path(), &["show", run, "--json"]).await?.ok()?)?;
    ensure!(run["parent"] == old.as_str(), "{run}");
    checked().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_the_same_wherever_it_is_carried() -> Result<()> {
    let _room = room().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = worked(from.path()).await?;
    let packed = export(from.path(), &id, "run.docket", &[]).await?;
    let plain = export(from.path(), &id, "run.jsonl", &["--plain"]).await?;
    let whole = Export::read(&std::fs::read(&plain)?)?;
    let piped = docket(from.path(), &["export", &id, "-o", "-"]).await?;
    ensure!(piped.bytes == std::fs::read(&packed)?, "`-` is standard output");
    let told = docket(from.path(), &["export", &id, "--json"]).await?;
    ensure!(told.code() == Some(2) && told.stdout.is_empty() && told.stderr.contains("-o FILE"), "{told:?}");
    ensure!(std::fs::metadata(&packed)?.len() < std::fs::metadata(&plain)?.len(), "compressed is smaller");
    let there = seen(async |args| docket(from.path(), args).await, &id).await?;

    let mut places = vec![Place::Home];
    let cluster = Cluster::start();
    if let Some(cluster) = &cluster {
        places.push(fresh_database(cluster).await?);
    }
    for (place, file) in places.into_iter().zip([&packed, &plain]) {
        let coordinator = Coordinator::start(place, LeaseTime::Usual).await?;
        let file = file.to_str().context("UTF-8")?;
        let first = json(&coordinator.docket(&["import", file, "--json"]).await?.ok()?)?;
        ensure!(first["run"] == id && first["new_events"] == whole.events.len(), "{first}");
        let again = json(&coordinator.docket(&["import", file, "--json"]).await?.ok()?)?;
        ensure!(again["new_events"] == 0, "{again}");

        let here = seen(async |args| coordinator.docket(args).await, &id).await?;
        ensure!(here == there, "here: {here:#?}\nthere: {there:#?}");
        let verified = json(&coordinator.docket(&["verify", "--json"]).await?.ok()?)?;
        ensure!(verified["ok"] == true && verified["decisions"].as_u64() > Some(3), "{verified}");

        // It is nobody's work here, until a person says so.
        let run = whole.header.run;
        let view = coordinator.client().run(run).await?;
        ensure!(view.status == "succeeded" && view.head.seq == whole.events.last().context("events")?.seq);
        let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
        let resumed = coordinator.client().resume(run, Some(1)).await?;
        let task = coordinator.ended(whole.header.task).await?;
        ensure!(task.task.state == TaskState::Completed, "{task:#?}\n{}", worker.tail());
        ensure!(task.task.last_run == Some(resumed.run) && resumed.parent.run == run, "{task:#?}");
        worker.drain().await?;
        // What stands on an imported run can be carried on.
        let next = resumed.run.to_string();
        let onward = from.path().join(format!("{next}.docket"));
        let args = ["export", &next, "-o", onward.to_str().context("UTF-8")?];
        coordinator.docket(&args).await?.ok()?;
        coordinator.end_and_check().await?;
        let third = tempfile::tempdir()?;
        docket(third.path(), &["import".as_ref(), onward.as_os_str()]).await?.ok()?;
        docket(third.path(), &["verify"]).await?.ok()?;
        docket(third.path(), &["db", "rebuild"]).await?.ok()?;
    }
    Ok(())
}

/// A run in the middle of its work is exported: what comes of it elsewhere is never worked on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unended_run_ends_where_it_is_imported() -> Result<()> {
    let _room = room().await;
    let from = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("a.txt", "one\n")])?;
    let script = sample
        .script("[[turns]]\ncalls = [{ name = \"run_command\", args = { command = \"sleep 600\" } }]\n")?;
    let args = ["--model", "scripted:s", "--script", script.to_str().context("UTF-8")?];
    let (task, _) = sample.submit(&from, &args).await?;
    let _worker = Worker::start(&from, &WorkerOptions::default()).await?;
    let run = docket_tests::system::until("a tool call", async || {
        let run = from.client().task(task).await.ok()?.task.last_run?;
        (from.history(run).await.ok()?.count("ToolRequested") > 0).then_some(run)
    })
    .await?;
    let file = from.home().join("run.docket");
    let id = run.to_string();
    from.docket(&["export", &id, "-o", file.to_str().context("UTF-8")?]).await?.ok()?;

    let to = Coordinator::start(Place::Home, LeaseTime::Short).await?;
    to.docket(&["import".as_ref(), file.as_os_str()]).await?.ok()?;
    let worker = Worker::start(&to, &WorkerOptions::default()).await?;
    let view = to.client().task(task).await?;
    ensure!(view.task.state == TaskState::Cancelled, "{view:#?}");
    // Another task is worked on meanwhile: a worker asked, and was given that one.
    let other = sample.script("[[turns]]\ntext = \"Done.\"\n")?;
    let args = ["--model", "scripted:s", "--script", other.to_str().context("UTF-8")?];
    let (other, _) = sample.submit(&to, &args).await?;
    to.ended(other).await?;
    ensure!(to.client().task(task).await?.task == view.task, "nobody touched it");
    worker.drain().await?;
    to.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_and_foreign_files_change_nothing() -> Result<()> {
    let _room = room().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = worked(from.path()).await?;
    let good = [
        export(from.path(), &id, "run.docket", &[]).await?,
        export(from.path(), &id, "run.jsonl", &["--plain"]).await?,
    ];
    let there = seen(async |args| docket(from.path(), args).await, &id).await?;
    let mut unharmed = 0;
    let aside = tempfile::tempdir()?;
    let to = tempfile::tempdir()?;
    let bad = aside.path().join("bad");
    let path = bad.to_str().context("UTF-8")?;
    for file in &good {
        let whole = std::fs::read(file)?;
        let len = whole.len() as u64;
        for n in 0..ALTERATIONS {
            // Places spread over the whole file, the same at every run.
            let at = usize::try_from((n * len / ALTERATIONS + n * 7919 % 97).min(len - 1))?;
            let mut altered = whole.clone();
            altered[at] ^= 1 << (n % 8);
            let cut = &whole[..at];
            for (what, bytes) in [("altered", &altered[..]), ("cut", cut)] {
                std::fs::write(&bad, bytes)?;
                let done = docket(to.path(), &["import", path]).await?;
                if done.success() && what == "altered" && file.ends_with("run.docket") {
                    // Some bits of what is compressed mean the same either way: then nothing is damaged.
                    let here = seen(async |args| docket(to.path(), args).await, &id).await?;
                    ensure!(here == there, "{what} at {at} of {len} is another run");
                    std::fs::remove_dir_all(to.path())?;
                    std::fs::DirBuilder::new().mode(0o700).create(to.path())?;
                    unharmed += 1;
                    continue;
                }
                let lines = done.stderr.lines().count();
                ensure!(
                    !done.success() && lines == 1 && !done.stderr.contains("panicked"),
                    "{what} at {at} of {len}: {:?} {}",
                    done.code(),
                    done.stderr
                );
            }
        }
    }
    ensure!(unharmed < ALTERATIONS / 4, "{unharmed} alterations changed nothing");
    // Bombs and others.
    let noise: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("text", b"- a task\n- another\n"),
        ("zstd of nothing of ours", b"\x28\xb5\x2f\xfd\x04\x00\x51\x00\x00\x68\x65\x6c\x6c\x6f\x20\x77\x6f\x72\x6c\x64\x0a"),
        ("newer", b"{\"docket_export\":{\"version\":9,\"run\":\"00000000-0000-7000-8000-000000000001\",\"task\":\"00000000-0000-7000-8000-000000000002\",\"made_by\":\"x\"}}\n"),
    ];
    for (what, bytes) in noise {
        std::fs::write(&bad, bytes)?;
        let done = docket(to.path(), &["import", path]).await?;
        ensure!(!done.success() && done.stderr.lines().count() == 1, "{what}: {}", done.stderr);
    }
    ensure!(docket(to.path(), &["ps", "--json"]).await?.ok()?.trim().is_empty(), "nothing was imported");
    // The control: the file itself goes in.
    docket(to.path(), &["import".as_ref(), good[0].as_os_str()]).await?.ok()?;
    docket(to.path(), &["verify"]).await?.ok().map(drop)
}

/// Python with the package's own models of the format, or `None` where it cannot be had.
async fn atif_models(folder: &Path) -> Result<Option<PathBuf>> {
    let packages = folder.join("packages");
    let target = packages.to_str().context("UTF-8")?;
    let args = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, ATIF];
    let why = match run(Tool::Python, folder, &[], &args).await {
        Ok(done) if done.success() => return Ok(Some(packages)),
        Ok(done) => done.stderr,
        Err(error) => error.to_string(),
    };
    ensure!(std::env::var_os("CI").is_none(), "{ATIF} cannot be had: {why}");
    say(&format!("the trajectory was NOT validated: {ATIF} cannot be had from the package index: {why}"));
    Ok(None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_is_what_the_formats_own_models_take() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let (id, _sample) = worked(home.path()).await?;
    let file = export(home.path(), &id, "trajectory.json", &["--format", "atif"]).await?;
    let trajectory: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let steps = trajectory["steps"].as_array().context("steps")?;
    let sources: Vec<&str> = steps.iter().filter_map(|step| step["source"].as_str()).collect();
    ensure!(sources[..2] == ["system", "user"] && sources.iter().filter(|s| **s == "agent").count() == 4);
    let edits = |step: &&Value| step["tool_calls"][0]["function_name"] == "edit_file";
    let edit = steps.iter().find(edits).with_context(|| format!("{steps:#?}"))?;
    ensure!(edit["observation"]["results"].as_array().map(Vec::len) == Some(2), "{edit:#}");
    ensure!(edit["tool_calls"][0]["tool_call_id"] == edit["observation"]["results"][0]["source_call_id"]);
    ensure!(trajectory["agent"]["tool_definitions"].as_array().map(Vec::len) >= Some(7));

    let Some(packages) = atif_models(home.path()).await? else { return Ok(()) };
    let check = "import json, sys\nfrom atif import Trajectory\n\
                 t = Trajectory.model_validate(json.load(open(sys.argv[1])))\n\
                 assert t.schema_version == 'ATIF-v1.7', t.schema_version\nprint(len(t.steps))\n";
    let env = [("PYTHONPATH", packages.as_os_str())];
    let args = [OsStr::new("-c"), OsStr::new(check), file.as_os_str()];
    let counted = run(Tool::Python, home.path(), &env, &args).await?.ok()?;
    ensure!(counted.trim() == steps.len().to_string(), "{counted}");
    // The control: the models do refuse what is wrong.
    let broken = home.path().join("broken.json");
    let text = std::fs::read_to_string(&file)?.replacen("\"step_id\": 2", "\"step_id\": 7", 1);
    std::fs::write(&broken, text)?;
    let args = [OsStr::new("-c"), OsStr::new(check), broken.as_os_str()];
    ensure!(!run(Tool::Python, home.path(), &env, &args).await?.success(), "a wrong one passes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_lines_hold_every_event_with_its_texts() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let (id, _sample) = worked(home.path()).await?;
    let lines = docket(home.path(), &["export", &id, "--format", "jsonl"]).await?.ok()?;
    let events: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let logged = docket(home.path(), &["logs", &id, "--json"]).await?.ok()?;
    ensure!(events.len() == logged.lines().count() && events[0]["kind"] == "RunStarted");
    let system = &events[0]["payload"]["prompts"]["system"];
    ensure!(system["text"].as_str().is_some_and(|text| text.len() as u64 == system["bytes"]), "{system}");
    ensure!(events[0]["payload"]["base"]["manifest"].get("text").is_none(), "a base is no text");
    let long = events.iter().find(|event| event["payload"]["full"].is_object()).context("a long output")?;
    ensure!(long["payload"]["full"]["text"].as_str().is_some_and(|text| text.contains("\n3999\n")), "{long}");
    let short =
        docket(home.path(), &["export", &id, "--format", "jsonl", "--text-bytes", "10"]).await?.ok()?;
    let first = json(&short)?;
    let system = &first["payload"]["prompts"]["system"];
    ensure!(system["text"].as_str().map(str::len) == Some(10) && system["cut"] == true, "{system}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gc_keeps_what_the_log_needs_and_drops_the_rest() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let home = home.path();
    let (id, _sample) = worked(home).await?;
    let before = seen(async |args| docket(home, args).await, &id).await?;
    let young = json(&docket(home, &["gc", "--delete", "--json"]).await?.ok()?)?;
    ensure!(young["dropped"] == 0 && young["recent"] == young["blobs"], "{young}");

    // A submit that was never made; and a day passes.
    let coordinator = Coordinator::start_in(home, Place::Home, LeaseTime::Usual).await?;
    let orphan = Bytes::from_static(b"uploaded and forgotten");
    coordinator.client().put_blob(BlobRef::of(&orphan), orphan.clone()).await?;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(home.join("docket.db"));
    let mut raw = sqlx::SqliteConnection::connect_with(&options).await?;
    sqlx::query("UPDATE blobs SET touched_at = 0").execute(&mut raw).await?;
    raw.close().await?;

    let dry = json(&coordinator.docket(&["gc", "--json"]).await?.ok()?)?;
    ensure!(dry["orphans"] == 1 && dry["dropped"] == 0 && dry["orphan_bytes"] == orphan.len(), "{dry}");
    let wet = json(&coordinator.docket(&["gc", "--delete", "--json"]).await?.ok()?)?;
    ensure!(wet["dropped"] == 1, "{wet}");
    let gone = coordinator.client().missing_blobs(&[BlobRef::of(&orphan).hash]).await?;
    ensure!(gone.len() == 1, "the orphan is gone");
    coordinator.end_and_check().await?;
    // What was cached is made again from what is stored.
    std::fs::remove_dir_all(home.join("cache"))?;
    ensure!(seen(async |args| docket(home, args).await, &id).await? == before, "all is as it was");
    let said = docket(home, &["gc"]).await?.ok()?;
    ensure!(said.contains("to go: none"), "{said}");
    Ok(())
}
