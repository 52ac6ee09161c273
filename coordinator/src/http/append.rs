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
    event::{EVENTS_PER_APPEND_MAX, NewEvent, PAYLOAD_BYTES_MAX, TypedEvent as _},
    ids::{RunId, StreamId},
    run::{EventAuthor, RunEvent, RunOutcome},
    wire::{
        APPENDS_MAX, AppendManyRequest, AppendManyResponse, AppendRequest, AppendResponse, AppendResult,
        BLOB_HASHES_MAX, BlobUpload, ProblemCode, StreamAppend,
    },
};
use futures_util::future::join_all;

use super::{
    again::again,
    api::Api,
    auth::Caller,
    blobs::ref_of,
    call::{Call, json},
    commands,
    errors::Refusal,
    failpoint,
    runs::view,
};
use crate::{
    clock,
    decide::Settling,
    error_chain::error_chain,
    store::{Append, AppendError, Appended, CommandBlobs, CommandError, Condition, NewBlob},
};

/// Events told to a writer whose append came too late. Only the inbox writes between a holder's
/// appends, so it is rarely more than one; a holder that lacks more asks again after folding these.
const MISSING_EVENTS_MAX: u32 = 256;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn append(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    Api::must_be_of(&call.caller, run)?;
    let request: AppendRequest = call.json()?;
    Api::must_hold(&call.caller, run, request.epoch)?;
    json(&append_one(&api, run, request).await?)
}

pub(super) async fn append_many(api: Arc<Api>, call: Call) -> Answered {
    let AppendManyRequest { appends } = call.json()?;
    if appends.len() > APPENDS_MAX {
        let detail = format!("at most {APPENDS_MAX} appends in one request; send several");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("appends"));
    }
    // Sent to the store in order and all at once, so that they share its commits. Where two are
    // of one run the store may meet the later one first; that one is then sent again in its turn.
    let mut seen = HashSet::new();
    let follows: Vec<bool> = appends.iter().map(|append| !seen.insert(append.run)).collect();
    let again: Vec<Option<StreamAppend>> =
        appends.iter().zip(&follows).map(|(append, follows)| follows.then(|| append.clone())).collect();
    let mut results = join_all(appends.into_iter().map(|append| append_held(&api, append))).await;
    for (result, again) in results.iter_mut().zip(again) {
        let Some(append) = again else { continue };
        let expected = append.append.expected_seq;
        let early = result.as_ref().is_err_and(|r| r.head().is_some_and(|head| head.seq < expected));
        if early {
            *result = append_held(&api, append).await;
        }
    }
    let results = results
        .into_iter()
        .map(|result| match result {
            Ok(done) => AppendResult::Appended(done),
            Err(refusal) => AppendResult::Refused(refusal.into_problem()),
        })
        .collect();
    json(&AppendManyResponse { results })
}

async fn append_held(api: &Api, append: StreamAppend) -> Result<AppendResponse, Refusal> {
    let StreamAppend { run, token, append } = append;
    let caller = match api.run_tokens.check(&token) {
        Some((run, epoch)) => Caller::Run { run, epoch },
        None => return Err(Refusal::new(ProblemCode::Unauthorized, "this is no run token").field("token")),
    };
    Api::must_hold(&caller, run, append.epoch)?;
    append_one(api, run, append).await
}

async fn append_one(api: &Api, run: RunId, request: AppendRequest) -> Result<AppendResponse, Refusal> {
    let AppendRequest { expected_seq, epoch, events, blobs, names } = request;
    if names.len() > BLOB_HASHES_MAX {
        let detail = format!("an append names at most {BLOB_HASHES_MAX} blobs");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("names"));
    }
    let ends = check_events(run, &events)?;
    let ends_call = events.iter().any(|event| matches!(event.kind.as_str(), "ModelAnswered" | "ModelFailed"));
    let count = events.len();
    let blobs = uploaded(blobs).await?;
    let done = if ends {
        let (jitter, again) = (clock::jitter(), None);
        let settling = Settling { run, seq: expected_seq, epoch, events, jitter, again };
        settle(api, settling, CommandBlobs { blobs, names }).await?
    } else {
        let append = Append {
            stream: StreamId::Run(run),
            condition: Condition::Holder(expected_seq, epoch),
            events,
            blobs,
            names,
            now: api.clock.now(),
        };
        match api.store.append(append).await {
            Ok(done) => done,
            Err(error) => return Err(explained(api, run, error).await),
        }
    };
    if !done.repeated {
        failpoint::committed(&api.answers_lost, epoch, done.head.seq, count);
        api.wakes.appended(run);
    }
    if ends_call && api.model_limits.counts_calls() {
        // One that fails here counts until the run's next call, or its end: too few are let through, never too many.
        if let Err(error) = api.store.answered(run).await {
            tracing::warn!(%run, "a model call is counted on: {}", error_chain(&error));
        }
    }
    let limited = api.model_limits.providers();
    let budgets = api.budgets.load(std::sync::atomic::Ordering::Relaxed);
    Ok(AppendResponse { head: done.head, position: done.position, limited, budgets })
}

