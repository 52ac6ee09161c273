//! Routes that append events to runs; the hot path.
//!
//! Every event is decoded before it is written, so that a worker cannot write events that no fold
//! can read, or events reserved for the coordinator. An append that ends or blocks the run is a
//! command, because the task changes with it; any other append goes straight to the store.

use std::{collections::HashSet, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use docket_schema::{
    api::{
        APPENDS_MAX, AppendManyRequest, AppendManyResponse, AppendRequest, AppendResponse, AppendResult,
        BLOB_HASHES_MAX, BlobUpload, ProblemCode, StreamAppend,
    },
    event::{EVENTS_PER_APPEND_MAX, NewEvent, PAYLOAD_BYTES_MAX, TypedEvent as _},
    ids::{RunId, StreamId},
    run::{EventAuthor, RunEvent, RunOutcome},
};
use futures_util::future::join_all;

use super::{blobs::compute_blob_ref, fork_retry::plan_fork_retry, run_views::find_run_view};
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::Caller,
        failpoint,
        request::{ApiRequest, json_response},
    },
    routes::commands,
};
use crate::{
    clock,
    decide::RunFinish,
    error_chain::error_chain,
    store::{AppendCondition, AppendError, AppendOutcome, CommandBlobs, CommandError, LogAppend, NewBlob},
};

/// Maximum number of missing events returned to a writer with a stale sequence number. Only the
/// inbox writes between a holder's appends, so there is rarely more than one; a holder that misses
/// more asks again after folding these.
const MISSING_EVENTS_MAX: u32 = 256;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn append_to_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    ApiState::require_run_token(&call.caller, run)?;
    let request: AppendRequest = call.json()?;
    ApiState::require_run_epoch(&call.caller, run, request.epoch)?;
    json_response(&append_events(&api, run, request).await?)
}

pub(in crate::http) async fn append_to_runs(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let AppendManyRequest { appends } = call.json()?;
    if appends.len() > APPENDS_MAX {
        let detail = format!("at most {APPENDS_MAX} appends in one request; send several");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("appends"));
    }
    // Sent to the store in order and concurrently, so that they share commits. If two appends belong to
    // the same run, the store may process the later one first; that one is sent again in turn.
    let mut seen = HashSet::new();
    let follows: Vec<bool> = appends.iter().map(|append| !seen.insert(append.run)).collect();
    let again: Vec<Option<StreamAppend>> =
        appends.iter().zip(&follows).map(|(append, follows)| follows.then(|| append.clone())).collect();
    let mut results = join_all(appends.into_iter().map(|append| append_with_token(&api, append))).await;
    for (result, again) in results.iter_mut().zip(again) {
        let Some(append) = again else { continue };
        let expected = append.append.expected_seq;
        let early = result.as_ref().is_err_and(|r| r.head().is_some_and(|head| head.seq < expected));
        if early {
            *result = append_with_token(&api, append).await;
        }
    }
    let results = results
        .into_iter()
        .map(|result| match result {
            Ok(done) => AppendResult::Appended(done),
            Err(refusal) => AppendResult::Refused(refusal.into_problem()),
        })
        .collect();
    json_response(&AppendManyResponse { results })
}

async fn append_with_token(api: &ApiState, append: StreamAppend) -> Result<AppendResponse, ApiError> {
    let StreamAppend { run, token, append } = append;
    let caller = match api.run_tokens.verify_token(&token) {
        Some((run, epoch)) => Caller::RunToken { run, epoch },
        None => {
            return Err(
                ApiError::new(ProblemCode::Unauthorized, "this is not a run token").with_field("token")
            );
        }
    };
    ApiState::require_run_epoch(&caller, run, append.epoch)?;
    append_events(api, run, append).await
}

