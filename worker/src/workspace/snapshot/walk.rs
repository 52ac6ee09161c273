//! Walks a tree by directory handles and reports differences from the index; no content is read here.
//!
//! Every path is checked each time. A folder is listed only if its stamp says that its names may have
//! changed; otherwise the names come from the index, which saves a third of the walk. Several threads share
//! one stack of folders. The result is sorted, so that it does not depend on their timing. Used by snapshot
//! and restore.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
    sync::{Condvar, Mutex, PoisonError},
    thread,
};

use docket_schema::snapshot::OmissionReason;
use nix::{
    errno::Errno,
    sys::{
        stat::FileStat,
        statfs::{
            BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC,
            TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
        },
    },
};

use super::{
    ignore_rules::IgnoreRules,
    index::{IndexSlot, IndexedFolder, SlotState, SnapshotIndex},
};
use crate::workspace::disk::{
    dirfd::{join_path, list_names, open_folder, open_folder_path_only, stat_child, stat_folder},
    file_stat::{FileKind, FolderStamp, FsTime, StatData},
};

/// More threads gain nothing on one disk and would starve the run's own commands.
const WALK_THREADS_MAX: usize = 4;

/// Below this many folders one thread is faster than starting a second.
const FOLDERS_PER_THREAD: usize = 64;

/// Longest captured path, in bytes: as JSON with every byte escaped it still fits into an event.
pub(crate) const PATH_BYTES_MAX: usize = 32 * 1024;

/// Deepest captured path, in folders: a restore holds a handle for each, and a process has about 1,000.
pub(crate) const PATH_DEPTH_MAX: usize = 512;

/// Which part of a workspace is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkScope {
    /// Everything except `.git`.
    WorkTree,
    /// `.git` and its contents, without locks and temporary files.
    GitFolder,
    /// Like `GitFolder`, including locks and temporary files, which a restore must remove.
    FullGitFolder,
}

/// The git folder of a workspace, relative to its root.
pub(crate) const DOT_GIT: &[u8] = b".git";
/// The file that points git to the cached base: a path of this machine, so never part of a snapshot.
pub(crate) const ALTERNATES_PATH: &[u8] = b".git/objects/info/alternates";

/// The inputs of a walk.
pub(crate) struct WorkspaceWalk<'a> {
    pub(crate) root: BorrowedFd<'a>,
    pub(crate) scope: WalkScope,
    pub(crate) index: &'a SnapshotIndex,
    pub(crate) rules: &'a IgnoreRules,
    /// Previously captured paths (and their folders) that are not in the index now.
    pub(crate) captured: &'a HashSet<Box<[u8]>>,
    /// The file system's time when the walk began.
    pub(crate) looked_at: FsTime,
    pub(crate) listing_mode: ListingMode,
}

/// Which folders are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingMode {
    /// Only folders whose stamp differs from the index.
    ChangedFolders,
    /// All folders: before a restore, changes made by others are unknown, and some file systems have no
    /// reliable stamps.
    AllFolders,
}

/// File systems on which every created, removed or renamed name is known to change the folder's ctime: ext2
/// to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, bcachefs, ZFS. Network and user-space file systems may answer
/// from a cache.
const RELIABLE_CTIME_FILE_SYSTEMS: [FsType; 8] = [
    EXT4_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
    BTRFS_SUPER_MAGIC,
    TMPFS_MAGIC,
    OVERLAYFS_SUPER_MAGIC,
    F2FS_SUPER_MAGIC,
    FsType(0xca45_1a4e),
    FsType(0x2fc1_2fc1),
];

/// Returns how far the stamps of the file system that contains `root` can be trusted.
pub(crate) fn detect_listing_mode(root: BorrowedFd<'_>) -> ListingMode {
    let kind = fstatfs(root).map(|found| found.filesystem_type());
    if kind.is_ok_and(|kind| RELIABLE_CTIME_FILE_SYSTEMS.contains(&kind)) {
        ListingMode::ChangedFolders
    } else {
        ListingMode::AllFolders
    }
}

/// One folder that differs from the index.
#[derive(Debug)]
pub(crate) struct FolderFindings {
    pub(crate) folder: Box<[u8]>,
    /// The stamp as of which all names of the folder are known after these findings are applied.
    pub(crate) listed_stamp: Option<FolderStamp>,
    /// New or touched names, with their stat data and whether to capture them.
    pub(crate) changed: Vec<(Box<[u8]>, StatData, CaptureDecision)>,
    /// Indexed names that are missing in the folder.
    pub(crate) gone: Vec<Box<[u8]>>,
    /// Why the folder could not be read, if so; nothing else is known about it then.
    pub(crate) unreadable: Option<Errno>,
}

/// Whether a path is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureDecision {
    /// Capture it; for a folder, `ignored` tells whether the ignore rules match it nevertheless.
    Capture { ignored: bool },
    /// Leave it out.
    LeaveOut(OmissionReason),
}

struct FolderJob {
    folder: Box<[u8]>,
    ignored: bool,
    /// The folder's stamp when its parent was examined.
    stamp: Option<FolderStamp>,
}

