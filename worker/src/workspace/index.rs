//! What the last snapshot saw: per path the stat data that spares reading a file again, and what was kept.
//!
//! Grouped by folder, for that is how a walk asks. Lives in memory only: a process that takes a workspace up
//! builds it by restoring. Used by walk, merge, materialize and restore.

use std::collections::HashMap;

use docket_schema::snapshot::{Entry, LeftOutWhy};
use nix::sys::stat::{FileStat, SFlag};

/// An instant of the file system: seconds and nanoseconds.
pub(super) type FsTime = (i64, i64);

/// What has to be equal for a path to count as untouched. Of a folder only the mode counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) mode: u32,
    pub(super) size: i64,
    pub(super) mtime: FsTime,
    pub(super) ctime: FsTime,
    pub(super) inode: u64,
}

/// The kind of thing that `lstat` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Link,
    Folder,
    Special,
}

impl Stat {
    pub(super) fn of(stat: &FileStat) -> Self {
        let mut seen = Self {
            mode: stat.st_mode,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        };
        if seen.kind() == Kind::Folder {
            // These change with every name inside, which the walk sees anyway.
            seen = Self { size: 0, mtime: (0, 0), ctime: (0, 0), inode: 0, ..seen };
        }
        seen
    }

    pub(super) fn kind(&self) -> Kind {
        match SFlag::from_bits_truncate(self.mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFLNK => Kind::Link,
            SFlag::S_IFDIR => Kind::Folder,
            _ => Kind::Special,
        }
    }

    pub(super) const fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether a later write could leave this stat data as it is: the file was touched in the very tick in
    /// which it was looked at. git calls such an entry racy.
    pub(super) fn is_racy(&self, looked_at: FsTime) -> bool {
        self.mtime >= looked_at || self.ctime >= looked_at
    }
}

/// What a snapshot did with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
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
pub(super) struct Slot {
    pub(super) stat: Stat,
    pub(super) racy: bool,
    pub(super) what: What,
}

impl Slot {
    /// Whether this is a captured file or link that nobody touched: what nearly every path is.
    pub(super) fn is_untouched_file(&self, now: Stat) -> bool {
        matches!(self.what, What::Kept(_)) && self.stat == now && !self.racy
    }
}

/// The slots of one folder, by name.
pub(super) type Folder = HashMap<Box<[u8]>, Slot>;

/// All slots, by folder; the root is the empty name.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    folders: HashMap<Box<[u8]>, Folder>,
}

impl Index {
    pub(super) fn folder(&self, path: &[u8]) -> Option<&Folder> {
        self.folders.get(path)
    }

    pub(super) fn slot(&self, folder: &[u8], name: &[u8]) -> Option<&Slot> {
        self.folders.get(folder)?.get(name)
    }

    pub(super) fn set(&mut self, folder: &[u8], name: &[u8], slot: Slot) {
        if let Some(slots) = self.folders.get_mut(folder) {
            slots.insert(name.into(), slot);
        } else {
            self.folders.insert(folder.into(), HashMap::from([(name.into(), slot)]));
        }
    }

    pub(super) fn take(&mut self, folder: &[u8], name: &[u8]) -> Option<Slot> {
        self.folders.get_mut(folder)?.remove(name)
    }

    pub(super) fn take_folder(&mut self, path: &[u8]) -> Option<Folder> {
        self.folders.remove(path)
    }

    /// How many things in `folder` count as its content: what is captured, and folders that are entered.
    pub(super) fn holds(&self, folder: &[u8]) -> bool {
        self.folders.get(folder).is_some_and(|slots| {
            slots.values().any(|slot| match slot.what {
                What::Kept(_) | What::Folder { .. } => true,
                What::Out(_) => false,
            })
        })
    }

    /// Every slot with its folder and name, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &Slot)> {
        self.folders.iter().flat_map(|(folder, slots)| {
            slots.iter().map(move |(name, slot)| (folder.as_ref(), name.as_ref(), slot))
        })
    }

    /// How many folders it knows.
    pub(super) fn folder_count(&self) -> usize {
        self.folders.len()
    }
}
