//! What differs between a search that has no place and the lines it may mean, in plain words.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;

use crate::{
    doc::Doc,
    edit::Edit,
    guard::{elision::is_elision, statement::code_of},
    pattern::Pattern,
    similarity::align_lines,
    text::{collapse, collapsed_lines, fold},
};

/// Differing lines that are named.
const NAMED_MAX: usize = 3;
/// Characters that are shown of a line of the search.
const SAID_CHARS_MAX: usize = 120;
/// Characters that a text must have to be believed the same when it stands elsewhere.
const TELLING_MIN: usize = 8;

type Way = fn(&str) -> String;

/// Ways in which models write a text otherwise than it stands in the file.
const WAYS: [(Way, &str); 4] = [
    (unescaped_html, "HTML entities (`&lt;`, `&amp;`) where the file has the signs themselves"),
    (unescaped_quotes, "backslashes before quotes where the file has none"),
    (broken, "`\\n` in letters where the file has a line end"),
    (doubled_once, "two backslashes where the file has one"),
];

fn unescaped_html(text: &str) -> String {
    let signs =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&nbsp;", " ")];
    let text = signs.iter().fold(text.to_owned(), |text, (entity, sign)| text.replace(entity, sign));
    text.replace("&amp;", "&")
}

fn unescaped_quotes(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\'", "'")
}

fn broken(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

fn doubled_once(text: &str) -> String {
    text.replace("\\\\", "\\")
}

/// The one place, lines from 0, where `text` stands, blanks aside; its first and last line may be parts.
pub(crate) fn place_of(doc: &Doc<'_>, text: &str) -> Option<Range<usize>> {
    let said = collapsed_lines(text);
    let (last, first) = (said.len().checked_sub(1)?, said.first()?);
    if said.iter().map(String::len).sum::<usize>() < TELLING_MIN {
        return None;
    }
    let lines = doc.collapsed();
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
    Some(doc.solid[start]..doc.solid[start + last] + 1)
}

/// Where the search stands if it is written as the file is, and what it writes otherwise.
pub(crate) fn rewritten(doc: &Doc<'_>, search: &str) -> Option<(Range<usize>, String)> {
    let all = |text: &str| WAYS.iter().fold(text.to_owned(), |text, (way, _)| way(&text));
    let each = WAYS.iter().map(|(way, what)| (way(search), vec![*what]));
    let combined = std::iter::once_with(|| {
        let used = WAYS.iter().filter(|(way, _)| way(search) != search).map(|(_, what)| *what);
        (all(search), used.collect())
    });
    each.chain(combined).filter(|(text, _)| text != search).find_map(|(text, what): (String, Vec<&str>)| {
        let place = place_of(doc, &text)?;
        let changed = |line: &&str| WAYS.iter().any(|(way, ws)| what.contains(ws) && way(line) != **line);
        let line = search.lines().position(|line| changed(&line)).map_or(1, |at| at + 1);
        Some((
            place,
            format!("Line {line} of search has {}; mind it in replace as well.", what.join(", and ")),
        ))
    })
}

/// Which lines of `search` differ from those of the file at `place`, and how; `None` where they cannot be
/// compared line by line.
pub(crate) fn told(doc: &Doc<'_>, search: &str, place: &Range<usize>) -> Option<String> {
    let said = collapsed(search.lines().enumerate());
    let real = collapsed(place.clone().filter_map(|at| Some((at, doc.lines.get(at)?.text))));
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
                how(line, there)
                    .map_or_else(|| format!(", `{}`,", cut(line, SAID_CHARS_MAX)), |how| format!(" ({how})")),
                number + 1
            )),
            None => {
                out.push(format!("line {} of search, `{}`, is not there", at + 1, cut(line, SAID_CHARS_MAX)))
            }
        }
    }
    for (at, (number, _)) in real.iter().enumerate() {
        if !places.contains(&Some(at)) {
            out.push(format!("line {} of the file is not in search", number + 1));
        }
    }
    let more = out.len().saturating_sub(NAMED_MAX);
    if out.is_empty() || more > said.len() {
        return None;
    }
    out.truncate(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    Some(format!("What differs: {}{more}.", out.join("; ")))
}

