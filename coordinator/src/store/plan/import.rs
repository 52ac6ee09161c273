//! Import of streams from another installation, written unchanged, all or none.
//!
//! A stream that exists here is compared by the hash at its end, which covers everything before it. An
//! existing run is continued only if it is closed; an existing task is left as it is. A task that was
//! unfinished when it was exported ends here as cancelled, so that it is never leased, and every run is
//! closed. `system/imports` records what was written: with it and the tasks' streams every projection can be
//! derived again.

use docket_schema::{
    event::{Envelope, Head, NewEvent, Payload},
    ids::{Epoch, EventHash, Position, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{RunImported, StreamImported, SystemEvent, TaskRunRef},
    task::{TaskCancelled, TaskRecord},
};

use super::{append::stage_system_event, blobs::find_missing_blob, command::stage_task};
use crate::store::{
    ImportError, ImportOutcome, ImportStream,
    api::corrupt_error,
    db::{
        DbConn, SqlArg, TransactionError, read_envelope,
        row::{RunRow, StreamFence, StreamRow},
        select_events_sql,
    },
    writer::{
        DeadlineChange, EventRow, ImportStreams, StagedRequest, TaskRun, WorkingSet, decode_fork,
        into_new_event, run_change, task_runs,
    },
};

/// Reason recorded when an unfinished imported task is cancelled.
const IMPORT_CANCEL_REASON: &str =
    "imported from another installation, where it had not ended; `docket resume` goes on with its run here";

/// Plans an import. The outer error is a store failure, the inner one a refusal.
pub(super) async fn plan_import(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    command: &ImportStreams,
) -> Result<Result<ImportOutcome, ImportError>, TransactionError> {
    let mut staged = StagedRequest::default();
    let mut written = Vec::new();
    if let Some(archived) = find_archived_stream(conn, &command.import.streams).await? {
        return Ok(Err(ImportError::Archived(archived)));
    }
    for stream in &command.import.streams {
        let imported = match &stream.stream {
            StreamId::Task(task) => {
                stage_task_stream(set, conn, &mut staged, *task, stream, command.now).await?
            }
            StreamId::Run(run) => stage_run_stream(set, conn, &mut staged, *run, stream).await?,
            StreamId::Queue(_) | StreamId::System(_) => {
                return Err(
                    corrupt_error(format!("an import of {}, which was not checked", stream.stream)).into()
                );
            }
        };
        match imported {
            Ok(imported) => written.extend(imported),
            Err(refused) => return Ok(Err(refused)),
        }
    }
    if written.is_empty() {
        return Ok(Ok(ImportOutcome::default()));
    }
    if let Some(missing) = find_missing_blob(set, &command.import.required_blobs, &[]) {
        return Ok(Err(ImportError::BlobMissing(missing)));
    }
    record_import(set, conn, &mut staged, command, &written).await?;
    set.writes.touched.extend(&command.import.required_blobs);
    set.merge_staged(staged);
    Ok(Ok(ImportOutcome { streams: written }))
}

/// Finds a stream that is archived here: it must be restored, not imported.
async fn find_archived_stream(
    conn: &mut DbConn<'_>,
    streams: &[ImportStream],
) -> Result<Option<StreamId>, TransactionError> {
    let sql = format!(
        "SELECT name FROM archived_streams WHERE {} ORDER BY name LIMIT 1",
        conn.dialect().any_text_sql("name", 1)
    );
    let names = streams.iter().map(|stream| stream.stream.to_string()).collect();
    let Some(mut row) = conn.query_rows(&sql, vec![SqlArg::Texts(names)]).await?.pop() else {
        return Ok(None);
    };
    let name = row.get_text(0)?;
    Ok(Some(name.parse().map_err(|_| corrupt_error(format!("an archived stream named `{name}`")))?))
}

/// The import of a stream; `None` if all of it exists here.
type StagedImport = Result<Option<StreamImported>, ImportError>;

/// Stages a task's stream; an existing one must be the same task and is left as it is.
async fn stage_task_stream(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    task: TaskId,
    import: &ImportStream,
    now: Timestamp,
) -> Result<StagedImport, TransactionError> {
    if let Some(row) = staged.find_stream(set, &import.stream) {
        let first = import.events.first().map(|event| event.hash);
        let same = event_hash_at(set, conn, &row, Seq(1)).await? == first;
        let differs = || ImportError::Differs { stream: import.stream.clone(), seq: Seq(1) };
        return Ok(if same { Ok(None) } else { Err(differs()) });
    }
    let mut row = set.new_stream(conn).await?;
    let stream_id = row.id;
    stage_events_as_is(staged, &mut row, &import.events);
    let head = row.head;
    let folded =
        TaskRecord::fold(task, &import.events).map_err(|e| corrupt_error(format!("task {task}: {e}")))?;
    let mut record = folded.ok_or_else(|| corrupt_error(format!("task {task}: an import without events")))?;
    staged.streams.push((import.stream.clone(), row));
    if !record.state.is_ended() {
        let cancelled = TaskCancelled { by: "import".to_owned(), reason: IMPORT_CANCEL_REASON.to_owned() };
        stage_task(set, staged, &mut record, &[cancelled.into()], Epoch(0), now)?;
    }
    staged.tasks.push((record, stream_id, DeadlineChange::Keep));
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: Seq(1), head, run_of: None })))
}

