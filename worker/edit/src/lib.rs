//! The edit engine: takes the bytes of a file and search/replace pairs, and returns the new bytes.
//! Pure: no I/O, no clock.
//!
//! Other formats that models write are parsed into the same edits.
//!
//! A pair is treated as a patch: the engine finds the one region of the file that the search means,
//! then merges the difference between search and replace into the file's own lines. The `edit_file`
//! tool and all other code that writes parts of files use it.
//!
//! Invariants: all edits of a call are matched against the original and applied together or not at
//! all; each level computes all matches and requires exactly one; lines that the edit does not
//! change keep their bytes; nothing is removed that the search did not quote.

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
