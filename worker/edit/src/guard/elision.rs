//! Rejects lines that stand in for other lines: `...`, `// ... existing code ...`, `# rest of the method`,
//! and the truncation marks of docket's own tools. They are never written in place of the lines they stand
//! for.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    similarity::{SAME_LINE_MIN, line_similarity},
    tokens::diff_slices,
};

/// Returns the elision line of the replacement, unless the file itself contains that line.
pub(crate) fn find_elision(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let spoken = |line: &&str| (is_worded_elision(line) || is_truncation_mark(line)) && !doc.has_line(line);
    let line = pattern.replace.lines().find(spoken).map(str::to_owned);
    line.or_else(|| find_bare_ellipsis(pattern)).or_else(|| find_omission_comment(doc, pattern))
}

/// Returns the non-blank lines of a text, trimmed.
fn trimmed_non_blank_lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Minimum number of lines that a bare `...` must replace to count as an elision rather than a
/// statement.
const ELIDED_MIN: usize = 2;

/// Returns the bare `...` of the replacement if the search has lines at that position, between two
/// lines that both have.
fn find_bare_ellipsis(pattern: &EditPattern) -> Option<String> {
    let (search, replace) =
        (trimmed_non_blank_lines(&pattern.search), trimmed_non_blank_lines(&pattern.replace));
    let bare = |line: &str| matches!(line, "..." | "\u{2026}");
    // `...` as the whole body of a Python function is a stub.
    let stub = |at: usize| {
        at > 0 && at + 1 == replace.len() && {
            let head = &replace[at - 1];
            head.ends_with(':')
                && (["def ", "class "].iter().any(|word| head.starts_with(word)) || head.contains(" def "))
        }
    };
    let place = |line: &String| search.iter().position(|said| line_similarity(said, line) >= SAME_LINE_MIN);
    let stands_for_lines = |at: usize| {
        let above = at.checked_sub(1).and_then(|above| place(&replace[above])).map(|place| place + 1);
        let below = replace.get(at + 1).map_or(Some(search.len()), place);
        above.zip(below).is_some_and(|(above, below)| below >= above + ELIDED_MIN)
    };
    let is = |(at, line): &(usize, &String)| {
        bare(line) && !search.contains(line) && !stub(*at) && stands_for_lines(*at)
    };
    replace.iter().enumerate().find(is).map(|(_, line)| line.clone())
}

/// Words for lines that are unchanged or left out.
const OMISSION_WORDS: [&str; 24] = [
    "rest",
    "existing",
    "omitted",
    "omit",
    "unchanged",
    "unmodified",
    "untouched",
    "same",
    "snip",
    "snipped",
    "previous",
    "other",
    "others",
    "remaining",
    "remainder",
    "remains",
    "etc",
    "truncated",
    "elided",
    "abbreviated",
    "original",
    "keep",
    "kept",
    "before",
];
/// Words that go with [`OMISSION_WORDS`] and add no meaning.
const FILLER_WORDS: [&str; 64] = [
    "a",
    "all",
    "and",
    "are",
    "as",
    "above",
    "below",
    "body",
    "brevity",
    "change",
    "changes",
    "class",
    "code",
    "component",
    "content",
    "contents",
    "docstring",
    "everything",
    "exactly",
    "fields",
    "file",
    "for",
    "from",
    "function",
    "functions",
    "go",
    "goes",
    "here",
    "html",
    "implementation",
    "imports",
    "in",
    "is",
    "it",
    "its",
    "jsx",
    "leave",
    "lines",
    "logic",
    "markup",
    "method",
    "methods",
    "module",
    "more",
    "no",
    "not",
    "of",
    "page",
    "part",
    "parts",
    "section",
    "script",
    "stay",
    "stays",
    "stuff",
    "template",
    "that",
    "the",
    "this",
    "to",
    "todo",
    "unaltered",
    "with",
    "your",
];

