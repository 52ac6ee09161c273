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
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Looks through a database; of its faults three are told.
const CHECK: &str = "PRAGMA quick_check(3)";

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Size of the database now.
    pub bytes: u64,
    /// Where the one is that stood there, if one did.
    pub kept: Option<PathBuf>,
}

/// A backup that was not put in place. The database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The backup is the database.
    #[error("{0} is the database itself; name a backup of it")]
    Itself(PathBuf),
    /// Somebody has it open.
    #[error("another process has {0} open; end it first")]
    InUse(PathBuf),
    /// The backup is damaged, or no database.
    #[error("{path} is no database that holds, and was not put in place: {what}")]
    NoBackup {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is another program's.
    #[error("{0} is not a database of docket; it was not put in place")]
    NotDockets(PathBuf),
    /// Another build of docket made its schema.
    #[error(
        "{0} was made by another build of docket, perhaps a newer one; use that one. It was not put in place"
    )]
    OtherBuild(PathBuf),
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
pub fn replace(from: &Path, at: &Path, stamp: &str) -> Result<Replaced, ReplaceError> {
    if let (Ok(from), Ok(at)) = (from.canonicalize(), at.canonicalize())
        && from == at
    {
        return Err(ReplaceError::Itself(from));
    }
    let folder = at.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let scratch = tempfile::Builder::new().prefix(".docket-restore-").tempdir_in(folder);
    let scratch = scratch.map_err(failed(folder, "written to"))?;
    let copy = scratch.path().join("docket.db");
    copied(from, &copy)?;
    checked(from, &copy)?;
    let file = OpenOptions::new().write(true).open(&copy).map_err(failed(&copy, "opened"))?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed(&copy, "closed to others"))?;
    file.sync_all().map_err(failed(&copy, "synced"))?;
    let bytes = file.metadata().map_err(failed(&copy, "looked at"))?.len();
    let kept = match at.symlink_metadata() {
        Ok(_) => {
            closed_off(at)?;
            Some(kept(at, stamp)?)
        }
        Err(_) => None,
    };
    // Before the copy comes: read into it, they would damage it.
    for end in BESIDE {
        match std::fs::remove_file(with(at, end)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(&with(at, end), "removed")(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    synced(folder)?;
    std::fs::rename(&copy, at).map_err(failed(at, "replaced"))?;
    synced(folder)?;
    Ok(Replaced { bytes, kept })
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> ReplaceError + use<> {
    let path = path.to_owned();
    move |source| ReplaceError::Files { path, doing, source }
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut own = path.to_owned().into_os_string();
    own.push(end);
    own.into()
}

fn synced(folder: &Path) -> Result<(), ReplaceError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder, "synced"))
}

/// With its write-ahead log, where somebody copied a database's files as they lay there.
fn copied(from: &Path, to: &Path) -> Result<(), ReplaceError> {
    std::fs::copy(from, to).map_err(failed(from, "copied"))?;
    if with(from, "-wal").is_file() {
        std::fs::copy(with(from, "-wal"), with(to, "-wal")).map_err(failed(from, "copied"))?;
    }
    Ok(())
}

/// Looks a copy through, and leaves all of it in its one file.
fn checked(from: &Path, copy: &Path) -> Result<(), ReplaceError> {
    let bad =
        |error: rusqlite::Error| ReplaceError::NoBackup { path: from.to_owned(), what: error.to_string() };
    let opened = open(copy).map_err(bad)?;
    let mut faults = opened.prepare(CHECK).map_err(bad)?;
    let said = faults.query_map([], |row| row.get::<_, String>(0)).map_err(bad)?;
    let said: Vec<String> = said.collect::<Result<_, _>>().map_err(bad)?;
    if said != ["ok"] {
        return Err(ReplaceError::NoBackup { path: from.to_owned(), what: said.join("; ") });
    }
    drop(faults);
    let not_ours = |_| ReplaceError::NotDockets(from.to_owned());
    let mut steps = opened.prepare("SELECT version, hash FROM schema_steps").map_err(not_ours)?;
    let applied = steps.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?)));
    let applied: Vec<(u32, String)> = applied.and_then(Iterator::collect).map_err(not_ours)?;
    let known = |(version, hash): &(u32, String)| {
        let step = migrations::SQLITE.iter().find(|step| step.version == *version);
        step.is_some_and(|step| BlobHash::of(step.sql.as_bytes()).to_string() == *hash)
    };
    if applied.is_empty() {
        return Err(ReplaceError::NotDockets(from.to_owned()));
    }
    if !applied.iter().all(known) {
        return Err(ReplaceError::OtherBuild(from.to_owned()));
    }
    drop(steps);
    opened.close().map_err(|(_, error)| bad(error))
}

fn open(path: &Path) -> Result<Connection, rusqlite::Error> {
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
fn closed_off(at: &Path) -> Result<(), ReplaceError> {
    match open(at) {
        Ok(opened) => drop(opened.close()),
        Err(error)
            if matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ) =>
        {
            return Err(ReplaceError::InUse(at.to_owned()));
        }
        Err(_) => {}
    }
    Ok(())
}

/// A second name for the database and what belongs to it.
fn kept(at: &Path, stamp: &str) -> Result<PathBuf, ReplaceError> {
    let to = with(at, &format!(".before-restore-{stamp}"));
    for end in ["", "-wal", "-journal"] {
        let (one, two) = (with(at, end), with(&to, end));
        if !one.is_file() {
            continue;
        }
        match std::fs::hard_link(&one, &two) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(failed(&two, "written, for it is there already")(error));
            }
            Err(_) => drop(std::fs::copy(&one, &two).map_err(failed(&two, "written"))?),
            Ok(()) => {}
        }
    }
    Ok(to)
}
