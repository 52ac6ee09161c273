//! What archiving and restoring ask of a store and what it answers; and reading the stubs that stand in the
//! place of archived streams.

use std::collections::BTreeMap;

use docket_schema::{
    event::{Envelope, Head, TypedEvent as _},
    ids::{BatchId, BlobHash, EventHash, QueueName, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{ArchivedTask, RunOf, StreamArchived, StreamsArchived, SystemEvent},
    wire::{ArchivedTaskPage, ArchivedTaskQuery},
};
use uuid::Uuid;

use super::{
    Answer, StoreError,
    conn::{Arg, Conn, Db, Row},
    desk::LoadError,
    fault::store_error,
    row::{EVENT_COLUMNS, envelope},
};

/// A stream that is archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// Which.
    pub stream: StreamId,
    /// Its last event.
    pub head: Head,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Where the archive is.
    pub place: String,
    /// The file's name there.
    pub file: String,
    /// BLAKE3 of the file.
    pub file_hash: BlobHash,
    /// Its size.
    pub file_bytes: u64,
    /// What is kept of a task.
    pub task: Option<Box<ArchivedTask>>,
}

/// A task whose retention may be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub task: TaskId,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Of which queue.
    pub queue: QueueName,
}

/// Where a list of such tasks goes on.
pub type AfterEnded = (Timestamp, TaskId);

/// Of which queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queues {
    /// Of this one.
    One(QueueName),
    /// Of all but these.
    AllBut(Vec<QueueName>),
}

/// Why a family stays. Nothing was removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    /// It is not there: another coordinator archived it, or nobody ever made it.
    #[error("{0} is not here any more")]
    Gone(StreamId),
    /// It went on since it was copied.
    #[error("{0} went on while it was copied")]
    WentOn(StreamId),
    /// The task has not ended, or not long ago.
    #[error("task {0} has not ended")]
    NotEnded(TaskId),
    /// A run may still be written to.
    #[error("{0} is not closed")]
    NotClosed(StreamId),
    /// A run that is not in the file stands on one that is.
    #[error("another run stands on {0}")]
    StoodOn(StreamId),
    /// A task that has not ended waits for it, and holds out because it failed.
    #[error("another task waits for task {0}, which may be retried yet")]
    WaitedFor(TaskId),
    /// It does not belong into a family.
    #[error("{0} is no stream that can be archived")]
    NoFamily(StreamId),
}

/// A refusal, or the store's fault.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It stays.
    #[error(transparent)]
    Refused(#[from] ArchiveRefusal),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A family that comes back from a file, checked. Its blobs must be stored.
#[derive(Debug, Clone)]
pub struct Restore {
    /// Its first task.
    pub task: TaskId,
    /// Who brings it back.
    pub by: String,
    /// Its streams in the order of the file.
    pub streams: Vec<RestoreStream>,
    /// The blobs that they need.
    pub names: Vec<BlobHash>,
    /// Where it comes to.
    pub into: Into,
}

/// Where a family comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Into {
    /// The log it left: a stub stands for each of its streams.
    ItsLog,
    /// A store of its own, to be looked at.
    Scratch,
}

/// A stream that comes back.
#[derive(Debug, Clone)]
pub struct RestoreStream {
    /// Which.
    pub stream: StreamId,
    /// For a run: its place in its task.
    pub run_of: Option<RunOf>,
    /// Its events from the first on, at least one.
    pub events: Vec<Envelope>,
}

/// A family that did not come back. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// No stub stands for it, or one of another head.
    #[error("{0} is not archived with this history; it may have been brought back already")]
    NotArchived(StreamId),
    /// It is here.
    #[error("{0} is here already")]
    Here(StreamId),
    /// A needed blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The part of a store that concerns the archive. As all of it: durable when it answers, or nothing was done.
