//! Rejects an indentation-insensitive match whose nesting differs from the search: in a language with
//! significant indentation, that is a different statement.

use docket_schema::tool::EditLevel;

use crate::{search_doc::SearchDoc, search_match::Match, text::leading_indent};

/// Returns the first line of the file (from 0) whose depth relative to the line above differs from the
/// search.
pub(crate) fn first_nesting_mismatch(doc: &SearchDoc<'_>, found: &Match) -> Option<usize> {
    if found.level <= EditLevel::Whitespace {
        return None;
    }
    let mut pairs: Vec<(usize, &str, &str)> = found
        .align
        .iter()
        .zip(&found.search)
        .filter(|(_, said)| !said.trim().is_empty() && !closes_block(said))
        .filter_map(|(place, said)| {
            let place = (*place)?;
            Some((place, leading_indent(said), leading_indent(doc.lines[place].text)))
        })
        .collect();
    // Models drop the indentation of the first line. Such a line says nothing about the lines below it,
    // unless it opens a block.
    if let Some((place, "", real)) = pairs.first()
        && !real.is_empty()
        && (!opens_block(doc.lines[*place].text)
            || pairs[1..].iter().all(|(_, said, real)| indent_width(said) == indent_width(real)))
    {
        pairs.remove(0);
    }
    // A search without any indentation makes no claim about nesting.
    if pairs.windows(2).all(|two| indent_width(two[0].1) == indent_width(two[1].1)) {
        return None;
    }
    let stands = |two: &&[(usize, &str, &str)]| {
        let step = |a: &str, b: &str| indent_width(a).cmp(&indent_width(b));
        step(two[0].1, two[1].1) != step(two[0].2, two[1].2)
    };
    pairs.windows(2).find(stands).map(|two| two[1].0)
}

fn indent_width(indent: &str) -> usize {
    indent.chars().map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

fn opens_block(line: &str) -> bool {
    line.trim_end().ends_with([':', '{', '(', '['])
}

/// Returns whether a line only closes a block. Its indentation is a matter of style.
fn closes_block(line: &str) -> bool {
    line.trim_start().starts_with(['}', ')', ']'])
}

#[cfg(test)]
mod tests {
    use crate::test_support::apply_edit;

    #[test]
    fn different_nesting_is_rejected() {
        for (before, search, replace) in [
            ("if a:\n    x()\nclean(a)\ndone()\n", "if a:\n    x()\n    clean(a)", "if a:\n    x()"),
            (
                "for a in b:\n    x()\n    y()\nz()\n",
                "for a in b:\n    x()\ny()",
                "for a in b:\n    x()\ny(1)",
            ),
            ("a:\n  b:\n  d: 2\n", "b:\n    d: 2", "b:\n    d: 3"),
            ("a:\n  b:\n    c: 1\n  d: 2\n", "b:\n  c: 1\n  d: 2", "b:\n  c: 1\n  d: 3"),
            (
                "else:\n    w()\nreturn_it(a)\n",
                "else:\n    w()\n    retrun_it(a)",
                "else:\n    w()\n    return_it(b)",
            ),
        ] {
            let error = apply_edit(before, search, replace).expect_err(search);
            assert!(error.contains("another depth"), "{error}");
        }
    }

    #[test]
    fn different_indent_unit_is_the_same_nesting() {
        for (before, search, replace) in [
            ("if a:\n\tx()\n\ty()\n", "if a:\n    x()\n    y()", "if a:\n    x()\n    y(1)"),
            ("  if a:\n    x()\n  y()\n", "if a:\n    x()\ny()", "if a:\n    x()\ny(1)"),
            ("all:\n\tgo build\n\tgo vet\n", "all:\ngo build\ngo vet", "all:\ngo build\ngo vet -v"),
            ("f {\n  x(\n    1\n    );\n}\n", "    x(\n        1\n    );", "    x(\n        2\n    );"),
            ("a:\n    go(1)\n    go(2)\n", "go(1) \n    go(2)", "go(1) \n    go(3)"),
            ("a:\n    go(1)\n    go(2)\n", "go(1)\n  go(2)", "go(1)\n  go(3)"),
        ] {
            apply_edit(before, search, replace).unwrap_or_else(|error| panic!("{search:?}: {error}"));
        }
    }
}
