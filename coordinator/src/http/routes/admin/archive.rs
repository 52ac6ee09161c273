//! Routes of the archive: archive old tasks, list archived ones, read an archive file, restore
//! tasks. All but listing are for admins, because the files contain exact snapshots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    api::{
        ARCHIVE_CHUNK_BYTES_MAX, ArchiveFileQuery, ArchiveRequest, ArchivedStreamPage, ArchivedStreamQuery,
        ArchivedStreamView, ArchivedTaskQuery, PAGE_EVENTS_MAX, PATTERN_BYTES_MAX, ProblemCode,
        RestoreResponse,
    },
    ids::{RunId, Timestamp},
    system::AdminAct,
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};
use crate::{
    archive::{
        ArchiveAccessError, ArchiveFileError, ArchivePassRequest, KeepFor, ObjectStorage, ObjectStorageError,
        RetentionPolicy, find_storage, restore_group,
    },
    error_chain::error_chain,
    store::{ArchiveStub, QueueSelection, RestoreError},
};

/// How long one request archives; the response says where to continue.
const PAGE_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Serializes archiving within the process; two concurrent passes would copy the same groups.
static ARCHIVE_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

type HandlerResult = Result<Response<Body>, ApiError>;

fn archive_busy_error() -> ApiError {
    let detail = "the archive is already in use by another archive or restore request; wait for it to finish";
    ApiError::new(ProblemCode::WrongState, detail)
}

