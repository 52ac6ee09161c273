//! Finds the one region of the file that a search speaks of, level by level.
//!
//! At each level all matches are computed. One is the answer, several end the search for good: a
//! looser level could only hide that the edit is ambiguous.

use std::cell::OnceCell;

use docket_schema::tool::EditLevel;

use super::{
    fuzzy,
    text::{Line, collapse, fold, indent_of, lines, main_eol},
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
    /// Several places match equally; the first lines of each, from 0.
    Ambiguous(Vec<std::ops::Range<usize>>),
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

/// Most places that an answer lists; beyond it more lines would not help to choose.
const PLACES_MAX: usize = 6;

/// Finds the place of `pattern`.
pub(super) fn locate(doc: &Doc<'_>, pattern: &Pattern) -> Result<Found, Miss> {
    if let Some(found) = exact(doc, pattern)? {
        return Ok(found);
    }
    let model = ModelLines::of(pattern);
    for level in [Strictness::Blanks, Strictness::Indent, Strictness::Folded] {
        if let Some(found) = by_keys(doc, &model, level)? {
            return Ok(found);
        }
    }
    fuzzy::locate(doc, &model)
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
        .find_map(|level| by_keys(doc, &turned, level).ok().flatten())
        .map(|found| found.region())
}

fn exact(doc: &Doc<'_>, pattern: &Pattern) -> Result<Option<Found>, Miss> {
    let uniform = doc.lines.iter().all(|line| line.eol == "\n");
    let normal: std::borrow::Cow<'_, str> = if uniform {
        doc.text.into()
    } else {
        doc.lines.iter().flat_map(|line| [line.text, "\n"]).collect::<String>().into()
    };
    let mut starts = Vec::with_capacity(doc.lines.len());
    let mut at = 0;
    for line in &doc.lines {
        starts.push(at);
        at += line.text.len() + 1;
    }
    let line_of = |offset: usize| starts.partition_point(|start| *start <= offset).saturating_sub(1);
    let found = occurrences(&normal, &pattern.search);
    match found.as_slice() {
        [] => Ok(None),
        [start] => {
            let end = start + pattern.search.len();
            let last = line_of(end - 1);
            let whole_end = starts[last] + doc.lines[last].text.len();
            Ok(Some(exact_found(
                doc,
                pattern,
                &ExactSpan {
                    first: line_of(*start),
                    col: start - starts[line_of(*start)],
                    last,
                    ends_with_eol: end > whole_end,
                    end_col: end.min(whole_end) - starts[last],
                },
            )))
        }
        many => Err(Miss::Ambiguous(
            many.iter()
                .take(PLACES_MAX)
                .map(|start| line_of(*start)..line_of(start + pattern.search.len() - 1) + 1)
                .collect(),
        )),
    }
}

/// All places, overlapping ones too; stops after [`PLACES_MAX`] + 1.
fn occurrences(text: &str, part: &str) -> Vec<usize> {
    let mut out = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(part) {
        out.push(from + at);
        if out.len() > PLACES_MAX {
            break;
        }
        from += at + text[from + at..].chars().next().map_or(1, char::len_utf8);
    }
    out
}

struct ExactSpan {
    first: usize,
    col: usize,
    last: usize,
    ends_with_eol: bool,
    end_col: usize,
}

/// Extends an exact match to whole lines, so that one merge serves all levels.
fn exact_found(doc: &Doc<'_>, pattern: &Pattern, span: &ExactSpan) -> Found {
    let mut replace = indented_like(doc, pattern, span);
    let last_text = doc.lines[span.last].text;
    let whole = span.col == 0 && span.end_col == last_text.len();
    let mut search: Vec<String> =
        doc.lines[span.first..=span.last].iter().map(|line| line.text.to_owned()).collect();
    let mut align: Vec<Option<usize>> = (span.first..=span.last).map(Some).collect();
    let prefix = &doc.lines[span.first].text[..span.col];
    if whole && !span.ends_with_eol && replace.is_empty() {
        // Whole lines are taken away with their line ends.
        return Found { level: EditLevel::Exact, search, replace: Vec::new(), align };
    }
    if whole && !span.ends_with_eol && replace.ends_with('\n') && !is_one_break(pattern) {
        replace.pop();
    }
    if whole && span.ends_with_eol && !replace.is_empty() && !replace.ends_with('\n') {
        replace.push('\n');
    }
    let mut rest = if span.ends_with_eol { String::new() } else { last_text[span.end_col..].to_owned() };
    let swallows = span.ends_with_eol && !(replace.is_empty() && span.col == 0) && !replace.ends_with('\n');
    if span.ends_with_eol && !swallows {
        replace = replace.strip_suffix('\n').map(str::to_owned).unwrap_or(replace);
        if replace.is_empty() && span.col == 0 && !pattern.replace.ends_with('\n') {
            return Found { level: EditLevel::Exact, search, replace: Vec::new(), align };
        }
    }
    if swallows && let Some(next) = doc.lines.get(span.last + 1) {
        // The line end itself is replaced: the next line joins this one.
        rest = next.text.to_owned();
        search.push(rest.clone());
        align.push(Some(span.last + 1));
    }
    let text = format!("{prefix}{replace}{rest}");
    Found { level: EditLevel::Exact, search, replace: text.split('\n').map(str::to_owned).collect(), align }
}

