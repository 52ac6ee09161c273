//! Helper that applies one edit, for tests of the engine's parts.

use crate::{Edit, EditHint, apply_edits};

/// Applies an edit without a hint and returns the new file, or the refusal.
pub(super) fn apply_edit(before: &str, search: &str, replace: &str) -> Result<String, String> {
    let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
    apply_edits(before.as_bytes(), &[edit])
        .map(|applied| String::from_utf8(applied.after).expect("text"))
        .map_err(|error| error.message)
}
