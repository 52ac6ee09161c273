//! Words that a card is made of: there, and not too long. Pure.

use super::super::context::tool_context::ToolOutcome;

/// Characters of a text.
const TEXT_CHARS_MAX: usize = 6000;
/// Characters of an entry of a list, and entries.
const ENTRY_CHARS_MAX: usize = 2000;
const ENTRIES_MAX: usize = 60;

/// A text that says something.
///
/// # Errors
/// What is wrong with it, for the model.
pub(super) fn require_text(field: &str, text: &str) -> Result<String, String> {
    require_bounded(field, text, TEXT_CHARS_MAX)
}

/// Entries that each say something.
///
/// # Errors
/// What is wrong with them, for the model.
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

/// The answer to a card: it is taken, or what is wrong with it.
pub(super) fn card_outcome<T>(name: &str, card: Result<T, String>, taken: &str) -> ToolOutcome {
    match card {
        Ok(_) => ToolOutcome::ok(taken),
        Err(text) => ToolOutcome::error(name, text),
    }
}
