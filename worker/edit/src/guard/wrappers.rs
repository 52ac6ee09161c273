//! The frame in which other editors and models' own formats wrap a replacement: tags before and after it,
//! a language's name, a divider. None of it is text of a file.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    similarity::{SAME_LINE_MIN, line_similarity},
};

/// Tags in which other editors wrap a replacement or a call.
const WRAPPER_TAGS: [&str; 19] = [
    "replace",
    "replacement",
    "search",
    "new_string",
    "old_string",
    "new_str",
    "old_str",
    "new_text",
    "new_code",
    "edit",
    "parameter",
    "invoke",
    "function_calls",
    "function",
    "tool_call",
    "content",
    "file",
    "code",
    "diff",
];
/// Those of them that are markup too.
const MARKUP_TAGS: [&str; 7] = ["search", "edit", "function", "content", "file", "code", "diff"];
/// Names of languages, as they stand behind a fence.
const LANGUAGES: [&str; 22] = [
    "python",
    "py",
    "javascript",
    "js",
    "jsx",
    "typescript",
    "ts",
    "tsx",
    "rust",
    "go",
    "java",
    "json",
    "yaml",
    "yml",
    "bash",
    "sh",
    "html",
    "css",
    "sql",
    "cpp",
    "ruby",
    "diff",
];

/// The line of the replacement that frames it, where neither search nor file has such a line.
pub(crate) fn find_wrapper(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let is_new =
        |line: &&str| !doc.has_line(line) && !pattern.search.lines().any(|said| said.trim() == line.trim());
    let solid: Vec<&str> = pattern.replace.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = solid.first().filter(|line| is_new(line)).copied();
    let last = solid.last().filter(|line| is_new(line)).copied();
    let markup = doc.lines.iter().any(|line| line.text.trim_start().starts_with('<'));
    let tag = || {
        first
            .filter(|line| is_opening_tag(line))
            .or_else(|| last.filter(|line| is_closing_tag(pattern, line) || is_opening_tag(line)))
    };
    let frame = if markup { None } else { tag() };
    let frame = frame.or_else(|| last.filter(|line| is_end_marker(doc, pattern, &solid, line)));
    let frame = frame.or_else(|| first.filter(|line| is_language_name(doc, pattern, &solid, line)));
    frame.or_else(|| contains_search_replace_block(pattern).then_some("=======")).map(str::to_owned)
}

fn is_opening_tag(line: &str) -> bool {
    let line = line.trim();
    let tag = line.strip_prefix('<').and_then(|line| line.strip_suffix('>'));
    line.starts_with("<![CDATA[") || tag.is_some_and(|tag| WRAPPER_TAGS.contains(&tag))
}

/// A closing tag of the list, alone or behind text, that closes nothing.
fn is_closing_tag(pattern: &EditPattern, line: &str) -> bool {
    let line = line.trim_end();
    let tag = line.strip_suffix('>').and_then(|line| line.rsplit_once("</"));
    // Some are tags of markup as well, as in a comment.
    let opened = |tag: &str| {
        let open = format!("<{tag}");
        MARKUP_TAGS.contains(&tag) && (pattern.replace.contains(&open) || pattern.search.contains(&open))
    };
    // In quotes it is a value.
    tag.is_some_and(|(before, tag)| {
        WRAPPER_TAGS.contains(&tag) && !before.contains(['"', '\'', '`']) && !opened(tag)
    }) || line.trim() == "]]>"
}

/// Whether the last line is what ends a text elsewhere: a divider, an end of input, quotes that open nothing.
fn is_end_marker(doc: &SearchDoc<'_>, pattern: &EditPattern, solid: &[&str], line: &str) -> bool {
    let above = solid.len().checked_sub(2).map(|at| solid[at]);
    // A title is as long as the line under it, at the most.
    let underlines =
        |line: &str| above.is_some_and(|above| !above.starts_with(' ') && above.len() <= line.len());
    match line {
        "=======" | "~~~" => above.is_some() && !underlines(line),
        "EOF" => {
            let opened = |text: &str| text.contains("<<");
            above.is_some() && !opened(doc.text) && !opened(&pattern.replace)
        }
        "'''" | "\"\"\"" => !doc.text.contains(line) && pattern.replace.matches(line).count() == 1,
        _ => false,
    }
}

/// Whether the first line is the name of a language, as behind a fence, in a file that is no list of words.
fn is_language_name(doc: &SearchDoc<'_>, pattern: &EditPattern, solid: &[&str], line: &str) -> bool {
    let word = |line: &str| !line.trim().is_empty() && line.trim().chars().all(char::is_alphanumeric);
    solid.len() > 1
        && LANGUAGES.contains(&line)
        && !pattern.search.lines().any(word)
        && !solid[1..].iter().any(|line| word(line))
        && !doc.lines.iter().any(|line| word(line.text))
}

/// Whether the replacement is a whole block, as a patch has it: the search, a line of `=`, the search changed.
fn contains_search_replace_block(pattern: &EditPattern) -> bool {
    let divides = |line: &str| line.len() >= 5 && line.bytes().all(|byte| byte == b'=');
    let lines: Vec<&str> = pattern.replace.trim().lines().collect();
    let Some(at) = lines.iter().position(|line| divides(line)) else { return false };
    let (old, new) = (lines[..at].join("\n"), lines[at + 1..].join("\n"));
    !pattern.search.lines().any(divides)
        && old.trim() == pattern.search.trim()
        && line_similarity(new.trim(), old.trim()) >= SAME_LINE_MIN
}

#[cfg(test)]
mod tests {
    use crate::test_support::apply_edit;

    #[test]
    fn wrapper_at_either_end_is_refused() {
        let file = "def f():\n    x = 1\n    return x\n";
        for line in [
            "</replace>",
            "<replace>",
            "</search>",
            "</new_string>",
            "</edit>",
            "</parameter>",
            "</tool_call>",
            "</content>",
            "</parameter>\n</invoke>",
            "=======",
            "EOF",
            "~~~",
            "'''",
            "]]>",
        ] {
            let error = apply_edit(file, "    x = 1", &format!("    x = 2\n{line}")).expect_err(line);
            assert!(error.contains("frames a patch"), "{error}");
        }
        for replace in [
            "    x = 2</parameter>\n</invoke>",
            "    x = 2</replace>",
            "<![CDATA[    x = 2]]>",
            "python\n    x = 2",
        ] {
            let error = apply_edit(file, "    x = 1", replace).expect_err(replace);
            assert!(error.contains("frames a patch"), "{error}");
        }
    }

    #[test]
    fn text_resembling_a_wrapper_is_kept() {
        for (file, search, replace) in [
            ("Title\n\nText.\n", "Title", "Title 2\n======="),
            ("Titles\n\nText.\n", "Titles", "Titles\n======="),
            ("cat <<EOF\nx\n", "x", "x\nEOF"),
            ("curl\ngit\n", "curl", "python\ncurl"),
            ("x = 1\n", "x = 1", "x = \"</code>"),
            ("<div>\n  <b/>\n</div>\n", "  <b/>", "  <b/>\n  <code>x</code>"),
            ("/**\n * a\n */\n", " * a", " * a\n * <code>b</code>"),
            ("<pre>\n<code>\nx\n</pre>\n", "x", "x\n</code>"),
            ("x = 1\n", "x = 1", "x = '''\na\n'''"),
        ] {
            apply_edit(file, search, replace).unwrap_or_else(|error| panic!("{replace}: {error}"));
        }
    }
}
