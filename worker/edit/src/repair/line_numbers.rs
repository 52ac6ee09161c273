//! Handles line numbers that models copy into an edit: `12| text` as read_file shows them, `12: text`,
//! `12→text`, and rarer formats (`L12: text`, `12) text`, `path:12: text`) that may just as well be text and
//! count only if the number is the line's own.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    similarity::{SAME_LINE_MIN, line_similarity},
};

/// Minimum number of characters that distinguish one line from another.
const DISTINCTIVE_CHARS_MIN: usize = 3;

/// Returns whether the replacement would write line numbers: it has a line of the search, or a
/// similar one, with a number in front that the search does not have.
pub(crate) fn introduces_line_numbers(doc: &SearchDoc<'_>, pattern: &EditPattern) -> bool {
    let said: Vec<&str> = pattern.search.lines().collect();
    let numbered = |line: &str| !said.contains(&line) && split_line_number(line).is_some();
    let is_said = |line: &str| {
        split_line_number(line).is_some_and(|(_, rest)| {
            rest.trim().len() >= DISTINCTIVE_CHARS_MIN && said.iter().any(|said| said.trim() == rest.trim())
        })
    };
    if pattern
        .replace
        .lines()
        .any(|line| numbered(line) && (is_said(line) || looks_like_read_file_line(doc, pattern, line)))
    {
        return true;
    }
    if said.iter().any(|line| split_line_number(line).is_some()) {
        return false;
    }
    let solid: Vec<&str> = pattern.replace.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some(bare) = strip_line_numbers(&solid.join("\n"), NumberSequence::Consecutive) else {
        return introduces_line_labels(doc, &said, &solid);
    };
    let barred = solid.iter().all(|line| {
        line.trim_start()
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start()
            .starts_with(['|', '\u{2502}', '\u{2192}'])
    });
    let alike = |line: &str| {
        line.trim().len() >= DISTINCTIVE_CHARS_MIN
            && said.iter().any(|said| line_similarity(said.trim(), line.trim()) >= SAME_LINE_MIN)
    };
    // `1: 'one'` may also be a map entry, so the first number must be that of a similar line.
    let colons = solid
        .iter()
        .all(|line| line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with(':'));
    let in_place = || {
        solid.first().and_then(|line| split_line_number(line)).is_some_and(|(number, rest)| {
            let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            at.and_then(|at| doc.lines.get(at))
                .is_some_and(|line| line_similarity(line.text.trim(), rest.trim()) >= SAME_LINE_MIN)
        })
    };
    (barred && solid.len() > 1) || (bare.lines().any(alike) && (!colons || in_place()))
}

/// Returns whether the number is formatted as by read_file, padded and followed by a bar or a tab, in a file
/// without such a line.
fn looks_like_read_file_line(doc: &SearchDoc<'_>, pattern: &EditPattern, line: &str) -> bool {
    let set = |line: &str| {
        let digits = line.trim_start_matches(' ');
        let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let width = line.len() - rest.len();
        digits != line
            && digits != rest
            && (NUMBER_COLUMN_WIDTH - 1..=NUMBER_COLUMN_WIDTH).contains(&width)
            && rest.starts_with(['|', '\t', '\u{2192}'])
    };
    set(line) && !doc.lines.iter().any(|line| set(line.text)) && !pattern.search.lines().any(set)
}

/// Width of the line number column in read_file's output.
const NUMBER_COLUMN_WIDTH: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberSequence {
    /// Each number is one more than the previous one.
    Consecutive,
    /// New lines have no number of their own.
    Any,
}

pub(crate) fn strip_line_numbers(text: &str, sequence: NumberSequence) -> Option<String> {
    let mut last: Option<u64> = None;
    let mut out = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let (number, rest) = split_line_number(line)?;
        if sequence == NumberSequence::Consecutive && last.is_some_and(|last| number != last + 1) {
            return None;
        }
        last = Some(number);
        out.push(rest);
    }
    let ending = if text.ends_with('\n') { "\n" } else { "" };
    Some(out.join("\n") + ending)
}

/// Splits `  12| text`, `12: text`, `12→text` or `12<tab>text`.
pub(crate) fn split_line_number(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start_matches(' ');
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = line[..digits].parse().ok()?;
    let rest = &line[digits..];
    let rest = rest.strip_prefix(' ').filter(|rest| rest.starts_with(['|', '│', ':'])).unwrap_or(rest);
    if let Some(rest) = rest.strip_prefix(['→', '\t']) {
        return Some((number, rest));
    }
    let rest = rest.strip_prefix(['|', ':', '│'])?;
    Some((number, rest.strip_prefix([' ', '\t']).unwrap_or(rest)))
}

/// A rarer format of a line number before a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabelFormat {
    /// `L12: text`, `L12| text`.
    Letter,
    /// `12) text`.
    Bracket,
    /// `src/a.rs:12: text`, as search results show it.
    Path(String),
}

/// Lines without their numbers.
#[derive(Debug)]
pub(crate) struct UnlabelledText {
    pub(crate) format: LabelFormat,
    /// The number of the first line.
    pub(crate) first_number: usize,
    pub(crate) text: String,
}

/// Strips the numbers of a text in which every line has a number in one of the rarer formats.
pub(crate) fn strip_line_labels(text: &str, sequence: NumberSequence) -> Option<UnlabelledText> {
    let mut lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let (form, first, rest) = split_line_label(lines.next()?)?;
    let mut out = vec![rest];
    let mut last = first;
    for line in lines {
        let (other, number, rest) = split_line_label(line)?;
        if other != form || (sequence == NumberSequence::Consecutive && number != last + 1) {
            return None;
        }
        last = number;
        out.push(rest);
    }
    let ending = if text.ends_with('\n') { "\n" } else { "" };
    Some(UnlabelledText { format: form, first_number: first, text: out.join("\n") + ending })
}

