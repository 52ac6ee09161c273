//! Compares the syntax errors before an edit with those after it.

use std::{collections::HashMap, ops::Range};

use super::{
    errors::{SyntaxError, line_excerpt, syntax_errors},
    language::{SourceLanguage, languages_for_path},
};

/// Largest file that is parsed, in bytes: larger ones are generated.
pub const PARSED_BYTES_MAX: usize = 1024 * 1024;

/// Effect of an edit on a file's syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyntaxVerdict {
    /// The edit added no error, or there is no grammar for the file.
    NotWorse,
    /// The edit added errors.
    Worse(AddedErrors),
    /// The file was not parsed, with the reason.
    NotParsed(String),
}

/// Errors that an edit added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedErrors {
    /// The language's display name.
    pub language: &'static str,
    /// Number of added errors; at least 1.
    pub count: usize,
    /// Line of the first added error, from 1.
    pub line: usize,
    /// Description of the first added error.
    pub message: String,
    /// The line's text, trimmed and truncated.
    pub line_text: String,
}

impl std::fmt::Display for AddedErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { language, count: errors, line, message: what, line_text: text } = self;
        if *errors == 1 {
            write!(f, "1 error ({language}), at line {line}, {what}: {text}")
        } else {
            write!(f, "{errors} errors ({language}), the first at line {line}, {what}: {text}")
        }
    }
}

/// Reports whether an edit from `before` to `after` added syntax errors. `before` is `None` for a new file; the name
/// in `path` determines the language.
#[must_use]
pub fn compare_syntax(path: &str, before: Option<&[u8]>, after: &[u8]) -> SyntaxVerdict {
    let languages = languages_for_path(path);
    if languages.is_empty() || is_template(languages, after) {
        return SyntaxVerdict::NotWorse;
    }
    let largest = before.map_or(0, <[u8]>::len).max(after.len());
    if largest > PARSED_BYTES_MAX {
        return SyntaxVerdict::NotParsed(format!(
            "{largest} bytes are more than the {PARSED_BYTES_MAX} that are parsed"
        ));
    }
    let mut best: Option<AddedErrors> = None;
    for language in languages {
        match compare_in_language(*language, before.map(strip_bom), strip_bom(after)) {
            SyntaxVerdict::NotWorse => return SyntaxVerdict::NotWorse,
            SyntaxVerdict::NotParsed(why) => return SyntaxVerdict::NotParsed(why),
            SyntaxVerdict::Worse(found) => {
                if best.as_ref().is_none_or(|best| found.count < best.count) {
                    best = Some(found);
                }
            }
        }
    }
    best.map_or(SyntaxVerdict::NotWorse, SyntaxVerdict::Worse)
}

/// YAML with `{{` is a template that another program renders.
fn is_template(languages: &[SourceLanguage], text: &[u8]) -> bool {
    languages == [SourceLanguage::Yaml] && text.windows(2).any(|two| two == b"{{" || two == b"{%")
}

/// Removes the byte-order mark.
pub(super) fn strip_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

fn compare_in_language(language: SourceLanguage, before: Option<&[u8]>, after: &[u8]) -> SyntaxVerdict {
    let too_hard = |_| SyntaxVerdict::NotParsed(format!("its {} takes the parser too long", language.name()));
    let now = match syntax_errors(language, after).map_err(too_hard) {
        Ok(now) => now,
        Err(verdict) => return verdict,
    };
    if now.is_empty() {
        return SyntaxVerdict::NotWorse;
    }
    let then = match before.map_or(Ok(Vec::new()), |before| syntax_errors(language, before)).map_err(too_hard)
    {
        Ok(then) => then,
        Err(verdict) => return verdict,
    };
    let changed = changed_rows(before.unwrap_or_default(), after);
    let fresh = new_errors(&then, &now);
    let within = |error: &SyntaxError, rows: &Range<usize>| {
        *error.rows.start() < rows.end.max(rows.start + 1) && *error.rows.end() >= rows.start
    };
    let more = now.len().saturating_sub(then.len());
    // With an equal count the errors may still differ: the parser's recovery may hide an old one while the edit
    // adds a new one.
    let touched_before = then.iter().any(|error| within(error, &changed.before));
    let made = fresh.iter().copied().find(|error| within(error, &changed.after));
    let first = match (more, made) {
        (0, None) => return SyntaxVerdict::NotWorse,
        (0, Some(_)) if touched_before => return SyntaxVerdict::NotWorse,
        (_, made) => made.or_else(|| fresh.first().copied()).or_else(|| now.last()),
    };
    let Some(first) = first else { return SyntaxVerdict::NotWorse };
    let lines: Vec<&[u8]> = after.split(|byte| *byte == b'\n').collect();
    // An error range that starts before the edit is imprecise: the edit caused the error.
    let row = (*first.rows.start()).max(changed.after.start.min(*first.rows.end()));
    SyntaxVerdict::Worse(AddedErrors {
        language: language.name(),
        count: more.max(1),
        line: row + 1,
        message: first.message.clone(),
        line_text: line_excerpt(&lines, row),
    })
}

/// Errors of `now` that `then` lacks, compared by message and line text, so that moved lines do not count.
fn new_errors<'a>(then: &[SyntaxError], now: &'a [SyntaxError]) -> Vec<&'a SyntaxError> {
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for error in then {
        *known.entry((&error.message, &error.line_text)).or_default() += 1;
    }
    now.iter()
        .filter(|error| match known.get_mut(&(error.message.as_str(), error.line_text.as_str())) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            Some(_) | None => true,
        })
        .collect()
}

struct ChangedRows {
    before: Range<usize>,
    after: Range<usize>,
}

/// The rows left after removing the common prefix and suffix of both texts.
fn changed_rows(before: &[u8], after: &[u8]) -> ChangedRows {
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) =
        (before.split(|byte| *byte == b'\n').collect(), after.split(|byte| *byte == b'\n').collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    ChangedRows { before: head..old.len() - tail, after: head..new.len() - tail }
}
