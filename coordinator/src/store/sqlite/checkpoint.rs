//! Copies the write-ahead log back into the database, beside the writer, on a thread and a connection of its
//! own: the writer's commits never pay for it.
//!
//! A passive checkpoint locks nobody out, but under constant load it never copies the last frames, and only
//! a log that is copied to its last frame is begun anew. So the thread copies nearly all, syncs it, and then
//! leaves the few frames that came meanwhile to the writer, between two of its transactions: pages that take
//! a part of a millisecond, instead of thousands. When nobody writes, the thread empties the log itself. Whoever reads
//! an old snapshot (a backup, a long scan) holds the log back while that lasts, and nobody waits for it:
//! the log grows, and is begun anew after.
//!
//! Invariants: this thread takes the writer's lock only when nothing was written for [`IDLE`]; it never waits
//! for a lock while holding one; its errors change nothing but the size of the log.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, Thread},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};

use crate::store::db::sqlite_driver;

/// Frames (pages) that are not copied yet from which on a copy is worth its two syncs: 8 MiB.
const COPY_FRAMES: i64 = 2000;

/// Frames from which on the log should be begun anew: 32 MiB.
const RESET_FRAMES: i64 = 8000;

/// Frames that the writer may be asked to copy: what it commits in some milliseconds.
const WRITER_FRAMES_MAX: i64 = 256;

/// Frames from which on the writer copies more than that, if it must (64 MiB): a log that only ever grows is
/// worse. Even then it copies no more than came during the thread's last copy.
const FORCED_RESET_FRAMES: i64 = 16_000;

/// Passive copies in a row, each of what came during the one before, to get below [`REST_FRAMES`].
const PASSIVE_COPIES_MAX: u32 = 8;

/// How often the log is looked at while something is written.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Nothing was written for so long: the log is emptied.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Whether the log is copied back at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// As it must be.
    BackgroundThread,
    /// Never: for benches, which measure what it costs.
    Never,
}

/// What thread and writer know of each other.
#[derive(Debug, Default)]
struct CheckpointState {
    /// The writer's transactions so far.
    commits: AtomicU64,
    /// The rest is the writer's.
    writer_requested: AtomicBool,
    /// The thread sleeps until somebody writes.
    is_sleeping: AtomicBool,
    is_stopping: AtomicBool,
}

/// The writer's end. Dropped, it ends the thread.
#[derive(Debug)]
pub(super) struct CheckpointThread {
    shared: Arc<CheckpointState>,
    thread: Option<(Thread, JoinHandle<()>)>,
}

impl CheckpointThread {
    /// Starts the thread, or none.
    pub(super) fn start(path: &Path, how: CheckpointMode) -> Result<Self, sqlx::Error> {
        let shared = Arc::new(CheckpointState::default());
        if how == CheckpointMode::Never {
            return Ok(Self { shared, thread: None });
        }
        let conn = open_connection(path).map_err(sqlite_driver::to_sqlx_error)?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("docket-checkpoint".to_owned())
            .spawn(move || run_thread(&conn, &of_thread))
            .map_err(sqlx::Error::Io)?;
        Ok(Self { shared, thread: Some((thread.thread().clone(), thread)) })
    }

    /// The writer has committed, and is between two transactions on `conn`.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let Some((thread, _)) = &self.thread else { return };
        self.shared.commits.fetch_add(1, Ordering::Release);
        if self.shared.is_sleeping.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        if self.shared.writer_requested.swap(false, Ordering::AcqRel)
            && let Err(error) = copy_remaining(conn)
        {
            tracing::warn!(%error, "the write-ahead log is not begun anew for now");
        }
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some((thread, handle)) = self.thread.take() {
            thread.unpark();
            // A panic in it was told by the panic hook.
            drop(handle.join());
        }
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some((thread, _)) = &self.thread {
            thread.unpark();
        }
    }
}

fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    // Nobody is waited for: what cannot be done now is done later.
    conn.busy_timeout(Duration::ZERO)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    Ok(conn)
}

/// How long the log is, and how much of it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WalFrames {
    total: i64,
    copied: i64,
}

impl WalFrames {
    const fn uncopied(self) -> i64 {
        self.total - self.copied
    }
}

fn run_checkpoint(conn: &Connection, sql: &str) -> rusqlite::Result<WalFrames> {
    conn.query_row(sql, [], |row| Ok(WalFrames { total: row.get(1)?, copied: row.get(2)? }))
}

const STATUS_SQL: &str = "PRAGMA wal_checkpoint(NOOP)";
const COPY_SQL: &str = "PRAGMA wal_checkpoint(PASSIVE)";
const TRUNCATE_SQL: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// On the writer's thread: copies what came since the thread's last copy, so that the next transaction
/// begins the log anew. Not where that has become much meanwhile.
fn copy_remaining(conn: &Connection) -> rusqlite::Result<()> {
    let frames = run_checkpoint(conn, STATUS_SQL)?;
    if frames.uncopied() <= WRITER_FRAMES_MAX * 4 || frames.total >= FORCED_RESET_FRAMES {
        run_checkpoint(conn, COPY_SQL)?;
    }
    Ok(())
}

fn run_thread(conn: &Connection, shared: &CheckpointState) {
    let (mut seen, mut changed, mut emptied) = (0, Instant::now(), false);
    // The log that stood when a reader held it back: it is not copied again before it has grown.
    let mut held_at = 0;
    while !shared.is_stopping.load(Ordering::Acquire) {
        let commits = shared.commits.load(Ordering::Acquire);
        if commits != seen {
            (seen, changed, emptied) = (commits, Instant::now(), false);
        }
        let result = if changed.elapsed() < IDLE_AFTER {
            copy_if_needed(conn, shared, &mut held_at)
        } else if emptied {
            shared.is_sleeping.store(true, Ordering::Release);
            if shared.commits.load(Ordering::Acquire) == seen {
                std::thread::park();
            }
            shared.is_sleeping.store(false, Ordering::Release);
            continue;
        } else {
            run_checkpoint(conn, TRUNCATE_SQL).map(|frames| emptied = frames.total <= 0)
        };
        if let Err(error) = result {
            // A full disk is told by the writer; the log keeps everything meanwhile.
            tracing::debug!(%error, "the write-ahead log is not copied back for now");
        }
        std::thread::park_timeout(if changed.elapsed() < IDLE_AFTER { POLL_INTERVAL } else { IDLE_AFTER });
    }
}

fn copy_if_needed(conn: &Connection, shared: &CheckpointState, held_at: &mut i64) -> rusqlite::Result<()> {
    let mut frames = run_checkpoint(conn, STATUS_SQL)?;
    if frames.total < *held_at {
        *held_at = 0;
    }
    if frames.uncopied() < COPY_FRAMES || frames.total < *held_at + COPY_FRAMES {
        return Ok(());
    }
    let wants_restart = frames.total >= RESET_FRAMES;
    for _ in 0..PASSIVE_COPIES_MAX {
        let before = frames;
        frames = run_checkpoint(conn, COPY_SQL)?;
        if frames.copied == before.copied {
            // Somebody reads what stood before.
            *held_at = frames.total;
            return Ok(());
        }
        if !wants_restart || frames.uncopied() <= WRITER_FRAMES_MAX {
            break;
        }
    }
    if wants_restart && (frames.uncopied() <= WRITER_FRAMES_MAX || frames.total >= FORCED_RESET_FRAMES) {
        shared.writer_requested.store(true, Ordering::Release);
    }
    Ok(())
}
