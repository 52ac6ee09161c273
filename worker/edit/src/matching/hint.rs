//! Selects a place by the edit's hint when the search matches several.
//!
//! A hint never finds a place; it only selects one of several equal matches. A hint that does not
//! fit the file is refused, even if the edit would be unambiguous without it.

use std::ops::Range;

use crate::{
    edit::{EditHint, HunkAnchor},
    search_doc::SearchDoc,
    search_match::NoMatch,
};

/// Maximum number of places counted per search. In a file with more, hints are of no use.
pub(crate) const PLACES_COUNTED_MAX: usize = 1000;

/// Rejects contradictions and impossible numbers that can be seen without the file.
pub(crate) fn validate_hint(hint: &EditHint) -> Result<(), String> {
    let zero =
        [("near_line", hint.near_line), ("occurrence", hint.occurrence), ("replace_all", hint.replace_all)]
            .into_iter()
            .find(|(_, value)| *value == Some(0));
    if let Some((name, _)) = zero {
        return Err(format!("{name} is 0, yet counts from 1"));
    }
    if hint.replace_all.is_some() && (hint.occurrence.is_some() || hint.near_line.is_some()) {
        return Err("replace_all means every place, occurrence and near_line mean one of them: give \
                    replace_all alone, or leave it out"
            .to_owned());
    }
    Ok(())
}

/// Returns which of `places` (lines from 0, in file order, not empty) the hint selects.
pub(crate) fn choose_places(
    doc: &SearchDoc<'_>,
    hint: &EditHint,
    places: &[Range<usize>],
) -> Result<Vec<usize>, NoMatch> {
    let total = places.len();
    let unfit = |why: String| NoMatch::HintMismatch { reason: why, places: places.to_vec() };
    if let Some(wanted) = hint.replace_all {
        return if wanted == total && total <= PLACES_COUNTED_MAX {
            Ok((0..total).collect())
        } else {
            Err(unfit(format!(
                "replace_all says {}, but search matches {}",
                format_place_count(wanted),
                format_place_count(total)
            )))
        };
    }
    let near = hint.near_line.filter(|_| total > 1).map(|line| nearest_place(doc, places, line)).transpose();
    let near = near.map_err(unfit)?;
    if let Some(wanted) = hint.occurrence {
        if wanted > total {
            return Err(unfit(format!(
                "occurrence is {wanted}, but search matches {}",
                format_place_count(total)
            )));
        }
        return match near.filter(|near| near + 1 != wanted) {
            Some(near) => Err(unfit(format!(
                "occurrence {wanted} is at line {}, but near_line means occurrence {}, at line {}: leave one \
                 of them out",
                places[wanted - 1].start + 1,
                near + 1,
                places[near].start + 1
            ))),
            None => Ok(vec![wanted - 1]),
        };
    }
    if total == 1 {
        return Ok(vec![0]);
    }
    let anchored = || hint.anchor.as_ref().and_then(|anchor| anchored_place(doc, places, anchor));
    match near.or_else(anchored) {
        Some(one) => Ok(vec![one]),
        None => Err(NoMatch::Ambiguous { places: places.to_vec(), only_similar: false }),
    }
}

/// Formats a count: `3 places`, `1 place`.
pub(crate) fn format_place_count(places: usize) -> String {
    match places {
        1 => "1 place".to_owned(),
        n if n > PLACES_COUNTED_MAX => format!("more than {PLACES_COUNTED_MAX} places"),
        n => format!("{n} places"),
    }
}

fn nearest_place(doc: &SearchDoc<'_>, places: &[Range<usize>], line: usize) -> Result<usize, String> {
    if line > doc.lines.len() {
        return Err(format!("near_line is {line}, but the file has {} lines", doc.lines.len()));
    }
    let distance = |place: &Range<usize>| {
        let at = line - 1;
        if at < place.start { place.start - at } else { at.saturating_sub(place.end.saturating_sub(1)) }
    };
    let least = places.iter().map(distance).min().unwrap_or(0);
    let mut best = places.iter().enumerate().filter(|(_, place)| distance(place) == least);
    match (best.next(), best.next()) {
        (Some((at, _)), None) => Ok(at),
        (Some((_, a)), Some((_, b))) => Err(format!(
            "near_line {line} is as near to the place at line {} as to the one at line {}",
            a.start + 1,
            b.start + 1
        )),
        (None, _) => Err("search matches no place".to_owned()),
    }
}

