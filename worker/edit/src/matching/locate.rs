//! Finds the one region of the file that a search means, level by level.
//!
//! Each level computes all matches. Exactly one match is the result; several end the search,
//! because a looser level could only hide the ambiguity.

use docket_schema::tool::EditLevel;

use super::{
    blank_lines::align_blank_lines,
    exact::find_exact,
    fuzzy,
    hint::{choose_places, format_place_count},
};
use crate::{
    edit::EditHint,
    pattern::{EditPattern, PatternLines},
    search_doc::SearchDoc,
    search_match::{Match, NoMatch, aligned_region},
    text::{collapse_whitespace, fold_lookalikes, folded_chars, leading_indent},
};

/// Finds the place of `pattern`, or all places if `hint` asks for all. The result is never empty.
pub(crate) fn locate(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    hint: &EditHint,
) -> Result<Vec<Match>, NoMatch> {
    let found = find_exact(doc, pattern, hint)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let model = PatternLines::from_pattern(pattern);
    for level in
        [LineNormalization::Whitespace, LineNormalization::Indentation, LineNormalization::Lookalikes]
    {
        let found = find_by_line_keys(doc, &model, level, hint)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let found = fuzzy::find_fuzzy(doc, &model)?;
    let said = [("replace_all", hint.replace_all), ("occurrence", hint.occurrence)];
    match said.into_iter().find_map(|(name, n)| n.filter(|n| *n > 1).map(|n| (name, n))) {
        Some((name, n)) => Err(NoMatch::HintMismatch {
            reason: format!("{name} says {}, but only one place is similar to search", format_place_count(n)),
            places: vec![found.region()],
        }),
        None => Ok(vec![found]),
    }
}

/// Returns the only place where `replace` is already in the file instead of the search, identified
/// by lines that both have.
pub(crate) fn find_applied_replacement(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
) -> Option<std::ops::Range<usize>> {
    let model = PatternLines::from_pattern(pattern);
    let solid = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.trim().is_empty()).cloned().collect()
    };
    let (said, put) = (solid(&model.search), solid(&model.replace));
    let (shared_head, shared_tail) = (said.first() == put.first(), said.last() == put.last());
    // A pure removal matches the file both before and after the edit, unless both sides of the gap
    // are given.
    let adds = put.iter().any(|line| !said.contains(line));
    let told = if adds { shared_head || shared_tail } else { shared_head && shared_tail };
    if put.len() < 2 || !told {
        return None;
    }
    let turned = PatternLines { search: model.replace, replace: model.search };
    [LineNormalization::Whitespace, LineNormalization::Indentation]
        .into_iter()
        .find_map(|level| find_by_line_keys(doc, &turned, level, &EditHint::default()).ok()?.pop())
        .map(|found| found.region())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineNormalization {
    /// Ignores whitespace inside and at the end of lines, and blank lines.
    Whitespace,
    /// Also ignores indentation.
    Indentation,
    /// Also ignores quote style and look-alike characters.
    Lookalikes,
}

impl LineNormalization {
    fn line_key(self, line: &str) -> String {
        match self {
            Self::Whitespace | Self::Indentation => collapse_whitespace(line),
            Self::Lookalikes => fold_lookalikes(line),
        }
    }

    const fn edit_level(self) -> EditLevel {
        match self {
            Self::Whitespace => EditLevel::Whitespace,
            Self::Indentation => EditLevel::Indentation,
            Self::Lookalikes => EditLevel::Fuzzy,
        }
    }
}

fn find_by_line_keys(
    doc: &SearchDoc<'_>,
    model: &PatternLines,
    level: LineNormalization,
    hint: &EditHint,
) -> Result<Vec<Match>, NoMatch> {
    let solid = model.non_blank_indices();
    let wanted: Vec<String> = solid.iter().map(|at| level.line_key(&model.search[*at])).collect();
    // One or two characters, such as a lone brace, do not identify a place if the whitespace
    // differs.
    if wanted.is_empty() || wanted.iter().map(String::len).sum::<usize>() < 3 {
        return Ok(Vec::new());
    }
    // Most lines differ in their first characters, so no key is built for them.
    let is_match = |start: usize| match level {
        LineNormalization::Whitespace | LineNormalization::Indentation => {
            doc.collapsed_lines()[start..start + wanted.len()] == *wanted
        }
        LineNormalization::Lookalikes => {
            let lines = doc.non_blank_lines[start..].iter().map(|at| doc.lines[*at].text);
            wanted.iter().zip(lines).all(|(key, line)| folded_chars(line).eq(key.chars()))
        }
    };
    let indented_alike = |start: usize| {
        let lines = doc.non_blank_lines[start..].iter().map(|at| leading_indent(doc.lines[*at].text));
        solid.iter().map(|at| leading_indent(&model.search[*at])).zip(lines).all(|(a, b)| a == b)
    };
    let starts: Vec<usize> = (0..(doc.non_blank_lines.len() + 1).saturating_sub(wanted.len()))
        .filter(|start| is_match(*start))
        .filter(|start| level != LineNormalization::Whitespace || indented_alike(*start))
        .collect();
    if starts.is_empty() {
        return Ok(Vec::new());
    }
    let aligned: Vec<Vec<Option<usize>>> = starts
        .iter()
        .map(|start| {
            align_blank_lines(doc, model, &solid, &doc.non_blank_lines[*start..start + wanted.len()])
        })
        .collect();
    let same_blanks = |align: &Vec<Option<usize>>| {
        align.iter().all(Option::is_some)
            && align.windows(2).all(|two| two[1].zip(two[0]).is_some_and(|(b, a)| b == a + 1))
    };
    // Matches whose blank lines agree as well are stricter and win.
    let strict: Vec<Vec<Option<usize>>> =
        aligned.iter().filter(|align| same_blanks(align)).cloned().collect();
    let matched = if strict.is_empty() { aligned } else { strict };
    let places: Vec<std::ops::Range<usize>> = matched.iter().map(|align| aligned_region(align)).collect();
    let chosen = choose_places(doc, hint, &places)?;
    if chosen.windows(2).any(|two| places[two[1]].start < places[two[0]].end) {
        let why = "these places overlap, so they cannot all be replaced".to_owned();
        return Err(NoMatch::HintMismatch { reason: why, places });
    }
    let found = |at: usize| Match {
        level: level.edit_level(),
        search: model.search.clone(),
        replace: model.replace.clone(),
        align: matched[at].clone(),
    };
    Ok(chosen.into_iter().map(found).collect())
}
