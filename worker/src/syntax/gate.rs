//! Compares the errors before an edit with those after it.

use std::{collections::HashMap, ops::Range};

use super::{
    errors::{SyntaxError, errors, line_of},
    language::{Language, languages_of},
};

/// Largest file that is parsed, in bytes: larger ones are made by programs.
pub const PARSED_BYTES_MAX: usize = 1024 * 1024;

/// What an edit did to a file's syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It added no error, or the file is in no language with a grammar.
    NotWorse,
    /// It added errors.
    Worse(Addition),
    /// The file was not parsed; the reason.
    NotParsed(String),
}

/// Errors that an edit added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The language's name.
    pub language: &'static str,
    /// How many; at least 1.
    pub errors: usize,
    /// Line of the first one, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// The line's text, trimmed and cut.
    pub text: String,
}

impl std::fmt::Display for Addition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { language, errors, line, what, text } = self;
        if *errors == 1 {
            write!(f, "1 error ({language}), at line {line}, {what}: {text}")
        } else {
            write!(f, "{errors} errors ({language}), the first at line {line}, {what}: {text}")
        }
    }
}

/// Whether `after`, which `before` becomes, has errors that were not there. `before` is `None` for a new
/// file; `path` tells the language by its name.
#[must_use]
pub fn compare(path: &str, before: Option<&[u8]>, after: &[u8]) -> Verdict {
    let languages = languages_of(path);
    if languages.is_empty() || is_template(languages, after) {
        return Verdict::NotWorse;
    }
    let largest = before.map_or(0, <[u8]>::len).max(after.len());
    if largest > PARSED_BYTES_MAX {
        return Verdict::NotParsed(format!(
            "{largest} bytes are more than the {PARSED_BYTES_MAX} that are parsed"
        ));
    }
    let mut best: Option<Addition> = None;
    for language in languages {
        match in_language(*language, before.map(unmarked), unmarked(after)) {
            Verdict::NotWorse => return Verdict::NotWorse,
            Verdict::NotParsed(why) => return Verdict::NotParsed(why),
            Verdict::Worse(found) => {
                if best.as_ref().is_none_or(|best| found.errors < best.errors) {
                    best = Some(found);
                }
            }
        }
    }
    best.map_or(Verdict::NotWorse, Verdict::Worse)
}

/// YAML with `{{` is made into YAML by another program.
fn is_template(languages: &[Language], text: &[u8]) -> bool {
    languages == [Language::Yaml] && text.windows(2).any(|two| two == b"{{" || two == b"{%")
}

/// Without the byte-order mark.
pub(super) fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

fn in_language(language: Language, before: Option<&[u8]>, after: &[u8]) -> Verdict {
    let too_hard = |_| Verdict::NotParsed(format!("its {} takes the parser too long", language.name()));
    let now = match errors(language, after).map_err(too_hard) {
        Ok(now) => now,
        Err(verdict) => return verdict,
    };
    if now.is_empty() {
        return Verdict::NotWorse;
    }
    let then = match before.map_or(Ok(Vec::new()), |before| errors(language, before)).map_err(too_hard) {
        Ok(then) => then,
        Err(verdict) => return verdict,
    };
    let changed = changed_rows(before.unwrap_or_default(), after);
    let fresh = fresh(&then, &now);
    let within = |error: &SyntaxError, rows: &Range<usize>| {
        *error.rows.start() < rows.end.max(rows.start + 1) && *error.rows.end() >= rows.start
    };
    let more = now.len().saturating_sub(then.len());
    // As many as before may still be others: one mended by chance of how the parser goes on, one made.
    let touched_before = then.iter().any(|error| within(error, &changed.before));
    let made = fresh.iter().copied().find(|error| within(error, &changed.after));
    let first = match (more, made) {
        (0, None) => return Verdict::NotWorse,
        (0, Some(_)) if touched_before => return Verdict::NotWorse,
        (_, made) => made.or_else(|| fresh.first().copied()).or_else(|| now.last()),
    };
    let Some(first) = first else { return Verdict::NotWorse };
    let lines: Vec<&[u8]> = after.split(|byte| *byte == b'\n').collect();
    // A stretch that begins before the edit says little: the edit is where it broke.
    let row = (*first.rows.start()).max(changed.after.start.min(*first.rows.end()));
    Verdict::Worse(Addition {
        language: language.name(),
        errors: more.max(1),
        line: row + 1,
        what: first.what.clone(),
        text: line_of(&lines, row),
    })
}

/// Errors of `now` that `then` does not have: told by their kind and line, wherever that line stands.
fn fresh<'a>(then: &[SyntaxError], now: &'a [SyntaxError]) -> Vec<&'a SyntaxError> {
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for error in then {
        *known.entry((&error.what, &error.line)).or_default() += 1;
    }
    now.iter()
        .filter(|error| match known.get_mut(&(error.what.as_str(), error.line.as_str())) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            Some(_) | None => true,
        })
        .collect()
}

struct Changed {
    before: Range<usize>,
    after: Range<usize>,
}

/// The rows between what both texts begin and end with.
fn changed_rows(before: &[u8], after: &[u8]) -> Changed {
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) =
        (before.split(|byte| *byte == b'\n').collect(), after.split(|byte| *byte == b'\n').collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    Changed { before: head..old.len() - tail, after: head..new.len() - tail }
}
