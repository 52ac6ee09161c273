//! The only path by which events leave the log, and the only one by which they return.
//!
//! Removal: rows are locked, the copied heads are compared with the current ones, and one transaction records
//! the removal in `system/archive`, leaves a stub for each stream, and deletes their rows. The database
//! itself refuses to delete an event whose stream has no stub of its exact head. Restore: the stubs are
//! deleted and the streams are written as they were, at new positions.

use std::collections::{BTreeMap, HashSet};

use docket_schema::{
    event::Head,
    ids::{Epoch, RunId, StreamId, SystemTopic, TaskId, Timestamp},
    system::{StreamArchived, StreamsArchived, StreamsRestored, SystemEvent, TaskRunRef},
    task::TaskRecord,
};

use super::{
    append::stage_system_event,
    blobs::find_missing_blob,
    import::{stage_events_as_is, stage_run_rows},
};
use crate::store::{
    ArchiveError, ArchiveRefusal, ArchiveStub, RestoreDestination, RestoreError, RestoreRequest,
    RestoreStream,
    api::corrupt_error,
    archive::{STUB_COLUMNS, read_stub},
    db::{DbConn, SqlArg, TransactionError, row::StreamFence},
    writer::{
        DeadlineChange, DependencyChange, RemovedStream, StagedRequest, TaskRun, TaskRuns, WorkingSet,
        task_runs,
    },
};

/// The stream that records removals and restores.
pub(super) const ARCHIVE_STREAM: StreamId = StreamId::System(SystemTopic::Archive);

/// Plans a removal. The outer error is a store failure, the inner one a refusal.
pub(super) async fn plan_removal(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    archived: &StreamsArchived,
    now: Timestamp,
) -> Result<Result<(), ArchiveError>, TransactionError> {
    let StreamsArchived { place, file, hash, bytes, streams, .. } = archived;
    if let Some(refused) = removal_refusal(set, archived) {
        return Ok(Err(refused.into()));
    }
    let runs: Vec<RunId> = streams.iter().filter_map(archived_run_id).collect();
    if let Some(run) = find_shared_run(set, conn, &runs).await? {
        return Ok(Err(ArchiveRefusal::HasDescendant(StreamId::Run(run)).into()));
    }
    if let Some(task) = find_awaited_task(set, conn, streams).await? {
        return Ok(Err(ArchiveRefusal::HasDependent(task).into()));
    }
    let mut staged = StagedRequest::default();
    let event = SystemEvent::from(archived.clone());
    stage_system_event(set, conn, &mut staged, SystemTopic::Archive, event, now).await?;
    set.merge_staged(staged);
    // The time of its event, so that a stub can be derived from that.
    let archived_at = set.streams.get(&ARCHIVE_STREAM).map_or(now, |row| row.head_at);
    for StreamArchived { stream, head, run_of: _, task } in streams {
        let Some(row) = set.streams.remove(stream) else { continue };
        if let StreamId::Task(task) = stream {
            set.tasks.remove(task);
        }
        let stub = ArchiveStub {
            stream: stream.clone(),
            head: *head,
            archived_at,
            location: place.clone(),
            file: file.clone(),
            file_hash: *hash,
            file_bytes: *bytes,
            task: task.clone(),
        };
        set.writes.removed.push(RemovedStream { stream_id: row.id, stub });
    }
    Ok(Ok(()))
}

const fn archived_run_id(archived: &StreamArchived) -> Option<RunId> {
    match archived.stream {
        StreamId::Run(run) => Some(run),
        StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
    }
}

/// Returns why the streams must stay, based on the locked rows.
fn removal_refusal(set: &WorkingSet, archived: &StreamsArchived) -> Option<ArchiveRefusal> {
    let staged = |stream: &StreamId| set.writes.streams.contains_key(stream);
    archived.streams.iter().find_map(|StreamArchived { stream, head, .. }| {
        let Some(row) = set.streams.get(stream) else {
            return Some(ArchiveRefusal::NotFound(stream.clone()));
        };
        if row.head != *head || staged(stream) {
            return Some(ArchiveRefusal::ChangedSinceCopy(stream.clone()));
        }
        match stream {
            StreamId::Task(task) => {
                let ended = set.tasks.get(task).is_some_and(|(record, _)| record.state.is_ended());
                (!ended).then_some(ArchiveRefusal::TaskNotEnded(*task))
            }
            StreamId::Run(_) => {
                (row.fence != StreamFence::Closed).then(|| ArchiveRefusal::StreamNotClosed(stream.clone()))
            }
            StreamId::Queue(_) | StreamId::System(_) => Some(ArchiveRefusal::NotArchivable(stream.clone())),
        }
    })
}

/// Finds a run of the group whose history is shared by a run outside it, already written or staged in this
/// batch.
async fn find_shared_run(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    runs: &[RunId],
) -> Result<Option<RunId>, TransactionError> {
    let own: HashSet<RunId> = runs.iter().copied().collect();
    let staged = set.writes.new_runs.values().filter_map(|row| row.parent.map(|(parent, _)| parent));
    if let Some(parent) = staged.into_iter().find(|parent| own.contains(parent)) {
        return Ok(Some(parent));
    }
    let sql = format!("SELECT id, parent FROM runs WHERE {}", conn.dialect().any_blob_sql("parent", 1));
    for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuids(runs.iter().map(|run| run.0))]).await? {
        let (child, parent) = (RunId(row.get_uuid(0)?), RunId(row.get_uuid(1)?));
        if !own.contains(&child) {
            return Ok(Some(parent));
        }
    }
    Ok(None)
}

