//! Words for the model: why an edit was refused with the file's own lines, and the unified diff of
//! one that was made.

use similar::TextDiff;

use super::{
    fuzzy::{Wanted, best_windows},
    hint::count,
    locate::{Doc, Found, Miss, Pattern},
    merge::Conflict,
    text::collapse,
};

/// Candidates that a refusal shows.
const CANDIDATES_MAX: usize = 3;
/// Places that a refusal lists where several match; beyond it more lines would not help to choose.
const PLACES_MAX: usize = 6;
/// Lines that it shows of each.
const LINES_MAX: usize = 14;
/// Characters that it shows of a line.
const LINE_CHARS_MAX: usize = 200;

/// Why `pattern` has no one place.
pub(super) fn miss(doc: &Doc<'_>, pattern: &Pattern, miss: &Miss) -> String {
    match miss {
        Miss::Ambiguous { places, alike: false } => format!(
            "search matches {}; add lines around it until it names one, or say which by occurrence or \
             near_line. They are:\n{}",
            count(places.len()),
            quote_all(doc, places)
        ),
        Miss::Ambiguous { places, alike: true } => format!(
            "search matches {} about equally, none of them exactly; copy the lines of the one that is meant. \
             They are:\n{}",
            count(places.len()),
            quote_all(doc, places)
        ),
        Miss::Unfit { why, places } => {
            let more = places.len().saturating_sub(PLACES_MAX);
            let more = if more == 0 { String::new() } else { format!("\n… and {more} more") };
            format!("{why}. The places are:\n{}{more}", quote_all(doc, places))
        }
        Miss::Absent => format!("search is not in the file. {}", nearest(doc, &pattern.search)),
        Miss::Doubtful(place) => format!(
            "search is not in the file; these lines are similar, yet they may be another statement. If they \
             are meant, copy them into search:\n{}",
            quote(doc, place)
        ),
    }
}

/// Why the change cannot be carried over to the place that was found.
pub(super) fn conflict(doc: &Doc<'_>, found: &Found, conflict: &Conflict) -> String {
    format!(
        "search was found only loosely, and at line {} {}. Copy the file's lines into search:\n{}",
        conflict.line + 1,
        conflict.why,
        quote(doc, &found.region())
    )
}

/// The lines of the file nearest to `search`.
pub(super) fn nearest(doc: &Doc<'_>, search: &str) -> String {
    let said: Vec<String> = search.lines().map(collapse).filter(|line| !line.is_empty()).collect();
    let mut shown: Vec<std::ops::Range<usize>> = Vec::new();
    for window in best_windows(doc, &said, Wanted::Hint) {
        let lines = doc.solid[window.range.start]..doc.solid[window.range.end - 1] + 1;
        if shown.iter().all(|other| lines.end <= other.start || other.end <= lines.start) {
            shown.push(lines);
        }
        if shown.len() == CANDIDATES_MAX {
            break;
        }
    }
    if shown.is_empty() {
        return "No lines of the file resemble it: read the file again.".to_owned();
    }
    let quoted: Vec<String> = shown.iter().map(|lines| quote(doc, lines)).collect();
    format!("The nearest lines are:\n{}", quoted.join("\n--\n"))
}

fn quote_all(doc: &Doc<'_>, places: &[std::ops::Range<usize>]) -> String {
    places.iter().take(PLACES_MAX).map(|place| quote(doc, place)).collect::<Vec<_>>().join("\n--\n")
}

fn quote(doc: &Doc<'_>, lines: &std::ops::Range<usize>) -> String {
    let mut out: Vec<String> = lines
        .clone()
        .take(LINES_MAX)
        .filter_map(|at| doc.lines.get(at).map(|line| (at, line)))
        .map(|(at, line)| format!("{:>6}| {}", at + 1, cut(line.text)))
        .collect();
    if lines.len() > LINES_MAX {
        out.push(format!("        … {} more lines", lines.len() - LINES_MAX));
    }
    out.join("\n")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// The difference of two versions of the file `name` in unified form, three lines of context.
#[must_use]
pub fn unified_diff(name: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    TextDiff::from_lines(before.as_ref(), after.as_ref())
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string()
}
