//! An open workspace on this machine, and its snapshots.
//!
//! Owned by one run's loop. A snapshot contains the changes since the previous one, in byte order of the
//! paths, and the hash of the complete tree. File tools report the paths they touched, so no walk is needed
//! after them; after a command the tree is walked and only files that differ from the index are read.
//!
//! Calls block on the file system; no process of the run may be alive meanwhile.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use docket_schema::{
    content::WorkspacePath,
    ids::TreeHash,
    snapshot::{Entry, Manifest, MerkleTree, OmissionReason, OmittedPath, PathChange},
};
use nix::errno::Errno;

use super::{
    ignore_rules::IgnoreRules,
    index::SlotState,
    index_updater::{IndexChanges, IndexUpdater, SnapshotLimits, TrackedArea},
    snapshot_error::SnapshotError,
    walk::{CaptureDecision, ListingMode, WalkScope, WorkspaceWalk, is_git_path, is_too_long_or_deep},
};
use crate::workspace::{
    blobs::PendingBlobs,
    content_reader::BaseObjects,
    disk::{
        dirfd::{FileOwner, open_folder, split_path, stat_child, stat_temporary_file},
        file_stat::{FileKind, FsTime, StatData},
    },
};

/// Default size limit for captured files, in bytes: source files are far smaller, and build products this
/// large would fill the log's store turn by turn.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Limit on new content of one snapshot, in bytes; it is in memory until it is appended. Anything beyond it
/// is left out as too large.
pub const SNAPSHOT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Most left-out paths listed in a snapshot: a command may create more names than an event can hold.
const LEFT_OUT_PATHS_MAX: usize = 1_000;

/// Changes since the last snapshot.
#[derive(Debug)]
pub struct SnapshotDelta {
    /// Changed paths of the work tree, in byte order.
    pub changes: Vec<PathChange>,
    /// Changed paths of `.git`, in byte order; not part of the tree hash.
    pub git_changes: Vec<PathChange>,
    /// Current hash of the complete work tree.
    pub tree: TreeHash,
    /// Paths that are newly left out, or left out for another reason than before; an ignored folder is one
    /// path.
    pub left_out: Vec<OmittedPath>,
    /// Contents of the changes, to be sent with the append that references them.
    pub blobs: PendingBlobs,
    /// Number of files read for this snapshot.
    pub files_read: usize,
}

impl SnapshotDelta {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.git_changes.is_empty() && self.left_out.is_empty()
    }

    /// Combines this delta with the next one.
    pub fn merge_with(self, later: Self) -> Self {
        let over = |first: Vec<PathChange>, then: Vec<PathChange>| {
            let all = first.into_iter().chain(then).map(|change| (change.path, change.entry));
            let last: BTreeMap<WorkspacePath, Option<Entry>> = all.collect();
            last.into_iter().map(|(path, entry)| PathChange { path, entry }).collect()
        };
        let mut blobs = self.blobs;
        later.blobs.into_vec().into_iter().for_each(|(blob, bytes)| blobs.push(blob, bytes));
        let mut left_out = [self.left_out, later.left_out].concat();
        left_out.truncate(LEFT_OUT_PATHS_MAX);
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
    pub(crate) ignore_rules: IgnoreRules,
    pub(crate) work_area: TrackedArea,
    pub(crate) git_area: TrackedArea,
    pub(crate) tree: MerkleTree,
    pub(crate) owner: Option<FileOwner>,
    pub(crate) limits: SnapshotLimits,
    /// Whether this file system's stamps tell which folders need not be listed.
    pub(crate) listing_mode: ListingMode,
}

impl Workspace {
    /// The root folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of git objects that the workspace borrows. A sandbox must mount it read-only at exactly
    /// this path. `None` without a repository.
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

    /// The tree hash of the last snapshot.
    pub fn tree_hash(&mut self) -> TreeHash {
        self.tree.root_hash()
    }

    /// The manifest of the last snapshot.
    pub fn manifest(&self) -> Manifest {
        Manifest { entries: area_entries(&self.work_area) }
    }

    /// Takes a snapshot after file tools that touched only `paths`. A path in `.git`, or one that leads
    /// through a link, requires a complete walk.
    ///
    /// # Errors
    /// [`SnapshotError`] if the workspace cannot be read.
    pub fn snapshot_paths(&mut self, paths: &[WorkspacePath]) -> Result<SnapshotDelta, SnapshotError> {
        if paths.iter().any(|path| is_git_path(path.as_bytes())) {
            return self.snapshot_walk();
        }
        let looked_at = self.filesystem_time()?;
        let mut sorted: Vec<&WorkspacePath> = paths.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut looks = Vec::new();
        for path in sorted {
            match self.look_up_path(path.as_bytes()) {
                Some(look) => looks.push(look),
                None => return self.snapshot_walk(),
            }
        }
        let mut blobs = PendingBlobs::default();
        let mut merged = IndexChanges::default();
        for look in looks {
            // One pass each: the effect of the first path on the index decides how the next is classified.
            let part = self.apply_lookup(&look, looked_at, &mut blobs)?;
            merged.changes.extend(part.changes);
            merged.left_out.extend(part.left_out);
            merged.files_read += part.files_read;
        }
        let last: BTreeMap<WorkspacePath, Option<Entry>> =
            merged.changes.into_iter().map(|change| (change.path, change.entry)).collect();
        let changes = last.into_iter().map(|(path, entry)| PathChange { path, entry }).collect();
        Ok(self.build_delta(IndexChanges { changes, ..merged }, IndexChanges::default(), blobs))
    }

