//! Parsers for the other formats in which models write edits: apply_patch, unified diff,
//! SEARCH/REPLACE blocks.
//!
//! Each is converted into the engine's own edits, so the same matching, guards, overlap checks and
//! all-or-nothing rule apply. Line numbers in headers never find a place. An operation that an edit
//! of one file cannot do (add, delete, move) is refused, and the error names the tool that can.

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
