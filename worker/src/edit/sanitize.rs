//! What models copy into an edit from the form in which they saw a file: line numbers, code fences,
//! marks for omitted lines. None of it ever reaches a file.

use super::{
    forms::marks,
    locate::{Doc, Pattern},
};

/// Why a pattern cannot be used as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dirt {
    Elision,
    LineNumbers,
    Fence,
    Marker,
}

/// The pattern without a copied frame; `Err` where what to leave out is not certain. Only called for
/// a search that does not stand in the file as it is.
pub(super) fn clean(pattern: &Pattern) -> Result<Pattern, Dirt> {
    let mut out = pattern.clone();
    if let Some(search) = unfenced(&out.search) {
        out.replace = match (unfenced(&out.replace), out.replace.contains("```")) {
            (Some(replace), _) => replace,
            (None, false) => out.replace,
            (None, true) => return Err(Dirt::Fence),
        };
        out.search = search;
    }
    if let Some(search) = unnumbered(&out.search, Sequence::Rising) {
        out.search = search;
        if let Some(replace) = unnumbered(&out.replace, Sequence::Any) {
            out.replace = replace;
        } else if out.replace.lines().any(|line| number_prefix(line).is_some()) {
            return Err(Dirt::LineNumbers);
        }
    }
    if out.search.lines().any(is_elision) {
        return Err(Dirt::Elision);
    }
    Ok(out)
}

/// What the replacement would write that stands for something else, and that the file does not have.
pub(super) fn written(doc: &Doc<'_>, pattern: &Pattern) -> Option<Dirt> {
    let is_there = |line: &str| doc.lines.iter().any(|real| real.text.trim() == line.trim());
    let kind = |line: &str| match line {
        line if is_spoken_elision(line) => Some(Dirt::Elision),
        line if marks(line) => Some(Dirt::Marker),
        _ => None,
    };
    pattern
        .replace
        .lines()
        .filter_map(|line| kind(line).map(|kind| (line, kind)))
        .find_map(|(line, kind)| (!is_there(line)).then_some(kind))
}

fn unfenced(text: &str) -> Option<String> {
    let trimmed = text.trim_matches('\n');
    let (first, rest) = trimmed.split_once('\n')?;
    let tag = first.strip_prefix("```")?;
    if !tag.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c)) {
        return None;
    }
    let body = rest.strip_suffix("```")?;
    (body.is_empty() || body.ends_with('\n')).then(|| body.to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// Each number is one more than that before it.
    Rising,
    /// New lines have no number of their own.
    Any,
}

fn unnumbered(text: &str, sequence: Sequence) -> Option<String> {
    let mut last: Option<u64> = None;
    let mut out = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let (number, rest) = number_prefix(line)?;
        if sequence == Sequence::Rising && last.is_some_and(|last| number != last + 1) {
            return None;
        }
        last = Some(number);
        out.push(rest);
    }
    let ending = if text.ends_with('\n') { "\n" } else { "" };
    Some(out.join("\n") + ending)
}

/// `  12| text`, `12: text`, `12→text`, `12<tab>text`.
fn number_prefix(line: &str) -> Option<(u64, &str)> {
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

/// A line that stands for lines: `...`, `# ...`, `// ... existing code ...`, `/* … */`.
fn is_elision(line: &str) -> bool {
    let line = line.trim();
    line == "..."
        || line == "…"
        || comment_body(line).is_some_and(|body| body == "..." || body == "…")
        || is_spoken_elision(line)
}

/// A comment that says in words that lines are left out.
fn is_spoken_elision(line: &str) -> bool {
    let Some(body) = comment_body(line.trim()) else { return false };
    let dotted =
        body.starts_with("...") || body.starts_with('…') || body.ends_with("...") || body.ends_with('…');
    let body = body.to_lowercase();
    let about = ["existing", "rest of", "unchanged", "remaining", "same as", "other code", "omitted"];
    dotted && (body.trim_matches(['.', '…', ' ']).is_empty() || about.iter().any(|word| body.contains(word)))
}

fn comment_body(line: &str) -> Option<&str> {
    let opens = ["//", "#", "/*", "<!--", "--", ";", "{/*"];
    let body = opens.iter().find_map(|open| line.strip_prefix(open))?;
    let closes = ["*/}", "*/", "-->"];
    Some(closes.iter().find_map(|close| body.strip_suffix(close)).unwrap_or(body).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(search: &str, replace: &str) -> Pattern {
        Pattern { search: search.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn frames_are_taken_off() {
        let cleaned = clean(&pattern("```rs\na\n```", "```rs\nb\n```")).expect("clean");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = clean(&pattern("  9| a\n 10|   b", "  9| a\n 10|   c")).expect("clean");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n  b", "a\n  c"));
        assert_eq!(clean(&pattern("a\n...\nb", "c")).expect_err("dirt"), Dirt::Elision);
        assert_eq!(clean(&pattern("1: a\n2: b", "1: a\nc")).expect_err("dirt"), Dirt::LineNumbers);
    }

    #[test]
    fn words_about_omission_are_told_from_code() {
        for line in ["# ... existing code ...", "// ...", "/* … rest of the file … */"] {
            assert!(is_elision(line), "{line}");
        }
        for line in ["...args", "x = ...", "# wait...", "// see the rest of the file"] {
            assert!(!is_elision(line), "{line}");
        }
    }
}
