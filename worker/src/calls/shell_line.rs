//! The shell line that a call comes to, in the words that policy and labels read. Pure.

use crate::shell::quote;

/// What a call runs, as policies and people read it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ShellLine {
    /// The shell line, without what docket puts around it.
    pub(crate) command: String,
    /// Where, in the workspace.
    pub(crate) cwd: Option<String>,
    /// Files that it may write, where the line alone does not tell.
    pub(crate) written_paths: Vec<String>,
    /// Files that it names and only reads.
    pub(crate) read_paths: Vec<String>,
}

/// Words as one line.
pub(crate) fn join_quoted<T: AsRef<str>>(words: &[T]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}
