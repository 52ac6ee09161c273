//! Who wrote each line of a file: line differences from version to version, carried forward.
//!
//! [`LineAuthors`] is pure: it is shown the versions of a file in order. [`blame`] shows it those of a run,
//! reading only what the file once was. A file that is gone and comes back is new in every line; a renamed one
//! is new at its new name.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use docket_schema::snapshot::{Entry, EntryKind};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::path_history::PathChangeEvent;
use crate::workspace::{
    blobs::BlobReader,
    content_reader::{ContentReader, ContentsError},
};

/// Files above this size, in bytes, are not blamed: nobody reads that many lines, and comparing them all
/// would hold up a screen. A version above it counts as written whole.
pub const BLAME_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Why a file is not blamed.
#[derive(Debug, thiserror::Error)]
pub enum BlameError {
    /// Nothing is there.
    #[error("there is no such file after that turn")]
    NotFound,
    /// A folder or a link.
    #[error("it is a {0}, and only files have lines; `docket cat` shows it")]
    NotAFile(&'static str),
    /// Not text.
    #[error(
        "it is binary (it holds a zero byte), so it has no lines; `docket diff` names the turns that changed it"
    )]
    Binary,
    /// Too many lines.
    #[error("it has {bytes} bytes, and only files up to {BLAME_BYTES_MAX} are blamed line by line")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A version could not be read.
    #[error("a recorded version of the file could not be read")]
    Contents(#[from] ContentsError),
}

/// A line, and who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedLine {
    /// The line with its line feed, if it has one.
    pub text: Bytes,
    /// Which of the touches wrote it; `None` = the base.
    pub change_index: Option<usize>,
}

/// The lines of a file as it stands after the versions shown so far, and who wrote each.
#[derive(Debug, Clone, Default)]
pub struct LineAuthors<A> {
    lines: Vec<(Bytes, A)>,
}

impl<A: Clone> LineAuthors<A> {
    /// Nothing was shown yet.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// The next version of the file; `None` = it is gone. Lines that the version before had as well, in the
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

    /// The lines with their authors.
    pub fn into_lines(self) -> Vec<(Bytes, A)> {
        self.lines
    }
}

fn split_lines(content: &Bytes) -> Vec<Bytes> {
    content.split_inclusive(|b| *b == b'\n').map(|line| content.slice_ref(line)).collect()
}

/// Places of lines that both have, in order.
///
/// A line that only one side has cannot be among them, so such lines are taken out before the search: what
/// was written anew from top to bottom costs no search at all.
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

/// Who wrote each line of the file that stands at a path after `touches`, all the changes of that path so
/// far. `base` is what stood there at the start. Reads one content per change.
///
/// # Errors
/// [`BlameError`].
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
    // What stood there before the last version without lines has left nothing behind.
    let since = whole.map_or(0, |at| at + 1);
    let mut authors = LineAuthors::new();
    let mut before = None;
    for (entry, author) in &versions[since..] {
        let Some(entry) = entry else { continue };
        // A change of mode alone is no new version.
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
