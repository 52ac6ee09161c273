//! Confines an untrusted repository to its own files.
//!
//! A `.git` file can point to a git folder elsewhere, and a link in a git folder can lead into another one.
//! Following them, docket would pin the task from a repository that its submitter never meant, and could
//! write a branch there. So a git folder at another location must refer back to the work tree, as linked work
//! trees and submodules do. Pipes and devices are refused as well, because git would block on them. Used for
//! pinning and delivery; nothing is run or written here.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

use super::pin_error::PinError;

/// Files that point to a folder contain one path. Anything longer than a kernel's path limit is not one.
const POINTER_FILE_BYTES_MAX: u64 = 8 * 1024;

/// Deepest nesting of folders below `refs`: git itself cannot write a ref with a longer path than a file
/// name.
const REFS_DEPTH_MAX: usize = 200;

/// Reads a small file that points elsewhere; `None` if it does not exist.
///
/// # Errors
/// An error if it is not a regular file or is too large.
pub(crate) fn read_pointer_file(path: &Path) -> Result<Option<Vec<u8>>, PinError> {
    let failed = |source| PinError::SourceFolder { path: path.to_owned(), source };
    // Without the flag, opening a pipe would block.
    let opened = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() || found.len() > POINTER_FILE_BYTES_MAX {
        return Err(PinError::NotARegularFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(POINTER_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Whether a linked work tree's git folder belongs to `dot_git`.
pub(crate) fn is_linked_from(git_dir: &Path, named: &Path, dot_git: &Path) -> bool {
    fs::canonicalize(git_dir.join(named)).is_ok_and(|back| back == dot_git)
}

/// Returns the folder of the objects and refs of `git_dir`, if a file in it says that they are elsewhere.
///
/// # Errors
/// An error if that location does not refer back to this work tree.
pub(crate) fn resolve_common_dir(git_dir: &Path, named: &Path) -> Result<PathBuf, PinError> {
    let elsewhere = || PinError::OutsideRepository { path: git_dir.to_owned(), to: git_dir.join(named) };
    let common = fs::canonicalize(git_dir.join(named)).map_err(|_| elsewhere())?;
    // git puts the folders of linked work trees there and nowhere else.
    if git_dir.parent() == Some(&common.join("worktrees")) { Ok(common) } else { Err(elsewhere()) }
}

/// The folders that a check may access.
struct RepoBounds<'a> {
    git_dir: &'a Path,
    common_dir: &'a Path,
}

impl RepoBounds<'_> {
    /// Checks one path: missing, a file, a folder, or a link to one of them inside.
    fn check_path(&self, path: &Path) -> Result<Option<Metadata>, PinError> {
        let failed = |source| PinError::SourceFolder { path: path.to_owned(), source };
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(failed)?,
        };
        if !found.is_symlink() {
            let is_plain = found.is_file() || found.is_dir();
            return if is_plain { Ok(Some(found)) } else { Err(PinError::NotARegularFile(path.to_owned())) };
        }
        // A dangling link is a branch without a commit, as older versions of git write it.
        let Ok(to) = fs::canonicalize(path) else {
            let to = fs::read_link(path).map_err(failed)?;
            let is_ref = to.is_relative() && to.starts_with("refs");
            return if is_ref {
                Ok(None)
            } else {
                Err(PinError::OutsideRepository { path: path.to_owned(), to })
            };
        };
        if !to.starts_with(self.common_dir) && !to.starts_with(self.git_dir) {
            return Err(PinError::OutsideRepository { path: path.to_owned(), to });
        }
        let target = fs::metadata(&to).map_err(failed)?;
        // A folder is traversed at its own location; through links it could be visited endlessly.
        if target.is_file() || target.is_dir() {
            Ok(None)
        } else {
            Err(PinError::NotARegularFile(path.to_owned()))
        }
    }

    /// Checks a folder and its contents, down to `depth` levels.
    fn check_folder_tree(&self, folder: &Path, depth: usize) -> Result<(), PinError> {
        let mut folders = vec![(folder.to_owned(), depth)];
        while let Some((folder, depth)) = folders.pop() {
            if !self.check_path(&folder)?.is_some_and(|found| found.is_dir()) {
                continue;
            }
            let failed = |source| PinError::SourceFolder { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if self.check_path(&path)?.is_some_and(|found| found.is_dir()) && depth > 0 {
                    folders.push((path, depth - 1));
                }
            }
        }
        Ok(())
    }
}

/// Checks everything that git reads by name to find a commit. Both paths are free of links.
///
/// # Errors
/// [`PinError`] if a part lies elsewhere or is not a regular file.
pub(crate) fn check_safe_to_read(git_dir: &Path, common_dir: &Path) -> Result<(), PinError> {
    let bounds = RepoBounds { git_dir, common_dir };
    for folder in [git_dir, common_dir] {
        for name in ["HEAD", "index", "config", "config.worktree", "packed-refs", "shallow"] {
            bounds.check_path(&folder.join(name))?;
        }
        bounds.check_folder_tree(&folder.join("refs"), REFS_DEPTH_MAX)?;
        bounds.check_folder_tree(&folder.join("reftable"), 0)?;
    }
    for folder in ["objects", "objects/info", "objects/pack"] {
        bounds.check_folder_tree(&common_dir.join(folder), 0)?;
    }
    Ok(())
}

/// Like [`check_safe_to_read`], for everything written when the branch `reference` is created: its ref, its
/// log, its objects.
///
/// # Errors
/// Those of [`check_safe_to_read`].
pub(crate) fn check_safe_to_write(
    git_dir: &Path,
    common_dir: &Path,
    reference: &str,
) -> Result<(), PinError> {
    check_safe_to_read(git_dir, common_dir)?;
    let bounds = RepoBounds { git_dir, common_dir };
    for folder in [common_dir.to_owned(), common_dir.join("logs")] {
        let mut path = folder;
        bounds.check_path(&path)?;
        for part in reference.split('/') {
            path.push(part);
            bounds.check_path(&path)?;
        }
    }
    Ok(())
}
