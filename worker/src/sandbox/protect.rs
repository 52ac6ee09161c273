//! What commands may not change in the workspace they may write: the repository's hooks and git configuration, and
//! docket's own configuration, at any depth, whether it is there or not.
//!
//! Two walls. What exists is laid read-only inside, so a write fails there and then. The kernel has no rule for a name
//! that does not exist, and a folder above can be renamed; so the workspace is also looked through before a command and
//! after its last process has ended: what came to be under such a name is taken away, what changed or went is put back.
//! All of it goes through folder handles ([`tree`](super::tree)), never through a link.
//!
//! `git init` and the like so work within a command, and leave a repository without configuration and hooks.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::fchown},
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat},
    sys::stat::{FileStat, Mode, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat},
};

use super::{
    host::workspace_owner,
    tree::{self, Go, Met, Visitor},
};

/// Of a file that is put back, what is held; real hooks and configurations are far smaller. Of a larger one only
/// that it is there is held.
const HELD_BYTES_MAX: u64 = 1024 * 1024;
/// Of all files together.
const HELD_TOGETHER_MAX: usize = 32 * 1024 * 1024;

/// Laid read-only at most; what is beyond is put back only.
const LAID_MAX: usize = 128;

/// Names told of what was put back.
const TOLD_MAX: usize = 10;

/// One thing under a protected name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    File {
        mode: u32,
        bytes: Vec<u8>,
    },
    /// Too large to be held.
    Large {
        mode: u32,
        length: i64,
        inode: u64,
        changed: (i64, i64),
    },
    Folder,
    Link(PathBuf),
    /// A FIFO, a socket, a device.
    Other,
}

/// What stands under protected names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Protected {
    /// Everything at or below such a name, folders before what is in them.
    found: BTreeMap<PathBuf, Held>,
    /// The names themselves: what is laid read-only.
    tops: Vec<PathBuf>,
}

/// What a name in a folder means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Protected, and all below it.
    Top,
    /// Nothing by itself; there may be something below.
    Plain,
    /// Nothing, and nothing below.
    Nothing,
}

/// Git's own names within a repository's folder.
const OF_GIT: [&str; 3] = ["hooks", "config", "config.worktree"];
/// docket's, in any folder. Names are compared without case, for some file systems do.
const OF_DOCKET: [&str; 2] = ["docket.toml", ".docket"];

/// Where a folder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// In the tree people work in.
    Tree,
    /// A `.git` itself.
    Git,
    /// Below its `modules` or `worktrees`: the folders of other repositories.
    OtherRepositories,
    /// Elsewhere in it: objects, references, logs.
    Store,
}

