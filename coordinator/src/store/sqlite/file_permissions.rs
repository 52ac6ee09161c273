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
const OWNER_ONLY_MODE: u32 = 0o600;

/// Makes the file before SQLite does, which would make it for all to read; SQLite gives the files beside it the
/// mode of this one. Files that are there already, from before this was so, are closed to others. What fails
/// here is SQLite's to tell: it opens the same file next.
pub(super) fn restrict_to_owner(path: &Path) {
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY_MODE).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            ["", "-wal", "-shm"].into_iter().for_each(|end| remove_others_access(&with_suffix(path, end)));
        }
        Err(_) => {}
    }
}

fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn remove_others_access(path: &Path) {
    let Ok(found) = std::fs::metadata(path) else { return };
    let open_to_others = found.permissions().mode() & 0o077 != 0;
    if found.is_file()
        && open_to_others
        && let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY_MODE))
    {
        tracing::warn!(path = %path.display(), %error, "others can read the database; its owner must close it: chmod 600");
    }
}
