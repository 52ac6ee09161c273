//! The edit engine: bytes and search/replace pairs in, bytes out. Pure; no IO, no clock.
//!
//! Other forms that models write are read into the same edits.
//!
//! A pair is taken for a patch: the one region of the file that the search speaks of is found, then
//! the difference between search and replace is merged onto the file's own lines. Called by the
//! `edit_file` tool and by whatever else writes parts of files.
//!
//! Invariants: all edits of a call are matched against the original and applied together or not at
//! all; at each level all matches are computed and exactly one is required; lines that the edit does
//! not change keep their bytes; nothing is removed that the search did not quote.

mod edit;
mod explain;
mod guard;
mod jsonl;
mod matching;
mod merge;
mod patch_formats;
mod pattern;
mod plan;
#[cfg(test)]
mod plan_tests;
mod repair;
mod search_doc;
mod search_match;
mod similarity;
#[cfg(test)]
mod test_support;
mod text;
mod tokens;

pub use edit::{EDITS_MAX, Edit, EditHint, HunkAnchor, SEARCH_BYTES_MAX};
pub use explain::diff::unified_diff;
pub use guard::new_file_content::new_file_markup_reason;
pub use jsonl::edit_jsonl;
pub use patch_formats::{PatchParseError, is_same_file, parse_patch, patch_files};
pub use plan::{AppliedEdits, EditError, apply_edits};