fn is_one_of(name: &OsStr, wanted: &[&str]) -> bool {
    wanted.iter().any(|own| name.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
}

impl Within {
    fn of(folder: &Path) -> Self {
        folder.iter().fold(Self::Tree, Self::below)
    }

    fn below(self, name: &OsStr) -> Self {
        match self {
            Self::Tree if is_one_of(name, &[".git"]) => Self::Git,
            Self::Tree => Self::Tree,
            Self::Git if is_one_of(name, &["modules", "worktrees"]) => Self::OtherRepositories,
            Self::OtherRepositories if !is_one_of(name, &["objects", "refs", "logs"]) => {
                Self::OtherRepositories
            }
            Self::Git | Self::OtherRepositories | Self::Store => Self::Store,
        }
    }

    /// What a name in such a folder means. `.git` as a link is where hooks and configuration are then.
    fn meaning(self, name: &OsStr, kind: Type) -> Meaning {
        match self {
            Self::Tree if is_one_of(name, &OF_DOCKET) => Meaning::Top,
            Self::Tree if kind == Type::Symlink && is_one_of(name, &[".git"]) => Meaning::Top,
            Self::Tree => Meaning::Plain,
            Self::Git | Self::OtherRepositories if is_one_of(name, &OF_GIT) => Meaning::Top,
            Self::Git | Self::OtherRepositories if self.below(name) == Self::OtherRepositories => {
                Meaning::Plain
            }
            Self::Git | Self::OtherRepositories | Self::Store => Meaning::Nothing,
        }
    }
}

/// Looks through a workspace.
struct Looking {
    seen: Protected,
    held_bytes: usize,
    /// Of the folder whose entries come.
    within: Within,
    /// Whether that folder is under a protected name.
    inside: bool,
}

impl Visitor for Looking {
    fn enter(&mut self, below: &Path) {
        self.within = Within::of(below);
        self.inside = self.seen.found.get(below) == Some(&Held::Folder);
    }

    fn meet(&mut self, met: &Met<'_>) -> Go {
        let meaning = if self.inside { Meaning::Top } else { self.within.meaning(met.os_name(), met.kind) };
        match meaning {
            Meaning::Nothing => Go::Past,
            Meaning::Plain => Go::Into,
            Meaning::Top => {
                let (path, held) = (met.path(), hold(met, &mut self.held_bytes));
                if !self.inside {
                    self.seen.tops.push(path.clone());
                }
                self.seen.found.insert(path, held);
                Go::Into
            }
        }
    }
}

impl Protected {
    /// Looks through a workspace.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub(super) fn look(workspace: &Path) -> io::Result<Self> {
        let mut looking =
            Looking { seen: Self::default(), held_bytes: 0, within: Within::Tree, inside: false };
        tree::walk(tree::open_root(workspace)?, &mut looking)?;
        let mut seen = looking.seen;
        seen.tops.sort();
        Ok(seen)
    }

    /// What is laid read-only: existing files and folders, no links.
    pub(super) fn to_lay(&self) -> Vec<PathBuf> {
        let plain = |path: &&PathBuf| {
            matches!(self.found.get(*path), Some(Held::File { .. } | Held::Large { .. } | Held::Folder))
                && path.to_str().is_some()
        };
        self.tops.iter().filter(plain).take(LAID_MAX).cloned().collect()
    }

    /// Makes the workspace again what it was under protected names. Answers what had to be put back or taken away.
    ///
    /// # Errors
    /// The first thing that could not be done: the workspace must then not be gone on with.
    pub(super) fn restore(&self, workspace: &Path) -> io::Result<Vec<String>> {
        let now = Self::look(workspace)?;
        if now.found == self.found {
            return Ok(Vec::new());
        }
        let root = tree::open_root(workspace)?;
        let mut told = Vec::new();
        // What came to be, the deepest first.
        for (path, found) in now.found.iter().rev() {
            if self.found.get(path).is_some_and(|before| before == found || same_kind(before, found))
                || self.moved_here(&now, path, found)
            {
                continue;
            }
            if remove(&root, path, found)? {
                told.push(path.display().to_string());
            }
        }
        for (path, before) in &self.found {
            if now.found.get(path) == Some(before) {
                continue;
            }
            if put_back(&root, path, before)? {
                told.push(path.display().to_string());
            }
        }
        told.sort();
        told.dedup();
        let more = told.len().saturating_sub(TOLD_MAX);
        told.truncate(TOLD_MAX);
        if more > 0 {
            told.push(format!("{more} more"));
        }
        Ok(told)
    }

    /// Whether a thing below a folder that was renamed stands there as it stood before: nothing was changed by it.
    /// Never for what stands in the root, which is what docket and git read first.
    fn moved_here(&self, now: &Self, path: &Path, found: &Held) -> bool {
        let Some(top) = now.top_of(path) else { return false };
        let at_root = top.components().count() == 1 || top.starts_with(".git");
        let tail = |path: &Path, top: &Path| {
            path.strip_prefix(top.parent().unwrap_or(Path::new(""))).map(Path::to_owned).ok()
        };
        let wanted = tail(path, top);
        let stood = |(other, before): (&PathBuf, &Held)| {
            before == found && self.top_of(other).is_some_and(|top| tail(other, top) == wanted)
        };
        !at_root && self.found.iter().any(stood)
    }

    /// The protected name that `path` is or is below of.
    fn top_of<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let tops = |part: &&'a Path| self.tops.iter().any(|top| top == part);
        path.ancestors().find(tops)
    }
}

/// A changed file is written over where it stands, not removed first.
fn same_kind(before: &Held, found: &Held) -> bool {
    matches!((before, found), (Held::File { .. }, Held::File { .. }) | (Held::Folder, Held::Folder))
}

