//! The choice that an edit's hint makes where its search stands in several places.
//!
//! A hint never finds a place: it only says which of equal ones is meant. One that does not fit what
//! the file holds is refused, even where the edit could do without it.

use std::ops::Range;

use crate::{
    doc::Doc,
    edit::{Anchor, Hint},
    found::Miss,
};

/// Places of one search that are counted. A file with more has no use for hints.
pub(crate) const PLACES_COUNTED_MAX: usize = 1000;

/// Contradictions and impossible numbers that no file is needed to see.
pub(crate) fn check(hint: &Hint) -> Result<(), String> {
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

/// Which of `places` (lines from 0, in the file's order, at least one) are meant.
pub(crate) fn choose(doc: &Doc<'_>, hint: &Hint, places: &[Range<usize>]) -> Result<Vec<usize>, Miss> {
    let total = places.len();
    let unfit = |why: String| Miss::Unfit { why, places: places.to_vec() };
    if let Some(wanted) = hint.replace_all {
        return if wanted == total && total <= PLACES_COUNTED_MAX {
            Ok((0..total).collect())
        } else {
            Err(unfit(format!("replace_all says {}, but search matches {}", count(wanted), count(total))))
        };
    }
    let near = hint.near_line.filter(|_| total > 1).map(|line| nearest(doc, places, line)).transpose();
    let near = near.map_err(unfit)?;
    if let Some(wanted) = hint.occurrence {
        if wanted > total {
            return Err(unfit(format!("occurrence is {wanted}, but search matches {}", count(total))));
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
    let anchored = || hint.anchor.as_ref().and_then(|anchor| anchored(doc, places, anchor));
    match near.or_else(anchored) {
        Some(one) => Ok(vec![one]),
        None => Err(Miss::Ambiguous { places: places.to_vec(), alike: false }),
    }
}

/// `3 places`, `1 place`.
pub(crate) fn count(places: usize) -> String {
    match places {
        1 => "1 place".to_owned(),
        n if n > PLACES_COUNTED_MAX => format!("more than {PLACES_COUNTED_MAX} places"),
        n => format!("{n} places"),
    }
}

fn nearest(doc: &Doc<'_>, places: &[Range<usize>], line: usize) -> Result<usize, String> {
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

fn anchored(doc: &Doc<'_>, places: &[Range<usize>], anchor: &Anchor) -> Option<usize> {
    match anchor {
        Anchor::Line(line) => only(places.iter().enumerate().filter(|(_, place)| place.start + 1 == *line)),
        Anchor::After(heads) => {
            let reads = |at: usize, text: &str| doc.lines[at].text.trim() == text.trim();
            let (first, below) = heads.split_first()?;
            let all = (0..doc.lines.len()).filter(|at| reads(*at, first));
            let mut head = only(all.map(|at| (at, ())))?;
            for text in below {
                head = (head + 1..doc.lines.len()).find(|at| reads(*at, text))?;
            }
            places.iter().position(|place| place.start > head)
        }
        Anchor::Below(_) => None,
        Anchor::End => {
            let last = doc.solid.last()?;
            only(places.iter().enumerate().filter(|(_, place)| place.contains(last)))
        }
    }
}

fn only<T>(mut found: impl Iterator<Item = (usize, T)>) -> Option<usize> {
    let (at, _) = found.next()?;
    found.next().is_none().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Edit, apply};

    /// Applies one edit with a hint: the file afterwards, or the refusal.
    fn made(before: &str, search: &str, replace: &str, hint: Hint) -> Result<String, String> {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint };
        apply(before.as_bytes(), &[edit])
            .map(|applied| String::from_utf8(applied.after).expect("text"))
            .map_err(|error| error.message)
    }

    fn check(before: &str, search: &str, replace: &str, hint: Hint, want: Result<&str, &str>) {
        match (made(before, search, replace, hint.clone()), want) {
            (Ok(after), Ok(want)) => assert_eq!(after, want, "{hint:?}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{hint:?}: {error}"),
            (got, want) => panic!("{hint:?}: {got:?}, not {want:?}"),
        }
    }

    fn nth(n: usize) -> Hint {
        Hint { occurrence: Some(n), ..Hint::default() }
    }

    fn near(line: usize) -> Hint {
        Hint { near_line: Some(line), ..Hint::default() }
    }

    fn all(n: usize) -> Hint {
        Hint { replace_all: Some(n), ..Hint::default() }
    }

    const THREE: &str = "go(1)\na\ngo(1)\nb\nc\nd\ngo(1)\n";

    #[test]
    fn occurrence_counts_from_the_top_and_must_exist() {
        check(THREE, "go(1)", "go(2)", nth(2), Ok("go(1)\na\ngo(2)\nb\nc\nd\ngo(1)\n"));
        check(THREE, "go(1)", "go(2)", nth(4), Err("occurrence is 4, but search matches 3 places"));
        check(THREE, "go(1)", "go(2)", nth(0), Err("counts from 1"));
        check("one\n", "one", "two", nth(1), Ok("two\n"));
        check("one\n", "one", "two", nth(2), Err("occurrence is 2, but search matches 1 place"));
        check("x = f(x)\n", "x", "y", nth(2), Ok("x = f(y)\n"));
    }

    #[test]
    fn near_line_takes_the_nearest_and_no_tie() {
        check(THREE, "go(1)", "go(2)", near(6), Ok("go(1)\na\ngo(1)\nb\nc\nd\ngo(2)\n"));
        check(
            THREE,
            "go(1)",
            "go(2)",
            near(2),
            Err("as near to the place at line 1 as to the one at line 3"),
        );
        check(THREE, "go(1)", "go(2)", near(5), Err("as near to the place at line 3"));
        check(THREE, "go(1)", "go(2)", near(99), Err("near_line is 99, but the file has 7 lines"));
        // A search that names one place needs no hint: a stale number does no harm.
        check("one\ntwo\n", "two", "2", near(99), Ok("one\n2\n"));
    }

    #[test]
    fn replace_all_wants_the_real_count() {
        check(THREE, "go(1)", "go(2)", all(3), Ok("go(2)\na\ngo(2)\nb\nc\nd\ngo(2)\n"));
        check(THREE, "go(1)", "go(2)", all(2), Err("replace_all says 2 places, but search matches 3 places"));
        check(THREE, "go(1)", "go(2)", all(2), Err("     7| go(1)"));
        check("f(a, a)\nb\na\n", "a", "xy", all(3), Ok("f(xy, xy)\nb\nxy\n"));
        check("a\r\nb\na\r\n", "a\n", "x\ny\n", all(2), Ok("x\r\ny\r\nb\nx\r\ny\r\n"));
        check("a\nb\na\n", "a", "", all(2), Ok("b\n"));
        check("aaa\n", "aa", "b", all(2), Err("overlap"));
        check("nothing\n", "gone()", "x", all(2), Err("not in the file"));
    }

    #[test]
    fn replace_all_works_on_looser_levels_and_indents_each_place() {
        check(
            "if a:\n    run( x )\nif b:\n        run( x )\n",
            "run(  x )\n",
            "run(x)\nstop()\n",
            all(2),
            Ok("if a:\n    run(x)\n    stop()\nif b:\n        run(x)\n        stop()\n"),
        );
        check(
            "x = receive_message(y)\nz = 1\n",
            "x = recieve_message(y)\nz = 1",
            "x = receive_message(y, 2)\nz = 1",
            all(2),
            Err("replace_all says 2 places, but only one place is similar"),
        );
    }

    #[test]
    fn hints_that_contradict_each_other_are_refused() {
        let both = |near_line, occurrence| Hint {
            near_line: Some(near_line),
            occurrence: Some(occurrence),
            ..Hint::default()
        };
        check(THREE, "go(1)", "go(2)", both(7, 3), Ok("go(1)\na\ngo(1)\nb\nc\nd\ngo(2)\n"));
        check(THREE, "go(1)", "go(2)", both(7, 1), Err("near_line means occurrence 3, at line 7"));
        let hint = Hint { occurrence: Some(1), ..all(3) };
        check(THREE, "go(1)", "go(2)", hint, Err("replace_all means every place"));
    }

    #[test]
    fn an_anchor_of_a_patch_only_breaks_ties() {
        let hint = |anchor| Hint { anchor: Some(anchor), whole_lines: true, ..Hint::default() };
        let text = "fn a() {\n    go();\n}\nfn b() {\n    go();\n}\n";
        let second = "fn a() {\n    go();\n}\nfn b() {\n    no();\n}\n";
        check(text, "    go();\n", "    no();\n", hint(Anchor::Line(5)), Ok(second));
        check(text, "    go();\n", "    no();\n", hint(Anchor::Line(4)), Err("matches 2 places"));
        check(
            text,
            "    go();\n",
            "    no();\n",
            hint(Anchor::After(vec!["fn b() {".to_owned()])),
            Ok(second),
        );
        check(
            text,
            "    go();\n",
            "    no();\n",
            hint(Anchor::After(vec!["fn c() {".to_owned()])),
            Err("matches 2"),
        );
        check("a\nb\na\n", "a\n", "c\n", hint(Anchor::End), Ok("a\nb\nc\n"));
        // Within a line is no place for whole lines.
        check("xa\na\n", "a\n", "b\n", Hint { whole_lines: true, ..Hint::default() }, Ok("xa\nb\n"));
    }
}
