//! Taking what a walk found into the index: reading what changed, and saying how the tree differs now.
//!
//! The one place where content of a workspace is read for a snapshot. Findings are taken in sorted order, so
//! that the same tree gives the same changes, and the limits on bytes cut at the same file, on any machine.
//! Used by snapshot and restore.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, LeftOut, LeftOutWhy, PathChange},
};

use nix::errno::Errno;

use super::{
    index::{Index, Slot, What},
    walk::{Found, Judged},
};
use crate::workspace::{
    blobs::PendingBlobs,
    disk::{
        file_stat::{FsTime, Kind, Stat},
        handles::{join, open_file, open_folder, read_limited, read_link, split},
    },
};

/// A folder of this mode that holds something needs no entry of its own.
pub(crate) const FOLDER_MODE: u32 = 0o755;

/// Entry of a folder that is empty or has another mode than most.
pub(crate) const fn folder_entry(mode: u32) -> Entry {
    Entry { kind: EntryKind::Dir, mode, size: 0, hash: BlobHash([0; 32]) }
}

/// What is known of one part of a workspace (the work tree, or its `.git`).
#[derive(Debug, Default)]
pub(crate) struct Area {
    pub(crate) index: Index,
    /// Paths that were captured once, with their folders, as far as the index does not hold them now.
    pub(crate) captured: HashSet<Box<[u8]>>,
}

/// How much may be read, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// For one file.
    pub(crate) file: u64,
    /// For all new content of one snapshot.
    pub(crate) total: u64,
}

/// One pass of taking findings in.
pub(crate) struct Merge<'a> {
    root: BorrowedFd<'a>,
    area: &'a mut Area,
    looked_at: FsTime,
    limits: Limits,
    /// Where new content goes; `None` when only hashes are wanted.
    blobs: Option<&'a mut PendingBlobs>,
    /// Entries that are to be expected: a file of that size is hashed whatever the limit.
    expected: Option<&'a BTreeMap<WorkPath, Entry>>,
    delta: BTreeMap<Vec<u8>, (Option<Entry>, Option<Entry>)>,
    touched: BTreeSet<Vec<u8>>,
    left_out: BTreeMap<Vec<u8>, LeftOutWhy>,
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// What stopped the reading, where it is no property of the path (no descriptors left, a disk error).
    failed: Option<(Vec<u8>, Errno)>,
    files_read: usize,
}

