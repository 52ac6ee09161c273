//! Aligns blank lines of a search with those of the file.

use crate::{pattern::PatternLines, search_doc::SearchDoc, text::TextLine};

/// Aligns blank lines of the search with blank lines of the file between the surrounding non-blank
/// lines.
pub(crate) fn align_blank_lines(
    doc: &SearchDoc<'_>,
    model: &PatternLines,
    solid: &[usize],
    places: &[usize],
) -> Vec<Option<usize>> {
    let mut align = vec![None; model.search.len()];
    for (at, place) in solid.iter().zip(places) {
        align[*at] = Some(*place);
    }
    fill_blank_lines(doc, &model.search, &mut align);
    align
}

/// Like [`align_blank_lines`], but unaligned (`None`) blank lines of the search also take the file's
/// blank lines in their gap.
pub(crate) fn fill_blank_lines(doc: &SearchDoc<'_>, search: &[String], align: &mut [Option<usize>]) {
    let blank = |at: usize| doc.lines.get(at).is_some_and(TextLine::is_blank);
    let aligned: Vec<usize> = (0..align.len()).filter(|at| align[*at].is_some()).collect();
    let (Some(first), Some(last)) = (aligned.first().copied(), aligned.last().copied()) else { return };
    for two in aligned.windows(2) {
        let (Some(from), Some(to)) = (align[two[0]], align[two[1]]) else { continue };
        let mut free = (from + 1..to).filter(|at| blank(*at));
        for at in two[0] + 1..two[1] {
            if search[at].trim().is_empty() {
                align[at] = free.next();
            }
        }
    }
    // Blank lines at the start or end of the search have an aligned line on one side only.
    for at in (0..first).rev() {
        align[at] = align[at + 1].and_then(|next| next.checked_sub(1)).filter(|place| blank(*place));
    }
    for at in last + 1..align.len() {
        align[at] = align[at - 1].map(|previous| previous + 1).filter(|place| blank(*place));
    }
}
