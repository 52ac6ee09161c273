//! Determines which names are protected and records the entries under them.

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
    super::safe_walk::{self, FolderEntries, WalkAction, WalkCoverage, WalkEntry, WalkVisitor},
    ProtectedPaths, SavedEntry,
};
use crate::git_repository::{GitEntryKind, GitName, RepositoryShape};

/// Maximum size of a saved file; real hooks and configurations are far smaller. For a larger file, only its
/// existence is recorded.
const SAVED_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum total size of saved files.
const SAVED_TOTAL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Git's own names within a repository's folder. `commondir` says that all others are elsewhere.
const GIT_CONFIG_NAMES: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];
/// docket's names, in any folder. Compared case-insensitively, because some file systems ignore
/// case.
const DOCKET_NAMES: [&str; 2] = ["docket.toml", ".docket"];
/// Folders within a repository that hold no configuration and may be large.
const GIT_STORES: [&str; 3] = ["objects", "refs", "logs"];

/// The role of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderRole {
    /// Part of the tree people work in.
    WorkTree,
    /// A `.git` itself.
    GitFolder,
    /// Below its `modules` or `worktrees`: the folders of other repositories.
    OtherRepositories,
    /// Elsewhere in it: objects, references, logs.
    GitStore,
}

fn git_entry_kind(kind: Type) -> GitEntryKind {
    if kind == Type::Directory { GitEntryKind::Folder } else { GitEntryKind::Other }
}

/// A folder whose entries are being scanned.
#[derive(Clone, Copy)]
struct ScannedFolder {
    role: FolderRole,
    shape: RepositoryShape,
    /// The folder is under a protected name.
    is_protected: bool,
}

/// The protection of a name in a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameProtection {
    /// Protected, with everything below it.
    Protected,
    /// Not protected itself, but something below it may be.
    Unprotected,
}

