//! Import: streams from another installation, written as they are; all of it or nothing.
//!
//! What is here already is compared by the hash at its end, which stands for all before it. A run that is
//! here is continued only where nobody else may append to it; a task that is here is left as it is. A task
//! that had not ended when it was exported ends here as cancelled, so that nobody ever leases it by itself,
//! and every run is closed. `system/imports` says what was written: with it and the tasks' streams every
//! projection can be derived again.

use docket_schema::{
    event::{Envelope, Head, NewEvent, TypedEvent as _},
    ids::{Epoch, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    system::{RunImported, StreamImported, SystemEvent},
    task::{TaskCancelled, TaskRecord},
};

use super::{
    append::{Target, draft_append},
    batch::missing_blob,
    command::draft_task,
};
use crate::store::{
    AppendError, Condition, ImportError, ImportStream, Imported, StoreError,
    ask::AskImport,
    conn::{Arg, Conn},
    desk::{Deadline, Desk, Draft, LoadError, StagedEvent, corrupt, forked, run_change},
    facts::{self, RunFacts},
    row::{EVENT_COLUMNS, Fence, RunRow, StreamRow, envelope},
};

/// What ends an imported task that had not ended.
const CANCELLED_BECAUSE: &str =
    "imported from another installation, where it had not ended; `docket resume` goes on with its run here";

/// Plans an import. The outer error is the store's, the inner one a refusal.
pub(super) async fn plan_import(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    ask: &AskImport,
) -> Result<Result<Imported, ImportError>, LoadError> {
    let mut draft = Draft::default();
    let mut written = Vec::new();
    if let Some(archived) = archived_among(conn, &ask.import.streams).await? {
        return Ok(Err(ImportError::Archived(archived)));
    }
    for stream in &ask.import.streams {
        let drafted = match &stream.stream {
            StreamId::Task(task) => task_stream(desk, conn, &mut draft, *task, stream, ask.now).await?,
            StreamId::Run(run) => run_stream(desk, conn, &mut draft, *run, stream).await?,
            StreamId::Queue(_) | StreamId::System(_) => {
                return Err(corrupt(format!("an import of {}, which was not checked", stream.stream)).into());
            }
        };
        match drafted {
            Ok(drafted) => written.extend(drafted),
            Err(refused) => return Ok(Err(refused)),
        }
    }
    if written.is_empty() {
        return Ok(Ok(Imported::default()));
    }
    if let Some(missing) = missing_blob(desk, &ask.import.names, &[]) {
        return Ok(Err(ImportError::BlobMissing(missing)));
    }
    note(desk, conn, &mut draft, ask, &written).await?;
    desk.staged.touched.extend(&ask.import.names);
    desk.accept(draft);
    Ok(Ok(Imported { streams: written }))
}

/// One of the streams that is archived here: it is brought back, not imported.
async fn archived_among(
    conn: &mut Conn<'_>,
    streams: &[ImportStream],
) -> Result<Option<StreamId>, LoadError> {
    let sql = format!(
        "SELECT name FROM archived_streams WHERE {} ORDER BY name LIMIT 1",
        conn.dialect().any_text("name", 1)
    );
    let names = streams.iter().map(|stream| stream.stream.to_string()).collect();
    let Some(mut row) = conn.rows(&sql, vec![Arg::Texts(names)]).await?.pop() else { return Ok(None) };
    let name = row.text(0)?;
    Ok(Some(name.parse().map_err(|_| corrupt(format!("an archived stream named `{name}`")))?))
}

/// What a stream's part of the import is; `None` = all of it is here.
type Drafted = Result<Option<StreamImported>, ImportError>;

/// A task that is not here is written; one that is here only has to be the same task.
async fn task_stream(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    task: TaskId,
    import: &ImportStream,
    now: Timestamp,
) -> Result<Drafted, LoadError> {
    if let Some(row) = draft.stream(desk, &import.stream) {
        let first = import.events.first().map(|event| event.hash);
        let same = hash_at(desk, conn, &row, Seq(1)).await? == first;
        let differs = || ImportError::Differs { stream: import.stream.clone(), seq: Seq(1) };
        return Ok(if same { Ok(None) } else { Err(differs()) });
    }
    let mut row = desk.new_stream(conn).await?;
    let stream_id = row.id;
    take_over(draft, &mut row, &import.events);
    let head = row.head;
    let folded = TaskRecord::fold(task, &import.events).map_err(|e| corrupt(format!("task {task}: {e}")))?;
    let mut record = folded.ok_or_else(|| corrupt(format!("task {task}: an import without events")))?;
    draft.streams.push((import.stream.clone(), row));
    if !record.state.is_ended() {
        let cancelled = TaskCancelled { by: "import".to_owned(), reason: CANCELLED_BECAUSE.to_owned() };
        draft_task(desk, draft, &mut record, &[cancelled.into()], Epoch(0), now)?;
    }
    draft.tasks.push((record, stream_id, Deadline::Keep));
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: Seq(1), head, run_of: None })))
}

