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

use docket_schema::snapshot::LeftOutWhy;
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
    ignored::IgnoreRules,
    index::{Folder, Index, Slot, What},
};
use crate::workspace::disk::{
    file_stat::{FsTime, Kind, Stamp, Stat},
    handles::{enter_folder, join, names, open_folder, stat_child, stat_handle},
};

/// More threads than this gain nothing on one disk and would starve the run's own commands.
const THREADS_MAX: usize = 4;

/// Below this many folders one thread is faster than starting a second.
const FOLDERS_PER_THREAD: usize = 64;

/// Longest path that is captured, in bytes: written as JSON with every byte escaped it still fits into an event.
pub(crate) const PATH_BYTES_MAX: usize = 32 * 1024;

/// Most folders that a captured path stands in: a restore holds a handle of each, and a process has some 1,000.
pub(crate) const DEPTH_MAX: usize = 512;

/// Which part of a workspace is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Realm {
    /// All but `.git`.
    Work,
    /// `.git` and what is in it, without locks and temporary files.
    Git,
    /// As `Git`, with locks and temporary files: what a restore has to clear away.
    GitWhole,
}

/// The git folder of a workspace, relative to its root.
pub(crate) const DOT_GIT: &[u8] = b".git";
/// Where docket tells git about the cached base: a path of this machine, so never part of a snapshot.
pub(crate) const ALTERNATES: &[u8] = b".git/objects/info/alternates";

/// What a walk needs to know.
pub(crate) struct Walk<'a> {
    pub(crate) root: BorrowedFd<'a>,
    pub(crate) realm: Realm,
    pub(crate) index: &'a Index,
    pub(crate) rules: &'a IgnoreRules,
    /// Paths that were captured at some time (and the folders they were in) and are not in the index now.
    pub(crate) captured: &'a HashSet<Box<[u8]>>,
    /// When the walk began, by the file system's own clock.
    pub(crate) looked_at: FsTime,
    pub(crate) listing: Listing,
}

/// Which folders are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Those whose stamp is not the one that the index has.
    Touched,
    /// All: before a restore nothing is known of what others did, and some file systems keep no stamps.
    All,
}

/// File systems of which it is known that a folder's ctime moves with every name that comes, goes or changes:
/// ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, bcachefs, ZFS. Network and user-space ones may answer
/// from a cache.
const STAMPED: [FsType; 8] = [
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
pub(crate) fn listing_of(root: BorrowedFd<'_>) -> Listing {
    let kind = fstatfs(root).map(|found| found.filesystem_type());
    if kind.is_ok_and(|kind| STAMPED.contains(&kind)) { Listing::Touched } else { Listing::All }
}

/// One folder that differs from the index.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) folder: Box<[u8]>,
    /// The stamp under which all names of the folder are known once this is taken in.
    pub(crate) listed: Option<Stamp>,
    /// New or touched, by name: what is there, and for what is not to be captured, why.
    pub(crate) changed: Vec<(Box<[u8]>, Stat, Judged)>,
    /// Names the index has and the folder has not.
    pub(crate) gone: Vec<Box<[u8]>>,
    /// Why the folder could not be read, if so; nothing else of it is known then.
    pub(crate) unreadable: Option<Errno>,
}

/// What becomes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// To be captured; for a folder whether the ignore rules name it all the same.
    Keep { ignored: bool },
    /// To be left out.
    Leave(LeftOutWhy),
}

struct Job {
    folder: Box<[u8]>,
    ignored: bool,
    /// The folder as it was when its parent was looked at.
    stamp: Option<Stamp>,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    running: usize,
}

