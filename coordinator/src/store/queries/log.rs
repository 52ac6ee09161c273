//! Reading: one statement each, on a pool of its own, never in the writer's way.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    event::{Envelope, Head},
    ids::{Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
    wire::{ParentRef, Resolved, Room, RunView, StateCount, WorkerView},
};
use uuid::Uuid;

use super::{
    EachEvent, Holding, StoreError,
    conn::{Arg, Db, Dialect, Row},
    fault::store_error,
    row::{
        EVENT_COLUMNS, Fence, STREAM_COLUMNS, TASK_COLUMNS, TASK_TABLES, envelope, run_row, stream_row,
        task_row,
    },
    sqlite::Range,
};

/// Ids of each kind that a few digits may resolve to.
const RESOLVED_MAX: i64 = 20;

/// Digits of an id.
const DIGITS: usize = 32;

pub(super) async fn rows(
    db: &Db,
    doing: &'static str,
    sql: &str,
    args: Vec<Arg>,
) -> Result<Vec<Row>, StoreError> {
    db.rows(sql, args).await.map_err(|source| store_error(db.dialect(), doing, source))
}

fn uuid_arg(id: Uuid) -> Arg {
    Arg::Blob(id.as_bytes().to_vec())
}

/// The server's time, if the store is on one.
pub(super) async fn time(db: &Db) -> Result<Option<Timestamp>, StoreError> {
    match db.dialect() {
        Dialect::Sqlite => Ok(None),
        Dialect::Postgres => {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
            let rows = rows(db, "asking for the time", sql, Vec::new()).await?;
            rows.first().map(|row| Ok(Timestamp(row.int(0)?))).transpose()
        }
    }
}

