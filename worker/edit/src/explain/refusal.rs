//! Texts for the model that explain a refused edit, quoting the file's own lines.

use docket_schema::redact;

use super::mismatch;
use crate::{
    matching::{
        fuzzy::{WindowPurpose, best_windows},
        hint::format_place_count,
    },
    merge::MergeConflict,
    pattern::EditPattern,
    search_doc::SearchDoc,
    search_match::{Match, NoMatch},
    text::collapsed_lines,
};

/// Maximum number of candidates shown in a refusal.
const CANDIDATES_SHOWN_MAX: usize = 3;
/// Maximum number of places listed when several match. More would not help the model to choose.
const PLACES_LISTED_MAX: usize = 6;
/// Maximum number of lines shown per place.
const LINES_PER_PLACE_MAX: usize = 14;
/// Maximum number of characters shown per line.
const LINE_CHARS_MAX: usize = 300;

/// Explains a redaction mark.
const REDACTION_NOTE: &str =
    "`[REDACTED: …]` stands for text that was hidden from you and that the file holds";
/// Explains how to edit around a redaction mark.
pub(crate) const REDACTION_REMEDY: &str = "Leave the lines with it out of search and replace, and edit those around \
                                        them: the file keeps its own";

/// Explains why `pattern` does not match exactly one place.
pub(crate) fn format_no_match(doc: &SearchDoc<'_>, pattern: &EditPattern, miss: &NoMatch) -> String {
    match miss {
        NoMatch::Ambiguous { places, only_similar: false } => format!(
            "search matches {}; add lines around it until it names one, or say which by occurrence or \
             near_line. They are:\n{}",
            format_place_count(places.len()),
            quote_places(doc, places)
        ),
        NoMatch::Ambiguous { places, only_similar: true } => format!(
            "search matches {} about equally, none of them exactly; copy the lines of the one that is meant. \
             They are:\n{}",
            format_place_count(places.len()),
            quote_places(doc, places)
        ),
        NoMatch::HintMismatch { reason: why, places } => {
            let more = places.len().saturating_sub(PLACES_LISTED_MAX);
            let more = if more == 0 { String::new() } else { format!("\n… and {more} more") };
            format!("{why}. The places are:\n{}{more}", quote_places(doc, places))
        }
        NoMatch::NotFound => {
            let remarks = mismatch::describe_applied_replacement(doc, pattern)
                .into_iter()
                .chain(redaction_note(pattern));
            let remarks: String = remarks.flat_map(|remark| [remark, " ".to_owned()]).collect();
            format!("search is not in the file. {remarks}{}", format_nearest_lines(doc, &pattern.search))
        }
        NoMatch::Uncertain(place) => {
            let (place, known) = match mismatch::find_unescaped_search(doc, &pattern.search) {
                Some((place, what)) => (place, Some(what)),
                None => (place.clone(), mismatch::describe_mismatch(doc, &pattern.search, place)),
            };
            let known =
                redaction_note(pattern).or(known).map(|known| format!(" {known}")).unwrap_or_default();
            format!(
                "search is not in the file; these lines are similar, yet they may be another statement.{known} If \
                 they are meant, copy them into search:\n{}",
                quote_lines(doc, &mismatch::extend_window(doc, &pattern.search, &place))
            )
        }
        NoMatch::UnresolvedRedaction(why) => format!("{REDACTION_NOTE}{why}. {REDACTION_REMEDY}"),
    }
}

/// Returns a note on a search that contains a redaction mark and has no match.
fn redaction_note(pattern: &EditPattern) -> Option<String> {
    redact::has_redaction(&pattern.search).then(|| format!("{REDACTION_NOTE}. {REDACTION_REMEDY}."))
}

/// Explains why the change cannot be merged at the place that was found.
pub(crate) fn format_merge_conflict(doc: &SearchDoc<'_>, found: &Match, conflict: &MergeConflict) -> String {
    format!(
        "search was found only loosely, and at line {} {}. Copy the file's lines into search:\n{}",
        conflict.line + 1,
        conflict.reason,
        quote_lines(doc, &found.region())
    )
}

