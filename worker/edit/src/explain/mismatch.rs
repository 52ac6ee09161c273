//! Describes the differences between a search without a match and the lines it may mean.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;

use crate::{
    edit::Edit,
    guard::{elision::is_elision, same_statement::code_part},
    pattern::EditPattern,
    search_doc::SearchDoc,
    similarity::align_lines,
    text::{collapse_whitespace, collapsed_lines, fold_lookalikes},
};

/// Maximum number of differing lines listed.
const DIFFERENCES_LISTED_MAX: usize = 3;
/// Maximum number of characters quoted from a line of the search.
const QUOTED_CHARS_MAX: usize = 120;
/// Minimum length in characters for a text found elsewhere to count as the same text.
const DISTINCTIVE_CHARS_MIN: usize = 8;

type UnescapeFn = fn(&str) -> String;

/// Ways models escape a text that the file does not escape.
const ESCAPING_MISTAKES: [(UnescapeFn, &str); 4] = [
    (unescape_html, "HTML entities (`&lt;`, `&amp;`) where the file has the signs themselves"),
    (unescape_quotes, "backslashes before quotes where the file has none"),
    (expand_escaped_line_ends, "`\\n` in letters where the file has a line end"),
    (unescape_backslashes, "two backslashes where the file has one"),
];

fn unescape_html(text: &str) -> String {
    let signs =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&nbsp;", " ")];
    let text = signs.iter().fold(text.to_owned(), |text, (entity, sign)| text.replace(entity, sign));
    text.replace("&amp;", "&")
}

fn unescape_quotes(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\'", "'")
}

