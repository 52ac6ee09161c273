//! A run carried from one installation to another, and what other programs make of it; and that garbage
//! collection keeps what a log needs.

use std::{
    ffi::OsStr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use docket_schema::{content::BlobRef, export::InMemoryExport, task::TaskState};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, print_notice, run_program,
        run_with_input,
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

async fn run_docket<A: AsRef<OsStr>>(home: &Path, args: &[A]) -> Result<FinishedProcess> {
    run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
}

fn parse_json(text: &str) -> Result<Value> {
    serde_json::from_str(text.lines().next().context("a line")?).with_context(|| text.to_owned())
}

/// A home in which one run has ended; the run, and where its repository is.
async fn run_task_in_home(home: &Path) -> Result<(String, SampleRepository)> {
    let sample = SampleRepository::new(&[("a.txt", "one\n"), ("d.txt", "goes\n"), ("e.txt", "stays\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "Carry me", "--repo", repo, "--model", "scripted:s", "--script", script];
    run_docket(home, &args).await?.into_stdout()?;
    let task = parse_json(&run_docket(home, &["ps", "--json"]).await?.into_stdout()?)?;
    Ok((task["run"].as_str().context("a run")?.to_owned(), sample))
}

async fn export_run(home: &Path, id: &str, name: &str, args: &[&str]) -> Result<PathBuf> {
    let path = home.join(name);
    let mut all = vec!["export", id, "-o", path.to_str().context("UTF-8")?];
    all.extend(args);
    run_docket(home, &all).await?.into_stdout()?;
    Ok(path)
}

/// What `docket` says of a run that must not depend on where it stands.
async fn collect_views(
    docket: impl AsyncFn(&[&str]) -> Result<FinishedProcess>,
    id: &str,
) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for args in [&["replay", id, "--json"][..], &["diff", id], &["logs", id]] {
        seen.push(docket(args).await?.into_stdout()?);
    }
    Ok(seen)
}

/// A pipe can be read once; it is checked whole before anything is written all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_imported_through_a_pipe() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = run_task_in_home(from.path()).await?;
    let packed = std::fs::read(export_run(from.path(), &id, "run.docket", &[]).await?)?;
    let plain = std::fs::read(export_run(from.path(), &id, "run.jsonl", &["--plain"]).await?)?;
    let there = collect_views(async |args| run_docket(from.path(), args).await, &id).await?;
    for (name, bytes) in [("-", &packed), ("/dev/stdin", &packed), ("-", &plain)] {
        let home = tempfile::tempdir()?;
        let import = async |bytes: &[u8]| {
            let env = [("DOCKET_HOME", home.path().as_os_str())];
            run_with_input(TestProgram::Docket, home.path(), &env, &["import", name, "--json"], bytes).await
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
            ensure!(run_docket(home.path(), &["ps", "--json"]).await?.into_stdout()?.is_empty(), "{name}");
        }
        let said = parse_json(&import(bytes).await?.into_stdout()?)?;
        ensure!(said["run"] == id.as_str(), "{said}");
        ensure!(
            collect_views(async |args| run_docket(home.path(), args).await, &id).await? == there,
            "{name}"
        );
        run_docket(home.path(), &["verify"]).await?.into_stdout()?;
        let left = std::fs::read_dir(home.path().join("scratch"))?.count();
        ensure!(left == 0, "{left} files are left behind");
    }
    Ok(())
}

/// The task's stream names a newer run that stayed behind: the task's id means the run that came along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imported_task_id_means_its_last_local_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let from = tempfile::tempdir()?;
    let (old, _sample) = run_task_in_home(from.path()).await?;
    let view = parse_json(&run_docket(from.path(), &["show", &old, "--json"]).await?.into_stdout()?)?;
    let task = view["task"].as_str().context("a task")?.to_owned();
    run_docket(from.path(), &["resume", &old, "--turn", "1"]).await?.into_stdout()?;
    let newer = parse_json(&run_docket(from.path(), &["ps", "--json"]).await?.into_stdout()?)?;
    ensure!(newer["run"] != old.as_str(), "the task has a newer run: {newer}");
    let file = export_run(from.path(), &old, "old.docket", &[]).await?;

    let home = tempfile::tempdir()?;
    run_docket(home.path(), &["import".as_ref(), file.as_os_str()]).await?.into_stdout()?;
    for args in [&["replay", "--json"][..], &["diff"], &["export", "--format", "jsonl"], &["follow"]] {
        let said = async |id: &str| {
            let all: Vec<&str> =
                args[..1].iter().copied().chain([id]).chain(args[1..].iter().copied()).collect();
            run_docket(home.path(), &all).await?.into_stdout()
        };
        ensure!(said(&task).await? == said(&old).await?, "{args:?}");
    }
    let shown = parse_json(&run_docket(home.path(), &["show", &task, "--json"]).await?.into_stdout()?)?;
    ensure!(shown["run"] == old.as_str(), "{shown}");
    let checked = async || -> Result<()> {
        run_docket(home.path(), &["verify"]).await?.into_stdout()?;
        let rebuilt =
            parse_json(&run_docket(home.path(), &["db", "rebuild", "--json"]).await?.into_stdout()?)?;
        ensure!(rebuilt["differences"].as_array().is_none_or(Vec::is_empty), "{rebuilt}");
        Ok(())
    };
    checked().await?;
    let forked = parse_json(
        &run_docket(home.path(), &["fork", &task, "--turn", "1", "--json"]).await?.into_stdout()?,
    )?;
    ensure!(forked["parent"] == old.as_str(), "{forked}");
    let resumed = parse_json(&run_docket(home.path(), &["resume", &task, "--json"]).await?.into_stdout()?)?;
    let run = resumed["run"].as_str().context("a run")?;
    let run = parse_json(&run_docket(home.path(), &["show", run, "--json"]).await?.into_stdout()?)?;
    ensure!(run["parent"] == old.as_str(), "{run}");
    checked().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imported_run_is_identical() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = run_task_in_home(from.path()).await?;
    let packed = export_run(from.path(), &id, "run.docket", &[]).await?;
    let plain = export_run(from.path(), &id, "run.jsonl", &["--plain"]).await?;
    let whole = InMemoryExport::parse(&std::fs::read(&plain)?)?;
    let piped = run_docket(from.path(), &["export", &id, "-o", "-"]).await?;
    ensure!(piped.bytes == std::fs::read(&packed)?, "`-` is standard output");
    let told = run_docket(from.path(), &["export", &id, "--json"]).await?;
    ensure!(told.code() == Some(2) && told.stdout.is_empty() && told.stderr.contains("-o FILE"), "{told:?}");
    ensure!(std::fs::metadata(&packed)?.len() < std::fs::metadata(&plain)?.len(), "compressed is smaller");
    let there = collect_views(async |args| run_docket(from.path(), args).await, &id).await?;

    let mut places = vec![StoreLocation::HomeFolder];
    let cluster = PostgresCluster::start();
    if let Some(cluster) = &cluster {
        places.push(fresh_database(cluster).await?);
    }
    for (place, file) in places.into_iter().zip([&packed, &plain]) {
        let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
        let file = file.to_str().context("UTF-8")?;
        let first = parse_json(&coordinator.run_docket(&["import", file, "--json"]).await?.into_stdout()?)?;
        ensure!(first["run"] == id && first["new_events"] == whole.events.len(), "{first}");
        let again = parse_json(&coordinator.run_docket(&["import", file, "--json"]).await?.into_stdout()?)?;
        ensure!(again["new_events"] == 0, "{again}");

        let here = collect_views(async |args| coordinator.run_docket(args).await, &id).await?;
        ensure!(here == there, "here: {here:#?}\nthere: {there:#?}");
        let verified = parse_json(&coordinator.run_docket(&["verify", "--json"]).await?.into_stdout()?)?;
        ensure!(verified["ok"] == true && verified["decisions"].as_u64() > Some(3), "{verified}");

        // It is nobody's work here, until a person says so.
        let run = whole.header.run;
        let view = coordinator.client().get_run(run).await?;
        ensure!(view.status == "succeeded" && view.head.seq == whole.events.last().context("events")?.seq);
        let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
        let resumed = coordinator.client().resume(run, Some(1)).await?;
        let task = coordinator.wait_until_ended(whole.header.task).await?;
        ensure!(task.task.state == TaskState::Completed, "{task:#?}\n{}", worker.log_tail());
        ensure!(task.task.last_run == Some(resumed.run) && resumed.parent.run == run, "{task:#?}");
        worker.drain().await?;
        // What stands on an imported run can be carried on.
        let next = resumed.run.to_string();
        let onward = from.path().join(format!("{next}.docket"));
        let args = ["export", &next, "-o", onward.to_str().context("UTF-8")?];
        coordinator.run_docket(&args).await?.into_stdout()?;
        coordinator.end_and_check().await?;
        let third = tempfile::tempdir()?;
        run_docket(third.path(), &["import".as_ref(), onward.as_os_str()]).await?.into_stdout()?;
        run_docket(third.path(), &["verify"]).await?.into_stdout()?;
        run_docket(third.path(), &["db", "rebuild"]).await?.into_stdout()?;
    }
    Ok(())
}

/// A run in the middle of its work is exported: what comes of it elsewhere is never worked on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_run_ends_on_import() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let from = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
    let script = sample.write_script(
        "[[turns]]\ncalls = [{ name = \"run_command\", args = { command = \"sleep 600\" } }]\n",
    )?;
    let args = ["--model", "scripted:s", "--script", script.to_str().context("UTF-8")?];
    let (task, _) = sample.submit(&from, &args).await?;
    let _worker = WorkerProcess::start(&from, &WorkerOptions::default()).await?;
    let run = docket_tests::system::wait_until("a tool call", async || {
        let run = from.client().get_task(task).await.ok()?.task.last_run?;
        (from.run_history(run).await.ok()?.count_kind("ToolRequested") > 0).then_some(run)
    })
    .await?;
    let file = from.home().join("run.docket");
    let id = run.to_string();
    from.run_docket(&["export", &id, "-o", file.to_str().context("UTF-8")?]).await?.into_stdout()?;

    let to = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Short).await?;
    to.run_docket(&["import".as_ref(), file.as_os_str()]).await?.into_stdout()?;
    let worker = WorkerProcess::start(&to, &WorkerOptions::default()).await?;
    let view = to.client().get_task(task).await?;
    ensure!(view.task.state == TaskState::Cancelled, "{view:#?}");
    // Another task is worked on meanwhile: a worker asked, and was given that one.
    let other = sample.write_script("[[turns]]\ntext = \"Done.\"\n")?;
    let args = ["--model", "scripted:s", "--script", other.to_str().context("UTF-8")?];
    let (other, _) = sample.submit(&to, &args).await?;
    to.wait_until_ended(other).await?;
    ensure!(to.client().get_task(task).await?.task == view.task, "nobody touched it");
    worker.drain().await?;
    to.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_or_foreign_files_import_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let from = tempfile::tempdir()?;
    let (id, _sample) = run_task_in_home(from.path()).await?;
    let good = [
        export_run(from.path(), &id, "run.docket", &[]).await?,
        export_run(from.path(), &id, "run.jsonl", &["--plain"]).await?,
    ];
    let there = collect_views(async |args| run_docket(from.path(), args).await, &id).await?;
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
                let done = run_docket(to.path(), &["import", path]).await?;
                if done.success() && what == "altered" && file.ends_with("run.docket") {
                    // Some bits of what is compressed mean the same either way: then nothing is damaged.
                    let here = collect_views(async |args| run_docket(to.path(), args).await, &id).await?;
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
        let done = run_docket(to.path(), &["import", path]).await?;
        ensure!(!done.success() && done.stderr.lines().count() == 1, "{what}: {}", done.stderr);
    }
    ensure!(
        run_docket(to.path(), &["ps", "--json"]).await?.into_stdout()?.trim().is_empty(),
        "nothing was imported"
    );
    // The control: the file itself goes in.
    run_docket(to.path(), &["import".as_ref(), good[0].as_os_str()]).await?.into_stdout()?;
    run_docket(to.path(), &["verify"]).await?.into_stdout().map(drop)
}