/// Returns the comment of the replacement that represents unchanged or omitted lines while quoted lines
/// disappear. The comment consists of such words only, or begins with them in an edit that removes more
/// than it adds.
fn find_omission_comment(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let (search, replace) =
        (trimmed_non_blank_lines(&pattern.search), trimmed_non_blank_lines(&pattern.replace));
    let is_new = |line: &String| !search.contains(line) && !doc.has_line(line);
    if search.len() < ELIDED_MIN || !replace.iter().any(|line| comment_only_text(line).is_some()) {
        return None;
    }
    for change in diff_slices(&search, &replace, |_| 1) {
        let gone = search[change.old_range.clone()].iter().filter(|line| !replace.contains(line)).count();
        let came = replace[change.new_range.clone()].iter().filter(|line| !search.contains(line)).count();
        if gone < ELIDED_MIN {
            continue;
        }
        let says = |line: &&String| {
            // The separator that `grep` prints between groups of matches.
            if line.as_str() == "--" {
                return !doc.lines.iter().any(|real| real.text.trim_start().starts_with("--"));
            }
            let Some(body) = comment_only_text(line) else { return false };
            let body = body.to_lowercase();
            let words: Vec<&str> = body
                .split(|c: char| !c.is_alphanumeric() && c != '\'')
                .filter(|word| !word.is_empty())
                .collect();
            let stem = |word: &&str| OMISSION_WORDS.contains(word);
            let only = words.iter().all(|word| stem(word) || FILLER_WORDS.contains(word));
            let said = words.iter().any(stem) || words.as_slice() == ["no", "changes"];
            let first = words.iter().find(|word| !matches!(**word, "the" | "your" | "all" | "todo"));
            let begins = first.is_some_and(|word| stem(word) && !matches!(*word, "keep" | "kept" | "before"));
            (said && only) || (begins && words.len() <= OMISSION_COMMENT_WORDS_MAX && gone >= came)
        };
        if let Some(line) = replace[change.new_range].iter().find(|line| says(line) && is_new(line)) {
            return Some(line.clone());
        }
    }
    None
}

/// Maximum length of a comment that begins with one of [`OMISSION_WORDS`] and counts as an elision. A
/// longer one is an explanation.
const OMISSION_COMMENT_WORDS_MAX: usize = 6;

/// Returns the text of a line that holds a comment and no statement. `pass` and a string in triple quotes
/// count as no statement.
fn comment_only_text(line: &str) -> Option<&str> {
    let line = line.trim();
    let idle = line.strip_prefix("pass").or_else(|| line.strip_prefix("...")).map(str::trim_start);
    let quoted = ["\"\"\"", "'''"]
        .iter()
        .find_map(|quotes| line.strip_prefix(quotes)?.strip_suffix(quotes))
        .filter(|body| !body.is_empty());
    quoted.or_else(|| comment_body(idle.filter(|rest| rest.starts_with('#')).unwrap_or(line)))
}

/// Returns whether `line` is a truncation mark of a tool (docket's own or others): `[… 500
/// characters left out …]`, `    3| ...`, `[truncated]`, `⋮`.
pub(crate) fn is_truncation_mark(line: &str) -> bool {
    let line = line.trim();
    let dots = |text: &str| {
        let rest = text.strip_prefix("...").or_else(|| text.strip_prefix('\u{2026}'));
        rest.map(|rest| rest.trim_matches(['.', '\u{2026}', ' ']).to_owned())
    };
    let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    if line.starts_with("[\u{2026} ") && inner.is_some() {
        return true;
    }
    // `[...list]` is code, `[... 20 more lines ...]` is not.
    if inner.is_some_and(|inner| inner.ends_with("...") && inner.starts_with("... ") && inner.contains(' ')) {
        return true;
    }
    let cut = |text: &str| {
        let text = text.to_lowercase();
        matches!(
            text.as_str(),
            "truncated" | "output truncated" | "content truncated" | "file truncated" | "snip"
        )
    };
    let bracketed = |text: &str| {
        let pairs = [('[', ']'), ('(', ')'), ('<', '>')];
        pairs.iter().any(|(open, close)| {
            text.strip_prefix(*open).and_then(|text| text.strip_suffix(*close)).is_some_and(cut)
        })
    };
    let barred = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let barred = barred.strip_prefix(['|', '\u{2502}']).map(str::trim);
    line.starts_with('\u{22ee}')
        || bracketed(line)
        || dots(line).is_some_and(|rest| bracketed(&rest))
        || barred.is_some_and(|rest| matches!(rest, "..." | "\u{2026}"))
}

/// Returns whether `line` is a placeholder for other lines: `...`, `# ...`, `// ... existing code ...`,
/// `/* … */`.
pub(crate) fn is_elision(line: &str) -> bool {
    let line = line.trim();
    line == "..."
        || line == "…"
        || comment_body(line).is_some_and(|body| body == "..." || body == "…")
        || is_worded_elision(line)
        || is_truncation_mark(line)
}

/// Returns whether a line says in words that lines are left out: in a comment, or between dots.
pub(crate) fn is_worded_elision(line: &str) -> bool {
    let line = line.trim();
    let dotted_start = |text: &str| text.starts_with("...") || text.starts_with('\u{2026}');
    let dotted_end = |text: &str| text.ends_with("...") || text.ends_with('\u{2026}');
    let about = |text: &str| {
        let text = text.to_lowercase();
        let words = [
            "existing",
            "rest of",
            "unchanged",
            "remaining",
            "same as",
            "other code",
            "omitted",
            "(code above)",
            "(code below)",
        ];
        words.iter().any(|word| text.contains(word))
    };
    let Some(body) = comment_body(line) else {
        // `...rest` is code in some languages, `... rest of the file ...` in none.
        return dotted_start(line) && dotted_end(line) && line.contains(' ') && about(line);
    };
    let empty = body.trim_matches(['.', '\u{2026}', ' ']).is_empty();
    // `Loading existing users...` is about users, `existing code ...` about lines.
    let begins = |text: &str| {
        let text = text.to_lowercase();
        let words = [
            "existing",
            "rest of",
            "the rest",
            "unchanged",
            "remaining",
            "the remaining",
            "same as",
            "other code",
            "omitted",
        ];
        words.iter().any(|word| text.starts_with(word))
    };
    (dotted_start(body) && (empty || about(body)))
        || (dotted_end(body) && begins(body))
        || describes_omission(body)
}