async fn append_events(
    api: &ApiState,
    run: RunId,
    request: AppendRequest,
) -> Result<AppendResponse, ApiError> {
    let AppendRequest { expected_seq, epoch, events, blobs, names } = request;
    if names.len() > BLOB_HASHES_MAX {
        let detail = format!("an append may reference at most {BLOB_HASHES_MAX} blobs");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("names"));
    }
    let ends = check_events(run, &events)?;
    let ends_call = events.iter().any(|event| matches!(event.kind.as_str(), "ModelAnswered" | "ModelFailed"));
    let count = events.len();
    let blobs = verify_blob_uploads(blobs).await?;
    let done = if ends {
        let (jitter, again) = (clock::random_jitter(), None);
        let settling = RunFinish { run, seq: expected_seq, epoch, events, jitter, retry_plan: again };
        append_and_finish(api, settling, CommandBlobs { blobs, required_blobs: names }).await?
    } else {
        let append = LogAppend {
            stream: StreamId::Run(run),
            condition: AppendCondition::LeaseHolder(expected_seq, epoch),
            events,
            blobs,
            required_blobs: names,
            now: api.clock.now(),
        };
        match api.store.append(append).await {
            Ok(done) => done,
            Err(error) => return Err(explain_append_error(api, run, error).await),
        }
    };
    if !done.was_repeated {
        failpoint::die_before_reply(&api.lost_replies, epoch, done.head.seq, count);
        api.wakeups.notify_append(run);
    }
    if ends_call && api.provider_limits.has_concurrency_limits() {
        // If the release fails, the call counts until the run's next call or its end, which only lets fewer
        // calls through.
        if let Err(error) = api.store.release_permit(run).await {
            tracing::warn!(%run, "cannot release the permit of a model call: {}", error_chain(&error));
        }
    }
    let limited = api.provider_limits.providers();
    let budgets = api.has_budgets.load(std::sync::atomic::Ordering::Relaxed);
    Ok(AppendResponse { head: done.head, position: done.position, limited, budgets })
}

async fn append_and_finish(
    api: &ApiState,
    mut settling: RunFinish,
    mut blobs: CommandBlobs,
) -> Result<AppendOutcome, ApiError> {
    let run = settling.run;
    let view = find_run_view(api, run).await?;
    let task = view.task;
    if let Some((again, names)) = plan_fork_retry(api, &view, &settling.events).await? {
        settling.retry_plan = Some(again);
        blobs.required_blobs.extend(names);
    }
    let now = api.clock.now();
    match api.store.execute_command(task, commands::finish_run(settling, now), blobs, now).await {
        Ok((record, Some(done))) => {
            api.wake_waiters(&record);
            Ok(done)
        }
        Ok((_, None)) => {
            tracing::error!(%run, "a settling append was answered without its head");
            Err(ApiError::new(ProblemCode::Internal, "a fault of docket; its log says more"))
        }
        Err(CommandError::Append(error)) => Err(explain_append_error(api, run, *error).await),
        Err(error) => Err(error.into()),
    }
}

/// Converts a refused append into an error with the events that the writer has not seen.
async fn explain_append_error(api: &ApiState, run: RunId, error: AppendError) -> ApiError {
    let AppendError::WrongSeq { expected, head } = error else { return error.into() };
    let missing = if head.seq > expected {
        api.store.read_events(StreamId::Run(run), expected, MISSING_EVENTS_MAX).await
    } else {
        Ok(Vec::new())
    };
    match missing {
        Ok(missing) => {
            ApiError::from(AppendError::WrongSeq { expected, head }).with_missing_events(head, missing)
        }
        Err(error) => error.into(),
    }
}