fn is_one_of(name: &OsStr, wanted: &[&str]) -> bool {
    wanted.iter().any(|own| name.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
}

impl ScannedFolder {
    /// Returns the role of a child folder.
    fn child_role(self, name: &OsStr) -> FolderRole {
        let others = is_one_of(name, &["modules", "worktrees"]);
        match self.role {
            FolderRole::WorkTree | FolderRole::GitStore if is_one_of(name, &[".git"]) => {
                FolderRole::GitFolder
            }
            FolderRole::WorkTree => FolderRole::WorkTree,
            FolderRole::GitFolder if others => FolderRole::OtherRepositories,
            // A submodule may be called `logs`: the name is a store only below a repository's own
            // folder.
            FolderRole::OtherRepositories if self.shape.is_repository() && is_one_of(name, &GIT_STORES) => {
                FolderRole::GitStore
            }
            FolderRole::OtherRepositories => FolderRole::OtherRepositories,
            FolderRole::GitFolder | FolderRole::GitStore => FolderRole::GitStore,
        }
    }

    fn classify_entry(self, met: &WalkEntry<'_>) -> NameProtection {
        let name = met.os_name();
        let is_top = match self.role {
            FolderRole::WorkTree if is_one_of(name, &DOCKET_NAMES) => true,
            FolderRole::WorkTree | FolderRole::GitStore => {
                (is_one_of(name, &[".git"]) && leads_outside_protection(met)) || self.is_obeyed_by_git(met)
            }
            FolderRole::GitFolder | FolderRole::OtherRepositories => {
                is_one_of(name, &GIT_CONFIG_NAMES) && !is_worktree_commondir(self.role, met)
            }
        };
        if is_top { NameProtection::Protected } else { NameProtection::Unprotected }
    }

    fn is_obeyed_by_git(self, met: &WalkEntry<'_>) -> bool {
        GitName::from_file_name(met.name.to_bytes())
            .is_some_and(|name| self.shape.obeys(name, git_entry_kind(met.kind)))
    }
}

/// Returns whether a `.git` is a link, or a file that names an unprotected folder.
fn leads_outside_protection(met: &WalkEntry<'_>) -> bool {
    match met.kind {
        Type::Directory => false,
        Type::File => {
            !read_small_file(met.folder, met.name).is_some_and(|text| names_protected_folder(&text))
        }
        _ => true,
    }
}

/// Returns whether a `.git` file points below `.git/modules` or `.git/worktrees`, as git itself
/// writes it.
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

/// Returns whether this is the file git itself writes for another worktree of the same repository.
fn is_worktree_commondir(within: FolderRole, met: &WalkEntry<'_>) -> bool {
    within == FolderRole::OtherRepositories
        && is_one_of(met.os_name(), &["commondir"])
        && met.kind == Type::File
        && read_small_file(met.folder, met.name).is_some_and(|text| text.trim_ascii() == b"../..")
}

/// Scans a workspace.
pub(super) fn scan_workspace(workspace: &Path) -> io::Result<(ProtectedPaths, WalkCoverage)> {
    let mut looking =
        ProtectionScan { protected: ProtectedPaths::default(), saved_bytes: 0, folders: Vec::new() };
    let walked = safe_walk::walk(safe_walk::open_root(workspace)?, &mut looking)?;
    let mut seen = looking.protected;
    seen.roots.sort();
    Ok((seen, walked))
}

struct ProtectionScan {
    protected: ProtectedPaths,
    saved_bytes: usize,
    /// The path from the root to the folder being scanned.
    folders: Vec<ScannedFolder>,
}

impl WalkVisitor for ProtectionScan {
    fn enter_folder(&mut self, below: &Path, entries: &FolderEntries) {
        let mut shape = RepositoryShape::default();
        for (name, kind) in entries {
            if let Some(name) = GitName::from_file_name(name.to_bytes()) {
                shape.add_entry(name, git_entry_kind(*kind));
            }
        }
        let (within, inside) = match (self.folders.last(), below.file_name()) {
            (Some(above), Some(name)) => {
                let inside =
                    above.is_protected || self.protected.entries.get(below) == Some(&SavedEntry::Folder);
                (above.child_role(name), inside)
            }
            _ => (FolderRole::WorkTree, false),
        };
        self.folders.push(ScannedFolder { role: within, shape, is_protected: inside });
    }

    fn visit_entry(&mut self, met: &WalkEntry<'_>) -> WalkAction {
        let Some(place) = self.folders.last().copied() else { return WalkAction::Skip };
        if matches!(met.kind, Type::Socket | Type::Fifo) {
            self.protected.special_files.push(met.path());
        }
        let meaning = if place.is_protected { NameProtection::Protected } else { place.classify_entry(met) };
        match meaning {
            NameProtection::Unprotected => {
                // One of the two files of a linked repository, harmless alone. Within a `.git`, neither file
                // is protected because of the other.
                let is_half = || {
                    matches!(
                        GitName::from_file_name(met.name.to_bytes()),
                        Some(GitName::Head | GitName::Commondir)
                    )
                };
                if matches!(place.role, FolderRole::WorkTree | FolderRole::GitStore) && is_half() {
                    self.protected.partial_repository_files.insert(met.path());
                }
                WalkAction::Descend
            }
            NameProtection::Protected => {
                let (path, held) = (met.path(), save_entry(met, &mut self.saved_bytes));
                if !place.is_protected {
                    self.protected.roots.push(path.clone());
                }
                self.protected.entries.insert(path, held);
                WalkAction::Descend
            }
        }
    }

    fn leave_folder(&mut self) {
        self.folders.pop();
    }
}

fn save_entry(met: &WalkEntry<'_>, held: &mut usize) -> SavedEntry {
    let Ok(stat) = met.stat() else { return SavedEntry::Other };
    match met.kind {
        Type::Directory => SavedEntry::Folder,
        Type::Symlink => readlinkat(met.folder, met.name)
            .map_or(SavedEntry::Other, |target| SavedEntry::Link(target.into())),
        Type::File => {
            let mode = stat.st_mode & 0o777;
            let fits = u64::try_from(stat.st_size).is_ok_and(|length| length <= SAVED_FILE_BYTES_MAX);
            // The repository's own files are few, and they are saved whatever else there is.
            let own = met.parent.starts_with(".git");
            let read = (fits && (own || *held < SAVED_TOTAL_BYTES_MAX))
                .then(|| read_small_file(met.folder, met.name))
                .flatten();
            match read {
                Some(bytes) => {
                    *held += if own { 0 } else { bytes.len() };
                    SavedEntry::File { mode, bytes }
                }
                None => large_entry(mode, &stat),
            }
        }
        Type::Fifo | Type::Socket | Type::CharacterDevice | Type::BlockDevice => SavedEntry::Other,
    }
}

fn large_entry(mode: u32, stat: &FileStat) -> SavedEntry {
    let changed = (stat.st_ctime, stat.st_ctime_nsec);
    SavedEntry::Large { mode, length: stat.st_size, inode: stat.st_ino, ctime: changed }
}

fn read_small_file(folder: BorrowedFd<'_>, name: &std::ffi::CStr) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(())?;
    let mut bytes = Vec::new();
    file.take(SAVED_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= SAVED_FILE_BYTES_MAX).then_some(bytes)
}
