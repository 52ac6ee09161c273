//! Words for the model: why an edit was refused, with the file's own lines.

use docket_schema::redact;

use super::differs;
use crate::{
    doc::Doc,
    found::{Found, Miss},
    matching::{
        fuzzy::{Wanted, best_windows},
        hint::count,
    },
    merge::Conflict,
    pattern::Pattern,
    text::collapsed_lines,
};

/// Candidates that a refusal shows.
const CANDIDATES_MAX: usize = 3;
/// Places that a refusal lists where several match; beyond it more lines would not help to choose.
const PLACES_MAX: usize = 6;
/// Lines that it shows of each.
const LINES_MAX: usize = 14;
/// Characters that it shows of a line.
const LINE_CHARS_MAX: usize = 300;

/// What a mark of hidden text is.
const HIDDEN: &str = "`[REDACTED: …]` stands for text that was hidden from you and that the file holds";
/// How to edit around one.
pub(crate) const HIDDEN_REMEDY: &str = "Leave the lines with it out of search and replace, and edit those around \
                                        them: the file keeps its own";

/// Why `pattern` has no one place.
pub(crate) fn miss(doc: &Doc<'_>, pattern: &Pattern, miss: &Miss) -> String {
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
        Miss::Absent => {
            let remarks = differs::present(doc, pattern).into_iter().chain(hidden_remark(pattern));
            let remarks: String = remarks.flat_map(|remark| [remark, " ".to_owned()]).collect();
            format!("search is not in the file. {remarks}{}", nearest(doc, &pattern.search))
        }
        Miss::Doubtful(place) => {
            let (place, known) = match differs::rewritten(doc, &pattern.search) {
                Some((place, what)) => (place, Some(what)),
                None => (place.clone(), differs::told(doc, &pattern.search, place)),
            };
            let known = hidden_remark(pattern).or(known).map(|known| format!(" {known}")).unwrap_or_default();
            format!(
                "search is not in the file; these lines are similar, yet they may be another statement.{known} If \
                 they are meant, copy them into search:\n{}",
                quote(doc, &differs::grown(doc, &pattern.search, &place))
            )
        }
        Miss::Hidden(why) => format!("{HIDDEN}{why}. {HIDDEN_REMEDY}"),
    }
}

/// A remark on a search that holds a mark of hidden text and has no place.
fn hidden_remark(pattern: &Pattern) -> Option<String> {
    redact::holds_mark(&pattern.search).then(|| format!("{HIDDEN}. {HIDDEN_REMEDY}."))
}

/// Why the change cannot be carried over to the place that was found.
pub(crate) fn conflict(doc: &Doc<'_>, found: &Found, conflict: &Conflict) -> String {
    format!(
        "search was found only loosely, and at line {} {}. Copy the file's lines into search:\n{}",
        conflict.line + 1,
        conflict.why,
        quote(doc, &found.region())
    )
}

/// The lines of the file nearest to `search`, and what differs in the first of them.
pub(crate) fn nearest(doc: &Doc<'_>, search: &str) -> String {
    let mut shown: Vec<std::ops::Range<usize>> = Vec::new();
    let mut known = None;
    if let Some((place, what)) = differs::rewritten(doc, search) {
        shown.push(place);
        known = Some(what);
    }
    for place in differs::elided(doc, search).into_iter().chain(windows(doc, search)) {
        if shown.len() == CANDIDATES_MAX {
            break;
        }
        if shown.iter().all(|other| place.end <= other.start || other.end <= place.start) {
            shown.push(place);
        }
    }
    let Some(first) = shown.first() else {
        return "No lines of the file resemble it: read the file again.".to_owned();
    };
    let known = known.or_else(|| differs::told(doc, search, first));
    let known = known.map(|known| format!("{known} ")).unwrap_or_default();
    let grown = |lines| differs::grown(doc, search, lines);
    let quoted: Vec<String> = shown.iter().map(|lines| quote(doc, &grown(lines))).collect();
    format!("{known}The nearest lines are:\n{}", quoted.join("\n--\n"))
}

/// Lines of the file that resemble `search`, best first. Where it has comments behind code, the code tells:
/// a line with another comment is nearer than another line with that comment.
fn windows(doc: &Doc<'_>, search: &str) -> Vec<std::ops::Range<usize>> {
    let places = |doc: &Doc<'_>, said: &[String]| -> Vec<(f64, std::ops::Range<usize>)> {
        let lines = |range: std::ops::Range<usize>| doc.solid[range.start]..doc.solid[range.end - 1] + 1;
        let found = best_windows(doc, said, Wanted::Hint).into_iter();
        found.map(|window| (window.similarity, lines(window.range))).collect()
    };
    let said = collapsed_lines(search);
    let mut out = places(doc, &said);
    let bare: Vec<String> = said.iter().map(|line| differs::uncommented(line).to_owned()).collect();
    if bare != said {
        // Line by line, so that the numbers stay.
        let code: String =
            doc.lines.iter().flat_map(|line| [differs::uncommented(line.text), "\n"]).collect();
        let best = out.first().map_or(0.0, |(similarity, _)| *similarity);
        let mut found = places(&Doc::new(&code), &bare);
        found.retain(|(similarity, _)| *similarity > best);
        found.append(&mut out);
        out = found;
    }
    out.into_iter().map(|(_, place)| place).collect()
}

fn quote_all(doc: &Doc<'_>, places: &[std::ops::Range<usize>]) -> String {
    places.iter().take(PLACES_MAX).map(|place| quote(doc, place)).collect::<Vec<_>>().join("\n--\n")
}

fn quote(doc: &Doc<'_>, lines: &std::ops::Range<usize>) -> String {
    let mut out: Vec<String> = lines
        .clone()
        .take(LINES_MAX)
        .filter_map(|at| doc.lines.get(at).map(|line| (at, line)))
        .map(|(at, line)| format!("{:>6}| {}", at + 1, differs::cut(line.text, LINE_CHARS_MAX)))
        .collect();
    if lines.len() > LINES_MAX {
        out.push(format!("        … {} more lines", lines.len() - LINES_MAX));
    }
    out.join("\n")
}
