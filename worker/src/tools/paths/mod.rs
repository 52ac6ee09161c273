//! The file tools of the wide set that the core does not have: whole files, names, folders.
//!
//! What they write goes through the [envelope](super::envelope); names are changed beneath folders that no link leads
//! out of, and never git's own or docket's.

mod names;

pub(super) mod append_file;
pub(super) mod copy_file;
pub(super) mod delete_file;
pub(super) mod make_folder;
pub(super) mod move_file;
pub(super) mod stat_file;
pub(super) mod write_file;
