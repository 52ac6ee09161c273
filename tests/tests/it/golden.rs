//! Golden logs: runs of each release, kept in `tests/fixtures/RELEASE/` for ever. Every later build reads,
//! folds and verifies them, makes the same decisions after each of their events, and restores each of their
//! snapshots to the recorded tree (invariants 5, 7 and 12).
//!
//! Most were recorded from real runs on a real store; what no feature of the release can write yet was made
//! by hand through the types (`by-hand`). `UPDATE_FIXTURES=1 cargo test -p docket-tests --test it golden`
//! records this release's anew, which may be done until it is out and never after.

mod delivered;
mod gist;
mod hold;
mod made;
mod record;
mod roles;
mod scenes;
mod servers;
mod stubs;

pub(crate) use record::{let_on, middle};

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::{Envelope, Head, TypedEvent as _, follow},
    export::Export,
    ids::{StreamId, SystemTopic},
    queue::QueueEvent,
    run::RunEvent,
    system::{Notifications, SystemEvent, TopicFold as _},
    task::TaskEvent,
};
use docket_tests::system::Tool;
use gist::Gist;

/// A golden log.
struct Golden {
    name: String,
    bytes: Vec<u8>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The folder of the release in the making.
fn of_release() -> PathBuf {
    folder().join(concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")))
}

/// A run of this home is a golden one of this release: later builds verify it, go on from every event of it, and come to
/// the same when it is played again. With `UPDATE_FIXTURES` one that is lacking is written; without it that is a failure.
/// A run that comes to something else by newer rules of its engine is written beside the older ones.
pub(crate) async fn kept(home: &Path, run: &str, name: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let to = folder.path().join("played.run.jsonl");
    let args = ["export", run, "--plain", "-o", to.to_str().context("UTF-8")?];
    let env = [("DOCKET_HOME", home.as_os_str())];
    docket_tests::system::run(Tool::Docket, home, &env, &args).await?.ok()?;
    let bytes = fs::read(&to)?;
    let played = Gist::of(&Export::read(&bytes)?)?;
    let mut golden = Vec::new();
    for newer in 1.. {
        let name = if newer == 1 { name.to_owned() } else { format!("{name}-{newer}") };
        let file = of_release().join(format!("{name}.run.jsonl"));
        if !file.exists() {
            let is_lacking = played.is_as_in_the_last(&golden).is_err();
            if is_lacking && std::env::var_os("UPDATE_FIXTURES").is_some() {
                return Ok(fs::write(file, bytes)?);
            }
            break;
        }
        golden.push((name, Gist::of(&Export::read(&fs::read(file)?)?)?));
    }
    let told = || {
        format!(
            "{name}: what was played is not in its newest golden log; UPDATE_FIXTURES=1 writes one of newer rules"
        )
    };
    played.is_as_in_the_last(&golden).with_context(told)
}

/// Whether the release has no run of this name yet: one that is there is not written again, so it need not be played.
fn lacks(name: &str) -> bool {
    !of_release().join(format!("{name}.run.jsonl")).exists()
}

/// All files of all releases whose names end with `end`, `RELEASE/NAME`.
fn files(end: &str) -> Result<Vec<Golden>> {
    let mut found = Vec::new();
    for release in fs::read_dir(folder())? {
        for file in fs::read_dir(release?.path())? {
            let path = file?.path();
            let name = path.strip_prefix(folder())?.display().to_string();
            if name.ends_with(end) {
                found.push(Golden { name, bytes: fs::read(path)? });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    ensure!(!found.is_empty(), "no golden log ends with {end}");
    Ok(found)
}

/// The runs.
fn runs() -> Result<Vec<(String, Export)>> {
    let read = |golden: Golden| {
        let run = Export::read(&golden.bytes).with_context(|| golden.name.clone())?;
        ensure!(run.write().as_bytes() == golden.bytes, "{}: written again, it is another file", golden.name);
        Ok((golden.name, run))
    };
    files(".run.jsonl")?.into_iter().map(read).collect()
}

/// The events of streams that belong to no run, one envelope a line.
fn streams() -> Result<Vec<(String, Vec<Envelope>)>> {
    let read = |golden: Golden| {
        let lines = std::str::from_utf8(&golden.bytes)?.lines();
        let events = lines.map(serde_json::from_str).collect::<Result<Vec<Envelope>, _>>();
        Ok((golden.name.clone(), events.with_context(|| golden.name)?))
    };
    files(".stream.jsonl")?.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_golden_logs_of_this_release_are_recorded_when_asked_for() -> Result<()> {
    if std::env::var_os("UPDATE_FIXTURES").is_none() {
        return Ok(());
    }
    let of_release = of_release();
    fs::create_dir_all(&of_release)?;
    let mut all = Box::pin(record::all()).await?;
    all.push(("by-hand", made::run().await?));
    all.push(("by-hand-cancelled", made::cancelled().await?));
    all.push(("by-hand-base-checked", made::base_checked().await?));
    all.push(("by-hand-delivered", delivered::run().await?));
    for (name, run) in all {
        let file = of_release.join(format!("{name}.run.jsonl"));
        // One that is there is what an earlier build wrote: that is its worth.
        if !file.exists() {
            fs::write(file, run.write())?;
        }
    }
    let streams = [
        ("by-hand", made::imports()),
        ("tokens", made::tokens()),
        ("audit", made::audit()),
        ("queue", made::queue()),
        ("waits", made::waits()),
        ("delegates", made::delegates()),
        ("archive", made::archive()),
        ("stubs", stubs::stubs()),
        ("schedules", made::schedules()),
        ("limits", made::limits()),
        ("memory", made::memory()),
        ("claimed", delivered::claimed()),
        ("budgets", made::budgets()),
        ("notifications", made::notifications()),
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
fn every_kind_of_event_occurs_in_a_golden_log() -> Result<()> {
    let mut found = BTreeSet::new();
    let run_events = runs()?.into_iter().flat_map(|(_, run)| run.events);
    for event in run_events.chain(streams()?.into_iter().flat_map(|(_, events)| events)) {
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
fn each_engine_in_force_has_golden_logs() -> Result<()> {
    let begun: BTreeSet<(String, u16)> = runs()?
        .into_iter()
        .filter_map(|(_, run)| {
            let started = run.events.iter().find(|event| event.kind == "RunStarted")?;
            let started: serde_json::Value = serde_json::from_str(started.payload.as_str()).ok()?;
            let engine = &started["engine"];
            Some((engine["name"].as_str()?.to_owned(), u16::try_from(engine["version"].as_u64()?).ok()?))
        })
        .collect();
    for name in docket_worker::engine::names() {
        let newest = docket_worker::engine::newest(&name).context("an engine")?.id();
        ensure!(
            begun.contains(&(newest.name.clone(), newest.version)),
            "no golden log of {newest:?} among {begun:?}"
        );
    }
    Ok(())
}

#[test]
fn the_streams_of_no_run_are_chained_and_read() -> Result<()> {
    for (name, events) in streams()? {
        let mut head = Head::EMPTY;
        let mut told = Notifications::default();
        for event in &events {
            head = follow(head, event).with_context(|| name.clone())?;
            if event.stream == StreamId::System(SystemTopic::Notifications) {
                told.apply(&event.by_ref())?;
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
    for (name, run) in runs()? {
        hold::verifies(&run).await.with_context(|| name)?;
    }
    Ok(())
}

#[test]
fn after_each_prefix_of_each_golden_log_the_next_decision_is_the_recorded_one() -> Result<()> {
    for (name, run) in runs()? {
        let compared = hold::decides(&run).with_context(|| name.clone())?;
        ensure!(compared > 0, "{name}: no decision was compared");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_prefix_of_each_golden_log_the_workspace_is_restored_to_the_recorded_tree() -> Result<()> {
    for (name, run) in runs()? {
        let restored = hold::restores(&run).await.with_context(|| name.clone())?;
        ensure!(restored > 0, "{name}: no tree was restored");
    }
    Ok(())
}
