//! Lineage groups: streams that are archived together, and the file they are copied into.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
};

use docket_schema::{
    api::{PAGE_EVENTS_MAX, RunView},
    blob_refs::BlobRefs,
    event::{Envelope, Head, TypedEvent as _},
    export::{ARCHIVE_EVENTS_MAX, ARCHIVE_STREAMS_MAX, ArchiveHeader, ExportWriter, VERSION},
    ids::{BlobHash, RunId, Seq, StreamId, TaskId, Timestamp},
    snapshot::Manifest,
    system::{ArchivedTask, StreamArchived, TaskRunRef},
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};
use tokio::sync::mpsc;

use crate::store::{Store, StoreError};

/// zstd level. Most content is packs, which do not shrink, and text, which compresses well at any level.
const ZSTD_LEVEL: i32 = 6;

/// Lines queued for the compression thread.
const LINES_IN_FLIGHT: usize = 64;

/// Why a lineage group is not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyGroupError {
    /// The group must stay in the log; the reason is for people.
    #[error("{0}")]
    MustStay(String),
    /// Another coordinator has already archived it.
    #[error("it no longer exists here")]
    Gone,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{path} cannot be written")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

fn must_stay(why: impl Into<String>) -> CopyGroupError {
    CopyGroupError::MustStay(why.into())
}

/// Streams that share history, in the order of their file.
#[derive(Debug)]
pub(super) struct LineageGroup {
    /// The group's first task by id.
    pub(super) task: TaskId,
    pub(super) tasks: Vec<(TaskId, Head)>,
    archived_tasks: BTreeMap<TaskId, ArchivedTask>,
    /// Runs, each after the run it continues.
    pub(super) runs: Vec<RunView>,
}

impl LineageGroup {
    /// Number of events in all streams.
    pub(super) fn event_count(&self) -> u64 {
        let tasks: u64 = self.tasks.iter().map(|(_, head)| head.seq.0).sum();
        tasks + self.runs.iter().map(|run| run.head.seq.0).sum::<u64>()
    }
}

/// Collects the group of the task `of`. `may_go` returns the reason why a task must stay, if there is one.
pub(super) async fn gather_group(
    store: &dyn Store,
    of: TaskId,
    may_go: impl Fn(&TaskRecord) -> Result<Timestamp, String>,
) -> Result<LineageGroup, CopyGroupError> {
    let mut runs: BTreeMap<RunId, RunView> = BTreeMap::new();
    let mut tasks: BTreeMap<TaskId, Head> = BTreeMap::new();
    let mut waiting = BTreeSet::from([of]);
    let mut kept_of = BTreeMap::new();
    while let Some(task) = waiting.pop_first() {
        let Some((record, _)) = store.get_task(task).await? else {
            if task == of {
                return Err(CopyGroupError::Gone);
            }
            return Err(must_stay(format!("task {} does not exist here", task.short())));
        };
        may_go(&record).map_err(CopyGroupError::MustStay)?;
        tasks.insert(task, Head { seq: record.seq, hash: record.hash });
        kept_of.extend(ArchivedTask::from_record(&record).map(|kept| (task, kept)));
        for run in store.list_task_runs(task).await? {
            if runs.contains_key(&run.id) {
                continue;
            }
            for (kin, _) in store.read_lineage(run.id, ARCHIVE_STREAMS_MAX as u32 + 1).await? {
                if !tasks.contains_key(&kin.task) {
                    waiting.insert(kin.task);
                }
                runs.insert(kin.id, kin);
            }
        }
        if runs.len() + tasks.len() + waiting.len() > ARCHIVE_STREAMS_MAX {
            return Err(must_stay(format!("more than {ARCHIVE_STREAMS_MAX} streams share its history")));
        }
    }
    let first = tasks.keys().next().copied().unwrap_or(of);
    let (tasks, runs) = (tasks.into_iter().collect(), parents_first(runs)?);
    let gathered = LineageGroup { task: first, tasks, archived_tasks: kept_of, runs };
    if gathered.event_count() > ARCHIVE_EVENTS_MAX {
        return Err(must_stay(format!(
            "it has more than {ARCHIVE_EVENTS_MAX} events, too many to restore at once"
        )));
    }
    if gathered.runs.iter().any(|run| run.ended_at.is_none() && run.status == "running") {
        return Err(must_stay("one of its runs is still running"));
    }
    Ok(gathered)
}

