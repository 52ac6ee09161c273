//! The strictest level: the search occurs in the file exactly, ignoring line endings.

use std::ops::Range;

use docket_schema::tool::EditLevel;

use super::hint::{PLACES_COUNTED_MAX, choose_places};
use crate::{
    edit::EditHint,
    pattern::EditPattern,
    repair::{block_depth, indent_style},
    search_doc::SearchDoc,
    search_match::{Match, NoMatch},
    text::leading_indent,
};

/// Returns the selected places; empty if the search does not occur in the file.
pub(crate) fn find_exact(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    hint: &EditHint,
) -> Result<Vec<Match>, NoMatch> {
    let text = NormalizedText::from_doc(doc);
    let starts = text.occurrences(&pattern.search, hint.whole_lines);
    if starts.is_empty() {
        return Ok(Vec::new());
    }
    let spans: Vec<MatchSpan> =
        starts.iter().map(|start| text.span_at(doc, *start, pattern.search.len())).collect();
    let places: Vec<Range<usize>> = spans.iter().map(|span| span.first_line..span.last_line + 1).collect();
    let chosen: Vec<MatchSpan> =
        choose_places(doc, hint, &places)?.into_iter().filter_map(|at| spans.get(at).copied()).collect();
    let unfit = |why: &str| NoMatch::HintMismatch { reason: why.to_owned(), places: places.clone() };
    if chosen.windows(2).any(|two| two[1].start < two[0].end) {
        return Err(unfit("these places overlap, so they cannot all be replaced"));
    }
    let mut out = Vec::new();
    let mut rest = chosen.as_slice();
    while !rest.is_empty() {
        // Several matches on one line are a single change of that line.
        let more = rest.windows(2).take_while(|two| two[1].first_line <= two[0].last_line).count();
        let (group, others) = rest.split_at(more + 1);
        match group {
            [one] => out.push(build_match(doc, pattern, one)),
            many if many.iter().any(|span| span.ends_with_eol) => {
                return Err(unfit("these places share lines: make one edit of the lines they stand on"));
            }
            many => out.push(combine_spans(doc, &text, pattern, many)),
        }
        rest = others;
    }
    Ok(out)
}

/// The file with `\n` line endings, and the line starts in that form.
struct NormalizedText<'a> {
    text: std::borrow::Cow<'a, str>,
    line_starts: Vec<usize>,
}

impl<'a> NormalizedText<'a> {
    fn from_doc(doc: &SearchDoc<'a>) -> Self {
        let uniform = doc.lines.iter().all(|line| line.eol == "\n");
        let text = if uniform {
            doc.text.into()
        } else {
            doc.lines.iter().flat_map(|line| [line.text, "\n"]).collect::<String>().into()
        };
        let mut starts = Vec::with_capacity(doc.lines.len());
        let mut at = 0;
        for line in &doc.lines {
            starts.push(at);
            at += line.text.len() + 1;
        }
        Self { text, line_starts: starts }
    }

    /// Returns all matches, overlapping ones included. Stops after [`PLACES_COUNTED_MAX`] + 1.
    fn occurrences(&self, part: &str, whole_lines: bool) -> Vec<usize> {
        let mut out = Vec::new();
        let mut from = 0;
        while let Some(at) = self.text[from..].find(part) {
            let start = from + at;
            if !whole_lines || self.is_whole_lines(start, start + part.len()) {
                out.push(start);
            }
            if out.len() > PLACES_COUNTED_MAX {
                break;
            }
            from = start + self.text[start..].chars().next().map_or(1, char::len_utf8);
        }
        out
    }

    fn is_whole_lines(&self, start: usize, end: usize) -> bool {
        let breaks_at = |at: usize| self.text.as_bytes().get(at).is_none_or(|byte| *byte == b'\n');
        (start == 0 || breaks_at(start - 1)) && (breaks_at(end - 1) || breaks_at(end))
    }

