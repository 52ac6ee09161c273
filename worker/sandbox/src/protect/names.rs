//! Which names are protected, and what stands under them.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::{fd::BorrowedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path},
};

use nix::{
    dir::Type,
    fcntl::{OFlag, openat, readlinkat},
    sys::stat::{FileStat, Mode},
};

use super::{
    super::tree::{self, Entries, Go, Met, Visitor, Walked},
    Held, Protected,
};
use crate::git_shape::{GitEntry, GitName, GitShape};

/// Of a file that is put back, what is held; real hooks and configurations are far smaller. Of a larger one only
/// that it is there is held.
const HELD_BYTES_MAX: u64 = 1024 * 1024;
/// Of all files together.
const HELD_TOGETHER_MAX: usize = 32 * 1024 * 1024;

/// Git's own names within a repository's folder; the last says that all others stand elsewhere.
const OF_GIT: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];
/// docket's, in any folder. Names are compared without case, for some file systems do.
const OF_DOCKET: [&str; 2] = ["docket.toml", ".docket"];
/// Within a repository's folder, what holds no configuration and may be large.
const STORES: [&str; 3] = ["objects", "refs", "logs"];

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

fn entry_of(kind: Type) -> GitEntry {
    if kind == Type::Directory { GitEntry::Folder } else { GitEntry::Other }
}

/// A folder whose entries come.
#[derive(Clone, Copy)]
struct Place {
    within: Within,
    shape: GitShape,
    /// It is under a protected name.
    inside: bool,
}

/// What a name in a folder means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Protected, and all below it.
    Top,
    /// Nothing by itself; there may be something below.
    Plain,
}

fn is_one_of(name: &OsStr, wanted: &[&str]) -> bool {
    wanted.iter().any(|own| name.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
}

impl Place {
    /// Where a folder in this one stands.
    fn below(self, name: &OsStr) -> Within {
        let others = is_one_of(name, &["modules", "worktrees"]);
        match self.within {
            Within::Tree | Within::Store if is_one_of(name, &[".git"]) => Within::Git,
            Within::Tree => Within::Tree,
            Within::Git if others => Within::OtherRepositories,
            // A submodule may be called `logs`: only below a repository's own folder is that a store.
            Within::OtherRepositories if self.shape.is_repository() && is_one_of(name, &STORES) => {
                Within::Store
            }
            Within::OtherRepositories => Within::OtherRepositories,
            Within::Git | Within::Store => Within::Store,
        }
    }

    fn meaning(self, met: &Met<'_>) -> Meaning {
        let name = met.os_name();
        let is_top = match self.within {
            Within::Tree if is_one_of(name, &OF_DOCKET) => true,
            Within::Tree | Within::Store => {
                (is_one_of(name, &[".git"]) && leads_astray(met)) || self.obeys(met)
            }
            Within::Git | Within::OtherRepositories => {
                is_one_of(name, &OF_GIT) && !is_own_commondir(self.within, met)
            }
        };
        if is_top { Meaning::Top } else { Meaning::Plain }
    }

    fn obeys(self, met: &Met<'_>) -> bool {
        GitName::of(met.name.to_bytes()).is_some_and(|name| self.shape.obeys(name, entry_of(met.kind)))
    }
}

/// A `.git` that is a link, or a file that names a folder where nothing is protected.
fn leads_astray(met: &Met<'_>) -> bool {
    match met.kind {
        Type::Directory => false,
        Type::File => !read(met.folder, met.name).is_some_and(|text| names_protected_folder(&text)),
        _ => true,
    }
}

/// Whether a `.git` file leads to below `.git/modules` or `.git/worktrees`, as git writes it itself.
fn names_protected_folder(text: &[u8]) -> bool {
    let Some(path) =
        text.strip_prefix(b"gitdir:").map(|rest| Path::new(OsStr::from_bytes(rest.trim_ascii())))
    else {
        return false;
    };
    let parts: Vec<Component<'_>> = path.components().collect();
    let git = parts.iter().rposition(|part| part.as_os_str() == ".git");
    git.is_some_and(|at| {
        parts.get(at + 1).is_some_and(|next| is_one_of(next.as_os_str(), &["modules", "worktrees"]))
            && parts.len() > at + 2
            && parts[at..].iter().all(|part| matches!(part, Component::Normal(_)))
    })
}

/// What git itself writes for a further tree of the same repository.
fn is_own_commondir(within: Within, met: &Met<'_>) -> bool {
    within == Within::OtherRepositories
        && is_one_of(met.os_name(), &["commondir"])
        && met.kind == Type::File
        && read(met.folder, met.name).is_some_and(|text| text.trim_ascii() == b"../..")
}

/// Looks through a workspace.
pub(super) fn look(workspace: &Path) -> io::Result<(Protected, Walked)> {
    let mut looking = Looking { seen: Protected::default(), held_bytes: 0, places: Vec::new() };
    let walked = tree::walk(tree::open_root(workspace)?, &mut looking)?;
    let mut seen = looking.seen;
    seen.tops.sort();
    Ok((seen, walked))
}

struct Looking {
    seen: Protected,
    held_bytes: usize,
    /// From the root to the folder whose entries come.
    places: Vec<Place>,
}

impl Visitor for Looking {
    fn enter(&mut self, below: &Path, entries: &Entries) {
        let mut shape = GitShape::default();
        for (name, kind) in entries {
            if let Some(name) = GitName::of(name.to_bytes()) {
                shape.add(name, entry_of(*kind));
            }
        }
        let (within, inside) = match (self.places.last(), below.file_name()) {
            (Some(above), Some(name)) => {
                let inside = above.inside || self.seen.found.get(below) == Some(&Held::Folder);
                (above.below(name), inside)
            }
            _ => (Within::Tree, false),
        };
        self.places.push(Place { within, shape, inside });
    }

    fn meet(&mut self, met: &Met<'_>) -> Go {
        let Some(place) = self.places.last().copied() else { return Go::Past };
        if matches!(met.kind, Type::Socket | Type::Fifo) {
            self.seen.ends.push(met.path());
        }
        let meaning = if place.inside { Meaning::Top } else { place.meaning(met) };
        match meaning {
            Meaning::Plain => {
                // Half of a linked repository, and harmless alone. In a `.git` neither is protected for the other.
                let is_half =
                    || matches!(GitName::of(met.name.to_bytes()), Some(GitName::Head | GitName::Commondir));
                if matches!(place.within, Within::Tree | Within::Store) && is_half() {
                    self.seen.halves.insert(met.path());
                }
                Go::Into
            }
            Meaning::Top => {
                let (path, held) = (met.path(), hold(met, &mut self.held_bytes));
                if !place.inside {
                    self.seen.tops.push(path.clone());
                }
                self.seen.found.insert(path, held);
                Go::Into
            }
        }
    }

    fn leave(&mut self) {
        self.places.pop();
    }
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
            // Of the repository's own there is little, and it is held whatever else there is.
            let own = met.below.starts_with(".git");
            let read =
                (fits && (own || *held < HELD_TOGETHER_MAX)).then(|| read(met.folder, met.name)).flatten();
            match read {
                Some(bytes) => {
                    *held += if own { 0 } else { bytes.len() };
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
