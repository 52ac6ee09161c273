//! Routes of what comes from elsewhere and what is thrown away: import, garbage collection. For admins.
//!
//! Whoever sends an import is not trusted to have checked it: every line is read, every hash computed and
//! every stream folded again here, before the store is asked.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::Response,
};
use docket_schema::{
    content::BlobRef,
    event::Envelope,
    export::{Lineage, LineageError, Record},
    ids::{BlobHash, RunId, StreamId},
    names::Needs,
    snapshot::Manifest,
    system::{AdminAct, RunOf},
    wire::{
        GC_UNTOUCHED_MS_MIN, GcRequest, IMPORT_BYTES_MAX, IMPORT_PAGES_MAX, ImportRequest, ImportResponse,
        ProblemCode,
    },
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    error_chain::error_chain,
    gc,
    store::{Import, ImportError, ImportStream},
};

/// Longest name of what made a file, in bytes: it stands in the log.
const MADE_BY_BYTES_MAX: usize = 100;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn import(api: Arc<Api>, call: Call) -> Answered {
    let ImportRequest { run, task, made_by, pages } = call.json()?;
    let bytes = pages.iter().map(|page| page.bytes).fold(0_u64, u64::saturating_add);
    if pages.len() > IMPORT_PAGES_MAX || bytes > IMPORT_BYTES_MAX {
        let detail = format!(
            "an import has at most {IMPORT_PAGES_MAX} pages of {IMPORT_BYTES_MAX} bytes together; the run is too large"
        );
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("pages"));
    }
    if made_by.len() > MADE_BY_BYTES_MAX {
        let detail = format!("`made_by` has at most {MADE_BY_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("made_by"));
    }
    let mut lines = Vec::with_capacity(pages.len());
    for page in &pages {
        lines.push(stored(&api, page).await?);
    }
    let checked = tokio::task::spawn_blocking(move || check(run, &lines)).await.map_err(|error| {
        tracing::error!("checking an import: {error}");
        Refusal::new(ProblemCode::Internal, "the import could not be checked; its log says more")
    })?;
    let Checked { streams, mut needs, task: of } = checked?;
    if of != task {
        let detail = format!("run {run} is of task {of}, not of {task}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("task"));
    }
    let names = names(&api, &mut needs).await?;
    audit::record(&api, &call, AdminAct::Import { run, task }).await?;
    let import = Import { run, task, by: call.caller.name(), made_by, streams, names };
    let imported = api.store.import(import, api.clock.now()).await?;
    json(&ImportResponse { run, task, streams: imported.streams })
}

async fn stored(api: &Api, page: &BlobRef) -> Result<Bytes, Refusal> {
    let missing = || {
        let detail = format!("blob {} is not stored; upload it first", page.hash);
        Refusal::new(ProblemCode::BlobMissing, detail)
    };
    let bytes = api.store.blob(page.hash).await?.ok_or_else(missing)?;
    if bytes.len() as u64 != page.bytes {
        let detail = format!("blob {} has {} bytes, not {}", page.hash, bytes.len(), page.bytes);
        return Err(Refusal::new(ProblemCode::BlobMismatch, detail).field("pages"));
    }
    Ok(bytes)
}

struct Checked {
    streams: Vec<ImportStream>,
    needs: Needs,
    task: docket_schema::ids::TaskId,
}

fn check(run: RunId, pages: &[Bytes]) -> Result<Checked, Refusal> {
    let wrong = |line: u64, what: String| {
        Refusal::new(ProblemCode::InvalidRequest, format!("event {line}: {what}")).field("pages")
    };
    let mut lineage = Lineage::default();
    let mut needs = Needs::default();
    let mut streams: Vec<(StreamId, Vec<Envelope>)> = Vec::new();
    let lines = pages.iter().flat_map(|page| page.split(|b| *b == b'\n')).filter(|line| !line.is_empty());
    for (line, number) in lines.zip(1..) {
        let event = match serde_json::from_slice(line) {
            Ok(Record::Event(event)) => *event,
            Ok(Record::Header(_) | Record::Archive(_) | Record::Blob(_) | Record::End(_)) => {
                return Err(wrong(number, "a page holds nothing but events".to_owned()));
            }
            Err(error) => return Err(wrong(number, error.to_string())),
        };
        lineage.push(&event).map_err(|error| wrong(number, error_chain(&error)))?;
        needs.event(&event).map_err(|error| wrong(number, error_chain(&error)))?;
        match streams.last_mut().filter(|(stream, _)| *stream == event.stream) {
            Some((_, events)) => events.push(event),
            None => streams.push((event.stream.clone(), vec![event])),
        }
    }
    let lacking = |error: LineageError| wrong(lineage.events(), error_chain(&error));
    let runs: BTreeMap<RunId, RunOf> = lineage.runs(run).map_err(lacking)?.into_iter().collect();
    let Some(of) = runs.get(&run).copied() else {
        return Err(wrong(lineage.events(), format!("run {run} is not there")));
    };
    let streams = streams
        .into_iter()
        .map(|(stream, events)| {
            let run_of = if let StreamId::Run(run) = &stream { runs.get(run).copied() } else { None };
            ImportStream { stream, run_of, events }
        })
        .collect();
    Ok(Checked { streams, needs, task: of.task })
}

/// The blobs that must be stored, found through the manifests that are.
async fn names(api: &Api, needs: &mut Needs) -> Result<Vec<BlobHash>, Refusal> {
    let manifests: Vec<BlobRef> =
        needs.all().filter(|(_, need)| need.manifest.is_some()).map(|(blob, _)| blob).collect();
    for blob in manifests {
        let bytes = stored(api, &blob).await?;
        let manifest = Manifest::decode(&bytes).map_err(|error| {
            let detail = format!("blob {} should be a base's manifest: {error}", blob.hash);
            Refusal::new(ProblemCode::InvalidRequest, detail).field("pages")
        })?;
        needs.manifest(blob.hash, &manifest);
    }
    Ok(needs.required().map(|(blob, _)| blob.hash).collect())
}

impl From<ImportError> for Refusal {
    fn from(error: ImportError) -> Self {
        let text = error.to_string();
        match error {
            ImportError::Differs { .. } | ImportError::Lives { .. } | ImportError::Archived(_) => {
                Self::new(ProblemCode::WrongState, text).field("run")
            }
            ImportError::BlobMissing(_) => Self::new(ProblemCode::BlobMissing, text),
            ImportError::Store(error) => error.into(),
        }
    }
}

pub(super) async fn gc(api: Arc<Api>, call: Call) -> Answered {
    /// One at a time: a second would read the same log for the same blobs.
    static UNDER_WAY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let request: GcRequest = call.json()?;
    if request.untouched_for_ms.is_some_and(|ms| ms < GC_UNTOUCHED_MS_MIN) {
        let hours = GC_UNTOUCHED_MS_MIN / 3_600_000;
        let detail = format!("`untouched_for_ms` must be at least {GC_UNTOUCHED_MS_MIN} ({hours} hours)");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("untouched_for_ms"));
    }
    let Ok(_one) = UNDER_WAY.try_lock() else {
        let detail = "another garbage collection is under way; wait for its end";
        return Err(Refusal::new(ProblemCode::WrongState, detail));
    };
    audit::record(&api, &call, AdminAct::CollectGarbage { delete: request.delete }).await?;
    json(&gc::collect(&*api.store, request, |ms| api.clock.ago(ms)).await?)
}
