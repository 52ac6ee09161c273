//! Routes that look back at a run: its turns, files as they were, differences, whole outputs, a run as a file.
//!
//! What a workspace held is exact and goes to administrators alone; the rest was redacted before it was
//! recorded. Every answer is made of strangers' words: none is of a type that a browser would run.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    ids::RunId,
    system::Role,
    wire::{
        DiffQuery, ExportForm, ExportQuery, FilesQuery, OutputQuery, ProblemCode, TimelineQuery, TurnQuery,
    },
};

use tokio::sync::SemaphorePermit;
use tokio_util::io::ReaderStream;

use super::{
    api::Api,
    auth::Caller,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    history::CachedRun,
    past::{Exported, Eyes, Past, PastError},
};

type Answered = Result<Response<Body>, Refusal>;

impl From<PastError> for Refusal {
    fn from(error: PastError) -> Self {
        Self::new(error.code, error.detail)
    }
}

/// Bytes of an export that are in memory for whoever reads it.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a look back needs: the run, the views of its files, and a permit, which a client that disconnects frees.
type Asked<'a> = (Arc<CachedRun>, &'a dyn Past, SemaphorePermit<'a>);

/// Room for one who looks back.
async fn room(api: &Api) -> Result<SemaphorePermit<'_>, Refusal> {
    let ending = |_| Refusal::new(ProblemCode::Unavailable, "the coordinator ends; ask again");
    api.looks.acquire().await.map_err(ending)
}

/// What shows files of runs.
fn past(api: &Api) -> Result<&dyn Past, Refusal> {
    api.past.as_deref().ok_or_else(|| {
        let detail = "this coordinator shows no past: it was started by a program that brought none";
        Refusal::new(ProblemCode::NotFound, detail)
    })
}

/// The run that is asked for, where it is and can be looked back at.
async fn asked<'a>(api: &'a Api, call: &Call) -> Result<Asked<'a>, Refusal> {
    let run: RunId = call.id()?;
    let (past, room) = (past(api)?, room(api).await?);
    Ok((api.histories.read(run).await?, past, room))
}

const fn eyes(caller: &Caller) -> Eyes {
    match caller {
        Caller::Api { role: Role::Admin, .. } => Eyes::Exact,
        Caller::Api { .. } | Caller::Run { .. } | Caller::Anyone => Eyes::Redacted,
    }
}

pub(super) async fn timeline(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    let TimelineQuery { after } = call.query()?;
    let _room = room(&api).await?;
    json(&api.histories.read(run).await?.timeline(after))
}

pub(super) async fn turn(api: Arc<Api>, call: Call) -> Answered {
    let TurnQuery { turn } = call.query()?;
    let (run, past, _room) = asked(&api, &call).await?;
    json(&past.turn(run, turn, eyes(&call.caller)).await?)
}

pub(super) async fn files(api: Arc<Api>, call: Call) -> Answered {
    let query: FilesQuery = call.query()?;
    let (run, past, _room) = asked(&api, &call).await?;
    json(&past.files(run, query).await?)
}

pub(super) async fn diff(api: Arc<Api>, call: Call) -> Answered {
    let query: DiffQuery = call.query()?;
    let (run, past, _room) = asked(&api, &call).await?;
    let with = match query.with {
        Some(with) => Some(api.histories.read(with).await?),
        None => None,
    };
    json(&past.diff(run, with, query).await?)
}

pub(super) async fn output(api: Arc<Api>, call: Call) -> Answered {
    let OutputQuery { call: asked_call } = call.query()?;
    let (run, past, _room) = asked(&api, &call).await?;
    let bytes = past.output(run, asked_call).await?;
    Ok(shown(Body::from(bytes), "text/plain; charset=utf-8"))
}

pub(super) async fn export(api: Arc<Api>, call: Call) -> Answered {
    let ExportQuery { form } = call.query()?;
    // docket's own form holds the blobs of snapshots; the others hold what was redacted.
    if form == ExportForm::Docket && eyes(&call.caller) != Eyes::Exact {
        let detail = "a run with its files is for administrators; `form=jsonl` and `form=atif` hold none";
        return Err(Refusal::new(ProblemCode::Forbidden, detail).field("form"));
    }
    let run: RunId = call.id()?;
    super::runs::view(&api, run).await?;
    let (past, _room) = (past(&api)?, room(&api).await?);
    // Whoever reads the file slowly keeps nobody from looking back: it is made by then.
    let Exported { media, name, file, bytes } = past.export(run, form).await?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES);
    let mut response = shown(Body::from_stream(stream), media);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// Bytes that a browser shows as text, or keeps: never more.
fn shown(body: Body, media: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    response
}