/// Numbered lines, collapsed, without the blank ones.
fn collapsed<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    lines.map(|(at, line)| (at, collapse(line))).filter(|(_, line)| !line.is_empty()).collect()
}

/// Lines that are shown beyond a window, to find in them what the search has at its ends.
const GROWN_MAX: usize = 4;

/// `place` and the lines beside it that the search means, where its first or last line is further away: the
/// file has lines between that the search leaves out.
pub(crate) fn grown(doc: &Doc<'_>, search: &str, place: &Range<usize>) -> Range<usize> {
    let said = collapsed_lines(search);
    let reads = |at: &usize, line: Option<&String>| {
        doc.lines.get(*at).map(|real| collapse(real.text)).as_ref() == line
    };
    let above =
        (place.start.saturating_sub(GROWN_MAX)..=place.start).rev().find(|at| reads(at, said.first()));
    let below = (place.end.saturating_sub(1)..place.end + GROWN_MAX).find(|at| reads(at, said.last()));
    above.unwrap_or(place.start)..below.map_or(place.end, |below| below + 1).max(place.end)
}

/// The lines that a search with a mark for omitted lines leaves out, with a line on either side.
pub(crate) fn elided(doc: &Doc<'_>, search: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = search.lines().collect();
    let parts: Vec<String> = lines.split(|line| is_elision(line)).map(|part| part.join("\n")).collect();
    let places: Vec<Range<usize>> = parts.iter().filter_map(|part| place_of(doc, part)).collect();
    if places.len() < parts.len() {
        return Vec::new();
    }
    let between = places.windows(2).filter(|two| two[0].end <= two[1].start);
    between.map(|two| two[0].end - 1..two[1].start + 1).collect()
}

/// Lines that are compared one by one: time grows with the square.
const LINES_COMPARED_MAX: usize = 60;

/// In which way two lines differ that say the same.
fn how(said: &str, real: &str) -> Option<String> {
    let folded = fold(said) == fold(real);
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
    let written = WAYS.iter().find(|(way, _)| way(said) == real).map(|(_, what)| format!("it has {what}"));
    let case = || (said.to_lowercase() == real.to_lowercase()).then(|| "capital letters".to_owned());
    let comment = || {
        (uncommented(said).trim_end() == uncommented(real).trim_end())
            .then(|| "only its comment differs".to_owned())
    };
    written.or_else(case).or_else(comment)
}

/// The code of a line, where a comment seems to stand behind it: good enough to show lines, not to change them.
pub(crate) fn uncommented(line: &str) -> &str {
    let code = code_of(line);
    let end =
        [" # ", " // "].iter().filter_map(|sign| code.find(sign)).filter(|at| !code[..*at].trim().is_empty());
    &code[..end.min().unwrap_or(code.len())]
}

/// A remark where what the edit would write stands in the file already.
pub(crate) fn present(doc: &Doc<'_>, pattern: &Pattern) -> Option<String> {
    let place = place_of(doc, &pattern.replace)?;
    let what = if place.len() == 1 {
        format!("at line {}", place.start + 1)
    } else {
        format!("at lines {}\u{2013}{}", place.start + 1, place.end)
    };
    Some(format!(
        "The text of replace stands in the file already, {what}: if that is the change, it is made and needs no edit."
    ))
}

/// A remark where edit `index` quotes what another edit of the call writes.
pub(crate) fn chained(doc: &Doc<'_>, edits: &[Edit], index: usize) -> Option<String> {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(collapse).filter(|line| line.len() >= TELLING_MIN / 2).collect()
    };
    let stands = |line: &String| doc.collapsed().iter().any(|real| real.contains(line.as_str()));
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

