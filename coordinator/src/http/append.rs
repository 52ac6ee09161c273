//! Routes that add events to a run: the hot path.
//!
//! Every event is decoded before it is written, so that a worker cannot write what no fold reads;
//! and what only the coordinator may say, no worker can. An append that ends the run or makes it
//! rest is a command, for the task moves with it; any other goes straight to the store.

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

use super::{
    api_error::ApiError,
    api_state::ApiState,
    auth::Caller,
    blobs::compute_blob_ref,
    commands, failpoint,
    fork_retry::plan_fork_retry,
    request::{ApiRequest, json_response},
    runs::find_run_view,
};
use crate::{
    clock,
    decide::RunFinish,
    error_chain::error_chain,
    store::{AppendCondition, AppendError, AppendOutcome, CommandBlobs, CommandError, LogAppend, NewBlob},
};

/// Events told to a writer whose append came too late. Only the inbox writes between a holder's
/// appends, so it is rarely more than one; a holder that lacks more asks again after folding these.
const MISSING_EVENTS_MAX: u32 = 256;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(super) async fn append_to_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    ApiState::require_run_token(&call.caller, run)?;
    let request: AppendRequest = call.json()?;
    ApiState::require_run_epoch(&call.caller, run, request.epoch)?;
    json_response(&append_events(&api, run, request).await?)
}

pub(super) async fn append_to_runs(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let AppendManyRequest { appends } = call.json()?;
    if appends.len() > APPENDS_MAX {
        let detail = format!("at most {APPENDS_MAX} appends in one request; send several");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("appends"));
    }
    // Sent to the store in order and all at once, so that they share its commits. Where two are
    // of one run the store may meet the later one first; that one is then sent again in its turn.
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
            return Err(ApiError::new(ProblemCode::Unauthorized, "this is no run token").with_field("token"));
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
        let detail = format!("an append names at most {BLOB_HASHES_MAX} blobs");
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
        // One that fails here counts until the run's next call, or its end: too few are let through, never too many.
        if let Err(error) = api.store.release_permit(run).await {
            tracing::warn!(%run, "a model call is counted on: {}", error_chain(&error));
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

/// A refused append as its writer needs it: with the events it has not seen.
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

/// Refuses events that cannot be read again or are not a worker's to write. Answers whether the
/// last one ends the run or makes it rest.
fn check_events(run: RunId, events: &[NewEvent]) -> Result<bool, ApiError> {
    let wrong = |n: usize, detail: String| {
        ApiError::new(ProblemCode::InvalidRequest, detail).with_field(format!("events[{n}]"))
    };
    if events.is_empty() {
        return Err(ApiError::new(ProblemCode::InvalidRequest, "an append holds at least one event")
            .with_field("events"));
    }
    if events.len() > EVENTS_PER_APPEND_MAX {
        let detail = format!("an append holds at most {EVENTS_PER_APPEND_MAX} events; split it");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("events"));
    }
    let mut settles = false;
    for (n, event) in events.iter().enumerate() {
        let payload = event.payload.as_str();
        if payload.len() > PAYLOAD_BYTES_MAX {
            let detail =
                format!("a payload has at most {PAYLOAD_BYTES_MAX} bytes; put its long parts into blobs");
            return Err(
                ApiError::new(ProblemCode::TooLarge, detail).with_field(format!("events[{n}].payload"))
            );
        }
        // The payload's text is kept as it is, and goes out again on single lines.
        if payload.bytes().any(|b| b == b'\n' || b == b'\r') {
            return Err(wrong(n, "a payload is compact JSON, without line breaks".to_owned()));
        }
        if settles {
            return Err(wrong(n, "nothing follows an event that ends the run or makes it rest".to_owned()));
        }
        // What no field of ours holds is not looked at by the decoder, and could not be read as text later.
        let half_a_pair = payload.contains("\\ud") || payload.contains("\\uD");
        if half_a_pair && let Err(error) = serde_json::from_str::<serde_json::Value>(payload) {
            return Err(wrong(n, format!("the payload is no text: {error}")));
        }
        let typed = RunEvent::decode(&event.kind, event.version, payload)
            .map_err(|error| wrong(n, error_chain(&error)))?;
        match event_role(run, &typed) {
            EventRole::WorkerEvent => {}
            EventRole::EndsLease => settles = true,
            EventRole::CoordinatorOnly => {
                return Err(wrong(n, format!("`{}` is written by the coordinator alone", event.kind)));
            }
            EventRole::OtherRun => return Err(wrong(n, format!("`{}` names another run", event.kind))),
        }
    }
    Ok(settles)
}

/// What an event is to the append that brings it.
enum EventRole {
    WorkerEvent,
    /// It ends the lease.
    EndsLease,
    /// Only the coordinator writes it.
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

pub(super) async fn verify_blob_uploads(blobs: Vec<BlobUpload>) -> Result<Vec<NewBlob>, ApiError> {
    let mut checked = Vec::with_capacity(blobs.len());
    for (n, BlobUpload { blob, b64 }) in blobs.into_iter().enumerate() {
        let bytes = STANDARD.decode(b64).map(Bytes::from).map_err(|error| {
            ApiError::new(ProblemCode::InvalidRequest, format!("a blob's bytes come as base64: {error}"))
                .with_field(format!("blobs[{n}].b64"))
        })?;
        let found = compute_blob_ref(bytes.clone()).await?;
        if found != blob {
            let detail = format!(
                "the bytes are {} bytes of hash {}, not {} of {}",
                found.bytes, found.hash, blob.bytes, blob.hash
            );
            return Err(ApiError::new(ProblemCode::BlobMismatch, detail).with_field(format!("blobs[{n}]")));
        }
        checked.push(NewBlob { blob, bytes });
    }
    Ok(checked)
}