/// What a pass came to, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) changes: Vec<PathChange>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) files_read: usize,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(root: BorrowedFd<'a>, area: &'a mut Area, looked_at: FsTime, limits: Limits) -> Self {
        Self {
            root,
            area,
            looked_at,
            limits,
            blobs: None,
            expected: None,
            delta: BTreeMap::new(),
            touched: BTreeSet::new(),
            left_out: BTreeMap::new(),
            parent: None,
            failed: None,
            files_read: 0,
        }
    }

    pub(crate) fn collect(mut self, blobs: &'a mut PendingBlobs) -> Self {
        self.blobs = Some(blobs);
        self
    }

    pub(crate) fn expect(mut self, entries: &'a BTreeMap<WorkPath, Entry>) -> Self {
        self.expected = Some(entries);
        self
    }

    /// Takes in what a walk found.
    pub(crate) fn take(&mut self, found: Vec<Found>) {
        for item in found {
            if let Some(errno) = item.unreadable {
                let path = item.folder;
                match why_unread(errno).filter(|_| !path.is_empty()) {
                    Some(_) => self.folder_unreadable(&path),
                    None => self.failed = self.failed.take().or(Some((path.into_vec(), errno))),
                }
                continue;
            }
            if item.changed.is_empty() && item.gone.is_empty() {
                self.area.index.set_listed(&item.folder, item.listed);
                continue;
            }
            for name in &item.gone {
                self.vanished(&item.folder, name);
            }
            for (name, stat, judged) in item.changed {
                self.update(&item.folder, &name, stat, judged);
            }
            self.area.index.set_listed(&item.folder, item.listed);
            self.touched.insert(item.folder.into_vec());
        }
    }

    /// One path that is there.
    pub(crate) fn update(&mut self, folder: &[u8], name: &[u8], stat: Stat, judged: Judged) {
        let path = join(folder, name);
        self.touched.insert(folder.to_vec());
        let old = self.area.index.slot(folder, name).copied();
        let was_folder = matches!(old.map(|slot| slot.what), Some(What::Folder { .. }));
        let stays_folder = was_folder && stat.kind() == Kind::Folder && matches!(judged, Judged::Keep { .. });
        if was_folder && !stays_folder {
            self.drop_below(&path);
        }
        let what = match (judged, stat.kind()) {
            (Judged::Leave(why), _) => What::Out(why),
            (Judged::Keep { .. }, Kind::Special) => What::Out(LeftOutWhy::NotAFile),
            (Judged::Keep { ignored }, Kind::Folder) => {
                self.touched.insert(path.clone());
                let recorded = match old.map(|slot| slot.what) {
                    Some(What::Folder { recorded, .. }) => recorded,
                    Some(What::Kept(_) | What::Out(_)) | None => None,
                };
                What::Folder { recorded, ignored }
            }
            (Judged::Keep { .. }, Kind::File | Kind::Link) => {
                let old_entry = old.and_then(|slot| kept(&slot));
                let read = self.read(&path, stat, old_entry);
                return self.settle_file(folder, name, path, old, read);
            }
        };
        self.change(&path, old.as_ref().and_then(entry_of), entry_of(&Slot { stat, racy: false, what }));
        if let What::Out(why) = what
            && old.is_none_or(|slot| slot.what != what)
        {
            self.left_out.insert(path, why);
        }
        let racy = what != What::Out(LeftOutWhy::Ignored) && stat.kind() != Kind::Folder;
        let racy = racy && stat.is_racy(self.looked_at);
        self.area.index.set(folder, name, Slot { stat, racy, what });
    }

    fn settle_file(&mut self, folder: &[u8], name: &[u8], path: Vec<u8>, old: Option<Slot>, read: Read) {
        let Read { stat, what } = read;
        let slot = Slot { stat, racy: stat.is_racy(self.looked_at), what };
        self.change(&path, old.as_ref().and_then(entry_of), entry_of(&slot));
        if let What::Out(why) = what
            && old.is_none_or(|slot| slot.what != what)
        {
            self.left_out.insert(path, why);
        }
        self.area.index.set(folder, name, slot);
    }

    /// One path that is there no more.
    pub(crate) fn vanished(&mut self, folder: &[u8], name: &[u8]) {
        self.touched.insert(folder.to_vec());
        let Some(slot) = self.area.index.take(folder, name) else { return };
        let path = join(folder, name);
        if matches!(slot.what, What::Folder { .. }) {
            self.drop_below(&path);
        }
        self.change(&path, entry_of(&slot), None);
    }

    fn drop_below(&mut self, path: &[u8]) {
        self.remember(path);
        for (name, slot) in self.area.index.take_folder(path).unwrap_or_default().slots {
            let child = join(path, &name);
            if matches!(slot.what, What::Folder { .. }) {
                self.drop_below(&child);
            }
            self.change(&child, entry_of(&slot), None);
        }
    }

    fn folder_unreadable(&mut self, path: &[u8]) {
        let (folder, name) = split(path);
        self.drop_below(path);
        if let Some(slot) = self.area.index.slot(folder, name).copied() {
            self.change(path, entry_of(&slot), None);
            let what = What::Out(LeftOutWhy::Unreadable);
            self.area.index.set(folder, name, Slot { what, ..slot });
            self.left_out.insert(path.to_vec(), LeftOutWhy::Unreadable);
            self.touched.insert(folder.to_vec());
        }
    }

    fn change(&mut self, path: &[u8], old: Option<Entry>, new: Option<Entry>) {
        if old.is_some() && new.is_none() {
            self.remember(path);
        }
        if old != new {
            let first = self.delta.get(path).map_or(old, |(first, _)| *first);
            self.delta.insert(path.to_vec(), (first, new));
        }
    }

    /// A path once captured stays captured, and so do the folders it was in.
    fn remember(&mut self, path: &[u8]) {
        remember(&mut self.area.captured, path);
    }

    /// Ends the pass: folders that became empty or have a mode of their own get their entries.
    ///
    /// # Errors
    /// Path and reason, where something could not be read that must not count as gone.
    pub(crate) fn finish(mut self) -> Result<Merged, (Vec<u8>, Errno)> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        for path in std::mem::take(&mut self.touched) {
            let (folder, name) = split(&path);
            let Some(slot) = self.area.index.slot(folder, name).copied() else { continue };
            let What::Folder { recorded, ignored } = slot.what else { continue };
            let mode = slot.stat.permissions();
            let now = (mode != FOLDER_MODE || !self.area.index.holds(&path)).then_some(mode);
            if now != recorded {
                self.change(&path, recorded.map(folder_entry), now.map(folder_entry));
                let what = What::Folder { recorded: now, ignored };
                self.area.index.set(folder, name, Slot { what, ..slot });
            }
        }
        let changes = self.delta.into_iter().filter(|(_, (old, new))| old != new);
        let changes =
            changes.filter_map(|(path, (_, entry))| Some(PathChange { path: WorkPath::new(path)?, entry }));
        let left_out = self
            .left_out
            .into_iter()
            .filter_map(|(path, why)| Some(LeftOut { path: WorkPath::new(path)?, why }));
        let (changes, left_out) = (changes.collect(), left_out.collect());
        Ok(Merged { changes, left_out, files_read: self.files_read })
    }

    /// Reads the file or link at `path`.
    fn read(&mut self, path: &[u8], stat: Stat, old: Option<Entry>) -> Read {
        let left = |why| Read { stat, what: What::Out(why) };
        let (folder, name) = split(path);
        if self.parent.as_ref().is_none_or(|(open, _)| open != folder) {
            match open_folder(self.root, folder) {
                Ok(fd) => self.parent = Some((folder.to_vec(), fd)),
                Err(errno) => return self.unread(path, stat, errno),
            }
        }
        let Some((_, parent)) = &self.parent else { return left(LeftOutWhy::Unreadable) };
        if stat.kind() == Kind::Link {
            let target = match read_link(parent.as_fd(), name) {
                Ok(target) => target,
                Err(errno) => return self.unread(path, stat, errno),
            };
            let blob = BlobRef::of(&target);
            let entry = Entry { kind: EntryKind::Symlink, mode: 0, size: blob.bytes, hash: blob.hash };
            return self.keep(entry, target, stat, old);
        }
        let (mut file, opened) = match open_file(parent.as_fd(), name) {
            Ok(opened) => opened,
            Err(errno) => return self.unread(path, stat, errno),
        };
        let stat = Stat::of(&opened);
        if stat.kind() != Kind::File {
            return left(LeftOutWhy::NotAFile);
        }
        let size = u64::try_from(stat.size).unwrap_or(0);
        let mode = stat.permissions();
        if size > self.limits.file {
            self.files_read += usize::from(self.known(path, old).is_some_and(|known| known.size == size));
            return match Self::large(&mut file, stat, size, self.known(path, old)) {
                Ok(read) => read,
                Err(error) => self.unread(path, stat, errno_of(&error)),
            };
        }
        self.files_read += 1;
        match read_limited(&mut file, size, self.limits.file) {
            Ok((bytes, true)) => {
                let blob = BlobRef::of(&bytes);
                let entry = Entry { kind: EntryKind::File, mode, size: blob.bytes, hash: blob.hash };
                self.keep(entry, bytes, stat, old)
            }
            Ok((_, false)) => Read { stat, what: What::Out(LeftOutWhy::TooLarge) },
            Err(error) => self.unread(path, stat, errno_of(&error)),
        }
    }

    /// A path that did not read: left out where that is its own doing, else the end of this pass.
    fn unread(&mut self, path: &[u8], stat: Stat, errno: Errno) -> Read {
        let why = why_unread(errno);
        if why.is_none() && self.failed.is_none() {
            self.failed = Some((path.to_vec(), errno));
        }
        Read { stat, what: What::Out(why.unwrap_or(LeftOutWhy::Unreadable)) }
    }

    fn known(&self, path: &[u8], old: Option<Entry>) -> Option<Entry> {
        let expected = self.expected.and_then(|all| all.get(&WorkPath::new(path)?).copied());
        expected.or(old)
    }

    /// A file over the limit is kept where it is the content that is recorded already (a large file of the
    /// base, touched): that costs no new blob.
    fn large(file: &mut File, stat: Stat, size: u64, known: Option<Entry>) -> io::Result<Read> {
        let out = Read { stat, what: What::Out(LeftOutWhy::TooLarge) };
        let Some(known) = known.filter(|entry| entry.kind == EntryKind::File && entry.size == size) else {
            return Ok(out);
        };
        if hash_of(file)? != known.hash {
            return Ok(out);
        }
        Ok(Read { stat, what: What::Kept(Entry { mode: stat.permissions(), ..known }) })
    }

    fn keep(&mut self, entry: Entry, bytes: Vec<u8>, stat: Stat, old: Option<Entry>) -> Read {
        let same_content = old.is_some_and(|old| old.hash == entry.hash && old.kind == entry.kind);
        if let Some(blobs) = &mut self.blobs
            && !same_content
        {
            if blobs.bytes() + entry.size > self.limits.total {
                return Read { stat, what: What::Out(LeftOutWhy::TooLarge) };
            }
            blobs.push(BlobRef { hash: entry.hash, bytes: entry.size }, bytes);
        }
        Read { stat, what: What::Kept(entry) }
    }
}

