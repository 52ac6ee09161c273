//! A copy of the database while others write to it: `docket db backup`.
//!
//! SQLite's online backup, page by page, within one reading transaction: what is copied is the database as it
//! stood at one instant, however long that takes, and whoever writes goes on. Without the transaction the
//! copy would begin again with every commit of another process, and never end under load; `VACUUM INTO`
//! would hold the same transaction, but make every index anew beside a writer that wants the processor, and
//! could not say how far it is. What the copy costs others: the write-ahead log is not begun anew until it has
//! ended.
//!
//! Invariants: nothing is overwritten unless that was asked for; the goal is there whole and synced, or not at
//! all; it is readable by its owner alone, as the database is. The schema is not looked at: a database that
//! another build made is copied as it is.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use crate::store::db::{BUSY_MS, CACHE};

/// Pages copied in one step: 1 MiB, after which the caller hears of it.
const STEP_PAGES: i32 = 256;

/// How long a busy database is waited for before the step is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is left alone, and the backup refused.
    Keep,
    /// The backup takes its place.
    Replace,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Pages that stand in the copy.
    pub pages: u64,
    /// Pages that it will have.
    pub of: u64,
}

/// A backup that was not made. The goal is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The goal is there.
    #[error("{0} is there already, and is left alone")]
    Exists(PathBuf),
    /// The goal is the database.
    #[error("{0} is the database itself; name another file")]
    Itself(PathBuf),
    /// The database cannot be read.
    #[error("the database {path} cannot be copied")]
    Source {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The copy cannot be written.
    #[error("the backup cannot be written to {path}")]
    Goal {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Copies the database at `from` to `to`, and calls `each` after every step. Blocks its thread. Gives the
/// size of the copy in bytes.
///
/// # Errors
/// [`BackupError`]: nothing stands at `to` that did not stand there before.
pub fn backup(
    from: &Path,
    to: &Path,
    existing: Existing,
    mut each: impl FnMut(Copied),
) -> Result<u64, BackupError> {
    let goal = |source| BackupError::Goal { path: to.to_owned(), source };
    if is_of(from, to) {
        return Err(BackupError::Itself(to.to_owned()));
    }
    // Said before anything is copied; that none comes meanwhile is seen to at the end.
    if existing == Existing::Keep && to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let partial = tempfile::Builder::new()
        .prefix(".docket-backup-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(goal)?;
    let unread = |source| BackupError::Source { path: from.to_owned(), source };
    copy(from, partial.path(), &mut each).map_err(|error| match error {
        Failed::Read(source) => unread(source),
        Failed::Write(source) => goal(std::io::Error::other(source)),
    })?;
    // By its name: SQLite wrote through descriptors of its own, and syncs none of a database that is copied into.
    let file = OpenOptions::new().write(true).open(partial.path()).map_err(goal)?;
    file.sync_all().map_err(goal)?;
    let bytes = file.metadata().map_err(goal)?.len();
    match existing {
        Existing::Keep => {
            partial.persist_noclobber(to).map(drop).map_err(|failed| match failed.error.kind() {
                ErrorKind::AlreadyExists => BackupError::Exists(to.to_owned()),
                _ => goal(failed.error),
            })?
        }
        Existing::Replace => partial.persist(to).map(drop).map_err(|failed| goal(failed.error))?,
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(goal)?;
    Ok(bytes)
}

/// Whether `to` is the database at `from`, or one of the files that belong to it: to replace it would lose what was
/// written since.
fn is_of(from: &Path, to: &Path) -> bool {
    let Ok(from) = from.canonicalize() else { return false };
    let Ok(to) = to.canonicalize() else { return false };
    ["", "-wal", "-shm"].iter().any(|end| {
        let mut own = from.clone().into_os_string();
        own.push(end);
        to.as_os_str() == own
    })
}

enum Failed {
    Read(rusqlite::Error),
    Write(rusqlite::Error),
}

fn copy(from: &Path, to: &Path, each: &mut impl FnMut(Copied)) -> Result<(), Failed> {
    // Not for reading only: a reader beside others notes in the shared memory what it stands on.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(from, flags).map_err(Failed::Read)?;
    source.busy_timeout(Duration::from_millis(BUSY_MS)).map_err(Failed::Read)?;
    source
        .execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = {CACHE}; BEGIN"))
        .map_err(Failed::Read)?;
    // The transaction begins with the first read.
    source
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map_err(Failed::Read)?;
    let mut goal = Connection::open(to).map_err(Failed::Write)?;
    // It is synced once, when it is whole; and one that is not is thrown away, and needs no journal beside it.
    goal.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").map_err(Failed::Write)?;
    let backup = Backup::new(&source, &mut goal).map_err(Failed::Write)?;
    loop {
        let step = backup.step(STEP_PAGES).map_err(|error| match error.sqlite_error_code() {
            Some(
                rusqlite::ErrorCode::DiskFull
                | rusqlite::ErrorCode::CannotOpen
                | rusqlite::ErrorCode::ReadOnly,
            ) => Failed::Write(error),
            _ => Failed::Read(error),
        })?;
        let (of, left) = (backup.progress().pagecount, backup.progress().remaining);
        each(Copied { pages: (of - left).unsigned_abs().into(), of: of.unsigned_abs().into() });
        match step {
            StepResult::Done => break,
            StepResult::Busy | StepResult::Locked => std::thread::sleep(BUSY_PAUSE),
            _ => {}
        }
    }
    drop(backup);
    goal.close().map_err(|(_, error)| Failed::Write(error))
}
