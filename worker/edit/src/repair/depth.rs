//! A replacement that stands at the file's depth already, though its search does not: models quote a block
//! without its indentation and write the new one as it shall stand in the file, or leave out the blanks of
//! the first line only. Read by the search's depth, it would be indented twice.

use crate::{
    doc::Doc,
    found::Found,
    pattern::Pattern,
    similarity::{SAME_LINE_MIN, line_similarity},
    text::{collapse, collapsed_lines, indent_of},
    tokens::words,
};

/// `found` with its search indented as the file is, where the replacement is; else as it came.
pub(crate) fn settled(doc: &Doc<'_>, found: &Found) -> Option<Found> {
    let pairs: Vec<(usize, &str)> = found
        .align
        .iter()
        .enumerate()
        .filter(|(at, _)| is_solid(&found.search[*at]))
        .filter_map(|(at, place)| Some((at, indent_of(doc.lines[(*place)?].text))))
        .collect();
    let said = shallowest(found.search.iter().filter(|line| is_solid(line)).map(|line| indent_of(line)))?;
    let real = shallowest(pairs.iter().map(|(_, real)| *real))?;
    let first = first_line(found, &pairs);
    let rest = || {
        let skipped = first.map(|(at, ..)| at);
        let lines = found.replace.iter().enumerate().filter(move |(at, _)| Some(*at) != skipped);
        lines.map(|(_, line)| line).filter(|line| is_solid(line))
    };
    if said == real || !rest().all(|line| line.starts_with(real)) || only_indents(found) {
        return None;
    }
    let put = shallowest(rest().map(|line| indent_of(line)))?;
    // A first line without its blanks is believed only if what follows is the file's beyond doubt.
    let at_depth = match first {
        None if kept(found, &pairs, None).is_empty() => put == real && !begins_as_said(found, &pairs),
        None => kept_at_depth(found, &pairs, None) || (put == real && !begins_as_said(found, &pairs)),
        Some((at, but, _)) if kept(found, &pairs, Some(but)).is_empty() => {
            let rest = found.search.iter().enumerate().filter(|(at, line)| *at != but && is_solid(line));
            let said = shallowest(rest.map(|(_, line)| indent_of(line)));
            put == real && Some(put) != said && !opens(&found.replace[at])
        }
        Some((_, but, _)) => kept_at_depth(found, &pairs, Some(but)),
    };
    if !at_depth || kept_as_said(found, &pairs, first.map(|(_, but, _)| but)) {
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

fn is_solid(line: &str) -> bool {
    !line.trim().is_empty()
}

fn shallowest<'a>(indents: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    indents.min_by_key(|indent| indent.len())
}

/// The first line of the replacement, the line of the search that it is, and that line's indentation in the
/// file: where the replacement lacks it and further lines follow.
fn first_line<'a>(found: &Found, pairs: &[(usize, &'a str)]) -> Option<(usize, usize, &'a str)> {
    let at = found.replace.iter().position(|line| is_solid(line))?;
    let line = collapse(&found.replace[at]);
    let is = |(said, _): &&(usize, &str)| collapse(&found.search[*said]) == line;
    let changed = |(said, _): &&(usize, &str)| {
        !opens(&line) && line_similarity(&collapse(&found.search[*said]), &line) >= SAME_LINE_MIN
    };
    let mut same = pairs.iter().filter(is);
    let (said, real) = match (pairs.first().filter(is), same.next(), same.next()) {
        (Some(head), ..) => *head,
        (None, Some(one), None) => *one,
        (None, Some(_), Some(_)) => return None,
        (None, None, _) => *pairs.first().filter(changed)?,
    };
    let bare = indent_of(&found.replace[at]).is_empty() && !real.is_empty();
    (bare && found.replace[at + 1..].iter().any(|line| is_solid(line))).then_some((at, said, real))
}

/// Whether what follows a line would stand deeper.
pub(crate) fn opens(line: &str) -> bool {
    line.trim_end().ends_with(['{', '(', '[', ':', ',', '>'])
}

