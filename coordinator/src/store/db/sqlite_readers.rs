//! Connections that read a SQLite file, each on a thread that may block.
//!
//! Queries return all rows at once. Events are scanned row by row on one thread and passed on as borrowed
//! bytes: handing rows to another thread one by one, or copying them into pages first, costs more than
//! reading them.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use docket_schema::{
    event::EventRef,
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};
use rusqlite::{Connection, OpenFlags, Row, types::ValueRef};
use tokio::sync::Semaphore;

use super::{
    db_error::store_error,
    dialect::SqlDialect,
    sqlite_driver,
    values::{self, SqlArg},
};
use crate::store::{EventVisitor, StoreError, api::corrupt_error};

/// Events of a stream after a seq.
const SCAN_SQL: &str = "SELECT e.seq, e.position, e.recorded_at, e.turn, e.epoch, e.kind, e.version, e.payload, \
     e.prev_hash, e.hash FROM events e \
     WHERE e.stream_id = (SELECT id FROM streams WHERE name = ?1) AND e.seq > ?2 ORDER BY e.seq LIMIT ?3";

/// Events read in one transaction; a longer one would hold back the checkpoint of the write-ahead log.
const SCAN_EVENTS_MAX: u32 = 20_000;

/// Concurrent queries. They are short, and the cores are shared with the writer.
const QUERIES_MAX: u32 = 4;

/// How long a query waits for a free slot.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle connections kept open: for queries and for as many scans.
const IDLE_CONNECTIONS_MAX: usize = 2 * QUERIES_MAX as usize;

/// Prepared statements cached per connection: more than there are queries.
const STATEMENT_CACHE_SIZE: usize = 128;

/// How long SQLite itself waits for another process's lock, in milliseconds; the writer then tries again.
pub(crate) const BUSY_MS: u64 = 5_000;

/// Page cache of each connection in SQLite's notation: 32 MiB.
pub(crate) const CACHE_SIZE: &str = "-32768";

/// The readers of one database file.
#[derive(Debug)]
pub(crate) struct SqliteReaders {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    queries: Arc<Semaphore>,
}

/// Range of events to scan.
#[derive(Debug)]
pub(crate) struct ScanRange {
    pub(crate) stream: StreamId,
    pub(crate) after: Seq,
    /// Maximum number of events.
    pub(crate) limit: Option<u32>,
}

impl SqliteReaders {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), queries: Arc::new(Semaphore::new(QUERIES_MAX as usize)) }
    }

    pub(super) async fn query_rows(
        self: &Arc<Self>,
        sql: &str,
        args: Vec<SqlArg>,
    ) -> Result<Vec<values::SqlRow>, sqlx::Error> {
        let slot = tokio::time::timeout(QUERY_TIMEOUT, Arc::clone(&self.queries).acquire_owned()).await;
        let slot = slot.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let (readers, sql) = (Arc::clone(self), sql.to_owned());
        let query = move || {
            let rows = readers.with_connection(|conn| sqlite_driver::query_rows(conn, &sql, &args));
            // Released here and not by the caller, which may be gone long before.
            drop(slot);
            rows.map_err(sqlite_driver::to_sqlx_error)?
        };
        tokio::task::spawn_blocking(query).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Passes each event of the range to `each`, in order, until it breaks.
    pub(crate) async fn scan_events(
        self: Arc<Self>,
        range: ScanRange,
        mut each: EventVisitor,
    ) -> Result<(), StoreError> {
        let scan = move || {
            let failed = |error| {
                store_error(SqlDialect::Sqlite, "reading events", sqlite_driver::to_sqlx_error(error))
            };
            self.with_connection(|conn| scan_range(conn, &range, &mut each)).flatten().map_err(failed)?
        };
        let scanned = tokio::task::spawn_blocking(scan).await;
        scanned.unwrap_or_else(|_| Err(corrupt_error("a scan was interrupted".to_owned())))
    }

    /// Closes idle connections once running queries have ended. No query begins afterwards.
    pub(super) async fn close(&self) {
        let slots = self.queries.acquire_many(QUERIES_MAX).await;
        self.queries.close();
        drop(slots);
        self.lock_idle().clear();
    }

    fn with_connection<T>(&self, read: impl FnOnce(&Connection) -> T) -> rusqlite::Result<T> {
        if self.queries.is_closed() {
            let misuse = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISUSE);
            return Err(rusqlite::Error::SqliteFailure(misuse, Some("the store is closed".to_owned())));
        }
        let idle = self.lock_idle().pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.open_connection()?,
        };
        let read = read(&conn);
        let mut idle = self.lock_idle();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(conn);
        }
        Ok(read)
    }

    fn lock_idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_connection(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(Duration::from_millis(BUSY_MS))?;
        conn.execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = {CACHE_SIZE};"))?;
        conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        Ok(conn)
    }
}

/// Reads the range in several transactions.
fn scan_range(
    conn: &Connection,
    range: &ScanRange,
    each: &mut EventVisitor,
) -> rusqlite::Result<Result<(), StoreError>> {
    let (mut after, mut left) = (range.after, range.limit);
    loop {
        let limit = left.unwrap_or(SCAN_EVENTS_MAX).min(SCAN_EVENTS_MAX);
        let read = match scan_page(conn, &range.stream, after, limit, each)? {
            Ok(read) => read,
            Err(altered) => return Ok(Err(altered)),
        };
        left = left.map(|left| left.saturating_sub(read.events));
        after = read.last;
        if read.was_stopped || read.events < limit || left == Some(0) {
            return Ok(Ok(()));
        }
    }
}

struct ScannedPage {
    events: u32,
    last: Seq,
    was_stopped: bool,
}

fn scan_page(
    conn: &Connection,
    stream: &StreamId,
    after: Seq,
    limit: u32,
    each: &mut EventVisitor,
) -> rusqlite::Result<Result<ScannedPage, StoreError>> {
    let mut statement = conn.prepare_cached(SCAN_SQL)?;
    let place = i64::try_from(after.0).unwrap_or(i64::MAX);
    let mut rows = statement.query((stream.to_string(), place, limit))?;
    let mut read = ScannedPage { events: 0, last: after, was_stopped: false };
    while let Some(row) = rows.next()? {
        let Some(event) = event_from_row(row) else {
            let place = row.get_ref(0)?.as_i64().unwrap_or_default();
            let what = format!("{stream}: event {place} was altered (it is not in its form)");
            return Ok(Err(corrupt_error(what)));
        };
        read.events += 1;
        read.last = event.seq;
        if each(&event) == ControlFlow::Break(()) {
            read.was_stopped = true;
            break;
        }
    }
    Ok(Ok(read))
}

/// Returns `None` if a row is malformed.
fn event_from_row<'a>(row: &'a Row<'_>) -> Option<EventRef<'a>> {
    let cell = |at: usize| row.get_ref(at).ok();
    let int = |at| cell(at)?.as_i64().ok();
    let count = |at| u64::try_from(int(at)?).ok();
    // Invalid UTF-8 means that the text was altered.
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
        // A version unknown to every build; decoding reports it.
        version: u16::try_from(int(6)?).unwrap_or(u16::MAX),
        payload: text(7)?,
        prev_hash: hash(8)?,
        hash: hash(9)?,
    })
}
