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
    EachEvent, StoreError,
    api::corrupt,
    db::{Arg, Db, Dialect, ScanRange, envelope, select_events},
};

/// Events of a page of a scan on PostgreSQL.
const SCAN_PAGE: u32 = 1000;

/// The server's time, if the store is on one.
pub(crate) async fn server_time(db: &Db) -> Result<Option<Timestamp>, StoreError> {
    match db.dialect() {
        Dialect::Sqlite => Ok(None),
        Dialect::Postgres => {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
            let rows = db.query("asking for the time", sql, Vec::new()).await?;
            rows.first().map(|row| Ok(Timestamp(row.int(0)?))).transpose()
        }
    }
}

/// Events of a stream.
pub(crate) async fn read_events(
    db: &Db,
    stream: StreamId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Envelope>, StoreError> {
    if let Db::Sqlite(readers) = db {
        let found = Arc::new(Mutex::new(Vec::new()));
        let (into, of) = (Arc::clone(&found), stream.clone());
        let keep: EachEvent = Box::new(move |event| {
            into.lock().expect("nobody panics while holding it").push(event.to_envelope(of.clone()));
            ControlFlow::Continue(())
        });
        Arc::clone(readers).scan(ScanRange { stream, after, limit: Some(limit) }, keep).await?;
        let mut found = found.lock().expect("nobody panics while holding it");
        return Ok(std::mem::take(&mut *found));
    }
    let sql = select_events("s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
    let args = vec![Arg::Text(stream.to_string()), Arg::count(after.0), Arg::Int(limit.into())];
    db.query("reading events", &sql, args).await?.iter_mut().map(envelope).collect()
}

/// Hands the events of a stream to `each` until it breaks off.
pub(crate) async fn scan_events(
    db: &Db,
    stream: StreamId,
    mut after: Seq,
    mut each: EachEvent,
) -> Result<(), StoreError> {
    if let Db::Sqlite(readers) = db {
        return Arc::clone(readers).scan(ScanRange { stream, after, limit: None }, each).await;
    }
    loop {
        let page = read_events(db, stream.clone(), after, SCAN_PAGE).await?;
        let full = page.len() >= SCAN_PAGE as usize;
        after = page.last().map_or(after, |last| last.seq);
        // What is done with a page may take the processor for long.
        let walked = tokio::task::spawn_blocking(move || {
            let broke_off = page.iter().any(|event| each(&event.by_ref()).is_break());
            (each, broke_off)
        });
        let broke_off;
        (each, broke_off) = walked.await.map_err(|_| corrupt("a scan broke off".to_owned()))?;
        if broke_off || !full {
            return Ok(());
        }
    }
}

/// Head of a stream.
pub(crate) async fn read_head(db: &Db, stream: StreamId) -> Result<Option<Head>, StoreError> {
    let sql = "SELECT head_seq, head_hash FROM streams WHERE name = $1";
    db.query("reading a head", sql, vec![Arg::Text(stream.to_string())])
        .await?
        .first_mut()
        .map(|row| Ok(Head { seq: Seq(row.count(0)?), hash: EventHash(row.fixed(1)?) }))
        .transpose()
}

/// On PostgreSQL positions order as transactions do, so everything under the oldest running
/// transaction is there for good; on SQLite the one writer commits in order.
pub(crate) async fn read_feed(db: &Db, after: Position, limit: u32) -> Result<Vec<Envelope>, StoreError> {
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
pub(crate) async fn read_committed(
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
    let sql = select_events(&format!("e.position > $1 {condition} ORDER BY e.position LIMIT $2"));
    let args = vec![Arg::count(after.0), Arg::Int(limit.into())];
    db.query("reading the feed", &sql, args).await?.iter_mut().map(envelope).collect()
}

/// Streams with their heads, in name order.
pub(crate) async fn list_streams(
    db: &Db,
    after: Option<StreamId>,
    limit: u32,
) -> Result<Vec<(StreamId, Head)>, StoreError> {
    let sql = "SELECT name, head_seq, head_hash FROM streams WHERE name > $1 ORDER BY name LIMIT $2";
    let after = after.map(|stream| stream.to_string()).unwrap_or_default();
    db.query("listing streams", sql, vec![Arg::Text(after), Arg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| {
            let name = row.text(0)?;
            let stream = name.parse().map_err(|_| corrupt(format!("a stream named `{name}`")))?;
            Ok((stream, Head { seq: Seq(row.count(1)?), hash: EventHash(row.fixed(2)?) }))
        })
        .collect()
}
