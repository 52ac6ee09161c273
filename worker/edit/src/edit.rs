//! One edit as a model requests it: search text, replacement, and an optional hint for the place.

/// Maximum number of edits per call. A call with more is a rewrite, and hides which edit failed.
pub const EDITS_MAX: usize = 64;

/// Maximum size of one search or replacement. A larger text is a whole file.
pub const SEARCH_BYTES_MAX: usize = 512 * 1024;

/// A search text and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Text of the file as the model remembers it.
    pub search: String,
    /// The same text after the change.
    pub replace: String,
    /// Selects the place when several match.
    pub hint: EditHint,
}

/// Selects one of several matching places. The default requires exactly one match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EditHint {
    /// Selects the match nearest to this line, counted from 1.
    pub near_line: Option<usize>,
    /// Selects the n-th match from the top, counted from 1.
    pub occurrence: Option<usize>,
    /// Replaces all matches, of which there must be exactly this many.
    pub replace_all: Option<usize>,
    /// Place information from the patch format the edit was parsed from.
    pub anchor: Option<HunkAnchor>,
    /// Search and replacement are whole lines: a match within a line does not count.
    pub whole_lines: bool,
}

/// Place information of a patch hunk, in addition to the lines it quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkAnchor {
    /// The hunk begins at this line, counted from 1. It counts only for a match that begins exactly
    /// there, because models often get these numbers wrong.
    Line(usize),
    /// The hunk follows these lines in this order, not necessarily adjacent, ignoring surrounding
    /// whitespace.
    AfterLines(Vec<String>),
    /// The hunk ends at the end of the file.
    EndOfFile,
    /// The hunk only adds lines, below this line, counted from 1; 0 means at the top.
    BelowLine(usize),
}