pub(super) async fn expired(db: &Db, now: Timestamp, limit: u32) -> Result<Vec<(TaskId, Epoch)>, StoreError> {
    let sql = "SELECT id, epoch FROM tasks WHERE state = 'running' AND deadline_at < $1 ORDER BY deadline_at LIMIT $2";
    rows(db, "looking for expired leases", sql, vec![Arg::Int(now.0), Arg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| Ok((TaskId(Uuid::from_bytes(row.fixed(0)?)), Epoch(row.count(1)?))))
        .collect()
}

/// Tasks that rest for their batch's budget where that was set anew since.
async fn over_budget_no_more(db: &Db, limit: u32) -> Result<Vec<TaskId>, StoreError> {
    let sql = "SELECT t.id FROM tasks t LEFT JOIN batch_budgets b ON b.batch = t.batch \
               WHERE t.blocked_why = 'budget' AND b.spent IS NULL LIMIT $1";
    rows(db, "looking for raised budgets", sql, vec![Arg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| Ok(TaskId(Uuid::from_bytes(row.fixed(0)?))))
        .collect()
}

pub(super) async fn due(
    db: &Db,
    now: Timestamp,
    limit: u32,
) -> Result<(Vec<TaskId>, Option<Timestamp>), StoreError> {
    let sql = "SELECT id, available_at FROM tasks \
               WHERE state IN ('scheduled', 'retryable') OR blocked_why = 'outage' \
               ORDER BY available_at LIMIT $1";
    let mut due = over_budget_no_more(db, limit).await?;
    // One more than asked for: the first that is not due says when to look again.
    for mut row in rows(db, "looking for due tasks", sql, vec![Arg::Int(i64::from(limit) + 1)]).await? {
        let at = Timestamp(row.int(1)?);
        if at > now || due.len() >= limit as usize {
            return Ok((due, Some(at)));
        }
        due.push(TaskId(Uuid::from_bytes(row.fixed(0)?)));
    }
    Ok((due, None))
}

pub(super) async fn task(db: &Db, id: TaskId) -> Result<Option<(TaskRecord, Option<Timestamp>)>, StoreError> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE t.id = $1");
    rows(db, "reading a task", &sql, vec![uuid_arg(id.0)]).await?.first_mut().map(task_row).transpose()
}

/// Columns of [`run_view`], of `runs r` and `streams s`.
pub(super) const RUN_VIEW_COLUMNS: &str = "r.id, r.stream_id, r.task, r.attempt, r.stage, r.parent, \
     r.parent_seq, r.ended_at, s.head_seq, s.head_hash, s.fence, \
     (SELECT e.turn FROM events e WHERE e.stream_id = r.stream_id AND e.turn > 0 ORDER BY e.seq DESC LIMIT 1), \
     (SELECT e.recorded_at FROM events e WHERE e.stream_id = r.stream_id AND e.seq = 1)";

async fn run_views(db: &Db, filter: &str, id: Uuid) -> Result<Vec<RunView>, StoreError> {
    let sql = format!(
        "SELECT {RUN_VIEW_COLUMNS} \
         FROM runs r JOIN streams s ON s.id = r.stream_id WHERE {filter} = $1 ORDER BY r.attempt"
    );
    rows(db, "reading runs", &sql, vec![uuid_arg(id)]).await?.iter_mut().map(run_view).collect()
}

pub(super) fn run_view(row: &mut Row) -> Result<RunView, StoreError> {
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

pub(super) async fn runs_of(db: &Db, task: TaskId) -> Result<Vec<RunView>, StoreError> {
    run_views(db, "r.task", task.0).await
}

pub(super) async fn run(db: &Db, id: RunId) -> Result<Option<RunView>, StoreError> {
    Ok(run_views(db, "r.id", id.0).await?.pop())
}

pub(super) async fn holding(db: &Db, id: RunId) -> Result<Option<Holding>, StoreError> {
    let sql = format!("SELECT {STREAM_COLUMNS} FROM streams s WHERE s.name = $1");
    let name = Arg::Text(StreamId::Run(id).to_string());
    let mut found = rows(db, "looking who holds a run", &sql, vec![name]).await?;
    let Some(row) = found.first_mut() else { return Ok(None) };
    let stream = stream_row(row, 0)?;
    Ok(Some(match stream.fence {
        Fence::Open => Holding::Open(stream.epoch),
        Fence::None | Fence::Shut => Holding::Shut(stream.epoch),
        Fence::Closed => Holding::Closed,
    }))
}

pub(super) async fn resolve(db: &Db, digits: String) -> Result<Resolved, StoreError> {
    let digits: String = digits.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    let legal = !digits.is_empty() && digits.len() <= DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !legal {
        return Ok(Resolved { tasks: Vec::new(), runs: Vec::new(), archived: Vec::new() });
    }
    let bound = |filler: &str| {
        let full = format!("{digits}{}", filler.repeat(DIGITS - digits.len()));
        Uuid::try_parse(&full)
            .map(uuid_arg)
            .map_err(|_| StoreError::Corrupt { what: format!("digits {full}") })
    };
    let range = vec![bound("0")?, bound("f")?, Arg::Int(RESOLVED_MAX)];
    let begin =
        |table: &str| format!("SELECT id FROM {table} WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3");
    let found = Resolved {
        tasks: ids(db, &begin("tasks"), range.clone()).await?.into_iter().map(TaskId).collect(),
        runs: ids(db, &begin("runs"), range.clone()).await?.into_iter().map(RunId).collect(),
        archived: Vec::new(),
    };
    if !found.tasks.is_empty() || !found.runs.is_empty() {
        return Ok(found);
    }
    let hex = match db.dialect() {
        Dialect::Sqlite => "lower(hex(id))",
        Dialect::Postgres => "encode(id, 'hex')",
    };
    let tail = vec![Arg::Text(format!("%{digits}")), Arg::Int(RESOLVED_MAX)];
    let end = |table: &str| format!("SELECT id FROM {table} WHERE {hex} LIKE $1 ORDER BY id LIMIT $2");
    let found = Resolved {
        tasks: ids(db, &end("tasks"), tail.clone()).await?.into_iter().map(TaskId).collect(),
        runs: ids(db, &end("runs"), tail.clone()).await?.into_iter().map(RunId).collect(),
        archived: Vec::new(),
    };
    if !found.tasks.is_empty() || !found.runs.is_empty() {
        return Ok(found);
    }
    let begin = "SELECT name FROM archived_streams WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";
    let mut archived = streams_named(db, begin, range).await?;
    if archived.is_empty() {
        let end = format!("SELECT name FROM archived_streams WHERE {hex} LIKE $1 ORDER BY id LIMIT $2");
        archived = streams_named(db, &end, tail).await?;
    }
    Ok(Resolved { archived, ..found })
}

async fn streams_named(db: &Db, sql: &str, args: Vec<Arg>) -> Result<Vec<StreamId>, StoreError> {
    let corrupt = |name: &str| StoreError::Corrupt { what: format!("an archived stream named `{name}`") };
    rows(db, "resolving an id", sql, args)
        .await?
        .iter_mut()
        .map(|row| row.text(0).and_then(|name| name.parse().map_err(|_| corrupt(&name))))
        .collect()
}

async fn ids(db: &Db, sql: &str, args: Vec<Arg>) -> Result<Vec<Uuid>, StoreError> {
    rows(db, "resolving an id", sql, args)
        .await?
        .iter_mut()
        .map(|row| Ok(Uuid::from_bytes(row.fixed(0)?)))
        .collect()
}

/// Events of a page of a scan on PostgreSQL.
const SCAN_PAGE: u32 = 1000;

pub(super) async fn events(
    db: &Db,
    stream: StreamId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Envelope>, StoreError> {
    if let Db::Sqlite { scans, .. } = db {
        let found = Arc::new(Mutex::new(Vec::new()));
        let (into, of) = (Arc::clone(&found), stream.clone());
        let keep: EachEvent = Box::new(move |event| {
            into.lock().expect("nobody panics while holding it").push(event.to_envelope(of.clone()));
            ControlFlow::Continue(())
        });
        Arc::clone(scans).scan(Range { stream, after, limit: Some(limit) }, keep).await?;
        let mut found = found.lock().expect("nobody panics while holding it");
        return Ok(std::mem::take(&mut *found));
    }
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3"
    );
    let after = Arg::Int(i64::try_from(after.0).unwrap_or(i64::MAX));
    let args = vec![Arg::Text(stream.to_string()), after, Arg::Int(limit.into())];
    rows(db, "reading events", &sql, args).await?.iter_mut().map(envelope).collect()
}

pub(super) async fn scan(
    db: &Db,
    stream: StreamId,
    mut after: Seq,
    mut each: EachEvent,
) -> Result<(), StoreError> {
    if let Db::Sqlite { scans, .. } = db {
        return Arc::clone(scans).scan(Range { stream, after, limit: None }, each).await;
    }
    loop {
        let page = events(db, stream.clone(), after, SCAN_PAGE).await?;
        let full = page.len() >= SCAN_PAGE as usize;
        after = page.last().map_or(after, |last| last.seq);
        // What is done with a page may take the processor for long.
        let walked = tokio::task::spawn_blocking(move || {
            let broke_off = page.iter().any(|event| each(&event.by_ref()).is_break());
            (each, broke_off)
        });
        let broke_off;
        (each, broke_off) =
            walked.await.map_err(|_| StoreError::Corrupt { what: "a scan broke off".to_owned() })?;
        if broke_off || !full {
            return Ok(());
        }
    }
}

pub(super) async fn head(db: &Db, stream: StreamId) -> Result<Option<Head>, StoreError> {
    let sql = "SELECT head_seq, head_hash FROM streams WHERE name = $1";
    rows(db, "reading a head", sql, vec![Arg::Text(stream.to_string())])
        .await?
        .first_mut()
        .map(|row| Ok(Head { seq: Seq(row.count(0)?), hash: EventHash(row.fixed(1)?) }))
        .transpose()
}

/// On PostgreSQL positions order as transactions do, so everything under the oldest running
/// transaction is there for good; on SQLite the one writer commits in order.
pub(super) async fn feed(db: &Db, after: Position, limit: u32) -> Result<Vec<Envelope>, StoreError> {
    let complete = match db.dialect() {
        Dialect::Sqlite => "",
        Dialect::Postgres => {
            "AND e.position < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + \
             (SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'position_offset')) << 16)"
        }
    };
    events_after(db, after, limit, complete).await
}

/// All that is committed, whatever transactions are open.
pub(super) async fn committed_events(
    db: &Db,
    after: Position,
    limit: u32,
) -> Result<Vec<Envelope>, StoreError> {
    events_after(db, after, limit, "").await
}

async fn events_after(
    db: &Db,
    after: Position,
    limit: u32,
    condition: &str,
) -> Result<Vec<Envelope>, StoreError> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE e.position > $1 {condition} ORDER BY e.position LIMIT $2"
    );
    let args = vec![Arg::Int(i64::try_from(after.0).unwrap_or(i64::MAX)), Arg::Int(limit.into())];
    rows(db, "reading the feed", &sql, args).await?.iter_mut().map(envelope).collect()
}

