//! Protects files that commands must not change in their writable workspace: the repository's hooks and git
//! configuration and docket's own configuration, at any depth, whether they exist or not. A repository is
//! whatever git would treat as one when a person runs it there: a `.git`, a bare repository under any name,
//! and one whose configuration is in another folder that its `commondir` names.
//!
//! There are two mechanisms. Existing files are mounted read-only inside, so a write fails at once. The
//! kernel has no rule for a name that does not exist, and a parent folder can be renamed, so the workspace is
//! also scanned before a command and after its last process has ended: new files under such a name are
//! removed, changed or missing ones are restored. All of it uses folder handles
//! ([`safe_walk`](super::safe_walk)) and never follows a link.
//!
//! `git init` and similar commands therefore work within a command, and leave a repository without
//! configuration and hooks.

mod baseline;
mod scan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::fchown},
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat},
    sys::stat::{Mode, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat},
};

use super::{
    host::workspace_owner,
    safe_walk::{self, WalkCoverage},
};

/// Maximum number of paths mounted read-only; any further ones are only restored.
const READ_ONLY_PATHS_MAX: usize = 128;

/// Maximum number of restored names that are reported.
const REPORTED_NAMES_MAX: usize = 10;

/// The saved state of one path under a protected name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SavedEntry {
    File {
        mode: u32,
        bytes: Vec<u8>,
    },
    /// Too large to save.
    Large {
        mode: u32,
        length: i64,
        inode: u64,
        ctime: (i64, i64),
    },
    Folder,
    Link(PathBuf),
    /// A FIFO, a socket, a device.
    Other,
}

pub(super) use baseline::WorkspaceBaseline;

/// The state of everything under protected names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProtectedPaths {
    /// Everything at or below a protected name, folders before their contents.
    entries: BTreeMap<PathBuf, SavedEntry>,
    /// The names themselves, which are mounted read-only.
    roots: Vec<PathBuf>,
    /// `HEAD` or `commondir` in a folder that has only one of them. The other one makes both protected; then
    /// the new file is removed, and the project's own stays.
    partial_repository_files: BTreeSet<PathBuf>,
    /// Sockets and FIFOs anywhere in the workspace.
    special_files: Vec<PathBuf>,
}

impl ProtectedPaths {
    /// Scans a workspace.
    ///
    /// # Errors
    /// Returns an error if the workspace cannot be opened or scanned completely.
    pub(super) fn scan(workspace: &Path) -> io::Result<Self> {
        let (seen, walked) = scan::scan_workspace(workspace)?;
        // What the scan does not see cannot be restored, so such a workspace is not used.
        if walked == WalkCoverage::Partial {
            let why = "folders nest too deep, or one is closed to docket: remove it";
            return Err(io::Error::other(why));
        }
        Ok(seen)
    }

    /// Returns the paths to mount read-only: existing files and folders, no links.
    pub(super) fn read_only_paths(&self) -> Vec<PathBuf> {
        let plain = |path: &&PathBuf| {
            matches!(
                self.entries.get(*path),
                Some(SavedEntry::File { .. } | SavedEntry::Large { .. } | SavedEntry::Folder)
            ) && path.to_str().is_some()
        };
        let mut all: Vec<PathBuf> = self.roots.iter().filter(plain).cloned().collect();
        // The repository's own come first: paths beyond the limit are only restored.
        all.sort_by_key(|path| !path.starts_with(".git"));
        all.truncate(READ_ONLY_PATHS_MAX);
        all
    }

    /// Returns the folder that must not be renamed: the workspace's own repository, whose
    /// configuration would move with it.
    pub(super) fn pinned_paths(&self) -> Vec<PathBuf> {
        let own = || PathBuf::from(".git");
        self.roots
            .iter()
            .any(|top| top.starts_with(".git") && top.iter().count() > 1)
            .then(own)
            .into_iter()
            .collect()
    }

    /// Returns sockets and FIFOs, which may lead to other processes.
    pub(super) fn special_files(&self) -> &[PathBuf] {
        &self.special_files
    }

    /// Restores everything under protected names and returns the paths that were restored or removed.
    ///
    /// # Errors
    /// Returns the first failure: the workspace must then not be used any further.
    pub(super) fn restore(&self, workspace: &Path) -> io::Result<Vec<String>> {
        let now = Self::scan(workspace)?;
        if now.entries == self.entries {
            return Ok(Vec::new());
        }
        let root = safe_walk::open_root(workspace)?;
        let mut told = Vec::new();
        // Remove new entries, the deepest first.
        for (path, found) in now.entries.iter().rev() {
            if self.entries.get(path).is_some_and(|before| before == found || is_same_kind(before, found))
                || self.is_moved(&now, path, found)
                || self.partial_repository_files.contains(path)
            {
                continue;
            }
            // An entry that cannot be restored must not be removed either.
            if let Some(SavedEntry::Large { .. } | SavedEntry::Other) = self.entries.get(path) {
                let text = format!("{} was changed, and is too large to be put back", path.display());
                return Err(io::Error::other(text));
            }
            if remove_entry(&root, path, found)? {
                told.push(path.display().to_string());
            }
        }
        for (path, before) in &self.entries {
            if now.entries.get(path) == Some(before) {
                continue;
            }
            if restore_entry(&root, path, before)? {
                told.push(path.display().to_string());
            }
        }
        told.sort();
        told.dedup();
        let more = told.len().saturating_sub(REPORTED_NAMES_MAX);
        told.truncate(REPORTED_NAMES_MAX);
        if more > 0 {
            told.push(format!("{more} more"));
        }
        Ok(told)
    }

