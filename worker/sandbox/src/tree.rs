//! Walking a workspace that somebody hostile may have made: through folder handles, never through a link, never into
//! what is not a folder, and with one handle open however deep it goes.

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

/// Folders below one another. No real tree comes near; a path of one byte a name is longer than the kernel takes.
pub(super) const DEPTH_MAX: usize = 4096;

/// An entry as it is met.
pub(super) struct Met<'a> {
    /// The folder it is in.
    pub(super) folder: BorrowedFd<'a>,
    /// Its name there.
    pub(super) name: &'a CStr,
    /// That folder, from the root of the walk.
    pub(super) below: &'a Path,
    /// What it is.
    pub(super) kind: Type,
}

impl Met<'_> {
    /// The path from the root of the walk.
    pub(super) fn path(&self) -> PathBuf {
        self.below.join(self.os_name())
    }

    pub(super) fn os_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }

    /// Its facts, of itself where it is a link.
    pub(super) fn stat(&self) -> nix::Result<FileStat> {
        fstatat(self.folder, self.name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }
}

/// What becomes of a folder that was met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    Into,
    Past,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// All of it.
    Whole,
    /// Folders nest deeper than [`DEPTH_MAX`], or one could not be entered: what is below was not met.
    InPart,
}

/// Names in a folder, and what they are.
pub(super) type Entries = Vec<(CString, Type)>;

/// Somebody who walks.
pub(super) trait Visitor {
    /// A folder's entries come next; all of them are known.
    fn enter(&mut self, _below: &Path, _entries: &Entries) {}
    /// An entry. Only folders are gone into.
    fn meet(&mut self, met: &Met<'_>) -> Go;
    /// The folder that was entered last is left.
    fn leave(&mut self) {}
}

/// Opens the root of a walk.
pub(super) fn open_root(root: &Path) -> io::Result<Dir> {
    Ok(Dir::open(root, folder_flags(), Mode::empty())?)
}

fn folder_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK
}

/// Opens a folder in a folder; a link is refused. One that a command closed, which is docket's own user where docket is
/// no root, is opened again for good: what is in it could not be reached otherwise, by docket or by whoever comes next.
pub(super) fn open_folder(folder: BorrowedFd<'_>, name: &CStr) -> nix::Result<Dir> {
    let open = || Dir::openat(folder, name, folder_flags(), Mode::empty());
    match open() {
        Err(Errno::EACCES) => {
            let handle = openat(folder, name, OFlag::O_PATH | folder_flags(), Mode::empty())?;
            let mode = fstat(&handle)?.st_mode & 0o7777;
            // A handle that only names the folder cannot change its mode; its place below /proc can.
            let place = format!("/proc/self/fd/{}", handle.as_raw_fd());
            let opened = std::fs::Permissions::from_mode(mode | 0o700);
            std::fs::set_permissions(&place, opened).map_err(|_| Errno::EACCES)?;
            open()
        }
        // It can be read, and nothing in it can be named.
        Ok(opened) => {
            if !geteuid().is_root() && fstat(&opened)?.st_mode & 0o100 == 0 {
                open_up(opened.as_fd())?;
            }
            Ok(opened)
        }
        other => other,
    }
}

fn open_up(folder: BorrowedFd<'_>) -> nix::Result<()> {
    let mode = fstat(folder)?.st_mode & 0o7777;
    fchmod(folder, Mode::from_bits_truncate(mode | 0o700))
}

/// Does something to the entries of a folder, which may be closed to its owner.
pub(super) fn opened_up<T>(folder: &OwnedFd, act: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    match act() {
        Err(Errno::EACCES) => {
            open_up(folder.as_fd())?;
            act()
        }
        other => other,
    }
}

/// A level above the one that is open.
struct Level {
    /// Which folder it is.
    folder: (u64, u64),
    /// The folders in it that are still to be entered.
    waiting: Vec<CString>,
}

/// Meets every entry below `root`. What vanishes meanwhile is passed over.
pub(super) fn walk(root: Dir, visitor: &mut impl Visitor) -> io::Result<Walked> {
    let mut below = PathBuf::new();
    let mut walked = Walked::Whole;
    let mut open = root;
    let mut levels = vec![level(&mut open, &below, visitor)?];
    loop {
        let depth = levels.len();
        let Some(level_now) = levels.last_mut() else { break };
        let Some(next) = level_now.waiting.pop() else {
            visitor.leave();
            levels.pop();
            below.pop();
            if let Some(above) = levels.last() {
                open = Dir::openat(open.as_fd(), c"..", folder_flags(), Mode::empty())?;
                // Moved by somebody meanwhile: where this leads now is not where it came from.
                if identity(&open)? != above.folder {
                    return Err(Errno::ESTALE.into());
                }
            }
            continue;
        };
        if depth >= DEPTH_MAX {
            walked = Walked::InPart;
            continue;
        }
        match open_folder(open.as_fd(), &next) {
            Ok(entered) => {
                below.push(OsStr::from_bytes(next.to_bytes()));
                open = entered;
                levels.push(level(&mut open, &below, visitor)?);
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(Errno::EACCES | Errno::EPERM) => walked = Walked::InPart,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(walked)
}

fn identity(folder: &Dir) -> nix::Result<(u64, u64)> {
    fstat(folder).map(|stat| (stat.st_dev, stat.st_ino))
}

fn level(folder: &mut Dir, below: &Path, visitor: &mut impl Visitor) -> io::Result<Level> {
    let names: Vec<(CString, Option<Type>)> = folder
        .iter()
        .flatten()
        .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
        .filter(|(name, _)| !matches!(name.to_bytes(), b"." | b".."))
        .collect();
    let known = |(name, kind): (CString, Option<Type>)| {
        let kind = kind.or_else(|| kind_of(folder.as_fd(), &name))?;
        Some((name, kind))
    };
    let entries: Entries = names.into_iter().filter_map(known).collect();
    visitor.enter(below, &entries);
    let mut waiting = Vec::new();
    for (name, kind) in entries {
        let met = Met { folder: folder.as_fd(), name: &name, below, kind };
        if visitor.meet(&met) == Go::Into && kind == Type::Directory {
            waiting.push(name);
        }
    }
    Ok(Level { folder: identity(folder)?, waiting })
}

/// Not every file system tells the kind in its listing.
fn kind_of(folder: BorrowedFd<'_>, name: &CStr) -> Option<Type> {
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
