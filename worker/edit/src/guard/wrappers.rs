//! Rejects wrappers that other editors and model formats put around a replacement: tags before and after
//! it, a language name, a divider. None of them is text of a file.

use crate::{
    pattern::EditPattern,
    search_doc::SearchDoc,
    similarity::{SAME_LINE_MIN, line_similarity},
};

/// Tags that other editors put around a replacement or a call.
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
/// Wrapper tags that are also valid markup.
const MARKUP_TAGS: [&str; 7] = ["search", "edit", "function", "content", "file", "code", "diff"];
/// Language names that follow a code fence.
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

/// Returns the wrapper line of the replacement, unless the search or the file contains that line.
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

/// Returns whether the line ends with a known closing tag that has no opening tag.
fn is_closing_tag(pattern: &EditPattern, line: &str) -> bool {
    let line = line.trim_end();
    let tag = line.strip_suffix('>').and_then(|line| line.rsplit_once("</"));
    // Some tags are also used as markup, for example in doc comments.
    let opened = |tag: &str| {
        let open = format!("<{tag}");
        MARKUP_TAGS.contains(&tag) && (pattern.replace.contains(&open) || pattern.search.contains(&open))
    };
    // A quoted tag is a value.
    tag.is_some_and(|(before, tag)| {
        WRAPPER_TAGS.contains(&tag) && !before.contains(['"', '\'', '`']) && !opened(tag)
    }) || line.trim() == "]]>"
}

/// Returns whether the last line is an end marker of another format: a divider, an end of input, or quotes
/// without a counterpart.
fn is_end_marker(doc: &SearchDoc<'_>, pattern: &EditPattern, solid: &[&str], line: &str) -> bool {
    let above = solid.len().checked_sub(2).map(|at| solid[at]);
    // An underline is at least as long as its heading.
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

/// Returns whether the first line is a language name, as after a fence, in a file that is not a word list.
fn is_language_name(doc: &SearchDoc<'_>, pattern: &EditPattern, solid: &[&str], line: &str) -> bool {
    let word = |line: &str| !line.trim().is_empty() && line.trim().chars().all(char::is_alphanumeric);
    solid.len() > 1
        && LANGUAGES.contains(&line)
        && !pattern.search.lines().any(word)
        && !solid[1..].iter().any(|line| word(line))
        && !doc.lines.iter().any(|line| word(line.text))
}

/// Returns whether the replacement is a whole search/replace block: the search, a line of `=`, and the
/// changed search.
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