impl Walk<'_> {
    /// Walks `from` and everything below it; `ignored` as in [`Judged::Keep`].
    pub(crate) fn run(&self, from: &[u8], ignored: bool) -> Vec<Found> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = threads.min(1 + self.index.folder_count() / FOLDERS_PER_THREAD);
        let stamp = open_folder(self.root, from).and_then(|folder| stat_handle(&folder));
        let stamp = stamp.ok().map(|stat| Stamp::of(&stat));
        let first = Job { folder: from.into(), ignored, stamp };
        let queue = Mutex::new(Queue { jobs: vec![first], running: 0 });
        let wake = Condvar::new();
        let mut found: Vec<Found> = if threads == 1 {
            self.work(&queue, &wake)
        } else {
            thread::scope(|scope| {
                let workers: Vec<_> =
                    (0..threads).map(|_| scope.spawn(|| self.work(&queue, &wake))).collect();
                workers.into_iter().flat_map(|w| w.join().expect("a walk does not panic")).collect()
            })
        };
        found.sort_unstable_by(|a, b| a.folder.cmp(&b.folder));
        found
    }

    fn work(&self, queue: &Mutex<Queue>, wake: &Condvar) -> Vec<Found> {
        let mut all = Vec::new();
        let mut children = Vec::new();
        let mut state = queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop() {
                state.running += 1;
                drop(state);
                all.extend(self.scan(&job, &mut children));
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
    fn scan(&self, job: &Job, children: &mut Vec<Job>) -> Option<Found> {
        let known = self.index.folder(&job.folder);
        let mut found = Found {
            folder: job.folder.clone(),
            listed: None,
            changed: Vec::new(),
            gone: Vec::new(),
            unreadable: None,
        };
        let scanned = if self.realm != Realm::Work && job.folder.is_empty() {
            let name: Box<[u8]> = DOT_GIT.into();
            let slot = self.index.slot(b"", DOT_GIT);
            self.check(job, [(&name, slot)].into_iter(), &mut found, children)
        } else if let Some(known) = known.filter(|known| self.names_stand(job, known)) {
            found.listed = known.listed;
            let slots = known.slots.iter().map(|(name, slot)| (name, Some(slot)));
            self.check(job, slots, &mut found, children)
        } else {
            self.list(job, known, &mut found, children)
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
            || known.and_then(|known| known.listed) != found.listed;
        is_news.then_some(found)
    }

    /// Whether the folder holds the names that the index has, and no others.
    fn names_stand(&self, job: &Job, known: &Folder) -> bool {
        self.listing == Listing::Touched && job.stamp.is_some() && known.listed == job.stamp
    }

    /// Looks at names that are known.
    fn check<'s>(
        &self,
        job: &Job,
        slots: impl ExactSizeIterator<Item = (&'s Box<[u8]>, Option<&'s Slot>)>,
        found: &mut Found,
        children: &mut Vec<Job>,
    ) -> nix::Result<()> {
        if slots.len() == 0 {
            return Ok(());
        }
        let folder = enter_folder(self.root, &job.folder)?;
        for (name, slot) in slots {
            match stat_child(folder.as_fd(), name) {
                Ok(stat) => self.look_at(job, name, slot, &stat, found, children),
                Err(Errno::ENOENT) => found.gone.extend(slot.map(|_| name.clone())),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Looks at whatever names the folder holds.
    fn list(
        &self,
        job: &Job,
        known: Option<&Folder>,
        found: &mut Found,
        children: &mut Vec<Job>,
    ) -> nix::Result<()> {
        let (dir, entries) = names(open_folder(self.root, &job.folder)?)?;
        found.listed = job.stamp.filter(|stamp| !stamp.is_racy(self.looked_at));
        let mut hits = 0;
        for name in &entries {
            let slot = known.and_then(|known| known.slots.get(name));
            match stat_child(dir.as_fd(), name) {
                Ok(stat) => self.look_at(job, name, slot, &stat, found, children),
                Err(Errno::ENOENT) => found.listed = None,
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
    fn look_at(
        &self,
        job: &Job,
        name: &[u8],
        slot: Option<&Slot>,
        seen: &FileStat,
        found: &mut Found,
        children: &mut Vec<Job>,
    ) {
        let stat = Stat::of(seen);
        if slot.is_some_and(|slot| slot.is_untouched_file(stat)) {
            return;
        }
        let path = join(&job.folder, name);
        if self.is_foreign(&path) {
            return;
        }
        let judged = match slot.map(|slot| slot.what) {
            Some(What::Folder { ignored, .. }) if stat.kind() == Kind::Folder => Judged::Keep { ignored },
            Some(What::Out(why)) if slot.is_some_and(|slot| slot.stat.kind() == stat.kind()) => {
                self.judge_again(why, &path, stat, job.ignored)
            }
            Some(What::Kept(_)) if stat.kind() != Kind::Special && stat.kind() != Kind::Folder => {
                Judged::Keep { ignored: false }
            }
            Some(_) | None => self.judge(&path, stat, job.ignored, slot.is_some()),
        };
        if let (Kind::Folder, Judged::Keep { ignored }) = (stat.kind(), judged) {
            children.push(Job { folder: path.into(), ignored, stamp: Some(Stamp::of(seen)) });
        }
        let untouched = slot.is_some_and(|slot| {
            slot.stat == stat && !slot.racy && slot.what != What::Out(LeftOutWhy::Unreadable)
        });
        if !untouched {
            found.changed.push((name.into(), stat, judged));
        }
    }

    fn judge_again(&self, why: LeftOutWhy, path: &[u8], stat: Stat, ignored: bool) -> Judged {
        match why {
            LeftOutWhy::Ignored => Judged::Leave(why),
            LeftOutWhy::TooLarge | LeftOutWhy::NotAFile | LeftOutWhy::Unreadable => {
                self.judge(path, stat, ignored, false)
            }
        }
    }

    /// `was_captured`: the path stands in the index as captured, as another kind of thing.
    fn judge(&self, path: &[u8], stat: Stat, ignored: bool, was_captured: bool) -> Judged {
        let is_folder = match stat.kind() {
            Kind::Special => return Judged::Leave(LeftOutWhy::NotAFile),
            Kind::Folder => true,
            Kind::File | Kind::Link => false,
        };
        if !was_captured && is_too_long(path) && !self.captured.contains(path) {
            return Judged::Leave(LeftOutWhy::TooLarge);
        }
        if self.realm != Realm::Work {
            return Judged::Keep { ignored: false };
        }
        let ignored = ignored || self.rules.names(path, is_folder);
        if !ignored {
            return Judged::Keep { ignored: false };
        }
        if was_captured || self.captured.contains(path) {
            return Judged::Keep { ignored };
        }
        Judged::Leave(LeftOutWhy::Ignored)
    }

    /// Whether this walk passes the path over as if it were not there.
    fn is_foreign(&self, path: &[u8]) -> bool {
        match self.realm {
            Realm::Work => path == DOT_GIT,
            Realm::Git => !is_git(path) || path == ALTERNATES || is_transient(path),
            Realm::GitWhole => !is_git(path) || path == ALTERNATES,
        }
    }
}

/// Whether a path is the workspace's git folder or in it.
pub(crate) fn is_git(path: &[u8]) -> bool {
    path.strip_prefix(DOT_GIT).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path is longer or deeper than what is captured.
pub(crate) fn is_too_long(path: &[u8]) -> bool {
    path.len() > PATH_BYTES_MAX || path.iter().filter(|b| **b == b'/').count() > DEPTH_MAX
}

/// Locks and half-written objects: a git that is gone left them, and restored they would only block the next.
fn is_transient(path: &[u8]) -> bool {
    let name = crate::workspace::disk::handles::split(path).1;
    name.ends_with(b".lock") || (path.starts_with(b".git/objects/") && name.starts_with(b"tmp_"))
}
