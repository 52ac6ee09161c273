//! What commands may not change in the workspace they may write: the repository's hooks and git configuration, and
//! docket's own configuration, at any depth, whether it is there or not. A repository is whatever git would take for
//! one when a person runs it there: a `.git`, a bare repository under any name, and one whose configuration lies in
//! another folder that its `commondir` names.
//!
//! Two walls. What exists is laid read-only inside, so a write fails there and then. The kernel has no rule for a name
//! that does not exist, and a folder above can be renamed; so the workspace is also looked through before a command and
//! after its last process has ended: what came to be under such a name is taken away, what changed or went is put back.
//! All of it goes through folder handles ([`tree`](super::tree)), never through a link.
//!
//! `git init` and the like so work within a command, and leave a repository without configuration and hooks.

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

/// Laid read-only at most; what is beyond is put back only.
const READ_ONLY_PATHS_MAX: usize = 128;

/// Names told of what was put back.
const REPORTED_NAMES_MAX: usize = 10;

/// One thing under a protected name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SavedEntry {
    File {
        mode: u32,
        bytes: Vec<u8>,
    },
    /// Too large to be held.
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

/// What stands under protected names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProtectedPaths {
    /// Everything at or below such a name, folders before what is in them.
    entries: BTreeMap<PathBuf, SavedEntry>,
    /// The names themselves: what is laid read-only.
    roots: Vec<PathBuf>,
    /// `HEAD` and `commondir` where only one of them is in the folder. The other one makes both protected; then the
    /// one that came is taken away, and the project's own stays.
    partial_repository_files: BTreeSet<PathBuf>,
    /// Sockets and FIFOs anywhere.
    special_files: Vec<PathBuf>,
}

impl ProtectedPaths {
    /// Looks through a workspace.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub(super) fn scan(workspace: &Path) -> io::Result<Self> {
        let (seen, walked) = scan::scan_workspace(workspace)?;
        // What is not seen cannot be kept: such a workspace is not gone on with.
        if walked == WalkCoverage::Partial {
            let why = "folders nest too deep, or one is closed to docket: remove it";
            return Err(io::Error::other(why));
        }
        Ok(seen)
    }

    /// What is laid read-only: existing files and folders, no links.
    pub(super) fn read_only_paths(&self) -> Vec<PathBuf> {
        let plain = |path: &&PathBuf| {
            matches!(
                self.entries.get(*path),
                Some(SavedEntry::File { .. } | SavedEntry::Large { .. } | SavedEntry::Folder)
            ) && path.to_str().is_some()
        };
        let mut all: Vec<PathBuf> = self.roots.iter().filter(plain).cloned().collect();
        // The repository's own first: what is beyond the bound is put back only.
        all.sort_by_key(|path| !path.starts_with(".git"));
        all.truncate(READ_ONLY_PATHS_MAX);
        all
    }

    /// What cannot be renamed: the workspace's own repository, whose configuration would go with it.
    pub(super) fn pinned_paths(&self) -> Vec<PathBuf> {
        let own = || PathBuf::from(".git");
        self.roots
            .iter()
            .any(|top| top.starts_with(".git") && top.iter().count() > 1)
            .then(own)
            .into_iter()
            .collect()
    }

    /// Sockets and FIFOs, behind which there may be somebody.
    pub(super) fn special_files(&self) -> &[PathBuf] {
        &self.special_files
    }

    /// Makes the workspace again what it was under protected names. Answers what had to be put back or taken away.
    ///
    /// # Errors
    /// The first thing that could not be done: the workspace must then not be gone on with.
    pub(super) fn restore(&self, workspace: &Path) -> io::Result<Vec<String>> {
        let now = Self::scan(workspace)?;
        if now.entries == self.entries {
            return Ok(Vec::new());
        }
        let root = safe_walk::open_root(workspace)?;
        let mut told = Vec::new();
        // What came to be, the deepest first.
        for (path, found) in now.entries.iter().rev() {
            if self.entries.get(path).is_some_and(|before| before == found || is_same_kind(before, found))
                || self.is_moved(&now, path, found)
                || self.partial_repository_files.contains(path)
            {
                continue;
            }
            // What cannot be put back must not be taken away either.
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

    /// Whether a thing below a folder that was renamed stands there as it stood before: nothing was changed by it.
    /// Never for what stands in the root, which is what docket and git read first.
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

    /// The protected name that `path` is or is below of.
    fn protected_root<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let tops = |part: &&'a Path| self.roots.iter().any(|top| top == part);
        path.ancestors().find(tops)
    }
}

/// A changed file is written over where it stands, not removed first.
fn is_same_kind(before: &SavedEntry, found: &SavedEntry) -> bool {
    matches!(
        (before, found),
        (SavedEntry::File { .. }, SavedEntry::File { .. }) | (SavedEntry::Folder, SavedEntry::Folder)
    )
}

/// The folder a path is in, opened part by part; `None` where it is no more, or no folder.
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
        // Gone, or a folder that keeps what was moved there as it was.
        Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn restore_entry(root: &Dir, path: &Path, before: &SavedEntry) -> io::Result<bool> {
    // Where the folder around it has gone, so has the repository.
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
                    // Another call of this workspace took it.
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
        // What was never held cannot come back; a file that large under such a name is nobody's configuration.
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

/// What docket lays as root belongs to whom the workspace belongs to.
fn set_workspace_owner(made: BorrowedFd<'_>) -> io::Result<()> {
    match workspace_owner() {
        Some((uid, gid)) => fchown(made, Some(uid), Some(gid)),
        None => Ok(()),
    }
}
