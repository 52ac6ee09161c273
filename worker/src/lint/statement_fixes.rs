//! Patterns for white space and single statements.

use super::{
    file_lines::{FileLines, split_line_ending},
    finding::LintFinding,
};

fn has_code(finding: &LintFinding, codes: &[&str]) -> bool {
    codes.contains(&finding.code.as_str())
}

fn replace_line(line: &mut String, text: &str) -> bool {
    let (before, end) = split_line_ending(line);
    if before == text {
        return false;
    }
    *line = format!("{text}{end}");
    true
}

pub(super) fn strip_trailing_space(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["W291", "W293", "no-trailing-spaces"]) {
        return false;
    }
    if lines.is_line_end_in_literal(finding) {
        return false;
    }
    let Some(line) = lines.line_mut(finding) else { return false };
    let text = split_line_ending(line).0.trim_end_matches([' ', '\t']).to_owned();
    replace_line(line, &text)
}

/// Whether the finding says that the file lacks a final newline.
pub(super) fn is_missing_final_newline(finding: &LintFinding) -> bool {
    has_code(finding, &["W292", "eol-last"])
}

pub(super) fn remove_trailing_blank_lines(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["W391"]) {
        return false;
    }
    let before = lines.0.len();
    while lines.0.len() > 1 && lines.0.last().is_some_and(|line| line.trim().is_empty()) {
        lines.0.pop();
    }
    lines.0.len() < before
}

/// `a == None` → `a is None`, if the line has one such comparison and the linter marks the fix as safe: a class may
/// define its own operator, as query columns do.
pub(super) fn fix_none_comparison(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["E711"]) || !finding.has_safe_fix {
        return false;
    }
    let Some(text) = lines.line_mut(finding).map(|line| split_line_ending(line).0.to_owned()) else {
        return false;
    };
    let place = text.find(" == None").or_else(|| text.find(" != None"));
    if place.is_none_or(|place| lines.is_in_literal(finding, place)) {
        return false;
    }
    let Some(line) = lines.line_mut(finding) else { return false };
    let (equal, unequal) = (text.matches(" == None").count(), text.matches(" != None").count());
    if equal + unequal != 1 || text.contains("None.") {
        return false;
    }
    replace_line(line, &text.replace(" == None", " is None").replace(" != None", " is not None"))
}

/// `f"text"` → `"text"`, unless it has doubled braces, whose meaning would change.
pub(super) fn fix_empty_f_string(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["F541"]) {
        return false;
    }
    let Some(line) = lines.line_mut(finding) else { return false };
    let text = split_line_ending(line).0.to_owned();
    let Some((at, _)) = finding.column.checked_sub(1).and_then(|column| text.char_indices().nth(column))
    else {
        return false;
    };
    let rest = &text[at..];
    let quote =
        ["f\"", "f'"].iter().find(|start| rest.starts_with(**start)).and_then(|start| start.chars().nth(1));
    let Some(quote) = quote else { return false };
    let Some(close) = rest[2..].find(quote) else { return false };
    let triple = rest[2..].starts_with(quote);
    if triple || rest[2..2 + close].contains(['{', '}', '\\']) {
        return false;
    }
    replace_line(line, &format!("{}{}", &text[..at], &rest[1..]))
}

pub(super) fn remove_superfluous_semicolon(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["E703"]) {
        return false;
    }
    let Some(line) = lines.line_mut(finding) else { return false };
    let Some(text) =
        split_line_ending(line).0.trim_end().strip_suffix(';').map(|text| text.trim_end().to_owned())
    else {
        return false;
    };
    !text.contains('#') && replace_line(line, &text)
}

/// Only if the finding is at the very end of its line.
pub(super) fn add_missing_semicolon(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["semi"]) || !finding.message.starts_with("Missing semicolon") {
        return false;
    }
    let Some(line) = lines.line_mut(finding) else { return false };
    let text = split_line_ending(line).0.trim_end().to_owned();
    finding.column == text.chars().count() + 1 && replace_line(line, &format!("{text};"))
}

/// `expected 2 blank lines, found 0`.
pub(super) fn add_blank_lines(_: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    if !has_code(finding, &["E301", "E302", "E305", "E306"]) {
        return false;
    }
    let number = |word: &str| -> Option<usize> {
        let rest = &finding.message[finding.message.find(word)? + word.len()..];
        let digits = rest.trim_start_matches([' ', '(']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    let (Some(wanted), Some(there)) =
        (number("xpected"), number("found").or_else(|| number("got").or(Some(0))))
    else {
        return false;
    };
    let Some(at) =
        finding.line.checked_sub(1).filter(|at| *at < lines.0.len() && wanted <= 2 && there < wanted)
    else {
        return false;
    };
    let end = lines.line_ending();
    for _ in there..wanted {
        lines.0.insert(at, end.to_owned());
    }
    true
}
