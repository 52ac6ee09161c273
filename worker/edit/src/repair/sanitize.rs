//! Takes off what models copy into a search from the form in which they saw a file: line numbers, code fences.

use super::numbers::{Sequence, labelled, number_prefix, unlabelled, unnumbered};
use crate::pattern::Pattern;

/// Why a pattern cannot be used as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dirt {
    Elision,
    LineNumbers,
    Fence,
    Marker,
}

impl Dirt {
    /// What the model is told.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Elision => {
                "a line that stands for omitted lines (`...`) is in the edit: write out every line, or make \
             several smaller edits, each of the lines that change alone. Words that are meant as a comment \
             are put otherwise."
            }
            Self::LineNumbers => {
                "line numbers were copied into search or replace: leave out the numbers that read_file shows."
            }
            Self::Marker => {
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

/// A pattern without a copied frame.
#[derive(Debug)]
pub(crate) struct Cleaned {
    pub(crate) pattern: Pattern,
    /// The line, from 1, that the search says it begins at, where that must be so: the frame may be text as well.
    pub(crate) first: Option<usize>,
}

/// The pattern without a copied frame; `Err` where what to leave out is not certain. Only called for
/// a search that does not stand in the file as it is.
pub(crate) fn clean(pattern: &Pattern) -> Result<Cleaned, Dirt> {
    let mut out = pattern.clone();
    if let Some(search) = unfenced(&out.search) {
        out.replace = match (unfenced(&out.replace), out.replace.contains("```")) {
            (Some(replace), _) => replace,
            (None, false) => out.replace,
            (None, true) => return Err(Dirt::Fence),
        };
        out.search = search;
    }
    let mut first = None;
    if let Some(search) = unnumbered(&out.search, Sequence::Rising) {
        out.search = search;
        if let Some(replace) = unnumbered(&out.replace, Sequence::Any) {
            out.replace = replace;
        } else if out.replace.lines().any(|line| number_prefix(line).is_some()) {
            return Err(Dirt::LineNumbers);
        }
    } else if let Some(bare) = unlabelled(&out.search, Sequence::Rising) {
        let replace = unlabelled(&out.replace, Sequence::Any).filter(|other| other.form == bare.form);
        out.replace = match replace {
            Some(replace) => replace.text,
            None if out.replace.lines().any(|line| labelled(line, &bare.form)) => {
                return Err(Dirt::LineNumbers);
            }
            None => out.replace,
        };
        (out.search, first) = (bare.text, Some(bare.first));
    }
    Ok(Cleaned { pattern: out, first })
}

fn unfenced(text: &str) -> Option<String> {
    let trimmed = text.trim_matches('\n');
    let (first, rest) = trimmed.split_once('\n')?;
    let sign = first.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let tag = first.trim_start_matches(sign);
    let fence = &first[..first.len() - tag.len()];
    let is_tag = tag.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c));
    // Tildes alone are a rule over and under a title.
    if fence.len() < 3 || !is_tag || (sign == '~' && tag.is_empty()) {
        return None;
    }
    let body = rest.strip_suffix(fence)?;
    (body.is_empty() || body.ends_with('\n')).then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(search: &str, replace: &str) -> Pattern {
        Pattern { search: search.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn frames_are_taken_off() {
        let made = |search: &str, replace: &str| clean(&pattern(search, replace)).expect("clean").pattern;
        let cleaned = made("```rs\na\n```", "```rs\nb\n```");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("~~~~rs\na\n~~~~\n", "~~~~rs\nb\n~~~~");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("  9| a\n 10|   b", "  9| a\n 10|   c");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n  b", "a\n  c"));
        assert_eq!(clean(&pattern("1: a\n2: b", "1: a\nc")).expect_err("dirt"), Dirt::LineNumbers);
    }
}