/// Sorts runs: parents first, otherwise by id.
fn parents_first(runs: BTreeMap<RunId, RunView>) -> Result<Vec<RunView>, CopyGroupError> {
    let (mut left, mut done, mut placed) = (runs, Vec::new(), BTreeSet::new());
    while !left.is_empty() {
        let ready: Vec<RunId> = left
            .values()
            .filter(|run| run.parent.is_none_or(|parent| placed.contains(&parent.run)))
            .map(|run| run.id)
            .collect();
        if ready.is_empty() {
            return Err(must_stay("one of its runs continues a run that does not exist here"));
        }
        for id in ready {
            placed.insert(id);
            done.extend(left.remove(&id));
        }
    }
    Ok(done)
}

/// What was written to the file.
#[derive(Debug)]
pub(super) struct CopiedGroup {
    pub(super) header: ArchiveHeader,
    pub(super) events: u64,
}

/// Writes a group to the file at `path`.
pub(super) async fn copy_group(
    store: &dyn Store,
    family: &LineageGroup,
    made_by: String,
    path: &Path,
) -> Result<CopiedGroup, CopyGroupError> {
    let failed = |source| CopyGroupError::File { path: path.to_owned(), source };
    let told = read_run_origins(store, family).await?;
    let tasks = family.tasks.iter().map(|(task, head)| StreamArchived {
        stream: StreamId::Task(*task),
        head: *head,
        run_of: None,
        task: family.archived_tasks.get(task).cloned().map(Box::new),
    });
    let mut streams: Vec<StreamArchived> = tasks.collect();
    for run in &family.runs {
        let Some(of) = told.get(&run.id).filter(|of| of.task == run.task) else {
            return Err(must_stay(format!(
                "its task does not mention run {}, which was imported",
                run.id.short()
            )));
        };
        let (stream, head) = (StreamId::Run(run.id), run.head);
        streams.push(StreamArchived { stream, head, run_of: Some(*of), task: None });
    }
    let header = ArchiveHeader { version: VERSION, task: family.task, made_by, streams };
    let (lines, waiting) = mpsc::channel::<String>(LINES_IN_FLIGHT);
    let to = path.to_owned();
    let compressed = tokio::task::spawn_blocking(move || write_compressed(&to, waiting));
    let written = write_group(store, &header, &lines).await;
    drop(lines);
    compressed.await.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)?;
    Ok(CopiedGroup { header, events: written? })
}

fn write_compressed(path: &Path, mut lines: mpsc::Receiver<String>) -> std::io::Result<()> {
    let mut to = zstd::Encoder::new(std::fs::File::create(path)?, ZSTD_LEVEL)?;
    while let Some(line) = lines.blocking_recv() {
        to.write_all(line.as_bytes())?;
    }
    to.finish().map(drop)
}

