//! Handles a replacement written as a diff: the search is plain, and the lines of the replacement start with
//! `-`, `+` or a space. If its old side is the search, its new side is the intended text.

use crate::{pattern::EditPattern, search_doc::SearchDoc};

/// Strips the diff markers from the replacement if it is a diff of the search. Returns `Err` if the
/// replacement adds a hunk that changes something other than the search.
pub(crate) fn strip_diff_markers(doc: &SearchDoc<'_>, pattern: EditPattern) -> Result<EditPattern, String> {
    let headed = pattern.replace.lines().any(is_hunk_header)
        && !pattern.search.lines().any(is_hunk_header)
        && !doc.lines.iter().any(|line| is_hunk_header(line.text));
    let body: Vec<&str> = pattern
        .replace
        .lines()
        .filter(|line| !headed || !(is_hunk_header(line) || is_file_header(line)))
        .collect();
    let signed = body.iter().any(|line| line.starts_with(['+', '-']));
    let read = signed.then(|| {
        [true, false].into_iter().find_map(|margin| parse_inline_diff(doc, &pattern, &body, margin))
    });
    match read.flatten() {
        Some(read) => Ok(read),
        None if headed => {
            Err("replace holds a hunk of a patch (`@@ … @@`) whose old lines are not those of search: \
                               give the new text alone in replace, or the hunk as `patch`"
                .to_owned())
        }
        None => Ok(pattern),
    }
}

fn is_hunk_header(line: &str) -> bool {
    line.strip_prefix("@@ -").is_some_and(|rest| rest.contains("@@"))
}

fn is_file_header(line: &str) -> bool {
    ["--- ", "+++ ", "diff --git ", "index ", "\\ No newline"].iter().any(|start| line.starts_with(start))
}

/// Parses the body as a diff of the search. `margin` means that context lines start with a space.
fn parse_inline_diff(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    body: &[&str],
    margin: bool,
) -> Option<EditPattern> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let (mut added, mut removed, mut stay) = (Vec::new(), Vec::new(), 0);
    for line in body {
        if let Some(line) = line.strip_prefix('-') {
            old.push(line);
            removed.push(line);
        } else if let Some(line) = line.strip_prefix('+') {
            new.push(line);
            added.push(line);
        } else {
            let line = if margin && !line.is_empty() { line.strip_prefix(' ')? } else { line };
            stay += usize::from(!line.trim().is_empty());
            old.push(line);
            new.push(line);
        }
    }
    let said: Vec<&str> = pattern.search.lines().filter(|line| !line.trim().is_empty()).collect();
    let solid: Vec<&str> = old.iter().copied().filter(|line| !line.trim().is_empty()).collect();
    // A search without its first indentation still counts as the file's line.
    let is = |(old, said): (&&str, &&str)| {
        old.trim_end() == said.trim_end()
            || (old.trim() == said.trim()
                && doc.lines.iter().any(|line| line.text.trim_end() == old.trim_end()))
    };
    if said.len() != solid.len() || !solid.iter().zip(&said).all(is) {
        return None;
    }
    let deep = |lines: &[&str]| {
        lines.iter().all(|line| line.trim().is_empty() || line.starts_with("  ") || line.starts_with('\t'))
    };
    let knows = |sign: char| doc.lines.iter().any(|line| line.text.starts_with(sign));
    // Markers without other evidence may be text: a list item, a term of a sum.
    let certain = match (added.is_empty(), removed.is_empty()) {
        (false, false) => true,
        (false, true) if margin => stay > 0,
        (false, true) => deep(&added) && !knows('+'),
        (true, _) if margin => stay > 0,
        (true, _) => deep(&removed) && !knows('-'),
    };
    let ended = |lines: &[&str], like: &str| {
        let end = if like.ends_with('\n') && !lines.is_empty() { "\n" } else { "" };
        lines.join("\n") + end
    };
    certain
        .then(|| EditPattern { search: ended(&old, &pattern.search), replace: ended(&new, &pattern.search) })
}

#[cfg(test)]
mod tests {
    use crate::test_support::apply_edit;

    const CODE: &str = "def f(x):\n    a = 1\n    b = 2\n    return x\n";

    #[test]
    fn diff_in_replacement_is_applied() {
        let changed = CODE.replace("b = 2", "b = 3");
        let more = CODE.replace("b = 2\n", "b = 2\n    c = 3\n");
        for (search, replace, want) in [
            ("    a = 1\n    b = 2", "     a = 1\n-    b = 2\n+    b = 3", &changed),
            ("    a = 1\n    b = 2", "    a = 1\n-    b = 2\n+    b = 3", &changed),
            ("    a = 1\n    b = 2\n", "@@ -2,2 +2,2 @@\n     a = 1\n-    b = 2\n+    b = 3\n", &changed),
            ("    b = 2", "--- a/f.py\n+++ b/f.py\n@@ -3 +3 @@\n-    b = 2\n+    b = 3", &changed),
            ("b = 2", "-    b = 2\n+    b = 3", &changed),
            ("    b = 2\n", "    b = 2\n+    c = 3\n", &more),
            ("    b = 2\n", "     b = 2\n+    c = 3\n", &more),
        ] {
            assert_eq!(apply_edit(CODE, search, replace).as_ref(), Ok(want), "{replace:?}");
        }
        assert_eq!(
            apply_edit("a:\n  - x\n  - y\n", "  - x\n  - y", "  - x\n-  - y\n+  - z").as_deref(),
            Ok("a:\n  - x\n  - z\n")
        );
        let error =
            apply_edit(CODE, "    b = 2", "@@ -2 +2 @@\n-    a = 1\n+    a = 2").expect_err("another line");
        assert!(error.contains("hunk of a patch"), "{error}");
    }

    #[test]
    fn plus_and_minus_signs_in_text_are_kept() {
        for (before, search, replace, want) in [
            ("# T\n\ntext\n", "text", "- text\n+ other", "# T\n\n- text\n+ other\n"),
            ("- a\n- b\n", "- b", "- b\n- c", "- a\n- b\n- c\n"),
            ("x = a\n", "a", "-a", "x = -a\n"),
            ("a\n", "a", "-a", "-a\n"),
            ("a = b\n", "a = b", "a = b\n+ c", "a = b\n+ c\n"),
            ("+ a\n+ b\n", "+ b", "+ b\n+  c", "+ a\n+ b\n+  c\n"),
        ] {
            assert_eq!(apply_edit(before, search, replace).as_deref(), Ok(want), "{replace:?}");
        }
    }
}
