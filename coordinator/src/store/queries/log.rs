//! Reads of the log: events of a stream, events by position, heads.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    event::{Envelope, Head},
    ids::{EventHash, Position, Seq, StreamId, Timestamp},
};

use crate::store::{
    EventVisitor, StoreError,
    api::corrupt_error,
    db::{DbPool, ScanRange, SqlArg, SqlDialect, read_envelope, select_events_sql},
};

/// Events per page of a scan on PostgreSQL.
const SCAN_PAGE_EVENTS: u32 = 1000;

/// Reads the server's time, on PostgreSQL.
pub(crate) async fn server_time(db: &DbPool) -> Result<Option<Timestamp>, StoreError> {
    match db.dialect() {
        SqlDialect::Sqlite => Ok(None),
        SqlDialect::Postgres => {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
            let rows = db.query("asking for the time", sql, Vec::new()).await?;
            rows.first().map(|row| Ok(Timestamp(row.get_i64(0)?))).transpose()
        }
    }
}

/// Reads events of a stream.
pub(crate) async fn read_events(
    db: &DbPool,
    stream: StreamId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Envelope>, StoreError> {
    if let DbPool::Sqlite(readers) = db {
        let found = Arc::new(Mutex::new(Vec::new()));
        let (into, of) = (Arc::clone(&found), stream.clone());
        let keep: EventVisitor = Box::new(move |event| {
            into.lock().expect("no holder panics").push(event.to_envelope(of.clone()));
            ControlFlow::Continue(())
        });
        Arc::clone(readers).scan_events(ScanRange { stream, after, limit: Some(limit) }, keep).await?;
        let mut found = found.lock().expect("no holder panics");
        return Ok(std::mem::take(&mut *found));
    }
    let sql = select_events_sql("s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
    let args = vec![SqlArg::Text(stream.to_string()), SqlArg::from_u64(after.0), SqlArg::Int(limit.into())];
    db.query("reading events", &sql, args).await?.iter_mut().map(read_envelope).collect()
}

/// Passes the events of a stream to `each` until it breaks.
pub(crate) async fn scan_events(
    db: &DbPool,
    stream: StreamId,
    mut after: Seq,
    mut each: EventVisitor,
) -> Result<(), StoreError> {
    if let DbPool::Sqlite(readers) = db {
        return Arc::clone(readers).scan_events(ScanRange { stream, after, limit: None }, each).await;
    }
    loop {
        let page = read_events(db, stream.clone(), after, SCAN_PAGE_EVENTS).await?;
        let full = page.len() >= SCAN_PAGE_EVENTS as usize;
        after = page.last().map_or(after, |last| last.seq);
        // Processing a page can occupy the CPU for long.
        let walked = tokio::task::spawn_blocking(move || {
            let broke_off = page.iter().any(|event| each(&event.as_event_ref()).is_break());
            (each, broke_off)
        });
        let broke_off;
        (each, broke_off) = walked.await.map_err(|_| corrupt_error("a scan was interrupted".to_owned()))?;
        if broke_off || !full {
            return Ok(());
        }
    }
}

/// Reads the head of a stream.
pub(crate) async fn read_head(db: &DbPool, stream: StreamId) -> Result<Option<Head>, StoreError> {
    let sql = "SELECT head_seq, head_hash FROM streams WHERE name = $1";
    db.query("reading a head", sql, vec![SqlArg::Text(stream.to_string())])
        .await?
        .first_mut()
        .map(|row| Ok(Head { seq: Seq(row.get_u64(0)?), hash: EventHash(row.get_array(1)?) }))
        .transpose()
}

/// Reads events by position. On PostgreSQL positions order like transactions, so everything below the oldest
/// running transaction is final; on SQLite the only writer commits in order.
pub(crate) async fn read_log(db: &DbPool, after: Position, limit: u32) -> Result<Vec<Envelope>, StoreError> {
    let complete = match db.dialect() {
        SqlDialect::Sqlite => "",
        SqlDialect::Postgres => {
            "AND e.position < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + \
             (SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'position_offset')) << 16)"
        }
    };
    read_events_after(db, after, limit, complete).await
}

/// Reads everything committed, regardless of open transactions.
pub(crate) async fn read_committed(
    db: &DbPool,
    after: Position,
    limit: u32,
) -> Result<Vec<Envelope>, StoreError> {
    read_events_after(db, after, limit, "").await
}

async fn read_events_after(
    db: &DbPool,
    after: Position,
    limit: u32,
    condition: &str,
) -> Result<Vec<Envelope>, StoreError> {
    let sql = select_events_sql(&format!("e.position > $1 {condition} ORDER BY e.position LIMIT $2"));
    let args = vec![SqlArg::from_u64(after.0), SqlArg::Int(limit.into())];
    db.query("reading the feed", &sql, args).await?.iter_mut().map(read_envelope).collect()
}

/// Lists streams with their heads, by name.
pub(crate) async fn list_streams(
    db: &DbPool,
    after: Option<StreamId>,
    limit: u32,
) -> Result<Vec<(StreamId, Head)>, StoreError> {
    let sql = "SELECT name, head_seq, head_hash FROM streams WHERE name > $1 ORDER BY name LIMIT $2";
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    db.query("listing streams", sql, vec![SqlArg::Text(after), SqlArg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| {
            let name = row.get_text(0)?;
            let stream = name.parse().map_err(|_| corrupt_error(format!("a stream named `{name}`")))?;
            Ok((stream, Head { seq: Seq(row.get_u64(1)?), hash: EventHash(row.get_array(2)?) }))
        })
        .collect()
}
