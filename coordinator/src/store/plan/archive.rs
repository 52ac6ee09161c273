//! The one path by which events leave the log, and the one by which they come back.
//!
//! Leaving: the rows are locked, what was copied is compared with what stands here, and one transaction
//! records the removal in `system/archive`, leaves a stub for each stream, and removes their rows. The
//! database itself refuses to delete an event whose stream has no stub of its very head.
//! Coming back: the stubs go, and the streams are written as they were, at new positions.

use std::collections::{BTreeMap, HashSet};

use docket_schema::{
    event::{Head, NewEvent, TypedEvent as _},
    ids::{RunId, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    system::{StreamArchived, StreamsArchived, StreamsRestored, SystemEvent},
    task::TaskRecord,
};

use super::{
    append::{Target, draft_append},
    batch::missing_blob,
    import::take_over,
};
use crate::store::{
    AppendError, ArchiveError, ArchiveRefusal, Condition, Into, Restore, RestoreError, RestoreStream,
    StoreError,
    archived::{STUB_COLUMNS, Stub, stub},
    conn::{Arg, Conn},
    desk::{Deadline, Desk, Draft, LoadError, Removed, Waits, corrupt, forked, run_change},
    facts::{self, Facts},
    row::{Fence, RunRow},
};

/// The stream that says what left and what came back.
pub(super) const STREAM: StreamId = StreamId::System(SystemTopic::Archive);

/// Plans a removal. The outer error is the store's, the inner one a refusal.
pub(super) async fn plan_removal(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    archived: &StreamsArchived,
    now: Timestamp,
) -> Result<Result<(), ArchiveError>, LoadError> {
    let StreamsArchived { place, file, hash, bytes, streams, .. } = archived;
    if let Some(refused) = may_go(desk, archived) {
        return Ok(Err(refused.into()));
    }
    let runs: Vec<RunId> = streams.iter().filter_map(run_of).collect();
    if let Some(stood_on) = stood_on(desk, conn, &runs).await? {
        return Ok(Err(ArchiveRefusal::StoodOn(StreamId::Run(stood_on)).into()));
    }
    if let Some(task) = waited_for(desk, conn, streams).await? {
        return Ok(Err(ArchiveRefusal::WaitedFor(task).into()));
    }
    let mut draft = Draft::default();
    note(desk, conn, &mut draft, SystemEvent::from(archived.clone()), now).await?;
    desk.accept(draft);
    // As its event has it: a stub can be derived from that.
    let archived_at = desk.streams.get(&STREAM).map_or(now, |row| row.head_at);
    for StreamArchived { stream, head, run_of: _, task } in streams {
        let Some(row) = desk.streams.remove(stream) else { continue };
        if let StreamId::Task(task) = stream {
            desk.tasks.remove(task);
        }
        let stub = Stub {
            stream: stream.clone(),
            head: *head,
            archived_at,
            place: place.clone(),
            file: file.clone(),
            file_hash: *hash,
            file_bytes: *bytes,
            task: task.clone(),
        };
        desk.staged.removed.push(Removed { stream_id: row.id, stub });
    }
    Ok(Ok(()))
}

const fn run_of(archived: &StreamArchived) -> Option<RunId> {
    match archived.stream {
        StreamId::Run(run) => Some(run),
        StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
    }
}

/// Why the streams must stay, as the locked rows have them.
fn may_go(desk: &Desk, archived: &StreamsArchived) -> Option<ArchiveRefusal> {
    let staged = |stream: &StreamId| desk.staged.streams.contains_key(stream);
    archived.streams.iter().find_map(|StreamArchived { stream, head, .. }| {
        let Some(row) = desk.streams.get(stream) else { return Some(ArchiveRefusal::Gone(stream.clone())) };
        if row.head != *head || staged(stream) {
            return Some(ArchiveRefusal::WentOn(stream.clone()));
        }
        match stream {
            StreamId::Task(task) => {
                let ended = desk.tasks.get(task).is_some_and(|(record, _)| record.state.is_ended());
                (!ended).then_some(ArchiveRefusal::NotEnded(*task))
            }
            StreamId::Run(_) => {
                (row.fence != Fence::Closed).then(|| ArchiveRefusal::NotClosed(stream.clone()))
            }
            StreamId::Queue(_) | StreamId::System(_) => Some(ArchiveRefusal::NoFamily(stream.clone())),
        }
    })
}

/// A run of the family that a run outside of it stands on: written, or about to be.
async fn stood_on(desk: &Desk, conn: &mut Conn<'_>, runs: &[RunId]) -> Result<Option<RunId>, LoadError> {
    let own: HashSet<RunId> = runs.iter().copied().collect();
    let staged = desk.staged.new_runs.values().filter_map(|row| row.parent.map(|(parent, _)| parent));
    if let Some(parent) = staged.into_iter().find(|parent| own.contains(parent)) {
        return Ok(Some(parent));
    }
    let sql = format!("SELECT id, parent FROM runs WHERE {}", conn.dialect().any_blob("parent", 1));
    let ids = runs.iter().map(|run| run.0.as_bytes().to_vec()).collect();
    for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
        let id = |bytes| RunId(uuid::Uuid::from_bytes(bytes));
        let (child, parent) = (id(row.fixed(0)?), id(row.fixed(1)?));
        if !own.contains(&child) {
            return Ok(Some(parent));
        }
    }
    Ok(None)
}