fn anchored_place(doc: &SearchDoc<'_>, places: &[Range<usize>], anchor: &HunkAnchor) -> Option<usize> {
    match anchor {
        HunkAnchor::Line(line) => {
            only_index(places.iter().enumerate().filter(|(_, place)| place.start + 1 == *line))
        }
        HunkAnchor::AfterLines(heads) => {
            let reads = |at: usize, text: &str| doc.lines[at].text.trim() == text.trim();
            let (first, below) = heads.split_first()?;
            let all = (0..doc.lines.len()).filter(|at| reads(*at, first));
            let mut head = only_index(all.map(|at| (at, ())))?;
            for text in below {
                head = (head + 1..doc.lines.len()).find(|at| reads(*at, text))?;
            }
            places.iter().position(|place| place.start > head)
        }
        HunkAnchor::BelowLine(_) => None,
        HunkAnchor::EndOfFile => {
            let last = doc.non_blank_lines.last()?;
            only_index(places.iter().enumerate().filter(|(_, place)| place.contains(last)))
        }
    }
}

fn only_index<T>(mut found: impl Iterator<Item = (usize, T)>) -> Option<usize> {
    let (at, _) = found.next()?;
    found.next().is_none().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Edit, apply_edits};

    /// Applies one edit with a hint and returns the new file, or the refusal.
    fn apply_with_hint(before: &str, search: &str, replace: &str, hint: EditHint) -> Result<String, String> {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint };
        apply_edits(before.as_bytes(), &[edit])
            .map(|applied| String::from_utf8(applied.after).expect("text"))
            .map_err(|error| error.message)
    }

    fn assert_hinted_edit(
        before: &str,
        search: &str,
        replace: &str,
        hint: EditHint,
        want: Result<&str, &str>,
    ) {
        match (apply_with_hint(before, search, replace, hint.clone()), want) {
            (Ok(after), Ok(want)) => assert_eq!(after, want, "{hint:?}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{hint:?}: {error}"),
            (got, want) => panic!("{hint:?}: {got:?}, not {want:?}"),
        }
    }

    fn occurrence_hint(n: usize) -> EditHint {
        EditHint { occurrence: Some(n), ..EditHint::default() }
    }

    fn near_line_hint(line: usize) -> EditHint {
        EditHint { near_line: Some(line), ..EditHint::default() }
    }

    fn replace_all_hint(n: usize) -> EditHint {
        EditHint { replace_all: Some(n), ..EditHint::default() }
    }

    const THREE_OCCURRENCES: &str = "go(1)\na\ngo(1)\nb\nc\nd\ngo(1)\n";

    #[test]
    fn occurrence_counts_from_top_and_must_exist() {
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            occurrence_hint(2),
            Ok("go(1)\na\ngo(2)\nb\nc\nd\ngo(1)\n"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            occurrence_hint(4),
            Err("occurrence is 4, but search matches 3 places"),
        );
        assert_hinted_edit(THREE_OCCURRENCES, "go(1)", "go(2)", occurrence_hint(0), Err("counts from 1"));
        assert_hinted_edit("one\n", "one", "two", occurrence_hint(1), Ok("two\n"));
        assert_hinted_edit(
            "one\n",
            "one",
            "two",
            occurrence_hint(2),
            Err("occurrence is 2, but search matches 1 place"),
        );
        assert_hinted_edit("x = f(x)\n", "x", "y", occurrence_hint(2), Ok("x = f(y)\n"));
    }

    #[test]
    fn near_line_takes_nearest_and_rejects_tie() {
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            near_line_hint(6),
            Ok("go(1)\na\ngo(1)\nb\nc\nd\ngo(2)\n"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            near_line_hint(2),
            Err("as near to the place at line 1 as to the one at line 3"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            near_line_hint(5),
            Err("as near to the place at line 3"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            near_line_hint(99),
            Err("near_line is 99, but the file has 7 lines"),
        );
        // A search with a single match needs no hint: a stale number does no harm.
        assert_hinted_edit("one\ntwo\n", "two", "2", near_line_hint(99), Ok("one\n2\n"));
    }

    #[test]
    fn replace_all_requires_the_actual_count() {
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            replace_all_hint(3),
            Ok("go(2)\na\ngo(2)\nb\nc\nd\ngo(2)\n"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            replace_all_hint(2),
            Err("replace_all says 2 places, but search matches 3 places"),
        );
        assert_hinted_edit(THREE_OCCURRENCES, "go(1)", "go(2)", replace_all_hint(2), Err("     7| go(1)"));
        assert_hinted_edit("f(a, a)\nb\na\n", "a", "xy", replace_all_hint(3), Ok("f(xy, xy)\nb\nxy\n"));
        assert_hinted_edit(
            "a\r\nb\na\r\n",
            "a\n",
            "x\ny\n",
            replace_all_hint(2),
            Ok("x\r\ny\r\nb\nx\r\ny\r\n"),
        );
        assert_hinted_edit("a\nb\na\n", "a", "", replace_all_hint(2), Ok("b\n"));
        assert_hinted_edit("aaa\n", "aa", "b", replace_all_hint(2), Err("overlap"));
        assert_hinted_edit("nothing\n", "gone()", "x", replace_all_hint(2), Err("not in the file"));
    }

    #[test]
    fn replace_all_indents_each_place_on_loose_levels() {
        assert_hinted_edit(
            "if a:\n    run( x )\nif b:\n        run( x )\n",
            "run(  x )\n",
            "run(x)\nstop()\n",
            replace_all_hint(2),
            Ok("if a:\n    run(x)\n    stop()\nif b:\n        run(x)\n        stop()\n"),
        );
        assert_hinted_edit(
            "x = receive_message(y)\nz = 1\n",
            "x = recieve_message(y)\nz = 1",
            "x = receive_message(y, 2)\nz = 1",
            replace_all_hint(2),
            Err("replace_all says 2 places, but only one place is similar"),
        );
    }

    #[test]
    fn contradicting_hints_are_refused() {
        let both = |near_line, occurrence| EditHint {
            near_line: Some(near_line),
            occurrence: Some(occurrence),
            ..EditHint::default()
        };
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            both(7, 3),
            Ok("go(1)\na\ngo(1)\nb\nc\nd\ngo(2)\n"),
        );
        assert_hinted_edit(
            THREE_OCCURRENCES,
            "go(1)",
            "go(2)",
            both(7, 1),
            Err("near_line means occurrence 3, at line 7"),
        );
        let hint = EditHint { occurrence: Some(1), ..replace_all_hint(3) };
        assert_hinted_edit(THREE_OCCURRENCES, "go(1)", "go(2)", hint, Err("replace_all means every place"));
    }

    #[test]
    fn patch_anchor_only_breaks_ties() {
        let hint = |anchor| EditHint { anchor: Some(anchor), whole_lines: true, ..EditHint::default() };
        let text = "fn a() {\n    go();\n}\nfn b() {\n    go();\n}\n";
        let second = "fn a() {\n    go();\n}\nfn b() {\n    no();\n}\n";
        assert_hinted_edit(text, "    go();\n", "    no();\n", hint(HunkAnchor::Line(5)), Ok(second));
        assert_hinted_edit(
            text,
            "    go();\n",
            "    no();\n",
            hint(HunkAnchor::Line(4)),
            Err("matches 2 places"),
        );
        assert_hinted_edit(
            text,
            "    go();\n",
            "    no();\n",
            hint(HunkAnchor::AfterLines(vec!["fn b() {".to_owned()])),
            Ok(second),
        );
        assert_hinted_edit(
            text,
            "    go();\n",
            "    no();\n",
            hint(HunkAnchor::AfterLines(vec!["fn c() {".to_owned()])),
            Err("matches 2"),
        );
        assert_hinted_edit("a\nb\na\n", "a\n", "c\n", hint(HunkAnchor::EndOfFile), Ok("a\nb\nc\n"));
        // A match within a line does not count for whole lines.
        assert_hinted_edit(
            "xa\na\n",
            "a\n",
            "b\n",
            EditHint { whole_lines: true, ..EditHint::default() },
            Ok("xa\nb\n"),
        );
    }
}
