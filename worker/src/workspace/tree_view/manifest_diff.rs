//! Compares recorded trees: the tree at a turn, and the differences between two trees.
//!
//! Used by replay, `diff`, `show` and the stepper. Reads blobs and the cached base, never a workspace. Files
//! that are binary or too large to compare line by line are only reported as such.

use std::time::Duration;

use docket_schema::{
    content::WorkspacePath,
    snapshot::{Entry, EntryKind, Manifest, PathChange},
};
use similar::{Algorithm, TextDiff};

use crate::workspace::{
    blobs::BlobReader,
    content_reader::{ContentReader, ContentsError},
};

/// Files above this size, in bytes, are not compared line by line: such a difference is not readable and
/// would stall a screen.
const DIFF_BYTES_MAX: u64 = 1024 * 1024;

/// Time limit for refining one file's difference; after it the result is correct but coarser.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Lines of unchanged text around a change.
const CONTEXT_LINES: usize = 3;

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    pub path: WorkspacePath,
    /// The old entry; `None` = nothing.
    pub old: Option<Entry>,
    /// The new entry; `None` = nothing.
    pub new: Option<Entry>,
    /// The difference of the contents.
    pub change: ChangeView,
}

/// A difference, as far as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeView {
    /// A unified diff with its two header lines.
    Text(String),
    /// Not text.
    Binary,
    /// Too large to compare.
    TooLarge,
    /// The content is the same: only kind or mode differ, or it is a folder.
    ModeOnly,
}

/// Applies `changes` to `base`, turn by turn in order, and returns the resulting tree.
pub fn apply_changes<'c>(base: &Manifest, changes: impl IntoIterator<Item = &'c PathChange>) -> Manifest {
    let mut manifest = base.clone();
    manifest.apply_changes(changes);
    manifest
}

/// Returns the differences between two trees, in byte order of the paths.
///
/// # Errors
/// [`ContentsError`] if a content cannot be read.
pub async fn diff_manifests<B: BlobReader>(
    old: &Manifest,
    new: &Manifest,
    contents: &ContentReader<'_, B>,
) -> Result<Vec<FileDiff>, ContentsError> {
    let mut paths: Vec<&WorkspacePath> = old.entries.keys().chain(new.entries.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut differences = Vec::new();
    for path in paths {
        let (before, after) = (old.entries.get(path).copied(), new.entries.get(path).copied());
        if before != after {
            let change = compare_entries(path, before, after, contents).await?;
            differences.push(FileDiff { path: path.clone(), old: before, new: after, change });
        }
    }
    Ok(differences)
}

async fn compare_entries<B: BlobReader>(
    path: &WorkspacePath,
    old: Option<Entry>,
    new: Option<Entry>,
    contents: &ContentReader<'_, B>,
) -> Result<ChangeView, ContentsError> {
    let shown = |entry: Option<Entry>| entry.filter(|entry| entry.kind != EntryKind::Dir);
    let (from, to) = (shown(old), shown(new));
    if from.map(|entry| entry.hash) == to.map(|entry| entry.hash) {
        return Ok(ChangeView::ModeOnly);
    }
    if from.into_iter().chain(to).any(|entry| entry.size > DIFF_BYTES_MAX) {
        return Ok(ChangeView::TooLarge);
    }
    let before = match from {
        Some(entry) => contents.read_entry(&entry).await?,
        None => bytes::Bytes::new(),
    };
    let after = match to {
        Some(entry) => contents.read_entry(&entry).await?,
        None => bytes::Bytes::new(),
    };
    let (Some(before), Some(after)) = (as_text(&before), as_text(&after)) else {
        return Ok(ChangeView::Binary);
    };
    let name = |side: &str, entry: Option<Entry>| match entry {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let diff =
        TextDiff::configure().algorithm(Algorithm::Myers).timeout(DIFF_TIMEOUT).diff_lines(before, after);
    let mut unified = diff.unified_diff();
    let unified = unified.context_radius(CONTEXT_LINES).header(&name("a", from), &name("b", to));
    Ok(ChangeView::Text(unified.to_string()))
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}
