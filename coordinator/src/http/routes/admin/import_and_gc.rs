//! Routes of import and garbage collection. For admins.
//!
//! The sender of an import is not trusted: every line is parsed, every hash computed and every
//! stream folded again here before anything is stored.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::Response,
};
use docket_schema::{
    api::{
        GC_AGE_MS_MIN, GcRequest, IMPORT_BYTES_MAX, IMPORT_PAGES_MAX, ImportRequest, ImportResponse,
        ProblemCode,
    },
    blob_refs::BlobRefs,
    content::BlobRef,
    event::Envelope,
    export::{ExportRecord, LineageError, LineageValidator},
    ids::{BlobHash, RunId, StreamId},
    snapshot::Manifest,
    system::{AdminAct, TaskRunRef},
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
    error_chain::error_chain,
    gc,
    store::{ImportError, ImportStream, RunImport},
};

/// Maximum length of the producer's name in bytes, because it is recorded in the log.
const MADE_BY_BYTES_MAX: usize = 100;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn import_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let ImportRequest { run, task, made_by, pages } = call.json()?;
    let bytes = pages.iter().map(|page| page.bytes).fold(0_u64, u64::saturating_add);
    if pages.len() > IMPORT_PAGES_MAX || bytes > IMPORT_BYTES_MAX {
        let detail = format!(
            "the run is too large: an import may have at most {IMPORT_PAGES_MAX} pages with {IMPORT_BYTES_MAX} bytes in total"
        );
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("pages"));
    }
    if made_by.len() > MADE_BY_BYTES_MAX {
        let detail = format!("`made_by` may have at most {MADE_BY_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("made_by"));
    }
    let mut lines = Vec::with_capacity(pages.len());
    for page in &pages {
        lines.push(read_stored_page(&api, page).await?);
    }
    let checked = tokio::task::spawn_blocking(move || check_import(run, &lines)).await.map_err(|error| {
        tracing::error!("checking an import: {error}");
        ApiError::new(ProblemCode::Internal, "cannot check the import; see the coordinator's log")
    })?;
    let CheckedImport { streams, blob_refs: mut needs, task: of } = checked?;
    if of != task {
        let detail = format!("run {run} belongs to task {of}, not {task}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("task"));
    }
    let names = required_blobs(&api, &mut needs).await?;
    audit::record_admin_act(&api, &call, AdminAct::Import { run, task }).await?;
    let import = RunImport { run, task, by: call.caller.log_name(), made_by, streams, required_blobs: names };
    let imported = api.store.import_run(import, api.clock.now()).await?;
    json_response(&ImportResponse { run, task, streams: imported.streams })
}

async fn read_stored_page(api: &ApiState, page: &BlobRef) -> Result<Bytes, ApiError> {
    let missing = || {
        let detail = format!("blob {} is not stored; upload it first", page.hash);
        ApiError::new(ProblemCode::BlobMissing, detail)
    };
    let bytes = api.store.read_blob(page.hash).await?.ok_or_else(missing)?;
    if bytes.len() as u64 != page.bytes {
        let detail = format!("blob {} has {} bytes, not {}", page.hash, bytes.len(), page.bytes);
        return Err(ApiError::new(ProblemCode::BlobMismatch, detail).with_field("pages"));
    }
    Ok(bytes)
}

struct CheckedImport {
    streams: Vec<ImportStream>,
    blob_refs: BlobRefs,
    task: docket_schema::ids::TaskId,
}

fn check_import(run: RunId, pages: &[Bytes]) -> Result<CheckedImport, ApiError> {
    let wrong = |line: u64, what: String| {
        ApiError::new(ProblemCode::InvalidRequest, format!("event {line}: {what}")).with_field("pages")
    };
    let mut lineage = LineageValidator::default();
    let mut needs = BlobRefs::default();
    let mut streams: Vec<(StreamId, Vec<Envelope>)> = Vec::new();
    let lines = pages.iter().flat_map(|page| page.split(|b| *b == b'\n')).filter(|line| !line.is_empty());
    for (line, number) in lines.zip(1..) {
        let event = match serde_json::from_slice(line) {
            Ok(ExportRecord::Event(event)) => *event,
            Ok(
                ExportRecord::Header(_)
                | ExportRecord::Archive(_)
                | ExportRecord::Blob(_)
                | ExportRecord::End(_),
            ) => {
                return Err(wrong(number, "a page may only contain events".to_owned()));
            }
            Err(error) => return Err(wrong(number, error.to_string())),
        };
        lineage.push(&event).map_err(|error| wrong(number, error_chain(&error)))?;
        needs.add_event(&event).map_err(|error| wrong(number, error_chain(&error)))?;
        match streams.last_mut().filter(|(stream, _)| *stream == event.stream) {
            Some((_, events)) => events.push(event),
            None => streams.push((event.stream.clone(), vec![event])),
        }
    }
    let lacking = |error: LineageError| wrong(lineage.event_count(), error_chain(&error));
    let runs: BTreeMap<RunId, TaskRunRef> = lineage.resolve_runs(run).map_err(lacking)?.into_iter().collect();
    let Some(of) = runs.get(&run).copied() else {
        return Err(wrong(lineage.event_count(), format!("run {run} is missing")));
    };
    let streams = streams
        .into_iter()
        .map(|(stream, events)| {
            let run_of = if let StreamId::Run(run) = &stream { runs.get(run).copied() } else { None };
            ImportStream { stream, run_of, events }
        })
        .collect();
    Ok(CheckedImport { streams, blob_refs: needs, task: of.task })
}

/// Returns the blobs that must be stored, found through the stored manifests.
async fn required_blobs(api: &ApiState, needs: &mut BlobRefs) -> Result<Vec<BlobHash>, ApiError> {
    let manifests: Vec<BlobRef> =
        needs.all().filter(|(_, need)| need.manifest.is_some()).map(|(blob, _)| blob).collect();
    for blob in manifests {
        let bytes = read_stored_page(api, &blob).await?;
        let manifest = Manifest::decode(&bytes).map_err(|error| {
            let detail = format!("blob {} is not a valid base manifest: {error}", blob.hash);
            ApiError::new(ProblemCode::InvalidRequest, detail).with_field("pages")
        })?;
        needs.add_manifest(blob.hash, &manifest);
    }
    Ok(needs.required().map(|(blob, _)| blob.hash).collect())
}

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        let text = error.to_string();
        match error {
            ImportError::Differs { .. } | ImportError::DivergingRun { .. } | ImportError::Archived(_) => {
                Self::new(ProblemCode::WrongState, text).with_field("run")
            }
            ImportError::BlobMissing(_) => Self::new(ProblemCode::BlobMissing, text),
            ImportError::Store(error) => error.into(),
        }
    }
}

pub(in crate::http) async fn collect_garbage(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    /// Serializes garbage collection; a second one would read the same log for the same blobs.
    static GC_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let request: GcRequest = call.json()?;
    if request.untouched_for_ms.is_some_and(|ms| ms < GC_AGE_MS_MIN) {
        let hours = GC_AGE_MS_MIN / 3_600_000;
        let detail = format!("`untouched_for_ms` must be at least {GC_AGE_MS_MIN} ({hours} hours)");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("untouched_for_ms"));
    }
    let Ok(_one) = GC_LOCK.try_lock() else {
        let detail = "another garbage collection is running; wait for it to finish";
        return Err(ApiError::new(ProblemCode::WrongState, detail));
    };
    audit::record_admin_act(&api, &call, AdminAct::CollectGarbage { delete: request.delete }).await?;
    json_response(&gc::collect(&*api.store, request, |ms| api.clock.earliest_shown_within(ms)).await?)
}
