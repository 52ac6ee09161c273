//! One bit altered anywhere in the log or in a blob is found by `docket verify`, which ends with 6 and says
//! where. The bits are flipped in the database itself, its triggers dropped: in every column of every event of
//! a small run that is part of what happened, in every blob, in every stream's head; on both stores. After
//! each flip the bit is put back, and at the end the log holds again.

mod database_file;
mod raw_database;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, TestProgram,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, run_program, send_signal,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use raw_database::{RawDatabase, StoredCell};
use serde_json::Value;

/// Every column of an event that its hash covers, and its own.
const EVENT_COLUMNS: [&str; 9] =
    ["payload", "kind", "version", "turn", "epoch", "seq", "prev_hash", "hash", "recorded_at"];

/// Homes that flips are spread over on SQLite: each `docket verify` is a process.
const HOMES: usize = 3;

const SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "a.txt" }
[[turns.calls]]
name = "create_file"
args = { path = "b.txt", content = "a new file\n" }

[[turns]]
text = "Done."
"#;

/// A bit to flip, and what the faults must name.
#[derive(Debug, Clone)]
struct BitFlip {
    table: &'static str,
    column: &'static str,
    key: String,
    bit: usize,
    /// Any of these is a name of the place.
    named: Vec<String>,
}

/// A finished run in a store that nobody has open.
async fn run_to_end(place: StoreLocation) -> Result<CoordinatorProcess> {
    let mut coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = SampleRepository::new(&[("a.txt", "a file\n")])?;
    let url = server.base_url(ModelProvider::OpenAi);
    let args = ["--model", "openai:flip", "--base-url", &url];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    worker.drain().await?;
    send_signal(coordinator.pid(), Signal::SIGTERM);
    coordinator.process().wait().await?;
    Ok(coordinator)
}

/// Every flip of the store.
async fn collect_flips(raw: &mut RawDatabase) -> Result<Vec<BitFlip>> {
    let mut flips = Vec::new();
    for (place, (position, stream, seq)) in raw.list_events().await?.into_iter().enumerate() {
        for column in EVENT_COLUMNS {
            let bit = match column {
                // Neither 0, which the table itself refuses, nor a place that is taken.
                "version" => 1 + place % 12,
                "seq" => 10 + place % 8,
                "turn" | "epoch" | "recorded_at" => place % 31,
                // PostgreSQL keeps no text that is no UTF-8.
                "kind" if !raw.is_sqlite() => place * 8 + place % 5,
                _ => place * 104 + place % 8,
            };
            let mut named = vec![format!("{stream}: event {seq} ")];
            if column == "seq" {
                // What stands there instead is the one after it, or the altered one itself.
                named.pop();
                named.extend(
                    [seq + 1, seq ^ (1 << bit)]
                        .map(|is| format!("{stream}: found seq {is} instead of {seq}")),
                );
                named.push(format!("{stream}: its events end at {}", seq - 1));
            }
            flips.push(BitFlip {
                table: "events",
                column,
                key: format!("position = {position}"),
                bit,
                named,
            });
        }
    }
    for (place, hash) in raw.list_blobs().await?.into_iter().enumerate() {
        let key = raw.hash_condition("hash", &hash);
        let named = vec![format!("blob {hash} ")];
        // The first byte, one in the middle and the last of what is stored.
        for bit in [place % 8, 8 * 21 + place % 8, usize::MAX - 7 + place % 8] {
            flips.push(BitFlip {
                table: "blobs",
                column: "data",
                key: key.clone(),
                bit,
                named: named.clone(),
            });
        }
        let bit = place % 20;
        flips.push(BitFlip { table: "blobs", column: "size", key: key.clone(), bit, named: named.clone() });
        let bit = place * 8 + place % 8;
        flips.push(BitFlip { table: "blobs", column: "hash", key, bit, named });
    }
    for (place, name) in raw.list_streams().await?.into_iter().enumerate() {
        for column in ["head_seq", "head_hash"] {
            let (key, named) = (format!("name = '{name}'"), vec![format!("{name}: ")]);
            flips.push(BitFlip { table: "streams", column, key, bit: place, named });
        }
    }
    Ok(flips)
}

async fn run_verify(home: &Path, place: &StoreLocation, more: &[&str]) -> Result<(Option<i32>, Vec<String>)> {
    let mut env: Vec<(&str, &std::ffi::OsStr)> = vec![("DOCKET_HOME", home.as_os_str())];
    if let StoreLocation::Postgres(url) = place {
        env.push(("DATABASE_URL", url.as_ref()));
    }
    let done = run_program(TestProgram::Docket, home, &env, &[&["verify", "--json"], more].concat()).await?;
    let said: Value = serde_json::from_str(&done.stdout).with_context(|| format!("{done:?}"))?;
    let faults = said["faults"].as_array().context("faults")?;
    let faults = faults.iter().filter_map(|fault| fault.as_str().map(str::to_owned));
    Ok((done.code(), faults.collect()))
}