/// Lines of the search that the replacement has too, whatever their indentation: the indentation in the
/// search, in the replacement, in the file. Only lines of words that both have once; that at `but` is none.
fn kept(found: &Found, pairs: &[(usize, &str)], but: Option<usize>) -> Vec<[String; 3]> {
    let lines = |text: &[String]| -> Vec<(String, String)> {
        text.iter().map(|line| (collapse(line), indent_of(line).to_owned())).collect()
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

fn kept_at_depth(found: &Found, pairs: &[(usize, &str)], but: Option<usize>) -> bool {
    let lines = kept(found, pairs, but);
    lines.iter().all(|[said, put, real]| put == real && put != said)
}

/// The first lines of search and replacement have one indentation, and not the file's.
fn begins_as_said(found: &Found, pairs: &[(usize, &str)]) -> bool {
    let put = found.replace.iter().find(|line| is_solid(line)).map(|line| indent_of(line));
    let head = pairs.first().map(|(at, real)| (indent_of(&found.search[*at]), *real));
    put.zip(head).is_some_and(|(put, (said, real))| put == said && put != real)
}

/// A line that stays has the search's indentation, and not the file's: the replacement follows the search.
fn kept_as_said(found: &Found, pairs: &[(usize, &str)], but: Option<usize>) -> bool {
    kept(found, pairs, but).iter().any(|[said, put, real]| put == said && put != real)
}

/// Indentation is all that the edit changes: then it is meant.
fn only_indents(found: &Found) -> bool {
    collapsed_lines(&found.search.join("\n")) == collapsed_lines(&found.replace.join("\n"))
}

/// The replacement of an exact match that begins behind the indentation `prefix` of its first line and ends
/// with a line: without that indentation, where the replacement brings it along.
pub(crate) fn unprefixed(pattern: &Pattern, prefix: &str) -> Option<String> {
    let bare = !prefix.is_empty() && prefix.trim().is_empty() && indent_of(&pattern.search).is_empty();
    let first = pattern.replace.lines().next()?;
    // What follows in a search of several lines is at the file's depth; of one, the replacement tells.
    let several = pattern.search.trim().contains('\n');
    let mut further = pattern.replace.lines().skip(1).filter(|line| is_solid(line));
    let brings = if indent_of(first) == prefix {
        is_solid(first) && (several || further.all(|line| line.starts_with(prefix)))
    } else {
        // The search's first line goes, and a deeper one of it is the first now.
        several && first.starts_with(prefix) && pattern.search.lines().skip(1).any(|line| line == first)
    };
    (bare && brings && collapsed_lines(&pattern.search) != collapsed_lines(&pattern.replace))
        .then(|| pattern.replace[prefix.len()..].to_owned())
}

/// The indentation of an exact match's replacement that begins with a further line of the search, without that
/// line's blanks, as the search is without those of its own first line.
pub(crate) fn of_next<'a>(pattern: &'a Pattern, prefix: &str) -> Option<&'a str> {
    let first = pattern.replace.lines().next().filter(|line| is_solid(line) && indent_of(line).is_empty())?;
    let (head, further) = pattern.search.split_once('\n')?;
    let mut same = further.lines().filter(|line| line.trim() == first.trim());
    let next = same.next().filter(|_| same.next().is_none())?;
    let bare = !prefix.is_empty() && indent_of(head).is_empty() && head.trim() != first.trim();
    bare.then(|| indent_of(next))
}

#[cfg(test)]
mod tests {
    use crate::{Edit, Hint, apply};

    fn made(before: &str, search: &str, replace: &str) -> String {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() };
        let applied = apply(before.as_bytes(), &[edit]).unwrap_or_else(|error| panic!("{search}: {error}"));
        String::from_utf8(applied.after).expect("text")
    }

    const METHOD: &str = "class A:\n    def f(self, x):\n        if x:\n            a = 1\n            b = 2\n        return a\n";

    #[test]
    fn what_stands_at_the_files_depth_is_not_indented_again() {
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
            assert_eq!(made(METHOD, search, replace), *want, "{search:?} {replace:?}");
        }
        assert_eq!(made("f:\n\ta()\n", "    a()", "\tif b:\n\t\ta()"), "f:\n\tif b:\n\t\ta()\n");
    }

    #[test]
    fn a_first_line_alone_may_lack_its_blanks() {
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
            assert_eq!(made(block, search, replace), want, "{search:?}");
        }
    }

    #[test]
    fn what_follows_the_search_is_indented_with_it() {
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
            assert_eq!(made(before, search, replace), want, "{search:?} {replace:?}");
        }
    }
}