async fn settle(api: &Api, mut settling: Settling, mut blobs: CommandBlobs) -> Result<Appended, Refusal> {
    let run = settling.run;
    let view = view(api, run).await?;
    let task = view.task;
    if let Some((again, names)) = again(api, &view, &settling.events).await? {
        settling.again = Some(again);
        blobs.names.extend(names);
    }
    let now = api.clock.now();
    match api.store.command(task, commands::settle(settling, now), blobs, now).await {
        Ok((record, Some(done))) => {
            api.announce(&record);
            Ok(done)
        }
        Ok((_, None)) => {
            tracing::error!(%run, "a settling append was answered without its head");
            Err(Refusal::new(ProblemCode::Internal, "a fault of docket; its log says more"))
        }
        Err(CommandError::Append(error)) => Err(explained(api, run, *error).await),
        Err(error) => Err(error.into()),
    }
}

/// A refused append as its writer needs it: with the events it has not seen.
async fn explained(api: &Api, run: RunId, error: AppendError) -> Refusal {
    let AppendError::WrongSeq { expected, head } = error else { return error.into() };
    let missing = if head.seq > expected {
        api.store.read(StreamId::Run(run), expected, MISSING_EVENTS_MAX).await
    } else {
        Ok(Vec::new())
    };
    match missing {
        Ok(missing) => Refusal::from(AppendError::WrongSeq { expected, head }).missing(head, missing),
        Err(error) => error.into(),
    }
}

/// Refuses events that cannot be read again or are not a worker's to write. Answers whether the
/// last one ends the run or makes it rest.
fn check_events(run: RunId, events: &[NewEvent]) -> Result<bool, Refusal> {
    let wrong = |n: usize, detail: String| {
        Refusal::new(ProblemCode::InvalidRequest, detail).field(format!("events[{n}]"))
    };
    if events.is_empty() {
        return Err(
            Refusal::new(ProblemCode::InvalidRequest, "an append holds at least one event").field("events")
        );
    }
    if events.len() > EVENTS_PER_APPEND_MAX {
        let detail = format!("an append holds at most {EVENTS_PER_APPEND_MAX} events; split it");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("events"));
    }
    let mut settles = false;
    for (n, event) in events.iter().enumerate() {
        let payload = event.payload.as_str();
        if payload.len() > PAYLOAD_BYTES_MAX {
            let detail =
                format!("a payload has at most {PAYLOAD_BYTES_MAX} bytes; put its long parts into blobs");
            return Err(Refusal::new(ProblemCode::TooLarge, detail).field(format!("events[{n}].payload")));
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
        match part_of(run, &typed) {
            Part::Work => {}
            Part::Settles => settles = true,
            Part::NotTheirs => {
                return Err(wrong(n, format!("`{}` is written by the coordinator alone", event.kind)));
            }
            Part::OfAnother => return Err(wrong(n, format!("`{}` names another run", event.kind))),
        }
    }
    Ok(settles)
}

/// What an event is to the append that brings it.
enum Part {
    Work,
    /// It ends the lease.
    Settles,
    /// Only the coordinator writes it.
    NotTheirs,
    OfAnother,
}

fn part_of(run: RunId, event: &RunEvent) -> Part {
    match event {
        RunEvent::RunStarted(started) if started.run != run => Part::OfAnother,
        RunEvent::RunEnded(ended) if ended.result == RunOutcome::Superseded => Part::NotTheirs,
        RunEvent::RunEnded(_) | RunEvent::RunPaused(_) | RunEvent::RunBlocked(_) => Part::Settles,
        event if event.author() == EventAuthor::Coordinator => Part::NotTheirs,
        _ => Part::Work,
    }
}

pub(super) async fn uploaded(blobs: Vec<BlobUpload>) -> Result<Vec<NewBlob>, Refusal> {
    let mut checked = Vec::with_capacity(blobs.len());
    for (n, BlobUpload { blob, b64 }) in blobs.into_iter().enumerate() {
        let bytes = STANDARD.decode(b64).map(Bytes::from).map_err(|error| {
            Refusal::new(ProblemCode::InvalidRequest, format!("a blob's bytes come as base64: {error}"))
                .field(format!("blobs[{n}].b64"))
        })?;
        let found = ref_of(bytes.clone()).await?;
        if found != blob {
            let detail = format!(
                "the bytes are {} bytes of hash {}, not {} of {}",
                found.bytes, found.hash, blob.bytes, blob.hash
            );
            return Err(Refusal::new(ProblemCode::BlobMismatch, detail).field(format!("blobs[{n}]")));
        }
        checked.push(NewBlob { blob, bytes });
    }
    Ok(checked)
}
