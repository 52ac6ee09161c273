//! Golden logs: runs of each release, kept in `tests/fixtures/RELEASE/` for ever. Every later build reads,
//! folds and verifies them, makes the same decisions after each of their events, and restores each of their
//! snapshots to the recorded tree (invariants 5, 7 and 12).
//!
//! Most were recorded from real runs on a real store; what no feature of the release can write yet was made
//! by hand through the types (`by-hand`). `UPDATE_FIXTURES=1 cargo test -p docket-tests --test it golden`
//! records this release's anew, which may be done until it is out and never after.

mod delivery_events;
mod gist;
mod handmade;
mod invariants;
mod mcp_recordings;
mod more_recordings;
mod record;
mod roles;
mod stubs;

pub(crate) use record::{release_command, wait_for_middle};

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::{Envelope, Head, TypedEvent as _, verify_and_advance},
    export::InMemoryExport,
    ids::{StreamId, SystemTopic},
    queue::QueueEvent,
    run::RunEvent,
    system::{NotificationsFold, SystemEvent, TopicFold as _},
    task::TaskEvent,
};
use docket_tests::system::TestProgram;
use gist::RunGist;

/// A golden log.
struct GoldenLog {
    name: String,
    bytes: Vec<u8>,
}

fn fixtures_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The folder of the release in the making.
fn release_folder() -> PathBuf {
    fixtures_folder().join(concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")))
}

/// A run of this home is a golden one of this release: later builds verify it, go on from every event of it, and come to
/// the same when it is played again. With `UPDATE_FIXTURES` one that is lacking is written; without it that is a failure.
/// A run that comes to something else by newer rules of its engine is written beside the older ones.
pub(crate) async fn keep_golden_log(home: &Path, run: &str, name: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let to = folder.path().join("played.run.jsonl");
    let args = ["export", run, "--plain", "-o", to.to_str().context("UTF-8")?];
    let env = [("DOCKET_HOME", home.as_os_str())];
    docket_tests::system::run_program(TestProgram::Docket, home, &env, &args).await?.into_stdout()?;
    let bytes = fs::read(&to)?;
    let played = RunGist::from_export(&InMemoryExport::parse(&bytes)?)?;
    let mut golden = Vec::new();
    for newer in 1.. {
        let name = if newer == 1 { name.to_owned() } else { format!("{name}-{newer}") };
        let file = release_folder().join(format!("{name}.run.jsonl"));
        if !file.exists() {
            let is_lacking = played.assert_same_as_latest(&golden).is_err();
            if is_lacking && std::env::var_os("UPDATE_FIXTURES").is_some() {
                return Ok(fs::write(file, bytes)?);
            }
            break;
        }
        golden.push((name, RunGist::from_export(&InMemoryExport::parse(&fs::read(file)?)?)?));
    }
    let told = || {
        format!(
            "{name}: what was played is not in its newest golden log; UPDATE_FIXTURES=1 writes one of newer rules"
        )
    };
    played.assert_same_as_latest(&golden).with_context(told)
}

/// Whether the release has no run of this name yet: one that is there is not written again, so it need not be played.
fn is_missing(name: &str) -> bool {
    !release_folder().join(format!("{name}.run.jsonl")).exists()
}

/// All files of all releases whose names end with `end`, `RELEASE/NAME`.
fn list_files(end: &str) -> Result<Vec<GoldenLog>> {
    let mut found = Vec::new();
    for release in fs::read_dir(fixtures_folder())? {
        for file in fs::read_dir(release?.path())? {
            let path = file?.path();
            let name = path.strip_prefix(fixtures_folder())?.display().to_string();
            if name.ends_with(end) {
                found.push(GoldenLog { name, bytes: fs::read(path)? });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    ensure!(!found.is_empty(), "no golden log ends with {end}");
    Ok(found)
}

/// The runs.
fn golden_runs() -> Result<Vec<(String, InMemoryExport)>> {
    let read = |golden: GoldenLog| {
        let run = InMemoryExport::parse(&golden.bytes).with_context(|| golden.name.clone())?;
        ensure!(
            run.to_text().as_bytes() == golden.bytes,
            "{}: written again, it is another file",
            golden.name
        );
        Ok((golden.name, run))
    };
    list_files(".run.jsonl")?.into_iter().map(read).collect()
}

/// The events of streams that belong to no run, one envelope a line.
fn golden_streams() -> Result<Vec<(String, Vec<Envelope>)>> {
    let read = |golden: GoldenLog| {
        let lines = std::str::from_utf8(&golden.bytes)?.lines();
        let events = lines.map(serde_json::from_str).collect::<Result<Vec<Envelope>, _>>();
        Ok((golden.name.clone(), events.with_context(|| golden.name)?))
    };
    list_files(".stream.jsonl")?.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn golden_logs_of_this_release_are_recorded_on_request() -> Result<()> {
    if std::env::var_os("UPDATE_FIXTURES").is_none() {
        return Ok(());
    }
    let of_release = release_folder();
    fs::create_dir_all(&of_release)?;
    let mut all = Box::pin(record::record_all()).await?;
    all.push(("by-hand", handmade::paused_and_blocked_run().await?));
    all.push(("by-hand-cancelled", handmade::cancelled_run().await?));
    all.push(("by-hand-base-checked", handmade::base_checked_run().await?));
    all.push(("by-hand-delivered", delivery_events::delivered_run().await?));
    for (name, run) in all {
        let file = of_release.join(format!("{name}.run.jsonl"));
        // One that is there is what an earlier build wrote: that is its worth.
        if !file.exists() {
            fs::write(file, run.to_text())?;
        }
    }
    let streams = [
        ("by-hand", handmade::import_events()),
        ("tokens", handmade::token_events()),
        ("audit", handmade::audit_events()),
        ("queue", handmade::queue_events()),
        ("waits", handmade::waiting_task_events()),
        ("delegates", handmade::delegating_task_events()),
        ("archive", handmade::archive_events()),
        ("stubs", stubs::stub_events()),
        ("schedules", handmade::schedule_events()),
        ("limits", handmade::limit_events()),
        ("memory", handmade::memory_events()),
        ("claimed", delivery_events::claimed_task_events()),
        ("budgets", handmade::budget_events()),
        ("notifications", handmade::notification_events()),
    ];
    for (name, events) in streams {
        let lines: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
        let file = of_release.join(format!("{name}.stream.jsonl"));
        if !file.exists() {
            fs::write(file, lines?.join("\n") + "\n")?;
        }
    }
    Ok(())
}

#[test]
fn every_event_kind_occurs_in_a_golden_log() -> Result<()> {
    let mut found = BTreeSet::new();
    let run_events = golden_runs()?.into_iter().flat_map(|(_, run)| run.events);
    for event in run_events.chain(golden_streams()?.into_iter().flat_map(|(_, events)| events)) {
        let family = match event.stream {
            StreamId::Run(_) => "run",
            StreamId::Task(_) => "task",
            StreamId::System(_) => "system",
            StreamId::Queue(_) => "queue",
        };
        found.insert((family, event.kind, event.version));
    }
    let families = [
        ("run", RunEvent::READ),
        ("task", TaskEvent::READ),
        ("system", SystemEvent::READ),
        ("queue", QueueEvent::READ),
    ];
    let lacking: Vec<String> = families
        .into_iter()
        .flat_map(|(family, read)| read.iter().map(move |(kind, version)| (family, *kind, *version)))
        .filter(|(family, kind, version)| !found.contains(&(*family, (*kind).to_owned(), *version)))
        .map(|(family, kind, version)| format!("{family} {kind} {version}"))
        .collect();
    ensure!(lacking.is_empty(), "no golden log holds: {}; record one", lacking.join(", "));
    Ok(())
}

/// What a later build is held to are the rules in force, not those before them.
#[test]
fn every_current_engine_has_golden_logs() -> Result<()> {
    let begun: BTreeSet<(String, u16)> = golden_runs()?
        .into_iter()
        .filter_map(|(_, run)| {
            let started = run.events.iter().find(|event| event.kind == "RunStarted")?;
            let started: serde_json::Value = serde_json::from_str(started.payload.as_str()).ok()?;
            let engine = &started["engine"];
            Some((engine["name"].as_str()?.to_owned(), u16::try_from(engine["version"].as_u64()?).ok()?))
        })
        .collect();
    for name in docket_worker::engine::engine_names() {
        let newest = docket_worker::engine::newest_engine(&name).context("an engine")?.engine_ref();
        ensure!(
            begun.contains(&(newest.name.clone(), newest.version)),
            "no golden log of {newest:?} among {begun:?}"
        );
    }
    Ok(())
}

#[test]
fn non_run_streams_are_chained_and_decode() -> Result<()> {
    for (name, events) in golden_streams()? {
        let mut head = Head::EMPTY;
        let mut told = NotificationsFold::default();
        for event in &events {
            head = verify_and_advance(head, event).with_context(|| name.clone())?;
            if event.stream == StreamId::System(SystemTopic::Notifications) {
                told.apply(&event.as_event_ref())?;
            }
            let (kind, payload) = (event.kind.as_str(), event.payload.as_str());
            match event.stream {
                StreamId::Run(_) => RunEvent::decode(kind, event.version, payload).map(drop)?,
                StreamId::Task(_) => TaskEvent::decode(kind, event.version, payload).map(drop)?,
                StreamId::System(_) => SystemEvent::decode(kind, event.version, payload).map(drop)?,
                StreamId::Queue(_) => QueueEvent::decode(kind, event.version, payload).map(drop)?,
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_golden_log_verifies() -> Result<()> {
    for (name, run) in golden_runs()? {
        invariants::verify_export(&run).await.with_context(|| name)?;
    }
    Ok(())
}

#[test]
fn every_prefix_leads_to_the_recorded_decision() -> Result<()> {
    for (name, run) in golden_runs()? {
        let compared = invariants::check_decisions(&run).with_context(|| name.clone())?;
        ensure!(compared > 0, "{name}: no decision was compared");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_prefix_restores_the_recorded_tree() -> Result<()> {
    for (name, run) in golden_runs()? {
        let restored = invariants::check_restores(&run).await.with_context(|| name.clone())?;
        ensure!(restored > 0, "{name}: no tree was restored");
    }
    Ok(())
}
