//! The archive: moves tasks that ended long ago from the log into files in a folder or bucket, and back.
//!
//! Streams that share history are archived as one lineage group: the runs, their tasks, and those tasks'
//! other runs. The group is copied into a file, the file is read back from its destination and verified, and
//! then one transaction removes the streams and leaves a stub for each ([`crate::store`]). A coordinator that
//! dies in between loses nothing: until the transaction the streams are in the log, and the next copy of the
//! same bytes gets the same name. The name contains the hash of the content, so no other build and no later
//! copy can overwrite a file that a stub (of this database or of a backup) refers to. Nothing here deletes a
//! file.
//!
//! A stub records where its file was written. The file is looked up in the configured archive first and then
//! at the recorded location, so an archive can be moved and a database can be copied to another machine.
//!
//! Called by the HTTP routes, by the background job, and by commands that read an archived run through a
//! temporary store.

mod archive_file;
mod archiver;
mod lineage_group;

pub use crate::object_storage::{ObjectStorage, ObjectStorageError, is_storage_url};
pub use archive_file::{ArchiveFileError, RestoredGroup, unpack_file, verify_file};
pub use archiver::{
    ArchiveAccessError, ArchiveFailpoint, ArchivePassRequest, ArchiveSettings, KeepFor, RetentionPolicy,
    TaskArchiver, fetch_file, find_storage, restore_group,
};
