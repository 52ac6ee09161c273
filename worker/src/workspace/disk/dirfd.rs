//! File access below one folder through directory handles, never through a symbolic link.
//!
//! The contents of a workspace are under a model's control: a folder may have become a link to `/etc` since
//! it was last checked. So every step opens by handle and refuses links, and anything in the way of a write
//! is removed, not followed. Used by walk, merge, materialize and restore.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::Path,
};

use docket_schema::{
    content::WorkspacePath,
    snapshot::{Entry, EntryKind, PERMISSION_BITS},
};
use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat},
    sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, fstat, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat},
};

use super::file_stat::{FileKind, StatData};

const FOLDER_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Opens the root folder of a workspace. The last component of `path` must not be a link.
pub(crate) fn open_root(path: &Path) -> nix::Result<OwnedFd> {
    open(path, FOLDER_FLAGS, Mode::empty())
}

/// Flags that open a folder for looking up names in it, but not for listing.
const PATH_ONLY_FLAGS: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn open_child_folder(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<OwnedFd> {
    openat(parent, name, FOLDER_FLAGS, Mode::empty())
}

/// Opens the folder at `path` below `root`; the empty path is the root itself.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> nix::Result<OwnedFd> {
    open_below(root, path, FOLDER_FLAGS)
}

/// Like [`open_folder`], but only for looking up names: cheaper, and the folder need not be readable.
pub(crate) fn open_folder_path_only(root: BorrowedFd<'_>, path: &[u8]) -> nix::Result<OwnedFd> {
    open_below(root, path, PATH_ONLY_FLAGS)
}

fn open_below(root: BorrowedFd<'_>, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
    if path.is_empty() {
        return openat(root, ".", flags, Mode::empty());
    }
    let how =
        OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(root, path, how) {
        // In segments: folder by folder would open a quadratic number of path components.
        Err(Errno::ENAMETOOLONG) => match open_in_segments(root, path, flags) {
            Err(Errno::ENOSYS | Errno::EPERM | Errno::ENAMETOOLONG) => {}
            result => return result,
        },
        // An old kernel or a seccomp filter: fall back to one step per folder.
        Err(Errno::ENOSYS | Errno::EPERM) => {}
        result => return result,
    }
    let (folders, last) = split_path(path);
    let step = |folder: OwnedFd, part: &[u8]| openat(folder, part, PATH_ONLY_FLAGS, Mode::empty());
    let start = openat(root, ".", PATH_ONLY_FLAGS, Mode::empty())?;
    let parts = folders.split(|b| *b == b'/').filter(|part| !part.is_empty());
    let parent = parts.into_iter().try_fold(start, step)?;
    openat(parent, last, flags, Mode::empty())
}

/// Opens a path that is longer than one call accepts, in as few calls as possible.
fn open_in_segments(root: BorrowedFd<'_>, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
    let how = |flags| {
        OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS)
    };
    let mut here: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let (piece, after) = split_segment(rest);
        let from = here.as_ref().map_or(root, AsFd::as_fd);
        if after.is_empty() {
            return openat2(from, piece, how(flags));
        }
        here = Some(openat2(from, piece, how(PATH_ONLY_FLAGS))?);
        rest = after;
    }
}

/// Longest path for one call, in bytes, with room for the terminating zero.
const SEGMENT_BYTES_MAX: usize = 4000;

/// Splits a path into the leading folders that fit into one call, and the rest.
fn split_segment(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= SEGMENT_BYTES_MAX {
        return (path, &[]);
    }
    // A single name is shorter than the limit, so there is a slash; otherwise the call itself fails.
    match path[..SEGMENT_BYTES_MAX].iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, &[]),
    }
}

/// `fstat` of an open folder.
pub(crate) fn stat_folder(folder: &OwnedFd) -> nix::Result<FileStat> {
    fstat(folder)
}

