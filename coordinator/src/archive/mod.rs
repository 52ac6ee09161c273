//! The archive: tasks that ended long ago, moved out of the log into files of a folder or a bucket, and back.
//!
//! A family goes together: every run that shares history with another of it, their tasks, and those tasks'
//! other runs. It is copied into a file, the file is read back from where it went and proven, and then one
//! transaction removes its streams and leaves a stub of each ([`crate::store`]). A coordinator that dies in
//! between loses nothing: until the transaction the streams are in the log, and the next copy of the same bytes has
//! the same name. A file's name has the hash of its bytes, so that no other build, and no later copy, ever writes
//! other bytes where a stub (of this database, or of a backup of it) looks for these. Nothing here deletes a file.
//!
//! A stub says where its file was put. It is looked for where the archive is now, then there: an archive may be
//! moved, and a database brought to another machine.
//!
//! Called by the routes, the periodic task, and commands that read an archived run in a store of its own.

mod archive_file;
mod archiver;
mod lineage_group;

pub use crate::object_storage::{ObjectStorage, ObjectStorageError, is_storage_url};
pub use archive_file::{ArchiveFileError, RestoredGroup, unpack_file, verify_file};
pub use archiver::{
    ArchiveAccessError, ArchiveFailpoint, ArchivePassRequest, ArchiveSettings, KeepFor, RetentionPolicy,
    TaskArchiver, fetch_file, find_storage, restore_group,
};