fn expand_escaped_line_ends(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

fn unescape_backslashes(text: &str) -> String {
    text.replace("\\\\", "\\")
}

/// Returns the only place (lines from 0) of `text`, ignoring whitespace. The first and last line of
/// `text` may be partial.
pub(crate) fn find_unique_place(doc: &SearchDoc<'_>, text: &str) -> Option<Range<usize>> {
    let said = collapsed_lines(text);
    let (last, first) = (said.len().checked_sub(1)?, said.first()?);
    if said.iter().map(String::len).sum::<usize>() < DISTINCTIVE_CHARS_MIN {
        return None;
    }
    let lines = doc.collapsed_lines();
    let stands = |start: &usize| {
        let real = &lines[*start..=start + last];
        if last == 0 {
            return real[0].contains(first.as_str());
        }
        real[0].ends_with(first.as_str())
            && real[last].starts_with(said[last].as_str())
            && real[1..last] == said[1..last]
    };
    let mut starts = (0..lines.len().saturating_sub(last)).filter(stands);
    let start = starts.next().filter(|_| starts.next().is_none())?;
    Some(doc.non_blank_lines[start]..doc.non_blank_lines[start + last] + 1)
}

/// Returns where the search matches once it is unescaped as in the file, and a description of the
/// escaping mistake.
pub(crate) fn find_unescaped_search(doc: &SearchDoc<'_>, search: &str) -> Option<(Range<usize>, String)> {
    let all = |text: &str| ESCAPING_MISTAKES.iter().fold(text.to_owned(), |text, (way, _)| way(&text));
    let each = ESCAPING_MISTAKES.iter().map(|(way, what)| (way(search), vec![*what]));
    let combined = std::iter::once_with(|| {
        let used = ESCAPING_MISTAKES.iter().filter(|(way, _)| way(search) != search).map(|(_, what)| *what);
        (all(search), used.collect())
    });
    each.chain(combined).filter(|(text, _)| text != search).find_map(|(text, what): (String, Vec<&str>)| {
        let place = find_unique_place(doc, &text)?;
        let changed =
            |line: &&str| ESCAPING_MISTAKES.iter().any(|(way, ws)| what.contains(ws) && way(line) != **line);
        let line = search.lines().position(|line| changed(&line)).map_or(1, |at| at + 1);
        Some((
            place,
            format!("Line {line} of search has {}; mind it in replace as well.", what.join(", and ")),
        ))
    })
}

/// Describes which lines of `search` differ from those of the file at `place`, and how. Returns `None`
/// when the two cannot be compared line by line.
pub(crate) fn describe_mismatch(doc: &SearchDoc<'_>, search: &str, place: &Range<usize>) -> Option<String> {
    let said = collapse_numbered_lines(search.lines().enumerate());
    let real = collapse_numbered_lines(place.clone().filter_map(|at| Some((at, doc.lines.get(at)?.text))));
    if said.len() > LINES_COMPARED_MAX || real.len() > LINES_COMPARED_MAX {
        return None;
    }
    let text = |lines: &[(usize, String)]| lines.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>();
    let places = align_lines(&text(&said), &text(&real));
    let mut out = Vec::new();
    for ((at, line), place) in said.iter().zip(&places) {
        match place.map(|place| &real[place]) {
            Some((_, there)) if there == line => {}
            Some((number, there)) => out.push(format!(
                "line {} of search{} is not line {} of the file",
                at + 1,
                describe_line_difference(line, there).map_or_else(
                    || format!(", `{}`,", truncate_line(line, QUOTED_CHARS_MAX)),
                    |how| format!(" ({how})")
                ),
                number + 1
            )),
            None => out.push(format!(
                "line {} of search, `{}`, is not there",
                at + 1,
                truncate_line(line, QUOTED_CHARS_MAX)
            )),
        }
    }
    for (at, (number, _)) in real.iter().enumerate() {
        if !places.contains(&Some(at)) {
            out.push(format!("line {} of the file is not in search", number + 1));
        }
    }
    let more = out.len().saturating_sub(DIFFERENCES_LISTED_MAX);
    if out.is_empty() || more > said.len() {
        return None;
    }
    out.truncate(DIFFERENCES_LISTED_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    Some(format!("What differs: {}{more}.", out.join("; ")))
}

/// Collapses whitespace in numbered lines and drops blank ones.
fn collapse_numbered_lines<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    lines.map(|(at, line)| (at, collapse_whitespace(line))).filter(|(_, line)| !line.is_empty()).collect()
}

/// Number of lines beyond a window that are searched for the first and last line of the search.
const WINDOW_EXTENSION_MAX: usize = 4;

/// Extends `place` to nearby lines that match the first or last line of the search, for a file that has
/// lines in between that the search leaves out.
pub(crate) fn extend_window(doc: &SearchDoc<'_>, search: &str, place: &Range<usize>) -> Range<usize> {
    let said = collapsed_lines(search);
    let reads = |at: &usize, line: Option<&String>| {
        doc.lines.get(*at).map(|real| collapse_whitespace(real.text)).as_ref() == line
    };
    let above = (place.start.saturating_sub(WINDOW_EXTENSION_MAX)..=place.start)
        .rev()
        .find(|at| reads(at, said.first()));
    let below =
        (place.end.saturating_sub(1)..place.end + WINDOW_EXTENSION_MAX).find(|at| reads(at, said.last()));
    above.unwrap_or(place.start)..below.map_or(place.end, |below| below + 1).max(place.end)
}

/// Returns the line ranges that a search with an elision marker leaves out, with one line of
/// context on each side.
pub(crate) fn elided_ranges(doc: &SearchDoc<'_>, search: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = search.lines().collect();
    let parts: Vec<String> = lines.split(|line| is_elision(line)).map(|part| part.join("\n")).collect();
    let places: Vec<Range<usize>> = parts.iter().filter_map(|part| find_unique_place(doc, part)).collect();
    if places.len() < parts.len() {
        return Vec::new();
    }
    let between = places.windows(2).filter(|two| two[0].end <= two[1].start);
    between.map(|two| two[0].end - 1..two[1].start + 1).collect()
}

/// Maximum number of lines compared pairwise: the time is quadratic.
const LINES_COMPARED_MAX: usize = 60;

/// Describes how two lines with the same meaning differ.
fn describe_line_difference(said: &str, real: &str) -> Option<String> {
    let folded = fold_lookalikes(said) == fold_lookalikes(real);
    if said.nfc().eq(real.nfc()) {
        return Some("accents in another Unicode form".to_owned());
    }
    if folded && said.chars().any(|c| ('\u{2018}'..='\u{201f}').contains(&c)) {
        return Some("typographic quotes, the file has plain ones".to_owned());
    }
    if folded && real.chars().any(|c| ('\u{2018}'..='\u{201f}').contains(&c)) {
        return Some("plain quotes, the file has typographic ones".to_owned());
    }
    if folded {
        return Some("quotes, dashes or invisible characters of another kind".to_owned());
    }
    let written =
        ESCAPING_MISTAKES.iter().find(|(way, _)| way(said) == real).map(|(_, what)| format!("it has {what}"));
    let case = || (said.to_lowercase() == real.to_lowercase()).then(|| "capital letters".to_owned());
    let comment = || {
        (strip_trailing_comment(said).trim_end() == strip_trailing_comment(real).trim_end())
            .then(|| "only its comment differs".to_owned())
    };
    written.or_else(case).or_else(comment)
}

/// Strips what looks like a trailing comment. Precise enough to show lines, not to change them.
pub(crate) fn strip_trailing_comment(line: &str) -> &str {
    let code = code_part(line);
    let end =
        [" # ", " // "].iter().filter_map(|sign| code.find(sign)).filter(|at| !code[..*at].trim().is_empty());
    &code[..end.min().unwrap_or(code.len())]
}

/// Returns a note if the replacement is already in the file.
pub(crate) fn describe_applied_replacement(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let place = find_unique_place(doc, &pattern.replace)?;
    let what = if place.len() == 1 {
        format!("at line {}", place.start + 1)
    } else {
        format!("at lines {}\u{2013}{}", place.start + 1, place.end)
    };
    Some(format!(
        "The text of replace stands in the file already, {what}: if that is the change, it is made and needs no edit."
    ))
}

/// Returns a note if edit `index` quotes text that another edit of the call writes.
pub(crate) fn describe_chained_edit(doc: &SearchDoc<'_>, edits: &[Edit], index: usize) -> Option<String> {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(collapse_whitespace).filter(|line| line.len() >= DISTINCTIVE_CHARS_MIN / 2).collect()
    };
    let stands = |line: &String| doc.collapsed_lines().iter().any(|real| real.contains(line.as_str()));
    let new: Vec<String> = lines(&edits[index].search).into_iter().filter(|line| !stands(line)).collect();
    let other = edits.iter().enumerate().find(|(at, other)| {
        let written = lines(&other.replace);
        *at != index
            && !new.is_empty()
            && new.iter().all(|line| written.iter().any(|put| put.contains(line.as_str())))
    })?;
    Some(format!(
        "It quotes what edit {} writes, but all edits are matched against the file as it is now: make one edit of \
         the two, or this one in a second call.",
        other.0 + 1
    ))
}