/// Returns whether a line begins with a number in this format.
pub(crate) fn has_line_label(line: &str, form: &LabelFormat) -> bool {
    split_line_label(line).is_some_and(|(other, ..)| other == *form)
}

fn split_line_label(line: &str) -> Option<(LabelFormat, usize, &str)> {
    let line = line.trim_start_matches(' ');
    let numbered = |text: &'_ str| -> Option<(usize, usize)> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some((text[..digits].parse().ok()?, digits))
    };
    // One space separates the number from the line.
    let after = |rest: &'_ str| rest.len() - rest.strip_prefix(' ').unwrap_or(rest).len();
    if let Some(text) = line.strip_prefix('L') {
        let (number, digits) = numbered(text)?;
        let rest = text[digits..].strip_prefix([':', '|'])?;
        return Some((LabelFormat::Letter, number, &rest[after(rest)..]));
    }
    if line.starts_with(|c: char| c.is_ascii_digit()) {
        let (number, digits) = numbered(line)?;
        let rest = line[digits..].strip_prefix(')')?;
        return Some((LabelFormat::Bracket, number, &rest[after(rest)..]));
    }
    let (path, text) = line.split_once(':')?;
    if path.is_empty() || path.contains(char::is_whitespace) || !path.contains(['.', '/']) {
        return None;
    }
    let (number, digits) = numbered(text)?;
    let rest = text[digits..].strip_prefix(':')?;
    Some((LabelFormat::Path(path.to_owned()), number, &rest[after(rest)..]))
}

/// Like [`introduces_line_numbers`], for the rarer formats: each line must resemble the file's line with
/// that number. A list that gets numbered (`1) first`) keeps the exact words of the search, while a copy of
/// numbered lines contains a change.
fn introduces_line_labels(doc: &SearchDoc<'_>, said: &[&str], solid: &[&str]) -> bool {
    let Some(bare) = strip_line_labels(&solid.join("\n"), NumberSequence::Consecutive) else { return false };
    if said.iter().any(|line| split_line_label(line).is_some()) {
        return false;
    }
    let place = bare.first_number.checked_sub(1).and_then(|at| doc.lines.get(at));
    let in_place = place
        .zip(bare.text.lines().next())
        .is_some_and(|(real, line)| line_similarity(real.text.trim(), line.trim()) >= SAME_LINE_MIN);
    let is_said = |line: &str| said.iter().any(|said| said.trim() == line.trim());
    in_place && (bare.format != LabelFormat::Bracket || !bare.text.lines().all(is_said))
}

#[cfg(test)]
mod tests {
    use crate::test_support::apply_edit;

    const CODE: &str = "def f():\n    a = 1\n    b = 2\n";

    #[test]
    fn line_labels_are_stripped_when_they_match_the_file() {
        for (search, replace) in [
            ("L2:    a = 1\nL3:    b = 2", "L2:    a = 1\nL3:    b = 3"),
            ("L2:     a = 1\nL3:     b = 2\n", "L2:     a = 1\nL3:     b = 3\n"),
            ("L2|     a = 1\nL3|     b = 2", "    a = 1\n    b = 3"),
            ("2)     a = 1\n3)     b = 2", "2)     a = 1\n3)     b = 3"),
            ("src/a.py:2:     a = 1\nsrc/a.py:3:     b = 2", "src/a.py:2:     a = 1\nsrc/a.py:3:     b = 3"),
            ("a.py:3:    b = 2", "a.py:3:    b = 3"),
        ] {
            assert_eq!(
                apply_edit(CODE, search, replace).as_deref(),
                Ok("def f():\n    a = 1\n    b = 3\n"),
                "{search:?}"
            );
        }
        for (before, search, replace) in [
            // Not the number of that line, so not a line number.
            (CODE, "L7:    a = 1\nL8:    b = 2", "L7:    a = 1\nL8:    b = 3"),
            ("x\ny\nfirst\nsecond\n", "1) first\n2) second", "1) first\n2) other"),
            // Only some of the replacement's lines.
            (CODE, "L2:    a = 1\nL3:    b = 2", "L2:    a = 1\n    b = 3"),
            // Added by the replacement alone.
            (CODE, "    a = 1\n    b = 2", "L2:     a = 1\nL3:     b = 3"),
            (CODE, "    a = 1\n    b = 2", "2)     a = 1\n3)     b = 3"),
            (CODE, "    b = 2", "a.py:3:     b = 3"),
            // Only on a new line, in read_file's format.
            (CODE, "    b = 2", "    b = 2\n     4|     c = 3"),
            (CODE, "    b = 2", "    b = 2\n     4\t    c = 3"),
        ] {
            let error = apply_edit(before, search, replace).expect_err(search);
            assert!(error.contains("Nothing was changed"), "{error}");
        }
    }

    #[test]
    fn numbered_lists_and_map_keys_are_kept() {
        for (before, search, replace, want) in [
            ("1) one\n2) two\n", "2) two", "2) two\n3) three", "1) one\n2) two\n3) three\n"),
            ("one\ntwo\n", "one\ntwo", "1) one\n2) two", "1) one\n2) two\n"),
            ("jmp L2\nL2: mov\n", "L2: mov", "L2: add", "jmp L2\nL2: add\n"),
            ("jmp L9\nnop\n", "nop", "L9: nop2()", "jmp L9\nL9: nop2()\n"),
        ] {
            assert_eq!(apply_edit(before, search, replace).as_deref(), Ok(want), "{search:?}");
        }
    }
}