pub trait Archives {
    /// Tasks that ended before `before`, oldest end first, after `after`.
    fn ended(
        &self,
        before: Timestamp,
        queues: Queues,
        after: Option<AfterEnded>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<Ended>, StoreError>>;

    /// Removes a family of streams that was copied and read back, all of it or nothing, records it, and
    /// leaves a stub for each.
    fn remove(&self, archived: StreamsArchived, now: Timestamp) -> Answer<'_, Result<(), ArchiveError>>;

    /// Writes a family of streams as they were, all of it or nothing, and records it.
    fn restore(&self, restore: Restore, now: Timestamp) -> Answer<'_, Result<(), RestoreError>>;

    /// What stands in the place of archived streams, after `after` in order of their names.
    fn stubs(&self, after: Option<StreamId>, limit: u32) -> Answer<'_, Result<Vec<Stub>, StoreError>>;

    /// Archived tasks, newest first.
    fn archived_tasks(&self, query: ArchivedTaskQuery) -> Answer<'_, Result<ArchivedTaskPage, StoreError>>;

    /// What stands in the place of a task or run.
    fn stub(&self, id: Uuid) -> Answer<'_, Result<Option<Stub>, StoreError>>;

    /// Takes a term, or goes on with one's own; `false` where another holds it.
    fn take_term(&self, term: Term) -> Answer<'_, Result<Taken, StoreError>>;
}

/// Something that one coordinator does for all, while its term lasts. What is done under one is safe without
/// it, too: a term spares the others the same work, and fences nobody.
#[derive(Debug, Clone)]
pub struct Term {
    /// What is done.
    pub name: &'static str,
    /// Who does it.
    pub holder: String,
    /// Until when.
    pub until: Timestamp,
    /// The caller's time: a term that has ended by then is free.
    pub now: Timestamp,
    /// How long a term of this name lasts at most, in milliseconds. One that ends later than that from now was taken by a
    /// clock that was wrong, and is shortened to it.
    pub longest_ms: u64,
    /// What is owed where nobody did it for a while; `None` = nothing.
    pub trust: Option<Trust>,
}

/// Longest lease that a coordinator can be configured to give, in milliseconds: one hour. Coordinators of one database may
/// give leases of different lengths, and lengths grow (`lease_length.rs`), so this bounds the deadlines that are believed.
pub const LEASE_MS_MAX: u64 = 3_600_000;

/// How far a term trusts the deadlines of leases that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// A term that begins later than this after the end of the one before it trusts none: workers may have
    /// lived and found nobody to tell. `None` where the clock was stepped: no deadline is trusted then.
    pub window_ms: Option<u64>,
    /// The length of a lease now, in milliseconds: what every lease gets at least where no deadline is trusted, and what a
    /// deadline further off than [`LEASE_MS_MAX`] is shortened to.
    pub lease_ms: u64,
}

/// Whose a term is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Another's, who holds it still.
    ByAnother,
    /// The caller's.
    Ours {
        /// It began after a gap, and so many leases were given their time.
        graced: Option<u64>,
    },
}

/// Columns of [`stub`].
pub(super) const STUB_COLUMNS: &str = "name, head_seq, head_hash, archived_at, place, file, file_hash, file_bytes, \
     title, queue, state, batch, batch_name, dedup_key, runs, failures, crashes, submitted_at, ended_at";

pub(super) fn stub(row: &mut Row) -> Result<Stub, StoreError> {
    let name = row.text(0)?;
    let stream = name
        .parse()
        .map_err(|_| StoreError::Corrupt { what: format!("an archived stream named `{name}`") })?;
    Ok(Stub {
        stream,
        head: Head { seq: Seq(row.count(1)?), hash: EventHash(row.fixed(2)?) },
        archived_at: Timestamp(row.int(3)?),
        place: row.text(4)?,
        file: row.text(5)?,
        file_hash: BlobHash(row.fixed(6)?),
        file_bytes: row.count(7)?,
        task: kept(row, 8)?,
    })
}

/// What is kept of a task, from column `at` on.
fn kept(row: &mut Row, at: usize) -> Result<Option<Box<ArchivedTask>>, StoreError> {
    let Some(title) = row.text_or_null(at)? else { return Ok(None) };
    let (queue, state) = (row.text(at + 1)?, row.text(at + 2)?);
    let corrupt = |what: &str| StoreError::Corrupt { what: format!("an archived task of {what}") };
    Ok(Some(Box::new(ArchivedTask {
        title,
        queue: queue.parse().map_err(|_| corrupt(&format!("queue `{queue}`")))?,
        state: state.parse().map_err(|_| corrupt(&format!("state `{state}`")))?,
        batch: row.fixed_or_null(at + 3)?.map(|id| BatchId(Uuid::from_bytes(id))),
        batch_name: row.text_or_null(at + 4)?,
        dedup_key: row.text_or_null(at + 5)?,
        runs: row.small(at + 6)?,
        failures: row.small(at + 7)?,
        crashes: row.small(at + 8)?,
        submitted_at: Timestamp(row.int(at + 9)?),
        ended_at: Timestamp(row.int(at + 10)?),
    })))
}

