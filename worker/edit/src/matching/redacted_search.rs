//! Resolves searches that contain redaction marks, `[REDACTED: kind]`: the model saw the mark, and the file
//! holds a secret there.
//!
//! A mark in the search matches one run of characters within its line. If the rest of the search
//! identifies one place, the file's own text replaces the marks in both search and replacement. A mark in
//! the replacement that cannot be resolved with certainty is refused.

use std::{collections::HashSet, ops::Range};

use docket_schema::redact;

use super::hint::choose_places;
use crate::{
    edit::EditHint, pattern::EditPattern, search_doc::SearchDoc, search_match::NoMatch,
    text::collapse_whitespace,
};

/// Minimum number of characters a mark hides: shorter values are never redacted.
const REDACTED_CHARS_MIN: usize = 4;

/// A pattern whose marks are replaced with the file's own text.
#[derive(Debug)]
pub(crate) struct ResolvedPattern {
    pub(crate) pattern: EditPattern,
    /// The line (from 0) where the search must match.
    pub(crate) line: usize,
}

/// The text that a mark of the search matches.
#[derive(Debug)]
struct ResolvedMark<'a> {
    mark: &'a str,
    /// The text between the previous mark (or the start of the line) and this mark.
    prefix: &'a str,
    original: &'a str,
}

/// Resolves the marks of `pattern`. Returns `None` if its search contains no marks, or none that
/// hides text.
///
/// # Errors
/// Returns [`NoMatch`] if the marks cannot be resolved with certainty.
pub(crate) fn resolve_redactions(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    hint: &EditHint,
) -> Result<Option<ResolvedPattern>, NoMatch> {
    if !redact::has_redaction(&pattern.search) {
        return Ok(None);
    }
    let said: Vec<&str> = pattern.search.lines().filter(|line| !line.trim().is_empty()).collect();
    // A mark alone would match any line.
    let beside: String = said.iter().map(|line| text_outside_marks(line)).collect();
    if !beside.contains(char::is_alphanumeric) {
        return Ok(None);
    }
    let places = find_places(doc, &said);
    let lines: Vec<Range<usize>> = places
        .iter()
        .map(|start| doc.non_blank_lines[*start]..doc.non_blank_lines[*start + said.len() - 1] + 1)
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let literal = |start: &usize| {
        said.iter()
            .zip(&doc.non_blank_lines[*start..])
            .all(|(said, at)| collapse_whitespace(doc.lines[*at].text).contains(&collapse_whitespace(said)))
    };
    if places.iter().all(literal) {
        return Ok(None);
    }
    let chosen = choose_places(doc, hint, &lines)?;
    let [one] = chosen.as_slice() else {
        return Err(NoMatch::UnresolvedRedaction(": one call changes one such place".to_owned()));
    };
    let mut known = Vec::new();
    for (said, at) in
        said.iter().zip(&doc.non_blank_lines[places[*one]..]).filter(|(said, _)| redact::has_redaction(said))
    {
        let MarkFit::Unique(hidden) = fit_line(said, doc.lines[*at].text) else {
            return Err(NoMatch::UnresolvedRedaction(format!(
                ", and it is not certain which at line {}",
                at + 1
            )));
        };
        known.extend(
            split_at_marks(said).0.into_iter().zip(hidden).map(|((left, mark), hidden)| ResolvedMark {
                mark,
                prefix: left,
                original: hidden,
            }),
        );
    }
    let mut in_order = known.iter();
    let search = replace_marks(&pattern.search, |_, _| in_order.next().map(|known| known.original));
    // Each mark of the search is written at most once, so that a secret is not duplicated.
    let mut left: Vec<&ResolvedMark<'_>> = known.iter().collect();
    let replace =
        replace_marks(&pattern.replace, |before, mark| take_original(&mut left, &known, before, mark));
    let (Some(search), Some(replace)) = (search, replace) else {
        return Err(NoMatch::UnresolvedRedaction(
            ", and it is not certain which where replace holds it".to_owned(),
        ));
    };
    Ok(Some(ResolvedPattern { pattern: EditPattern { search, replace }, line: lines[*one].start }))
}

/// Returns the marks of a line, each with the text before it, and the text after the last one.
fn split_at_marks(line: &str) -> (Vec<(&str, &str)>, &str) {
    let mut out = Vec::new();
    let mut rest = line.trim();
    while let Some(mark) = redact::first_redaction(rest) {
        out.push((&rest[..mark.start], &rest[mark.clone()]));
        rest = &rest[mark.end..];
    }
    (out, rest)
}

/// Returns the characters of a line outside its marks.
fn text_outside_marks(line: &str) -> String {
    let (pieces, tail) = split_at_marks(line);
    pieces.iter().map(|(left, _)| *left).chain([tail]).collect()
}

enum MarkFit<'a> {
    NoFit,
    /// The texts that the marks hide.
    Unique(Vec<&'a str>),
    /// The marks match in more than one way.
    Ambiguous,
}