/// Shows the lines of the file nearest to `search`, and the differences from the first of them.
pub(crate) fn format_nearest_lines(doc: &SearchDoc<'_>, search: &str) -> String {
    let mut shown: Vec<std::ops::Range<usize>> = Vec::new();
    let mut known = None;
    if let Some((place, what)) = mismatch::find_unescaped_search(doc, search) {
        shown.push(place);
        known = Some(what);
    }
    for place in mismatch::elided_ranges(doc, search).into_iter().chain(find_similar_ranges(doc, search)) {
        if shown.len() == CANDIDATES_SHOWN_MAX {
            break;
        }
        if shown.iter().all(|other| place.end <= other.start || other.end <= place.start) {
            shown.push(place);
        }
    }
    let Some(first) = shown.first() else {
        return "No lines of the file resemble it: read the file again.".to_owned();
    };
    let known = known.or_else(|| mismatch::describe_mismatch(doc, search, first));
    let known = known.map(|known| format!("{known} ")).unwrap_or_default();
    let grown = |lines| mismatch::extend_window(doc, search, lines);
    let quoted: Vec<String> = shown.iter().map(|lines| quote_lines(doc, &grown(lines))).collect();
    format!("{known}The nearest lines are:\n{}", quoted.join("\n--\n"))
}

/// Returns lines of the file that resemble `search`, best first. Code weighs more than trailing comments: a
/// line with the same code and another comment is nearer than another line with the same comment.
fn find_similar_ranges(doc: &SearchDoc<'_>, search: &str) -> Vec<std::ops::Range<usize>> {
    let places = |doc: &SearchDoc<'_>, said: &[String]| -> Vec<(f64, std::ops::Range<usize>)> {
        let lines = |range: std::ops::Range<usize>| {
            doc.non_blank_lines[range.start]..doc.non_blank_lines[range.end - 1] + 1
        };
        let found = best_windows(doc, said, WindowPurpose::Suggestion).into_iter();
        found.map(|window| (window.similarity, lines(window.range))).collect()
    };
    let said = collapsed_lines(search);
    let mut out = places(doc, &said);
    let bare: Vec<String> =
        said.iter().map(|line| mismatch::strip_trailing_comment(line).to_owned()).collect();
    if bare != said {
        // Strip line by line, so that line numbers stay valid.
        let code: String =
            doc.lines.iter().flat_map(|line| [mismatch::strip_trailing_comment(line.text), "\n"]).collect();
        let best = out.first().map_or(0.0, |(similarity, _)| *similarity);
        let mut found = places(&SearchDoc::new(&code), &bare);
        found.retain(|(similarity, _)| *similarity > best);
        found.append(&mut out);
        out = found;
    }
    out.into_iter().map(|(_, place)| place).collect()
}

fn quote_places(doc: &SearchDoc<'_>, places: &[std::ops::Range<usize>]) -> String {
    places
        .iter()
        .take(PLACES_LISTED_MAX)
        .map(|place| quote_lines(doc, place))
        .collect::<Vec<_>>()
        .join("\n--\n")
}

fn quote_lines(doc: &SearchDoc<'_>, lines: &std::ops::Range<usize>) -> String {
    let mut out: Vec<String> = lines
        .clone()
        .take(LINES_PER_PLACE_MAX)
        .filter_map(|at| doc.lines.get(at).map(|line| (at, line)))
        .map(|(at, line)| format!("{:>6}| {}", at + 1, mismatch::truncate_line(line.text, LINE_CHARS_MAX)))
        .collect();
    if lines.len() > LINES_PER_PLACE_MAX {
        out.push(format!("        … {} more lines", lines.len() - LINES_PER_PLACE_MAX));
    }
    out.join("\n")
}