fn hold(met: &Met<'_>, held: &mut usize) -> Held {
    let Ok(stat) = met.stat() else { return Held::Other };
    match met.kind {
        Type::Directory => Held::Folder,
        Type::Symlink => {
            readlinkat(met.folder, met.name).map_or(Held::Other, |target| Held::Link(target.into()))
        }
        Type::File => {
            let mode = stat.st_mode & 0o777;
            let fits = u64::try_from(stat.st_size).is_ok_and(|length| length <= HELD_BYTES_MAX);
            let read = (fits && *held < HELD_TOGETHER_MAX).then(|| read(met.folder, met.name)).flatten();
            match read {
                Some(bytes) => {
                    *held += bytes.len();
                    Held::File { mode, bytes }
                }
                None => large(mode, &stat),
            }
        }
        Type::Fifo | Type::Socket | Type::CharacterDevice | Type::BlockDevice => Held::Other,
    }
}

fn large(mode: u32, stat: &FileStat) -> Held {
    let changed = (stat.st_ctime, stat.st_ctime_nsec);
    Held::Large { mode, length: stat.st_size, inode: stat.st_ino, changed }
}

fn read(folder: BorrowedFd<'_>, name: &std::ffi::CStr) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(())?;
    let mut bytes = Vec::new();
    file.take(HELD_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= HELD_BYTES_MAX).then_some(bytes)
}