/// `fstatat` without following links.
pub(crate) fn stat_child(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<FileStat> {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// Opens a regular file for reading; also returns its `fstat` from before the first read.
pub(crate) fn open_file(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<(File, FileStat)> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    Ok((File::from(fd), stat))
}

/// Reads at most `limit` bytes. Also returns whether the end was reached.
pub(crate) fn read_limited(file: &mut File, size: u64, limit: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() as u64 <= limit;
    Ok((bytes, whole))
}

/// Returns the target of the link `name`.
pub(crate) fn read_link(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<Vec<u8>> {
    Ok(readlinkat(parent, name)?.into_vec())
}

/// Returns the names in a folder, without `.` and `..`.
pub(crate) fn list_names(folder: OwnedFd) -> nix::Result<(Dir, Vec<ChildName>)> {
    let mut dir = Dir::from_fd(folder)?;
    let mut found = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(name.into());
        }
    }
    Ok((dir, found))
}

/// A name in a folder.
type ChildName = Box<[u8]>;

/// Removes `name`, including a complete folder; a missing name is not an error. Only one handle is open at a
/// time, however deep the folder is: a command may have nested it deeper than the handle limit or the stack
/// allows.
///
/// # Errors
/// `ESTALE` if a folder was moved in the meantime: its `..` would lead outside the tree.
pub(crate) fn remove_child(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<()> {
    if remove_single(parent, name)? {
        return Ok(());
    }
    let (mut here, children) = list_names(open_writable_folder(parent, name)?)?;
    let mut left =
        vec![FolderRemoval { name: name.into(), children, parent_identity: inode_identity(&fstat(parent)?) }];
    while let Some(folder) = left.last_mut() {
        if let Some(child) = folder.children.pop() {
            if !remove_single(here.as_fd(), &child)? {
                let above = inode_identity(&fstat(here.as_fd())?);
                let (below, children) = list_names(open_writable_folder(here.as_fd(), &child)?)?;
                here = below;
                left.push(FolderRemoval { name: child, children, parent_identity: above });
            }
        } else {
            let above = Dir::openat(here.as_fd(), "..", FOLDER_FLAGS, Mode::empty())?;
            if inode_identity(&fstat(above.as_fd())?) != folder.parent_identity {
                return Err(Errno::ESTALE);
            }
            unlinkat(above.as_fd(), folder.name.as_ref(), UnlinkatFlags::RemoveDir)?;
            here = above;
            left.pop();
        }
    }
    Ok(())
}

/// A folder whose content is being removed.
struct FolderRemoval {
    name: ChildName,
    /// The children still to remove.
    children: Vec<ChildName>,
    /// The folder it was entered from.
    parent_identity: (u64, u64),
}

/// Identifies a folder: two handles agree on it only if they refer to the same folder.
fn inode_identity(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Removes a non-folder or an empty folder; returns whether the name is gone now.
fn remove_single(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<bool> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(true),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(error) => return Err(error),
    }
    Ok(unlinkat(parent, name, UnlinkatFlags::RemoveDir).is_ok())
}

/// Opens a folder for modification, changing its mode if that forbids it. The caller sets the right modes
/// afterwards.
fn open_writable_folder(parent: BorrowedFd<'_>, name: &[u8]) -> nix::Result<OwnedFd> {
    let folder = match open_child_folder(parent, name) {
        Err(Errno::EACCES) => {
            // A link failed with ELOOP or ENOTDIR above; one created since is not followed.
            fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            open_child_folder(parent, name)?
        }
        result => result?,
    };
    let mode = Mode::from_bits_truncate(fstat(&folder)?.st_mode);
    if !mode.contains(Mode::S_IRWXU) {
        fchmod(&folder, mode | Mode::S_IRWXU)?;
    }
    Ok(folder)
}

/// The uid and gid that own written files: those of the sandboxed commands if docket runs as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Writes below one folder. Paths are cheapest in byte order, because handles of the parent folders are
/// cached.
pub(crate) struct TreeWriter {
    root: OwnedFd,
    owner: Option<FileOwner>,
    open_folders: Vec<(Vec<u8>, OwnedFd)>,
}

impl TreeWriter {
    pub(crate) fn new(root: OwnedFd, owner: Option<FileOwner>) -> Self {
        Self { root, owner, open_folders: Vec::new() }
    }

    /// Writes `entry` with its content at `path`, replacing anything at the path or in its way.
    pub(crate) fn write_entry(
        &mut self,
        path: &WorkspacePath,
        entry: &Entry,
        content: &[u8],
    ) -> nix::Result<()> {
        match entry.kind {
            EntryKind::File => self.write_file(path, content, entry.mode),
            EntryKind::Symlink => self.write_symlink(path, content),
            EntryKind::Dir => self.ensure_folder(path.as_bytes()).map(|_| ()),
        }
    }

    fn write_file(&mut self, path: &WorkspacePath, content: &[u8], mode: u32) -> nix::Result<()> {
        let owner = self.owner;
        let (parent, name) = self.open_parent(path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let create = || openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        // Never written in place: the old file may have a second hard link elsewhere.
        let fd = match create() {
            Err(Errno::EEXIST) => {
                remove_child(parent, name)?;
                create()?
            }
            result => result?,
        };
        let mut file = File::from(fd);
        file.write_all(content).map_err(errno_from_io)?;
        if let Some(owner) = owner {
            fchown(&file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        }
        fchmod(&file, permission_mode(mode))
    }

    fn write_symlink(&mut self, path: &WorkspacePath, target: &[u8]) -> nix::Result<()> {
        let owner = self.owner;
        let (parent, name) = self.open_parent(path)?;
        remove_child(parent, name)?;
        symlinkat(target, parent, name)?;
        let Some(owner) = owner else { return Ok(()) };
        // By handle: the name may meanwhile be a hard link to an unrelated file.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let link = openat(parent, name, flags, Mode::empty())?;
        let stat = fstat(&link)?;
        if StatData::from_stat(&stat).kind() != FileKind::Link || stat.st_nlink != 1 {
            return Err(Errno::ESTALE);
        }
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchownat(&link, c"", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)
    }

    /// Removes `path` if its parent folder exists.
    pub(crate) fn remove_path(&mut self, path: &WorkspacePath) -> nix::Result<()> {
        self.open_folders.clear();
        let (folder, name) = split_path(path.as_bytes());
        match open_folder(self.root.as_fd(), folder) {
            Ok(parent) => remove_child(parent.as_fd(), name),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            // A parent folder is locked: the writing walk unlocks step by step.
            Err(Errno::EACCES) => {
                let (parent, name) = self.open_parent(path)?;
                remove_child(parent, name)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the mode of the folder at `path`.
    pub(crate) fn set_folder_mode(&mut self, path: &[u8], mode: u32) -> nix::Result<()> {
        self.open_folders.clear();
        let folder = open_folder(self.root.as_fd(), path)?;
        fchmod(&folder, permission_mode(mode))
    }

    /// `fstat` of the entry last written at `path`.
    pub(crate) fn stat_path(&mut self, path: &WorkspacePath) -> nix::Result<FileStat> {
        let (parent, name) = self.open_parent(path)?;
        stat_child(parent, name)
    }

    fn open_parent<'p>(&mut self, path: &'p WorkspacePath) -> nix::Result<(BorrowedFd<'_>, &'p [u8])> {
        let (folder, name) = split_path(path.as_bytes());
        Ok((self.ensure_folder(folder)?, name))
    }

    /// Returns the folder at `path`, creating it if it is missing.
    fn ensure_folder(&mut self, path: &[u8]) -> nix::Result<BorrowedFd<'_>> {
        let parts: Vec<&[u8]> =
            if path.is_empty() { Vec::new() } else { path.split(|b| *b == b'/').collect() };
        let common =
            self.open_folders.iter().zip(&parts).take_while(|((name, _), part)| name == *part).count();
        self.open_folders.truncate(common);
        for part in &parts[common..] {
            let parent = self.open_folders.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
            let folder = make_folder(parent, part, self.owner)?;
            self.open_folders.push((part.to_vec(), folder));
        }
        Ok(self.open_folders.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd()))
    }
}

/// The mode of written files. Only permission bits are kept, whatever the record says: the writer may be
/// root.
fn permission_mode(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & PERMISSION_BITS)
}

/// Removes all permissions outside `allowed` from the file or folder `name`. Links have no mode. No other
/// process may write in `parent` at the same time, because the mode is changed by name.
pub(crate) fn restrict_child_mode(parent: BorrowedFd<'_>, name: &[u8], allowed: u32) -> nix::Result<()> {
    let stat = stat_child(parent, name)?;
    let is_link = StatData::from_stat(&stat).kind() == FileKind::Link;
    if is_link || stat.st_mode & 0o7777 & !allowed == 0 {
        return Ok(());
    }
    fchmodat(parent, name, permission_mode(stat.st_mode & allowed), FchmodatFlags::FollowSymlink)
}

fn make_folder(parent: BorrowedFd<'_>, name: &[u8], owner: Option<FileOwner>) -> nix::Result<OwnedFd> {
    let everyone_reads = Mode::from_bits_truncate(0o755);
    match mkdirat(parent, name, everyone_reads) {
        Ok(()) => {}
        Err(Errno::EEXIST) => match open_writable_folder(parent, name) {
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                remove_child(parent, name)?;
                mkdirat(parent, name, everyone_reads)?;
            }
            result => return result,
        },
        Err(error) => return Err(error),
    }
    let folder = open_child_folder(parent, name)?;
    if let Some(owner) = owner {
        fchown(&folder, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    }
    // The umask of this process is not part of the workspace.
    fchmod(&folder, everyone_reads)?;
    Ok(folder)
}

/// `fstat` of a temporary file in `folder`, unnamed or already removed: its timestamps are the file system's
/// own time.
pub(crate) fn stat_temporary_file(folder: BorrowedFd<'_>) -> nix::Result<FileStat> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match openat(folder, ".", OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC, mode) {
        Ok(file) => return fstat(&file),
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT | Errno::EINVAL) => {}
        Err(error) => return Err(error),
    }
    let name = format!(".docket-{}", std::process::id());
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = match openat(folder, name.as_str(), flags, mode) {
        // Left by a process with the same id that was killed between the two calls.
        Err(Errno::EEXIST) => {
            unlinkat(folder, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
            openat(folder, name.as_str(), flags, mode)?
        }
        opened => opened?,
    };
    let stat = fstat(&file);
    unlinkat(folder, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
    stat
}

/// Splits a path into its folder and name.
pub(crate) fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

pub(crate) fn join_path(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    if !folder.is_empty() {
        path.extend_from_slice(folder);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn errno_from_io(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_is_split_by_length_not_depth() {
        for (name, depth) in [(60, 512), (1, 512), (255, 120), (1, 1), (60, 66)] {
            let path = vec!["x".repeat(name); depth].join("/").into_bytes();
            let (mut pieces, mut rest) = (Vec::new(), path.as_slice());
            while !rest.is_empty() {
                let (first, after) = split_segment(rest);
                pieces.push(first);
                rest = after;
            }
            assert_eq!(pieces.join(&b'/'), path);
            assert!(pieces.iter().all(|piece| piece.len() <= SEGMENT_BYTES_MAX));
            let most = 1 + path.len() / (SEGMENT_BYTES_MAX - 256);
            assert!(pieces.len() <= most, "{} calls for {depth} names of {name} bytes", pieces.len());
        }
        assert_eq!(split_segment(&[b'x'; 5000]), (&[b'x'; 5000][..], &[][..]));
    }
}
