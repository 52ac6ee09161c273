//! Routes of the archive: move old tasks there, look at what stands there, read a file, bring a family back.
//! For admins but the looking: files hold snapshots, and those are exact.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    ids::{RunId, Timestamp},
    system::AdminAct,
    wire::{
        ARCHIVE_PART_BYTES_MAX, ArchiveFileQuery, ArchiveRequest, ArchivedPage, ArchivedQuery,
        ArchivedTaskQuery, ArchivedView, PAGE_EVENTS_MAX, PATTERN_BYTES_MAX, ProblemCode, RestoreResponse,
    },
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    archive::{Asked, FileError, KeepFor, Place, PlaceError, RestoreFailed, Retention, find, restore},
    error_chain::error_chain,
    store::{Queues, RestoreError, Stub},
};

/// How long one request archives; its answer says where to go on.
const PAGE_TIME: Duration = Duration::from_secs(10);

/// One at a time in a process: two would copy the same families.
static UNDER_WAY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

type Answered = Result<Response<Body>, Refusal>;

fn busy() -> Refusal {
    let detail = "the archive is being written to, or a task brought back, already; wait for its end";
    Refusal::new(ProblemCode::WrongState, detail)
}

pub(super) async fn archive(api: Arc<Api>, call: Call) -> Answered {
    let ArchiveRequest { older_than_ms, queue, dry_run, after } = call.json()?;
    let place = match &api.archive.to {
        Some(to) => Some(Place::make(to).map_err(failed_place)?),
        None if dry_run => None,
        None => {
            let detail =
                "this coordinator has no archive; set `archive.to` to file:///FOLDER or s3://BUCKET/PREFIX";
            return Err(Refusal::new(ProblemCode::WrongState, detail));
        }
    };
    let Ok(_one) = UNDER_WAY.try_lock() else { return Err(busy()) };
    if !dry_run && after.is_none() {
        audit::record(&api, &call, AdminAct::Archive { older_than_ms, queue: queue.clone() }).await?;
    }
    let now = api.clock.now();
    let ago = i64::try_from(older_than_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
    let asked = Asked {
        retention: Retention { others: KeepFor::Ms(older_than_ms), queues: BTreeMap::new() },
        queues: queue.map_or_else(|| Queues::AllBut(Vec::new()), Queues::One),
        before: Timestamp(now.0.saturating_sub(ago)),
        after,
        dry_run,
        by: call.caller.name(),
        time: PAGE_TIME,
    };
    json(&api.archiver().page(place.as_ref(), &asked).await.map_err(failed)?)
}

pub(super) async fn list(api: Arc<Api>, call: Call) -> Answered {
    let ArchivedQuery { after } = call.query()?;
    let stubs = api.store.stubs(after, PAGE_EVENTS_MAX).await?;
    let more = stubs.len() >= PAGE_EVENTS_MAX as usize;
    json(&ArchivedPage { archived: stubs.into_iter().map(view).collect(), more })
}

pub(super) async fn tasks(api: Arc<Api>, call: Call) -> Answered {
    let query: ArchivedTaskQuery = call.query()?;
    if query.title.as_ref().is_some_and(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
        let detail = format!("a pattern has at most {PATTERN_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("title"));
    }
    json(&api.store.archived_tasks(query).await?)
}

pub(super) async fn show(api: Arc<Api>, call: Call) -> Answered {
    json(&view(stub(&api, &call).await?))
}

pub(super) async fn file(api: Arc<Api>, call: Call) -> Answered {
    let ArchiveFileQuery { offset } = call.query()?;
    let stub = stub(&api, &call).await?;
    if offset >= stub.file_bytes {
        let detail = format!("the file has {} bytes", stub.file_bytes);
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("offset"));
    }
    let until = stub.file_bytes.min(offset.saturating_add(ARCHIVE_PART_BYTES_MAX));
    let place = find(&stub, api.archive.to.as_deref()).await.map_err(failed_place)?;
    let bytes = place.get_part(&stub.file, offset..until).await.map_err(failed_place)?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

pub(super) async fn bring_back(api: Arc<Api>, call: Call) -> Answered {
    let stub = stub(&api, &call).await?;
    let Ok(_one) = UNDER_WAY.try_lock() else { return Err(busy()) };
    audit::record(&api, &call, AdminAct::Restore { stream: stub.stream.clone() }).await?;
    let back = restore(&api.archiver(), &stub, call.caller.name()).await.map_err(failed)?;
    json(&RestoreResponse { task: back.task, tasks: back.tasks, runs: back.runs, events: back.events })
}

async fn stub(api: &Api, call: &Call) -> Result<Stub, Refusal> {
    // Tasks and runs have ids of one form.
    let RunId(id) = call.id()?;
    let absent = || Refusal::new(ProblemCode::NotFound, format!("nothing with the id {id} is archived"));
    api.store.stub(id).await?.ok_or_else(absent)
}

fn view(stub: Stub) -> ArchivedView {
    let Stub { stream, head, archived_at, place, file, file_hash, file_bytes, task: _ } = stub;
    ArchivedView { stream, head, archived_at, place, file, file_hash, file_bytes }
}

/// Where it is, is told: a person has to look there. Why, in words of our own; all of it stands in the coordinator's
/// log, for a library's words may hold paths and addresses.
fn failed_place(error: PlaceError) -> Refusal {
    tracing::error!("the archive cannot be used: {}", error_chain(&error));
    match &error {
        PlaceError::NotThere { .. } => {
            let detail = format!("{error}; where the archive was moved, set `archive.to` to where it is now");
            Refusal::new(ProblemCode::Corrupt, detail)
        }
        PlaceError::OtherSize { .. } => Refusal::new(ProblemCode::Corrupt, error.to_string()),
        PlaceError::NoPlace(_) => Refusal::new(ProblemCode::Unavailable, error.to_string()),
        PlaceError::Store { place, doing, .. } => {
            let detail = format!("the archive {place} cannot be used while {doing}: {}", error.reason());
            Refusal::new(ProblemCode::Unavailable, detail)
        }
        PlaceError::Local { doing, .. } => {
            let detail = format!("the archive cannot be used: {doing} fails: {}", error.reason());
            Refusal::new(ProblemCode::Unavailable, detail)
        }
    }
}

fn failed(error: RestoreFailed) -> Refusal {
    match error {
        RestoreFailed::Place(error) => failed_place(error),
        RestoreFailed::Restores(error) => error.into(),
        RestoreFailed::Store(error) | RestoreFailed::File(FileError::Store(error)) => error.into(),
        RestoreFailed::File(FileError::Restore(error)) => match error {
            RestoreError::Store(error) => error.into(),
            RestoreError::NotArchived(_) | RestoreError::Here(_) => {
                Refusal::new(ProblemCode::WrongState, error.to_string())
            }
            RestoreError::BlobMissing(_) => Refusal::new(ProblemCode::BlobMissing, error.to_string()),
        },
        RestoreFailed::File(error @ (FileError::Altered { .. } | FileError::Damaged(_))) => {
            Refusal::new(ProblemCode::Corrupt, error_chain(&error))
        }
        RestoreFailed::File(error @ FileError::Read { .. }) => {
            tracing::error!("a file of the archive: {}", error_chain(&error));
            let detail = "a file of the archive cannot be read; the coordinator's log says why";
            Refusal::new(ProblemCode::Unavailable, detail)
        }
    }
}