/// Python with the package's own models of the format, or `None` where it cannot be had.
async fn atif_models(folder: &Path) -> Result<Option<PathBuf>> {
    let packages = folder.join("packages");
    let target = packages.to_str().context("UTF-8")?;
    let args = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, ATIF];
    let why = match run_program(TestProgram::Python, folder, &[], &args).await {
        Ok(done) if done.success() => return Ok(Some(packages)),
        Ok(done) => done.stderr,
        Err(error) => error.to_string(),
    };
    ensure!(std::env::var_os("CI").is_none(), "{ATIF} cannot be had: {why}");
    print_notice(&format!(
        "the trajectory was NOT validated: {ATIF} cannot be had from the package index: {why}"
    ));
    Ok(None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atif_export_validates_against_reference_models() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let (id, _sample) = run_task_in_home(home.path()).await?;
    let file = export_run(home.path(), &id, "trajectory.json", &["--format", "atif"]).await?;
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
    let counted = run_program(TestProgram::Python, home.path(), &env, &args).await?.into_stdout()?;
    ensure!(counted.trim() == steps.len().to_string(), "{counted}");
    // The control: the models do refuse what is wrong.
    let broken = home.path().join("broken.json");
    let text = std::fs::read_to_string(&file)?.replacen("\"step_id\": 2", "\"step_id\": 7", 1);
    std::fs::write(&broken, text)?;
    let args = [OsStr::new("-c"), OsStr::new(check), broken.as_os_str()];
    ensure!(
        !run_program(TestProgram::Python, home.path(), &env, &args).await?.success(),
        "a wrong one passes"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jsonl_export_has_every_event_with_its_texts() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let (id, _sample) = run_task_in_home(home.path()).await?;
    let lines = run_docket(home.path(), &["export", &id, "--format", "jsonl"]).await?.into_stdout()?;
    let events: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let logged = run_docket(home.path(), &["logs", &id, "--json"]).await?.into_stdout()?;
    ensure!(events.len() == logged.lines().count() && events[0]["kind"] == "RunStarted");
    let system = &events[0]["payload"]["prompts"]["system"];
    ensure!(system["text"].as_str().is_some_and(|text| text.len() as u64 == system["bytes"]), "{system}");
    ensure!(events[0]["payload"]["base"]["manifest"].get("text").is_none(), "a base is no text");
    let long = events.iter().find(|event| event["payload"]["full"].is_object()).context("a long output")?;
    ensure!(long["payload"]["full"]["text"].as_str().is_some_and(|text| text.contains("\n3999\n")), "{long}");
    let short = run_docket(home.path(), &["export", &id, "--format", "jsonl", "--text-bytes", "10"])
        .await?
        .into_stdout()?;
    let first = parse_json(&short)?;
    let system = &first["payload"]["prompts"]["system"];
    ensure!(system["text"].as_str().map(str::len) == Some(10) && system["cut"] == true, "{system}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gc_keeps_referenced_blobs_and_deletes_the_rest() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let home = home.path();
    let (id, _sample) = run_task_in_home(home).await?;
    let before = collect_views(async |args| run_docket(home, args).await, &id).await?;
    let young = parse_json(&run_docket(home, &["gc", "--delete", "--json"]).await?.into_stdout()?)?;
    ensure!(young["dropped"] == 0 && young["recent"] == young["blobs"], "{young}");

    // A submit that was never made; and a day passes.
    let coordinator =
        CoordinatorProcess::start_in(home, StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let orphan = Bytes::from_static(b"uploaded and forgotten");
    coordinator.client().put_blob(BlobRef::for_bytes(&orphan), orphan.clone()).await?;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(home.join("docket.db"));
    let mut raw = sqlx::SqliteConnection::connect_with(&options).await?;
    sqlx::query("UPDATE blobs SET touched_at = 0").execute(&mut raw).await?;
    raw.close().await?;

    let dry = parse_json(&coordinator.run_docket(&["gc", "--json"]).await?.into_stdout()?)?;
    ensure!(dry["orphans"] == 1 && dry["dropped"] == 0 && dry["orphan_bytes"] == orphan.len(), "{dry}");
    let wet = parse_json(&coordinator.run_docket(&["gc", "--delete", "--json"]).await?.into_stdout()?)?;
    ensure!(wet["dropped"] == 1, "{wet}");
    let gone = coordinator.client().missing_blobs(&[BlobRef::for_bytes(&orphan).hash]).await?;
    ensure!(gone.len() == 1, "the orphan is gone");
    coordinator.end_and_check().await?;
    // What was cached is made again from what is stored.
    std::fs::remove_dir_all(home.join("cache"))?;
    ensure!(
        collect_views(async |args| run_docket(home, args).await, &id).await? == before,
        "all is as it was"
    );
    let said = run_docket(home, &["gc"]).await?.into_stdout()?;
    ensure!(said.contains("unreferenced: none"), "{said}");
    Ok(())
}
