//! Syntax analysis with tree-sitter: whether an edit adds syntax errors (the syntax check), which definitions a file
//! has (the outline), and where its string literals are.
//!
//! A file is parsed before and after an edit and only the difference counts, so an edit is never blamed for a file that
//! was already broken or that the grammar does not fully cover. Pure: bytes and a file name in, a verdict out. Syntax
//! newer than a grammar is handled in `newer_syntax`. A parse that exceeds its step limit is reported as not parsed.
//! Called by the file tools and lint fixes.

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

/// Step limit of a shell line's parse, in hundreds. The longest accepted line takes about 700; a line that takes more
/// is crafted (a step's cost grows with the number of commands in one pipeline).
const SHELL_STEPS_MAX: u32 = 1000;

/// Parses a line with bash's grammar.
pub(crate) fn parse_shell(line: &[u8]) -> Result<tree_sitter::Tree, ParseLimitExceeded> {
    errors::parse_tree_within(language::SourceLanguage::Bash, line, SHELL_STEPS_MAX)
}
