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
const RESTART_FRAMES: i64 = 8000;

/// Frames that the writer may be asked to copy: what it commits in some milliseconds.
const REST_FRAMES: i64 = 256;

/// Frames from which on the writer copies more than that, if it must (64 MiB): a log that only ever grows is
/// worse. Even then it copies no more than came during the thread's last copy.
const RESTART_BY_FORCE_FRAMES: i64 = 16_000;

/// Passive copies in a row, each of what came during the one before, to get below [`REST_FRAMES`].
const CHASES_MAX: u32 = 8;

/// How often the log is looked at while something is written.
const LOOK: Duration = Duration::from_millis(25);

/// Nothing was written for so long: the log is emptied.
const IDLE: Duration = Duration::from_secs(2);

/// Whether the log is copied back at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    /// As it must be.
    Beside,
    /// Never: for benches, which measure what it costs.
    Never,
}

/// What thread and writer know of each other.
#[derive(Debug, Default)]
struct Shared {
    /// The writer's transactions so far.
    commits: AtomicU64,
    /// The rest is the writer's.
    asks_writer: AtomicBool,
    /// The thread sleeps until somebody writes.
    sleeps: AtomicBool,
    ends: AtomicBool,
}

/// The writer's end. Dropped, it ends the thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<(Thread, JoinHandle<()>)>,
}

impl Checkpointer {
    /// Starts the thread, or none.
    pub(super) fn start(path: &Path, how: Checkpoints) -> Result<Self, sqlx::Error> {
        let shared = Arc::new(Shared::default());
        if how == Checkpoints::Never {
            return Ok(Self { shared, thread: None });
        }
        let conn = open(path).map_err(sqlite_driver::to_sqlx)?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("docket-checkpoint".to_owned())
            .spawn(move || run(&conn, &of_thread))
            .map_err(sqlx::Error::Io)?;
        Ok(Self { shared, thread: Some((thread.thread().clone(), thread)) })
    }

    /// The writer has committed, and is between two transactions on `conn`.
    pub(super) fn committed(&self, conn: &Connection) {
        let Some((thread, _)) = &self.thread else { return };
        self.shared.commits.fetch_add(1, Ordering::Release);
        if self.shared.sleeps.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        if self.shared.asks_writer.swap(false, Ordering::AcqRel)
            && let Err(error) = copy_rest(conn)
        {
            tracing::warn!(%error, "the write-ahead log is not begun anew for now");
        }
    }

    /// Ends the thread and waits for it.
    pub(super) fn end(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some((thread, handle)) = self.thread.take() {
            thread.unpark();
            // A panic in it was told by the panic hook.
            drop(handle.join());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some((thread, _)) = &self.thread {
            thread.unpark();
        }
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    // Nobody is waited for: what cannot be done now is done later.
    conn.busy_timeout(Duration::ZERO)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    Ok(conn)
}

/// How long the log is, and how much of it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frames {
    all: i64,
    copied: i64,
}

impl Frames {
    const fn left(self) -> i64 {
        self.all - self.copied
    }
}

fn checkpoint(conn: &Connection, sql: &str) -> rusqlite::Result<Frames> {
    conn.query_row(sql, [], |row| Ok(Frames { all: row.get(1)?, copied: row.get(2)? }))
}

const LOOK_SQL: &str = "PRAGMA wal_checkpoint(NOOP)";
const COPY_SQL: &str = "PRAGMA wal_checkpoint(PASSIVE)";
const EMPTY_SQL: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// On the writer's thread: copies what came since the thread's last copy, so that the next transaction
/// begins the log anew. Not where that has become much meanwhile.
fn copy_rest(conn: &Connection) -> rusqlite::Result<()> {
    let frames = checkpoint(conn, LOOK_SQL)?;
    if frames.left() <= REST_FRAMES * 4 || frames.all >= RESTART_BY_FORCE_FRAMES {
        checkpoint(conn, COPY_SQL)?;
    }
    Ok(())
}

fn run(conn: &Connection, shared: &Shared) {
    let (mut seen, mut changed, mut emptied) = (0, Instant::now(), false);
    // The log that stood when a reader held it back: it is not copied again before it has grown.
    let mut held_at = 0;
    while !shared.ends.load(Ordering::Acquire) {
        let commits = shared.commits.load(Ordering::Acquire);
        if commits != seen {
            (seen, changed, emptied) = (commits, Instant::now(), false);
        }
        let result = if changed.elapsed() < IDLE {
            look(conn, shared, &mut held_at)
        } else if emptied {
            shared.sleeps.store(true, Ordering::Release);
            if shared.commits.load(Ordering::Acquire) == seen {
                std::thread::park();
            }
            shared.sleeps.store(false, Ordering::Release);
            continue;
        } else {
            checkpoint(conn, EMPTY_SQL).map(|frames| emptied = frames.all <= 0)
        };
        if let Err(error) = result {
            // A full disk is told by the writer; the log keeps everything meanwhile.
            tracing::debug!(%error, "the write-ahead log is not copied back for now");
        }
        std::thread::park_timeout(if changed.elapsed() < IDLE { LOOK } else { IDLE });
    }
}

fn look(conn: &Connection, shared: &Shared, held_at: &mut i64) -> rusqlite::Result<()> {
    let mut frames = checkpoint(conn, LOOK_SQL)?;
    if frames.all < *held_at {
        *held_at = 0;
    }
    if frames.left() < COPY_FRAMES || frames.all < *held_at + COPY_FRAMES {
        return Ok(());
    }
    let wants_restart = frames.all >= RESTART_FRAMES;
    for _ in 0..CHASES_MAX {
        let before = frames;
        frames = checkpoint(conn, COPY_SQL)?;
        if frames.copied == before.copied {
            // Somebody reads what stood before.
            *held_at = frames.all;
            return Ok(());
        }
        if !wants_restart || frames.left() <= REST_FRAMES {
            break;
        }
    }
    if wants_restart && (frames.left() <= REST_FRAMES || frames.all >= RESTART_BY_FORCE_FRAMES) {
        shared.asks_writer.store(true, Ordering::Release);
    }
    Ok(())
}
