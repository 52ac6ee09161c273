//! One turn that changes more paths than an append can hold: its snapshot comes in parts over several
//! appends, and counts whole or not at all, whoever dies in between.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{RunEvent, RunState},
    snapshot::Manifest,
    task::TaskState,
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot,
};
use docket_worker::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};

/// With their names of 200 bytes some 14 MB of changes.
const FILES: usize = 42_000;
const SCRIPT: &str = r#"
[[turns]]
text = "Many files."
calls = [{ name = "run_command", args = { command = "mkdir wide && cd wide && seq -f %0200.0f 42000 | xargs touch" } }]
[[turns]]
text = "Done."
"#;
/// A part that lies in the middle of the parts of the first append that holds some.
const A_PART: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_over_several_appends_is_atomic() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("README", "One file.\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("a UTF-8 path")?;
    let dies = Failpoint { seq: A_PART, when: FailpointTiming::After, epoch: 1, whom: FailpointTarget::Run };
    let worker = WorkerProcess::start(
        &coordinator,
        &WorkerOptions { failpoints: vec![dies], ..WorkerOptions::default() },
    )
    .await?;
    let args = ["--model", "scripted:wide", "--script", script];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await?;
    let said = || format!("{:?}\n{}", view.task.message, worker.log_tail());
    ensure!(view.task.state == TaskState::Completed, "{}", said());
    let run = view.task.last_run.context("a run")?;
    let history = coordinator.run_history(run).await?;
    history.verify(coordinator.client()).await?;

    // Half of it was there when the worker died, and the run stood where it had been before.
    let base = |state: &RunState| state.pins.as_ref().map(|pins| pins.base.tree);
    let (mut state, mut died_half_way) = (RunState::default(), false);
    for (envelope, event) in history.envelopes.iter().zip(&history.events) {
        state.apply(envelope.into(), event.clone())?;
        let is_part = matches!(event, RunEvent::SnapshotTaken(taken) if taken.more);
        ensure!(
            !is_part || (state.overlay.is_empty() && state.tree == base(&state)),
            "half a snapshot counts"
        );
        died_half_way |= is_part && envelope.epoch.0 == 1 && envelope.seq.0 > A_PART;
    }
    ensure!(died_half_way && view.task.epoch.0 == 2, "nobody died in between: {}", history.format_kinds());
    ensure!(state.overlay.len() == FILES, "{} paths", state.overlay.len());
    let files = state.overlay.iter().filter_map(|(path, entry)| Some((path.clone(), (*entry)?)));
    let mut expected = Manifest { entries: files.collect() };
    let readme = docket_schema::content::WorkspacePath::new("README").context("a path")?;
    let bytes = b"One file.\n";
    expected.entries.insert(
        readme,
        docket_schema::snapshot::Entry {
            kind: docket_schema::snapshot::EntryKind::File,
            mode: 0o644,
            size: bytes.len() as u64,
            hash: docket_schema::ids::BlobHash::hash_bytes(bytes),
        },
    );
    ensure!(history.final_tree() == Some(expected.tree_hash()), "the tree is not that of all parts");
    worker.drain().await?;
    coordinator.end_and_check().await
}
