//! One edit, for tests of the engine's parts.

use crate::{Edit, EditHint, apply_edits};

/// What an edit without a hint makes of a file, or why it is refused.
pub(super) fn apply_edit(before: &str, search: &str, replace: &str) -> Result<String, String> {
    let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
    apply_edits(before.as_bytes(), &[edit])
        .map(|applied| String::from_utf8(applied.after).expect("text"))
        .map_err(|error| error.message)
}
