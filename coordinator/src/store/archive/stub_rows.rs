//! The rows of stubs, which replace archived streams.

use docket_schema::{
    event::Head,
    ids::{BatchId, BlobHash, EventHash, Seq, StreamId, Timestamp},
    system::ArchivedTask,
};
use uuid::Uuid;

use crate::store::{
    StoreError, Stub,
    api::corrupt,
    db::{Arg, Row},
};

/// Columns of [`read_stub`].
pub(crate) const STUB_COLUMNS: &str = "name, head_seq, head_hash, archived_at, place, file, file_hash, file_bytes, \
     title, queue, state, batch, batch_name, dedup_key, runs, failures, crashes, submitted_at, ended_at";

pub(crate) fn read_stub(row: &mut Row) -> Result<Stub, StoreError> {
    let name = row.text(0)?;
    let stream = name.parse().map_err(|_| corrupt(format!("an archived stream named `{name}`")))?;
    Ok(Stub {
        stream,
        head: Head { seq: Seq(row.count(1)?), hash: EventHash(row.fixed(2)?) },
        archived_at: Timestamp(row.int(3)?),
        place: row.text(4)?,
        file: row.text(5)?,
        file_hash: BlobHash(row.fixed(6)?),
        file_bytes: row.count(7)?,
        task: archived_task(row, 8)?,
    })
}

/// The kept fields of a task, from column `at` on.
fn archived_task(row: &mut Row, at: usize) -> Result<Option<Box<ArchivedTask>>, StoreError> {
    let Some(title) = row.text_or_null(at)? else { return Ok(None) };
    let (queue, state) = (row.text(at + 1)?, row.text(at + 2)?);
    let corrupt = |what: &str| corrupt(format!("an archived task of {what}"));
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
pub(crate) const STUB_ROW: [&str; 20] = [
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

/// The row of a stub.
pub(crate) fn stub_cells(stub: &Stub) -> Vec<Arg> {
    let task = stub.task.as_deref();
    let text = |of: fn(&ArchivedTask) -> Option<&str>| Arg::TextOrNull(task.and_then(of).map(str::to_owned));
    let number = |of: fn(&ArchivedTask) -> i64| Arg::IntOrNull(task.map(of));
    vec![
        Arg::Text(stub.stream.to_string()),
        Arg::uuid_or_null(id_of(&stub.stream)),
        Arg::count(stub.head.seq.0),
        Arg::Blob(stub.head.hash.0.to_vec()),
        Arg::Int(stub.archived_at.0),
        Arg::Text(stub.place.clone()),
        Arg::Text(stub.file.clone()),
        Arg::Blob(stub.file_hash.0.to_vec()),
        Arg::count(stub.file_bytes),
        text(|task| Some(&task.title)),
        text(|task| Some(task.queue.as_str())),
        text(|task| Some(task.state.as_str())),
        Arg::uuid_or_null(task.and_then(|task| task.batch).map(|batch| batch.0)),
        text(|task| task.batch_name.as_deref()),
        text(|task| task.dedup_key.as_deref()),
        number(|task| task.runs.into()),
        number(|task| task.failures.into()),
        number(|task| task.crashes.into()),
        number(|task| task.submitted_at.0),
        number(|task| task.ended_at.0),
    ]
}

/// The id of a task or run; none for other streams.
pub(crate) const fn id_of(stream: &StreamId) -> Option<Uuid> {
    match stream {
        StreamId::Task(id) => Some(id.0),
        StreamId::Run(id) => Some(id.0),
        StreamId::Queue(_) | StreamId::System(_) => None,
    }
}