/// Matches a line with marks against the file's line `real`, ignoring whitespace at the ends. A partially
/// quoted line must have text on both sides of its marks.
fn fit_line<'a>(said: &str, real: &'a str) -> MarkFit<'a> {
    let real = real.trim();
    let (pieces, tail) = split_at_marks(said);
    match fit_full_line(&pieces, tail, real) {
        MarkFit::NoFit => {}
        found => return found,
    }
    let first = pieces.first().map_or("", |(left, _)| *left);
    if first.trim().is_empty() || tail.trim().is_empty() {
        return MarkFit::NoFit;
    }
    let mut found = MarkFit::NoFit;
    for (start, _) in real.match_indices(first) {
        let rest = &real[start..];
        for (end, _) in rest.match_indices(tail) {
            match (fit_full_line(&pieces, tail, &rest[..end + tail.len()]), &found) {
                (MarkFit::NoFit, _) => {}
                (one, MarkFit::NoFit) => found = one,
                (_, MarkFit::Unique(_) | MarkFit::Ambiguous) => return MarkFit::Ambiguous,
            }
        }
    }
    found
}

/// Like [`fit_line`], but all of `real` is quoted.
fn fit_full_line<'a>(pieces: &[(&str, &str)], tail: &str, real: &'a str) -> MarkFit<'a> {
    let Some(((first, _), more)) = pieces.split_first() else { return MarkFit::NoFit };
    let Some(mut rest) = real.strip_prefix(first).and_then(|rest| rest.strip_suffix(tail)) else {
        return MarkFit::NoFit;
    };
    let mut out = Vec::new();
    for (left, _) in more {
        let mut cuts = rest.match_indices(left).filter(|(at, _)| *at >= REDACTED_CHARS_MIN);
        let Some((at, _)) = cuts.next() else { return MarkFit::NoFit };
        if left.is_empty() || cuts.next().is_some() {
            return MarkFit::Ambiguous;
        }
        out.push(&rest[..at]);
        rest = &rest[at + left.len()..];
    }
    out.push(rest);
    let is_value =
        |hidden: &&str| hidden.len() >= REDACTED_CHARS_MIN && !hidden.contains(char::is_whitespace);
    let is_mark = |hidden: &str| redact::first_redaction(hidden) == Some(0..hidden.len());
    if out.iter().all(|hidden| is_value(hidden) || is_mark(hidden)) {
        MarkFit::Unique(out)
    } else {
        MarkFit::NoFit
    }
}

/// Returns the places where all lines of the search match, as indices into
/// [`SearchDoc::non_blank_lines`].
fn find_places(doc: &SearchDoc<'_>, said: &[&str]) -> Vec<usize> {
    let keys: Vec<String> = said.iter().map(|line| collapse_whitespace(line)).collect();
    let is = |at: usize, place: usize| {
        if redact::has_redaction(said[at]) {
            !matches!(fit_line(said[at], doc.lines[doc.non_blank_lines[place]].text), MarkFit::NoFit)
        } else {
            doc.collapsed_lines()[place] == keys[at]
        }
    };
    (0..(doc.non_blank_lines.len() + 1).saturating_sub(said.len()))
        .filter(|start| (0..said.len()).all(|at| is(at, start + at)))
        .collect()
}

/// Replaces the marks in `text`. `hides` maps the text before a mark and the mark to the hidden text.
fn replace_marks<'a>(text: &str, mut hides: impl FnMut(&str, &str) -> Option<&'a str>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some(at) = redact::first_redaction(rest) {
            let before = &rest[..at.start];
            out.push_str(before);
            out.push_str(hides(before.trim_start(), &rest[at.clone()])?);
            rest = &rest[at.end..];
        }
        out.push_str(rest);
    }
    Some(out)
}

