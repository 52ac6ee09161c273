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

mod doc;
mod edit;
mod explain;
mod forms;
mod found;
mod guard;
mod jsonl;
mod matching;
mod merge;
mod pattern;
mod plan;
#[cfg(test)]
mod plan_tests;
mod repair;
mod similarity;
#[cfg(test)]
mod testing;
mod text;
mod tokens;

pub use edit::{Anchor, EDITS_MAX, Edit, Hint, SEARCH_BYTES_MAX};
pub use explain::diff::unified_diff;
pub use forms::{FormError, is_same_file, patch_files, read_patch};
pub use guard::framed::framed;
pub use jsonl::edit_jsonl;
pub use plan::{Applied, EditError, apply};
