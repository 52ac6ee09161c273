//! Updates the index from a walk's findings: reads changed files and determines how the tree differs now.
//!
//! This is the only place that reads workspace content for a snapshot. Findings are processed in sorted
//! order, so that on any machine the same tree gives the same changes and the byte limits cut off at the same
//! file. Used by snapshot and restore.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, OmissionReason, OmittedPath, PathChange},
};

use nix::errno::Errno;

use super::{
    index::{IndexSlot, SlotState, SnapshotIndex},
    walk::{CaptureDecision, FolderFindings},
};
use crate::workspace::{
    blobs::PendingBlobs,
    disk::{
        dirfd::{join_path, open_file, open_folder, read_limited, read_link, split_path},
        file_stat::{FileKind, FsTime, StatData},
    },
};

/// A non-empty folder of this mode needs no entry of its own.
pub(crate) const DEFAULT_FOLDER_MODE: u32 = 0o755;

/// Returns the entry of a folder that is empty or has an unusual mode.
pub(crate) const fn folder_entry(mode: u32) -> Entry {
    Entry { kind: EntryKind::Dir, mode, size: 0, hash: BlobHash([0; 32]) }
}

/// The tracked state of one part of a workspace (the work tree or its `.git`).
#[derive(Debug, Default)]
pub(crate) struct TrackedArea {
    pub(crate) index: SnapshotIndex,
    /// Previously captured paths and their folders, except those in the index now.
    pub(crate) captured: HashSet<Box<[u8]>>,
}

/// Limits on reading, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotLimits {
    /// Limit for one file.
    pub(crate) file_bytes: u64,
    /// Limit for all new content of one snapshot.
    pub(crate) total_bytes: u64,
}

/// One pass over findings.
pub(crate) struct IndexUpdater<'a> {
    root: BorrowedFd<'a>,
    area: &'a mut TrackedArea,
    looked_at: FsTime,
    limits: SnapshotLimits,
    /// Receives new content; `None` if only hashes are wanted.
    blobs: Option<&'a mut PendingBlobs>,
    /// Expected entries: a file of the expected size is hashed regardless of the limit.
    expected: Option<&'a BTreeMap<WorkspacePath, Entry>>,
    delta: BTreeMap<Vec<u8>, (Option<Entry>, Option<Entry>)>,
    touched_folders: BTreeSet<Vec<u8>>,
    left_out: BTreeMap<Vec<u8>, OmissionReason>,
    open_parent: Option<(Vec<u8>, OwnedFd)>,
    /// An error that stopped the pass and is not specific to a path (no descriptors left, a disk error).
    fatal_error: Option<(Vec<u8>, Errno)>,
    files_read: usize,
}

/// The outcome of a pass, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct IndexChanges {
    pub(crate) changes: Vec<PathChange>,
    pub(crate) left_out: Vec<OmittedPath>,
    pub(crate) files_read: usize,
}

impl<'a> IndexUpdater<'a> {
    pub(crate) fn new(
        root: BorrowedFd<'a>,
        area: &'a mut TrackedArea,
        looked_at: FsTime,
        limits: SnapshotLimits,
    ) -> Self {
        Self {
            root,
            area,
            looked_at,
            limits,
            blobs: None,
            expected: None,
            delta: BTreeMap::new(),
            touched_folders: BTreeSet::new(),
            left_out: BTreeMap::new(),
            open_parent: None,
            fatal_error: None,
            files_read: 0,
        }
    }

    pub(crate) fn with_blobs(mut self, blobs: &'a mut PendingBlobs) -> Self {
        self.blobs = Some(blobs);
        self
    }

    pub(crate) fn with_expected(mut self, entries: &'a BTreeMap<WorkspacePath, Entry>) -> Self {
        self.expected = Some(entries);
        self
    }

    /// Applies the findings of a walk.
    pub(crate) fn apply_findings(&mut self, found: Vec<FolderFindings>) {
        for item in found {
            if let Some(errno) = item.unreadable {
                let path = item.folder;
                match left_out_reason(errno).filter(|_| !path.is_empty()) {
                    Some(_) => self.mark_folder_unreadable(&path),
                    None => self.fatal_error = self.fatal_error.take().or(Some((path.into_vec(), errno))),
                }
                continue;
            }
            if item.changed.is_empty() && item.gone.is_empty() {
                self.area.index.set_listed_stamp(&item.folder, item.listed_stamp);
                continue;
            }
            for name in &item.gone {
                self.remove_path(&item.folder, name);
            }
            for (name, stat, judged) in item.changed {
                self.update_path(&item.folder, &name, stat, judged);
            }
            self.area.index.set_listed_stamp(&item.folder, item.listed_stamp);
            self.touched_folders.insert(item.folder.into_vec());
        }
    }

