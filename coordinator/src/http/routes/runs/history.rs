//! Routes that read a run's history: turns, past files, diffs, full outputs, exports.
//!
//! Workspace content is exact and available to administrators only; everything else was redacted
//! before it was recorded. Responses contain untrusted text, so none has a type that a browser
//! would execute.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    api::{
        DiffQuery, ExportFormat, ExportQuery, FilesQuery, OutputQuery, ProblemCode, TimelineQuery, TurnQuery,
    },
    ids::RunId,
    system::TokenRole,
};

use tokio::sync::SemaphorePermit;
use tokio_util::io::ReaderStream;

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    auth::Caller,
    request::{ApiRequest, json_response},
};
use crate::{
    history_cache::CachedRun,
    history_provider::{ContentAccess, ExportedRun, HistoryProvider, HistoryViewError},
};

type HandlerResult = Result<Response<Body>, ApiError>;

impl From<HistoryViewError> for ApiError {
    fn from(error: HistoryViewError) -> Self {
        Self::new(error.code, error.detail)
    }
}

/// Size of the chunks in which an export is read.
const EXPORT_CHUNK_BYTES: usize = 64 * 1024;

/// What a history request needs: the run, the views of its files, and a permit that is released if
/// the client disconnects.
type RunHistoryAccess<'a> = (Arc<CachedRun>, &'a dyn HistoryProvider, SemaphorePermit<'a>);

/// Acquires a permit to read history.
async fn acquire_history_permit(api: &ApiState) -> Result<SemaphorePermit<'_>, ApiError> {
    let ending = |_| ApiError::new(ProblemCode::Unavailable, "the coordinator is shutting down; try again");
    api.history_permits.acquire().await.map_err(ending)
}

/// Returns the provider of run file views.
fn require_run_history(api: &ApiState) -> Result<&dyn HistoryProvider, ApiError> {
    api.run_history.as_deref().ok_or_else(|| {
        let detail =
            "this coordinator cannot show run histories: the program that started it does not include them";
        ApiError::new(ProblemCode::NotFound, detail)
    })
}

/// Opens the requested run if it exists and can be read.
async fn open_run_history<'a>(
    api: &'a ApiState,
    call: &ApiRequest,
) -> Result<RunHistoryAccess<'a>, ApiError> {
    let run: RunId = call.id()?;
    let (past, room) = (require_run_history(api)?, acquire_history_permit(api).await?);
    Ok((api.histories.load_run(run).await?, past, room))
}

const fn content_access(caller: &Caller) -> ContentAccess {
    match caller {
        Caller::ApiToken { role: TokenRole::Admin, .. } => ContentAccess::Exact,
        Caller::ApiToken { .. } | Caller::RunToken { .. } | Caller::Anonymous => ContentAccess::Redacted,
    }
}

pub(in crate::http) async fn show_timeline(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    let TimelineQuery { after } = call.query()?;
    let _room = acquire_history_permit(&api).await?;
    json_response(&api.histories.load_run(run).await?.timeline(after))
}

pub(in crate::http) async fn show_turn(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let TurnQuery { turn } = call.query()?;
    let (run, past, _room) = open_run_history(&api, &call).await?;
    json_response(&past.get_turn(run, turn, content_access(&call.caller)).await?)
}

pub(in crate::http) async fn show_files(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: FilesQuery = call.query()?;
    let (run, past, _room) = open_run_history(&api, &call).await?;
    json_response(&past.get_files(run, query).await?)
}

pub(in crate::http) async fn show_diff(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: DiffQuery = call.query()?;
    let (run, past, _room) = open_run_history(&api, &call).await?;
    let with = match query.with {
        Some(with) => Some(api.histories.load_run(with).await?),
        None => None,
    };
    json_response(&past.diff_trees(run, with, query).await?)
}

pub(in crate::http) async fn show_output(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let OutputQuery { call: asked_call } = call.query()?;
    let (run, past, _room) = open_run_history(&api, &call).await?;
    let bytes = past.read_output(run, asked_call).await?;
    Ok(untrusted_response(Body::from(bytes), "text/plain; charset=utf-8"))
}

pub(in crate::http) async fn export_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let ExportQuery { form } = call.query()?;
    // docket's own format contains the blobs of snapshots; the other formats contain redacted content
    // only.
    if form == ExportFormat::Docket && content_access(&call.caller) != ContentAccess::Exact {
        let detail =
            "only administrators may export a run with its files; `form=jsonl` and `form=atif` contain none";
        return Err(ApiError::new(ProblemCode::Forbidden, detail).with_field("form"));
    }
    let run: RunId = call.id()?;
    super::run_views::find_run_view(&api, run).await?;
    let (past, _room) = (require_run_history(&api)?, acquire_history_permit(&api).await?);
    // The file is complete before it is sent, so a slow reader does not hold a permit.
    let ExportedRun { media_type: media, name, file, bytes } = past.export_run(run, form).await?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), EXPORT_CHUNK_BYTES);
    let mut response = untrusted_response(Body::from_stream(stream), media);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// Builds a response that a browser can only display as text or download.
fn untrusted_response(body: Body, media: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    response
}
