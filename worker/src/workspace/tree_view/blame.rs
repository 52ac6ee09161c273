//! Attributes each line of a file to the change that wrote it, by carrying line differences forward from
//! version to version.
//!
//! [`LineAuthors`] is pure: it receives the versions of a file in order. [`blame`] passes it the versions of
//! a run, reading only the contents of this file. In a file that was removed and restored, every line is new;
//! in a renamed file, every line is new at its new name.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use docket_schema::snapshot::{Entry, EntryKind};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::path_history::PathChangeEvent;
use crate::workspace::{
    blobs::BlobReader,
    content_reader::{ContentReader, ContentsError},
};

/// Files above this size, in bytes, are not blamed: comparing that many lines would stall a screen. A version
/// above it counts as completely rewritten.
pub const BLAME_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a file cannot be blamed.
#[derive(Debug, thiserror::Error)]
pub enum BlameError {
    /// The path does not exist.
    #[error("the file does not exist after that turn")]
    NotFound,
    /// A folder or a link.
    #[error("it is a {0}, not a file with lines; `docket cat` shows it")]
    NotAFile(&'static str),
    /// Not text.
    #[error(
        "it is binary (it contains a zero byte), so it has no lines; `docket diff` lists the turns that changed it"
    )]
    Binary,
    /// Too many lines.
    #[error("it has {bytes} bytes; blame is limited to files of at most {BLAME_BYTES_MAX} bytes")]
    TooLarge {
        /// The file's size.
        bytes: u64,
    },
    /// A version could not be read.
    #[error("a recorded version of the file could not be read")]
    Contents(#[from] ContentsError),
}

/// A line and the change that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedLine {
    /// The line, including its line feed if it has one.
    pub text: Bytes,
    /// The index of the change that wrote it; `None` = the base.
    pub change_index: Option<usize>,
}

/// The lines of a file after the versions added so far, with their authors.
#[derive(Debug, Clone, Default)]
pub struct LineAuthors<A> {
    lines: Vec<(Bytes, A)>,
}

impl<A: Clone> LineAuthors<A> {
    /// Creates an instance without versions.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds the next version of the file; `None` = removed. Lines that the previous version also had, in the
    /// same order, keep their authors.
    pub fn add_version(&mut self, content: Option<&Bytes>, author: &A) {
        let new: Vec<Bytes> = content.map_or_else(Vec::new, split_lines);
        let mut kept: Vec<Option<A>> = vec![None; new.len()];
        for (old, at) in match_lines(&self.lines, &new) {
            kept[at] = Some(self.lines[old].1.clone());
        }
        let authors = kept.into_iter().map(|kept| kept.unwrap_or_else(|| author.clone()));
        self.lines = new.into_iter().zip(authors).collect();
    }

    /// Returns the lines with their authors.
    pub fn into_lines(self) -> Vec<(Bytes, A)> {
        self.lines
    }
}

fn split_lines(content: &Bytes) -> Vec<Bytes> {
    content.split_inclusive(|b| *b == b'\n').map(|line| content.slice_ref(line)).collect()
}

/// Returns the positions of lines common to both, in order.
///
/// A line that only one side has cannot match, so such lines are removed before the search: a completely
/// rewritten file needs no search at all.
fn match_lines<A>(old: &[(Bytes, A)], new: &[Bytes]) -> Vec<(usize, usize)> {
    let mut ids: HashMap<&[u8], u32> = HashMap::new();
    for (line, _) in old {
        let next = u32::try_from(ids.len()).expect("a file of limited size has fewer lines");
        ids.entry(line).or_insert(next);
    }
    let of_new: Vec<(usize, u32)> =
        new.iter().enumerate().filter_map(|(at, line)| Some((at, *ids.get(&line[..])?))).collect();
    let mut seen = vec![false; ids.len()];
    for (_, id) in &of_new {
        seen[*id as usize] = true;
    }
    let of_old = old.iter().enumerate().map(|(at, (line, _))| (at, ids[&line[..]]));
    let of_old: Vec<(usize, u32)> = of_old.filter(|(_, id)| seen[*id as usize]).collect();
    let only_ids = |side: &[(usize, u32)]| side.iter().map(|(_, id)| *id).collect::<Vec<u32>>();
    let ops = capture_diff_slices(Algorithm::Myers, &only_ids(&of_old), &only_ids(&of_new));
    let equal = ops.into_iter().filter_map(|op| match op {
        DiffOp::Equal { old_index, new_index, len } => Some((old_index..old_index + len, new_index)),
        DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => None,
    });
    let pairs = |(range, start): (Range<usize>, usize)| range.zip(start..);
    equal.flat_map(pairs).map(|(from, to)| (of_old[from].0, of_new[to].0)).collect()
}

/// Attributes each line of the current file at a path to one of `touches`, all changes of that path so far.
/// `base` is the entry at the start. Reads one content per change.
///
/// # Errors
/// [`BlameError`] if the file is missing, not text or too large, or a version cannot be read.
pub async fn blame<B: BlobReader>(
    base: Option<Entry>,
    touches: &[PathChangeEvent],
    contents: &ContentReader<'_, B>,
) -> Result<Vec<BlamedLine>, BlameError> {
    let versions: Vec<(Option<Entry>, Option<usize>)> = std::iter::once((base, None))
        .chain(touches.iter().enumerate().map(|(at, touch)| (touch.entry, Some(at))))
        .collect();
    let last = versions.last().and_then(|(entry, _)| *entry).ok_or(BlameError::NotFound)?;
    match last.kind {
        EntryKind::File => {}
        EntryKind::Symlink => return Err(BlameError::NotAFile("symbolic link")),
        EntryKind::Dir => return Err(BlameError::NotAFile("folder")),
    }
    if last.size > BLAME_BYTES_MAX {
        return Err(BlameError::TooLarge { bytes: last.size });
    }
    let lines_in = |entry: &Entry| entry.kind == EntryKind::File && entry.size <= BLAME_BYTES_MAX;
    let whole = versions.iter().rposition(|(entry, _)| !entry.as_ref().is_some_and(lines_in));
    // Anything before the last version without lines has left nothing behind.
    let since = whole.map_or(0, |at| at + 1);
    let mut authors = LineAuthors::new();
    let mut before = None;
    for (entry, author) in &versions[since..] {
        let Some(entry) = entry else { continue };
        // A change of mode alone is not a new version.
        if before == Some(entry.hash) {
            continue;
        }
        before = Some(entry.hash);
        let content = contents.read_entry(entry).await?;
        authors.add_version(Some(&content), author);
        if entry.hash == last.hash && content.contains(&0) {
            return Err(BlameError::Binary);
        }
    }
    let lines = authors.into_lines().into_iter();
    Ok(lines.map(|(text, touch)| BlamedLine { text, change_index: touch }).collect())
}
