//! Handles a replacement that already has the file's depth although its search does not. Models quote a
//! block without its indentation and write the new one as it should be in the file, or omit only the
//! indentation of the first line. Mapped by the search's depth, it would be indented twice.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    search_match::Match,
    similarity::{SAME_LINE_MIN, line_similarity},
    text::{collapse_whitespace, collapsed_lines, leading_indent},
    tokens::words,
};

/// Returns `found` with its search indented as in the file, if the replacement is; otherwise
/// unchanged.
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
    // A first line without indentation is trusted only if the following lines match the file beyond
    // doubt.
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

/// Returns the first line of the replacement, the line of the search it corresponds to, and that line's
/// indentation in the file, if the replacement lacks that indentation and has further lines.
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

/// Returns whether the line opens a block, so that the next line is deeper.
pub(crate) fn opens_deeper_block(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':', ',', '>'])
}

/// Returns the lines that search and replacement share regardless of indentation, each with its indentation
/// in the search, the replacement and the file. Only lines with words that occur once in both count; the
/// line at `but` is skipped.
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

/// Returns whether the first lines of search and replacement share an indentation that differs from
/// the file's.
fn begins_like_search(found: &Match, pairs: &[(usize, &str)]) -> bool {
    let put = found.replace.iter().find(|line| is_non_blank(line)).map(|line| leading_indent(line));
    let head = pairs.first().map(|(at, real)| (leading_indent(&found.search[*at]), *real));
    put.zip(head).is_some_and(|(put, (said, real))| put == said && put != real)
}

/// Returns whether an unchanged line has the search's indentation and not the file's: then the replacement
/// follows the search.
fn unchanged_lines_follow_search(found: &Match, pairs: &[(usize, &str)], but: Option<usize>) -> bool {
    unchanged_line_indents(found, pairs, but).iter().any(|[said, put, real]| put == said && put != real)
}

/// Returns whether indentation is all that the edit changes; then it is intended.
fn changes_only_indentation(found: &Match) -> bool {
    collapsed_lines(&found.search.join("\n")) == collapsed_lines(&found.replace.join("\n"))
}

/// Strips a repeated indentation from the replacement of an exact match that begins after the indentation
/// `prefix` of its first line and ends with a line.
pub(crate) fn strip_repeated_indent(pattern: &EditPattern, prefix: &str) -> Option<String> {
    let bare = !prefix.is_empty() && prefix.trim().is_empty() && leading_indent(&pattern.search).is_empty();
    let first = pattern.replace.lines().next()?;
    // In a search of several lines, the following lines have the file's depth; for a single line, the
    // replacement decides.
    let several = pattern.search.trim().contains('\n');
    let mut further = pattern.replace.lines().skip(1).filter(|line| is_non_blank(line));
    let brings = if leading_indent(first) == prefix {
        is_non_blank(first) && (several || further.all(|line| line.starts_with(prefix)))
    } else {
        // The search's first line is removed, and a deeper one becomes the first.
        several && first.starts_with(prefix) && pattern.search.lines().skip(1).any(|line| line == first)
    };
    (bare && brings && collapsed_lines(&pattern.search) != collapsed_lines(&pattern.replace))
        .then(|| pattern.replace[prefix.len()..].to_owned())
}

/// Returns the indentation for an exact match's replacement that begins with a later line of the search,
/// without that line's indentation, just as the search omits its own first indentation.
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
            // A dedented search, and the replacement as it is in the file.
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
            // A typo, so that only similarity finds it.
            (
                "if x:\n    a = 1\n    b = 2\nretrun a",
                "        if x:\n            a = 1\n            b = 3\n        return a",
                &three,
            ),
            // Tabs in the edit, spaces in the file.
            ("if x:\n\ta = 1\n\tb = 2", "        if x:\n            a = 1\n            b = 3", &three),
            // One level too deep.
            (
                "            if x:\n                a = 1\n                b = 2",
                "        if x:\n            a = 1\n            b = 3",
                &three,
            ),
            // Only the replacement's first line lacks its indentation.
            (
                "if x:\n    a = 1\n    b = 2\nreturn a",
                "if x:\n            a = 1\n            b = 3\n        return a",
                &three,
            ),
            // The search lacks it too.
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
            // Further lines are less deep than the first, and the first line changes.
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
            // Only punctuation, twice.
            (
                "    go(1);\n}\n",
                "go(1);\n        more();\n    }\n",
                block.replace("go(1);", "go(1);\n        more();"),
            ),
            // Every line but the first changes.
            ("a();\ngo(1);", "a();\n        go(2);", block.replace("1", "2")),
            ("a();\n        go(1);\n    }\n", "go(1);\n    }\n", block.replace("        a();\n", "")),
            // Whole lines, except for their indentation.
            ("go(1);\n", "", block.replace("        go(1);\n", "")),
            ("go(1);", "", block.replace("        go(1);\n", "")),
            ("go(1);\n", "go(2);", block.replace("1", "2")),
            ("go(1);", "go(2);\n", block.replace("1", "2")),
            // The first line is removed, and the next is indented as in the file.
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
            // A block added around lines, in the search's own style.
            (
                "def f():\n    a = 1\n    b = 2\n",
                "a = 1\nb = 2\n",
                "if x:\n    a = 1\n    b = 2\n",
                "def f():\n    if x:\n        a = 1\n        b = 2\n",
            ),
            // A line moves into the loop above it.
            (
                "def f():\n    for i in y:\n        a(i)\n    b()\n",
                "for i in y:\n    a(i)\nb()\n",
                "for i in y:\n    a(i)\n    b()\n",
                "def f():\n    for i in y:\n        a(i)\n        b()\n",
            ),
            // Search and replacement have the same indentation, and are deeper below the first
            // line.
            ("f\n  abc\n    def\n", "abc\n  def", "abc\n  xyz", "f\n  abc\n    xyz\n"),
            // A first line that opens a block: the following lines belong to it.
            (
                "{\n    s.on();\n    go();\n}\n",
                "s.on();\ngo();",
                "s.on(() => {\n    go();\n});",
                "{\n    s.on(() => {\n        go();\n    });\n}\n",
            ),
            // Braces are all alike and show no depth.
            (
                "f {\n    if x {\n        a()\n    }\n}\n",
                "if x {\n    a()\n}\n",
                "if x {\n    a()\n    b()\n}\n",
                "f {\n    if x {\n        a()\n        b()\n    }\n}\n",
            ),
            // Only the indentation changes, so it is intended.
            (
                "if x:\n    a = 1\n    b = 2\n",
                "a = 1\nb = 2\n",
                "    a = 1\n    b = 2\n",
                "if x:\n        a = 1\n        b = 2\n",
            ),
            ("    go()\n", "go()", "    go()", "        go()\n"),
            // One level too deep, and the replacement as well.
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
