//! One command of a shell line. Pure.

use super::wrappers::strip_wrappers;

/// One command of a line: its words without quotes, and the targets of its redirections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SimpleCommand {
    pub(crate) words: Vec<String>,
    pub(crate) writes_to: Vec<String>,
    pub(crate) is_background: bool,
    /// Whether it runs a line that is not visible here.
    pub(crate) is_opaque: bool,
    /// Index of the first word that bash expands to unknown words: a brace, a glob, a variable, a command
    /// substitution.
    pub(super) expands_at: Option<usize>,
    /// The line that a shell gets through a pipe, until it is read.
    pub(super) piped_line: Option<String>,
}

impl SimpleCommand {
    /// The program's name without its folder and without wrappers (`sudo`, `env A=1`, `timeout 5`).
    pub(crate) fn program(&self) -> &str {
        self.unwrapped_words().first().map_or("", |word| word.rsplit('/').next().unwrap_or(word))
    }

    pub(crate) fn args(&self) -> &[String] {
        self.unwrapped_words().get(1..).unwrap_or_default()
    }

    pub(crate) fn has_word(&self, wanted: &str) -> bool {
        self.words.iter().any(|word| word == wanted)
    }

    /// Returns the program and its arguments before the first one that bash expands; `None` if nothing is expanded.
    /// Empty if the program itself, or a wrapper, is expanded.
    pub(crate) fn words_before_expansion(&self) -> Option<Vec<String>> {
        let at = self.expands_at?;
        let before = at.saturating_sub(self.words.len() - self.unwrapped_words().len());
        let bare = std::iter::once(self.program().to_owned()).chain(self.args().iter().cloned());
        Some(bare.take(before).collect())
    }

    pub(super) fn unwrapped_words(&self) -> &[String] {
        strip_wrappers(&self.words)
    }
}
