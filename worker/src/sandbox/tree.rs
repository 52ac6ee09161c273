//! Walking a workspace that somebody hostile may have made: through folder handles, never through a link, never into
//! what is not a folder, and no deeper than handles last.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag},
    sys::stat::{FileStat, Mode, fstatat},
};

/// Folders below one another. Real trees stay far below; a handle is held for each.
pub(super) const DEPTH_MAX: usize = 256;

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
    /// Folders nest deeper than [`DEPTH_MAX`]: what is below was not met.
    TooDeep,
}

/// Opens the root of a walk.
pub(super) fn open_root(root: &Path) -> io::Result<Dir> {
    Ok(Dir::open(root, folder_flags(), Mode::empty())?)
}

fn folder_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK
}

/// Opens a folder in a folder; a link is refused.
pub(super) fn open_folder(folder: BorrowedFd<'_>, name: &CStr) -> nix::Result<Dir> {
    Dir::openat(folder, name, folder_flags(), Mode::empty())
}

/// Somebody who walks.
pub(super) trait Visitor {
    /// A folder's entries come next.
    fn enter(&mut self, _below: &Path) {}
    /// An entry. Only folders are gone into.
    fn meet(&mut self, met: &Met<'_>) -> Go;
}

/// Meets every entry below `root`. What vanishes meanwhile, or may not be read, is passed over.
pub(super) fn walk(root: Dir, visitor: &mut impl Visitor) -> io::Result<Walked> {
    let mut below = PathBuf::new();
    let mut walked = Walked::Whole;
    // Each level: its handle, and the folders in it that are still to be entered.
    let mut levels = vec![level(root, &below, visitor)];
    loop {
        let depth = levels.len();
        let Some((folder, waiting)) = levels.last_mut() else { break };
        let Some(next) = waiting.pop() else {
            levels.pop();
            below.pop();
            continue;
        };
        if depth >= DEPTH_MAX {
            walked = Walked::TooDeep;
            continue;
        }
        match open_folder(folder.as_fd(), &next) {
            Ok(entered) => {
                below.push(OsStr::from_bytes(next.to_bytes()));
                levels.push(level(entered, &below, visitor));
            }
            Err(Errno::EMFILE | Errno::ENFILE) => return Err(Errno::EMFILE.into()),
            Err(_gone_or_closed) => {}
        }
    }
    Ok(walked)
}

type Level = (Dir, Vec<std::ffi::CString>);

fn level(mut folder: Dir, below: &Path, visitor: &mut impl Visitor) -> Level {
    visitor.enter(below);
    let mut waiting = Vec::new();
    // Names first, for the handle cannot be read from and looked through at once.
    let entries: Vec<(std::ffi::CString, Option<Type>)> = folder
        .iter()
        .flatten()
        .map(|entry| (entry.file_name().to_owned(), entry.file_type()))
        .filter(|(name, _)| !matches!(name.to_bytes(), b"." | b".."))
        .collect();
    for (name, kind) in entries {
        let Some(kind) = kind.or_else(|| kind_of(folder.as_fd(), &name)) else { continue };
        let met = Met { folder: folder.as_fd(), name: &name, below, kind };
        if visitor.meet(&met) == Go::Into && kind == Type::Directory {
            waiting.push(name);
        }
    }
    (folder, waiting)
}

/// Not every file system tells the kind in its listing.
fn kind_of(folder: BorrowedFd<'_>, name: &CStr) -> Option<Type> {
    use nix::libc;
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