pub(super) async fn streams(
    db: &Db,
    after: Option<StreamId>,
    limit: u32,
) -> Result<Vec<(StreamId, Head)>, StoreError> {
    let sql = "SELECT name, head_seq, head_hash FROM streams WHERE name > $1 ORDER BY name LIMIT $2";
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    rows(db, "listing streams", sql, vec![Arg::Text(after), Arg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| {
            let name = row.text(0)?;
            let stream =
                name.parse().map_err(|_| StoreError::Corrupt { what: format!("a stream named `{name}`") })?;
            Ok((stream, Head { seq: Seq(row.count(1)?), hash: EventHash(row.fixed(2)?) }))
        })
        .collect()
}

pub(super) async fn status(
    db: &Db,
    since: Timestamp,
) -> Result<(Vec<StateCount>, Vec<WorkerView>), StoreError> {
    const DOING: &str = "reading the status";
    let counts = rows(db, DOING, "SELECT state, count(*) FROM tasks GROUP BY state", Vec::new())
        .await?
        .iter_mut()
        .map(|row| {
            let word = row.text(0)?;
            let state: TaskState = word
                .parse()
                .map_err(|_| StoreError::Corrupt { what: format!("a task in state `{word}`") })?;
            Ok(StateCount { state, count: row.count(1)? })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok((counts, workers(db, since).await?))
}

/// Workers and how many tasks each has.
pub(super) const WORKERS: &str = "SELECT w.incarnation, w.name, w.seen_at, \
               (SELECT count(*) FROM tasks t WHERE t.state = 'running' AND t.worker = w.incarnation), \
               w.about, w.slots, w.full_why, w.draining \
               FROM workers w WHERE w.seen_at >= $1 ORDER BY w.name, w.incarnation";

/// Workers heard of since `since`.
pub(super) async fn workers(db: &Db, since: Timestamp) -> Result<Vec<WorkerView>, StoreError> {
    rows(db, "reading the workers", WORKERS, vec![Arg::Int(since.0)])
        .await?
        .iter_mut()
        .map(|row| {
            Ok(WorkerView {
                incarnation: IncarnationId(Uuid::from_bytes(row.fixed(0)?)),
                name: row.text(1)?,
                seen_at: Timestamp(row.int(2)?),
                held: row.small(3)?,
                about: row.text_or_null(4)?.and_then(|text| serde_json::from_str(&text).ok()),
                room: match (row.int_or_null(5)?, row.text_or_null(6)?) {
                    (Some(slots), full) => Some(Room { slots: u32::try_from(slots).unwrap_or(0), full }),
                    (None, _) => None,
                },
                draining: row.int(7)? != 0,
            })
        })
        .collect()
}
