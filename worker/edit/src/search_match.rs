//! The result of a search: the place that was found, or why there is no unique place.

use docket_schema::tool::EditLevel;

/// The place of a search, and how its lines align with the file's.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) level: EditLevel,
    pub(super) search: Vec<String>,
    pub(super) replace: Vec<String>,
    /// For each line of the search, the corresponding line of the file.
    pub(super) align: Vec<Option<usize>>,
}

impl Match {
    /// Returns the range from the first to the last aligned line of the file.
    pub(super) fn region(&self) -> std::ops::Range<usize> {
        aligned_region(&self.align)
    }
}

/// Like [`Match::region`], for an alignment alone.
pub(super) fn aligned_region(align: &[Option<usize>]) -> std::ops::Range<usize> {
    let first = align.iter().flatten().min().copied().unwrap_or(0);
    first..align.iter().flatten().max().map_or(first, |last| last + 1)
}

/// Why there is no unique place.
#[derive(Debug)]
pub(super) enum NoMatch {
    /// Several places match equally; holds the lines of each, from 0. With `only_similar` they
    /// merely resemble the search, and a hint cannot decide.
    Ambiguous { places: Vec<std::ops::Range<usize>>, only_similar: bool },
    /// The hint does not fit the places that match; holds the lines of each, from 0.
    HintMismatch { reason: String, places: Vec<std::ops::Range<usize>> },
    /// Nothing matches well enough.
    NotFound,
    /// A similar place (lines from 0) was found that may be a different statement.
    Uncertain(std::ops::Range<usize>),
    /// The text behind a redaction mark is uncertain; holds the reason.
    UnresolvedRedaction(String),
}
