//! File tools of the wide set: whole files, names and folders.
//!
//! They write through a [proposal](super::proposal). Names are changed only below folders that no link leads out of,
//! and never inside git's or docket's own folders.

mod path_operations;

pub(crate) mod append_file;
pub(crate) mod copy_file;
pub(crate) mod delete_file;
pub(crate) mod make_folder;
pub(crate) mod move_file;
pub(crate) mod stat_file;
pub(crate) mod write_file;
