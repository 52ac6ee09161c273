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

mod blanks;
mod copied_markup;
mod crooked;
mod depth;
mod diff;
mod differs;
mod distance;
mod doc;
mod edit;
mod elision;
mod escapes;
mod exact;
mod forms;
mod found;
mod frame;
mod framed;
mod fuzzy;
mod grown;
mod hidden;
mod hint;
mod indent;
mod jsonl;
mod locate;
mod merge;
mod numbers;
mod opposites;
mod pattern;
mod placeholder;
mod plan;
#[cfg(test)]
mod plan_tests;
mod refusal;
mod reindent;
mod sanitize;
mod signed;
mod similarity;
mod statement;
#[cfg(test)]
mod testing;
mod text;
mod tokens;

pub use diff::unified_diff;
pub use edit::{Anchor, EDITS_MAX, Edit, Hint, SEARCH_BYTES_MAX};
pub use forms::{FormError, is_same_file, patch_files, read_patch};
pub use framed::framed;
pub use jsonl::edit_jsonl;
pub use plan::{Applied, EditError, apply};
