//! A replacement that stands at the file's depth already, though its search does not: models quote a block
//! without its indentation and write the new one as it shall stand in the file, or leave out the blanks of
//! the first line only. Read by the search's depth, it would be indented twice.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    search_match::Match,
    similarity::{SAME_LINE_MIN, line_similarity},
    text::{collapse_whitespace, collapsed_lines, leading_indent},
    tokens::words,
};

/// `found` with its search indented as the file is, where the replacement is; else as it came.
pub(crate) fn align_search_indent(doc: &SearchDoc<'_>, found: &Match) -> Option<Match> {
    let pairs: Vec<(usize, &str)> = found
        .align
        .iter()
        .enumerate()
        .filter(|(at, _)| is_non_blank(&found.search[*at]))
        .filter_map(|(at, place)| Some((at, leading_indent(doc.lines[(*place)?].text))))
        .collect();
    let said = shallowest_indent(
        found.search.iter().filter(|line| is_non_blank(line)).map(|line| leading_indent(line)),
    )?;
    let real = shallowest_indent(pairs.iter().map(|(_, real)| *real))?;
    let first = find_unindented_first_line(found, &pairs);
    let rest = || {
        let skipped = first.map(|(at, ..)| at);
        let lines = found.replace.iter().enumerate().filter(move |(at, _)| Some(*at) != skipped);
        lines.map(|(_, line)| line).filter(|line| is_non_blank(line))
    };
    if said == real || !rest().all(|line| line.starts_with(real)) || changes_only_indentation(found) {
        return None;
    }
    let put = shallowest_indent(rest().map(|line| leading_indent(line)))?;
    // A first line without its blanks is believed only if what follows is the file's beyond doubt.
    let at_depth = match first {
        None if unchanged_line_indents(found, &pairs, None).is_empty() => {
            put == real && !begins_like_search(found, &pairs)
        }
        None => {
            unchanged_lines_follow_file(found, &pairs, None)
                || (put == real && !begins_like_search(found, &pairs))
        }
        Some((at, but, _)) if unchanged_line_indents(found, &pairs, Some(but)).is_empty() => {
            let rest = found.search.iter().enumerate().filter(|(at, line)| *at != but && is_non_blank(line));
            let said = shallowest_indent(rest.map(|(_, line)| leading_indent(line)));
            put == real && Some(put) != said && !opens_deeper_block(&found.replace[at])
        }
        Some((_, but, _)) => unchanged_lines_follow_file(found, &pairs, Some(but)),
    };
    if !at_depth || unchanged_lines_follow_search(found, &pairs, first.map(|(_, but, _)| but)) {
        return None;
    }
    let mut out = found.clone();
    for (at, real) in pairs {
        out.search[at] = format!("{real}{}", out.search[at].trim_start_matches([' ', '\t']));
    }
    if let Some((at, _, real)) = first {
        out.replace[at] = format!("{real}{}", out.replace[at]);
    }
    Some(out)
}

fn is_non_blank(line: &str) -> bool {
    !line.trim().is_empty()
}

fn shallowest_indent<'a>(indents: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    indents.min_by_key(|indent| indent.len())
}

/// The first line of the replacement, the line of the search that it is, and that line's indentation in the
/// file: where the replacement lacks it and further lines follow.
fn find_unindented_first_line<'a>(
    found: &Match,
    pairs: &[(usize, &'a str)],
) -> Option<(usize, usize, &'a str)> {
    let at = found.replace.iter().position(|line| is_non_blank(line))?;
    let line = collapse_whitespace(&found.replace[at]);
    let is = |(said, _): &&(usize, &str)| collapse_whitespace(&found.search[*said]) == line;
    let changed = |(said, _): &&(usize, &str)| {
        !opens_deeper_block(&line)
            && line_similarity(&collapse_whitespace(&found.search[*said]), &line) >= SAME_LINE_MIN
    };
    let mut same = pairs.iter().filter(is);
    let (said, real) = match (pairs.first().filter(is), same.next(), same.next()) {
        (Some(head), ..) => *head,
        (None, Some(one), None) => *one,
        (None, Some(_), Some(_)) => return None,
        (None, None, _) => *pairs.first().filter(changed)?,
    };
    let bare = leading_indent(&found.replace[at]).is_empty() && !real.is_empty();
    (bare && found.replace[at + 1..].iter().any(|line| is_non_blank(line))).then_some((at, said, real))
}

/// Whether what follows a line would stand deeper.
pub(crate) fn opens_deeper_block(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':', ',', '>'])
}

