//! Reads of runs: as views, who holds one, and the tree of runs that share history.

use docket_schema::{
    event::{Head, TypedEvent as _},
    ids::{EventHash, RunId, Seq, StreamId, TaskId, Timestamp},
    run::RunEvent,
    wire::{ParentRef, RunView},
};
use uuid::Uuid;

use crate::store::{
    Holding, RunAndFirst, StoreError,
    api::corrupt,
    db::{
        Arg, Db, Row,
        row::{Fence, STREAM_COLUMNS, run_row, stream_row},
    },
};

/// Columns of [`run_view`], of `runs r` and `streams s`.
const RUN_VIEW_COLUMNS: &str = "r.id, r.stream_id, r.task, r.attempt, r.stage, r.parent, \
     r.parent_seq, r.ended_at, s.head_seq, s.head_hash, s.fence, \
     (SELECT e.turn FROM events e WHERE e.stream_id = r.stream_id AND e.turn > 0 ORDER BY e.seq DESC LIMIT 1), \
     (SELECT e.recorded_at FROM events e WHERE e.stream_id = r.stream_id AND e.seq = 1)";

async fn run_views(db: &Db, filter: &str, id: Uuid) -> Result<Vec<RunView>, StoreError> {
    let sql = format!(
        "SELECT {RUN_VIEW_COLUMNS} \
         FROM runs r JOIN streams s ON s.id = r.stream_id WHERE {filter} = $1 ORDER BY r.attempt"
    );
    db.query("reading runs", &sql, vec![Arg::uuid(id)]).await?.iter_mut().map(run_view).collect()
}

fn run_view(row: &mut Row) -> Result<RunView, StoreError> {
    let run = run_row(row, 0)?;
    let head = Head { seq: Seq(row.count(8)?), hash: EventHash(row.fixed(9)?) };
    let open = row.text(10)? == "open";
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
        turn: row.int_or_null(11)?.and_then(|turn| u32::try_from(turn).ok()).unwrap_or(0),
        started_at: row.int_or_null(12)?.map(Timestamp),
        ended_at: run.ended_at,
    })
}

/// The runs of a task.
pub(crate) async fn list_runs(db: &Db, task: TaskId) -> Result<Vec<RunView>, StoreError> {
    run_views(db, "r.task", task.0).await
}

pub(crate) async fn read_run(db: &Db, id: RunId) -> Result<Option<RunView>, StoreError> {
    Ok(run_views(db, "r.id", id.0).await?.pop())
}

/// Who may append to a run as its holder.
pub(crate) async fn find_holder(db: &Db, id: RunId) -> Result<Option<Holding>, StoreError> {
    let sql = format!("SELECT {STREAM_COLUMNS} FROM streams s WHERE s.name = $1");
    let name = Arg::Text(StreamId::Run(id).to_string());
    let mut found = db.query("looking who holds a run", &sql, vec![name]).await?;
    let Some(row) = found.first_mut() else { return Ok(None) };
    let stream = stream_row(row, 0)?;
    Ok(Some(match stream.fence {
        Fence::Open => Holding::Open(stream.epoch),
        Fence::None | Fence::Shut => Holding::Shut(stream.epoch),
        Fence::Closed => Holding::Closed,
    }))
}

/// Every run of the tree that `run` belongs to, oldest id first, with the event it begins with; at most `limit`. None if
/// there is no such run. One statement: up to the root, then down.
pub(crate) async fn read_lineage(db: &Db, run: RunId, limit: u32) -> Result<Vec<RunAndFirst>, StoreError> {
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
    let args = vec![Arg::uuid(run.0), Arg::Int(limit.into())];
    let mut runs = Vec::new();
    for mut row in db.query("reading a lineage", &sql, args).await? {
        let view = run_view(&mut row)?;
        let first = match row.text_or_null(13)? {
            None => None,
            Some(kind) => {
                let version = u16::try_from(row.int(14)?).unwrap_or(u16::MAX);
                let event = RunEvent::decode(&kind, version, &row.text(15)?);
                Some(event.map_err(|error| corrupt(format!("run {}, event 1: {error}", view.id)))?)
            }
        };
        runs.push((view, first));
    }
    Ok(runs)
}
