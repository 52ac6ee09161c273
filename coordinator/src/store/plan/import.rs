//! Import: streams from another installation, written as they are; all of them or none.
//!
//! A stream that exists here is compared by the hash at its end, which covers all before it. A run that exists is
//! continued only if it is closed; a task that exists is left as it is. A task that had not ended when it was exported
//! ends here as cancelled, so that it is never leased by itself, and every run is closed. `system/imports` says what was written: with it and the tasks' streams every
//! projection can be derived again.

use docket_schema::{
    event::{Envelope, Head, NewEvent, Payload},
    ids::{Epoch, EventHash, Position, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{RunImported, RunOf, StreamImported, SystemEvent},
    task::{TaskCancelled, TaskRecord},
};

use super::{append::stage_system_event, blobs::missing_blob, command::stage_task};
use crate::store::{
    ImportError, ImportStream, Imported,
    api::corrupt,
    db::{
        Arg, Conn, TransactionError, envelope,
        row::{Fence, RunRow, StreamRow},
        select_events,
    },
    writer::{
        DeadlineChange, EventRow, ImportStreams, StagedRequest, TaskRun, WorkingSet, forked, into_new_event,
        run_change, task_runs,
    },
};

/// What ends an imported task that had not ended.
const CANCELLED_BECAUSE: &str =
    "imported from another installation, where it had not ended; `docket resume` goes on with its run here";

/// Plans an import. The outer error is the store's, the inner one a refusal.
pub(super) async fn plan_import(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    command: &ImportStreams,
) -> Result<Result<Imported, ImportError>, TransactionError> {
    let mut staged = StagedRequest::default();
    let mut written = Vec::new();
    if let Some(archived) = archived_among(conn, &command.import.streams).await? {
        return Ok(Err(ImportError::Archived(archived)));
    }
    for stream in &command.import.streams {
        let imported = match &stream.stream {
            StreamId::Task(task) => task_stream(set, conn, &mut staged, *task, stream, command.now).await?,
            StreamId::Run(run) => run_stream(set, conn, &mut staged, *run, stream).await?,
            StreamId::Queue(_) | StreamId::System(_) => {
                return Err(corrupt(format!("an import of {}, which was not checked", stream.stream)).into());
            }
        };
        match imported {
            Ok(imported) => written.extend(imported),
            Err(refused) => return Ok(Err(refused)),
        }
    }
    if written.is_empty() {
        return Ok(Ok(Imported::default()));
    }
    if let Some(missing) = missing_blob(set, &command.import.names, &[]) {
        return Ok(Err(ImportError::BlobMissing(missing)));
    }
    record_import(set, conn, &mut staged, command, &written).await?;
    set.writes.touched.extend(&command.import.names);
    set.accept(staged);
    Ok(Ok(Imported { streams: written }))
}

/// One of the streams that is archived here: it is brought back, not imported.
async fn archived_among(
    conn: &mut Conn<'_>,
    streams: &[ImportStream],
) -> Result<Option<StreamId>, TransactionError> {
    let sql = format!(
        "SELECT name FROM archived_streams WHERE {} ORDER BY name LIMIT 1",
        conn.dialect().any_text("name", 1)
    );
    let names = streams.iter().map(|stream| stream.stream.to_string()).collect();
    let Some(mut row) = conn.rows(&sql, vec![Arg::Texts(names)]).await?.pop() else { return Ok(None) };
    let name = row.text(0)?;
    Ok(Some(name.parse().map_err(|_| corrupt(format!("an archived stream named `{name}`")))?))
}

/// The import of a stream; `None` = all of it exists here.
type StagedStream = Result<Option<StreamImported>, ImportError>;

/// A task that is not here is written; one that is here only has to be the same task.
async fn task_stream(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    staged: &mut StagedRequest,
    task: TaskId,
    import: &ImportStream,
    now: Timestamp,
) -> Result<StagedStream, TransactionError> {
    if let Some(row) = staged.stream(set, &import.stream) {
        let first = import.events.first().map(|event| event.hash);
        let same = hash_at(set, conn, &row, Seq(1)).await? == first;
        let differs = || ImportError::Differs { stream: import.stream.clone(), seq: Seq(1) };
        return Ok(if same { Ok(None) } else { Err(differs()) });
    }
    let mut row = set.new_stream(conn).await?;
    let stream_id = row.id;
    take_over(staged, &mut row, &import.events);
    let head = row.head;
    let folded = TaskRecord::fold(task, &import.events).map_err(|e| corrupt(format!("task {task}: {e}")))?;
    let mut record = folded.ok_or_else(|| corrupt(format!("task {task}: an import without events")))?;
    staged.streams.push((import.stream.clone(), row));
    if !record.state.is_ended() {
        let cancelled = TaskCancelled { by: "import".to_owned(), reason: CANCELLED_BECAUSE.to_owned() };
        stage_task(set, staged, &mut record, &[cancelled.into()], Epoch(0), now)?;
    }
    staged.tasks.push((record, stream_id, DeadlineChange::Keep));
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: Seq(1), head, run_of: None })))
}

