//! Online backup of the database: `docket db backup`.
//!
//! Uses SQLite's online backup, page by page, within one reading transaction: the copy is the database at one
//! instant, however long it takes, and writers continue. Without the transaction the copy would restart with
//! every commit of another process and never end under load; `VACUUM INTO` would hold the same transaction
//! but rebuild every index, competing with the writer for the CPU, and could not report progress. The cost
//! for others: the write-ahead log is not reset until the copy has ended.
//!
//! Invariants: nothing is overwritten unless requested; the target exists completely and synced, or not at
//! all; it is readable by its owner only, like the database. The schema is not examined: a database made by
//! another build is copied as it is.

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

/// Pages copied per step: 1 MiB, after which progress is reported.
const STEP_PAGES: i32 = 256;

/// Pause before a step on a busy database is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What to do with an existing target file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingTarget {
    /// Keep it and refuse the backup.
    Keep,
    /// Replace it with the backup.
    Replace,
}

/// Progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages copied so far.
    pub pages_copied: u64,
    /// Pages in total.
    pub pages_total: u64,
}

/// A backup that was not made. The target is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target exists.
    #[error("{0} already exists and was not changed")]
    TargetExists(PathBuf),
    /// The target is the database.
    #[error("{0} is the database itself; name another file")]
    TargetIsDatabase(PathBuf),
    /// The database cannot be read.
    #[error("the database {path} cannot be copied")]
    Source {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The copy cannot be written.
    #[error("the backup cannot be written to {path}")]
    Target {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Copies the database at `from` to `to` and calls `each` after every step. Blocks the thread. Returns the
/// size of the copy in bytes.
///
/// # Errors
/// [`BackupError`] if the copy failed; `to` is unchanged.
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
    // Reported before anything is copied; a file created meanwhile is detected at the end.
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
    // Opened by name: SQLite wrote through its own descriptors and does not sync a database that is the
    // target of a backup.
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

/// Whether `to` is the database at `from` or one of its companion files; replacing it would lose what was
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
    // Not read-only: a reader among other processes records its snapshot in the shared memory.
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
    // It is synced once, when it is complete; an incomplete one is thrown away and needs no journal file.
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
