//! Walks a workspace that may be hostile: through folder handles, never through a link, only into real
//! folders, and with a single open handle at any depth.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    libc,
    sys::stat::{FileStat, Mode, fchmod, fstat, fstatat},
    unistd::geteuid,
};

/// Maximum depth. No real tree comes near it, and a path of one-byte names this deep is longer than the
/// kernel accepts.
pub(super) const DEPTH_MAX: usize = 4096;

/// An entry found by the walk.
pub(super) struct WalkEntry<'a> {
    /// The folder that contains it.
    pub(super) folder: BorrowedFd<'a>,
    /// Its name in that folder.
    pub(super) name: &'a CStr,
    /// The path of that folder from the root of the walk.
    pub(super) parent: &'a Path,
    pub(super) kind: Type,
}

impl WalkEntry<'_> {
    /// Returns the path from the root of the walk.
    pub(super) fn path(&self) -> PathBuf {
        self.parent.join(self.os_name())
    }

    pub(super) fn os_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }

    /// Returns its metadata, without following a link.
    pub(super) fn stat(&self) -> nix::Result<FileStat> {
        fstatat(self.folder, self.name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }
}

/// What the walk does with a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkAction {
    Descend,
    Skip,
}

/// How much of the tree a walk covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkCoverage {
    /// All of it.
    Complete,
    /// Folders nest deeper than [`DEPTH_MAX`], or one could not be entered: entries below were not
    /// visited.
    Partial,
}

/// Names in a folder and their types.
pub(super) type FolderEntries = Vec<(CString, Type)>;

/// Receives the entries of a walk.
pub(super) trait WalkVisitor {
    /// Called before a folder's entries, with all of them.
    fn enter_folder(&mut self, _below: &Path, _entries: &FolderEntries) {}
    /// Called for each entry. Only folders can be entered.
    fn visit_entry(&mut self, met: &WalkEntry<'_>) -> WalkAction;
    /// Called when the folder entered last is left.
    fn leave_folder(&mut self) {}
}

/// Opens the root of a walk.
pub(super) fn open_root(root: &Path) -> io::Result<Dir> {
    Ok(Dir::open(root, folder_flags(), Mode::empty())?)
}

fn folder_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK
}

/// Opens a subfolder and refuses a link. If a command removed its permissions (when docket is not root,
/// commands run as docket's own user), the permissions are permanently restored: its contents would otherwise
/// be unreachable for docket and later users.
pub(super) fn open_folder(folder: BorrowedFd<'_>, name: &CStr) -> nix::Result<Dir> {
    let open = || Dir::openat(folder, name, folder_flags(), Mode::empty());
    match open() {
        Err(Errno::EACCES) => {
            let handle = openat(folder, name, OFlag::O_PATH | folder_flags(), Mode::empty())?;
            let mode = fstat(&handle)?.st_mode & 0o7777;
            // A handle opened with O_PATH cannot change the mode; its path below /proc can.
            let place = format!("/proc/self/fd/{}", handle.as_raw_fd());
            let opened = std::fs::Permissions::from_mode(mode | 0o700);
            std::fs::set_permissions(&place, opened).map_err(|_| Errno::EACCES)?;
            open()
        }
        // It can be read, but none of its entries can be accessed.
        Ok(opened) => {
            if !geteuid().is_root() && fstat(&opened)?.st_mode & 0o100 == 0 {
                grant_owner_access(opened.as_fd())?;
            }
            Ok(opened)
        }
        other => other,
    }
}

fn grant_owner_access(folder: BorrowedFd<'_>) -> nix::Result<()> {
    let mode = fstat(folder)?.st_mode & 0o7777;
    fchmod(folder, Mode::from_bits_truncate(mode | 0o700))
}

/// Runs an operation on the entries of a folder that may be closed to its owner.
pub(super) fn retry_with_owner_access<T>(
    folder: &OwnedFd,
    act: impl Fn() -> nix::Result<T>,
) -> nix::Result<T> {
    match act() {
        Err(Errno::EACCES) => {
            grant_owner_access(folder.as_fd())?;
            act()
        }
        other => other,
    }
}

/// A level above the open folder.
struct WalkLevel {
    /// The identity of the folder.
    folder: (u64, u64),
    /// Its subfolders that are still to be entered.
    unvisited: Vec<CString>,
}

/// Visits every entry below `root`. Entries that vanish meanwhile are skipped.
pub(super) fn walk(root: Dir, visitor: &mut impl WalkVisitor) -> io::Result<WalkCoverage> {
    let mut below = PathBuf::new();
    let mut walked = WalkCoverage::Complete;
    let mut open = root;
    let mut levels = vec![read_level(&mut open, &below, visitor)?];
    loop {
        let depth = levels.len();
        let Some(level_now) = levels.last_mut() else { break };
        let Some(next) = level_now.unvisited.pop() else {
            visitor.leave_folder();
            levels.pop();
            below.pop();
            if let Some(above) = levels.last() {
                open = Dir::openat(open.as_fd(), c"..", folder_flags(), Mode::empty())?;
                // The folder was moved meanwhile: its `..` no longer leads to where the walk came
                // from.
                if folder_identity(&open)? != above.folder {
                    return Err(Errno::ESTALE.into());
                }
            }
            continue;
        };
        if depth >= DEPTH_MAX {
            walked = WalkCoverage::Partial;
            continue;
        }
        match open_folder(open.as_fd(), &next) {
            Ok(entered) => {
                below.push(OsStr::from_bytes(next.to_bytes()));
                open = entered;
                levels.push(read_level(&mut open, &below, visitor)?);
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(Errno::EACCES | Errno::EPERM) => walked = WalkCoverage::Partial,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(walked)
}

fn folder_identity(folder: &Dir) -> nix::Result<(u64, u64)> {
    fstat(folder).map(|stat| (stat.st_dev, stat.st_ino))
}

fn read_level(folder: &mut Dir, below: &Path, visitor: &mut impl WalkVisitor) -> io::Result<WalkLevel> {
    let names: Vec<(CString, Option<Type>)> = folder
        .iter()
        .flatten()
        .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
        .filter(|(name, _)| !matches!(name.to_bytes(), b"." | b".."))
        .collect();
    let known = |(name, kind): (CString, Option<Type>)| {
        let kind = kind.or_else(|| entry_kind(folder.as_fd(), &name))?;
        Some((name, kind))
    };
    let entries: FolderEntries = names.into_iter().filter_map(known).collect();
    visitor.enter_folder(below, &entries);
    let mut waiting = Vec::new();
    for (name, kind) in entries {
        let met = WalkEntry { folder: folder.as_fd(), name: &name, parent: below, kind };
        if visitor.visit_entry(&met) == WalkAction::Descend && kind == Type::Directory {
            waiting.push(name);
        }
    }
    Ok(WalkLevel { folder: folder_identity(folder)?, unvisited: waiting })
}

/// Not every file system reports the type in its listing.
fn entry_kind(folder: BorrowedFd<'_>, name: &CStr) -> Option<Type> {
    let stat = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Some(match stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => Type::Directory,
        libc::S_IFREG => Type::File,
        libc::S_IFLNK => Type::Symlink,
        libc::S_IFIFO => Type::Fifo,
        libc::S_IFSOCK => Type::Socket,
        libc::S_IFCHR => Type::CharacterDevice,
        _ => Type::BlockDevice,
    })
}
