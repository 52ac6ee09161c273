//! What the last snapshot saw: per path the stat data that spares reading a file again, and what was kept.
//!
//! Grouped by folder, for that is how a walk asks. A folder has a stamp of its own: while it stands, the folder
//! holds the names that the index has and no others, and a walk need not list it. Lives in memory only: a
//! process that takes a workspace up builds it by restoring. Used by walk, merge, materialize and restore.

use std::collections::HashMap;

use docket_schema::snapshot::{Entry, OmissionReason};

use crate::workspace::disk::file_stat::{FolderStamp, StatData};

/// What a snapshot did with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// A file or link, captured.
    Captured(Entry),
    /// A folder that is entered. `recorded` is the mode of its own entry, where it has one; `ignored` says
    /// that the rules name it and only what was captured before is looked at inside.
    Folder { recorded: Option<u32>, ignored: bool },
    /// Left out.
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
    /// Whether this is a captured file or link that nobody touched: what nearly every path is.
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
    /// What the folder was when its names were last listed whole; `None` where that says nothing of what it
    /// holds now.
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

    /// Notes that all names of `folder` are known as of this stamp.
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

    /// Whether anything in `folder` counts as its content: what is captured, and folders that are entered.
    pub(crate) fn has_content(&self, folder: &[u8]) -> bool {
        self.folders.get(folder).is_some_and(|known| {
            known.slots.values().any(|slot| match slot.state {
                SlotState::Captured(_) | SlotState::Folder { .. } => true,
                SlotState::LeftOut(_) => false,
            })
        })
    }

    /// Every slot with its folder and name, in no order.
    pub(crate) fn iter_slots(&self) -> impl Iterator<Item = (&[u8], &[u8], &IndexSlot)> {
        self.folders.iter().flat_map(|(folder, known)| {
            known.slots.iter().map(move |(name, slot)| (folder.as_ref(), name.as_ref(), slot))
        })
    }

    /// How many folders it knows.
    pub(crate) fn folder_count(&self) -> usize {
        self.folders.len()
    }
}
