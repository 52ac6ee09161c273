//! Walking a tree by directory handles and saying what differs from the index; nothing is read here.
//!
//! Every path is looked at each time. A folder is listed only where its stamp says that its names may have
//! changed: the index has them otherwise, which saves a third of the walk. Several threads share one stack of
//! folders; the answer is sorted, so that what follows from it does not depend on which thread was faster.
//! Used by snapshot and restore.

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

/// More threads than this gain nothing on one disk and would starve the run's own commands.
const WALK_THREADS_MAX: usize = 4;

/// Below this many folders one thread is faster than starting a second.
const FOLDERS_PER_THREAD: usize = 64;

/// Longest path that is captured, in bytes: written as JSON with every byte escaped it still fits into an event.
pub(crate) const PATH_BYTES_MAX: usize = 32 * 1024;

/// Most folders that a captured path stands in: a restore holds a handle of each, and a process has some 1,000.
pub(crate) const PATH_DEPTH_MAX: usize = 512;

/// Which part of a workspace is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkScope {
    /// All but `.git`.
    WorkTree,
    /// `.git` and what is in it, without locks and temporary files.
    GitFolder,
    /// As `Git`, with locks and temporary files: what a restore has to clear away.
    FullGitFolder,
}

/// The git folder of a workspace, relative to its root.
pub(crate) const DOT_GIT: &[u8] = b".git";
/// Where docket tells git about the cached base: a path of this machine, so never part of a snapshot.
pub(crate) const ALTERNATES_PATH: &[u8] = b".git/objects/info/alternates";

/// What a walk needs to know.
pub(crate) struct WorkspaceWalk<'a> {
    pub(crate) root: BorrowedFd<'a>,
    pub(crate) scope: WalkScope,
    pub(crate) index: &'a SnapshotIndex,
    pub(crate) rules: &'a IgnoreRules,
    /// Paths that were captured at some time (and the folders they were in) and are not in the index now.
    pub(crate) captured: &'a HashSet<Box<[u8]>>,
    /// When the walk began, by the file system's own clock.
    pub(crate) looked_at: FsTime,
    pub(crate) listing_mode: ListingMode,
}

/// Which folders are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingMode {
    /// Those whose stamp is not the one that the index has.
    ChangedFolders,
    /// All: before a restore nothing is known of what others did, and some file systems keep no stamps.
    AllFolders,
}

/// File systems of which it is known that a folder's ctime moves with every name that comes, goes or changes:
/// ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, bcachefs, ZFS. Network and user-space ones may answer
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

/// How far the stamps of the file system that `root` is on can be trusted.
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
    /// The stamp under which all names of the folder are known once this is taken in.
    pub(crate) listed_stamp: Option<FolderStamp>,
    /// New or touched, by name: what is there, and for what is not to be captured, why.
    pub(crate) changed: Vec<(Box<[u8]>, StatData, CaptureDecision)>,
    /// Names the index has and the folder has not.
    pub(crate) gone: Vec<Box<[u8]>>,
    /// Why the folder could not be read, if so; nothing else of it is known then.
    pub(crate) unreadable: Option<Errno>,
}

/// What becomes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureDecision {
    /// To be captured; for a folder whether the ignore rules name it all the same.
    Capture { ignored: bool },
    /// To be left out.
    LeaveOut(OmissionReason),
}

struct FolderJob {
    folder: Box<[u8]>,
    ignored: bool,
    /// The folder as it was when its parent was looked at.
    stamp: Option<FolderStamp>,
}

#[derive(Default)]
struct WalkQueue {
    jobs: Vec<FolderJob>,
    running: usize,
}

impl WorkspaceWalk<'_> {
    /// Walks `from` and everything below it; `ignored` as in [`Judged::Keep`].
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

    /// One folder; the folders to enter next go into `children`.
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
            // Gone since its parent was read: the parent's next walk will say so.
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

    /// Whether the folder holds the names that the index has, and no others.
    fn has_known_names(&self, job: &FolderJob, known: &IndexedFolder) -> bool {
        self.listing_mode == ListingMode::ChangedFolders
            && job.stamp.is_some()
            && known.listed_stamp == job.stamp
    }

    /// Looks at names that are known.
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

    /// Looks at whatever names the folder holds.
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

    /// One name of a folder, against its slot.
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

    /// `was_captured`: the path stands in the index as captured, as another kind of thing.
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

    /// Whether this walk passes the path over as if it were not there.
    fn is_out_of_scope(&self, path: &[u8]) -> bool {
        match self.scope {
            WalkScope::WorkTree => path == DOT_GIT,
            WalkScope::GitFolder => !is_git_path(path) || path == ALTERNATES_PATH || is_transient(path),
            WalkScope::FullGitFolder => !is_git_path(path) || path == ALTERNATES_PATH,
        }
    }
}

/// Whether a path is the workspace's git folder or in it.
pub(crate) fn is_git_path(path: &[u8]) -> bool {
    path.strip_prefix(DOT_GIT).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path is longer or deeper than what is captured.
pub(crate) fn is_too_long_or_deep(path: &[u8]) -> bool {
    path.len() > PATH_BYTES_MAX || path.iter().filter(|b| **b == b'/').count() > PATH_DEPTH_MAX
}

/// Locks and half-written objects: a git that is gone left them, and restored they would only block the next.
fn is_transient(path: &[u8]) -> bool {
    let name = crate::workspace::disk::dirfd::split_path(path).1;
    name.ends_with(b".lock") || (path.starts_with(b".git/objects/") && name.starts_with(b"tmp_"))
}
