//! Validates the fields of a card: not empty, not too long. Pure.

use super::super::context::tool_context::ToolOutcome;

/// Longest text, in characters.
const TEXT_CHARS_MAX: usize = 6000;
/// Longest list entry, in characters, and most entries.
const ENTRY_CHARS_MAX: usize = 2000;
const ENTRIES_MAX: usize = 60;

/// Requires a text that is not blank.
///
/// # Errors
/// Describes the problem for the model.
pub(super) fn require_text(field: &str, text: &str) -> Result<String, String> {
    require_bounded(field, text, TEXT_CHARS_MAX)
}

/// Requires entries that are not blank.
///
/// # Errors
/// Describes the problem for the model.
pub(super) fn require_entries(field: &str, entries: &[String]) -> Result<Vec<String>, String> {
    if entries.len() > ENTRIES_MAX {
        return Err(format!("`{field}` has {} entries, more than {ENTRIES_MAX}", entries.len()));
    }
    let entry =
        |(nth, text): (usize, &String)| require_bounded(&format!("{field}[{nth}]"), text, ENTRY_CHARS_MAX);
    entries.iter().enumerate().map(entry).collect()
}

fn require_bounded(field: &str, text: &str, chars_max: usize) -> Result<String, String> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(format!("`{field}` is empty")),
        many if many > chars_max => Err(format!("`{field}` has {many} characters, more than {chars_max}")),
        _ => Ok(text.to_owned()),
    }
}

/// The tool's answer to a card: accepted, or the problem.
pub(super) fn card_outcome<T>(name: &str, card: Result<T, String>, taken: &str) -> ToolOutcome {
    match card {
        Ok(_) => ToolOutcome::ok(taken),
        Err(text) => ToolOutcome::error(name, text),
    }
}