/// Flips each bit, verifies, and puts it back.
async fn check_all_are_found(
    raw: &mut RawDatabase,
    home: &Path,
    place: &StoreLocation,
    flips: &[BitFlip],
) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for flip in flips {
        let (found, key) = raw.flip_bit(flip.table, flip.column, &flip.key, flip.bit).await?;
        let (code, faults) = run_verify(home, place, &[]).await.with_context(|| format!("{flip:?}"))?;
        ensure!(code == Some(6), "not found: {flip:?}: {code:?} {faults:?}");
        let is_named = |fault: &String| flip.named.iter().any(|name| fault.contains(name));
        ensure!(faults.iter().any(is_named), "not named: {flip:?}: {faults:?}");
        raw.write_cell(flip.table, flip.column, &key, &found).await?;
    }
    let (code, faults) = run_verify(home, place, &[]).await?;
    ensure!(code == Some(0), "put back, and yet {faults:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_flipped_bit_is_found_and_located_on_sqlite() -> Result<()> {
    let coordinator = run_to_end(StoreLocation::HomeFolder).await?;
    let mut raw = RawDatabase::connect_sqlite(&coordinator.home().join("docket.db")).await?;
    let flips = collect_flips(&mut raw).await?;
    raw.close().await?;
    let mut parts = tokio::task::JoinSet::new();
    for part in 0..HOMES {
        let home = tempfile::tempdir()?;
        std::fs::copy(coordinator.home().join("docket.db"), home.path().join("docket.db"))?;
        let flips: Vec<BitFlip> = flips.iter().skip(part).step_by(HOMES).cloned().collect();
        parts.spawn(async move {
            let mut raw = RawDatabase::connect_sqlite(&home.path().join("docket.db")).await?;
            raw.drop_triggers().await?;
            check_all_are_found(&mut raw, home.path(), &StoreLocation::HomeFolder, &flips).await
        });
    }
    while let Some(part) = parts.join_next().await {
        part.context("a part panicked")??;
    }
    Ok(())
}

/// The same on PostgreSQL: each column of the events in turn, so that every event and every column is met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_flipped_bit_is_found_and_located_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    let coordinator = run_to_end(place.clone()).await?;
    let StoreLocation::Postgres(url) = &place else { anyhow::bail!("a database") };
    let mut raw = RawDatabase::connect_postgres(url).await?;
    raw.drop_triggers().await?;
    let (events, rest): (Vec<BitFlip>, Vec<BitFlip>) =
        collect_flips(&mut raw).await?.into_iter().partition(|flip| flip.table == "events");
    let columns = EVENT_COLUMNS.len();
    let of_events = events
        .into_iter()
        .enumerate()
        .filter(|(at, _)| (at / columns) % columns == at % columns || at % 5 == 0);
    let rest = rest.into_iter().enumerate().filter(|(at, flip)| flip.table != "blobs" || at % 3 == 0);
    let some: Vec<BitFlip> = of_events.chain(rest).map(|(_, flip)| flip).collect();
    check_all_are_found(&mut raw, coordinator.home(), &place, &some).await
}

/// A fork stands on another run's events: those are looked at with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_in_parent_history_is_found_by_verifying_the_fork() -> Result<()> {
    let coordinator = run_to_end(StoreLocation::HomeFolder).await?;
    let home = coordinator.home();
    let docket = async |args: &[&str]| {
        let env = [("DOCKET_HOME", home.as_os_str())];
        run_program(TestProgram::Docket, home, &env, args).await?.into_stdout()
    };
    let tasks: Value =
        serde_json::from_str(docket(&["ps", "--json"]).await?.lines().next().context("a task")?)?;
    let parent = tasks["run"].as_str().or(tasks["last_run"].as_str()).context("a run")?.to_owned();
    let forked: Value = serde_json::from_str(&docket(&["fork", &parent, "--turn", "1", "--json"]).await?)?;
    let fork = forked["run"].as_str().context("a run")?.to_owned();
    let (code, faults) = run_verify(home, &StoreLocation::HomeFolder, &[&fork]).await?;
    ensure!(code == Some(0), "before: {faults:?}");
    let mut raw = RawDatabase::connect_sqlite(&home.join("docket.db")).await?;
    raw.drop_triggers().await?;
    let stream = format!("run/{parent}");
    let shared = raw.list_events().await?.into_iter().filter(|(_, of, _)| *of == stream).take(5);
    let shared: Vec<_> = shared.collect();
    ensure!(shared.len() == 5, "{stream} has events");
    for (position, stream, seq) in shared {
        let (found, key) =
            raw.flip_bit("events", "recorded_at", &format!("position = {position}"), 20).await?;
        let (code, faults) = run_verify(home, &StoreLocation::HomeFolder, &[&fork]).await?;
        let named = faults.iter().any(|fault| fault.contains(&format!("{stream}: event {seq} ")));
        ensure!(code == Some(6) && named, "event {seq}: {code:?} {faults:?}");
        raw.write_cell("events", "recorded_at", &key, &found).await?;
    }
    Ok(())
}

/// What a cell looks like with one bit flipped; bits count from the first byte, and from the last one
/// backwards where they are as large as a `usize` goes.
fn flip_cell(cell: &StoredCell, bit: usize) -> StoredCell {
    match cell {
        StoredCell::Int(n) => StoredCell::Int(n ^ (1 << (bit % 63))),
        StoredCell::Bytes(bytes) => {
            let mut bytes = bytes.clone();
            let bits = bytes.len() * 8;
            let bit = if bit > usize::MAX - 8 { bits - 8 + (bit - (usize::MAX - 7)) } else { bit % bits };
            bytes[bit / 8] ^= 1 << (bit % 8);
            StoredCell::Bytes(bytes)
        }
    }
}