/// The replacement of one line quoted without its indentation: its further lines get that
/// indentation too, unless they bring it along.
fn indented_like(doc: &Doc<'_>, pattern: &Pattern, span: &ExactSpan) -> String {
    let line = doc.lines[span.first].text;
    let prefix = &line[..span.col];
    let whole = span.first == span.last && span.end_col == line.len();
    let further = || pattern.replace.lines().skip(1).filter(|line| !line.trim().is_empty());
    let bare = !prefix.is_empty() && prefix == indent_of(line) && indent_of(&pattern.search).is_empty();
    if !whole || !bare || further().all(|line| line.starts_with(prefix)) {
        return pattern.replace.clone();
    }
    let mut out = String::new();
    for (at, line) in pattern.replace.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
            out.push_str(if line.trim().is_empty() { "" } else { prefix });
        }
        out.push_str(line);
    }
    out
}

/// A break that the replacement adds and that is all it changes is meant.
fn is_one_break(pattern: &Pattern) -> bool {
    pattern.replace.strip_suffix('\n') == Some(pattern.search.as_str())
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

fn by_keys(doc: &Doc<'_>, model: &ModelLines, level: Strictness) -> Result<Option<Found>, Miss> {
    let solid = model.solid();
    let wanted: Vec<String> = solid.iter().map(|at| level.key(&model.search[*at])).collect();
    // A sign or two, such as a lone brace, is no place when its blanks are in doubt.
    if wanted.is_empty() || wanted.iter().map(String::len).sum::<usize>() < 3 {
        return Ok(None);
    }
    let folded: Vec<String>;
    let keys = match level {
        Strictness::Blanks | Strictness::Indent => doc.collapsed(),
        Strictness::Folded => {
            folded = doc.solid.iter().map(|at| level.key(doc.lines[*at].text)).collect();
            &folded
        }
    };
    let indented_alike = |start: usize| {
        let lines = doc.solid[start..].iter().map(|at| indent_of(doc.lines[*at].text));
        solid.iter().map(|at| indent_of(&model.search[*at])).zip(lines).all(|(a, b)| a == b)
    };
    let starts: Vec<usize> = keys
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted.as_slice())
        .map(|(at, _)| at)
        .filter(|at| level != Strictness::Blanks || indented_alike(*at))
        .collect();
    let aligned: Vec<Vec<Option<usize>>> = starts
        .iter()
        .map(|start| align_blanks(doc, model, &solid, &doc.solid[*start..start + wanted.len()]))
        .collect();
    let same_blanks = |align: &Vec<Option<usize>>| {
        align.iter().all(Option::is_some)
            && align.windows(2).all(|two| two[1].zip(two[0]).is_some_and(|(b, a)| b == a + 1))
    };
    let strict: Vec<&Vec<Option<usize>>> = aligned.iter().filter(|align| same_blanks(align)).collect();
    let chosen = match (strict.as_slice(), aligned.as_slice()) {
        (_, []) => return Ok(None),
        ([one], _) => (*one).clone(),
        (_, [one]) => one.clone(),
        (_, many) => {
            let span = |align: &Vec<Option<usize>>| {
                let solid = align.iter().flatten();
                solid.clone().min().copied().unwrap_or(0)..solid.max().copied().unwrap_or(0) + 1
            };
            return Err(Miss::Ambiguous(many.iter().take(PLACES_MAX).map(span).collect()));
        }
    };
    Ok(Some(Found {
        level: level.level(),
        search: model.search.clone(),
        replace: model.replace.clone(),
        align: chosen,
    }))
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
