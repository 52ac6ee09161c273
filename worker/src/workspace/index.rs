//! What the last snapshot saw: per path the stat data that spares reading a file again, and what was kept.
//!
//! Grouped by folder, for that is how a walk asks. A folder has a stamp of its own: while it stands, the folder
//! holds the names that the index has and no others, and a walk need not list it. Lives in memory only: a
//! process that takes a workspace up builds it by restoring. Used by walk, merge, materialize and restore.

use std::collections::HashMap;

use docket_schema::snapshot::{Entry, LeftOutWhy, PERMISSION_BITS};
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

    /// What a snapshot records of the mode.
    pub(super) const fn permissions(&self) -> u32 {
        self.mode & PERMISSION_BITS
    }

    /// Whether set-user-id, set-group-id and sticky are all clear, as after a restore.
    pub(super) const fn is_plain(&self) -> bool {
        self.mode & 0o7000 == 0
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

/// What has to be equal for a folder to hold the same names as before: whoever makes, removes or renames
/// something in it moves its ctime, which nobody can set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    mtime: FsTime,
    ctime: FsTime,
    inode: u64,
    device: u64,
}

impl Stamp {
    pub(super) fn of(stat: &FileStat) -> Self {
        Self {
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }

    /// As [`Stat::is_racy`].
    pub(super) fn is_racy(&self, looked_at: FsTime) -> bool {
        self.mtime >= looked_at || self.ctime >= looked_at
    }
}

/// The slots of one folder, by name.
pub(super) type Slots = HashMap<Box<[u8]>, Slot>;

/// One folder of the index.
#[derive(Debug, Clone, Default)]
pub(super) struct Folder {
    pub(super) slots: Slots,
    /// What the folder was when its names were last listed whole; `None` where that says nothing of what it
    /// holds now.
    pub(super) listed: Option<Stamp>,
}

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
        self.folders.get(folder)?.slots.get(name)
    }

    pub(super) fn set(&mut self, folder: &[u8], name: &[u8], slot: Slot) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.slots.insert(name.into(), slot);
        } else {
            let slots = HashMap::from([(name.into(), slot)]);
            self.folders.insert(folder.into(), Folder { slots, listed: None });
        }
    }

    /// Notes that all names of `folder` are known as of this stamp.
    pub(super) fn set_listed(&mut self, folder: &[u8], listed: Option<Stamp>) {
        if let Some(known) = self.folders.get_mut(folder) {
            known.listed = listed;
        } else if listed.is_some() {
            self.folders.insert(folder.into(), Folder { slots: HashMap::new(), listed });
        }
    }

    pub(super) fn take(&mut self, folder: &[u8], name: &[u8]) -> Option<Slot> {
        self.folders.get_mut(folder)?.slots.remove(name)
    }

    pub(super) fn take_folder(&mut self, path: &[u8]) -> Option<Folder> {
        self.folders.remove(path)
    }

    /// Whether anything in `folder` counts as its content: what is captured, and folders that are entered.
    pub(super) fn holds(&self, folder: &[u8]) -> bool {
        self.folders.get(folder).is_some_and(|known| {
            known.slots.values().any(|slot| match slot.what {
                What::Kept(_) | What::Folder { .. } => true,
                What::Out(_) => false,
            })
        })
    }

    /// Every slot with its folder and name, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &Slot)> {
        self.folders.iter().flat_map(|(folder, known)| {
            known.slots.iter().map(move |(name, slot)| (folder.as_ref(), name.as_ref(), slot))
        })
    }

    /// How many folders it knows.
    pub(super) fn folder_count(&self) -> usize {
        self.folders.len()
    }
}
