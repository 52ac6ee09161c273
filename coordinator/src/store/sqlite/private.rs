//! The database's files are for its owner's eyes only: they hold the secret that makes the tokens of runs,
//! and every word of every run. The folder around them may be anybody's.

use std::{
    ffi::OsString,
    fs::{OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// The mode of the files.
const MODE: u32 = 0o600;

/// Makes the file before SQLite does, which would make it for all to read; SQLite gives the files beside it the
/// mode of this one. Files that are there already, from before this was so, are closed to others. What fails
/// here is SQLite's to tell: it opens the same file next.
pub(super) fn for_its_owner_only(path: &Path) {
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            ["", "-wal", "-shm"].into_iter().for_each(|end| close(&beside(path, end)));
        }
        Err(_) => {}
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn close(path: &Path) {
    let Ok(found) = std::fs::metadata(path) else { return };
    let open_to_others = found.permissions().mode() & 0o077 != 0;
    if found.is_file()
        && open_to_others
        && let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(MODE))
    {
        tracing::warn!(path = %path.display(), %error, "others can read the database; its owner must close it: chmod 600");
    }
}
