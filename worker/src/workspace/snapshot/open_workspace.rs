//! A workspace that stands on this machine, and the snapshots taken of it.
//!
//! Held by the driver of one run. A snapshot says what changed since the one before it, in byte order of the
//! paths, together with the hash of the whole tree. File tools know what they touched, so no walk is needed
//! after them; after a command the tree is walked and only what differs from the index is read.
//!
//! Calls block on the file system; no process of the run may be alive meanwhile.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use docket_schema::{
    content::WorkPath,
    ids::TreeHash,
    snapshot::{Entry, LeftOut, LeftOutWhy, Manifest, PathChange, Tree},
};
use nix::errno::Errno;

use super::{
    ignored::IgnoreRules,
    index::What,
    merge::{Area, Limits, Merge, Merged},
    snapshot_error::SnapshotError,
    walk::{Judged, Listing, Realm, Walk, is_git, is_too_long},
};
use crate::workspace::{
    blobs::PendingBlobs,
    contents::BaseObjects,
    disk::{
        file_stat::{FsTime, Kind, Stat},
        handles::{Owner, nameless_file, open_folder, split, stat_child},
    },
};

/// Files above this size, in bytes, are left out unless an option says otherwise: source files are far
/// smaller, and build products this large would fill the log's store turn by turn.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// New content of one snapshot, in bytes; it stands in memory until it is appended. What goes beyond is left
/// out as too large.
pub const SNAPSHOT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A snapshot names this many left-out paths at most: a command may litter more names than an event can hold.
const LEFT_OUT_MAX: usize = 1_000;

/// What changed since the last snapshot.
#[derive(Debug)]
pub struct SnapshotDelta {
    /// Changed paths of the work tree, in byte order.
    pub changes: Vec<PathChange>,
    /// Changed paths of `.git`, in byte order; no part of the tree hash.
    pub git_changes: Vec<PathChange>,
    /// Hash of the whole work tree now.
    pub tree: TreeHash,
    /// Paths newly left out, or left out for another reason than before; an ignored folder is one path.
    pub left_out: Vec<LeftOut>,
    /// Contents of the changes, to be shipped with the append that names them.
    pub blobs: PendingBlobs,
    /// Files that had to be read to know.
    pub files_read: usize,
}

impl SnapshotDelta {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.git_changes.is_empty() && self.left_out.is_empty()
    }

    /// This one and the one that was taken after it, as one.
    pub fn followed_by(self, later: Self) -> Self {
        let over = |first: Vec<PathChange>, then: Vec<PathChange>| {
            let all = first.into_iter().chain(then).map(|change| (change.path, change.entry));
            let last: BTreeMap<WorkPath, Option<Entry>> = all.collect();
            last.into_iter().map(|(path, entry)| PathChange { path, entry }).collect()
        };
        let mut blobs = self.blobs;
        later.blobs.into_vec().into_iter().for_each(|(blob, bytes)| blobs.push(blob, bytes));
        let mut left_out = [self.left_out, later.left_out].concat();
        left_out.truncate(LEFT_OUT_MAX);
        Self {
            changes: over(self.changes, later.changes),
            git_changes: over(self.git_changes, later.git_changes),
            tree: later.tree,
            left_out,
            blobs,
            files_read: self.files_read + later.files_read,
        }
    }
}

/// The files of one run on this machine.
pub struct Workspace {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) base: BaseObjects,
    pub(crate) rules: IgnoreRules,
    pub(crate) work: Area,
    pub(crate) git: Area,
    pub(crate) tree: Tree,
    pub(crate) owner: Option<Owner>,
    pub(crate) limits: Limits,
    /// Whether this file system's stamps say which folders need not be listed.
    pub(crate) listing: Listing,
}

impl Workspace {
    /// The root folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of git objects that the workspace borrows: a sandbox must mount it, read-only, at this
    /// very path. `None` without a repository.
    pub fn borrowed_objects(&self) -> Option<PathBuf> {
        self.base.objects_folder()
    }

    /// The manifest of the base.
    pub fn base_manifest(&self) -> &Manifest {
        self.base.manifest()
    }

    /// The base's contents, for reading files and diffs.
    pub fn base_objects(&self) -> &BaseObjects {
        &self.base
    }

    /// The hash of the tree at the last snapshot.
    pub fn tree(&mut self) -> TreeHash {
        self.tree.hash()
    }

    /// What the last snapshot held, path by path.
    pub fn manifest(&self) -> Manifest {
        Manifest { entries: entries(&self.work) }
    }