/// One of the tasks that another waits for: its row would keep nobody back, and let nobody go.
async fn waited_for(
    desk: &Desk,
    conn: &mut Conn<'_>,
    streams: &[StreamArchived],
) -> Result<Option<TaskId>, LoadError> {
    let tasks: Vec<TaskId> = streams
        .iter()
        .filter_map(|archived| match archived.stream {
            StreamId::Task(task) => Some(task),
            StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
        })
        .collect();
    let begun = desk
        .staged
        .dependencies
        .iter()
        .find(|((on, _), waits)| **waits == Waits::Begins && tasks.contains(on));
    if let Some(((on, _), _)) = begun {
        return Ok(Some(*on));
    }
    let any = conn.dialect().any_blob("dependency", 1);
    let sql = format!("SELECT dependency FROM task_dependencies WHERE {any} LIMIT 1");
    let ids = tasks.iter().map(|task| task.0.as_bytes().to_vec()).collect();
    match conn.rows(&sql, vec![Arg::Blobs(ids)]).await?.first_mut() {
        Some(row) => Ok(Some(TaskId(uuid::Uuid::from_bytes(row.fixed(0)?)))),
        None => Ok(None),
    }
}

/// Plans a return. The outer error is the store's, the inner one a refusal.
pub(super) async fn plan_restore(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    restore: &Restore,
    now: Timestamp,
) -> Result<Result<(), RestoreError>, LoadError> {
    let stubs = stubs_of(conn, restore).await?;
    for RestoreStream { stream, events, .. } in &restore.streams {
        let last = events.last().map(|event| Head { seq: event.seq, hash: event.hash });
        let stands = stubs.get(stream).map(|stub| stub.head);
        if restore.into == Into::ItsLog && stands != Some(last.unwrap_or(Head::EMPTY)) {
            return Ok(Err(RestoreError::NotArchived(stream.clone())));
        }
        if desk.streams.contains_key(stream) {
            return Ok(Err(RestoreError::Here(stream.clone())));
        }
    }
    if let Some(missing) = missing_blob(desk, &restore.names, &[]) {
        return Ok(Err(RestoreError::BlobMissing(missing)));
    }
    let mut draft = Draft::default();
    let mut known = Facts::new();
    for stream in &restore.streams {
        match &stream.stream {
            StreamId::Task(task) => {
                let (mut record, id) = (None, begin(desk, conn, &mut draft, stream, None).await?);
                for event in &stream.events {
                    facts::apply(&mut known, &mut record, *task, event)?;
                }
                let record: TaskRecord =
                    record.ok_or_else(|| corrupt(format!("task {task}: an archive without events")))?;
                draft.tasks.push((record, id, Deadline::Keep));
            }
            StreamId::Run(run) => run_stream(desk, conn, &mut draft, (*run, &known), stream).await?,
            StreamId::Queue(_) | StreamId::System(_) => {
                return Err(corrupt(format!("an archive of {}, which was not checked", stream.stream)).into());
            }
        }
    }
    if restore.into == Into::ItsLog {
        let streams = restore.streams.iter().map(|stream| stream.stream.clone()).collect();
        let restored = StreamsRestored { task: restore.task, by: restore.by.clone(), streams };
        note(desk, conn, &mut draft, SystemEvent::from(restored), now).await?;
    }
    desk.staged.restored.extend(restore.streams.iter().map(|stream| stream.stream.clone()));
    desk.staged.touched.extend(&restore.names);
    desk.accept(draft);
    Ok(Ok(()))
}

