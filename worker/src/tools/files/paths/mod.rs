//! The file tools of the wide set that the core does not have: whole files, names, folders.
//!
//! What they write goes through the [envelope](super::envelope); names are changed beneath folders that no link leads
//! out of, and never git's own or docket's.

mod path_operations;

pub(crate) mod append_file;
pub(crate) mod copy_file;
pub(crate) mod delete_file;
pub(crate) mod make_folder;
pub(crate) mod move_file;
pub(crate) mod stat_file;
pub(crate) mod write_file;
