//! The tree of runs that share history: parents, siblings and children, with their changes.

use std::{collections::HashMap, sync::Arc};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{LINEAGE_VIEW_RUNS_MAX, LineageRun, LineageView, ProblemCode, RunView},
    ids::RunId,
    message::ModelRef,
    run::{EngineRef, RunEvent},
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

pub(in crate::http) async fn show_lineage(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let run: RunId = call.id()?;
    let one_more = u32::try_from(LINEAGE_VIEW_RUNS_MAX + 1).unwrap_or(u32::MAX);
    let mut found = api.store.read_lineage(run, one_more).await?;
    if found.is_empty() {
        return Err(ApiError::new(ProblemCode::NotFound, format!("there is no run {run}")));
    }
    let more = found.len() > LINEAGE_VIEW_RUNS_MAX;
    found.truncate(LINEAGE_VIEW_RUNS_MAX);
    json_response(&LineageView { runs: lineage_tree(found), more })
}

/// Engine and model of a run, as far as its first event and its parent's reveal them.
type EngineAndModel = (Option<EngineRef>, Option<ModelRef>);

/// Orders the runs depth first, so that parents come first. Values that a fork does not change are
/// its parent's.
fn lineage_tree(found: Vec<(RunView, Option<RunEvent>)>) -> Vec<LineageRun> {
    let ids: Vec<RunId> = found.iter().map(|(view, _)| view.id).collect();
    let mut children: HashMap<Option<RunId>, Vec<(RunView, Option<RunEvent>)>> = HashMap::new();
    // Children are popped from the end.
    for (view, first) in found.into_iter().rev() {
        let parent = view.parent.map(|parent| parent.run).filter(|parent| ids.contains(parent));
        children.entry(parent).or_default().push((view, first));
    }
    let roots = children.remove(&None).unwrap_or_default();
    let mut next: Vec<_> =
        roots.into_iter().map(|(view, first)| (view, first, EngineAndModel::default())).collect();
    let mut runs = Vec::with_capacity(ids.len());
    while let Some((view, first, mut pins)) = next.pop() {
        let (mut why, mut fork_turn) = (None, None);
        match first {
            Some(RunEvent::Forked(forked)) => {
                (why, fork_turn) = (Some(forked.why), Some(forked.turn.0));
                pins.0 = forked.engine.or(pins.0);
                pins.1 = forked.models.map(|models| models.main).or(pins.1);
            }
            Some(RunEvent::RunStarted(started)) => {
                pins = (Some(started.engine), Some(started.models.main));
            }
            Some(_) | None => {}
        }
        let own = children.remove(&Some(view.id)).unwrap_or_default();
        next.extend(own.into_iter().map(|(child, first)| (child, first, pins.clone())));
        runs.push(LineageRun { run: view, why, fork_turn, model: pins.1, engine: pins.0 });
    }
    runs
}
