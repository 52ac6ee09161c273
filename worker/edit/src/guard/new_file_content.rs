//! Applies the checks of [`super::copied_markup`] to the content of a new file.

use super::{
    copied_markup::is_fence,
    elision::{is_truncation_mark, is_worded_elision},
};
use crate::repair::line_numbers::{NumberSequence, strip_line_numbers};

/// Returns why `content` cannot be the content of a new file at `path`: it contains, or is wrapped in, markup
/// that models copy.
#[must_use]
pub fn new_file_markup_reason(path: &str, content: &str) -> Option<&'static str> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let prose = matches!(extension, "md" | "markdown" | "mdx" | "rst" | "adoc" | "txt");
    let solid: Vec<&str> = content.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = solid.first().copied().unwrap_or_default();
    let wraps = matches!(first.trim().trim_start_matches('`'), "md" | "markdown" | "mdx");
    if is_fence(first) && solid.len() > 1 && (wraps || !prose) {
        return Some("a code fence is around `content`: give the text alone");
    }
    let padded = |line: &&str| {
        let digits = line.trim_start_matches(' ').trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with(' ') && digits.starts_with(['|', '\u{2502}', '\u{2192}', '\t'])
    };
    if solid.first().is_some_and(padded)
        && strip_line_numbers(&solid.join("\n"), NumberSequence::Consecutive).is_some()
    {
        return Some("line numbers were copied into `content`: leave out the numbers that read_file shows");
    }
    let mut fenced = false;
    let elided = content.lines().any(|line| {
        fenced ^= is_fence(line);
        (is_worded_elision(line) || is_truncation_mark(line)) && !(prose && fenced)
    });
    elided.then_some("a line of `content` stands for omitted lines: write out every line of the new file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_file_with_copied_markup_is_refused() {
        for (path, content) in [
            ("a.py", "```python\nx = 1\n```\n"),
            ("README.md", "```markdown\n# T\n\n```\n"),
            ("a.py", "     1| x = 1\n     2|\n     3| y = 2\n"),
            ("a.js", "function a() {\n  // ... existing code ...\n}\n"),
            ("a.log", "one\n[… 500 characters left out …]\ntwo\n"),
        ] {
            assert!(new_file_markup_reason(path, content).is_some(), "{content}");
        }
        for (path, content) in [
            ("a.md", "```sh\nls\n```\n"),
            ("a.md", "# T\n\n```js\n// ... existing code ...\n```\n"),
            ("a.yaml", "1: one\n2: two\n"),
            ("a.csv", "1|one\n2|two\n"),
            ("a.tsv", "1\tone\n2\ttwo\n"),
            ("a.pyi", "def f() -> int: ...\ndef g() -> int:\n    ...\n"),
            ("a.py", ""),
        ] {
            assert_eq!(new_file_markup_reason(path, content), None, "{content}");
        }
    }
}