/// A line of which at most `chars_max` characters are shown.
pub(crate) fn cut(line: &str, chars_max: usize) -> String {
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}\u{2026}", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, apply};

    fn edit(search: &str, replace: &str) -> Edit {
        Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() }
    }

    fn refused(before: &str, edits: &[(&str, &str)], parts: &[&str]) {
        let edits: Vec<Edit> = edits.iter().map(|(search, replace)| edit(search, replace)).collect();
        let error = apply(before.as_bytes(), &edits).expect_err("refused").message;
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }

    #[test]
    fn a_text_written_otherwise_is_named() {
        let code = "top()\nif a < b && c > d {\n    say(\"it\")\n    path(\"\\\\d\")\n}\n";
        refused(
            code,
            &[("if a &lt; b &amp;&amp; c &gt; d {\n    say(\"it\")", "x")],
            &["Line 1 of search has HTML entities", "     2| if a < b && c > d {"],
        );
        refused(
            code,
            &[("if a < b && c > d {\n    say(\\\"it\\\")", "x")],
            &[
                "Line 2 of search has backslashes before quotes where the file has none",
                "     3|     say(\"it\")",
            ],
        );
        refused(
            code,
            &[("top()\\nif a < b && c > d {", "x")],
            &["Line 1 of search has `\\n` in letters", "     1| top()", "     2| if a < b"],
        );
        refused(code, &[("path(\"\\\\\\\\d\")", "x")], &["two backslashes where the file has one"]);
        refused(
            "if a < b:\n    x = \"q\"\n",
            &[("if a &lt; b:\n    x = \\\"q\\\"", "x")],
            &["HTML entities", "and backslashes before quotes"],
        );
    }

    #[test]
    fn what_the_search_leaves_out_is_shown() {
        let code =
            "fn start() {\n    first(1);\n    second(2);\n    third(3);\n    fourth(4);\n}\n\nfn end() {}\n";
        refused(
            code,
            &[("fn start() {\n    // ...\n    fourth(4);", "x")],
            &["omitted lines", "     2|     first(1);", "     4|     third(3);"],
        );
        refused(
            code,
            &[("fn start() {\n    secnd(7);\n    thrd(8);\n    fourth(4);\n}\nfn end() {}", "x")],
            &["     1| fn start() {", "     2|     first(1);", "     8| fn end() {}"],
        );
    }

    #[test]
    fn accents_of_another_form_are_the_same_and_keep_the_files_bytes() {
        let before = "name = 'cafe\u{301}'\nx = 1\n";
        let made =
            apply(before.as_bytes(), &[edit("name = 'caf\u{e9}'\nx = 1", "name = 'caf\u{e9}'\nx = 2")]);
        assert_eq!(made.expect("found").after, b"name = 'cafe\xcc\x81'\nx = 2\n");
        assert_eq!(how("caf\u{e9} a", "cafe\u{301} a").as_deref(), Some("accents in another Unicode form"));
    }

    #[test]
    fn the_lines_that_differ_are_named() {
        let code = "fn a() {\n    let total = sum(list);\n    send(total, 1);\n    done();\n}\n";
        refused(
            code,
            &[("    let total = sum(list);\n    send(total, 2);\n    done();", "x")],
            &[
                "line 2 of search, `send(total, 2);`, is not line 3 of the file",
                "     3|     send(total, 1);",
            ],
        );
        refused(
            "x = go(1)\ny = stop(\u{201c}a\u{201d}, 2)\nz = 3\n",
            &[("x = go(7)\ny = stop(\"a\", 2)\nz = 3", "x")],
            &["line 2 of search (plain quotes, the file has typographic ones) is not line 2"],
        );
    }

    #[test]
    fn a_line_with_another_comment_is_nearer_than_another_line_with_that_comment() {
        let file = "a = load(1)  # what this does is told in the guide, part two\n\
                    z = 0\nb = store(2, x)  # old\n";
        let search = "b = store(2, x, y)  # what this does is told in the guide, part two";
        let edits = [edit(search, "b = 1")];
        let error = apply(file.as_bytes(), &edits).expect_err("refused").message;
        assert!(error.contains("     3| b = store(2, x)  # old"), "{error}");
        let first = error.split("The nearest lines are:\n").nth(1).expect("lines").to_owned();
        assert!(first.starts_with("     3|"), "{error}");
    }

    #[test]
    fn what_is_there_already_and_what_another_edit_writes_is_said() {
        refused(
            "def f():\n    return compute(a, b)\n",
            &[("return old_name(zzzzzz)", "return compute(a, b)")],
            &["The text of replace stands in the file already, at line 2"],
        );
        refused(
            "one = 1\ntwo = 2\n",
            &[("one = 1", "one = first_step(1)"), ("one = first_step(1)", "one = second_step(1)")],
            &["edit 2 of 2", "It quotes what edit 1 writes", "in a second call"],
        );
    }
}
