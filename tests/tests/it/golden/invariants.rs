//! What must hold of a golden log.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::TypedEvent as _,
    export::InMemoryExport,
    ids::DecisionHash,
    run::{RunEvent, RunStage, RunState},
    snapshot::OmittedPath,
};
use docket_worker::{
    engine, replay,
    run::BlobCache,
    workspace::{BlobSink as _, MemoryBlobs, RestoreTarget, WorkspaceOptions, materialize, restore},
};

use crate::time_travel::journey::{files_in, tree_hash};

async fn load_blobs(run: &InMemoryExport) -> Result<MemoryBlobs> {
    let mut blobs = MemoryBlobs::default();
    for bytes in run.blobs.values() {
        blobs.put(BlobRef::for_bytes(bytes), Bytes::copy_from_slice(bytes).to_vec()).await?;
    }
    Ok(blobs)
}

/// Every decision derived again and every request rendered again are the recorded ones.
pub(super) async fn verify_export(run: &InMemoryExport) -> Result<()> {
    let history = run.run_events();
    let verified = replay::verify(&history, &BlobCache::new(load_blobs(run).await?)).await?;
    // A run that ends before it asks a model has decisions alone.
    let asks = history.iter().any(|event| event.kind == "ModelRequested");
    ensure!(verified.decisions > 0 && (verified.requests > 0) == asks, "nothing was compared: {verified:?}");
    Ok(())
}

const fn event_decision(event: &RunEvent) -> Option<DecisionHash> {
    match event {
        RunEvent::ModelRequested(e) => Some(e.decision),
        RunEvent::ToolRequested(e) => Some(e.decision),
        RunEvent::GateRequested(e) => Some(e.decision),
        RunEvent::RunPaused(e) => Some(e.decision),
        RunEvent::RunBlocked(e) => Some(e.decision),
        RunEvent::Compacted(e) => e.decision,
        RunEvent::RunEnded(e) => e.decision,
        RunEvent::Concluded(e) => Some(e.decision),
        RunEvent::RoleBegan(e) => Some(e.decision),
        RunEvent::RunStarted(_)
        | RunEvent::Forked(_)
        | RunEvent::RunRecovered(_)
        | RunEvent::SetupFinished(_)
        | RunEvent::PhaseChanged(_)
        | RunEvent::ModelAnswered(_)
        | RunEvent::ModelFailed(_)
        | RunEvent::ToolFinished(_)
        | RunEvent::SnapshotTaken(_)
        | RunEvent::GateFinished(_)
        | RunEvent::Told(_)
        | RunEvent::CancelRequested(_)
        | RunEvent::PauseRequested(_)
        | RunEvent::Unpaused(_)
        | RunEvent::PolicyChanged(_)
        | RunEvent::LimitReached(_)
        | RunEvent::BlockerAnswered(_)
        | RunEvent::Delegated(_)
        | RunEvent::ChildAnswered(_)
        | RunEvent::WorkspaceEdited(_)
        | RunEvent::RolesPinned(_)
        | RunEvent::BaseChecked(_) => None,
    }
}

/// Each prefix folds, and where an intent follows it, the engine decides just that. How many were compared.
pub(super) fn check_decisions(run: &InMemoryExport) -> Result<usize> {
    let history = run.run_events();
    let mut state = RunState::default();
    let mut compared = 0;
    let mut last = None;
    for (at, event) in history.iter().enumerate() {
        let phase = |kind: &str| kind == "PhaseChanged";
        // A change of phase stands between a decision and its first intent.
        let next = history[at..].iter().find(|next| !phase(&next.kind));
        let begins = state.stage == RunStage::Deciding && !(at > 0 && phase(&history[at - 1].kind));
        if let (true, Some(next), Some(pins)) = (begins, next, &state.pins) {
            let typed = RunEvent::decode(&next.kind, next.version, next.payload.as_str())?;
            // What one decision concludes and the role that it takes up are two events.
            if let Some(recorded) = event_decision(&typed).filter(|recorded| last != Some(*recorded)) {
                let engine = engine::find_engine(&pins.engine).context("the engine of the log")?;
                let decided = engine.decide(&state);
                ensure!(decided.hash() == recorded, "event {} of {}: {decided:?}", next.seq, next.stream);
                compared += 1;
                last = Some(recorded);
            }
        }
        state.apply_envelope(event).with_context(|| format!("event {} of {}", event.seq, event.stream))?;
    }
    Ok(compared)
}

/// A workspace is brought from snapshot to snapshot, and its files are hashed by other code than docket's.
pub(super) async fn check_restores(run: &InMemoryExport) -> Result<usize> {
    let blobs = load_blobs(run).await?;
    let folder = tempfile::tempdir()?;
    let options = WorkspaceOptions::new(folder.path().join("cache"));
    let mut state = RunState::default();
    let mut workspace = None;
    let mut restored = 0;
    for event in &run.run_events() {
        let before = state.tree;
        state.apply_envelope(event)?;
        if let (None, Some(pins)) = (&workspace, &state.pins) {
            let at = folder.path().join("workspace");
            workspace = Some(materialize(&at, &pins.base, &blobs, &options).await?);
        }
        let (Some(workspace), Some(tree)) = (&mut workspace, state.tree) else { continue };
        if state.tree == before && event.kind != "SnapshotTaken" {
            continue;
        }
        let left_out: Vec<OmittedPath> =
            state.left_out.iter().map(|(path, why)| OmittedPath { path: path.clone(), why: *why }).collect();
        let target = RestoreTarget {
            overlay: &state.overlay,
            git_overlay: &state.git_overlay,
            left_out: &left_out,
            tree,
        };
        let place = || format!("event {} of {}", event.seq, event.stream);
        restore(workspace, &target, &blobs).await.with_context(place)?;
        let found = tree_hash(&files_in(workspace.path())?)?;
        ensure!(found == tree, "{}: {found} is not {tree}", place());
        restored += 1;
    }
    Ok(restored)
}
