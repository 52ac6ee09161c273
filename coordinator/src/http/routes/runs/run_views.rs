//! Routes of runs: show, events, tell.
//!
//! A run token can read its own run, exactly the shared history of its parents, and the runs of its
//! children.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        EventPage, EventsQuery, ParentRef, PolicyRequest, ProblemCode, RunView, TELL_BYTES_MAX, TellRequest,
        TellResponse,
    },
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, Turn},
    run::{PolicyChanged, RunEvent, Told},
    system::AdminAct,
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::Caller,
        request::{ApiRequest, json_response},
    },
    routes::audit,
    stream::event_log::{check_page_limit, event_page, event_page_response},
};
use crate::{
    history_cache,
    store::{AppendCondition, AppendError, LogAppend, NewBlob, RunLeaseState},
    task_check::redact_policy,
};

/// Maximum number of events returned as one lineage; read a longer one run by run.
const LINEAGE_EVENTS_MAX: usize = 100_000;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn show_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    match call.caller {
        Caller::RunToken { run: own, .. } if own != run => Err(foreign_run_error()),
        Caller::RunToken { .. } | Caller::ApiToken { .. } | Caller::Anonymous => {
            json_response(&find_run_view(&api, run).await?)
        }
    }
}

pub(in crate::http) async fn list_run_events(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    let query: EventsQuery = call.query()?;
    let limit = check_page_limit(query.limit)?;
    let wrong =
        |field: &str, detail: &str| Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field));
    if query.stream.is_some() {
        return wrong("stream", "the path specifies the run");
    }
    let until = readable_until(&api, &call.caller, run).await?;
    if query.lineage {
        if query.after != Seq(0) {
            return wrong("after", "a lineage is always returned in full: omit `after`");
        }
        let view = find_run_view(&api, run).await?;
        return event_page_response(&EventPage {
            events: read_lineage(&api, &view, until).await?,
            more: false,
        });
    }
    let mut events = api.store.read_events(StreamId::Run(run), query.after, limit).await?;
    if events.is_empty() {
        // Distinguishes a run without new events from one that does not exist.
        find_run_view(&api, run).await?;
    }
    let mut page = {
        let read = events.len();
        events.retain(|event| event.seq <= until);
        let cut = events.len() < read;
        let mut page = event_page(events, limit);
        page.more &= !cut;
        page
    };
    page.more &= page.events.last().is_none_or(|last| last.seq < until);
    event_page_response(&page)
}

/// Returns up to which event `caller` may read `run`.
async fn readable_until(api: &ApiState, caller: &Caller, run: RunId) -> Result<Seq, ApiError> {
    let Caller::RunToken { run: own, .. } = caller else { return Ok(Seq(u64::MAX)) };
    if *own == run {
        return Ok(Seq(u64::MAX));
    }
    let own = find_run_view(api, *own).await?;
    let parents = read_parents(api, &own).await?;
    let shared = parents.iter().find(|parent| parent.run == run).map(|parent| parent.seq);
    match shared {
        Some(until) => Ok(until),
        // A run may read its children.
        None if is_child_run(api, own.id, run).await? => Ok(Seq(u64::MAX)),
        None => Err(foreign_run_error()),
    }
}

/// Whether `run` belongs to a task that the run `parent` delegated, as far as that run may know.
async fn is_child_run(api: &ApiState, parent: RunId, run: RunId) -> Result<bool, ApiError> {
    let Some(view) = api.store.get_run(run).await? else { return Ok(false) };
    let task = api.store.get_task(view.task).await?;
    Ok(task.and_then(|(task, _)| task.delegated_by).is_some_and(|by| by.run == parent))
}

/// Returns the runs whose history `of` shares, nearest first, each with the last shared event.
pub(in crate::http) async fn read_parents(api: &ApiState, of: &RunView) -> Result<Vec<ParentRef>, ApiError> {
    Ok(history_cache::list_parents(&*api.store, of).await?)
}

/// Returns the full history of a run up to `until` of its own stream, oldest first.
pub(in crate::http) async fn read_lineage(
    api: &ApiState,
    of: &RunView,
    until: Seq,
) -> Result<Vec<Envelope>, ApiError> {
    Ok(history_cache::read_lineage(&*api.store, of, until, LINEAGE_EVENTS_MAX).await?)
}

pub(in crate::http) async fn tell_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    let TellRequest { text } = call.json()?;
    if text.trim().is_empty() || text.len() > TELL_BYTES_MAX {
        let detail = format!("`text` must be 1 to {TELL_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("text"));
    }
    let (text, aside) = Content::inline_or_blob(api.redactor.redact_bytes(text.into_bytes()));
    let blobs = aside.map(|bytes| NewBlob { blob: BlobRef::for_bytes(&bytes), bytes: bytes.into() });
    let told = RunEvent::from(Told { text, by: call.caller.log_name() });
    append_to_running(&api, run, told, blobs.into_iter().collect()).await
}

/// Replaces the task's policy. The worker's own policy is not affected.
pub(in crate::http) async fn change_run_policy(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    let PolicyRequest { policy } = call.json()?;
    policy.check().map_err(|error| {
        ApiError::new(ProblemCode::InvalidRequest, error.to_string())
            .with_field(format!("policy.{}", error.field))
    })?;
    let rules = redact_policy(policy, &api.redactor);
    let bytes = serde_json::to_vec(&rules).map_err(|error| {
        ApiError::new(ProblemCode::InvalidRequest, error.to_string()).with_field("policy")
    })?;
    let blob = BlobRef::for_bytes(&bytes);
    let by = call.caller.log_name();
    match api.store.run_lease_state(run).await? {
        None => return Err(AppendError::StreamNotFound.into()),
        Some(RunLeaseState::Closed) => return Err(AppendError::Closed.into()),
        Some(RunLeaseState::Leased(_) | RunLeaseState::Unleased(_)) => {}
    }
    audit::record_admin_act(&api, &call, AdminAct::ChangePolicy { run }).await?;
    let changed = RunEvent::from(PolicyChanged { policy: blob, rules: Some(rules), of_task: true, by });
    append_to_running(&api, run, changed, vec![NewBlob { blob, bytes: bytes.into() }]).await
}

/// Appends an event from a person to a run.
async fn append_to_running(
    api: &ApiState,
    run: RunId,
    event: RunEvent,
    blobs: Vec<NewBlob>,
) -> HandlerResult {
    let append = LogAppend {
        stream: StreamId::Run(run),
        condition: AppendCondition::AtHead,
        events: vec![event.encode(Turn(0))],
        blobs,
        required_blobs: Vec::new(),
        now: api.clock.now(),
    };
    let done = api.store.append(append).await?;
    api.wakeups.notify_append(run);
    json_response(&TellResponse { head: done.head })
}

pub(in crate::http) async fn find_run_view(api: &ApiState, run: RunId) -> Result<RunView, ApiError> {
    Ok(history_cache::get_run_view(&*api.store, run).await?)
}

pub(in crate::http) fn foreign_run_error() -> ApiError {
    ApiError::new(
        ProblemCode::Forbidden,
        "a run token can only read its own run, its shared history and delegated runs",
    )
    .with_field("path")
}