    /// Returns whether an entry below a renamed folder is unchanged apart from its new path. Never true for
    /// an entry in the root, which docket and git read first.
    fn is_moved(&self, now: &Self, path: &Path, found: &SavedEntry) -> bool {
        let Some(top) = now.protected_root(path) else { return false };
        let at_root = top.components().count() == 1 || top.starts_with(".git");
        let tail = |path: &Path, top: &Path| {
            path.strip_prefix(top.parent().unwrap_or(Path::new(""))).map(Path::to_owned).ok()
        };
        let wanted = tail(path, top);
        let stood = |(other, before): (&PathBuf, &SavedEntry)| {
            before == found
                && !now.entries.contains_key(other)
                && self.protected_root(other).is_some_and(|top| tail(other, top) == wanted)
        };
        !at_root && self.entries.iter().any(stood)
    }

    /// Returns the protected name that `path` is, or is below.
    fn protected_root<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let tops = |part: &&'a Path| self.roots.iter().any(|top| top == part);
        path.ancestors().find(tops)
    }
}

/// A changed file is overwritten in place, not removed first.
fn is_same_kind(before: &SavedEntry, found: &SavedEntry) -> bool {
    matches!(
        (before, found),
        (SavedEntry::File { .. }, SavedEntry::File { .. }) | (SavedEntry::Folder, SavedEntry::Folder)
    )
}

/// Opens the folder that contains a path, component by component. Returns `None` if it no longer
/// exists or is not a folder.
fn open_parent(root: &Dir, path: &Path) -> io::Result<Option<OwnedFd>> {
    let mut at = root.as_fd().try_clone_to_owned()?;
    for part in path.parent().into_iter().flatten() {
        match safe_walk::open_folder(at.as_fd(), &to_c_string(part)?) {
            Ok(next) => at = next.as_fd().try_clone_to_owned()?,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Some(at))
}

fn to_c_string(part: &OsStr) -> io::Result<CString> {
    Ok(CString::new(part.as_bytes())?)
}

fn remove_entry(root: &Dir, path: &Path, found: &SavedEntry) -> io::Result<bool> {
    let (Some(folder), Some(last)) = (open_parent(root, path)?, path.file_name()) else { return Ok(false) };
    let how =
        if *found == SavedEntry::Folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
    let last = to_c_string(last)?;
    match safe_walk::retry_with_owner_access(&folder, || unlinkat(&folder, last.as_c_str(), how)) {
        Ok(()) => Ok(true),
        // Already gone, or a folder that still contains unchanged entries moved into it.
        Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn restore_entry(root: &Dir, path: &Path, before: &SavedEntry) -> io::Result<bool> {
    // If the enclosing folder is gone, so is the repository.
    let (Some(folder), Some(last)) = (open_parent(root, path)?, path.file_name()) else { return Ok(false) };
    let last = to_c_string(last)?;
    match before {
        SavedEntry::Folder => match mkdirat(&folder, last.as_c_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => {
                let made = safe_walk::open_folder(folder.as_fd(), &last)?;
                set_workspace_owner(made.as_fd())?;
                Ok(true)
            }
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        },
        SavedEntry::Link(target) => {
            let there = readlinkat(&folder, last.as_c_str()).is_ok_and(|now| now == target.as_os_str());
            if there {
                return Ok(false);
            }
            remove_any(folder.as_fd(), &last)?;
            symlinkat(target.as_path(), &folder, last.as_c_str())?;
            if let Some((uid, gid)) = workspace_owner() {
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                match fchownat(&folder, last.as_c_str(), uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW) {
                    // Another call in this workspace removed it.
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(true)
        }
        SavedEntry::File { mode, bytes } => {
            remove_any(folder.as_fd(), &last)?;
            let flags =
                OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let make = || openat(&folder, last.as_c_str(), flags, Mode::from_bits_truncate(*mode));
            let mut file = File::from(safe_walk::retry_with_owner_access(&folder, make)?);
            file.write_all(bytes)?;
            nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(*mode))?;
            set_workspace_owner(file.as_fd())?;
            Ok(true)
        }
        // Contents that were not saved cannot be restored. Files that large under such a name are not
        // configuration.
        SavedEntry::Large { .. } | SavedEntry::Other => Ok(false),
    }
}

fn remove_any(folder: BorrowedFd<'_>, last: &CString) -> io::Result<()> {
    let is_folder = fstatat(folder, last.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR);
    let how = if is_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
    let folder = folder.try_clone_to_owned()?;
    match safe_walk::retry_with_owner_access(&folder, || unlinkat(&folder, last.as_c_str(), how)) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a file that docket creates as root to the workspace's owner.
fn set_workspace_owner(made: BorrowedFd<'_>) -> io::Result<()> {
    match workspace_owner() {
        Some((uid, gid)) => fchown(made, Some(uid), Some(gid)),
        None => Ok(()),
    }
}
