//! Strips markup that models copy into a search from the view in which they saw a file: line numbers and code
//! fences.

use super::line_numbers::{
    NumberSequence, has_line_label, split_line_number, strip_line_labels, strip_line_numbers,
};
use crate::pattern::EditPattern;

/// Why a pattern cannot be used as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SanitizeError {
    Elision,
    LineNumbers,
    Fence,
    PatchMarker,
}

impl SanitizeError {
    /// Returns the message for the model.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Elision => {
                "a line that stands for omitted lines (`...`) is in the edit: write out every line, or make \
             several smaller edits, each of the lines that change alone. Words that are meant as a comment \
             are put otherwise."
            }
            Self::LineNumbers => {
                "line numbers were copied into search or replace: leave out the numbers that read_file shows."
            }
            Self::PatchMarker => {
                "a line that frames a patch (`<<<<<<< SEARCH`, `=======`, `*** Begin Patch`, `</replace>`) is in \
                 replace: give the text alone."
            }
            Self::Fence => {
                "a code fence was copied into search or replace: leave it out. If the file is to hold a fence, \
                 quote in search the line above it, and begin replace with that line."
            }
        }
    }
}

/// A pattern without copied markup.
#[derive(Debug)]
pub(crate) struct SanitizedPattern {
    pub(crate) pattern: EditPattern,
    /// The line (from 1) at which the search must begin, if the stripped numbers might also be text.
    pub(crate) first_line: Option<usize>,
}

/// Returns the pattern without copied markup, or `Err` if it is uncertain what to strip. Only called
/// for a search that does not match the file exactly.
pub(crate) fn sanitize_pattern(pattern: &EditPattern) -> Result<SanitizedPattern, SanitizeError> {
    let mut out = pattern.clone();
    if let Some(search) = strip_fence(&out.search) {
        out.replace = match (strip_fence(&out.replace), out.replace.contains("```")) {
            (Some(replace), _) => replace,
            (None, false) => out.replace,
            (None, true) => return Err(SanitizeError::Fence),
        };
        out.search = search;
    }
    let mut first = None;
    if let Some(search) = strip_line_numbers(&out.search, NumberSequence::Consecutive) {
        out.search = search;
        if let Some(replace) = strip_line_numbers(&out.replace, NumberSequence::Any) {
            out.replace = replace;
        } else if out.replace.lines().any(|line| split_line_number(line).is_some()) {
            return Err(SanitizeError::LineNumbers);
        }
    } else if let Some(bare) = strip_line_labels(&out.search, NumberSequence::Consecutive) {
        let replace =
            strip_line_labels(&out.replace, NumberSequence::Any).filter(|other| other.format == bare.format);
        out.replace = match replace {
            Some(replace) => replace.text,
            None if out.replace.lines().any(|line| has_line_label(line, &bare.format)) => {
                return Err(SanitizeError::LineNumbers);
            }
            None => out.replace,
        };
        (out.search, first) = (bare.text, Some(bare.first_number));
    }
    Ok(SanitizedPattern { pattern: out, first_line: first })
}

fn strip_fence(text: &str) -> Option<String> {
    let trimmed = text.trim_matches('\n');
    let (first, rest) = trimmed.split_once('\n')?;
    let sign = first.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let tag = first.trim_start_matches(sign);
    let fence = &first[..first.len() - tag.len()];
    let is_tag = tag.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c));
    // Tildes alone are a rule above or below a heading.
    if fence.len() < 3 || !is_tag || (sign == '~' && tag.is_empty()) {
        return None;
    }
    let body = rest.strip_suffix(fence)?;
    (body.is_empty() || body.ends_with('\n')).then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(search: &str, replace: &str) -> EditPattern {
        EditPattern { search: search.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn copied_line_numbers_and_fences_are_stripped() {
        let made =
            |search: &str, replace: &str| sanitize_pattern(&pattern(search, replace)).expect("clean").pattern;
        let cleaned = made("```rs\na\n```", "```rs\nb\n```");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("~~~~rs\na\n~~~~\n", "~~~~rs\nb\n~~~~");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("  9| a\n 10|   b", "  9| a\n 10|   c");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n  b", "a\n  c"));
        assert_eq!(
            sanitize_pattern(&pattern("1: a\n2: b", "1: a\nc")).expect_err("dirt"),
            SanitizeError::LineNumbers
        );
    }
}
