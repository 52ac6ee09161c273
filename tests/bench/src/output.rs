//! Output: figures on standard output, progress on standard error.

use std::io::{self, Write as _};

/// Prints a line of the result.
pub(crate) fn print_line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints a progress line. Line breaks in it become spaces.
pub(crate) fn print_progress(text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // If standard error is closed, there is no one to notify.
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// The audience of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// People.
    Text,
    /// Programs.
    Json,
}
