//! How a run that stands on another's history is tried again when it fails: from the same place, told the same words.
//!
//! A rejected result, or a run that somebody went on with, is not dropped for one failure of a provider: without this
//! the next try would begin at the task's base, knowing nothing of what was done and said. Called by the append that
//! ends such a run. What the new stream begins with is copied from the failed one's; its blobs are named there, so
//! nobody collects them.

use docket_schema::{
    api::{EDIT_SNAPSHOTS_MAX, ProblemCode, RunView},
    event::{Envelope, NewEvent, TypedEvent as _},
    ids::{BlobHash, Epoch, RunId, Seq, StreamId},
    run::{Forked, RunEvent, RunOutcome},
    task::LeaseEnd,
};

use super::{api_error::ApiError, api_state::ApiState, runs::read_lineage, task_policy};
use crate::{
    clock,
    decide::{RetryPlan, lease_end},
};

/// Events that a stream begins with at most: where it stands, what a person changed, the task's policy, with room.
const OPENING_EVENTS_MAX: u32 = EDIT_SNAPSHOTS_MAX as u32 + 16;

/// The next try of `run` with the blobs to be kept for it, where `events` end it as failed and it stands on another's
/// history.
pub(super) async fn plan_fork_retry(
    api: &ApiState,
    run: &RunView,
    events: &[NewEvent],
) -> Result<Option<(RetryPlan, Vec<BlobHash>)>, ApiError> {
    let has_failed = matches!(lease_end(events), Some(LeaseEnd::Ended(RunOutcome::Failed { .. })));
    if !has_failed || run.parent.is_none() {
        return Ok(None);
    }
    let stream = api.store.read_events(StreamId::Run(run.id), Seq(0), OPENING_EVENTS_MAX).await?;
    let opening: Vec<&Envelope> = stream.iter().take_while(|event| is_opening_event(event)).collect();
    let Some(first) = opening.first() else { return Err(damaged_log_error(run.id)) };
    let forked = RunEvent::decode(&first.kind, first.version, first.payload.as_str());
    let Ok(RunEvent::Forked(forked)) = forked else { return Err(damaged_log_error(run.id)) };
    let (turn, next) = (forked.turn, RunId(clock::new_id()));
    let mut begins = vec![RunEvent::from(Forked { run: next, ..forked }).encode(turn)];
    begins.extend(opening.iter().skip(1).map(|event| NewEvent {
        kind: event.kind.clone(),
        version: event.version,
        turn: event.turn,
        payload: event.payload.clone(),
    }));
    // An administrator may have changed it while the run that failed was at work.
    let until = opening.last().map_or(first.seq, |last| last.seq);
    let history = read_lineage(api, run, until).await?;
    let changed = task_policy::last_policy_change(api, run.task).await?;
    let (policy, names) = task_policy::missing_policy_events(changed.as_ref(), &history, turn);
    begins.extend(policy);
    Ok(Some((RetryPlan { run: next, events: begins }, names)))
}

/// What the coordinator wrote when it made the run, before any worker had it.
fn is_opening_event(event: &Envelope) -> bool {
    let kinds = ["Forked", "WorkspaceEdited", "SnapshotTaken", "PolicyChanged"];
    event.epoch == Epoch(0) && kinds.contains(&event.kind.as_str())
}

fn damaged_log_error(run: RunId) -> ApiError {
    tracing::error!(%run, "it stands on another run's history, and does not begin so");
    ApiError::new(ProblemCode::Internal, "the run's log cannot be read; run `docket verify`")
}
