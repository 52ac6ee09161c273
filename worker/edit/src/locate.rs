//! Finds the one region of the file that a search speaks of, level by level.
//!
//! At each level all matches are computed. One is the answer, several end the search for good: a
//! looser level could only hide that the edit is ambiguous.

use std::cell::OnceCell;

use docket_schema::tool::EditLevel;

use super::{
    exact::exact,
    fuzzy,
    hint::{Hint, choose, count},
    text::{Line, collapse, fold, folded, indent_of, lines, main_eol},
};

/// A file prepared for searching. Its text ends with a line end, added where the file lacks it.
#[derive(Debug)]
pub(super) struct Doc<'a> {
    pub(super) text: &'a str,
    pub(super) lines: Vec<Line<'a>>,
    pub(super) eol: &'static str,
    /// Indices of the lines that are not blank.
    pub(super) solid: Vec<usize>,
    collapsed: OnceCell<Vec<String>>,
}

impl<'a> Doc<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let lines = lines(text);
        let eol = main_eol(&lines);
        let solid = (0..lines.len()).filter(|at| !lines[*at].is_blank()).collect();
        Self { text, lines, eol, solid, collapsed: OnceCell::new() }
    }

    /// The solid lines, collapsed.
    pub(super) fn collapsed(&self) -> &[String] {
        self.collapsed.get_or_init(|| self.solid.iter().map(|at| collapse(self.lines[*at].text)).collect())
    }
}

/// Where a search was found, and how its lines stand to the file's.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) level: EditLevel,
    pub(super) search: Vec<String>,
    pub(super) replace: Vec<String>,
    /// For each line of the search the file's line it stands for.
    pub(super) align: Vec<Option<usize>>,
}

impl Found {
    /// First and last line of the file that the search stands for.
    pub(super) fn region(&self) -> std::ops::Range<usize> {
        let first = self.align.iter().flatten().min().copied().unwrap_or(0);
        first..self.align.iter().flatten().max().map_or(first, |last| last + 1)
    }
}

/// Why there is no one place.
#[derive(Debug)]
pub(super) enum Miss {
    /// Several places match equally; the lines of each, from 0. `alike` where they only resemble the
    /// search: no hint decides there.
    Ambiguous { places: Vec<std::ops::Range<usize>>, alike: bool },
    /// A hint does not fit the places that match; the lines of each, from 0.
    Unfit { why: String, places: Vec<std::ops::Range<usize>> },
    /// Nothing matches well enough.
    Absent,
    /// Something similar was found that may be another statement; from 0.
    Doubtful(std::ops::Range<usize>),
}

/// A search and a replacement with `\n` line ends.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) search: String,
    pub(super) replace: String,
}

