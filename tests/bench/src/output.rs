//! What is printed: figures on standard output, and what goes on meanwhile on standard error.

use std::io::{self, Write as _};

/// Prints a line of the result.
pub(crate) fn print_line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints a line for the person who waits. Line breaks in it become blanks.
pub(crate) fn print_progress(text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nobody is left to be told where standard error is gone.
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// For whom the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// People.
    Text,
    /// Programs.
    Json,
}
