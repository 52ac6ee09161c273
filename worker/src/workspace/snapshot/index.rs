//! Index of the last snapshot: for each path, the stat data that saves reading the file again, and what was
//! captured.
//!
//! Grouped by folder, because a walk looks paths up that way. Each folder has a stamp: while it is unchanged,
//! the folder contains exactly the indexed names and a walk need not list it. The index is only in memory: a
//! process that opens an existing workspace rebuilds it by restoring. Used by walk, merge, materialize and
//! restore.

use std::collections::HashMap;

use docket_schema::snapshot::{Entry, OmissionReason};

use crate::workspace::disk::file_stat::{FolderStamp, StatData};

/// What a snapshot did with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// A captured file or link.
    Captured(Entry),
    /// A folder that is entered. `recorded` is the mode of its own entry, if it has one; `ignored` means that
    /// the ignore rules match it and only previously captured paths are examined inside.
    Folder { recorded: Option<u32>, ignored: bool },
    /// Left out of the snapshot.
    LeftOut(OmissionReason),
}

/// One path of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexSlot {
    pub(crate) stat: StatData,
    pub(crate) racy: bool,
    pub(crate) state: SlotState,
}

impl IndexSlot {
    /// Whether this is an untouched captured file or link, as nearly every path is.
    pub(crate) fn is_untouched_file(&self, now: StatData) -> bool {
        matches!(self.state, SlotState::Captured(_)) && self.stat == now && !self.racy
    }
}

/// The slots of one folder, by name.
pub(crate) type FolderSlots = HashMap<Box<[u8]>, IndexSlot>;

/// One folder of the index.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexedFolder {
    pub(crate) slots: FolderSlots,
    /// The folder's stamp when its names were last listed completely; `None` if the indexed names may be out
    /// of date.
    pub(crate) listed_stamp: Option<FolderStamp>,
}

/// All slots, by folder; the root is the empty name.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotIndex {
    folders: HashMap<Box<[u8]>, IndexedFolder>,
}

impl SnapshotIndex {
    pub(crate) fn folder(&self, path: &[u8]) -> Option<&IndexedFolder> {
        self.folders.get(path)
    }

    pub(crate) fn slot(&self, folder: &[u8], name: &[u8]) -> Option<&IndexSlot> {
        self.folders.get(folder)?.slots.get(name)
    }

    pub(crate) fn set_slot(&mut self, folder: &[u8], name: &[u8], slot: IndexSlot) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.slots.insert(name.into(), slot);
        } else {
            let slots = HashMap::from([(name.into(), slot)]);
            self.folders.insert(folder.into(), IndexedFolder { slots, listed_stamp: None });
        }
    }

    /// Records that all names of `folder` are known as of this stamp.
    pub(crate) fn set_listed_stamp(&mut self, folder: &[u8], listed: Option<FolderStamp>) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.listed_stamp = listed;
        } else if listed.is_some() {
            self.folders.insert(folder.into(), IndexedFolder { slots: HashMap::new(), listed_stamp: listed });
        }
    }

    pub(crate) fn remove_slot(&mut self, folder: &[u8], name: &[u8]) -> Option<IndexSlot> {
        self.folders.get_mut(folder)?.slots.remove(name)
    }

    pub(crate) fn remove_folder(&mut self, path: &[u8]) -> Option<IndexedFolder> {
        self.folders.remove(path)
    }

    /// Whether `folder` has contents: captured paths or folders that are entered.
    pub(crate) fn has_content(&self, folder: &[u8]) -> bool {
        self.folders.get(folder).is_some_and(|known| {
            known.slots.values().any(|slot| match slot.state {
                SlotState::Captured(_) | SlotState::Folder { .. } => true,
                SlotState::LeftOut(_) => false,
            })
        })
    }

    /// Every slot with its folder and name, in no particular order.
    pub(crate) fn iter_slots(&self) -> impl Iterator<Item = (&[u8], &[u8], &IndexSlot)> {
        self.folders.iter().flat_map(|(folder, known)| {
            known.slots.iter().map(move |(name, slot)| (folder.as_ref(), name.as_ref(), slot))
        })
    }

    pub(crate) fn folder_count(&self) -> usize {
        self.folders.len()
    }
}