/// Columns of a stub's row, its name first.
pub(super) const STUB_ROW: [&str; 20] = [
    "name",
    "id",
    "head_seq",
    "head_hash",
    "archived_at",
    "place",
    "file",
    "file_hash",
    "file_bytes",
    "title",
    "queue",
    "state",
    "batch",
    "batch_name",
    "dedup_key",
    "runs",
    "failures",
    "crashes",
    "submitted_at",
    "ended_at",
];

/// A stub as its row.
pub(super) fn stub_cells(stub: &Stub) -> Vec<Arg> {
    let int = |n: u64| Arg::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let task = stub.task.as_deref();
    let text = |of: fn(&ArchivedTask) -> Option<&str>| Arg::TextOrNull(task.and_then(of).map(str::to_owned));
    let number = |of: fn(&ArchivedTask) -> i64| Arg::IntOrNull(task.map(of));
    vec![
        Arg::Text(stub.stream.to_string()),
        Arg::BlobOrNull(id_of(&stub.stream).map(|id| id.as_bytes().to_vec())),
        int(stub.head.seq.0),
        Arg::Blob(stub.head.hash.0.to_vec()),
        Arg::Int(stub.archived_at.0),
        Arg::Text(stub.place.clone()),
        Arg::Text(stub.file.clone()),
        Arg::Blob(stub.file_hash.0.to_vec()),
        int(stub.file_bytes),
        text(|task| Some(&task.title)),
        text(|task| Some(task.queue.as_str())),
        text(|task| Some(task.state.as_str())),
        Arg::BlobOrNull(task.and_then(|task| task.batch).map(|batch| batch.0.as_bytes().to_vec())),
        text(|task| task.batch_name.as_deref()),
        text(|task| task.dedup_key.as_deref()),
        number(|task| task.runs.into()),
        number(|task| task.failures.into()),
        number(|task| task.crashes.into()),
        number(|task| task.submitted_at.0),
        number(|task| task.ended_at.0),
    ]
}

/// The stubs that `system/archive` says there are.
pub(super) async fn derived(conn: &mut Conn<'_>) -> Result<BTreeMap<StreamId, Stub>, LoadError> {
    let stream = StreamId::System(SystemTopic::Archive).to_string();
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3"
    );
    let (mut stubs, mut after) = (BTreeMap::new(), Seq(0));
    loop {
        let args = vec![Arg::Text(stream.clone()), Arg::Int(after.0 as i64), Arg::Int(DERIVED_PAGE)];
        let page = conn.rows(&sql, args).await?;
        let is_last = page.len() < DERIVED_PAGE as usize;
        for mut row in page {
            let event = envelope(&mut row)?;
            after = event.seq;
            apply(&mut stubs, &event)?;
        }
        if is_last {
            return Ok(stubs);
        }
    }
}

/// Events of `system/archive` read in one go.
const DERIVED_PAGE: i64 = 500;

