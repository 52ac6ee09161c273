//! Names changed, made and removed beneath the workspace's handle: no link is followed, nothing that stands in the way
//! is replaced, and what is protected is not touched, nor a folder that holds it.

use cap_std::fs::{Dir, Metadata};
use docket_schema::content::WorkPath;
use nix::{
    errno::Errno,
    fcntl::{RenameFlags, renameat2},
};

use super::super::files::{FileError, Parents, folder_of, is_protected, os, parent};

/// Names of a folder that one call moves or removes at most: beyond it a command says more plainly what is meant.
pub(super) const BELOW_MAX: usize = 2000;

/// What stands under a path; the link itself, where it is one.
pub(super) fn look(root: &Dir, path: &WorkPath) -> Result<Metadata, FileError> {
    let (dir, name) = parent(root, path, Parents::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::io(path, error))
}

/// The same for whoever changes nothing: git's own folder may be looked at.
pub(super) fn look_only(root: &Dir, path: &WorkPath) -> Result<Metadata, FileError> {
    let (dir, name) = folder_of(root, path, Parents::MustExist)?;
    dir.symlink_metadata(&name).map_err(|error| FileError::io(path, error))
}

/// The names below a folder.
///
/// # Errors
/// For the model: it holds what is protected, or too much.
pub(super) fn below(root: &Dir, folder: &WorkPath) -> Result<usize, String> {
    let mut left = vec![folder.clone()];
    let mut seen = 0;
    while let Some(at) = left.pop() {
        let fail = |error| FileError::io(&at, error).to_string();
        for entry in root.read_dir(os(&at)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = std::os::unix::ffi::OsStringExt::into_vec(entry.file_name());
            let Some(path) = WorkPath::new([at.as_bytes(), b"/", &name].concat()) else {
                return Err(format!("`{at}` holds a name that is no path of a workspace"));
            };
            if is_protected(&path) {
                return Err(format!("`{folder}` holds {}", FileError::Protected(path)));
            }
            seen += 1;
            if seen > BELOW_MAX {
                return Err(format!("`{folder}` holds more than {BELOW_MAX} names: use a command"));
            }
            if entry.file_type().map_err(fail)?.is_dir() {
                left.push(path);
            }
        }
    }
    Ok(seen)
}

/// Gives what stands at `from` the name `to`, which nothing has; makes the folders above it.
pub(super) fn rename(root: &Dir, from: &WorkPath, to: &WorkPath) -> Result<(), FileError> {
    let (from_dir, from_name) = parent(root, from, Parents::MustExist)?;
    let (to_dir, to_name) = parent(root, to, Parents::Make)?;
    // Never over what appeared in the meantime.
    let flags = RenameFlags::RENAME_NOREPLACE;
    renameat2(&from_dir, from_name.as_os_str(), &to_dir, to_name.as_os_str(), flags).map_err(|errno| {
        match errno {
            Errno::EEXIST => FileError::Exists(to.clone()),
            errno => FileError::io(from, errno.into()),
        }
    })
}

/// Removes a file or a link.
pub(super) fn remove_file(root: &Dir, path: &WorkPath) -> Result<(), FileError> {
    let (dir, name) = parent(root, path, Parents::MustExist)?;
    dir.remove_file(&name).map_err(|error| FileError::io(path, error))
}

/// Removes a folder and what it holds.
pub(super) fn remove_folder(root: &Dir, path: &WorkPath) -> Result<(), FileError> {
    let (dir, name) = parent(root, path, Parents::MustExist)?;
    dir.remove_dir_all(&name).map_err(|error| FileError::io(path, error))
}

/// Makes a folder, and those above it.
pub(super) fn make_folder(root: &Dir, path: &WorkPath) -> Result<(), FileError> {
    // The folders above a name in it.
    let below = WorkPath::new(format!("{path}/x")).ok_or_else(|| FileError::Path(path.to_string()))?;
    parent(root, &below, Parents::Make).map(drop)
}