/// Finds the place of `pattern`, or the places where `hint` wants all of them. Never empty.
pub(super) fn locate(doc: &Doc<'_>, pattern: &Pattern, hint: &Hint) -> Result<Vec<Found>, Miss> {
    let found = exact(doc, pattern, hint)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let model = ModelLines::of(pattern);
    for level in [Strictness::Blanks, Strictness::Indent, Strictness::Folded] {
        let found = by_keys(doc, &model, level, hint)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let found = fuzzy::locate(doc, &model)?;
    let said = [("replace_all", hint.replace_all), ("occurrence", hint.occurrence)];
    match said.into_iter().find_map(|(name, n)| n.filter(|n| *n > 1).map(|n| (name, n))) {
        Some((name, n)) => Err(Miss::Unfit {
            why: format!("{name} says {}, but only one place is similar to search", count(n)),
            places: vec![found.region()],
        }),
        None => Ok(vec![found]),
    }
}

/// Whether `replace` stands in the file where the search would have stood: the place is told by
/// lines that both have, and there is one such place only.
pub(super) fn already_there(doc: &Doc<'_>, pattern: &Pattern) -> Option<std::ops::Range<usize>> {
    let model = ModelLines::of(pattern);
    let solid = |lines: &[String]| lines.iter().filter(|line| !line.trim().is_empty()).count();
    let filled = |line: &&String| !line.trim().is_empty();
    let head = |lines: &[String]| lines.iter().find(filled).cloned();
    let tail = |lines: &[String]| lines.iter().rfind(filled).cloned();
    let shared_head = head(&model.search) == head(&model.replace);
    let shared_tail = tail(&model.search) == tail(&model.replace);
    // What only takes lines away stands in the file before the edit as well as after it, unless both
    // sides of the gap are told.
    let adds = model.replace.iter().any(|line| !line.trim().is_empty() && !model.search.contains(line));
    let told = if adds { shared_head || shared_tail } else { shared_head && shared_tail };
    if solid(&model.replace) < 2 || !told {
        return None;
    }
    let turned = ModelLines { search: model.replace, replace: model.search };
    [Strictness::Blanks, Strictness::Indent]
        .into_iter()
        .find_map(|level| by_keys(doc, &turned, level, &Hint::default()).ok()?.pop())
        .map(|found| found.region())
}

/// Search and replacement as whole lines.
#[derive(Debug, Clone)]
pub(super) struct ModelLines {
    pub(super) search: Vec<String>,
    pub(super) replace: Vec<String>,
}

impl ModelLines {
    fn of(pattern: &Pattern) -> Self {
        let split = |text: &str| -> Vec<String> {
            if text.is_empty() {
                return Vec::new();
            }
            text.strip_suffix('\n').unwrap_or(text).split('\n').map(str::to_owned).collect()
        };
        // Blanks after the last break are no line of their own where the other side ends with that break.
        let trimmed = |text: &str, other: &str| match text.rsplit_once('\n') {
            Some((head, blanks)) if other.ends_with('\n') && blanks.trim().is_empty() => format!("{head}\n"),
            Some(_) | None => text.to_owned(),
        };
        Self {
            search: split(&trimmed(&pattern.search, &pattern.replace)),
            replace: split(&trimmed(&pattern.replace, &pattern.search)),
        }
    }

    /// Indices of the search's lines that are not blank.
    pub(super) fn solid(&self) -> Vec<usize> {
        (0..self.search.len()).filter(|at| !self.search[*at].trim().is_empty()).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// Blanks inside and at the end of lines, and blank lines, do not count.
    Blanks,
    /// Nor does indentation.
    Indent,
    /// Nor do quote style and look-alike characters.
    Folded,
}

impl Strictness {
    fn key(self, line: &str) -> String {
        match self {
            Self::Blanks | Self::Indent => collapse(line),
            Self::Folded => fold(line),
        }
    }

    const fn level(self) -> EditLevel {
        match self {
            Self::Blanks => EditLevel::Whitespace,
            Self::Indent => EditLevel::Indentation,
            Self::Folded => EditLevel::Fuzzy,
        }
    }
}

fn by_keys(doc: &Doc<'_>, model: &ModelLines, level: Strictness, hint: &Hint) -> Result<Vec<Found>, Miss> {
    let solid = model.solid();
    let wanted: Vec<String> = solid.iter().map(|at| level.key(&model.search[*at])).collect();
    // A sign or two, such as a lone brace, is no place when its blanks are in doubt.
    if wanted.is_empty() || wanted.iter().map(String::len).sum::<usize>() < 3 {
        return Ok(Vec::new());
    }
    // Most lines differ in their first letters: no key is made of them.
    let is_match = |start: usize| match level {
        Strictness::Blanks | Strictness::Indent => doc.collapsed()[start..start + wanted.len()] == *wanted,
        Strictness::Folded => {
            let lines = doc.solid[start..].iter().map(|at| doc.lines[*at].text);
            wanted.iter().zip(lines).all(|(key, line)| folded(line).eq(key.chars()))
        }
    };
    let indented_alike = |start: usize| {
        let lines = doc.solid[start..].iter().map(|at| indent_of(doc.lines[*at].text));
        solid.iter().map(|at| indent_of(&model.search[*at])).zip(lines).all(|(a, b)| a == b)
    };
    let starts: Vec<usize> = (0..(doc.solid.len() + 1).saturating_sub(wanted.len()))
        .filter(|start| is_match(*start))
        .filter(|start| level != Strictness::Blanks || indented_alike(*start))
        .collect();
    if starts.is_empty() {
        return Ok(Vec::new());
    }
    let aligned: Vec<Vec<Option<usize>>> = starts
        .iter()
        .map(|start| align_blanks(doc, model, &solid, &doc.solid[*start..start + wanted.len()]))
        .collect();
    let same_blanks = |align: &Vec<Option<usize>>| {
        align.iter().all(Option::is_some)
            && align.windows(2).all(|two| two[1].zip(two[0]).is_some_and(|(b, a)| b == a + 1))
    };
    // Where the blank lines agree as well, that is a stricter match.
    let strict: Vec<Vec<Option<usize>>> =
        aligned.iter().filter(|align| same_blanks(align)).cloned().collect();
    let matched = if strict.is_empty() { aligned } else { strict };
    let places: Vec<std::ops::Range<usize>> = matched
        .iter()
        .map(|align| {
            let lines = align.iter().flatten();
            lines.clone().min().copied().unwrap_or(0)..lines.max().copied().unwrap_or(0) + 1
        })
        .collect();
    let chosen = choose(doc, hint, &places)?;
    if chosen.windows(2).any(|two| places[two[1]].start < places[two[0]].end) {
        let why = "these places overlap, so they cannot all be replaced".to_owned();
        return Err(Miss::Unfit { why, places });
    }
    let found = |at: usize| Found {
        level: level.level(),
        search: model.search.clone(),
        replace: model.replace.clone(),
        align: matched[at].clone(),
    };
    Ok(chosen.into_iter().map(found).collect())
}

/// Aligns blank lines of the search with blank lines of the file between the solid lines around them.
pub(super) fn align_blanks(
    doc: &Doc<'_>,
    model: &ModelLines,
    solid: &[usize],
    places: &[usize],
) -> Vec<Option<usize>> {
    let mut align = vec![None; model.search.len()];
    for (at, place) in solid.iter().zip(places) {
        align[*at] = Some(*place);
    }
    fill_blanks(doc, &model.search, &mut align);
    align
}

/// See [`align_blanks`]; blank lines of the search that are `None` take the file's blanks in their gap.
pub(super) fn fill_blanks(doc: &Doc<'_>, search: &[String], align: &mut [Option<usize>]) {
    let blank = |at: usize| doc.lines.get(at).is_some_and(Line::is_blank);
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
    // Blank lines that open or close the search have an aligned line on one side only.
    for at in (0..first).rev() {
        align[at] = align[at + 1].and_then(|next| next.checked_sub(1)).filter(|place| blank(*place));
    }
    for at in last + 1..align.len() {
        align[at] = align[at - 1].map(|previous| previous + 1).filter(|place| blank(*place));
    }
}