/// Lines of the search that the replacement has too, whatever their indentation: the indentation in the
/// search, in the replacement, in the file. Only lines of words that both have once; that at `but` is none.
fn unchanged_line_indents(found: &Match, pairs: &[(usize, &str)], but: Option<usize>) -> Vec<[String; 3]> {
    let lines = |text: &[String]| -> Vec<(String, String)> {
        text.iter().map(|line| (collapse_whitespace(line), leading_indent(line).to_owned())).collect()
    };
    let (search, replace) = (lines(&found.search), lines(&found.replace));
    let one = |lines: &[(String, String)], key: &str| -> Option<String> {
        let mut same = lines.iter().filter(|(line, _)| line == key);
        let one = same.next()?;
        same.next().is_none().then(|| one.1.clone())
    };
    let told = |(at, real): &(usize, &str)| {
        let key = &search[*at].0;
        let said = one(&search, key).filter(|_| !words(key).is_empty())?;
        Some([said, one(&replace, key)?, (*real).to_owned()])
    };
    pairs.iter().filter(|(at, _)| Some(*at) != but).filter_map(told).collect()
}

fn unchanged_lines_follow_file(found: &Match, pairs: &[(usize, &str)], but: Option<usize>) -> bool {
    let lines = unchanged_line_indents(found, pairs, but);
    lines.iter().all(|[said, put, real]| put == real && put != said)
}

/// The first lines of search and replacement have one indentation, and not the file's.
fn begins_like_search(found: &Match, pairs: &[(usize, &str)]) -> bool {
    let put = found.replace.iter().find(|line| is_non_blank(line)).map(|line| leading_indent(line));
    let head = pairs.first().map(|(at, real)| (leading_indent(&found.search[*at]), *real));
    put.zip(head).is_some_and(|(put, (said, real))| put == said && put != real)
}

/// A line that stays has the search's indentation, and not the file's: the replacement follows the search.
fn unchanged_lines_follow_search(found: &Match, pairs: &[(usize, &str)], but: Option<usize>) -> bool {
    unchanged_line_indents(found, pairs, but).iter().any(|[said, put, real]| put == said && put != real)
}

/// Indentation is all that the edit changes: then it is meant.
fn changes_only_indentation(found: &Match) -> bool {
    collapsed_lines(&found.search.join("\n")) == collapsed_lines(&found.replace.join("\n"))
}

/// The replacement of an exact match that begins behind the indentation `prefix` of its first line and ends
/// with a line: without that indentation, where the replacement brings it along.
pub(crate) fn strip_repeated_indent(pattern: &EditPattern, prefix: &str) -> Option<String> {
    let bare = !prefix.is_empty() && prefix.trim().is_empty() && leading_indent(&pattern.search).is_empty();
    let first = pattern.replace.lines().next()?;
    // What follows in a search of several lines is at the file's depth; of one, the replacement tells.
    let several = pattern.search.trim().contains('\n');
    let mut further = pattern.replace.lines().skip(1).filter(|line| is_non_blank(line));
    let brings = if leading_indent(first) == prefix {
        is_non_blank(first) && (several || further.all(|line| line.starts_with(prefix)))
    } else {
        // The search's first line goes, and a deeper one of it is the first now.
        several && first.starts_with(prefix) && pattern.search.lines().skip(1).any(|line| line == first)
    };
    (bare && brings && collapsed_lines(&pattern.search) != collapsed_lines(&pattern.replace))
        .then(|| pattern.replace[prefix.len()..].to_owned())
}

