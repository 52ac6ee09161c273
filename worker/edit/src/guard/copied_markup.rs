//! Rejects markup that models copy into a replacement from the view in which they saw a file: line numbers,
//! code fences, elision markers, patch markers. None of it may reach a file.

use super::{elision, over_escaping, wrappers};
use crate::{
    patch_formats::is_patch_marker,
    pattern::EditPattern,
    repair::{line_numbers::introduces_line_numbers, sanitize::SanitizeError},
    search_doc::SearchDoc,
};

/// Returns why the replacement would write copied markup that the file does not already contain.
pub(crate) fn copied_markup_reason(doc: &SearchDoc<'_>, pattern: &EditPattern) -> Option<String> {
    let quoted = |dirt: SanitizeError, line: String| format!("`{}`: {}", line.trim(), dirt.message());
    if let Some(line) = elision::find_elision(doc, pattern) {
        return Some(quoted(SanitizeError::Elision, line));
    }
    let mark =
        pattern.replace.lines().find(|line| is_patch_marker(line) && !doc.has_line(line)).map(str::to_owned);
    if let Some(line) = mark.or_else(|| wrappers::find_wrapper(doc, pattern)) {
        return Some(quoted(SanitizeError::PatchMarker, line));
    }
    if let Some(why) = over_escaping::over_escaped_reason(doc, pattern) {
        return Some(why);
    }
    let dirt = if introduces_fence(doc, pattern) {
        SanitizeError::Fence
    } else if introduces_line_numbers(doc, pattern) {
        SanitizeError::LineNumbers
    } else {
        return None;
    };
    Some(dirt.message().to_owned())
}

/// Returns whether `line` is a code fence of backticks, or of tildes with a language. Tildes alone
/// are a heading underline.
pub(crate) fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    let tagged = |rest: &str| rest.trim_start_matches('~').starts_with(|c: char| c.is_ascii_alphabetic());
    line.starts_with("```") || line.strip_prefix("~~~").is_some_and(tagged)
}

/// Returns whether the replacement adds a fence although neither search nor file contains one.
fn introduces_fence(doc: &SearchDoc<'_>, pattern: &EditPattern) -> bool {
    if pattern.search.lines().any(is_fence) || doc.lines.iter().any(|line| is_fence(line.text)) {
        return false;
    }
    let fences = pattern.replace.lines().filter(|line| line.trim_start().starts_with("```")).count();
    let first = pattern.replace.lines().find(|line| !line.trim().is_empty()).is_some_and(is_fence);
    first || fences % 2 == 1
}

#[cfg(test)]
mod tests {
    use crate::{Edit, EditHint, apply_edits};

    /// Every kind of markup must be refused when the replacement adds it and the search matches exactly.
    /// Each case has a counterpart: similar text that is intended.
    #[test]
    fn copied_markup_is_never_written() {
        let file = "def f(a):\n    b = a\n    c = b\n    return c\n\ndef g():\n    pass\n";
        let body = "def f(a):\n    b = a\n    c = b\n    return c";
        for (search, replace) in [
            ("    b = a", "```python\n    b = a + 1\n```"),
            ("    b = a", "```\n    b = a + 1"),
            ("    b = a", "    b = a + 1\n```"),
            ("    b = a\n    c = b", "     2|     b = a\n     3|     c = b + 1"),
            ("    b = a\n    c = b", "2:     b = a\n3:     c = a"),
            ("    b = a", "     2|     b = a + 1"),
            ("    b = a", "2\t    b = a + 1"),
            ("    pass", "    1| x()\n    2| y()"),
            (body, "def f(a):\n    ...\n    return c + 1"),
            (body, "def f(b):\n    # ... existing code ...\n    return c"),
            (body, "def f(a):\n    b = a\n    ..."),
            (body, "def f(a):\n    # rest of the function unchanged\n    return c"),
            (body, "def f(a):\n    # (unchanged)\n    return d"),
            (body, "def f(a):\n    # ... (code above)\n    return d"),
            (body, "def f(a):\n    // keep as is\n    return d"),
            ("    pass", "    ... rest of the code ..."),
            ("    pass", "<<<<<<< SEARCH\n    pass\n=======\n    go()\n>>>>>>> REPLACE"),
            ("    pass", "    pass  # 1\n+++++++ REPLACE"),
            ("    pass", ":start_line:7\n-------\n    pass  # 1"),
            ("    b = a", "    b = a\n=======\n    b = a + 1"),
            ("    pass", "<replace>\n    go()\n</replace>"),
            ("    pass", "<![CDATA[\n    go()\n]]>"),
            ("    pass", "~~~python\n    go()\n~~~"),
            ("    pass", "``````\n    go()\n``````"),
        ] {
            let edit =
                Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
            match apply_edits(file.as_bytes(), &[edit]) {
                Err(error) => assert!(error.message.contains("Nothing was changed"), "{error}"),
                Ok(applied) => panic!("{replace:?} made {}", String::from_utf8_lossy(&applied.after)),
            }
        }
        for (file, search, replace) in [
            (file, "    pass", "    ..."),
            (file, body, "def f(a):\n    ..."),
            (file, "    pass", "    # Loading existing users...\n    pass"),
            ("D = {\n    'ok': 1,\n}\n", "    'ok': 1,", "    1: 'ok',\n    2: 'okay',"),
            (file, "    pass", "    d = {1: 'a',\n    2: 'b'}"),
            ("a: b\n", "a: b", "1: one\n2: two"),
            ("x\n```\ny\n```\n", "x", "```sh\nls\n```"),
            ("Run it.\n", "Run it.", "Run it:\n```sh\nls\n```"),
            ("Title\n\nText.\n", "Title", "Title\n=====\n\nMore is said in this chapter"),
            ("Title\n\nText.\n", "Title", "Other\n~~~~~"),
            ("<a>\n  <b/>\n</a>\n", "  <b/>", "<replace>\n  <b/>\n</replace>"),
        ] {
            let edit =
                Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
            apply_edits(file.as_bytes(), &[edit]).expect("is meant");
        }
    }
}
