//! Reads of stubs, and of the tasks whose retention may be over.

use docket_schema::ids::{StreamId, TaskId, Timestamp};
use uuid::Uuid;

use super::stub_rows::{STUB_COLUMNS, read_stub};
use crate::store::{
    AfterEnded, Ended, Queues, StoreError, Stub,
    api::corrupt,
    db::{Arg, Db},
};

/// Stubs after `after` in order of their names.
pub(crate) async fn list_stubs(
    db: &Db,
    after: Option<StreamId>,
    limit: u32,
) -> Result<Vec<Stub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE name > $1 ORDER BY name LIMIT $2");
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    let args = vec![Arg::Text(after), Arg::Int(limit.into())];
    db.query("listing archived streams", &sql, args).await?.iter_mut().map(read_stub).collect()
}

/// The stub of a task or run.
pub(crate) async fn find_stub(db: &Db, id: Uuid) -> Result<Option<Stub>, StoreError> {
    let sql = format!("SELECT {STUB_COLUMNS} FROM archived_streams WHERE id = $1");
    let args = vec![Arg::uuid(id)];
    db.query("reading an archived stream", &sql, args).await?.first_mut().map(read_stub).transpose()
}

/// Tasks that ended before `before`, oldest end first.
pub(crate) async fn list_ended(
    db: &Db,
    before: Timestamp,
    queues: Queues,
    after: Option<AfterEnded>,
    limit: u32,
) -> Result<Vec<Ended>, StoreError> {
    let (at, task) = after.unwrap_or((Timestamp(i64::MIN), TaskId(Uuid::nil())));
    let mut args = vec![Arg::Int(before.0), Arg::Int(at.0), Arg::uuid(task.0), Arg::Int(limit.into())];
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
    db.query("looking for old tasks", &sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let queue = row.text(2)?;
            Ok(Ended {
                task: TaskId(row.uuid(0)?),
                ended_at: Timestamp(row.int(1)?),
                queue: queue.parse().map_err(|_| corrupt(format!("a task of queue `{queue}`")))?,
            })
        })
        .collect()
}