    /// Updates one existing path.
    pub(crate) fn update_path(
        &mut self,
        folder: &[u8],
        name: &[u8],
        stat: StatData,
        judged: CaptureDecision,
    ) {
        let path = join_path(folder, name);
        self.touched_folders.insert(folder.to_vec());
        let old = self.area.index.slot(folder, name).copied();
        let was_folder = matches!(old.map(|slot| slot.state), Some(SlotState::Folder { .. }));
        let stays_folder = was_folder
            && stat.kind() == FileKind::Folder
            && matches!(judged, CaptureDecision::Capture { .. });
        if was_folder && !stays_folder {
            self.remove_subtree(&path);
        }
        let what = match (judged, stat.kind()) {
            (CaptureDecision::LeaveOut(why), _) => SlotState::LeftOut(why),
            (CaptureDecision::Capture { .. }, FileKind::Special) => {
                SlotState::LeftOut(OmissionReason::NotAFile)
            }
            (CaptureDecision::Capture { ignored }, FileKind::Folder) => {
                self.touched_folders.insert(path.clone());
                let recorded = match old.map(|slot| slot.state) {
                    Some(SlotState::Folder { recorded, .. }) => recorded,
                    Some(SlotState::Captured(_) | SlotState::LeftOut(_)) | None => None,
                };
                SlotState::Folder { recorded, ignored }
            }
            (CaptureDecision::Capture { .. }, FileKind::File | FileKind::Link) => {
                let old_entry = old.and_then(|slot| captured_entry(&slot));
                let read = self.read_path(&path, stat, old_entry);
                return self.record_file(folder, name, path, old, read);
            }
        };
        self.record_change(
            &path,
            old.as_ref().and_then(slot_entry),
            slot_entry(&IndexSlot { stat, racy: false, state: what }),
        );
        if let SlotState::LeftOut(why) = what
            && old.is_none_or(|slot| slot.state != what)
        {
            self.left_out.insert(path, why);
        }
        let racy = what != SlotState::LeftOut(OmissionReason::Ignored) && stat.kind() != FileKind::Folder;
        let racy = racy && stat.is_racy(self.looked_at);
        self.area.index.set_slot(folder, name, IndexSlot { stat, racy, state: what });
    }

    fn record_file(
        &mut self,
        folder: &[u8],
        name: &[u8],
        path: Vec<u8>,
        old: Option<IndexSlot>,
        read: ReadOutcome,
    ) {
        let ReadOutcome { stat, state: what } = read;
        let slot = IndexSlot { stat, racy: stat.is_racy(self.looked_at), state: what };
        self.record_change(&path, old.as_ref().and_then(slot_entry), slot_entry(&slot));
        if let SlotState::LeftOut(why) = what
            && old.is_none_or(|slot| slot.state != what)
        {
            self.left_out.insert(path, why);
        }
        self.area.index.set_slot(folder, name, slot);
    }

    /// Removes one path that no longer exists.
    pub(crate) fn remove_path(&mut self, folder: &[u8], name: &[u8]) {
        self.touched_folders.insert(folder.to_vec());
        let Some(slot) = self.area.index.remove_slot(folder, name) else { return };
        let path = join_path(folder, name);
        if matches!(slot.state, SlotState::Folder { .. }) {
            self.remove_subtree(&path);
        }
        self.record_change(&path, slot_entry(&slot), None);
    }

    fn remove_subtree(&mut self, path: &[u8]) {
        self.remember_captured(path);
        for (name, slot) in self.area.index.remove_folder(path).unwrap_or_default().slots {
            let child = join_path(path, &name);
            if matches!(slot.state, SlotState::Folder { .. }) {
                self.remove_subtree(&child);
            }
            self.record_change(&child, slot_entry(&slot), None);
        }
    }