/// A run that is not here is written; one that is here must be the same, and is continued where it may be.
async fn run_stream(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    run: RunId,
    import: &ImportStream,
) -> Result<Drafted, LoadError> {
    let Some(of) = import.run_of else {
        return Err(corrupt(format!("an import of run {run} that does not say of which task")).into());
    };
    let file = Seq(import.events.len() as u64);
    let here = draft.stream(desk, &import.stream);
    let known = here.as_ref().map_or(Seq(0), |row| row.head.seq);
    if let Some(row) = &here {
        if let Some(seq) = first_difference(desk, conn, row, &import.events).await? {
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
    let facts = facts_of(desk, conn, draft, run, of.task).await?;
    let mut row = match here {
        Some(row) => row,
        None => desk.new_stream(conn).await?,
    };
    let new = import.events.get(known.0 as usize..).unwrap_or_default();
    take_over(draft, &mut row, new);
    (row.epoch, row.fence) = facts.map_or((Epoch(0), Fence::Closed), |facts| (facts.epoch, facts.fence));
    let (head, stream_id) = (row.head, row.id);
    draft.streams.push((import.stream.clone(), row));
    let events: Vec<NewEvent> = new.iter().map(as_new).collect();
    if known == Seq(0) {
        let parent = events.first().and_then(forked).map(|forked| (forked.parent, forked.seq));
        let stage = "living".to_owned();
        let (task, attempt) = (of.task, of.attempt);
        draft.new_runs.push(RunRow { id: run, stream_id, task, attempt, stage, parent, ended_at: None });
    }
    for (event, at) in events.iter().zip(new.iter().map(|event| event.recorded_at)) {
        draft.runs.extend(run_change(event, at).map(|change| (run, change)));
    }
    Ok(Ok(Some(StreamImported { stream: import.stream.clone(), from: known.next(), head, run_of: Some(of) })))
}

/// What the task's stream, as it will stand here, says of the run.
async fn facts_of(
    desk: &Desk,
    conn: &mut Conn<'_>,
    draft: &Draft,
    run: RunId,
    task: TaskId,
) -> Result<Option<RunFacts>, LoadError> {
    let stream = StreamId::Task(task);
    let Some(row) = draft.stream(desk, &stream) else { return Ok(None) };
    let mut events = Vec::new();
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE e.stream_id = $1 ORDER BY e.seq"
    );
    for mut stored in conn.rows(&sql, vec![Arg::Int(row.id)]).await? {
        events.push(envelope(&mut stored)?);
    }
    let staged = desk.staged.events.iter().chain(&draft.events).filter(|event| event.stream_id == row.id);
    events.extend(staged.map(|event| unstaged(&stream, event)));
    let mut runs = facts::of_task(task, &events)?;
    Ok(runs.remove(&run))
}

fn unstaged(stream: &StreamId, event: &StagedEvent) -> Envelope {
    Envelope {
        stream: stream.clone(),
        seq: event.seq,
        position: docket_schema::ids::Position(0),
        recorded_at: event.recorded_at,
        turn: event.turn,
        epoch: event.epoch,
        kind: event.kind.clone(),
        version: event.version,
        payload: docket_schema::event::Payload::from_store(event.payload.clone()),
        prev_hash: event.prev_hash,
        hash: event.hash,
    }
}

pub(super) fn as_new(event: &Envelope) -> NewEvent {
    NewEvent {
        kind: event.kind.clone(),
        version: event.version,
        turn: event.turn,
        payload: event.payload.clone(),
    }
}

/// Drafts events with the hashes they have.
pub(super) fn take_over(draft: &mut Draft, row: &mut StreamRow, events: &[Envelope]) {
    for event in events {
        draft.events.push(StagedEvent {
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
    desk: &Desk,
    conn: &mut Conn<'_>,
    row: &StreamRow,
    file: &[Envelope],
) -> Result<Option<Seq>, LoadError> {
    let common = Seq(row.head.seq.0.min(file.len() as u64));
    let theirs = |seq: Seq| file.get((seq.0 as usize).wrapping_sub(1)).map(|event| event.hash);
    if common == Seq(0) || hash_at(desk, conn, row, common).await? == theirs(common) {
        return Ok(None);
    }
    // Hashes are chained: from the first difference on all differ, so it is found by halving.
    let (mut same, mut differs) = (Seq(0), common);
    while same.next() < differs {
        let middle = Seq(same.0.midpoint(differs.0));
        if hash_at(desk, conn, row, middle).await? == theirs(middle) {
            same = middle;
        } else {
            differs = middle;
        }
    }
    Ok(Some(differs))
}

/// The hash of an event here, written or about to be.
async fn hash_at(
    desk: &Desk,
    conn: &mut Conn<'_>,
    row: &StreamRow,
    seq: Seq,
) -> Result<Option<docket_schema::ids::EventHash>, LoadError> {
    if seq == row.head.seq {
        return Ok(Some(row.head.hash));
    }
    let staged = desk.staged.events.iter().find(|event| event.stream_id == row.id && event.seq == seq);
    if let Some(event) = staged {
        return Ok(Some(event.hash));
    }
    let sql = "SELECT hash FROM events WHERE stream_id = $1 AND seq = $2";
    let args = vec![Arg::Int(row.id), Arg::Int(i64::try_from(seq.0).unwrap_or(i64::MAX))];
    let mut found = conn.rows(sql, args).await?;
    Ok(found.first_mut().map(|row| row.fixed(0)).transpose()?.map(docket_schema::ids::EventHash))
}

/// Records the import.
async fn note(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    ask: &AskImport,
    written: &[StreamImported],
) -> Result<(), LoadError> {
    let import = &ask.import;
    let event = SystemEvent::from(RunImported {
        run: import.run,
        task: import.task,
        by: import.by.clone(),
        made_by: import.made_by.clone(),
        streams: written.to_vec(),
    });
    let stream = StreamId::System(SystemTopic::Imports);
    let events = [event.encode(Turn(0))];
    let target = Target { stream: &stream, condition: Condition::AtHead, events: &events };
    match draft_append(desk, conn, draft, target, ask.now).await? {
        Ok(_) => Ok(()),
        Err(AppendError::Store(error)) => Err(error.into()),
        Err(refused) => Err(LoadError::Store(StoreError::Corrupt {
            what: format!("{stream} takes no events: {refused}"),
        })),
    }
}
