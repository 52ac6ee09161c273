//! Reads of stubs, and of tasks whose retention may be over.

use docket_schema::ids::{StreamId, TaskId, Timestamp};
use uuid::Uuid;

use super::stub_rows::{STUB_COLUMNS, read_stub};
use crate::store::{
    ArchiveStub, EndedTask, EndedTaskCursor, QueueSelection, StoreError,
    api::corrupt_error,
    db::{DbPool, SqlArg},
};

/// Lists stubs after `after`, by name.
pub(crate) async fn list_stubs(
    db: &DbPool,
    after: Option<StreamId>,
    limit: u32,
) -> Result<Vec<ArchiveStub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE name > $1 ORDER BY name LIMIT $2");
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    let args = vec![SqlArg::Text(after), SqlArg::Int(limit.into())];
    db.query("listing archived streams", &sql, args).await?.iter_mut().map(read_stub).collect()
}

/// Finds the stub of a task or run.
pub(crate) async fn find_stub(db: &DbPool, id: Uuid) -> Result<Option<ArchiveStub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE id = $1");
    let args = vec![SqlArg::from_uuid(id)];
    db.query("reading an archived stream", &sql, args).await?.first_mut().map(read_stub).transpose()
}

/// Lists tasks that ended before `before`, oldest end first.
pub(crate) async fn list_ended_tasks(
    db: &DbPool,
    before: Timestamp,
    queues: QueueSelection,
    after: Option<EndedTaskCursor>,
    limit: u32,
) -> Result<Vec<EndedTask>, StoreError> {
    let (at, task) = after.unwrap_or((Timestamp(i64::MIN), TaskId(Uuid::nil())));
    let mut args =
        vec![SqlArg::Int(before.0), SqlArg::Int(at.0), SqlArg::from_uuid(task.0), SqlArg::Int(limit.into())];
    let filter = match queues {
        QueueSelection::Only(queue) => {
            args.push(SqlArg::Text(queue.as_str().to_owned()));
            "AND queue = $5".to_owned()
        }
        QueueSelection::AllBut(queues) if queues.is_empty() => String::new(),
        QueueSelection::AllBut(queues) => {
            args.push(SqlArg::Texts(queues.iter().map(|queue| queue.as_str().to_owned()).collect()));
            format!("AND NOT ({})", db.dialect().any_text_sql("queue", 5))
        }
    };
    let sql = format!(
        "SELECT id, ended_at, queue FROM tasks WHERE ended_at IS NOT NULL AND ended_at < $1 \
         AND (ended_at > $2 OR (ended_at = $2 AND id > $3)) {filter} ORDER BY ended_at, id LIMIT $4"
    );
    db.query("looking for old tasks", &sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let queue = row.get_text(2)?;
            Ok(EndedTask {
                task: TaskId(row.get_uuid(0)?),
                ended_at: Timestamp(row.get_i64(1)?),
                queue: queue.parse().map_err(|_| corrupt_error(format!("a task of queue `{queue}`")))?,
            })
        })
        .collect()
}
