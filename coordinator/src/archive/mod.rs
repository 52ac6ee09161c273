//! The archive: tasks that ended long ago, moved out of the log into files of a folder or a bucket, and back.
//!
//! A family goes together: every run that shares history with another of it, their tasks, and those tasks'
//! other runs. It is copied into a file, the file is read back from where it went and proven, and then one
//! transaction removes its streams and leaves a stub of each ([`crate::store`]). A coordinator that dies in
//! between loses nothing: until the transaction the streams are in the log, and the next copy has the same
//! name and replaces the file. Nothing here ever deletes a file.
//!
//! Called by the routes, the periodic task, and commands that read an archived run in a store of its own.

mod family;
mod file;
mod place;
mod round;

pub use file::{FileError, Unpacked, unpack, verify_file};
pub use place::{Place, PlaceError, is_place};
pub use round::{
    ArchiveDies, ArchiveSettings, Archiver, Asked, KeepFor, RestoreFailed, Retention, fetch, restore,
};
