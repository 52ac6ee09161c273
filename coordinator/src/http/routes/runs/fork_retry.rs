//! Plans the retry of a failed run that continues another run: it starts from the same point with
//! the same messages.
//!
//! Otherwise a single provider failure would drop a rejected or resumed run, and the next attempt
//! would start from the task's base without its history. Called by the append that ends such a run.
//! The opening events of the new stream are copied from the failed run; they reference its blobs,
//! so those are not garbage collected.

use docket_schema::{
    api::{EDIT_SNAPSHOTS_MAX, ProblemCode, RunView},
    event::{Envelope, NewEvent, TypedEvent as _},
    ids::{BlobHash, Epoch, RunId, Seq, StreamId},
    run::{Forked, RunEvent, RunOutcome},
    task::LeaseEnd,
};

use super::run_views::read_lineage;
use crate::http::{
    middleware::{api_error::ApiError, api_state::ApiState},
    routes::runs::task_policy,
};
use crate::{
    clock,
    decide::{RetryPlan, lease_end},
};

/// Maximum number of opening events of a stream: origin, a person's changes, the task's policy, and
/// some slack.
const OPENING_EVENTS_MAX: u32 = EDIT_SNAPSHOTS_MAX as u32 + 16;

/// Returns the retry of `run` and the blobs to keep for it, if `events` end the run as failed and
/// it continues another run.
pub(in crate::http) async fn plan_fork_retry(
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
    // An administrator may have changed the policy while the failed run was executing.
    let until = opening.last().map_or(first.seq, |last| last.seq);
    let history = read_lineage(api, run, until).await?;
    let changed = task_policy::last_policy_change(api, run.task).await?;
    let (policy, names) = task_policy::missing_policy_events(changed.as_ref(), &history, turn);
    begins.extend(policy);
    Ok(Some((RetryPlan { run: next, events: begins }, names)))
}

/// Whether the coordinator wrote the event when it created the run, before any worker had it.
fn is_opening_event(event: &Envelope) -> bool {
    let kinds = ["Forked", "WorkspaceEdited", "SnapshotTaken", "PolicyChanged"];
    event.epoch == Epoch(0) && kinds.contains(&event.kind.as_str())
}

fn damaged_log_error(run: RunId) -> ApiError {
    tracing::error!(%run, "the run continues another run, but its first event does not say so");
    ApiError::new(ProblemCode::Internal, "cannot read the run's log; run `docket verify`")
}