    fn line_at(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    fn span_at(&self, doc: &SearchDoc<'_>, start: usize, length: usize) -> MatchSpan {
        let end = start + length;
        let (first, last) = (self.line_at(start), self.line_at(end - 1));
        let whole_end = self.line_starts[last] + doc.lines[last].text.len();
        MatchSpan {
            start,
            end,
            first_line: first,
            start_col: start - self.line_starts[first],
            last_line: last,
            ends_with_eol: end > whole_end,
            end_col: end.min(whole_end) - self.line_starts[last],
        }
    }
}

#[derive(Clone, Copy)]
struct MatchSpan {
    /// Byte offsets in [`NormalizedText::text`].
    start: usize,
    end: usize,
    first_line: usize,
    start_col: usize,
    last_line: usize,
    ends_with_eol: bool,
    end_col: usize,
}

/// Combines matches that share lines. None of them ends with a line break.
fn combine_spans(
    doc: &SearchDoc<'_>,
    text: &NormalizedText<'_>,
    pattern: &EditPattern,
    spans: &[MatchSpan],
) -> Match {
    let (first, last) = (spans[0].first_line, spans[spans.len() - 1].last_line);
    let mut replaced = String::new();
    let mut at = text.line_starts[first];
    for span in spans {
        replaced.push_str(&text.text[at..span.start]);
        replaced.push_str(&pattern.replace);
        at = span.end;
    }
    replaced.push_str(&text.text[at..text.line_starts[last] + doc.lines[last].text.len()]);
    Match {
        level: EditLevel::Exact,
        search: doc.lines[first..=last].iter().map(|line| line.text.to_owned()).collect(),
        replace: replaced.split('\n').map(str::to_owned).collect(),
        align: (first..=last).map(Some).collect(),
    }
}

/// Extends an exact match to whole lines, so that one merge serves all levels.
fn build_match(doc: &SearchDoc<'_>, pattern: &EditPattern, span: &MatchSpan) -> Match {
    let brought =
        indent_style::adapt_replacement(doc, pattern, span.first_line..span.last_line + 1, span.start_col);
    let pattern = brought.as_ref().unwrap_or(pattern);
    let mut replace = indent_replacement(doc, pattern, span);
    let last_text = doc.lines[span.last_line].text;
    let prefix = &doc.lines[span.first_line].text[..span.start_col];
    // A match that begins at the first word of a line counts as whole too.
    let lined = prefix.trim().is_empty();
    let whole = lined && span.end_col == last_text.len();
    let mut search: Vec<String> =
        doc.lines[span.first_line..=span.last_line].iter().map(|line| line.text.to_owned()).collect();
    let mut align: Vec<Option<usize>> = (span.first_line..=span.last_line).map(Some).collect();
    if whole && !span.ends_with_eol && replace.is_empty() {
        // Whole lines are removed with their line endings.
        return Match { level: EditLevel::Exact, search, replace: Vec::new(), align };
    }
    if whole && !span.ends_with_eol && replace.ends_with('\n') && !adds_only_line_break(pattern) {
        replace.pop();
    }
    if whole && span.ends_with_eol && !replace.is_empty() && !replace.ends_with('\n') {
        replace.push('\n');
    }
    let mut rest = if span.ends_with_eol { String::new() } else { last_text[span.end_col..].to_owned() };
    let swallows = span.ends_with_eol && !(replace.is_empty() && lined) && !replace.ends_with('\n');
    if span.ends_with_eol && !swallows {
        replace = replace.strip_suffix('\n').map(str::to_owned).unwrap_or(replace);
        if replace.is_empty() && lined && !pattern.replace.ends_with('\n') {
            return Match { level: EditLevel::Exact, search, replace: Vec::new(), align };
        }
    }
    if swallows && let Some(next) = doc.lines.get(span.last_line + 1) {
        // The line ending itself is replaced, so the next line joins this one.
        rest = next.text.to_owned();
        search.push(rest.clone());
        align.push(Some(span.last_line + 1));
    }
    let prefix = block_depth::next_line_indent(pattern, prefix).filter(|_| lined).unwrap_or(prefix);
    let text = format!("{prefix}{replace}{rest}");
    Match { level: EditLevel::Exact, search, replace: text.split('\n').map(str::to_owned).collect(), align }
}

/// Indents the replacement of one line that was quoted without its indentation: its further lines
/// get the same indentation, unless they already have it.
fn indent_replacement(doc: &SearchDoc<'_>, pattern: &EditPattern, span: &MatchSpan) -> String {
    let line = doc.lines[span.first_line].text;
    let prefix = &line[..span.start_col];
    let whole = span.first_line == span.last_line && span.end_col == line.len();
    let further = || pattern.replace.lines().skip(1).filter(|line| !line.trim().is_empty());
    let bare =
        !prefix.is_empty() && prefix == leading_indent(line) && leading_indent(&pattern.search).is_empty();
    if span.end_col == doc.lines[span.last_line].text.len()
        && let Some(replace) = block_depth::strip_repeated_indent(pattern, prefix)
    {
        return replace;
    }
    if !whole || !bare || further().all(|line| line.starts_with(prefix)) {
        return pattern.replace.clone();
    }
    let mut out = String::new();
    for (at, line) in pattern.replace.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
            out.push_str(if line.trim().is_empty() { "" } else { prefix });
        }
        out.push_str(line);
    }
    out
}

/// Returns whether a line break is all that the replacement adds; then it is intended.
fn adds_only_line_break(pattern: &EditPattern) -> bool {
    pattern.replace.strip_suffix('\n') == Some(pattern.search.as_str())
}
