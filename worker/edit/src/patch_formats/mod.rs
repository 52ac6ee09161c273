//! The other forms in which models write edits: apply_patch, unified diff, SEARCH/REPLACE blocks.
//!
//! Each is read into the engine's own edits and nothing more: the same locating, guards, refusal of
//! overlaps and all-or-nothing hold for it. Numbers in headers never find a place. What a form can
//! say and an edit of one file cannot do (add, delete, move) is refused with the tool that can.

mod apply_patch;
mod error;
mod hunk;
mod parse;
mod search_replace_blocks;
#[cfg(test)]
mod tests;
mod unified;

pub use error::PatchParseError;
pub(super) use parse::{is_patch, is_patch_marker};
pub use parse::{is_same_file, parse_patch, patch_files};
