//! Restricts the database files to their owner: they hold the secret behind run tokens and the full content
//! of every run. The folder around them may be accessible to others.

use std::{
    ffi::OsString,
    fs::{OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

const OWNER_ONLY_MODE: u32 = 0o600;

/// Creates the file before SQLite does, which would make it world-readable; SQLite gives companion files the
/// mode of this one. Existing files of older versions are restricted. Failures are left to SQLite, which
/// opens the same file next and reports them.
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
        tracing::warn!(path = %path.display(), %error, "other users can read the database; its owner must \
             restrict it: chmod 600");
    }
}
