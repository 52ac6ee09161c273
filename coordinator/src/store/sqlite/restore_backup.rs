//! Restore of a backup: `docket db restore`.
//!
//! SQLite keeps recent commits in a second file, the write-ahead log, and applies it to whatever database has
//! the matching name, even if it does not belong to it: that database would be damaged or gain data that the
//! backup does not have. So the backup is copied and checked first; then the existing database is closed off
//! (its log is written into it, and no one has it open) and given a second name, and its companion files are
//! removed before the copy is put in place.
//!
//! Invariants: whatever fails, the previous database is complete under its own name or under the reported
//! one; the new one is synced. After a crash the restore can simply be repeated.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{ids::BlobHash, migrations};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::store::db::BUSY_MS;

/// Suffixes of the files that SQLite creates for a database.
const COMPANION_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Checks a database and reports up to three faults.
const CHECK_SQL: &str = "PRAGMA quick_check(3)";

/// Outcome of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Size of the restored database, in bytes.
    pub bytes: u64,
    /// Where the previous database was moved to, if there was one.
    pub previous: Option<PathBuf>,
}

/// A restore that failed. The database is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreBackupError {
    /// The backup is the database.
    #[error("{0} is the database itself; name a backup of it")]
    BackupIsDatabase(PathBuf),
    /// Another process has the database open.
    #[error("another process has {0} open; stop it first")]
    InUse(PathBuf),
    /// The backup is damaged or not a database.
    #[error("{path} is not an intact database and was not restored: {what}")]
    InvalidBackup {
        path: PathBuf,
        /// The problem found.
        what: String,
    },
    /// The file belongs to another program.
    #[error("{0} is not a docket database; it was not restored")]
    ForeignDatabase(PathBuf),
    /// Another build of docket made its schema.
    #[error(
        "{0} was made by another build of docket, perhaps a newer one; use that build. It was not restored"
    )]
    SchemaMismatch(PathBuf),
    /// A file cannot be read or written.
    #[error("{path} cannot be {doing}")]
    Files {
        path: PathBuf,
        /// Operation that failed.
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Replaces the database at `at` with a copy of the one at `from` and keeps the previous one under a name
/// that contains `stamp`. Blocks the thread.
///
/// # Errors
/// [`RestoreBackupError`] if the restore failed; the database at `at` is unchanged.
pub fn restore_backup(from: &Path, at: &Path, stamp: &str) -> Result<RestoreOutcome, RestoreBackupError> {
    if let (Ok(from), Ok(at)) = (from.canonicalize(), at.canonicalize())
        && from == at
    {
        return Err(RestoreBackupError::BackupIsDatabase(from));
    }
    let folder = at.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let scratch = tempfile::Builder::new().prefix(".docket-restore-").tempdir_in(folder);
    let scratch = scratch.map_err(file_error(folder, "written to"))?;
    let copy = scratch.path().join("docket.db");
    copy_with_wal(from, &copy)?;
    check_backup(from, &copy)?;
    let file = OpenOptions::new().write(true).open(&copy).map_err(file_error(&copy, "opened"))?;
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(file_error(&copy, "restricted to its owner"))?;
    file.sync_all().map_err(file_error(&copy, "synced"))?;
    let bytes = file.metadata().map_err(file_error(&copy, "examined"))?.len();
    let kept = match at.symlink_metadata() {
        Ok(_) => {
            checkpoint_existing(at)?;
            Some(keep_previous(at, stamp)?)
        }
        Err(_) => None,
    };
    // Before the copy is put in place: applied to it, they would damage it.
    for end in COMPANION_SUFFIXES {
        match std::fs::remove_file(with_suffix(at, end)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(file_error(&with_suffix(at, end), "removed")(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    sync_folder(folder)?;
    std::fs::rename(&copy, at).map_err(file_error(at, "replaced"))?;
    sync_folder(folder)?;
    Ok(RestoreOutcome { bytes, previous: kept })
}

fn file_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> RestoreBackupError + use<> {
    let path = path.to_owned();
    move |source| RestoreBackupError::Files { path, doing, source }
}

fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut own = path.to_owned().into_os_string();
    own.push(end);
    own.into()
}

fn sync_folder(folder: &Path) -> Result<(), RestoreBackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(file_error(folder, "synced"))
}

/// Includes the write-ahead log, if the files of a database were copied as they were.
fn copy_with_wal(from: &Path, to: &Path) -> Result<(), RestoreBackupError> {
    std::fs::copy(from, to).map_err(file_error(from, "copied"))?;
    if with_suffix(from, "-wal").is_file() {
        std::fs::copy(with_suffix(from, "-wal"), with_suffix(to, "-wal"))
            .map_err(file_error(from, "copied"))?;
    }
    Ok(())
}

/// Checks a copy and merges its log into the one file.
fn check_backup(from: &Path, copy: &Path) -> Result<(), RestoreBackupError> {
    let bad = |error: rusqlite::Error| RestoreBackupError::InvalidBackup {
        path: from.to_owned(),
        what: error.to_string(),
    };
    let opened = open_exclusive(copy).map_err(bad)?;
    let mut faults = opened.prepare(CHECK_SQL).map_err(bad)?;
    let said = faults.query_map([], |row| row.get::<_, String>(0)).map_err(bad)?;
    let said: Vec<String> = said.collect::<Result<_, _>>().map_err(bad)?;
    if said != ["ok"] {
        return Err(RestoreBackupError::InvalidBackup { path: from.to_owned(), what: said.join("; ") });
    }
    drop(faults);
    let not_ours = |_| RestoreBackupError::ForeignDatabase(from.to_owned());
    let mut steps = opened.prepare("SELECT version, hash FROM schema_steps").map_err(not_ours)?;
    let applied = steps.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?)));
    let applied: Vec<(u32, String)> = applied.and_then(Iterator::collect).map_err(not_ours)?;
    let known = |(version, hash): &(u32, String)| {
        let step = migrations::SQLITE.iter().find(|step| step.version == *version);
        step.is_some_and(|step| BlobHash::hash_bytes(step.sql.as_bytes()).to_string() == *hash)
    };
    if applied.is_empty() {
        return Err(RestoreBackupError::ForeignDatabase(from.to_owned()));
    }
    if !applied.iter().all(known) {
        return Err(RestoreBackupError::SchemaMismatch(from.to_owned()));
    }
    drop(steps);
    opened.close().map_err(|(_, error)| bad(error))
}

