//! Checkpoints of the write-ahead log on a separate thread and connection, so that the writer's commits do
//! not pay for them.
//!
//! A passive checkpoint blocks no one, but under constant load it never copies the last frames, and only a
//! log copied to its last frame is reset. So the thread copies and syncs nearly all of it and leaves the few
//! frames that arrived meanwhile to the writer, between two of its transactions: pages that take a fraction
//! of a millisecond, instead of thousands. When there are no writes, the thread empties the log itself. A
//! reader of an old snapshot (a backup, a long scan) holds the log back, and nothing waits for it: the log
//! grows and is reset afterwards.
//!
//! Invariants: this thread takes the writer's lock only when nothing was written for [`IDLE_AFTER`]; it never
//! waits for a lock while holding one; its errors affect only the size of the log.

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

/// Uncopied frames (pages) that make a copy worth its two syncs: 8 MiB.
const COPY_FRAMES: i64 = 2000;

/// Frames at which the log should be reset: 32 MiB.
const RESET_FRAMES: i64 = 8000;

/// Most frames that the writer is asked to copy: what it commits in some milliseconds.
const WRITER_FRAMES_MAX: i64 = 256;

/// Frames at which the writer copies more than that if necessary (64 MiB), because a log that only grows is
/// worse. Even then it copies no more than arrived during the thread's last copy.
const FORCED_RESET_FRAMES: i64 = 16_000;

/// Consecutive passive copies, each of what arrived during the previous one, to get below
/// [`WRITER_FRAMES_MAX`].
const PASSIVE_COPIES_MAX: u32 = 8;

/// How often the log is checked while there are writes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Time without writes after which the log is emptied.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Whether checkpoints are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointMode {
    /// By the background thread, as usual.
    BackgroundThread,
    /// Never, for benchmarks that measure their cost.
    Never,
}

/// State shared by the thread and the writer.
#[derive(Debug, Default)]
struct CheckpointState {
    /// Number of the writer's transactions.
    commits: AtomicU64,
    /// Whether the writer should copy the rest.
    writer_requested: AtomicBool,
    /// Whether the thread sleeps until the next write.
    is_sleeping: AtomicBool,
    is_stopping: AtomicBool,
}

/// The writer's handle of the thread. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct CheckpointThread {
    shared: Arc<CheckpointState>,
    thread: Option<(Thread, JoinHandle<()>)>,
}

impl CheckpointThread {
    /// Starts the thread, unless checkpoints are disabled.
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

    /// Called after a commit, when the writer is between two transactions on `conn`.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let Some((thread, _)) = &self.thread else { return };
        self.shared.commits.fetch_add(1, Ordering::Release);
        if self.shared.is_sleeping.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        if self.shared.writer_requested.swap(false, Ordering::AcqRel)
            && let Err(error) = copy_remaining(conn)
        {
            tracing::warn!(%error, "cannot reset the write-ahead log for now");
        }
    }

    /// Stops the thread and waits for it.
    pub(super) fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some((thread, handle)) = self.thread.take() {
            thread.unpark();
            // The panic hook has reported a panic of the thread.
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
    // Does not wait: work that is impossible now is done later.
    conn.busy_timeout(Duration::ZERO)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    Ok(conn)
}

/// Length of the log, and how much of it is copied.
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

/// Copies, on the writer's thread, what arrived since the thread's last copy, so that the next transaction
/// resets the log. Skipped if that has become too much.
fn copy_remaining(conn: &Connection) -> rusqlite::Result<()> {
    let frames = run_checkpoint(conn, STATUS_SQL)?;
    if frames.uncopied() <= WRITER_FRAMES_MAX * 4 || frames.total >= FORCED_RESET_FRAMES {
        run_checkpoint(conn, COPY_SQL)?;
    }
    Ok(())
}

fn run_thread(conn: &Connection, shared: &CheckpointState) {
    let (mut seen, mut changed, mut emptied) = (0, Instant::now(), false);
    // Log size at which a reader held it back: it is not copied again before it has grown.
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
            // The writer reports a full disk; the log keeps everything meanwhile.
            tracing::debug!(%error, "cannot copy the write-ahead log back for now");
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
            // A reader still uses an older snapshot.
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
