//! What a search came to: the place it was found at, or why there is no one place.

use docket_schema::tool::EditLevel;

/// Where a search was found, and how its lines stand to the file's.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) level: EditLevel,
    pub(super) search: Vec<String>,
    pub(super) replace: Vec<String>,
    /// For each line of the search the file's line it stands for.
    pub(super) align: Vec<Option<usize>>,
}

impl Match {
    /// First and last line of the file that the search stands for.
    pub(super) fn region(&self) -> std::ops::Range<usize> {
        aligned_region(&self.align)
    }
}

/// As [`Found::region`], of an alignment alone.
pub(super) fn aligned_region(align: &[Option<usize>]) -> std::ops::Range<usize> {
    let first = align.iter().flatten().min().copied().unwrap_or(0);
    first..align.iter().flatten().max().map_or(first, |last| last + 1)
}

/// Why there is no one place.
#[derive(Debug)]
pub(super) enum NoMatch {
    /// Several places match equally; the lines of each, from 0. `alike` where they only resemble the
    /// search: no hint decides there.
    Ambiguous { places: Vec<std::ops::Range<usize>>, only_similar: bool },
    /// A hint does not fit the places that match; the lines of each, from 0.
    HintMismatch { reason: String, places: Vec<std::ops::Range<usize>> },
    /// Nothing matches well enough.
    NotFound,
    /// Something similar was found that may be another statement; from 0.
    Uncertain(std::ops::Range<usize>),
    /// Which text of the file a mark of hidden text stands for is not certain, and why not.
    UnresolvedRedaction(String),
}