    /// Takes a snapshot after a command, which may have changed anything.
    ///
    /// # Errors
    /// [`SnapshotError`] if the workspace cannot be read.
    pub fn snapshot_walk(&mut self) -> Result<SnapshotDelta, SnapshotError> {
        let looked_at = self.filesystem_time()?;
        let mut blobs = PendingBlobs::default();
        let work = self.scan_scope(WalkScope::WorkTree, looked_at, Some(&mut blobs), None)?;
        let git = self.scan_scope(WalkScope::GitFolder, looked_at, Some(&mut blobs), None)?;
        Ok(self.build_delta(work, git, blobs))
    }

    fn build_delta(&mut self, work: IndexChanges, git: IndexChanges, blobs: PendingBlobs) -> SnapshotDelta {
        let (git_changes, files_read) = (git.changes, work.files_read + git.files_read);
        let mut left_out = [git.left_out, work.left_out].concat();
        left_out.truncate(LEFT_OUT_PATHS_MAX);
        let tree = self.tree.root_hash();
        SnapshotDelta { changes: work.changes, git_changes, tree, left_out, blobs, files_read }
    }

    /// Walks one scope and applies its findings to the index and the tree.
    pub(crate) fn scan_scope(
        &mut self,
        realm: WalkScope,
        looked_at: FsTime,
        blobs: Option<&mut PendingBlobs>,
        expected: Option<&BTreeMap<WorkspacePath, Entry>>,
    ) -> Result<IndexChanges, SnapshotError> {
        let area = match realm {
            WalkScope::WorkTree => &mut self.work_area,
            WalkScope::GitFolder | WalkScope::FullGitFolder => &mut self.git_area,
        };
        let walk = WorkspaceWalk {
            root: self.root.as_fd(),
            scope: realm,
            index: &area.index,
            rules: &self.ignore_rules,
            captured: &area.captured,
            looked_at,
            // A restore finds changes that others made at unknown times.
            listing_mode: if expected.is_some() { ListingMode::AllFolders } else { self.listing_mode },
        };
        let found = walk.find_changes(b"", false);
        let mut merge = IndexUpdater::new(self.root.as_fd(), area, looked_at, self.limits);
        if let Some(blobs) = blobs {
            merge = merge.with_blobs(blobs);
        }
        if let Some(expected) = expected {
            merge = merge.with_expected(expected);
        }
        merge.apply_findings(found);
        let merged = merge.finish();
        match realm {
            WalkScope::WorkTree => self.update_tree(merged),
            WalkScope::GitFolder | WalkScope::FullGitFolder => {
                merged.map_err(SnapshotError::from_read_failure)
            }
        }
    }

    /// Updates the tree from the changes of a pass over the work tree.
    pub(crate) fn update_tree(
        &mut self,
        merged: Result<IndexChanges, (Vec<u8>, Errno)>,
    ) -> Result<IndexChanges, SnapshotError> {
        let merged = merged.map_err(|failed| {
            // The index contains the state seen before the failure: a restore starts from it and verifies the
            // tree.
            self.tree = MerkleTree::default();
            for (path, entry) in area_entries(&self.work_area) {
                self.tree.set_entry(&path, Some(entry));
            }
            SnapshotError::from_read_failure(failed)
        })?;
        for change in &merged.changes {
            self.tree.set_entry(&change.path, change.entry);
        }
        Ok(merged)
    }

    /// Examines `path` and its parent folders from the root down; `None` if a link or another non-folder
    /// leads elsewhere.
    fn look_up_path(&self, path: &[u8]) -> Option<PathLookup> {
        let mut folders = Vec::new();
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let mut at = 0;
        for (nth, part) in parts.iter().enumerate() {
            let end = at + part.len();
            let here = &path[..end];
            let parent = open_folder(self.root.as_fd(), split_path(here).0).ok()?;
            match stat_child(parent.as_fd(), part) {
                Ok(stat) => {
                    let stat = StatData::from_stat(&stat);
                    if nth + 1 == parts.len() {
                        return Some(PathLookup { folders, last_path: here.to_vec(), stat: Some(stat) });
                    }
                    if stat.kind() != FileKind::Folder {
                        return None;
                    }
                    folders.push((here.to_vec(), stat));
                }
                Err(Errno::ENOENT) => {
                    return Some(PathLookup { folders, last_path: here.to_vec(), stat: None });
                }
                Err(_) => return None,
            }
            at = end + 1;
        }
        None
    }

