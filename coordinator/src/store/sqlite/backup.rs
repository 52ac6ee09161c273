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

use crate::store::db::{BUSY_MS, CACHE_SIZE};

/// Pages copied in one step: 1 MiB, after which the caller hears of it.
const STEP_PAGES: i32 = 256;

/// How long a busy database is waited for before the step is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingTarget {
    /// It is left alone, and the backup refused.
    Keep,
    /// The backup takes its place.
    Replace,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages that stand in the copy.
    pub pages_copied: u64,
    /// Pages that it will have.
    pub pages_total: u64,
}

/// A backup that was not made. The goal is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The goal is there.
    #[error("{0} is there already, and is left alone")]
    TargetExists(PathBuf),
    /// The goal is the database.
    #[error("{0} is the database itself; name another file")]
    TargetIsDatabase(PathBuf),
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
    Target {
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
pub fn back_up_database(
    from: &Path,
    to: &Path,
    existing: ExistingTarget,
    mut each: impl FnMut(BackupProgress),
) -> Result<u64, BackupError> {
    let goal = |source| BackupError::Target { path: to.to_owned(), source };
    if is_database_file(from, to) {
        return Err(BackupError::TargetIsDatabase(to.to_owned()));
    }
    // Said before anything is copied; that none comes meanwhile is seen to at the end.
    if existing == ExistingTarget::Keep && to.symlink_metadata().is_ok() {
        return Err(BackupError::TargetExists(to.to_owned()));
    }
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let partial = tempfile::Builder::new()
        .prefix(".docket-backup-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(goal)?;
    let unread = |source| BackupError::Source { path: from.to_owned(), source };
    copy_database(from, partial.path(), &mut each).map_err(|error| match error {
        CopyError::Read(source) => unread(source),
        CopyError::Write(source) => goal(std::io::Error::other(source)),
    })?;
    // By its name: SQLite wrote through descriptors of its own, and syncs none of a database that is copied into.
    let file = OpenOptions::new().write(true).open(partial.path()).map_err(goal)?;
    file.sync_all().map_err(goal)?;
    let bytes = file.metadata().map_err(goal)?.len();
    match existing {
        ExistingTarget::Keep => {
            partial.persist_noclobber(to).map(drop).map_err(|failed| match failed.error.kind() {
                ErrorKind::AlreadyExists => BackupError::TargetExists(to.to_owned()),
                _ => goal(failed.error),
            })?
        }
        ExistingTarget::Replace => partial.persist(to).map(drop).map_err(|failed| goal(failed.error))?,
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(goal)?;
    Ok(bytes)
}

/// Whether `to` is the database at `from`, or one of the files that belong to it: to replace it would lose what was
/// written since.
fn is_database_file(from: &Path, to: &Path) -> bool {
    let Ok(from) = from.canonicalize() else { return false };
    let Ok(to) = to.canonicalize() else { return false };
    ["", "-wal", "-shm"].iter().any(|end| {
        let mut own = from.clone().into_os_string();
        own.push(end);
        to.as_os_str() == own
    })
}

enum CopyError {
    Read(rusqlite::Error),
    Write(rusqlite::Error),
}

fn copy_database(from: &Path, to: &Path, each: &mut impl FnMut(BackupProgress)) -> Result<(), CopyError> {
    // Not for reading only: a reader beside others notes in the shared memory what it stands on.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(from, flags).map_err(CopyError::Read)?;
    source.busy_timeout(Duration::from_millis(BUSY_MS)).map_err(CopyError::Read)?;
    source
        .execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = {CACHE_SIZE}; BEGIN"))
        .map_err(CopyError::Read)?;
    // The transaction begins with the first read.
    source
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map_err(CopyError::Read)?;
    let mut goal = Connection::open(to).map_err(CopyError::Write)?;
    // It is synced once, when it is whole; and one that is not is thrown away, and needs no journal beside it.
    goal.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").map_err(CopyError::Write)?;
    let backup = Backup::new(&source, &mut goal).map_err(CopyError::Write)?;
    loop {
        let step = backup.step(STEP_PAGES).map_err(|error| match error.sqlite_error_code() {
            Some(
                rusqlite::ErrorCode::DiskFull
                | rusqlite::ErrorCode::CannotOpen
                | rusqlite::ErrorCode::ReadOnly,
            ) => CopyError::Write(error),
            _ => CopyError::Read(error),
        })?;
        let (of, left) = (backup.progress().pagecount, backup.progress().remaining);
        each(BackupProgress {
            pages_copied: (of - left).unsigned_abs().into(),
            pages_total: of.unsigned_abs().into(),
        });
        match step {
            StepResult::Done => break,
            StepResult::Busy | StepResult::Locked => std::thread::sleep(BUSY_PAUSE),
            _ => {}
        }
    }
    drop(backup);
    goal.close().map_err(|(_, error)| CopyError::Write(error))
}
