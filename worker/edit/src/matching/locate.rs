//! Finds the one region of the file that a search speaks of, level by level.
//!
//! At each level all matches are computed. One is the answer, several end the search for good: a
//! looser level could only hide that the edit is ambiguous.

use docket_schema::tool::EditLevel;

use super::{
    blanks::align_blanks,
    exact::exact,
    fuzzy,
    hint::{choose, count},
};
use crate::{
    doc::Doc,
    edit::Hint,
    found::{Found, Miss, region_of},
    pattern::{ModelLines, Pattern},
    text::{collapse, fold, folded, indent_of},
};

/// Finds the place of `pattern`, or the places where `hint` wants all of them. Never empty.
pub(crate) fn locate(doc: &Doc<'_>, pattern: &Pattern, hint: &Hint) -> Result<Vec<Found>, Miss> {
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
pub(crate) fn already_there(doc: &Doc<'_>, pattern: &Pattern) -> Option<std::ops::Range<usize>> {
    let model = ModelLines::of(pattern);
    let solid = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.trim().is_empty()).cloned().collect()
    };
    let (said, put) = (solid(&model.search), solid(&model.replace));
    let (shared_head, shared_tail) = (said.first() == put.first(), said.last() == put.last());
    // What only takes lines away stands in the file before the edit as well as after it, unless both
    // sides of the gap are told.
    let adds = put.iter().any(|line| !said.contains(line));
    let told = if adds { shared_head || shared_tail } else { shared_head && shared_tail };
    if put.len() < 2 || !told {
        return None;
    }
    let turned = ModelLines { search: model.replace, replace: model.search };
    [Strictness::Blanks, Strictness::Indent]
        .into_iter()
        .find_map(|level| by_keys(doc, &turned, level, &Hint::default()).ok()?.pop())
        .map(|found| found.region())
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
    let places: Vec<std::ops::Range<usize>> = matched.iter().map(|align| region_of(align)).collect();
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