fn open_exclusive(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags)?;
    opened.busy_timeout(Duration::from_millis(BUSY_MS))?;
    // Exclusive, or an error; and without a shared memory file.
    opened.execute_batch("PRAGMA locking_mode = EXCLUSIVE; SELECT count(*) FROM sqlite_schema")?;
    opened.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(opened)
}

/// Writes the most recent commits into the database itself once no one has it open. A damaged database is
/// left as it is, with its companion files.
fn checkpoint_existing(at: &Path) -> Result<(), RestoreBackupError> {
    match open_exclusive(at) {
        Ok(opened) => drop(opened.close()),
        Err(error)
            if matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ) =>
        {
            return Err(RestoreBackupError::InUse(at.to_owned()));
        }
        Err(_) => {}
    }
    Ok(())
}

/// Gives the database and its companion files a second name.
fn keep_previous(at: &Path, stamp: &str) -> Result<PathBuf, RestoreBackupError> {
    let to = with_suffix(at, &format!(".before-restore-{stamp}"));
    for end in ["", "-wal", "-journal"] {
        let (one, two) = (with_suffix(at, end), with_suffix(&to, end));
        if !one.is_file() {
            continue;
        }
        match std::fs::hard_link(&one, &two) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(file_error(&two, "written, because it already exists")(error));
            }
            Err(_) => drop(std::fs::copy(&one, &two).map_err(file_error(&two, "written"))?),
            Ok(()) => {}
        }
    }
    Ok(to)
}