/// Refuses events that cannot be decoded or that workers may not write. Returns whether the last
/// event ends or blocks the run.
fn check_events(run: RunId, events: &[NewEvent]) -> Result<bool, ApiError> {
    let wrong = |n: usize, detail: String| {
        ApiError::new(ProblemCode::InvalidRequest, detail).with_field(format!("events[{n}]"))
    };
    if events.is_empty() {
        return Err(ApiError::new(ProblemCode::InvalidRequest, "an append must have at least one event")
            .with_field("events"));
    }
    if events.len() > EVENTS_PER_APPEND_MAX {
        let detail = format!("an append may have at most {EVENTS_PER_APPEND_MAX} events; split it");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("events"));
    }
    let mut settles = false;
    for (n, event) in events.iter().enumerate() {
        let payload = event.payload.as_str();
        if payload.len() > PAYLOAD_BYTES_MAX {
            let detail =
                format!("a payload may have at most {PAYLOAD_BYTES_MAX} bytes; put long parts into blobs");
            return Err(
                ApiError::new(ProblemCode::TooLarge, detail).with_field(format!("events[{n}].payload"))
            );
        }
        // The payload text is stored as is and must fit on a single line of SSE and JSON Lines output.
        if payload.bytes().any(|b| b == b'\n' || b == b'\r') {
            return Err(wrong(n, "a payload must be compact JSON without line breaks".to_owned()));
        }
        if settles {
            return Err(wrong(n, "no event may follow one that ends or blocks the run".to_owned()));
        }
        // The decoder does not look at unknown fields, so check separately that the payload is valid text.
        let half_a_pair = payload.contains("\\ud") || payload.contains("\\uD");
        if half_a_pair && let Err(error) = serde_json::from_str::<serde_json::Value>(payload) {
            return Err(wrong(n, format!("the payload is not valid text: {error}")));
        }
        let typed = RunEvent::decode(&event.kind, event.version, payload)
            .map_err(|error| wrong(n, error_chain(&error)))?;
        match event_role(run, &typed) {
            EventRole::WorkerEvent => {}
            EventRole::EndsLease => settles = true,
            EventRole::CoordinatorOnly => {
                return Err(wrong(n, format!("only the coordinator may write `{}`", event.kind)));
            }
            EventRole::OtherRun => return Err(wrong(n, format!("`{}` refers to another run", event.kind))),
        }
    }
    Ok(settles)
}

/// The role of an event in an append.
enum EventRole {
    WorkerEvent,
    /// The event ends the lease.
    EndsLease,
    /// Only the coordinator may write the event.
    CoordinatorOnly,
    OtherRun,
}

fn event_role(run: RunId, event: &RunEvent) -> EventRole {
    match event {
        RunEvent::RunStarted(started) if started.run != run => EventRole::OtherRun,
        RunEvent::RunEnded(ended) if ended.result == RunOutcome::Superseded => EventRole::CoordinatorOnly,
        RunEvent::RunEnded(_) | RunEvent::RunPaused(_) | RunEvent::RunBlocked(_) => EventRole::EndsLease,
        event if event.author() == EventAuthor::Coordinator => EventRole::CoordinatorOnly,
        _ => EventRole::WorkerEvent,
    }
}

pub(in crate::http) async fn verify_blob_uploads(blobs: Vec<BlobUpload>) -> Result<Vec<NewBlob>, ApiError> {
    let mut checked = Vec::with_capacity(blobs.len());
    for (n, BlobUpload { blob, b64 }) in blobs.into_iter().enumerate() {
        let bytes = STANDARD.decode(b64).map(Bytes::from).map_err(|error| {
            ApiError::new(ProblemCode::InvalidRequest, format!("a blob's content must be base64: {error}"))
                .with_field(format!("blobs[{n}].b64"))
        })?;
        let found = compute_blob_ref(bytes.clone()).await?;
        if found != blob {
            let detail = format!(
                "the content has {} bytes and hash {}, not {} and {}",
                found.bytes, found.hash, blob.bytes, blob.hash
            );
            return Err(ApiError::new(ProblemCode::BlobMismatch, detail).with_field(format!("blobs[{n}]")));
        }
        checked.push(NewBlob { blob, bytes });
    }
    Ok(checked)
}
