//! Detects an insertion that is already applied: the search is the beginning or end of the replacement, and
//! the full replacement is already at the matched place. Applying the edit again would duplicate it.

use docket_schema::tool::EditLevel;

use crate::{pattern::EditPattern, search_doc::SearchDoc, search_match::Match};

/// Returns whether the text that the edit adds is already next to the search in the file.
pub(crate) fn insertion_present(doc: &SearchDoc<'_>, pattern: &EditPattern, found: &Match) -> bool {
    inline_insertion_present(pattern, found) || line_insertion_present(doc, found)
}

/// Checks insertions of whole lines, above or below the search.
fn line_insertion_present(doc: &SearchDoc<'_>, found: &Match) -> bool {
    let same = |a: &str, b: &str| match found.level {
        EditLevel::Exact => a.trim_end() == b.trim_end(),
        _ => a.trim() == b.trim(),
    };
    let alike = |a: &[String], b: &[String]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    let blank_end = found.search.iter().rev().take_while(|line| line.trim().is_empty()).count();
    let search = &found.search[..found.search.len() - blank_end];
    let (replace, region) = (&found.replace, found.region());
    let Some(more) = replace.len().checked_sub(search.len()).filter(|more| *more > 0) else { return false };
    // A closing brace is not evidence: one more may be exactly what the file lacks.
    let tells = |lines: &[String]| lines.iter().any(|line| line.chars().any(char::is_alphanumeric));
    let stand = |lines: &[String], from: usize| {
        tells(lines)
            && lines.iter().enumerate().all(|(at, line)| {
                doc.lines.get(from + at).map_or(line.trim().is_empty(), |real| same(real.text, line))
            })
    };
    if region.len() != found.search.len() || search.is_empty() {
        return false;
    }
    (alike(&replace[..search.len()], search) && stand(&replace[search.len()..], region.start + search.len()))
        || (alike(&replace[more..], search)
            && region.start.checked_sub(more).is_some_and(|from| stand(&replace[..more], from)))
}

/// Checks insertions within one line.
fn inline_insertion_present(pattern: &EditPattern, found: &Match) -> bool {
    let ([line], EditLevel::Exact) = (found.search.as_slice(), found.level) else { return false };
    let (said, put) = (pattern.search.as_str(), pattern.replace.as_str());
    let added = put.strip_prefix(said).or_else(|| put.strip_suffix(said)).unwrap_or_default();
    let mut places = line.match_indices(said).map(|(at, _)| at);
    let (Some(at), None) = (places.next(), places.next()) else { return false };
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (below, above) = (line[at..].strip_prefix(put), line[..at + said.len()].strip_suffix(put));
    let parted = |edge: Option<char>, next: Option<char>| !(is_word(edge) && is_word(next));
    added.chars().any(char::is_alphanumeric)
        && (below.is_some_and(|rest| parted(put.chars().next_back(), rest.chars().next()))
            || above.is_some_and(|rest| parted(put.chars().next(), rest.chars().next_back())))
}

#[cfg(test)]
mod tests {
    use docket_schema::tool::EditLevel;

    use crate::{Edit, EditHint, apply_edits};

    #[test]
    fn repeated_insertion_is_a_no_op() {
        for (before, search, replace) in [
            ("def f():\n    pass\n", "def f():\n", "def f():\n    x = 1\n"),
            ("import a\n\nx = 1\n", "import a", "import a\nimport b"),
            ("import a\n", "import a\n", "import a\nimport b\n"),
            ("def index():\n    pass\n", "def index():", "@app.get('/')\ndef index():"),
            ("  a: 1\n  c: 3\n", "a: 1\n", "a: 1\n  b: 2\n"),
            ("f(x)\n", "f(x", "f(x, y"),
            ("a = 1\n", "a = 1", "a = 10"),
            ("\tgo(1);\n\tend();\n", "    go(1);", "    go(1);\n    more();"),
        ] {
            let edit =
                Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
            let once = apply_edits(before.as_bytes(), std::slice::from_ref(&edit)).expect("applies");
            assert_ne!(once.after, before.as_bytes(), "{search:?}");
            let twice = apply_edits(&once.after, &[edit]).expect("is there");
            let text = String::from_utf8_lossy(&twice.after).into_owned();
            assert_eq!(
                (twice.loosest_level(), twice.after),
                (EditLevel::AlreadyApplied, once.after),
                "{text}"
            );
        }
    }

    #[test]
    fn insertion_with_shared_prefix_is_applied() {
        for (before, search, replace, want) in [
            (
                "import a\nimport bc\n",
                "import a\n",
                "import a\nimport b\n",
                "import a\nimport b\nimport bc\n",
            ),
            ("if a {\n  b();\n}\n", "  b();", "  b();\n}", "if a {\n  b();\n}\n}\n"),
            ("a = 100\n", "a = 1", "a = 10", "a = 1000\n"),
            ("a\n\nb\n", "a\n", "a\n\n", "a\n\n\nb\n"),
        ] {
            let edit =
                Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
            let made = apply_edits(before.as_bytes(), &[edit]).expect("applies");
            assert_eq!(String::from_utf8_lossy(&made.after), want);
        }
    }
}