async fn stubs_of(conn: &mut Conn<'_>, restore: &Restore) -> Result<BTreeMap<StreamId, Stub>, LoadError> {
    let dialect = conn.dialect();
    let sql = format!(
        "SELECT {STUB_COLUMNS} FROM archived_streams WHERE {} ORDER BY name{}",
        dialect.any_text("name", 1),
        dialect.lock_rows()
    );
    let names = restore.streams.iter().map(|stream| stream.stream.to_string()).collect();
    let mut stubs = BTreeMap::new();
    for mut row in conn.rows(&sql, vec![Arg::Texts(names)]).await? {
        let stub = stub(&mut row)?;
        stubs.insert(stub.stream.clone(), stub);
    }
    Ok(stubs)
}

/// Drafts a stream with its events; gives its number.
async fn begin(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    stream: &RestoreStream,
    fenced: Option<(docket_schema::ids::Epoch, Fence)>,
) -> Result<i64, LoadError> {
    let mut row = desk.new_stream(conn).await?;
    let id = row.id;
    take_over(draft, &mut row, &stream.events);
    if let Some((epoch, fence)) = fenced {
        (row.epoch, row.fence) = (epoch, fence);
    }
    draft.streams.push((stream.stream.clone(), row));
    Ok(id)
}

async fn run_stream(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    (run, known): (RunId, &Facts),
    stream: &RestoreStream,
) -> Result<(), LoadError> {
    let facts = known.get(&run);
    // A run that was imported is named by no task's stream.
    let place = facts.map(|facts| (facts.task, facts.attempt));
    let (task, attempt) = place
        .or(stream.run_of.map(|of| (of.task, of.attempt)))
        .ok_or_else(|| corrupt(format!("an archive of run {run} that does not say of which task")))?;
    let fenced =
        facts.map_or((docket_schema::ids::Epoch(0), Fence::Closed), |facts| (facts.epoch, facts.fence));
    let stream_id = begin(desk, conn, draft, stream, Some(fenced)).await?;
    let events: Vec<NewEvent> = stream.events.iter().map(super::import::as_new).collect();
    let parent = events.first().and_then(forked).map(|forked| (forked.parent, forked.seq));
    let stage = "living".to_owned();
    draft.new_runs.push(RunRow { id: run, stream_id, task, attempt, stage, parent, ended_at: None });
    for (event, at) in events.iter().zip(stream.events.iter().map(|event| event.recorded_at)) {
        draft.runs.extend(run_change(event, at).map(|change| (run, change)));
    }
    Ok(())
}

async fn note(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    event: SystemEvent,
    now: Timestamp,
) -> Result<(), LoadError> {
    let events = [event.encode(Turn(0))];
    let target = Target { stream: &STREAM, condition: Condition::AtHead, events: &events };
    match draft_append(desk, conn, draft, target, now).await? {
        Ok(_) => Ok(()),
        Err(AppendError::Store(error)) => Err(error.into()),
        Err(refused) => {
            let what = format!("{STREAM} takes no events: {refused}");
            Err(LoadError::Store(StoreError::Corrupt { what }))
        }
    }
}