/// Truncates a line to `chars_max` characters for display.
pub(crate) fn truncate_line(line: &str, chars_max: usize) -> String {
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}\u{2026}", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EditHint, apply_edits};

    fn edit_without_hint(search: &str, replace: &str) -> Edit {
        Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() }
    }

    fn assert_refused(before: &str, edits: &[(&str, &str)], parts: &[&str]) {
        let edits: Vec<Edit> =
            edits.iter().map(|(search, replace)| edit_without_hint(search, replace)).collect();
        let error = apply_edits(before.as_bytes(), &edits).expect_err("refused").message;
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }

    #[test]
    fn differently_escaped_search_is_explained() {
        let code = "top()\nif a < b && c > d {\n    say(\"it\")\n    path(\"\\\\d\")\n}\n";
        assert_refused(
            code,
            &[("if a &lt; b &amp;&amp; c &gt; d {\n    say(\"it\")", "x")],
            &["Line 1 of search has HTML entities", "     2| if a < b && c > d {"],
        );
        assert_refused(
            code,
            &[("if a < b && c > d {\n    say(\\\"it\\\")", "x")],
            &[
                "Line 2 of search has backslashes before quotes where the file has none",
                "     3|     say(\"it\")",
            ],
        );
        assert_refused(
            code,
            &[("top()\\nif a < b && c > d {", "x")],
            &["Line 1 of search has `\\n` in letters", "     1| top()", "     2| if a < b"],
        );
        assert_refused(code, &[("path(\"\\\\\\\\d\")", "x")], &["two backslashes where the file has one"]);
        assert_refused(
            "if a < b:\n    x = \"q\"\n",
            &[("if a &lt; b:\n    x = \\\"q\\\"", "x")],
            &["HTML entities", "and backslashes before quotes"],
        );
    }

    #[test]
    fn lines_omitted_by_search_are_quoted() {
        let code =
            "fn start() {\n    first(1);\n    second(2);\n    third(3);\n    fourth(4);\n}\n\nfn end() {}\n";
        assert_refused(
            code,
            &[("fn start() {\n    // ...\n    fourth(4);", "x")],
            &["omitted lines", "     2|     first(1);", "     4|     third(3);"],
        );
        assert_refused(
            code,
            &[("fn start() {\n    secnd(7);\n    thrd(8);\n    fourth(4);\n}\nfn end() {}", "x")],
            &["     1| fn start() {", "     2|     first(1);", "     8| fn end() {}"],
        );
    }

    #[test]
    fn unicode_normalization_forms_match_and_file_bytes_are_kept() {
        let before = "name = 'cafe\u{301}'\nx = 1\n";
        let made = apply_edits(
            before.as_bytes(),
            &[edit_without_hint("name = 'caf\u{e9}'\nx = 1", "name = 'caf\u{e9}'\nx = 2")],
        );
        assert_eq!(made.expect("found").after, b"name = 'cafe\xcc\x81'\nx = 2\n");
        assert_eq!(
            describe_line_difference("caf\u{e9} a", "cafe\u{301} a").as_deref(),
            Some("accents in another Unicode form")
        );
    }

    #[test]
    fn differing_lines_are_listed() {
        let code = "fn a() {\n    let total = sum(list);\n    send(total, 1);\n    done();\n}\n";
        assert_refused(
            code,
            &[("    let total = sum(list);\n    send(total, 2);\n    done();", "x")],
            &[
                "line 2 of search, `send(total, 2);`, is not line 3 of the file",
                "     3|     send(total, 1);",
            ],
        );
        assert_refused(
            "x = go(1)\ny = stop(\u{201c}a\u{201d}, 2)\nz = 3\n",
            &[("x = go(7)\ny = stop(\"a\", 2)\nz = 3", "x")],
            &["line 2 of search (plain quotes, the file has typographic ones) is not line 2"],
        );
    }

    #[test]
    fn similar_code_ranks_above_equal_comment() {
        let file = "a = load(1)  # what this does is told in the guide, part two\n\
                    z = 0\nb = store(2, x)  # old\n";
        let search = "b = store(2, x, y)  # what this does is told in the guide, part two";
        let edits = [edit_without_hint(search, "b = 1")];
        let error = apply_edits(file.as_bytes(), &edits).expect_err("refused").message;
        assert!(error.contains("     3| b = store(2, x)  # old"), "{error}");
        let first = error.split("The nearest lines are:\n").nth(1).expect("lines").to_owned();
        assert!(first.starts_with("     3|"), "{error}");
    }

    #[test]
    fn applied_replacement_and_chained_edit_are_reported() {
        assert_refused(
            "def f():\n    return compute(a, b)\n",
            &[("return old_name(zzzzzz)", "return compute(a, b)")],
            &["The text of replace stands in the file already, at line 2"],
        );
        assert_refused(
            "one = 1\ntwo = 2\n",
            &[("one = 1", "one = first_step(1)"), ("one = first_step(1)", "one = second_step(1)")],
            &["edit 2 of 2", "It quotes what edit 1 writes", "in a second call"],
        );
    }
}
