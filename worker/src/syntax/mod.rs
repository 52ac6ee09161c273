//! What tree-sitter's grammars tell of a file: whether an edit adds errors that a parser sees (the syntax
//! gate), what is defined at which line (the outline), and what is text within code (the literals).
//!
//! A file is parsed before and after; what counts is the difference, so that a file that was broken
//! before, or that a grammar does not know in full, is nobody's fault. Pure: bytes and a file's name in,
//! a verdict out. Words that are newer than a grammar are known (`newer`). A parse that would take too long is told, never waited for. Called by the file tools
//! and quick fixes.

mod comparison;
mod errors;
mod language;
mod literals;
mod newer_syntax;
mod outline;
#[cfg(test)]
mod tests;

pub use comparison::{AddedErrors, PARSED_BYTES_MAX, SyntaxVerdict, compare_syntax};
pub(crate) use errors::ParseLimitExceeded;
pub use language::must_parse;
pub use literals::StringLiterals;
pub use outline::{OutlineEntry, outline};

/// Steps of a shell line's parse, in hundreds. The longest line that is run takes some 700; what takes more is made to
/// (a step costs the more, the more commands stand in one pipe).
const SHELL_STEPS_MAX: u32 = 1000;

/// What bash's grammar makes of a line.
pub(crate) fn parse_shell(line: &[u8]) -> Result<tree_sitter::Tree, ParseLimitExceeded> {
    errors::parse_tree_within(language::SourceLanguage::Bash, line, SHELL_STEPS_MAX)
}
