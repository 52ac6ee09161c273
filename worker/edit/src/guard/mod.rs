//! Refuses edits that must not be applied: a match of a different statement, or text that does not
//! belong in a file.

pub(crate) mod already_inserted;
pub(crate) mod antonyms;
pub(crate) mod copied_markup;
pub(crate) mod elision;
pub(crate) mod nesting;
pub(crate) mod new_file_content;
pub(crate) mod over_escaping;
pub(crate) mod placeholder;
pub(crate) mod same_statement;
pub(crate) mod wrappers;