/// The indentation of an exact match's replacement that begins with a further line of the search, without that
/// line's blanks, as the search is without those of its own first line.
pub(crate) fn next_line_indent<'a>(pattern: &'a EditPattern, prefix: &str) -> Option<&'a str> {
    let first = pattern
        .replace
        .lines()
        .next()
        .filter(|line| is_non_blank(line) && leading_indent(line).is_empty())?;
    let (head, further) = pattern.search.split_once('\n')?;
    let mut same = further.lines().filter(|line| line.trim() == first.trim());
    let next = same.next().filter(|_| same.next().is_none())?;
    let bare = !prefix.is_empty() && leading_indent(head).is_empty() && head.trim() != first.trim();
    bare.then(|| leading_indent(next))
}

#[cfg(test)]
mod tests {
    use crate::{Edit, EditHint, apply_edits};

    fn apply_edit(before: &str, search: &str, replace: &str) -> String {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
        let applied =
            apply_edits(before.as_bytes(), &[edit]).unwrap_or_else(|error| panic!("{search}: {error}"));
        String::from_utf8(applied.after).expect("text")
    }

    const METHOD: &str = "class A:\n    def f(self, x):\n        if x:\n            a = 1\n            b = 2\n        return a\n";

    #[test]
    fn replacement_at_file_depth_is_not_indented_twice() {
        let block = |body: &str| {
            METHOD.replace("        if x:\n            a = 1\n            b = 2\n        return a\n", body)
        };
        let three = block("        if x:\n            a = 1\n            b = 3\n        return a\n");
        let more = block(
            "        if x:\n            a = 1\n            b = 2\n            c = 3\n        return a\n",
        );
        for (search, replace, want) in [
            // Dedented, and the replacement as it stands in the file.
            (
                "if x:\n    a = 1\n    b = 2\nreturn a",
                "        if x:\n            a = 1\n            b = 3\n        return a",
                &three,
            ),
            ("if x:\n    a = 1\n    b = 2", "        if x:\n            a = 1\n            b = 3", &three),
            (
                "if x:\n    a = 1\n    b = 2",
                "        if x:\n            a = 1\n            b = 2\n            c = 3",
                &more,
            ),
            (
                "if x:\n    a = 1\n    b = 2\nreturn a\n",
                "        if x:\n            a = 1\n            b = 2\n            c = 3\n        return a\n",
                &more,
            ),
            // A mistyped word, so that only similarity finds it.
            (
                "if x:\n    a = 1\n    b = 2\nretrun a",
                "        if x:\n            a = 1\n            b = 3\n        return a",
                &three,
            ),
            // Tabs said, blanks in the file.
            ("if x:\n\ta = 1\n\tb = 2", "        if x:\n            a = 1\n            b = 3", &three),
            // Too deep by one.
            (
                "            if x:\n                a = 1\n                b = 2",
                "        if x:\n            a = 1\n            b = 3",
                &three,
            ),
            // The replacement lacks the blanks of its first line only.
            (
                "if x:\n    a = 1\n    b = 2\nreturn a",
                "if x:\n            a = 1\n            b = 3\n        return a",
                &three,
            ),
            // So does the search.
            (
                "if x:\n            a = 1\n            b = 2",
                "        if x:\n            a = 1\n            b = 3",
                &three,
            ),
            (
                "if x:\n            a = 1\n            b = 2",
                "if x:\n            a = 1\n            b = 3",
                &three,
            ),
            (
                "if x:\n            a = 1 \n            b = 2",
                "        if x:\n            a = 1\n            b = 3",
                &three,
            ),
            (
                "if x:\n            a = 1 \n            b = 2",
                "if x:\n            a = 1\n            b = 3",
                &three,
            ),
            ("b = 2", "            b = 3", &three),
            // Further lines that are less deep than the first, and a first line that changes.
            ("b = 2\n        return a", "            b = 3\n        return a", &three),
            ("    b = 2\nreturn a", "b = 3\n        return a", &three),
            ("b = 2\n", "            b = 2\n            c = 3\n", &more),
        ] {
            assert_eq!(apply_edit(METHOD, search, replace), *want, "{search:?} {replace:?}");
        }
        assert_eq!(apply_edit("f:\n\ta()\n", "    a()", "\tif b:\n\t\ta()"), "f:\n\tif b:\n\t\ta()\n");
    }