/// Stages a run's stream; an existing one must be the same run and is continued where allowed.
async fn stage_run_stream(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    run: RunId,
    import: &ImportStream,
) -> Result<StagedImport, TransactionError> {
    let Some(of) = import.run_of else {
        return Err(corrupt_error(format!("an import of run {run} that does not say of which task")).into());
    };
    let file = Seq(import.events.len() as u64);
    let here = staged.find_stream(set, &import.stream);
    let known = here.as_ref().map_or(Seq(0), |row| row.head.seq);
    if let Some(row) = &here {
        if let Some(seq) = first_difference(set, conn, row, &import.events).await? {
            return Ok(Err(ImportError::Differs { stream: import.stream.clone(), seq }));
        }
        if file <= known {
            return Ok(Ok(None));
        }
        if row.fence != StreamFence::Closed {
            let stream = import.stream.clone();
            return Ok(Err(ImportError::DivergingRun { stream, here: known, file }));
        }
    }
    let place = find_task_run(set, conn, staged, run, of.task).await?;
    let mut row = match here {
        Some(row) => row,
        None => set.new_stream(conn).await?,
    };
    let new = import.events.get(known.0 as usize..).unwrap_or_default();
    stage_events_as_is(staged, &mut row, new);
    (row.epoch, row.fence) =
        place.map_or((Epoch(0), StreamFence::Closed), |place| (place.epoch, place.fence));
    let (head, stream_id) = (row.head, row.id);
    staged.streams.push((import.stream.clone(), row));
    stage_run_rows(staged, run, new, (known == Seq(0)).then_some((stream_id, of)));
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: known.next(), head, run_of: Some(of) })))
}

/// Returns the run as recorded in the task's stream, including staged events.
async fn find_task_run(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &StagedRequest,
    run: RunId,
    task: TaskId,
) -> Result<Option<TaskRun>, TransactionError> {
    let stream = StreamId::Task(task);
    let Some(row) = staged.find_stream(set, &stream) else { return Ok(None) };
    let mut events = Vec::new();
    let sql = select_events_sql("e.stream_id = $1 ORDER BY e.seq");
    for mut stored in conn.query_rows(&sql, vec![SqlArg::Int(row.id)]).await? {
        events.push(read_envelope(&mut stored)?);
    }
    let staged = set.writes.events.iter().chain(&staged.events).filter(|event| event.stream_id == row.id);
    events.extend(staged.map(|event| staged_envelope(&stream, event)));
    let mut runs = task_runs::runs_from_task_events(task, &events)?;
    Ok(runs.remove(&run))
}