async fn write_group(
    store: &dyn Store,
    header: &ArchiveHeader,
    lines: &mpsc::Sender<String>,
) -> Result<u64, CopyGroupError> {
    // If the writer thread stopped, it reports the reason itself.
    let put = async |line: String| {
        lines.send(line).await.map_err(|_| {
            must_stay(
                "the file could not be \
         written to its end",
            )
        })
    };
    let (mut writer, first) = ExportWriter::begin_archive(header.clone());
    put(first).await?;
    let (mut needs, mut events) = (BlobRefs::default(), 0);
    for StreamArchived { stream, head, .. } in &header.streams {
        let mut after = Seq(0);
        while after < head.seq {
            let page = store.read_events(stream.clone(), after, PAGE_EVENTS_MAX).await?;
            let Some(last) = page.last().map(|event| event.seq) else {
                return Err(must_stay(format!(
                    "{stream} ends before its head; run `docket verify` for \
                     details"
                )));
            };
            for event in page.iter().filter(|event| event.seq <= head.seq) {
                let unknown = |error| must_stay(format!("{stream}, event {}: {error}", event.seq));
                needs.add_event(event).map_err(unknown)?;
                put(writer.encode_event(event)).await?;
                events += 1;
            }
            after = last;
        }
    }
    for hash in list_blobs(store, &mut needs).await? {
        let bytes =
            store.read_blob(hash).await?.ok_or_else(|| must_stay(format!("blob {hash} is not stored")))?;
        put(writer.encode_blob(&bytes)).await?;
    }
    put(writer.finish()).await?;
    Ok(events)
}

/// Lists the stored blobs that are referenced, manifests before the blobs they reference. Fails if a required
/// blob is missing.
async fn list_blobs(store: &dyn Store, needs: &mut BlobRefs) -> Result<Vec<BlobHash>, CopyGroupError> {
    let manifests: Vec<BlobHash> =
        needs.all().filter(|(_, need)| need.manifest.is_some()).map(|(blob, _)| blob.hash).collect();
    for hash in &manifests {
        let bytes =
            store.read_blob(*hash).await?.ok_or_else(|| must_stay(format!("blob {hash} is not stored")))?;
        let manifest =
            Manifest::decode(&bytes).map_err(|error| must_stay(format!("blob {hash}: {error}")))?;
        needs.add_manifest(*hash, &manifest);
    }
    let all: Vec<BlobHash> = needs.all().map(|(blob, _)| blob.hash).collect();
    let present: BTreeSet<BlobHash> = store.find_present_blobs(all.clone()).await?.into_iter().collect();
    if let Some((blob, need)) = needs.required().find(|(blob, _)| !present.contains(&blob.hash)) {
        let why =
            format!("blob {}, referenced by event {} of {}, is not stored", blob.hash, need.seq, need.stream);
        return Err(must_stay(why));
    }
    let first: BTreeSet<BlobHash> = manifests.iter().copied().collect();
    let rest = all.into_iter().filter(|hash| present.contains(hash) && !first.contains(hash));
    Ok(manifests.iter().copied().chain(rest).collect())
}

/// Reads the runs that the group's tasks name.
async fn read_run_origins(
    store: &dyn Store,
    family: &LineageGroup,
) -> Result<BTreeMap<RunId, TaskRunRef>, CopyGroupError> {
    let mut told = BTreeMap::new();
    for (task, head) in &family.tasks {
        let (mut record, mut after): (Option<TaskRecord>, _) = (None, Seq(0));
        while after < head.seq {
            let page = store.read_events(StreamId::Task(*task), after, PAGE_EVENTS_MAX).await?;
            let Some(last) = page.last().map(|event| event.seq) else { break };
            for event in &page {
                apply_task_event(&mut record, *task, event)
                    .map_err(|what| must_stay(format!("task {task}, event {}: {what}", event.seq)))?;
                let run = record.as_ref().and_then(|record| Some((record.last_run?, record.runs)));
                if let Some((run, attempt)) = run {
                    told.entry(run).or_insert(TaskRunRef { task: *task, attempt });
                }
            }
            after = last;
        }
    }
    Ok(told)
}

fn apply_task_event(record: &mut Option<TaskRecord>, task: TaskId, event: &Envelope) -> Result<(), String> {
    let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
        .map_err(|error| error.to_string())?;
    let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
    match (record.as_mut(), typed) {
        (None, TaskEvent::TaskSubmitted(first)) => {
            *record = Some(TaskRecord::from_submitted(task, meta, first))
        }
        (None, _) => return Err("a task cannot begin with this event".to_owned()),
        (Some(record), typed) => record.apply(meta, typed).map_err(|error| error.to_string())?,
    }
    Ok(())
}
