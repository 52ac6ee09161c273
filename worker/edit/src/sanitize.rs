//! What models copy into an edit from the form in which they saw a file: line numbers, code fences,
//! marks for omitted lines. None of it ever reaches a file.

use super::{
    elision, escapes,
    forms::marks,
    frame,
    locate::{Doc, Pattern},
    numbers::{Sequence, brings_numbers, labelled, number_prefix, unlabelled, unnumbered},
};

/// Why a pattern cannot be used as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dirt {
    Elision,
    LineNumbers,
    Fence,
    Marker,
}

impl Dirt {
    /// What the model is told.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Elision => {
                "a line that stands for omitted lines (`...`) is in the edit: write out every line, or make \
             several smaller edits, each of the lines that change alone. Words that are meant as a comment \
             are put otherwise."
            }
            Self::LineNumbers => {
                "line numbers were copied into search or replace: leave out the numbers that read_file shows."
            }
            Self::Marker => {
                "a line that frames a patch (`<<<<<<< SEARCH`, `=======`, `*** Begin Patch`, `</replace>`) is in \
                 replace: give the text alone."
            }
            Self::Fence => {
                "a code fence was copied into search or replace: leave it out. If the file is to hold a fence, \
                 quote in search the line above it, and begin replace with that line."
            }
        }
    }
}

/// A pattern without a copied frame.
#[derive(Debug)]
pub(super) struct Cleaned {
    pub(super) pattern: Pattern,
    /// The line, from 1, that the search says it begins at, where that must be so: the frame may be text as well.
    pub(super) first: Option<usize>,
}

/// The pattern without a copied frame; `Err` where what to leave out is not certain. Only called for
/// a search that does not stand in the file as it is.
pub(super) fn clean(pattern: &Pattern) -> Result<Cleaned, Dirt> {
    let mut out = pattern.clone();
    if let Some(search) = unfenced(&out.search) {
        out.replace = match (unfenced(&out.replace), out.replace.contains("```")) {
            (Some(replace), _) => replace,
            (None, false) => out.replace,
            (None, true) => return Err(Dirt::Fence),
        };
        out.search = search;
    }
    let mut first = None;
    if let Some(search) = unnumbered(&out.search, Sequence::Rising) {
        out.search = search;
        if let Some(replace) = unnumbered(&out.replace, Sequence::Any) {
            out.replace = replace;
        } else if out.replace.lines().any(|line| number_prefix(line).is_some()) {
            return Err(Dirt::LineNumbers);
        }
    } else if let Some(bare) = unlabelled(&out.search, Sequence::Rising) {
        let replace = unlabelled(&out.replace, Sequence::Any).filter(|other| other.form == bare.form);
        out.replace = match replace {
            Some(replace) => replace.text,
            None if out.replace.lines().any(|line| labelled(line, &bare.form)) => {
                return Err(Dirt::LineNumbers);
            }
            None => out.replace,
        };
        (out.search, first) = (bare.text, Some(bare.first));
    }
    Ok(Cleaned { pattern: out, first })
}

/// What the replacement would write that is no text of a file, and that this file does not have.
pub(super) fn written(doc: &Doc<'_>, pattern: &Pattern) -> Option<String> {
    let is_there = |line: &str| doc.lines.iter().any(|real| real.text.trim() == line.trim());
    let quoted = |dirt: Dirt, line: String| format!("`{}`: {}", line.trim(), dirt.text());
    if let Some(line) = elision::written(doc, pattern) {
        return Some(quoted(Dirt::Elision, line));
    }
    let mark = pattern.replace.lines().find(|line| marks(line) && !is_there(line)).map(str::to_owned);
    if let Some(line) = mark.or_else(|| frame::written(doc, pattern)) {
        return Some(quoted(Dirt::Marker, line));
    }
    if let Some(why) = escapes::written(doc, pattern) {
        return Some(why);
    }
    let dirt = if brings_fence(doc, pattern) {
        Dirt::Fence
    } else if brings_numbers(doc, pattern) {
        Dirt::LineNumbers
    } else {
        return None;
    };
    Some(dirt.text().to_owned())
}

