//! The unified diff of an edit that was made.

use similar::TextDiff;

/// The difference of two versions of the file `name` in unified form, three lines of context.
#[must_use]
pub fn unified_diff(name: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    TextDiff::from_lines(before.as_ref(), after.as_ref())
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string()
}