#[derive(Default)]
struct WalkQueue {
    jobs: Vec<FolderJob>,
    running: usize,
}

impl WorkspaceWalk<'_> {
    /// Walks `from` and everything below it; for `ignored` see [`CaptureDecision::Capture`].
    pub(crate) fn find_changes(&self, from: &[u8], ignored: bool) -> Vec<FolderFindings> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(WALK_THREADS_MAX);
        let threads = threads.min(1 + self.index.folder_count() / FOLDERS_PER_THREAD);
        let stamp = open_folder(self.root, from).and_then(|folder| stat_folder(&folder));
        let stamp = stamp.ok().map(|stat| FolderStamp::from_stat(&stat));
        let first = FolderJob { folder: from.into(), ignored, stamp };
        let queue = Mutex::new(WalkQueue { jobs: vec![first], running: 0 });
        let wake = Condvar::new();
        let mut found: Vec<FolderFindings> = if threads == 1 {
            self.process_queue(&queue, &wake)
        } else {
            thread::scope(|scope| {
                let workers: Vec<_> =
                    (0..threads).map(|_| scope.spawn(|| self.process_queue(&queue, &wake))).collect();
                workers.into_iter().flat_map(|w| w.join().expect("a walk does not panic")).collect()
            })
        };
        found.sort_unstable_by(|a, b| a.folder.cmp(&b.folder));
        found
    }

    fn process_queue(&self, queue: &Mutex<WalkQueue>, wake: &Condvar) -> Vec<FolderFindings> {
        let mut all = Vec::new();
        let mut children = Vec::new();
        let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop() {
                state.running += 1;
                drop(state);
                all.extend(self.scan_folder(&job, &mut children));
                state = queue.lock().unwrap_or_else(PoisonError::into_inner);
                state.running -= 1;
                state.jobs.append(&mut children);
                if state.jobs.len() > 1 || (state.running == 0 && state.jobs.is_empty()) {
                    wake.notify_all();
                }
            } else if state.running == 0 {
                return all;
            } else {
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Scans one folder and adds the folders to enter next to `children`.
    fn scan_folder(&self, job: &FolderJob, children: &mut Vec<FolderJob>) -> Option<FolderFindings> {
        let known = self.index.folder(&job.folder);
        let mut found = FolderFindings {
            folder: job.folder.clone(),
            listed_stamp: None,
            changed: Vec::new(),
            gone: Vec::new(),
            unreadable: None,
        };
        let scanned = if self.scope != WalkScope::WorkTree && job.folder.is_empty() {
            let name: Box<[u8]> = DOT_GIT.into();
            let slot = self.index.slot(b"", DOT_GIT);
            self.check_known_names(job, [(&name, slot)].into_iter(), &mut found, children)
        } else if let Some(known) = known.filter(|known| self.has_known_names(job, known)) {
            found.listed_stamp = known.listed_stamp;
            let slots = known.slots.iter().map(|(name, slot)| (name, Some(slot)));
            self.check_known_names(job, slots, &mut found, children)
        } else {
            self.list_folder(job, known, &mut found, children)
        };
        match scanned {
            Ok(()) => {}
            // Removed since its parent was read: the parent's next walk will report it.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return None,
            Err(errno) => {
                found.unreadable = Some(errno);
                return Some(found);
            }
        }
        found.gone.sort_unstable();
        found.changed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let is_news = !found.changed.is_empty()
            || !found.gone.is_empty()
            || known.and_then(|known| known.listed_stamp) != found.listed_stamp;
        is_news.then_some(found)
    }

    /// Whether the folder contains exactly the indexed names.
    fn has_known_names(&self, job: &FolderJob, known: &IndexedFolder) -> bool {
        self.listing_mode == ListingMode::ChangedFolders
            && job.stamp.is_some()
            && known.listed_stamp == job.stamp
    }

    /// Checks the indexed names of a folder.
    fn check_known_names<'s>(
        &self,
        job: &FolderJob,
        slots: impl ExactSizeIterator<Item = (&'s Box<[u8]>, Option<&'s IndexSlot>)>,
        found: &mut FolderFindings,
        children: &mut Vec<FolderJob>,
    ) -> nix::Result<()> {
        if slots.len() == 0 {
            return Ok(());
        }
        let folder = open_folder_path_only(self.root, &job.folder)?;
        for (name, slot) in slots {
            match stat_child(folder.as_fd(), name) {
                Ok(stat) => self.compare_with_slot(job, name, slot, &stat, found, children),
                Err(Errno::ENOENT) => found.gone.extend(slot.map(|_| name.clone())),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Lists a folder and checks every name in it.
    fn list_folder(
        &self,
        job: &FolderJob,
        known: Option<&IndexedFolder>,
        found: &mut FolderFindings,
        children: &mut Vec<FolderJob>,
    ) -> nix::Result<()> {
        let (dir, entries) = list_names(open_folder(self.root, &job.folder)?)?;
        found.listed_stamp = job.stamp.filter(|stamp| !stamp.is_racy(self.looked_at));
        let mut hits = 0;
        for name in &entries {
            let slot = known.and_then(|known| known.slots.get(name));
            match stat_child(dir.as_fd(), name) {
                Ok(stat) => self.compare_with_slot(job, name, slot, &stat, found, children),
                Err(Errno::ENOENT) => found.listed_stamp = None,
                Err(errno) => return Err(errno),
            }
            hits += usize::from(slot.is_some());
        }
        if let Some(known) = known
            && hits < known.slots.len()
        {
            let present: HashSet<&[u8]> = entries.iter().map(AsRef::as_ref).collect();
            let gone = known.slots.keys().filter(|name| !present.contains(name.as_ref()));
            found.gone.extend(gone.cloned());
        }
        Ok(())
    }

    /// Compares one name of a folder with its slot.
    fn compare_with_slot(
        &self,
        job: &FolderJob,
        name: &[u8],
        slot: Option<&IndexSlot>,
        seen: &FileStat,
        found: &mut FolderFindings,
        children: &mut Vec<FolderJob>,
    ) {
        let stat = StatData::from_stat(seen);
        if slot.is_some_and(|slot| slot.is_untouched_file(stat)) {
            return;
        }
        let path = join_path(&job.folder, name);
        if self.is_out_of_scope(&path) {
            return;
        }
        let judged = match slot.map(|slot| slot.state) {
            Some(SlotState::Folder { ignored, .. }) if stat.kind() == FileKind::Folder => {
                CaptureDecision::Capture { ignored }
            }
            Some(SlotState::LeftOut(why)) if slot.is_some_and(|slot| slot.stat.kind() == stat.kind()) => {
                self.reclassify_path(why, &path, stat, job.ignored)
            }
            Some(SlotState::Captured(_))
                if stat.kind() != FileKind::Special && stat.kind() != FileKind::Folder =>
            {
                CaptureDecision::Capture { ignored: false }
            }
            Some(_) | None => self.classify_path(&path, stat, job.ignored, slot.is_some()),
        };
        if let (FileKind::Folder, CaptureDecision::Capture { ignored }) = (stat.kind(), judged) {
            children.push(FolderJob {
                folder: path.into(),
                ignored,
                stamp: Some(FolderStamp::from_stat(seen)),
            });
        }
        let untouched = slot.is_some_and(|slot| {
            slot.stat == stat && !slot.racy && slot.state != SlotState::LeftOut(OmissionReason::Unreadable)
        });
        if !untouched {
            found.changed.push((name.into(), stat, judged));
        }
    }

    fn reclassify_path(
        &self,
        why: OmissionReason,
        path: &[u8],
        stat: StatData,
        ignored: bool,
    ) -> CaptureDecision {
        match why {
            OmissionReason::Ignored => CaptureDecision::LeaveOut(why),
            OmissionReason::TooLarge | OmissionReason::NotAFile | OmissionReason::Unreadable => {
                self.classify_path(path, stat, ignored, false)
            }
        }
    }

    /// `was_captured`: the index has the path as captured, with another file type.
    fn classify_path(
        &self,
        path: &[u8],
        stat: StatData,
        ignored: bool,
        was_captured: bool,
    ) -> CaptureDecision {
        let is_folder = match stat.kind() {
            FileKind::Special => return CaptureDecision::LeaveOut(OmissionReason::NotAFile),
            FileKind::Folder => true,
            FileKind::File | FileKind::Link => false,
        };
        if !was_captured && is_too_long_or_deep(path) && !self.captured.contains(path) {
            return CaptureDecision::LeaveOut(OmissionReason::TooLarge);
        }
        if self.scope != WalkScope::WorkTree {
            return CaptureDecision::Capture { ignored: false };
        }
        let ignored = ignored || self.rules.matches(path, is_folder);
        if !ignored {
            return CaptureDecision::Capture { ignored: false };
        }
        if was_captured || self.captured.contains(path) {
            return CaptureDecision::Capture { ignored };
        }
        CaptureDecision::LeaveOut(OmissionReason::Ignored)
    }

    /// Whether this walk skips the path as if it did not exist.
    fn is_out_of_scope(&self, path: &[u8]) -> bool {
        match self.scope {
            WalkScope::WorkTree => path == DOT_GIT,
            WalkScope::GitFolder => !is_git_path(path) || path == ALTERNATES_PATH || is_transient(path),
            WalkScope::FullGitFolder => !is_git_path(path) || path == ALTERNATES_PATH,
        }
    }
}

/// Whether a path is the workspace's git folder or inside it.
pub(crate) fn is_git_path(path: &[u8]) -> bool {
    path.strip_prefix(DOT_GIT).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path exceeds the length or depth limit for capturing.
pub(crate) fn is_too_long_or_deep(path: &[u8]) -> bool {
    path.len() > PATH_BYTES_MAX || path.iter().filter(|b| **b == b'/').count() > PATH_DEPTH_MAX
}

/// Locks and half-written objects: left by a git process that has ended, they would only block the next one
/// after a restore.
fn is_transient(path: &[u8]) -> bool {
    let name = crate::workspace::disk::dirfd::split_path(path).1;
    name.ends_with(b".lock") || (path.starts_with(b".git/objects/") && name.starts_with(b"tmp_"))
}