    fn mark_folder_unreadable(&mut self, path: &[u8]) {
        let (folder, name) = split_path(path);
        self.remove_subtree(path);
        if let Some(slot) = self.area.index.slot(folder, name).copied() {
            self.record_change(path, slot_entry(&slot), None);
            let what = SlotState::LeftOut(OmissionReason::Unreadable);
            self.area.index.set_slot(folder, name, IndexSlot { state: what, ..slot });
            self.left_out.insert(path.to_vec(), OmissionReason::Unreadable);
            self.touched_folders.insert(folder.to_vec());
        }
    }

    fn record_change(&mut self, path: &[u8], old: Option<Entry>, new: Option<Entry>) {
        if old.is_some() && new.is_none() {
            self.remember_captured(path);
        }
        if old != new {
            let first = self.delta.get(path).map_or(old, |(first, _)| *first);
            self.delta.insert(path.to_vec(), (first, new));
        }
    }

    /// A path once captured stays captured, and so do its parent folders.
    fn remember_captured(&mut self, path: &[u8]) {
        insert_with_ancestors(&mut self.area.captured, path);
    }

    /// Ends the pass: folders that became empty or have an unusual mode get their entries.
    ///
    /// # Errors
    /// The path and the reason, if something could not be read that must not count as removed.
    pub(crate) fn finish(mut self) -> Result<IndexChanges, (Vec<u8>, Errno)> {
        if let Some(failed) = self.fatal_error {
            return Err(failed);
        }
        for path in std::mem::take(&mut self.touched_folders) {
            let (folder, name) = split_path(&path);
            let Some(slot) = self.area.index.slot(folder, name).copied() else { continue };
            let SlotState::Folder { recorded, ignored } = slot.state else { continue };
            let mode = slot.stat.permissions();
            let now = (mode != DEFAULT_FOLDER_MODE || !self.area.index.has_content(&path)).then_some(mode);
            if now != recorded {
                self.record_change(&path, recorded.map(folder_entry), now.map(folder_entry));
                let what = SlotState::Folder { recorded: now, ignored };
                self.area.index.set_slot(folder, name, IndexSlot { state: what, ..slot });
            }
        }
        let changes = self.delta.into_iter().filter(|(_, (old, new))| old != new);
        let changes = changes
            .filter_map(|(path, (_, entry))| Some(PathChange { path: WorkspacePath::new(path)?, entry }));
        let left_out = self
            .left_out
            .into_iter()
            .filter_map(|(path, why)| Some(OmittedPath { path: WorkspacePath::new(path)?, why }));
        let (changes, left_out) = (changes.collect(), left_out.collect());
        Ok(IndexChanges { changes, left_out, files_read: self.files_read })
    }

    /// Reads the file or link at `path`.
    fn read_path(&mut self, path: &[u8], stat: StatData, old: Option<Entry>) -> ReadOutcome {
        let left = |why| ReadOutcome { stat, state: SlotState::LeftOut(why) };
        let (folder, name) = split_path(path);
        if self.open_parent.as_ref().is_none_or(|(open, _)| open != folder) {
            match open_folder(self.root, folder) {
                Ok(fd) => self.open_parent = Some((folder.to_vec(), fd)),
                Err(errno) => return self.handle_read_error(path, stat, errno),
            }
        }
        let Some((_, parent)) = &self.open_parent else { return left(OmissionReason::Unreadable) };
        if stat.kind() == FileKind::Link {
            let target = match read_link(parent.as_fd(), name) {
                Ok(target) => target,
                Err(errno) => return self.handle_read_error(path, stat, errno),
            };
            let blob = BlobRef::for_bytes(&target);
            let entry = Entry { kind: EntryKind::Symlink, mode: 0, size: blob.bytes, hash: blob.hash };
            return self.capture_content(entry, target, stat, old);
        }
        let (mut file, opened) = match open_file(parent.as_fd(), name) {
            Ok(opened) => opened,
            Err(errno) => return self.handle_read_error(path, stat, errno),
        };
        let stat = StatData::from_stat(&opened);
        if stat.kind() != FileKind::File {
            return left(OmissionReason::NotAFile);
        }
        let size = u64::try_from(stat.size).unwrap_or(0);
        let mode = stat.permissions();
        if size > self.limits.file_bytes {
            self.files_read +=
                usize::from(self.known_entry(path, old).is_some_and(|known| known.size == size));
            return match Self::read_large_file(&mut file, stat, size, self.known_entry(path, old)) {
                Ok(read) => read,
                Err(error) => self.handle_read_error(path, stat, errno_from_io(&error)),
            };
        }
        self.files_read += 1;
        match read_limited(&mut file, size, self.limits.file_bytes) {
            Ok((bytes, true)) => {
                let blob = BlobRef::for_bytes(&bytes);
                let entry = Entry { kind: EntryKind::File, mode, size: blob.bytes, hash: blob.hash };
                self.capture_content(entry, bytes, stat, old)
            }
            Ok((_, false)) => ReadOutcome { stat, state: SlotState::LeftOut(OmissionReason::TooLarge) },
            Err(error) => self.handle_read_error(path, stat, errno_from_io(&error)),
        }
    }

