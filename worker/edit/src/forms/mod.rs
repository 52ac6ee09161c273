//! The other forms in which models write edits: apply_patch, unified diff, SEARCH/REPLACE blocks.
//!
//! Each is read into the engine's own edits and nothing more: the same locating, guards, refusal of
//! overlaps and all-or-nothing hold for it. Numbers in headers never find a place. What a form can
//! say and an edit of one file cannot do (add, delete, move) is refused with the tool that can.

mod apply_patch;
mod blocks;
mod error;
mod hunk;
mod read;
#[cfg(test)]
mod tests;
mod unified;

pub use error::FormError;
pub(super) use read::{is_form, marks};
pub use read::{patch_files, read_patch, same_file as is_same_file};
