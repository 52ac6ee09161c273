//! One edit, for tests of the engine's parts.

use crate::{Edit, Hint, apply};

/// What an edit without a hint makes of a file, or why it is refused.
pub(super) fn made(before: &str, search: &str, replace: &str) -> Result<String, String> {
    let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() };
    apply(before.as_bytes(), &[edit])
        .map(|applied| String::from_utf8(applied.after).expect("text"))
        .map_err(|error| error.message)
}