/// Returns the text for a mark of the replacement: the only text that the same mark hides in the search,
/// or the one with the same words before it.
fn take_original<'a>(
    left: &mut Vec<&ResolvedMark<'a>>,
    known: &[ResolvedMark<'a>],
    before: &str,
    mark: &str,
) -> Option<&'a str> {
    let alike = |other: &&ResolvedMark<'_>| other.mark == mark;
    let texts: HashSet<&str> = known.iter().filter(alike).map(|other| other.original).collect();
    let all_one = texts.len() == 1;
    let fits = |other: &ResolvedMark<'_>| alike(&other) && (all_one || other.prefix == before);
    let mut found = known.iter().filter(|other| fits(other)).map(|other| other.original);
    let hidden = found.next()?;
    if found.any(|other| other != hidden) {
        return None;
    }
    let at = left.iter().position(|other| fits(other) && other.original == hidden)?;
    left.remove(at);
    Some(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Edit, apply_edits};

    fn apply_with_hint(before: &str, search: &str, replace: &str, hint: EditHint) -> Result<String, String> {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint };
        apply_edits(before.as_bytes(), &[edit])
            .map(|applied| String::from_utf8(applied.after).expect("text"))
            .map_err(|error| error.message)
    }

    fn apply_edit(before: &str, search: &str, replace: &str) -> Result<String, String> {
        apply_with_hint(before, search, replace, EditHint::default())
    }

    const FILE: &str =
        "import os\nkey = 'abcd1234'\nmode = 1\nother = 'wxyz9876'\nkeys(a='q1w2e3', b='r4t5y6')\nend = 1\n";

    #[test]
    fn redacted_text_is_kept_in_the_file() {
        for (search, replace, from, to) in [
            (
                "key = '[REDACTED: value]'\nmode = 1",
                "key = '[REDACTED: value]'\nmode = 2",
                "mode = 1",
                "mode = 2",
            ),
            ("key = '[REDACTED: value]'", "api_key = '[REDACTED: value]'", "key = 'ab", "api_key = 'ab"),
            ("key = '[REDACTED: value]'\n", "", "key = 'abcd1234'\n", ""),
            ("key = '[REDACTED: value]'\n", "key = env()\n", "'abcd1234'", "env()"),
            // Whitespace is ignored, and so are line numbers as read_file shows them.
            (
                "import  os\nkey = '[REDACTED: value]'\n",
                "import  os\nimport re\nkey = '[REDACTED: value]'\n",
                "key",
                "import re\nkey",
            ),
            (
                "     2| key = '[REDACTED: value]'\n     3| mode = 1",
                "     2| key = '[REDACTED: value]'\n     3| mode = 2",
                "mode = 1",
                "mode = 2",
            ),
            // Several marks of one kind, distinguished by the text before them.
            (
                "key = '[REDACTED: value]'\nmode = 1\nother = '[REDACTED: value]'",
                "other = '[REDACTED: value]'\nmode = 1\nkey = '[REDACTED: value]'",
                "key = 'abcd1234'\nmode = 1\nother = 'wxyz9876'",
                "other = 'wxyz9876'\nmode = 1\nkey = 'abcd1234'",
            ),
            (
                "keys(a='[REDACTED: value]', b='[REDACTED: password]')",
                "keys(b='[REDACTED: password]')",
                "a='q1w2e3', ",
                "",
            ),
            // Part of a line.
            ("a='[REDACTED: value]'", "a='[REDACTED: value]', c=1", "a='q1w2e3'", "a='q1w2e3', c=1"),
        ] {
            assert_eq!(
                apply_edit(FILE, search, replace).as_deref(),
                Ok(FILE.replacen(from, to, 1).as_str()),
                "{search:?}"
            );
        }
    }

    #[test]
    fn redaction_mark_is_never_written_or_guessed() {
        let twice = "a = 'abcd1234'\nx = 1\na = 'wxyz9876'\nx = 1\n";
        for (file, search, replace, part) in [
            (twice, "a = '[REDACTED: value]'\nx = 1", "a = '[REDACTED: value]'\nx = 2", "matches 2 places"),
            (FILE, "mode = 1", "mode = 1\nnew = '[REDACTED: value]'", "was hidden"),
            (
                FILE,
                "key = '[REDACTED: value]'",
                "key = '[REDACTED: value]'\nkey2 = '[REDACTED: value]'",
                "was hidden",
            ),
            (FILE, "key = '[REDACTED: value]'", "key = '[REDACTED: password]'", "was hidden"),
            (
                FILE,
                "key = '[REDACTED: value]'\nmode = 1\nother = '[REDACTED: value]'",
                "keys = '[REDACTED: value]'\nmode = 1\nother = '[REDACTED: value]'",
                "was hidden",
            ),
            (FILE, "kye = '[REDACTED: value]'\nmode = 1", "kye = 'x'\nmode = 1", "edit those around them"),
            ("abcd1234\n", "[REDACTED: value]", "x", "edit those around them"),
            // The end of the hidden text is unknown.
            (FILE, "= '[REDACTED: value]", "= '", "edit those around them"),
            // The file contains a literal mark, and another line that matches through the mark.
            (
                "k = '[REDACTED: value]'\nk = 'abcd1234'\n",
                "k = '[REDACTED: value]'",
                "k = 2",
                "matches 2 places",
            ),
            (
                "k = 'abcd1234, efgh5678, ijkl9012'\n",
                "k = '[REDACTED: value], [REDACTED: value]'",
                "k = 2",
                "edit those around them",
            ),
        ] {
            let error = apply_edit(file, search, replace).expect_err(search);
            assert!(error.contains(part), "{search:?}: {error}");
        }
    }

    #[test]
    fn hint_chooses_redacted_place_and_literal_mark_is_text() {
        let twice = "a = 'abcd1234'\nx = 1\na = 'wxyz9876'\nx = 1\n";
        let (search, replace) = ("a = '[REDACTED: value]'\nx = 1", "b = '[REDACTED: value]'\nx = 1");
        let second = EditHint { occurrence: Some(2), ..EditHint::default() };
        // Resolving the mark makes the text unique; the line number refers to what the model saw.
        assert_eq!(
            apply_with_hint(twice, search, replace, second).as_deref(),
            Ok("a = 'abcd1234'\nx = 1\nb = 'wxyz9876'\nx = 1\n")
        );
        let docs = "It writes `[REDACTED: value]` there.\n";
        let want = "It puts `[REDACTED: value]` there.\n";
        assert_eq!(
            apply_edit(docs, "It writes `[REDACTED: value]`", "It puts `[REDACTED: value]`").as_deref(),
            Ok(want)
        );
    }
}