    /// A snapshot after file tools that touched `paths` and nothing else. A path in `.git`, or one that
    /// leads through a link, makes it a whole walk.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn snapshot_paths(&mut self, paths: &[WorkPath]) -> Result<SnapshotDelta, SnapshotError> {
        if paths.iter().any(|path| is_git(path.as_bytes())) {
            return self.snapshot_walk();
        }
        let looked_at = self.now()?;
        let mut sorted: Vec<&WorkPath> = paths.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut looks = Vec::new();
        for path in sorted {
            match self.look(path.as_bytes()) {
                Some(look) => looks.push(look),
                None => return self.snapshot_walk(),
            }
        }
        let mut blobs = PendingBlobs::default();
        let mut merged = Merged::default();
        for look in looks {
            // One pass each: what the first path did to the index decides how the next is judged.
            let part = self.take_look(&look, looked_at, &mut blobs)?;
            merged.changes.extend(part.changes);
            merged.left_out.extend(part.left_out);
            merged.files_read += part.files_read;
        }
        let last: BTreeMap<WorkPath, Option<Entry>> =
            merged.changes.into_iter().map(|change| (change.path, change.entry)).collect();
        let changes = last.into_iter().map(|(path, entry)| PathChange { path, entry }).collect();
        Ok(self.delta(Merged { changes, ..merged }, Merged::default(), blobs))
    }

    /// A snapshot after a command, which may have changed anything.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn snapshot_walk(&mut self) -> Result<SnapshotDelta, SnapshotError> {
        let looked_at = self.now()?;
        let mut blobs = PendingBlobs::default();
        let work = self.pass(Realm::Work, looked_at, Some(&mut blobs), None)?;
        let git = self.pass(Realm::Git, looked_at, Some(&mut blobs), None)?;
        Ok(self.delta(work, git, blobs))
    }

    fn delta(&mut self, work: Merged, git: Merged, blobs: PendingBlobs) -> SnapshotDelta {
        let (git_changes, files_read) = (git.changes, work.files_read + git.files_read);
        let mut left_out = [git.left_out, work.left_out].concat();
        left_out.truncate(LEFT_OUT_MAX);
        let tree = self.tree.hash();
        SnapshotDelta { changes: work.changes, git_changes, tree, left_out, blobs, files_read }
    }

    /// Walks one realm and takes what it finds into the index and the tree.
    pub(crate) fn pass(
        &mut self,
        realm: Realm,
        looked_at: FsTime,
        blobs: Option<&mut PendingBlobs>,
        expected: Option<&BTreeMap<WorkPath, Entry>>,
    ) -> Result<Merged, SnapshotError> {
        let area = match realm {
            Realm::Work => &mut self.work,
            Realm::Git | Realm::GitWhole => &mut self.git,
        };
        let walk = Walk {
            root: self.root.as_fd(),
            realm,
            index: &area.index,
            rules: &self.rules,
            captured: &area.captured,
            looked_at,
            // What a restore finds was left by others, who knows when.
            listing: if expected.is_some() { Listing::All } else { self.listing },
        };
        let found = walk.run(b"", false);
        let mut merge = Merge::new(self.root.as_fd(), area, looked_at, self.limits);
        if let Some(blobs) = blobs {
            merge = merge.collect(blobs);
        }
        if let Some(expected) = expected {
            merge = merge.expect(expected);
        }
        merge.take(found);
        let merged = merge.finish();
        match realm {
            Realm::Work => self.follow(merged),
            Realm::Git | Realm::GitWhole => merged.map_err(SnapshotError::read),
        }
    }

    /// Brings the tree to what a pass over the work tree left in the index.
    pub(crate) fn follow(
        &mut self,
        merged: Result<Merged, (Vec<u8>, Errno)>,
    ) -> Result<Merged, SnapshotError> {
        let merged = merged.map_err(|failed| {
            // What was seen before it failed stands in the index: a restore judges by that, and proves the tree.
            self.tree = Tree::default();
            for (path, entry) in entries(&self.work) {
                self.tree.set(&path, Some(entry));
            }
            SnapshotError::read(failed)
        })?;
        for change in &merged.changes {
            self.tree.set(&change.path, change.entry);
        }
        Ok(merged)
    }

    /// Looks at `path` and the folders it is in, from the root down; `None` where a link or something else
    /// that is no folder leads to another place.
    fn look(&self, path: &[u8]) -> Option<Look> {
        let mut folders = Vec::new();
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let mut at = 0;
        for (nth, part) in parts.iter().enumerate() {
            let end = at + part.len();
            let here = &path[..end];
            let parent = open_folder(self.root.as_fd(), split(here).0).ok()?;
            match stat_child(parent.as_fd(), part) {
                Ok(stat) => {
                    let stat = Stat::of(&stat);
                    if nth + 1 == parts.len() {
                        return Some(Look { folders, last: here.to_vec(), stat: Some(stat) });
                    }
                    if stat.kind() != Kind::Folder {
                        return None;
                    }
                    folders.push((here.to_vec(), stat));
                }
                Err(Errno::ENOENT) => return Some(Look { folders, last: here.to_vec(), stat: None }),
                Err(_) => return None,
            }
            at = end + 1;
        }
        None
    }

    fn take_look(
        &mut self,
        look: &Look,
        looked_at: FsTime,
        blobs: &mut PendingBlobs,
    ) -> Result<Merged, SnapshotError> {
        let mut ignored = false;
        let mut steps = Vec::new();
        for (path, stat) in look.folders.iter().map(|(path, stat)| (path, *stat)) {
            let judged = self.judge(path, stat, ignored);
            steps.push((path, stat, judged));
            match judged {
                Judged::Keep { ignored: named } => ignored = named,
                // Nothing inside an ignored folder is captured: the folder itself is what is left out.
                Judged::Leave(_) => return self.take_steps(&steps, None, looked_at, blobs),
            }
        }
        let Some(stat) = look.stat else {
            return self.take_steps(&steps, Some(&look.last), looked_at, blobs);
        };
        let judged = self.judge(&look.last, stat, ignored);
        steps.push((&look.last, stat, judged));
        self.take_steps(&steps, None, looked_at, blobs)
    }

    fn judge(&self, path: &[u8], stat: Stat, ignored: bool) -> Judged {
        let (folder, name) = split(path);
        if stat.kind() == Kind::Special {
            return Judged::Leave(LeftOutWhy::NotAFile);
        }
        let held = match self.work.index.slot(folder, name).map(|slot| slot.what) {
            Some(What::Folder { ignored, .. }) if stat.kind() == Kind::Folder => {
                return Judged::Keep { ignored };
            }
            Some(What::Kept(_) | What::Folder { .. }) => true,
            Some(What::Out(_)) | None => self.work.captured.contains(path),
        };
        if !held && is_too_long(path) {
            return Judged::Leave(LeftOutWhy::TooLarge);
        }
        match ignored || self.rules.names(path, stat.kind() == Kind::Folder) {
            true if !held => Judged::Leave(LeftOutWhy::Ignored),
            ignored => Judged::Keep { ignored },
        }
    }

    fn take_steps(
        &mut self,
        steps: &[(&Vec<u8>, Stat, Judged)],
        gone: Option<&[u8]>,
        looked_at: FsTime,
        blobs: &mut PendingBlobs,
    ) -> Result<Merged, SnapshotError> {
        // A folder that a tool put there whole has to be walked; the index does not know its inside yet.
        let below = match steps.last() {
            Some((path, stat, Judged::Keep { ignored })) if gone.is_none() && stat.kind() == Kind::Folder => {
                let walk = Walk {
                    root: self.root.as_fd(),
                    realm: Realm::Work,
                    index: &self.work.index,
                    rules: &self.rules,
                    captured: &self.work.captured,
                    looked_at,
                    listing: self.listing,
                };
                walk.run(path, *ignored)
            }
            Some(_) | None => Vec::new(),
        };
        let mut merge = Merge::new(self.root.as_fd(), &mut self.work, looked_at, self.limits).collect(blobs);
        for (path, stat, judged) in steps {
            let (folder, name) = split(path);
            merge.update(folder, name, *stat, *judged);
        }
        if let Some(gone) = gone {
            let (folder, name) = split(gone);
            merge.vanished(folder, name);
        }
        merge.take(below);
        let merged = merge.finish();
        self.follow(merged)
    }

    /// The file system's own time, which is what its stamps are compared with.
    pub(crate) fn now(&self) -> Result<FsTime, SnapshotError> {
        let stamp = nameless_file(self.root.as_fd());
        let stamp =
            stamp.map_err(|errno| SnapshotError::Root { path: self.path.clone(), source: errno.into() })?;
        Ok((stamp.st_mtime, stamp.st_mtime_nsec))
    }
}

/// What stands at a path that a tool named.
struct Look {
    folders: Vec<(Vec<u8>, Stat)>,
    /// The path, or the first folder on the way that is gone.
    last: Vec<u8>,
    stat: Option<Stat>,
}

/// All entries that an area's index stands for.
pub(crate) fn entries(area: &Area) -> BTreeMap<WorkPath, Entry> {
    let all = area.index.iter().filter_map(|(folder, name, slot)| {
        let entry = super::merge::entry_of(slot)?;
        Some((WorkPath::new(crate::workspace::disk::handles::join(folder, name))?, entry))
    });
    all.collect()
}