/// A run that is not here is written; one that is here must be the same, and is continued where it may be.
async fn run_stream(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    staged: &mut StagedRequest,
    run: RunId,
    import: &ImportStream,
) -> Result<StagedStream, TransactionError> {
    let Some(of) = import.run_of else {
        return Err(corrupt(format!("an import of run {run} that does not say of which task")).into());
    };
    let file = Seq(import.events.len() as u64);
    let here = staged.stream(set, &import.stream);
    let known = here.as_ref().map_or(Seq(0), |row| row.head.seq);
    if let Some(row) = &here {
        if let Some(seq) = first_difference(set, conn, row, &import.events).await? {
            return Ok(Err(ImportError::Differs { stream: import.stream.clone(), seq }));
        }
        if file <= known {
            return Ok(Ok(None));
        }
        if row.fence != Fence::Closed {
            let stream = import.stream.clone();
            return Ok(Err(ImportError::Lives { stream, here: known, file }));
        }
    }
    let place = find_task_run(set, conn, staged, run, of.task).await?;
    let mut row = match here {
        Some(row) => row,
        None => set.new_stream(conn).await?,
    };
    let new = import.events.get(known.0 as usize..).unwrap_or_default();
    take_over(staged, &mut row, new);
    (row.epoch, row.fence) = place.map_or((Epoch(0), Fence::Closed), |place| (place.epoch, place.fence));
    let (head, stream_id) = (row.head, row.id);
    staged.streams.push((import.stream.clone(), row));
    stage_run_rows(staged, run, new, (known == Seq(0)).then_some((stream_id, of)));
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: known.next(), head, run_of: Some(of) })))
}

/// The run as the task's stream, with what is staged, has it.
async fn find_task_run(
    set: &WorkingSet,
    conn: &mut Conn<'_>,
    staged: &StagedRequest,
    run: RunId,
    task: TaskId,
) -> Result<Option<TaskRun>, TransactionError> {
    let stream = StreamId::Task(task);
    let Some(row) = staged.stream(set, &stream) else { return Ok(None) };
    let mut events = Vec::new();
    let sql = select_events("e.stream_id = $1 ORDER BY e.seq");
    for mut stored in conn.rows(&sql, vec![Arg::Int(row.id)]).await? {
        events.push(envelope(&mut stored)?);
    }
    let staged = set.writes.events.iter().chain(&staged.events).filter(|event| event.stream_id == row.id);
    events.extend(staged.map(|event| unstaged(&stream, event)));
    let mut runs = task_runs::fold_task(task, &events)?;
    Ok(runs.remove(&run))
}

fn unstaged(stream: &StreamId, event: &EventRow) -> Envelope {
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

/// Stages what events of a run that are written as they are make of its row; with `new` = its stream and its place in a
/// task, the row begins with them.
pub(super) fn stage_run_rows(
    staged: &mut StagedRequest,
    run: RunId,
    events: &[Envelope],
    new: Option<(i64, RunOf)>,
) {
    let events: Vec<(NewEvent, Timestamp)> =
        events.iter().map(|event| (into_new_event(event.clone()), event.recorded_at)).collect();
    if let Some((stream_id, RunOf { task, attempt })) = new {
        let parent = events.first().and_then(|(first, _)| forked(first));
        let parent = parent.map(|forked| (forked.parent, forked.seq));
        let stage = "living".to_owned();
        staged.new_runs.push(RunRow { id: run, stream_id, task, attempt, stage, parent, ended_at: None });
    }
    for (event, at) in events {
        staged.runs.extend(run_change(&event, at).map(|change| (run, change)));
    }
}

/// Stages events with the hashes they have.
pub(super) fn take_over(staged: &mut StagedRequest, row: &mut StreamRow, events: &[Envelope]) {
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

/// Where the stream here and the one of the file part, within what both have.
async fn first_difference(
    set: &WorkingSet,
    conn: &mut Conn<'_>,
    row: &StreamRow,
    file: &[Envelope],
) -> Result<Option<Seq>, TransactionError> {
    let common = Seq(row.head.seq.0.min(file.len() as u64));
    let theirs = |seq: Seq| file.get((seq.0 as usize).wrapping_sub(1)).map(|event| event.hash);
    if common == Seq(0) || hash_at(set, conn, row, common).await? == theirs(common) {
        return Ok(None);
    }
    // Hashes are chained: from the first difference on all differ, so it is found by halving.
    let (mut same, mut differs) = (Seq(0), common);
    while same.next() < differs {
        let middle = Seq(same.0.midpoint(differs.0));
        if hash_at(set, conn, row, middle).await? == theirs(middle) {
            same = middle;
        } else {
            differs = middle;
        }
    }
    Ok(Some(differs))
}

/// The hash of an event here, written or about to be.
async fn hash_at(
    set: &WorkingSet,
    conn: &mut Conn<'_>,
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
    let args = vec![Arg::Int(row.id), Arg::Int(i64::try_from(seq.0).unwrap_or(i64::MAX))];
    let mut found = conn.rows(sql, args).await?;
    Ok(found.first_mut().map(|row| row.fixed(0)).transpose()?.map(EventHash))
}

/// Records the import.
async fn record_import(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
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