/// The folder a path is in, opened part by part; `None` where it is no more, or no folder.
fn parent_of(root: &Dir, path: &Path) -> io::Result<Option<OwnedFd>> {
    let mut at = root.as_fd().try_clone_to_owned()?;
    for part in path.parent().into_iter().flatten() {
        match tree::open_folder(at.as_fd(), &name(part)?) {
            Ok(next) => at = next.as_fd().try_clone_to_owned()?,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Some(at))
}

fn name(part: &OsStr) -> io::Result<CString> {
    Ok(CString::new(part.as_bytes())?)
}

fn remove(root: &Dir, path: &Path, found: &Held) -> io::Result<bool> {
    let (Some(folder), Some(last)) = (parent_of(root, path)?, path.file_name()) else { return Ok(false) };
    let how = if *found == Held::Folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
    match unlinkat(&folder, name(last)?.as_c_str(), how) {
        Ok(()) => Ok(true),
        // Gone, or a folder that keeps what was moved there as it was.
        Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn put_back(root: &Dir, path: &Path, before: &Held) -> io::Result<bool> {
    // Where the folder around it has gone, so has the repository.
    let (Some(folder), Some(last)) = (parent_of(root, path)?, path.file_name()) else { return Ok(false) };
    let last = name(last)?;
    match before {
        Held::Folder => match mkdirat(&folder, last.as_c_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => {
                let made = tree::open_folder(folder.as_fd(), &last)?;
                own(made.as_fd())?;
                Ok(true)
            }
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        },
        Held::Link(target) => {
            let there = readlinkat(&folder, last.as_c_str()).is_ok_and(|now| now == target.as_os_str());
            if there {
                return Ok(false);
            }
            clear(folder.as_fd(), &last)?;
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
        Held::File { mode, bytes } => {
            clear(folder.as_fd(), &last)?;
            let flags =
                OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let mut file =
                File::from(openat(&folder, last.as_c_str(), flags, Mode::from_bits_truncate(*mode))?);
            file.write_all(bytes)?;
            nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(*mode))?;
            own(file.as_fd())?;
            Ok(true)
        }
        // What was never held cannot come back; a file that large under such a name is nobody's configuration.
        Held::Large { .. } | Held::Other => Ok(false),
    }
}

fn clear(folder: BorrowedFd<'_>, last: &CString) -> io::Result<()> {
    let is_folder = fstatat(folder, last.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR);
    let how = if is_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
    match unlinkat(folder, last.as_c_str(), how) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What docket lays as root belongs to whom the workspace belongs to.
fn own(made: BorrowedFd<'_>) -> io::Result<()> {
    match workspace_owner() {
        Some((uid, gid)) => fchown(made, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn names_mean_something_where_git_and_docket_read_them() {
        let dir = workspace(&[
            (".git/config", "a"),
            (".git/hooks/post-commit", "b"),
            (".git/refs/heads/config", "a branch"),
            (".git/modules/lib/deep/config", "c"),
            (".git/modules/lib/deep/objects/config", "an object"),
            ("sub/.git/config", "d"),
            ("sub/docket.toml", "e"),
            ("sub/.docket/x", "f"),
            ("hooks/x", "plain"),
            ("config", "plain"),
            ("docket.toml.md", "plain"),
        ]);
        let seen = Protected::look(dir.path()).unwrap();
        let tops: Vec<&str> = seen.tops.iter().map(|top| top.to_str().unwrap()).collect();
        let want = [
            ".git/config",
            ".git/hooks",
            ".git/modules/lib/deep/config",
            "sub/.docket",
            "sub/.git/config",
            "sub/docket.toml",
        ];
        assert_eq!(tops, want);
        assert_eq!(seen.to_lay().len(), want.len());
        assert_eq!(seen.restore(dir.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_came_goes_and_what_went_or_changed_comes_back() {
        let dir = workspace(&[(".git/config", "[core]\n"), ("sub/docket.toml", "old"), ("src/a", "")]);
        let at = |path: &str| dir.path().join(path);
        let before = Protected::look(dir.path()).unwrap();
        fs::create_dir_all(at(".git/hooks")).unwrap();
        fs::write(at(".git/hooks/pre-commit"), "evil").unwrap();
        fs::create_dir_all(at("new/deep/.git/hooks")).unwrap();
        fs::write(at("new/deep/.git/config"), "evil").unwrap();
        fs::write(at("new/deep/.git/HEAD"), "kept").unwrap();
        fs::write(at("docket.toml"), "evil").unwrap();
        fs::write(at("sub/docket.toml"), "evil").unwrap();
        fs::remove_file(at(".git/config")).unwrap();
        fs::create_dir(at(".git/config")).unwrap();
        fs::write(at(".git/config/x"), "evil").unwrap();
        symlink("src", at("src/.git")).unwrap();
        let told = before.restore(dir.path()).unwrap();
        assert_eq!(Protected::look(dir.path()).unwrap(), before);
        assert_eq!(fs::read(at(".git/config")).unwrap(), b"[core]\n");
        assert_eq!(fs::read(at("sub/docket.toml")).unwrap(), b"old");
        assert!(at("new/deep/.git/HEAD").exists() && !at("docket.toml").exists());
        assert!(told.contains(&".git/hooks/pre-commit".to_owned()), "{told:?}");
    }

    #[test]
    fn a_folder_may_be_renamed_and_a_repository_removed() {
        let dir =
            workspace(&[("sub/docket.toml", "own"), ("sub/a", "a"), (".git/config", "c"), (".git/HEAD", "")]);
        let before = Protected::look(dir.path()).unwrap();
        fs::rename(dir.path().join("sub"), dir.path().join("moved")).unwrap();
        fs::remove_dir_all(dir.path().join(".git")).unwrap();
        assert_eq!(before.restore(dir.path()).unwrap(), Vec::<String>::new());
        assert_eq!(fs::read(dir.path().join("moved/docket.toml")).unwrap(), b"own");
        // To the root is another matter: that one docket reads.
        fs::rename(dir.path().join("moved/docket.toml"), dir.path().join("docket.toml")).unwrap();
        before.restore(dir.path()).unwrap();
        assert!(!dir.path().join("docket.toml").exists());
    }

    #[test]
    fn nothing_is_followed_out() {
        let outside = workspace(&[("hooks/keep", "outside"), ("config", "outside")]);
        let dir = workspace(&[(".git/config", "own"), (".git/hooks/x", "own")]);
        let before = Protected::look(dir.path()).unwrap();
        fs::remove_dir_all(dir.path().join(".git")).unwrap();
        symlink(outside.path(), dir.path().join(".git")).unwrap();
        before.restore(dir.path()).unwrap();
        assert!(fs::symlink_metadata(dir.path().join(".git")).is_err(), "the link is gone");
        assert_eq!(fs::read(outside.path().join("config")).unwrap(), b"outside");
        assert_eq!(fs::read(outside.path().join("hooks/keep")).unwrap(), b"outside");
    }
}
