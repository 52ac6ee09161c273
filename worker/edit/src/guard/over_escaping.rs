//! Rejects a replacement that is escaped once too often: `\n` for a line break, `\"` for a quote, `&lt;` for
//! `<`. The escape counts as a mistake when neither search nor file contains one and it is outside a string
//! literal.

use crate::{pattern::EditPattern, search_doc::SearchDoc};

/// Returns why the replacement looks over-escaped.
pub(crate) fn over_escaped_reason(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let known = |sign: &str| pattern.search.contains(sign) || doc.text.contains(sign);
    let told = |sign: &str, plain: &str| {
        format!(
            "replace has `{sign}` where {plain} is meant, as it seems: neither search nor the file has it. Give \
             the text as it shall stand in the file, escaped for JSON once and no more."
        )
    };
    let lines = || pattern.replace.lines();
    if !known("\\n") && lines().any(has_escaped_line_break) {
        return Some(told("\\n", "a line break"));
    }
    if !known("\\\"") && !pattern.replace.contains('`') && lines().any(has_only_escaped_quotes) {
        return Some(told("\\\"", "a quote"));
    }
    let markup = || doc.lines.iter().any(|line| line.text.trim_start().starts_with('<'));
    let entity = ["&lt;", "&gt;", "&amp;", "&quot;"].into_iter().find(|sign| {
        !known(sign)
            && lines().any(|line| line.match_indices(sign).any(|(at, _)| is_outside_quotes(&line[..at])))
    });
    let entity =
        entity.filter(|_| !markup() && !lines().any(|line| line.trim_start().starts_with(['<', '#'])));
    entity.map(|sign| told(sign, "the sign itself"))
}

/// Returns whether no quote is open at the end of `before`.
fn is_outside_quotes(before: &str) -> bool {
    !before.contains(['`', '/']) && ['"', '\''].iter().all(|quote| before.matches(*quote).count() % 2 == 0)
}

/// Returns whether code contains `\n` followed by the indentation of another line.
fn has_escaped_line_break(line: &str) -> bool {
    line.match_indices("\\n").any(|(at, sign)| {
        let rest = &line[at + sign.len()..];
        is_outside_quotes(&line[..at])
            && ["  ", "\t", "\\t", "\\n"].iter().any(|blanks| rest.starts_with(blanks))
    })
}

/// Returns whether every quote of a line that assigns or passes a value is written as `\"`.
fn has_only_escaped_quotes(line: &str) -> bool {
    let all = line.matches('"').count();
    all > 0
        && all == line.matches("\\\"").count()
        && !line.contains('\'')
        && line
            .match_indices("\\\"")
            .next()
            .is_some_and(|(at, _)| line[..at].trim_end().ends_with(['=', '(', ',', '[', ':', '{']))
}

#[cfg(test)]
mod tests {
    use crate::test_support::apply_edit;

    #[test]
    fn doubly_escaped_replacement_is_refused() {
        for (file, search, replace) in [
            ("    x = 1\n    return x\n", "    x = 1\n    return x", "    x = 1\\n    return -x"),
            ("s = \"a\"\n", "s = \"a\"", "s = \\\"b\\\""),
            ("x = 1\n", "x = 1", "x = f(\\\"b\\\")"),
            ("if (a < b && c) {\n", "if (a < b && c) {", "if (a &lt; b &amp;&amp; c) {"),
            ("    x();\n", "    x();", "    x();\n    if (a &gt; 1) y();"),
        ] {
            let error = apply_edit(file, search, replace).expect_err(replace);
            assert!(error.contains("escaped for JSON once"), "{error}");
        }
        for (file, search, replace) in [
            ("x = 1\n", "x = 1", "x = \"a\\n  b\""),
            ("x = 1\n", "x = 1", "print('a\\n  b')"),
            ("x = 1\n", "x = 1", "x = '&lt;'"),
            ("x = 1\n", "x = 1", "x = \"say \\\"b\\\"\""),
            ("x\n", "x", "echo \\\"a\\\""),
            ("x\n", "x", "$\\nabla x$ \\newline y"),
            ("<p>x</p>\n", "x", "a &lt; b"),
            ("x = '&lt;'\ny = 1\n", "y = 1", "y = a &lt; b"),
        ] {
            apply_edit(file, search, replace).unwrap_or_else(|error| panic!("{replace}: {error}"));
        }
    }
}
