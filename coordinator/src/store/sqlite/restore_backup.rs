//! A backup in the place of the database: `docket db restore`.
//!
//! SQLite keeps what was committed last in a second file, the write-ahead log, and reads it into whatever database
//! stands beside it, also one that it does not belong to: that would be damaged, or hold what the backup does not.
//! So a backup is copied and looked through first; then the database that stands there is closed off (its log is
//! written into it, and nobody has it open), given a second name, and what belongs to it goes before the copy comes.
//!
//! Invariants: whatever fails, the database that stood there is whole under its own name or under the one that is
//! told; what was put in its place is synced. A death in between is mended by doing it again.

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

/// What SQLite writes beside a database.
const COMPANION_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Looks through a database; of its faults three are told.
const CHECK_SQL: &str = "PRAGMA quick_check(3)";

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Size of the database now.
    pub bytes: u64,
    /// Where the one is that stood there, if one did.
    pub previous: Option<PathBuf>,
}

/// A backup that was not put in place. The database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreBackupError {
    /// The backup is the database.
    #[error("{0} is the database itself; name a backup of it")]
    BackupIsDatabase(PathBuf),
    /// Somebody has it open.
    #[error("another process has {0} open; end it first")]
    InUse(PathBuf),
    /// The backup is damaged, or no database.
    #[error("{path} is no database that holds, and was not put in place: {what}")]
    InvalidBackup {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is another program's.
    #[error("{0} is not a database of docket; it was not put in place")]
    ForeignDatabase(PathBuf),
    /// Another build of docket made its schema.
    #[error(
        "{0} was made by another build of docket, perhaps a newer one; use that one. It was not put in place"
    )]
    SchemaMismatch(PathBuf),
    /// A file cannot be read or written.
    #[error("{path} cannot be {doing}")]
    Files {
        /// Which.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Puts a copy of the database at `from` in the place of the one at `at`, which is kept under a name with `stamp` in
/// it. Blocks its thread.
///
/// # Errors
/// [`ReplaceError`]: the database at `at` is as it was.
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
    file.set_permissions(Permissions::from_mode(0o600)).map_err(file_error(&copy, "closed to others"))?;
    file.sync_all().map_err(file_error(&copy, "synced"))?;
    let bytes = file.metadata().map_err(file_error(&copy, "looked at"))?.len();
    let kept = match at.symlink_metadata() {
        Ok(_) => {
            checkpoint_existing(at)?;
            Some(keep_previous(at, stamp)?)
        }
        Err(_) => None,
    };
    // Before the copy comes: read into it, they would damage it.
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

/// With its write-ahead log, where somebody copied a database's files as they lay there.
fn copy_with_wal(from: &Path, to: &Path) -> Result<(), RestoreBackupError> {
    std::fs::copy(from, to).map_err(file_error(from, "copied"))?;
    if with_suffix(from, "-wal").is_file() {
        std::fs::copy(with_suffix(from, "-wal"), with_suffix(to, "-wal"))
            .map_err(file_error(from, "copied"))?;
    }
    Ok(())
}

/// Looks a copy through, and leaves all of it in its one file.
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
        step.is_some_and(|step| BlobHash::of(step.sql.as_bytes()).to_string() == *hash)
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
    // Nobody else, or an error; and no file of shared memory.
    opened.execute_batch("PRAGMA locking_mode = EXCLUSIVE; SELECT count(*) FROM sqlite_schema")?;
    opened.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(opened)
}

/// Writes what was committed last into the database itself, once nobody has it open. One that is damaged stays as it
/// lies there, with all that belongs to it.
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

/// A second name for the database and what belongs to it.
fn keep_previous(at: &Path, stamp: &str) -> Result<PathBuf, RestoreBackupError> {
    let to = with_suffix(at, &format!(".before-restore-{stamp}"));
    for end in ["", "-wal", "-journal"] {
        let (one, two) = (with_suffix(at, end), with_suffix(&to, end));
        if !one.is_file() {
            continue;
        }
        match std::fs::hard_link(&one, &two) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(file_error(&two, "written, for it is there already")(error));
            }
            Err(_) => drop(std::fs::copy(&one, &two).map_err(file_error(&two, "written"))?),
            Ok(()) => {}
        }
    }
    Ok(to)
}