fn apply(stubs: &mut BTreeMap<StreamId, Stub>, event: &Envelope) -> Result<(), StoreError> {
    let corrupt =
        |what: String| StoreError::Corrupt { what: format!("{}, event {}: {what}", event.stream, event.seq) };
    match SystemEvent::decode(&event.kind, event.version, event.payload.as_str())
        .map_err(|error| corrupt(error.to_string()))?
    {
        SystemEvent::StreamsArchived(StreamsArchived { place, file, hash, bytes, streams, .. }) => {
            for StreamArchived { stream, head, run_of: _, task } in streams {
                let stub = Stub {
                    stream: stream.clone(),
                    head,
                    archived_at: event.recorded_at,
                    place: place.clone(),
                    file: file.clone(),
                    file_hash: hash,
                    file_bytes: bytes,
                    task,
                };
                stubs.insert(stream, stub);
            }
        }
        SystemEvent::StreamsRestored(restored) => {
            for stream in restored.streams {
                stubs.remove(&stream);
            }
        }
        SystemEvent::RunImported(_)
        | SystemEvent::TokenCreated(_)
        | SystemEvent::TokenRevoked(_)
        | SystemEvent::AdminActed(_)
        | SystemEvent::CallsRefused(_)
        | SystemEvent::ScheduleSet(_)
        | SystemEvent::SchedulePaused(_)
        | SystemEvent::ScheduleRemoved(_)
        | SystemEvent::ScheduleFired(_)
        | SystemEvent::LimitSet(_)
        | SystemEvent::LimitRemoved(_)
        | SystemEvent::BudgetSet(_)
        | SystemEvent::BudgetSpent(_)
        | SystemEvent::NotificationsFollowed(_)
        | SystemEvent::NotificationRaised(_)
        | SystemEvent::NotificationDelivered(_)
        | SystemEvent::NotificationFailed(_)
        | SystemEvent::NotificationDeadLettered(_)
        | SystemEvent::NotificationRetried(_)
        | SystemEvent::NotificationDropped(_)
        | SystemEvent::MemorySaved(_)
        | SystemEvent::MemoryForgotten(_) => {
            return Err(corrupt(format!("a {} belongs elsewhere", event.kind)));
        }
    }
    Ok(())
}

async fn rows(db: &Db, doing: &'static str, sql: &str, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
    db.rows(sql, args).await.map_err(|source| store_error(db.dialect(), doing, source))
}

/// The id of a task or run; none for other streams.
pub(super) const fn id_of(stream: &StreamId) -> Option<Uuid> {
    match stream {
        StreamId::Task(id) => Some(id.0),
        StreamId::Run(id) => Some(id.0),
        StreamId::Queue(_) | StreamId::System(_) => None,
    }
}

/// Stubs after `after` in order of their names.
pub(super) async fn stubs(db: &Db, after: Option<StreamId>, limit: u32) -> Result<Vec<Stub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE name > $1 ORDER BY name LIMIT $2");
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    let args = vec![Arg::Text(after), Arg::Int(limit.into())];
    rows(db, "listing archived streams", &sql, args).await?.iter_mut().map(stub).collect()
}

/// The stub of a task or run.
pub(super) async fn of_id(db: &Db, id: Uuid) -> Result<Option<Stub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE id = $1");
    let args = vec![Arg::Blob(id.as_bytes().to_vec())];
    rows(db, "reading an archived stream", &sql, args).await?.first_mut().map(stub).transpose()
}

/// Tasks that ended before `before`, oldest end first.
pub(super) async fn ended(
    db: &Db,
    before: Timestamp,
    queues: Queues,
    after: Option<AfterEnded>,
    limit: u32,
) -> Result<Vec<Ended>, StoreError> {
    let (at, task) = after.unwrap_or((Timestamp(i64::MIN), TaskId(Uuid::nil())));
    let mut args = vec![
        Arg::Int(before.0),
        Arg::Int(at.0),
        Arg::Blob(task.0.as_bytes().to_vec()),
        Arg::Int(limit.into()),
    ];
    let filter = match queues {
        Queues::One(queue) => {
            args.push(Arg::Text(queue.as_str().to_owned()));
            "AND queue = $5".to_owned()
        }
        Queues::AllBut(queues) if queues.is_empty() => String::new(),
        Queues::AllBut(queues) => {
            args.push(Arg::Texts(queues.iter().map(|queue| queue.as_str().to_owned()).collect()));
            format!("AND NOT ({})", db.dialect().any_text("queue", 5))
        }
    };
    let sql = format!(
        "SELECT id, ended_at, queue FROM tasks WHERE ended_at IS NOT NULL AND ended_at < $1 \
         AND (ended_at > $2 OR (ended_at = $2 AND id > $3)) {filter} ORDER BY ended_at, id LIMIT $4"
    );
    rows(db, "looking for old tasks", &sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let queue = row.text(2)?;
            Ok(Ended {
                task: TaskId(Uuid::from_bytes(row.fixed(0)?)),
                ended_at: Timestamp(row.int(1)?),
                queue: queue
                    .parse()
                    .map_err(|_| StoreError::Corrupt { what: format!("a task of queue `{queue}`") })?,
            })
        })
        .collect()
}
