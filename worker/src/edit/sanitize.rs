//! What models copy into an edit from the form in which they saw a file: line numbers, code fences,
//! marks for omitted lines. None of it ever reaches a file.

use super::{
    forms::marks,
    fuzzy::line_similarity,
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
             several smaller edits."
            }
            Self::LineNumbers => {
                "line numbers were copied into search or replace: leave out the numbers that read_file shows."
            }
            Self::Marker => {
                "a line that frames a patch (`<<<<<<< SEARCH`, `=======`, `*** Begin Patch`, `<replace>`) is in replace: \
                 give the text alone."
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
pub(super) fn written(doc: &Doc<'_>, pattern: &Pattern) -> Option<Dirt> {
    let is_there = |line: &str| doc.lines.iter().any(|real| real.text.trim() == line.trim());
    let stands_for_lines = |line: &str| is_spoken_elision(line) && !is_there(line);
    let lines = || pattern.replace.lines();
    if lines().any(stands_for_lines) || elides(pattern) || keeps_in_words(pattern) {
        Some(Dirt::Elision)
    } else if lines().any(|line| marks(line) && !is_there(line))
        || brings_tag(doc, pattern)
        || brings_block(pattern)
    {
        Some(Dirt::Marker)
    } else if brings_fence(doc, pattern) {
        Some(Dirt::Fence)
    } else if brings_numbers(doc, pattern) {
        Some(Dirt::LineNumbers)
    } else {
        None
    }
}

/// Similarity at which two lines are taken for one line before and after.
pub(super) const SAME_LINE_MIN: f64 = 0.5;
/// Lines that one bare `...` must stand for to be no statement of its own.
const ELIDED_MIN: usize = 2;

/// Whether a bare `...` of the replacement stands where the search has lines between two that are kept.
fn elides(pattern: &Pattern) -> bool {
    let solid = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (search, replace) = (solid(&pattern.search), solid(&pattern.replace));
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
    replace.iter().enumerate().filter(|(at, line)| bare(line) && !search.contains(line) && !stub(*at)).any(
        |(at, _)| {
            let above = at.checked_sub(1).and_then(|above| place(&replace[above])).map(|place| place + 1);
            let below = replace.get(at + 1).map_or(Some(search.len()), place);
            above.zip(below).is_some_and(|(above, below)| below >= above + ELIDED_MIN)
        },
    )
}

/// Whether a comment of the replacement says, in a word or two, that lines stay as they are, while lines
/// that the search quotes are gone: `# (unchanged)`, `// keep as is`.
fn keeps_in_words(pattern: &Pattern) -> bool {
    const SAID: [&str; 14] = [
        "unchanged",
        "no changes",
        "no change",
        "not changed",
        "keep as is",
        "kept as is",
        "as is",
        "as before",
        "same as before",
        "same as above",
        "code above",
        "code below",
        "previous implementation here",
        "previous implementation",
    ];
    let solid = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (search, replace) = (solid(&pattern.search), solid(&pattern.replace));
    let says = |line: &str| {
        let body = comment_body(line).unwrap_or_default().to_lowercase();
        SAID.contains(&body.trim_matches(|c: char| !c.is_alphanumeric()))
    };
    let gone = || search.iter().filter(|line| !replace.contains(line)).count() >= ELIDED_MIN;
    replace.iter().any(|line| says(line) && !search.contains(line)) && gone()
}

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

/// Tags in which other editors wrap a replacement.
const TAGS: [&str; 7] =
    ["replace", "replacement", "new_string", "new_str", "new_text", "new_code", "![CDATA["];

/// Whether the replacement is wrapped in a tag, in a file that is no markup.
fn brings_tag(doc: &Doc<'_>, pattern: &Pattern) -> bool {
    let first = pattern.replace.trim_start().lines().next().unwrap_or_default().trim_end();
    let tag = first.strip_prefix('<').map(|tag| tag.strip_suffix('>').unwrap_or(tag));
    tag.is_some_and(|tag| TAGS.contains(&tag))
        && !doc.lines.iter().any(|line| line.text.trim_start().starts_with('<'))
}

/// Whether the replacement is a whole block, as a patch has it: the search, a line of `=`, the search changed.
fn brings_block(pattern: &Pattern) -> bool {
    let divides = |line: &str| line.len() >= 5 && line.bytes().all(|byte| byte == b'=');
    let lines: Vec<&str> = pattern.replace.trim().lines().collect();
    let Some(at) = lines.iter().position(|line| divides(line)) else { return false };
    let (old, new) = (lines[..at].join("\n"), lines[at + 1..].join("\n"));
    !pattern.search.lines().any(divides)
        && old.trim() == pattern.search.trim()
        && line_similarity(new.trim(), old.trim()) >= SAME_LINE_MIN
}

/// A line that stands for lines: `...`, `# ...`, `// ... existing code ...`, `/* … */`.
pub(super) fn is_elision(line: &str) -> bool {
    let line = line.trim();
    line == "..."
        || line == "…"
        || comment_body(line).is_some_and(|body| body == "..." || body == "…")
        || is_spoken_elision(line)
}

/// A line that says in words that lines are left out: a comment, or words between dots.
pub(super) fn is_spoken_elision(line: &str) -> bool {
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
    // `Loading existing users...` speaks of users, `existing code ...` of lines.
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
    (dotted_start(body) && (empty || about(body))) || (dotted_end(body) && begins(body)) || says_omitted(body)
}

/// `rest of the code remains unchanged`, without any dots.
fn says_omitted(body: &str) -> bool {
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

    #[test]
    fn words_about_omission_are_told_from_code() {
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
