//! The policy of a task as last changed by an administrator. It applies to retries, resumed runs
//! and forks: any submitter may request those, and must not be able to widen the policy by it.
//!
//! Read from the logs of the task's runs, the only place where the change is recorded.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use docket_schema::{
    api::{ParentRef, ProblemCode},
    event::{Envelope, NewEvent, TypedEvent as _},
    ids::{BlobHash, Position, Seq, StreamId, TaskId, Turn},
    policy::Policy,
    run::{PolicyChanged, RunEvent},
};

use super::run_views::read_parents;
use crate::http::middleware::{api_error::ApiError, api_state::ApiState};

type LatestPolicyChange = Option<(Position, PolicyChanged)>;

/// Returns the last policy change of a task, in any of its runs or their shared history.
pub(in crate::http) async fn last_policy_change(
    api: &ApiState,
    task: TaskId,
) -> Result<Option<PolicyChanged>, ApiError> {
    let mut latest: LatestPolicyChange = None;
    for run in api.store.list_task_runs(task).await? {
        let mut parts = read_parents(api, &run).await?;
        parts.push(ParentRef { run: run.id, seq: Seq(u64::MAX) });
        for part in parts {
            let found = last_change_in(api, part).await?;
            latest = [latest, found].into_iter().flatten().max_by_key(|(position, _)| *position);
        }
    }
    Ok(latest.map(|(_, changed)| changed))
}

async fn last_change_in(api: &ApiState, part: ParentRef) -> Result<LatestPolicyChange, ApiError> {
    let found: Arc<Mutex<Result<LatestPolicyChange, String>>> = Arc::new(Mutex::new(Ok(None)));
    let kept = Arc::clone(&found);
    let each = Box::new(move |event: &docket_schema::event::EventRef<'_>| {
        if event.seq > part.seq {
            return ControlFlow::Break(());
        }
        if event.kind == "PolicyChanged" {
            let read = decode_task_policy_change(event.kind, event.version, event.payload);
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(Some(changed)) => *kept = Ok(Some((event.position, changed))),
                Ok(None) => {}
                // An unreadable event may contain the restriction, so nothing continues without it.
                Err(error) => {
                    *kept = Err(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    api.store.scan_events(StreamId::Run(part.run), Seq(0), each).await?;
    let found = std::mem::replace(&mut *found.lock().unwrap_or_else(PoisonError::into_inner), Ok(None));
    found.map_err(|error| {
        tracing::error!(run = %part.run, "{error}");
        ApiError::new(ProblemCode::Internal, "cannot read a run's log; run `docket verify`")
    })
}

/// Decodes a change of the task's policy.
fn decode_task_policy_change(
    kind: &str,
    version: u16,
    payload: &str,
) -> Result<Option<PolicyChanged>, String> {
    match RunEvent::decode(kind, version, payload).map_err(|error| error.to_string())? {
        RunEvent::PolicyChanged(changed) if changed.of_task && changed.rules.is_some() => Ok(Some(changed)),
        _ => Ok(None),
    }
}

/// Returns the events that must follow `Forked` for the task's policy to apply to a run that
/// continues `history`, if any.
pub(in crate::http) fn missing_policy_events(
    changed: Option<&PolicyChanged>,
    history: &[Envelope],
    turn: Turn,
) -> (Vec<NewEvent>, Vec<BlobHash>) {
    let Some(changed) = changed else { return (Vec::new(), Vec::new()) };
    let there = history.iter().rev().filter(|event| event.kind == "PolicyChanged");
    let there = there.filter_map(|event| {
        decode_task_policy_change(&event.kind, event.version, event.payload.as_str()).ok()?
    });
    if there.map(|there| there.rules).next() == Some(changed.rules.clone()) {
        return (Vec::new(), Vec::new());
    }
    (vec![RunEvent::from(changed.clone()).encode(turn)], vec![changed.policy.hash])
}

/// Returns the task's policy: the changed one, otherwise the submitted one.
pub(in crate::http) fn effective_policy(
    changed: Option<PolicyChanged>,
    submitted: Option<Policy>,
) -> Option<Policy> {
    changed.and_then(|changed| changed.rules).or(submitted)
}