/// Recognizes `rest of the code remains unchanged`, without any dots.
fn describes_omission(body: &str) -> bool {
    let body = body.to_lowercase();
    let body = body.trim_matches(|c: char| !c.is_alphanumeric());
    let what =
        ["rest of ", "the rest of ", "remaining ", "the remaining ", "existing ", "other ", "previous "];
    let how = [
        "unchanged",
        "remains the same",
        "remain the same",
        "stays the same",
        "stay the same",
        "as before",
        "goes here",
        "go here",
        "omitted",
        "omitted for brevity",
        "here",
    ];
    let code = [
        "code",
        "file",
        "function",
        "method",
        "class",
        "implementation",
        "imports",
        "methods",
        "functions",
        "logic",
        "content",
        "contents",
        "lines",
        "module",
        "script",
        "component",
        "body",
    ];
    what.iter().any(|start| body.starts_with(start))
        && how.iter().any(|end| body.ends_with(end))
        && body.split(|c: char| !c.is_alphanumeric()).any(|word| code.contains(&word))
}

fn comment_body(line: &str) -> Option<&str> {
    let opens = ["//", "#", "/*", "<!--", "--", ";", "{/*"];
    let body = opens.iter().find_map(|open| line.strip_prefix(open))?;
    let closes = ["*/}", "*/", "-->"];
    Some(closes.iter().find_map(|close| body.strip_suffix(close)).unwrap_or(body).trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::apply_edit;

    #[test]
    fn omission_comments_are_distinguished_from_code() {
        for line in [
            "# ... existing code ...",
            "// ...",
            "/* … rest of the file … */",
            "... existing code ...",
            "// rest of the code remains the same",
            "# (rest of the function unchanged)",
            "    // Existing imports here",
            "# ... (code above)",
            "// existing code...",
            "<!-- remaining content omitted -->",
        ] {
            assert!(is_elision(line), "{line}");
        }
        for line in [
            "...args",
            "...rest,",
            "x = ...",
            "# wait...",
            "# Loading existing users...",
            "// see the rest of the file",
            "# existing users keep their code",
            "// other threads may be here",
            "# the rest of the world",
        ] {
            assert!(!is_elision(line), "{line}");
        }
    }

    const CODE: &str = "function f() {\n  a();\n  b();\n  c();\n}\n";

    #[test]
    fn comment_replacing_removed_lines_is_refused() {
        for line in [
            "// ... keep the rest",
            "// rest unchanged",
            "// (rest of the implementation)",
            "// existing code",
            "// --- snip ---",
            "// your existing code here",
            "// the rest of the code stays as is",
            "// TODO: keep existing code",
            "// etc.",
            "// previous validation steps",
            "// other cases as before",
            "{/* existing content */}",
            "<!-- rest of the page -->",
            "pass  # existing code",
            "# rest of method",
            "# ... same logic as before ...",
            "\"\"\"existing docstring\"\"\"",
            "[… 500 characters left out …]",
            "[… lines 3 to 5 are not shown: 3 lines. Read them with start_line and end_line …]",
            "     3| ...",
            "... (truncated)",
            "[... 20 more lines ...]",
            "(output truncated)",
            "⋮----",
            "| ...",
            "--",
        ] {
            let error =
                apply_edit(CODE, "  a();\n  b();\n  c();", &format!("  z();\n  {line}")).expect_err(line);
            assert!(error.contains(line.trim()) && error.contains("omitted lines"), "{error}");
        }
    }

    #[test]
    fn comment_without_removed_lines_is_kept() {
        for line in [
            "// rest of the world",
            "// existing users keep their ids",
            "// keep the rest of the args together",
            "// previous value wins",
            "// the remaining ones",
            "# same",
        ] {
            for (search, replace) in [
                ("  b();", format!("  {line}\n  b2();")),
                ("  a();\n  b();", format!("  a();\n  {line}\n  b();\n  d();")),
            ] {
                apply_edit(CODE, search, &replace).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        // Lines are removed, but the comment says more than that they stay.
        for line in ["// keep order", "// reuse the existing helper", "// a b c", "//"] {
            apply_edit(CODE, "  a();\n  b();\n  c();", &format!("  {line}\n  z();"))
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
