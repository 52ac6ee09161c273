//! Reads of runs: views, lease states, and trees of shared history.

use docket_schema::{
    api::{ParentRef, RunView},
    event::{Head, TypedEvent as _},
    ids::{EventHash, RunId, Seq, StreamId, TaskId, Timestamp},
    run::RunEvent,
};
use uuid::Uuid;

use crate::store::{
    RunLeaseState, RunWithFirstEvent, StoreError,
    api::corrupt_error,
    db::{
        DbPool, SqlArg, SqlRow,
        row::{STREAM_COLUMNS, StreamFence, read_run_row, read_stream_row},
    },
};

/// Columns read by [`read_run_view`], of `runs r` and `streams s`.
const RUN_VIEW_COLUMNS: &str = "r.id, r.stream_id, r.task, r.attempt, r.stage, r.parent, \
     r.parent_seq, r.ended_at, s.head_seq, s.head_hash, s.fence, \
     (SELECT e.turn FROM events e WHERE e.stream_id = r.stream_id AND e.turn > 0 ORDER BY e.seq DESC LIMIT 1), \
     (SELECT e.recorded_at FROM events e WHERE e.stream_id = r.stream_id AND e.seq = 1)";

async fn list_run_views(db: &DbPool, filter: &str, id: Uuid) -> Result<Vec<RunView>, StoreError> {
    let sql = format!(
        "SELECT {RUN_VIEW_COLUMNS} \
         FROM runs r JOIN streams s ON s.id = r.stream_id WHERE {filter} = $1 ORDER BY r.attempt"
    );
    db.query("reading runs", &sql, vec![SqlArg::from_uuid(id)]).await?.iter_mut().map(read_run_view).collect()
}

fn read_run_view(row: &mut SqlRow) -> Result<RunView, StoreError> {
    let run = read_run_row(row, 0)?;
    let head = Head { seq: Seq(row.get_u64(8)?), hash: EventHash(row.get_array(9)?) };
    let open = row.get_text(10)? == "open";
    let status = match run.stage.as_str() {
        "living" if open => "running".to_owned(),
        "living" => "waiting".to_owned(),
        _ => run.stage,
    };
    Ok(RunView {
        id: run.id,
        task: run.task,
        head,
        parent: run.parent.map(|(run, seq)| ParentRef { run, seq }),
        status,
        turn: row.get_i64_or_null(11)?.and_then(|turn| u32::try_from(turn).ok()).unwrap_or(0),
        started_at: row.get_i64_or_null(12)?.map(Timestamp),
        ended_at: run.ended_at,
    })
}

/// Lists the runs of a task.
pub(crate) async fn list_task_runs(db: &DbPool, task: TaskId) -> Result<Vec<RunView>, StoreError> {
    list_run_views(db, "r.task", task.0).await
}

pub(crate) async fn read_run(db: &DbPool, id: RunId) -> Result<Option<RunView>, StoreError> {
    Ok(list_run_views(db, "r.id", id.0).await?.pop())
}

/// Reads who may append to a run as its holder.
pub(crate) async fn read_run_lease_state(
    db: &DbPool,
    id: RunId,
) -> Result<Option<RunLeaseState>, StoreError> {
    let sql = format!("SELECT {STREAM_COLUMNS} FROM streams s WHERE s.name = $1");
    let name = SqlArg::Text(StreamId::Run(id).to_string());
    let mut found = db.query("reading who holds a run", &sql, vec![name]).await?;
    let Some(row) = found.first_mut() else { return Ok(None) };
    let stream = read_stream_row(row, 0)?;
    Ok(Some(match stream.fence {
        StreamFence::Open => RunLeaseState::Leased(stream.epoch),
        StreamFence::None | StreamFence::Shut => RunLeaseState::Unleased(stream.epoch),
        StreamFence::Closed => RunLeaseState::Closed,
    }))
}

/// Reads every run of the tree that `run` belongs to, by id, with the first event of each; at most `limit`.
/// Empty if there is no such run. One statement: up to the root, then down.
pub(crate) async fn read_lineage(
    db: &DbPool,
    run: RunId,
    limit: u32,
) -> Result<Vec<RunWithFirstEvent>, StoreError> {
    let sql = format!(
        "WITH RECURSIVE up(id, parent) AS (SELECT id, parent FROM runs WHERE id = $1 \
         UNION SELECT p.id, p.parent FROM runs p JOIN up ON p.id = up.parent), \
         tree(id) AS (SELECT id FROM up WHERE parent IS NULL OR NOT EXISTS \
         (SELECT 1 FROM runs p WHERE p.id = up.parent) \
         UNION SELECT c.id FROM runs c JOIN tree ON c.parent = tree.id) \
         SELECT {RUN_VIEW_COLUMNS}, f.kind, f.version, f.payload FROM tree JOIN runs r ON r.id = tree.id \
         JOIN streams s ON s.id = r.stream_id LEFT JOIN events f ON f.stream_id = r.stream_id AND f.seq = 1 \
         ORDER BY r.id LIMIT $2"
    );
    let args = vec![SqlArg::from_uuid(run.0), SqlArg::Int(limit.into())];
    let mut runs = Vec::new();
    for mut row in db.query("reading a lineage", &sql, args).await? {
        let view = read_run_view(&mut row)?;
        let first = match row.get_text_or_null(13)? {
            None => None,
            Some(kind) => {
                let version = u16::try_from(row.get_i64(14)?).unwrap_or(u16::MAX);
                let event = RunEvent::decode(&kind, version, &row.get_text(15)?);
                Some(event.map_err(|error| corrupt_error(format!("run {}, event 1: {error}", view.id)))?)
            }
        };
        runs.push((view, first));
    }
    Ok(runs)
}