    #[test]
    fn only_first_line_may_lack_indentation() {
        let block = "f {\n    if x {\n        a();\n        go(1);\n    }\n}\n";
        for (search, replace, want) in [
            // Only signs, twice.
            (
                "    go(1);\n}\n",
                "go(1);\n        more();\n    }\n",
                block.replace("go(1);", "go(1);\n        more();"),
            ),
            // No line but the first stays.
            ("a();\ngo(1);", "a();\n        go(2);", block.replace("1", "2")),
            ("a();\n        go(1);\n    }\n", "go(1);\n    }\n", block.replace("        a();\n", "")),
            // Whole lines, but for their blanks.
            ("go(1);\n", "", block.replace("        go(1);\n", "")),
            ("go(1);", "", block.replace("        go(1);\n", "")),
            ("go(1);\n", "go(2);", block.replace("1", "2")),
            ("go(1);", "go(2);\n", block.replace("1", "2")),
            // The first line goes, and the next stands as in the file.
            (
                "if x {\n    a();\n    go(1);\n",
                "        a();\n        go(1);\n",
                block.replace("    if x {\n", ""),
            ),
            ("if x {\n        a();\n", "        a();\n", block.replace("    if x {\n", "")),
        ] {
            assert_eq!(apply_edit(block, search, replace), want, "{search:?}");
        }
    }

    #[test]
    fn replacement_at_search_depth_is_indented() {
        for (before, search, replace, want) in [
            // A block put around lines, in the search's own way.
            (
                "def f():\n    a = 1\n    b = 2\n",
                "a = 1\nb = 2\n",
                "if x:\n    a = 1\n    b = 2\n",
                "def f():\n    if x:\n        a = 1\n        b = 2\n",
            ),
            // A line that moves into the loop above it.
            (
                "def f():\n    for i in y:\n        a(i)\n    b()\n",
                "for i in y:\n    a(i)\nb()\n",
                "for i in y:\n    a(i)\n    b()\n",
                "def f():\n    for i in y:\n        a(i)\n        b()\n",
            ),
            // Both as deep as each other, and deeper below the first line.
            ("f\n  abc\n    def\n", "abc\n  def", "abc\n  xyz", "f\n  abc\n    xyz\n"),
            // A first line that opens a block: what follows stands in it.
            (
                "{\n    s.on();\n    go();\n}\n",
                "s.on();\ngo();",
                "s.on(() => {\n    go();\n});",
                "{\n    s.on(() => {\n        go();\n    });\n}\n",
            ),
            // Braces are alike and tell no depth.
            (
                "f {\n    if x {\n        a()\n    }\n}\n",
                "if x {\n    a()\n}\n",
                "if x {\n    a()\n    b()\n}\n",
                "f {\n    if x {\n        a()\n        b()\n    }\n}\n",
            ),
            // Nothing but indentation changes: it is meant.
            (
                "if x:\n    a = 1\n    b = 2\n",
                "a = 1\nb = 2\n",
                "    a = 1\n    b = 2\n",
                "if x:\n        a = 1\n        b = 2\n",
            ),
            ("    go()\n", "go()", "    go()", "        go()\n"),
            // Too deep by one, and the replacement with it.
            (
                "class A:\n    def f():\n        return x\n",
                "            return x\n",
                "            return y\n        def g(): pass\n",
                "class A:\n    def f():\n        return y\n    def g(): pass\n",
            ),
        ] {
            assert_eq!(apply_edit(before, search, replace), want, "{search:?} {replace:?}");
        }
    }
}