pub(in crate::http) async fn archive_tasks(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let ArchiveRequest { older_than_ms, queue, dry_run, after } = call.json()?;
    let place = match &api.archive.url {
        Some(to) => Some(ObjectStorage::create(to).map_err(storage_error)?),
        None if dry_run => None,
        None => {
            let detail =
                "this coordinator has no archive; set `archive.to` to file:///FOLDER or s3://BUCKET/PREFIX";
            return Err(ApiError::new(ProblemCode::WrongState, detail));
        }
    };
    let Ok(_one) = ARCHIVE_LOCK.try_lock() else { return Err(archive_busy_error()) };
    if !dry_run && after.is_none() {
        audit::record_admin_act(&api, &call, AdminAct::Archive { older_than_ms, queue: queue.clone() })
            .await?;
    }
    let now = api.clock.now();
    let ago = i64::try_from(older_than_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
    let asked = ArchivePassRequest {
        retention: RetentionPolicy { others: KeepFor::Ms(older_than_ms), queues: BTreeMap::new() },
        queues: queue.map_or_else(|| QueueSelection::AllBut(Vec::new()), QueueSelection::Only),
        before: Timestamp(now.0.saturating_sub(ago)),
        after,
        dry_run,
        by: call.caller.log_name(),
        time: PAGE_TIME_LIMIT,
    };
    json_response(&api.task_archiver().archive_page(place.as_ref(), &asked).await.map_err(archive_error)?)
}

pub(in crate::http) async fn list_archived(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let ArchivedStreamQuery { after } = call.query()?;
    let stubs = api.store.list_stubs(after, PAGE_EVENTS_MAX).await?;
    let more = stubs.len() >= PAGE_EVENTS_MAX as usize;
    json_response(&ArchivedStreamPage { archived: stubs.into_iter().map(archived_view).collect(), more })
}

pub(in crate::http) async fn list_archived_tasks(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: ArchivedTaskQuery = call.query()?;
    if query.title.as_ref().is_some_and(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
        let detail = format!("a pattern may have at most {PATTERN_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("title"));
    }
    json_response(&api.store.list_archived_tasks(query).await?)
}

pub(in crate::http) async fn show_archived(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    json_response(&archived_view(find_stub(&api, &call).await?))
}

pub(in crate::http) async fn read_archive_file(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let ArchiveFileQuery { offset } = call.query()?;
    let stub = find_stub(&api, &call).await?;
    if offset >= stub.file_bytes {
        let detail = format!("the file has {} bytes", stub.file_bytes);
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("offset"));
    }
    let until = stub.file_bytes.min(offset.saturating_add(ARCHIVE_CHUNK_BYTES_MAX));
    let place = find_storage(&stub, api.archive.url.as_deref()).await.map_err(storage_error)?;
    let bytes = place.get_range(&stub.file, offset..until).await.map_err(storage_error)?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

pub(in crate::http) async fn restore_archived(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let stub = find_stub(&api, &call).await?;
    let Ok(_one) = ARCHIVE_LOCK.try_lock() else { return Err(archive_busy_error()) };
    audit::record_admin_act(&api, &call, AdminAct::Restore { stream: stub.stream.clone() }).await?;
    let back =
        restore_group(&api.task_archiver(), &stub, call.caller.log_name()).await.map_err(archive_error)?;
    json_response(&RestoreResponse {
        task: back.task,
        tasks: back.tasks,
        runs: back.runs,
        events: back.events,
    })
}

async fn find_stub(api: &ApiState, call: &ApiRequest) -> Result<ArchiveStub, ApiError> {
    // Task and run IDs have the same form.
    let RunId(id) = call.id()?;
    let absent = || ApiError::new(ProblemCode::NotFound, format!("no archived task or run has the id {id}"));
    api.store.find_stub(id).await?.ok_or_else(absent)
}

fn archived_view(stub: ArchiveStub) -> ArchivedStreamView {
    let ArchiveStub { stream, head, archived_at, location: place, file, file_hash, file_bytes, task: _ } =
        stub;
    ArchivedStreamView { stream, head, archived_at, place, file, file_hash, file_bytes }
}

/// Names the location, because a person has to check it. The reason uses our own words, because
/// library errors may contain paths and addresses; the coordinator's log has all of it.
fn storage_error(error: ObjectStorageError) -> ApiError {
    tracing::error!("the archive cannot be used: {}", error_chain(&error));
    match &error {
        ObjectStorageError::NotFound { .. } => {
            let detail = format!("{error}; if the archive was moved, set `archive.to` to its new location");
            ApiError::new(ProblemCode::Corrupt, detail)
        }
        ObjectStorageError::SizeMismatch { .. } => ApiError::new(ProblemCode::Corrupt, error.to_string()),
        ObjectStorageError::InvalidUrl(_) => ApiError::new(ProblemCode::Unavailable, error.to_string()),
        ObjectStorageError::Unavailable { place, doing, .. } => {
            let detail =
                format!("the archive {place} cannot be used while {doing}: {}", error.brief_reason());
            ApiError::new(ProblemCode::Unavailable, detail)
        }
        ObjectStorageError::Local { doing, .. } => {
            let detail = format!("the archive cannot be used: {doing} fails: {}", error.brief_reason());
            ApiError::new(ProblemCode::Unavailable, detail)
        }
    }
}

fn archive_error(error: ArchiveAccessError) -> ApiError {
    match error {
        ArchiveAccessError::Storage(error) => storage_error(error),
        ArchiveAccessError::Restores(error) => error.into(),
        ArchiveAccessError::Store(error) | ArchiveAccessError::File(ArchiveFileError::Store(error)) => {
            error.into()
        }
        ArchiveAccessError::File(ArchiveFileError::Restore(error)) => match error {
            RestoreError::Store(error) => error.into(),
            RestoreError::NotArchived(_) | RestoreError::AlreadyPresent(_) => {
                ApiError::new(ProblemCode::WrongState, error.to_string())
            }
            RestoreError::BlobMissing(_) => ApiError::new(ProblemCode::BlobMissing, error.to_string()),
        },
        ArchiveAccessError::File(
            error @ (ArchiveFileError::Altered { .. } | ArchiveFileError::Damaged(_)),
        ) => ApiError::new(ProblemCode::Corrupt, error_chain(&error)),
        ArchiveAccessError::File(error @ ArchiveFileError::Read { .. }) => {
            tracing::error!("a file of the archive: {}", error_chain(&error));
            let detail = "cannot read an archive file; see the coordinator's log for the reason";
            ApiError::new(ProblemCode::Unavailable, detail)
        }
    }
}