fn staged_envelope(stream: &StreamId, event: &EventRow) -> Envelope {
    Envelope {
        stream: stream.clone(),
        seq: event.seq,
        position: Position(0),
        recorded_at: event.recorded_at,
        turn: event.turn,
        epoch: event.epoch,
        kind: event.kind.clone(),
        version: event.version,
        payload: Payload::from_store(event.payload.clone()),
        prev_hash: event.prev_hash,
        hash: event.hash,
    }
}

/// Stages the changes that a run's events make to its row; `new` (its stream and its place in a task) creates
/// the row.
pub(super) fn stage_run_rows(
    staged: &mut StagedRequest,
    run: RunId,
    events: &[Envelope],
    new: Option<(i64, TaskRunRef)>,
) {
    let events: Vec<(NewEvent, Timestamp)> =
        events.iter().map(|event| (into_new_event(event.clone()), event.recorded_at)).collect();
    if let Some((stream_id, TaskRunRef { task, attempt })) = new {
        let parent = events.first().and_then(|(first, _)| decode_fork(first));
        let parent = parent.map(|forked| (forked.parent, forked.seq));
        let stage = "living".to_owned();
        staged.new_runs.push(RunRow { id: run, stream_id, task, attempt, stage, parent, ended_at: None });
    }
    for (event, at) in events {
        staged.runs.extend(run_change(&event, at).map(|change| (run, change)));
    }
}

/// Stages events with their existing hashes.
pub(super) fn stage_events_as_is(staged: &mut StagedRequest, row: &mut StreamRow, events: &[Envelope]) {
    for event in events {
        staged.events.push(EventRow {
            stream_id: row.id,
            seq: event.seq,
            recorded_at: event.recorded_at,
            turn: event.turn,
            epoch: event.epoch,
            kind: event.kind.clone(),
            version: event.version,
            payload: event.payload.as_str().to_owned(),
            prev_hash: event.prev_hash,
            hash: event.hash,
        });
        row.head = Head { seq: event.seq, hash: event.hash };
        row.head_at = event.recorded_at;
    }
}

/// Finds the first event in which this stream and the file's differ, within their common length.
async fn first_difference(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    row: &StreamRow,
    file: &[Envelope],
) -> Result<Option<Seq>, TransactionError> {
    let common = Seq(row.head.seq.0.min(file.len() as u64));
    let theirs = |seq: Seq| file.get((seq.0 as usize).wrapping_sub(1)).map(|event| event.hash);
    if common == Seq(0) || event_hash_at(set, conn, row, common).await? == theirs(common) {
        return Ok(None);
    }
    // Hashes are chained, so every event after the first difference differs too, and bisection finds it.
    let (mut same, mut differs) = (Seq(0), common);
    while same.next() < differs {
        let middle = Seq(same.0.midpoint(differs.0));
        if event_hash_at(set, conn, row, middle).await? == theirs(middle) {
            same = middle;
        } else {
            differs = middle;
        }
    }
    Ok(Some(differs))
}

/// Returns the hash of an event here, written or staged.
async fn event_hash_at(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    row: &StreamRow,
    seq: Seq,
) -> Result<Option<EventHash>, TransactionError> {
    if seq == row.head.seq {
        return Ok(Some(row.head.hash));
    }
    let staged = set.writes.events.iter().find(|event| event.stream_id == row.id && event.seq == seq);
    if let Some(event) = staged {
        return Ok(Some(event.hash));
    }
    let sql = "SELECT hash FROM events WHERE stream_id = $1 AND seq = $2";
    let args = vec![SqlArg::Int(row.id), SqlArg::Int(i64::try_from(seq.0).unwrap_or(i64::MAX))];
    let mut found = conn.query_rows(sql, args).await?;
    Ok(found.first_mut().map(|row| row.get_array(0)).transpose()?.map(EventHash))
}

async fn record_import(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    command: &ImportStreams,
    written: &[StreamImported],
) -> Result<(), TransactionError> {
    let import = &command.import;
    let event = SystemEvent::from(RunImported {
        run: import.run,
        task: import.task,
        by: import.by.clone(),
        made_by: import.made_by.clone(),
        streams: written.to_vec(),
    });
    stage_system_event(set, conn, staged, SystemTopic::Imports, event, command.now).await
}
