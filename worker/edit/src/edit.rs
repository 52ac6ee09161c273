//! One edit as a model asks for it: the text to find, the text to put there, and which place is meant.

/// Edits of one call. More is a rewrite and hides which of them failed.
pub const EDITS_MAX: usize = 64;

/// Bytes of one search or replacement: larger ones are whole files.
pub const SEARCH_BYTES_MAX: usize = 512 * 1024;

/// A search and what shall stand in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Text of the file, as the model remembers it.
    pub search: String,
    /// The same text as it shall be.
    pub replace: String,
    /// Which place is meant where there are several.
    pub hint: EditHint,
}

/// Which of several places an edit means. Absent by default: then exactly one is required.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EditHint {
    /// The place nearest to this line, counted from 1.
    pub near_line: Option<usize>,
    /// The n-th place from the top, counted from 1.
    pub occurrence: Option<usize>,
    /// All places, of which there are this many.
    pub replace_all: Option<usize>,
    /// What the form that the edit was read from says of its place.
    pub anchor: Option<HunkAnchor>,
    /// Search and replacement are whole lines: a match within a line is none.
    pub whole_lines: bool,
}

/// What a patch says of the place of a hunk beside the lines it quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkAnchor {
    /// It begins at this line, counted from 1. Counts only for a match that begins there exactly:
    /// models get these numbers wrong.
    Line(usize),
    /// It follows lines that read so, but for the blanks around them, each below the one before it.
    AfterLines(Vec<String>),
    /// It ends with the file.
    EndOfFile,
    /// It only adds lines, below this line, counted from 1; at the top where that is 0.
    BelowLine(usize),
}
