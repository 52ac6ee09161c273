//! The shell line that a call translates to, as policies and labels read it. Pure.

use crate::shell::quote;

/// The shell line of a call, as policies and people read it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ShellLine {
    /// The shell line, without docket's own wrapping.
    pub(crate) command: String,
    /// Its folder in the workspace.
    pub(crate) cwd: Option<String>,
    /// Files it may write that cannot be derived from the line.
    pub(crate) written_paths: Vec<String>,
    /// Files it names and only reads.
    pub(crate) read_paths: Vec<String>,
}

/// Quotes words and joins them to one line.
pub(crate) fn join_quoted<T: AsRef<str>>(words: &[T]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}