    fn apply_lookup(
        &mut self,
        look: &PathLookup,
        looked_at: FsTime,
        blobs: &mut PendingBlobs,
    ) -> Result<IndexChanges, SnapshotError> {
        let mut ignored = false;
        let mut steps = Vec::new();
        for (path, stat) in look.folders.iter().map(|(path, stat)| (path, *stat)) {
            let judged = self.classify_path(path, stat, ignored);
            steps.push((path, stat, judged));
            match judged {
                CaptureDecision::Capture { ignored: named } => ignored = named,
                // Nothing inside an ignored folder is captured: the folder itself is left out.
                CaptureDecision::LeaveOut(_) => return self.apply_steps(&steps, None, looked_at, blobs),
            }
        }
        let Some(stat) = look.stat else {
            return self.apply_steps(&steps, Some(&look.last_path), looked_at, blobs);
        };
        let judged = self.classify_path(&look.last_path, stat, ignored);
        steps.push((&look.last_path, stat, judged));
        self.apply_steps(&steps, None, looked_at, blobs)
    }

    fn classify_path(&self, path: &[u8], stat: StatData, ignored: bool) -> CaptureDecision {
        let (folder, name) = split_path(path);
        if stat.kind() == FileKind::Special {
            return CaptureDecision::LeaveOut(OmissionReason::NotAFile);
        }
        let held = match self.work_area.index.slot(folder, name).map(|slot| slot.state) {
            Some(SlotState::Folder { ignored, .. }) if stat.kind() == FileKind::Folder => {
                return CaptureDecision::Capture { ignored };
            }
            Some(SlotState::Captured(_) | SlotState::Folder { .. }) => true,
            Some(SlotState::LeftOut(_)) | None => self.work_area.captured.contains(path),
        };
        if !held && is_too_long_or_deep(path) {
            return CaptureDecision::LeaveOut(OmissionReason::TooLarge);
        }
        match ignored || self.ignore_rules.matches(path, stat.kind() == FileKind::Folder) {
            true if !held => CaptureDecision::LeaveOut(OmissionReason::Ignored),
            ignored => CaptureDecision::Capture { ignored },
        }
    }

    fn apply_steps(
        &mut self,
        steps: &[(&Vec<u8>, StatData, CaptureDecision)],
        gone: Option<&[u8]>,
        looked_at: FsTime,
        blobs: &mut PendingBlobs,
    ) -> Result<IndexChanges, SnapshotError> {
        // A folder created as a whole by a tool must be walked, because its contents are not in the index
        // yet.
        let below = match steps.last() {
            Some((path, stat, CaptureDecision::Capture { ignored }))
                if gone.is_none() && stat.kind() == FileKind::Folder =>
            {
                let walk = WorkspaceWalk {
                    root: self.root.as_fd(),
                    scope: WalkScope::WorkTree,
                    index: &self.work_area.index,
                    rules: &self.ignore_rules,
                    captured: &self.work_area.captured,
                    looked_at,
                    listing_mode: self.listing_mode,
                };
                walk.find_changes(path, *ignored)
            }
            Some(_) | None => Vec::new(),
        };
        let mut merge = IndexUpdater::new(self.root.as_fd(), &mut self.work_area, looked_at, self.limits)
            .with_blobs(blobs);
        for (path, stat, judged) in steps {
            let (folder, name) = split_path(path);
            merge.update_path(folder, name, *stat, *judged);
        }
        if let Some(gone) = gone {
            let (folder, name) = split_path(gone);
            merge.remove_path(folder, name);
        }
        merge.apply_findings(below);
        let merged = merge.finish();
        self.update_tree(merged)
    }

    /// The file system's own time, which its timestamps are compared with.
    pub(crate) fn filesystem_time(&self) -> Result<FsTime, SnapshotError> {
        let stamp = stat_temporary_file(self.root.as_fd());
        let stamp = stamp.map_err(|errno| SnapshotError::WorkspaceFolder {
            path: self.path.clone(),
            source: errno.into(),
        })?;
        Ok((stamp.st_mtime, stamp.st_mtime_nsec))
    }
}

/// The state of a path that a tool named.
struct PathLookup {
    folders: Vec<(Vec<u8>, StatData)>,
    /// The path, or its first parent folder that is missing.
    last_path: Vec<u8>,
    stat: Option<StatData>,
}

/// Returns all entries of an area's index.
pub(crate) fn area_entries(area: &TrackedArea) -> BTreeMap<WorkspacePath, Entry> {
    let all = area.index.iter_slots().filter_map(|(folder, name, slot)| {
        let entry = super::index_updater::slot_entry(slot)?;
        Some((WorkspacePath::new(crate::workspace::disk::dirfd::join_path(folder, name))?, entry))
    });
    all.collect()
}
