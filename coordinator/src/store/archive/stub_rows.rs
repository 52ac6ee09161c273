//! Database rows of stubs.

use docket_schema::{
    event::Head,
    ids::{BatchId, BlobHash, EventHash, Seq, StreamId, Timestamp},
    system::ArchivedTask,
};
use uuid::Uuid;

use crate::store::{
    ArchiveStub, StoreError,
    api::corrupt_error,
    db::{SqlArg, SqlRow},
};

/// Columns of [`read_stub`].
pub(crate) const STUB_COLUMNS: &str = "name, head_seq, head_hash, archived_at, place, file, file_hash, file_bytes, \
     title, queue, state, batch, batch_name, dedup_key, runs, failures, crashes, submitted_at, ended_at";

pub(crate) fn read_stub(row: &mut SqlRow) -> Result<ArchiveStub, StoreError> {
    let name = row.get_text(0)?;
    let stream = name.parse().map_err(|_| corrupt_error(format!("an archived stream named `{name}`")))?;
    Ok(ArchiveStub {
        stream,
        head: Head { seq: Seq(row.get_u64(1)?), hash: EventHash(row.get_array(2)?) },
        archived_at: Timestamp(row.get_i64(3)?),
        location: row.get_text(4)?,
        file: row.get_text(5)?,
        file_hash: BlobHash(row.get_array(6)?),
        file_bytes: row.get_u64(7)?,
        task: read_archived_task(row, 8)?,
    })
}

/// Reads the retained fields of a task from column `at` on.
fn read_archived_task(row: &mut SqlRow, at: usize) -> Result<Option<Box<ArchivedTask>>, StoreError> {
    let Some(title) = row.get_text_or_null(at)? else { return Ok(None) };
    let (queue, state) = (row.get_text(at + 1)?, row.get_text(at + 2)?);
    let corrupt = |what: &str| corrupt_error(format!("an archived task of {what}"));
    Ok(Some(Box::new(ArchivedTask {
        title,
        queue: queue.parse().map_err(|_| corrupt(&format!("queue `{queue}`")))?,
        state: state.parse().map_err(|_| corrupt(&format!("state `{state}`")))?,
        batch: row.get_array_or_null(at + 3)?.map(|id| BatchId(Uuid::from_bytes(id))),
        batch_name: row.get_text_or_null(at + 4)?,
        dedup_key: row.get_text_or_null(at + 5)?,
        runs: row.get_u32(at + 6)?,
        failures: row.get_u32(at + 7)?,
        crashes: row.get_u32(at + 8)?,
        submitted_at: Timestamp(row.get_i64(at + 9)?),
        ended_at: Timestamp(row.get_i64(at + 10)?),
    })))
}

/// Columns of a stub's row, name first.
pub(crate) const STUB_ROW_COLUMNS: [&str; 20] = [
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
pub(crate) fn stub_args(stub: &ArchiveStub) -> Vec<SqlArg> {
    let task = stub.task.as_deref();
    let text =
        |of: fn(&ArchivedTask) -> Option<&str>| SqlArg::TextOrNull(task.and_then(of).map(str::to_owned));
    let number = |of: fn(&ArchivedTask) -> i64| SqlArg::IntOrNull(task.map(of));
    vec![
        SqlArg::Text(stub.stream.to_string()),
        SqlArg::from_uuid_or_null(stream_uuid(&stub.stream)),
        SqlArg::from_u64(stub.head.seq.0),
        SqlArg::Blob(stub.head.hash.0.to_vec()),
        SqlArg::Int(stub.archived_at.0),
        SqlArg::Text(stub.location.clone()),
        SqlArg::Text(stub.file.clone()),
        SqlArg::Blob(stub.file_hash.0.to_vec()),
        SqlArg::from_u64(stub.file_bytes),
        text(|task| Some(&task.title)),
        text(|task| Some(task.queue.as_str())),
        text(|task| Some(task.state.as_str())),
        SqlArg::from_uuid_or_null(task.and_then(|task| task.batch).map(|batch| batch.0)),
        text(|task| task.batch_name.as_deref()),
        text(|task| task.dedup_key.as_deref()),
        number(|task| task.runs.into()),
        number(|task| task.failures.into()),
        number(|task| task.crashes.into()),
        number(|task| task.submitted_at.0),
        number(|task| task.ended_at.0),
    ]
}

/// Returns the id of a task or run; `None` for other streams.
pub(crate) const fn stream_uuid(stream: &StreamId) -> Option<Uuid> {
    match stream {
        StreamId::Task(id) => Some(id.0),
        StreamId::Run(id) => Some(id.0),
        StreamId::Queue(_) | StreamId::System(_) => None,
    }
}