/// Finds a task of the group that another waits for: without it that task would never be released.
async fn find_awaited_task(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    streams: &[StreamArchived],
) -> Result<Option<TaskId>, TransactionError> {
    let tasks: Vec<TaskId> = streams
        .iter()
        .filter_map(|archived| match archived.stream {
            StreamId::Task(task) => Some(task),
            StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
        })
        .collect();
    let begun = set
        .writes
        .dependencies
        .iter()
        .find(|((on, _), waits)| **waits == DependencyChange::Added && tasks.contains(on));
    if let Some(((on, _), _)) = begun {
        return Ok(Some(*on));
    }
    let any = conn.dialect().any_blob_sql("dependency", 1);
    let sql = format!("SELECT dependency FROM task_dependencies WHERE {any} LIMIT 1");
    let mut found = conn.query_rows(&sql, vec![SqlArg::from_uuids(tasks.iter().map(|task| task.0))]).await?;
    Ok(found.first_mut().map(|row| row.get_uuid(0)).transpose()?.map(TaskId))
}

/// Plans a restore. The outer error is a store failure, the inner one a refusal.
pub(super) async fn plan_restore(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    restore: &RestoreRequest,
    now: Timestamp,
) -> Result<Result<(), RestoreError>, TransactionError> {
    let stubs = load_stubs(conn, restore).await?;
    for RestoreStream { stream, events, .. } in &restore.streams {
        let last = events.last().map(|event| Head { seq: event.seq, hash: event.hash });
        let archived = stubs.get(stream).map(|stub| stub.head);
        if restore.destination == RestoreDestination::OriginalLog
            && archived != Some(last.unwrap_or(Head::EMPTY))
        {
            return Ok(Err(RestoreError::NotArchived(stream.clone())));
        }
        if set.streams.contains_key(stream) {
            return Ok(Err(RestoreError::AlreadyPresent(stream.clone())));
        }
    }
    if let Some(missing) = find_missing_blob(set, &restore.required_blobs, &[]) {
        return Ok(Err(RestoreError::BlobMissing(missing)));
    }
    let mut staged = StagedRequest::default();
    let mut known = TaskRuns::new();
    for stream in &restore.streams {
        match &stream.stream {
            StreamId::Task(task) => {
                let (mut record, id) = (None, stage_stream(set, conn, &mut staged, stream, None).await?);
                for event in &stream.events {
                    task_runs::apply_task_event(&mut known, &mut record, *task, event)?;
                }
                let record: TaskRecord =
                    record.ok_or_else(|| corrupt_error(format!("task {task}: an archive without events")))?;
                staged.tasks.push((record, id, DeadlineChange::Keep));
            }
            StreamId::Run(run) => {
                stage_run(set, conn, &mut staged, *run, known.get(run).copied(), stream).await?;
            }
            StreamId::Queue(_) | StreamId::System(_) => {
                return Err(
                    corrupt_error(format!("an archive of {}, which was not checked", stream.stream)).into()
                );
            }
        }
    }
    if restore.destination == RestoreDestination::OriginalLog {
        let streams = restore.streams.iter().map(|stream| stream.stream.clone()).collect();
        let restored = StreamsRestored { task: restore.task, by: restore.by.clone(), streams };
        let event = SystemEvent::from(restored);
        stage_system_event(set, conn, &mut staged, SystemTopic::Archive, event, now).await?;
    }
    set.writes.restored.extend(restore.streams.iter().map(|stream| stream.stream.clone()));
    set.writes.touched.extend(&restore.required_blobs);
    set.merge_staged(staged);
    Ok(Ok(()))
}

async fn load_stubs(
    conn: &mut DbConn<'_>,
    restore: &RestoreRequest,
) -> Result<BTreeMap<StreamId, ArchiveStub>, TransactionError> {
    let dialect = conn.dialect();
    let sql = format!(
        "SELECT {STUB_COLUMNS} FROM archived_streams WHERE {} ORDER BY name{}",
        dialect.any_text_sql("name", 1),
        dialect.lock_rows_sql()
    );
    let names = restore.streams.iter().map(|stream| stream.stream.to_string()).collect();
    let mut stubs = BTreeMap::new();
    for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(names)]).await? {
        let stub = read_stub(&mut row)?;
        stubs.insert(stub.stream.clone(), stub);
    }
    Ok(stubs)
}

/// Stages a stream with its events; returns its number.
async fn stage_stream(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    stream: &RestoreStream,
    fenced: Option<(Epoch, StreamFence)>,
) -> Result<i64, TransactionError> {
    let mut row = set.new_stream(conn).await?;
    let id = row.id;
    stage_events_as_is(staged, &mut row, &stream.events);
    if let Some((epoch, fence)) = fenced {
        (row.epoch, row.fence) = (epoch, fence);
    }
    staged.streams.push((stream.stream.clone(), row));
    Ok(id)
}

async fn stage_run(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    run: RunId,
    place: Option<TaskRun>,
    stream: &RestoreStream,
) -> Result<(), TransactionError> {
    // No task's stream names an imported run.
    let of = place
        .map(|place| TaskRunRef { task: place.task, attempt: place.attempt })
        .or(stream.run_of)
        .ok_or_else(|| corrupt_error(format!("an archive of run {run} that does not say of which task")))?;
    let fenced = place.map_or((Epoch(0), StreamFence::Closed), |place| (place.epoch, place.fence));
    let stream_id = stage_stream(set, conn, staged, stream, Some(fenced)).await?;
    stage_run_rows(staged, run, &stream.events, Some((stream_id, of)));
    Ok(())
}
