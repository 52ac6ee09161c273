//! Storage per turn, late versus early: one real run of many turns, with its log and the blobs that
//! each turn referenced first, measured as stored.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use anyhow::{Context as _, ensure};
use docket_coordinator::store::Store;
use docket_schema::{
    event::Envelope,
    ids::{BlobHash, Seq, StreamId},
    message::ModelRef,
    task::{SettingsPatch, TaskSpec},
};
use serde_json::{Value, json};

use crate::{
    groups::runs::turns::RunBench,
    harness::{backlog, docket_binary::GroupSite},
    report::{BenchReport, EffortLevel},
};

/// Turns around the tenth, averaged because equal turns differ by a few bytes.
const EARLY_TURNS: RangeInclusive<u32> = 6..=15;
/// The same number of final turns is compared with them.
const COMPARED_TURNS: u32 = 10;
/// The compression level of the stores.
const ZSTD_LEVEL: i32 = 1;
/// A run of a thousand turns that takes longer has hung.
const RUN_TIMEOUT: Duration = Duration::from_secs(100);
/// Number of events per page.
const PAGE_EVENTS: u32 = 1000;
/// Size of a row without payload and blob: hashes, numbers, timestamps.
const ROW_BYTES: usize = 150;

pub(crate) async fn measure(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let stage = RunBench::start(site, 1).await?;
    let measured = measure_on(&stage, effort.stored_turns(), report).await;
    let struck = stage.shut_down().await;
    measured.and(struck)
}

async fn measure_on(stage: &RunBench, turns: u32, report: &mut BenchReport) -> anyhow::Result<()> {
    let last_turns = turns + 1 - COMPARED_TURNS..=turns;
    let store = stage.running_coordinator().handle().store();
    let script = backlog::put_blob(&store, &stage.clock, model_script(turns).into_bytes()).await?;
    let model = ModelRef { provider: "scripted".to_owned(), name: "bench".to_owned(), base_url: None };
    let settings = SettingsPatch { turns_max: Some(turns + 10), ..SettingsPatch::default() };
    let (task, _) =
        stage.submit(TaskSpec { script: Some(script), settings, ..backlog::idle_task(model) }).await?;
    let record = stage.wait_until_completed_within(task, RUN_TIMEOUT).await?;
    let run = record.last_run.context("a completed task has a run")?;
    let (mut early, mut late) = (0, 0);
    let (mut after, mut named) = (Seq(0), BTreeSet::new());
    loop {
        let events = store.read_events(StreamId::Run(run), after, PAGE_EVENTS).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for event in &events {
            let bytes = stored_bytes(&*store, event, &mut named).await?;
            early += if EARLY_TURNS.contains(&event.turn.0) { bytes } else { 0 };
            late += if last_turns.contains(&event.turn.0) { bytes } else { 0 };
        }
    }
    ensure!(early > 0 && late > 0, "the run has no turn {turns}");
    let per_turn = |bytes: usize| bytes as f64 / f64::from(COMPARED_TURNS);
    report.set("stored_turns", f64::from(turns));
    report.set("stored_bytes_early_turn", per_turn(early));
    report.set("stored_bytes_late_turn", per_turn(late));
    report.set("stored_bytes_late_turn_ratio", late as f64 / early as f64);
    Ok(())
}

/// Returns the size of an event's row, and of the blobs first referenced by it.
async fn stored_bytes(
    store: &dyn Store,
    event: &Envelope,
    named: &mut BTreeSet<BlobHash>,
) -> anyhow::Result<usize> {
    let mut bytes = event.payload.as_str().len() + ROW_BYTES;
    let payload: Value = serde_json::from_str(event.payload.as_str())?;
    let mut hashes = Vec::new();
    collect_blobs(&payload, &mut hashes);
    for hash in hashes {
        if named.insert(hash)
            && let Some(blob) = store.read_blob(hash).await?
        {
            bytes += zstd::bulk::compress(&blob, ZSTD_LEVEL)?.len() + ROW_BYTES;
        }
    }
    Ok(bytes)
}

/// Collects every hash in a payload: of external content, and of files in snapshots.
fn collect_blobs(value: &Value, out: &mut Vec<BlobHash>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(hash) if name == "hash" => out.extend(hash.parse::<BlobHash>()),
                    _ => collect_blobs(value, out),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect_blobs(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A small file that differs from turn to turn by one line. The size of late requests dominates the time
/// here, and the smaller a turn is, the more visible is growth.
fn file_text(turn: u32) -> String {
    let line = "    pub fn scaled(&self, people: u32, of: u32) -> Self { Self { value: self.value } }\n";
    format!("// Turn {turn:04}.\n{}", line)
}

/// Alternately creates a file and reads it back, so that all turns have the same size. The files are in no
/// language, because linters take time and their findings are not part of the measurement.
fn model_script(turns: u32) -> String {
    let turns = (1..=turns + 2).map(|turn| {
        let path = format!("src/part_{:04}.txt", turn.div_ceil(2));
        let call = match turn % 2 {
            1 => json!({"name": "create_file", "args": {"path": path, "content": file_text(turn)}}),
            _ => json!({"name": "read_file", "args": {"path": path}}),
        };
        json!({"text": "The unit is read in one place only, so the change belongs there.", "calls": [call]})
    });
    let mut turns: Vec<Value> = turns.collect();
    turns.push(json!({"text": "Done."}));
    json!({ "turns": turns }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_hashes_are_found_anywhere_in_a_payload() {
        let hash = BlobHash::hash_bytes(b"x");
        let payload = json!({"changes": [{"path": "a", "entry": {"hash": hash.to_string(), "size": 1}}],
            "text": {"blob": {"hash": BlobHash::hash_bytes(b"y").to_string()}}, "hash": "no hash"});
        let mut found = Vec::new();
        collect_blobs(&payload, &mut found);
        assert_eq!(found, [hash, BlobHash::hash_bytes(b"y")]);
    }

    #[test]
    fn script_turns_differ_only_in_their_numbers() {
        let script: Value = serde_json::from_str(&model_script(1000)).expect("JSON");
        let turns = script["turns"].as_array().expect("turns");
        let size = |turn: usize| turns[turn].to_string().len();
        assert_eq!((size(0), size(1)), (size(998), size(999)));
    }
}