    /// Handles a read error: the path is left out if the error is specific to it, otherwise the pass ends.
    fn handle_read_error(&mut self, path: &[u8], stat: StatData, errno: Errno) -> ReadOutcome {
        let why = left_out_reason(errno);
        if why.is_none() && self.fatal_error.is_none() {
            self.fatal_error = Some((path.to_vec(), errno));
        }
        ReadOutcome { stat, state: SlotState::LeftOut(why.unwrap_or(OmissionReason::Unreadable)) }
    }

    fn known_entry(&self, path: &[u8], old: Option<Entry>) -> Option<Entry> {
        let expected = self.expected.and_then(|all| all.get(&WorkspacePath::new(path)?).copied());
        expected.or(old)
    }

    /// A file over the limit is kept if its content is already recorded (a large file of the base that was
    /// touched), because that needs no new blob.
    fn read_large_file(
        file: &mut File,
        stat: StatData,
        size: u64,
        known: Option<Entry>,
    ) -> io::Result<ReadOutcome> {
        let out = ReadOutcome { stat, state: SlotState::LeftOut(OmissionReason::TooLarge) };
        let Some(known) = known.filter(|entry| entry.kind == EntryKind::File && entry.size == size) else {
            return Ok(out);
        };
        if hash_file(file)? != known.hash {
            return Ok(out);
        }
        Ok(ReadOutcome { stat, state: SlotState::Captured(Entry { mode: stat.permissions(), ..known }) })
    }

    fn capture_content(
        &mut self,
        entry: Entry,
        bytes: Vec<u8>,
        stat: StatData,
        old: Option<Entry>,
    ) -> ReadOutcome {
        let same_content = old.is_some_and(|old| old.hash == entry.hash && old.kind == entry.kind);
        if let Some(blobs) = &mut self.blobs
            && !same_content
        {
            if blobs.total_bytes() + entry.size > self.limits.total_bytes {
                return ReadOutcome { stat, state: SlotState::LeftOut(OmissionReason::TooLarge) };
            }
            blobs.push(BlobRef { hash: entry.hash, bytes: entry.size }, bytes);
        }
        ReadOutcome { stat, state: SlotState::Captured(entry) }
    }
}

struct ReadOutcome {
    stat: StatData,
    state: SlotState,
}

/// Why a path with this error is left out; `None` if the error is not specific to the path.
const fn left_out_reason(errno: Errno) -> Option<OmissionReason> {
    match errno {
        Errno::EACCES | Errno::EPERM | Errno::ENOENT => Some(OmissionReason::Unreadable),
        Errno::ELOOP | Errno::ENXIO | Errno::ENODEV => Some(OmissionReason::NotAFile),
        _ => None,
    }
}

fn errno_from_io(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn hash_file(file: &mut File) -> io::Result<BlobHash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(BlobHash(*hasher.finalize().as_bytes()))
}

fn captured_entry(slot: &IndexSlot) -> Option<Entry> {
    match slot.state {
        SlotState::Captured(entry) => Some(entry),
        SlotState::Folder { .. } | SlotState::LeftOut(_) => None,
    }
}

/// Returns the entry of a slot in the recorded tree.
pub(crate) fn slot_entry(slot: &IndexSlot) -> Option<Entry> {
    match slot.state {
        SlotState::Captured(entry) => Some(entry),
        SlotState::Folder { recorded, .. } => recorded.map(folder_entry),
        SlotState::LeftOut(_) => None,
    }
}

/// Adds a path and its parent folders to a set of captured ones.
pub(crate) fn insert_with_ancestors(captured: &mut HashSet<Box<[u8]>>, path: &[u8]) {
    let mut path = path;
    while !path.is_empty() && captured.insert(path.into()) {
        path = split_path(path).0;
    }
}
