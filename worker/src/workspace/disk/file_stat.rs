//! Stat data that tells whether a path was touched.

use docket_schema::snapshot::PERMISSION_BITS;
use nix::sys::stat::{FileStat, SFlag};

/// A file system timestamp: seconds and nanoseconds.
pub(crate) type FsTime = (i64, i64);

/// The fields that must be equal for a path to count as untouched. For a folder only the mode counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatData {
    pub(crate) mode: u32,
    pub(crate) size: i64,
    pub(crate) mtime: FsTime,
    pub(crate) ctime: FsTime,
    pub(crate) inode: u64,
}

/// The kind of file that `lstat` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Link,
    Folder,
    Special,
}

impl StatData {
    pub(crate) fn from_stat(stat: &FileStat) -> Self {
        let mut seen = Self {
            mode: stat.st_mode,
            size: stat.st_size,
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        };
        if seen.kind() == FileKind::Folder {
            // These change with every name inside, which the walk detects anyway.
            seen = Self { size: 0, mtime: (0, 0), ctime: (0, 0), inode: 0, ..seen };
        }
        seen
    }

    pub(crate) fn kind(&self) -> FileKind {
        match SFlag::from_bits_truncate(self.mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => FileKind::File,
            SFlag::S_IFLNK => FileKind::Link,
            SFlag::S_IFDIR => FileKind::Folder,
            _ => FileKind::Special,
        }
    }

    /// The mode bits that a snapshot records.
    pub(crate) const fn permissions(&self) -> u32 {
        self.mode & PERMISSION_BITS
    }

    /// Whether set-user-id, set-group-id and sticky are all clear, as after a restore.
    pub(crate) const fn has_no_special_bits(&self) -> bool {
        self.mode & 0o7000 == 0
    }

    /// Whether a later write could leave this stat data unchanged, because the file was modified in the same
    /// clock tick in which it was examined. git calls such an entry racy.
    pub(crate) fn is_racy(&self, looked_at: FsTime) -> bool {
        self.mtime >= looked_at || self.ctime >= looked_at
    }
}

/// The fields that must be equal for a folder to contain the same names as before: creating, removing or
/// renaming an entry changes the ctime, which cannot be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    mtime: FsTime,
    ctime: FsTime,
    inode: u64,
    device: u64,
}

impl FolderStamp {
    pub(crate) fn from_stat(stat: &FileStat) -> Self {
        Self {
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }

    /// Like [`StatData::is_racy`].
    pub(crate) fn is_racy(&self, looked_at: FsTime) -> bool {
        self.mtime >= looked_at || self.ctime >= looked_at
    }
}