/// Similarity at which two lines are taken for one line before and after.
pub(super) const SAME_LINE_MIN: f64 = 0.5;
/// A fence of backticks, or one of tildes with a language: tildes alone underline titles.
pub(super) fn is_fence(line: &str) -> bool {
    let line = line.trim_start();
    let tagged = |rest: &str| rest.trim_start_matches('~').starts_with(|c: char| c.is_ascii_alphabetic());
    line.starts_with("```") || line.strip_prefix("~~~").is_some_and(tagged)
}

/// Whether a fence around the replacement would be written: neither search nor file knows fences.
fn brings_fence(doc: &Doc<'_>, pattern: &Pattern) -> bool {
    if pattern.search.lines().any(is_fence) || doc.lines.iter().any(|line| is_fence(line.text)) {
        return false;
    }
    let fences = pattern.replace.lines().filter(|line| line.trim_start().starts_with("```")).count();
    let first = pattern.replace.lines().find(|line| !line.trim().is_empty()).is_some_and(is_fence);
    first || fences % 2 == 1
}

fn unfenced(text: &str) -> Option<String> {
    let trimmed = text.trim_matches('\n');
    let (first, rest) = trimmed.split_once('\n')?;
    let sign = first.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let tag = first.trim_start_matches(sign);
    let fence = &first[..first.len() - tag.len()];
    let is_tag = tag.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c));
    // Tildes alone are a rule over and under a title.
    if fence.len() < 3 || !is_tag || (sign == '~' && tag.is_empty()) {
        return None;
    }
    let body = rest.strip_suffix(fence)?;
    (body.is_empty() || body.ends_with('\n')).then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            hint::Hint,
            plan::{Edit, apply},
        },
        *,
    };

    fn pattern(search: &str, replace: &str) -> Pattern {
        Pattern { search: search.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn frames_are_taken_off() {
        let made = |search: &str, replace: &str| clean(&pattern(search, replace)).expect("clean").pattern;
        let cleaned = made("```rs\na\n```", "```rs\nb\n```");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("~~~~rs\na\n~~~~\n", "~~~~rs\nb\n~~~~");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n", "b\n"));
        let cleaned = made("  9| a\n 10|   b", "  9| a\n 10|   c");
        assert_eq!((cleaned.search.as_str(), cleaned.replace.as_str()), ("a\n  b", "a\n  c"));
        assert_eq!(clean(&pattern("1: a\n2: b", "1: a\nc")).expect_err("dirt"), Dirt::LineNumbers);
    }

    /// Each frame, brought in by a replacement whose search stands in the file as it is: refused, and so
    /// never written. Beside it the text that looks alike and is meant.
    #[test]
    fn no_frame_is_ever_written() {
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
            let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() };
            match apply(file.as_bytes(), &[edit]) {
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
            let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() };
            apply(file.as_bytes(), &[edit]).expect("is meant");
        }
    }

    #[test]
    fn no_placeholder_takes_the_place_of_a_value() {
        let file = "import os\nkey = \"sk-abc123\"\nmode = 1\n";
        let made = |search: &str, replace: &str| {
            let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: Hint::default() };
            apply(file.as_bytes(), &[edit]).map(|applied| String::from_utf8(applied.after).expect("text"))
        };
        for mark in ["[REDACTED]", "[secret]", "***", "<redacted>", "sk-****"] {
            for (search, replace) in [
                ("key = \"sk-abc123\"\nmode = 1", format!("key = \"{mark}\"\nmode = 2")),
                ("import os", format!("import os\nsecret_key = \"{mark}\"")),
                ("sk-abc123", mark.to_owned()),
            ] {
                let error = made(search, &replace).expect_err(mark);
                assert!(error.message.contains("was hidden"), "{mark}: {error}");
            }
            // The model saw the mark in place of the value: the file keeps its own, or nothing happens.
            let seen = made(
                &format!("import os\nkey = \"{mark}\"\nmode = 1"),
                &format!("import os\nkey = \"{mark}\"\nmode = 2"),
            );
            if let Ok(after) = seen {
                assert_eq!(after, file.replace("mode = 1", "mode = 2"));
            }
        }
        assert!(made("mode = 1", "mode = 2  # was [1]").is_ok());
    }
}
