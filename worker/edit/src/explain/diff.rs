//! Renders the unified diff of an applied edit.

use similar::TextDiff;

/// Renders the unified diff of two versions of file `name`, with three lines of context.
#[must_use]
pub fn unified_diff(name: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    TextDiff::from_lines(before.as_ref(), after.as_ref())
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string()
}