struct Read {
    stat: Stat,
    what: What,
}

/// Why a path is left out that gave this error; `None` where the error says nothing of the path.
const fn why_unread(errno: Errno) -> Option<LeftOutWhy> {
    match errno {
        Errno::EACCES | Errno::EPERM | Errno::ENOENT => Some(LeftOutWhy::Unreadable),
        Errno::ELOOP | Errno::ENXIO | Errno::ENODEV => Some(LeftOutWhy::NotAFile),
        _ => None,
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn hash_of(file: &mut File) -> io::Result<BlobHash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(BlobHash(*hasher.finalize().as_bytes()))
}

fn kept(slot: &Slot) -> Option<Entry> {
    match slot.what {
        What::Kept(entry) => Some(entry),
        What::Folder { .. } | What::Out(_) => None,
    }
}

/// The entry that a slot stands for in the recorded tree.
pub(crate) fn entry_of(slot: &Slot) -> Option<Entry> {
    match slot.what {
        What::Kept(entry) => Some(entry),
        What::Folder { recorded, .. } => recorded.map(folder_entry),
        What::Out(_) => None,
    }
}

/// Adds a path and the folders it is in to a set of captured ones.
pub(crate) fn remember(captured: &mut HashSet<Box<[u8]>>, path: &[u8]) {
    let mut path = path;
    while !path.is_empty() && captured.insert(path.into()) {
        path = split(path).0;
    }
}
