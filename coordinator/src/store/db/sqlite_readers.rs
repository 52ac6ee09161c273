//! Events read where they lie: row by row on one thread, handed on as borrowed bytes. Handing rows to
//! another thread one by one, or copying them into pages first, costs more than reading them.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use docket_schema::{
    event::EventRef,
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};
use rusqlite::{Connection, OpenFlags, Row, types::ValueRef};

use super::{BUSY_MS, CACHE, direct};
use crate::store::{EachEvent, StoreError, conn::Dialect, fault::store_error};

/// Events of a stream after a place.
const SCAN_SQL: &str = "SELECT e.seq, e.position, e.recorded_at, e.turn, e.epoch, e.kind, e.version, e.payload, \
     e.prev_hash, e.hash FROM events e \
     WHERE e.stream_id = (SELECT id FROM streams WHERE name = ?1) AND e.seq > ?2 ORDER BY e.seq LIMIT ?3";

/// Events read in one transaction: a longer one would hold back the copying of the write-ahead log.
const AT_ONCE: u32 = 20_000;

/// Connections that are kept for the next scan.
const IDLE_MAX: usize = 4;

/// Scans of one database file.
#[derive(Debug)]
pub(in crate::store) struct Scans {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

/// What a scan reads.
#[derive(Debug)]
pub(in crate::store) struct Range {
    pub(in crate::store) stream: StreamId,
    pub(in crate::store) after: Seq,
    /// Events at most.
    pub(in crate::store) limit: Option<u32>,
}

impl Scans {
    pub(super) const fn of(path: PathBuf) -> Self {
        Self { path, idle: Mutex::new(Vec::new()) }
    }

    /// Hands each event of the range to `each`, in order, until it breaks off.
    pub(in crate::store) async fn scan(
        self: Arc<Self>,
        range: Range,
        each: EachEvent,
    ) -> Result<(), StoreError> {
        let scanned = tokio::task::spawn_blocking(move || self.on_this_thread(&range, each)).await;
        scanned.unwrap_or_else(|_| Err(StoreError::Corrupt { what: "a scan broke off".to_owned() }))
    }

    /// Closes what is idle.
    pub(in crate::store) fn close(&self) {
        self.idle.lock().expect("nobody panics while holding it").clear();
    }

    fn on_this_thread(&self, range: &Range, mut each: EachEvent) -> Result<(), StoreError> {
        let failed = |error| store_error(Dialect::Sqlite, "reading events", direct::failed(error));
        let idle = self.idle.lock().expect("nobody panics while holding it").pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.open().map_err(failed)?,
        };
        let (mut after, mut left) = (range.after, range.limit);
        loop {
            let limit = left.unwrap_or(AT_ONCE).min(AT_ONCE);
            let read = part(&conn, &range.stream, after, limit, &mut each).map_err(failed)??;
            left = left.map(|left| left.saturating_sub(read.events));
            after = read.last;
            if read.broke_off || read.events < limit || left == Some(0) {
                break;
            }
        }
        let mut idle = self.idle.lock().expect("nobody panics while holding it");
        if idle.len() < IDLE_MAX {
            idle.push(conn);
        }
        Ok(())
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(Duration::from_millis(BUSY_MS))?;
        conn.execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = {CACHE};"))?;
        Ok(conn)
    }
}

struct Part {
    events: u32,
    last: Seq,
    broke_off: bool,
}

fn part(
    conn: &Connection,
    stream: &StreamId,
    after: Seq,
    limit: u32,
    each: &mut EachEvent,
) -> rusqlite::Result<Result<Part, StoreError>> {
    let mut statement = conn.prepare_cached(SCAN_SQL)?;
    let place = i64::try_from(after.0).unwrap_or(i64::MAX);
    let mut rows = statement.query((stream.to_string(), place, limit))?;
    let mut read = Part { events: 0, last: after, broke_off: false };
    while let Some(row) = rows.next()? {
        let Some(event) = event(row) else {
            let place = row.get_ref(0)?.as_i64().unwrap_or_default();
            let what = format!("{stream}: event {place} was altered (it is not in its form)");
            return Ok(Err(StoreError::Corrupt { what }));
        };
        read.events += 1;
        read.last = event.seq;
        if each(&event) == ControlFlow::Break(()) {
            read.broke_off = true;
            break;
        }
    }
    Ok(Ok(read))
}

/// `None` where a row is not in its form.
fn event<'a>(row: &'a Row<'_>) -> Option<EventRef<'a>> {
    let cell = |at: usize| row.get_ref(at).ok();
    let int = |at| cell(at)?.as_i64().ok();
    let count = |at| u64::try_from(int(at)?).ok();
    // Text that is no UTF-8 was altered.
    let text = |at| match cell(at)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    let hash = |at| cell(at)?.as_blob().ok()?.try_into().ok().map(EventHash);
    Some(EventRef {
        seq: Seq(count(0)?),
        position: Position(count(1)?),
        recorded_at: Timestamp(int(2)?),
        turn: Turn(u32::try_from(int(3)?).ok()?),
        epoch: Epoch(count(4)?),
        kind: text(5)?,
        // No version that any build knows: told by whoever decodes it.
        version: u16::try_from(int(6)?).unwrap_or(u16::MAX),
        payload: text(7)?,
        prev_hash: hash(8)?,
        hash: hash(9)?,
    })
}
