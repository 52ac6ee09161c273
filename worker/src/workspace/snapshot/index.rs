//! What the last snapshot saw: per path the stat data that spares reading a file again, and what was kept.
//!
//! Grouped by folder, for that is how a walk asks. A folder has a stamp of its own: while it stands, the folder
//! holds the names that the index has and no others, and a walk need not list it. Lives in memory only: a
//! process that takes a workspace up builds it by restoring. Used by walk, merge, materialize and restore.

use std::collections::HashMap;

use docket_schema::snapshot::{Entry, LeftOutWhy};

use crate::workspace::disk::file_stat::{Stamp, Stat};

/// What a snapshot did with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A file or link, captured.
    Kept(Entry),
    /// A folder that is entered. `recorded` is the mode of its own entry, where it has one; `ignored` says
    /// that the rules name it and only what was captured before is looked at inside.
    Folder { recorded: Option<u32>, ignored: bool },
    /// Left out.
    Out(LeftOutWhy),
}

/// One path of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) stat: Stat,
    pub(crate) racy: bool,
    pub(crate) what: What,
}

impl Slot {
    /// Whether this is a captured file or link that nobody touched: what nearly every path is.
    pub(crate) fn is_untouched_file(&self, now: Stat) -> bool {
        matches!(self.what, What::Kept(_)) && self.stat == now && !self.racy
    }
}

/// The slots of one folder, by name.
pub(crate) type Slots = HashMap<Box<[u8]>, Slot>;

/// One folder of the index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) slots: Slots,
    /// What the folder was when its names were last listed whole; `None` where that says nothing of what it
    /// holds now.
    pub(crate) listed: Option<Stamp>,
}

/// All slots, by folder; the root is the empty name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    folders: HashMap<Box<[u8]>, Folder>,
}

impl Index {
    pub(crate) fn folder(&self, path: &[u8]) -> Option<&Folder> {
        self.folders.get(path)
    }

    pub(crate) fn slot(&self, folder: &[u8], name: &[u8]) -> Option<&Slot> {
        self.folders.get(folder)?.slots.get(name)
    }

    pub(crate) fn set(&mut self, folder: &[u8], name: &[u8], slot: Slot) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.slots.insert(name.into(), slot);
        } else {
            let slots = HashMap::from([(name.into(), slot)]);
            self.folders.insert(folder.into(), Folder { slots, listed: None });
        }
    }

    /// Notes that all names of `folder` are known as of this stamp.
    pub(crate) fn set_listed(&mut self, folder: &[u8], listed: Option<Stamp>) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.listed = listed;
        } else if listed.is_some() {
            self.folders.insert(folder.into(), Folder { slots: HashMap::new(), listed });
        }
    }

    pub(crate) fn take(&mut self, folder: &[u8], name: &[u8]) -> Option<Slot> {
        self.folders.get_mut(folder)?.slots.remove(name)
    }

    pub(crate) fn take_folder(&mut self, path: &[u8]) -> Option<Folder> {
        self.folders.remove(path)
    }

    /// Whether anything in `folder` counts as its content: what is captured, and folders that are entered.
    pub(crate) fn holds(&self, folder: &[u8]) -> bool {
        self.folders.get(folder).is_some_and(|known| {
            known.slots.values().any(|slot| match slot.what {
                What::Kept(_) | What::Folder { .. } => true,
                What::Out(_) => false,
            })
        })
    }

    /// Every slot with its folder and name, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &Slot)> {
        self.folders.iter().flat_map(|(folder, known)| {
            known.slots.iter().map(move |(name, slot)| (folder.as_ref(), name.as_ref(), slot))
        })
    }

    /// How many folders it knows.
    pub(crate) fn folder_count(&self) -> usize {
        self.folders.len()
    }
}
