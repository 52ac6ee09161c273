//! Message of a delivered commit: a title, the run's final summary, and trailers that name the run and the
//! task.
//!
//! Pure. The text comes from a model or a stranger, and both people and programs read commit messages: it
//! must not move a terminal's cursor, look like a trailer, or end the message early. Invariant: the last
//! paragraph is docket's own and the only one of that form.

use docket_schema::ids::{RunId, TaskId};

/// Longest first line, in characters: what git's own lists show.
const TITLE_CHARS_MAX: usize = 72;
/// Wrap width of the body, in characters.
const BODY_WIDTH: usize = 72;
/// Longest body, in lines: anything longer is not a summary.
const BODY_LINES_MAX: usize = 100;
/// Longest line that cannot be wrapped, in characters.
const LINE_CHARS_MAX: usize = 400;
/// Prefix for body lines that a program could misread as something other than text.
const QUOTE_PREFIX: &str = "> ";

/// The parts of a commit message.
#[derive(Debug, Clone, Copy)]
pub struct CommitMessage<'a> {
    pub title: &'a str,
    /// The run's final summary.
    pub body: &'a str,
    pub task: TaskId,
    pub run: RunId,
}

impl CommitMessage<'_> {
    /// Renders the first line.
    pub fn render_title(&self) -> String {
        let clean = collapse_whitespace(&strip_control_chars(self.title).replace('\n', " "));
        if clean.is_empty() {
            return format!("Result of docket run {}", self.run.short());
        }
        if clean.chars().count() <= TITLE_CHARS_MAX {
            return clean;
        }
        let cut: String = clean.chars().take(TITLE_CHARS_MAX - 1).collect();
        let whole = cut.rsplit_once(' ').map_or(cut.as_str(), |(whole, _)| whole);
        // A single long word is cut at the limit.
        format!("{}…", if whole.chars().count() > TITLE_CHARS_MAX / 2 { whole } else { &cut })
    }

    /// Renders the paragraphs between title and trailers; may be empty.
    pub fn render_body(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for line in strip_control_chars(self.body).lines() {
            wrap_line(line.trim_end(), &mut lines);
        }
        if lines.len() > BODY_LINES_MAX {
            lines.truncate(BODY_LINES_MAX);
            lines.push("…".to_owned());
        }
        for line in &mut lines {
            if needs_quoting(line) {
                line.insert_str(0, QUOTE_PREFIX);
            }
        }
        lines.join("\n").trim_matches('\n').to_owned()
    }

    /// Renders the complete message.
    pub fn render_message(&self) -> String {
        let body = self.render_body();
        let between = if body.is_empty() { String::new() } else { format!("{body}\n\n") };
        format!("{}\n\n{between}Docket-Run: {}\nDocket-Task: {}\n", self.render_title(), self.run, self.task)
    }
}

/// Removes characters that do not belong in a line: control characters, bidirectional marks and invisible
/// ones.
fn strip_control_chars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            '\u{2028}' | '\u{2029}' | '\u{85}' | '\r' | '\u{b}' | '\u{c}' => out.push('\n'),
            c if c.is_control() || is_invisible(c) => {}
            c => out.push(c),
        }
    }
    out
}

const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Wraps a line between words. Indented lines are code and are left unchanged.
fn wrap_line(line: &str, lines: &mut Vec<String>) {
    let cut = |line: &str| line.chars().take(LINE_CHARS_MAX).collect::<String>();
    if line.chars().count() <= BODY_WIDTH || line.starts_with("    ") {
        lines.push(cut(line));
        return;
    }
    let mut now = String::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        if !now.is_empty() && now.chars().count() + 1 + word.chars().count() > BODY_WIDTH {
            lines.push(cut(&now));
            now.clear();
        }
        if !now.is_empty() {
            now.push(' ');
        }
        now.push_str(word);
    }
    lines.push(cut(&now));
}

/// Whether a program could take the line for something other than text: a trailer (`Token: value`, whatever
/// the token), the end of a message before a patch, the start of another mail, or a comment.
fn needs_quoting(line: &str) -> bool {
    let starts = ["---", "diff -", "Index: ", "From ", "#", "(cherry picked from commit ", "-- "];
    if starts.iter().any(|start| line.starts_with(start)) {
        return true;
    }
    let Some((token, _)) = line.split_once([':', '=']) else { return false };
    let token = token.trim_end();
    let is_token = !token.is_empty() && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_token && (token.contains('-') || is_docket_trailer(token))
}

fn is_docket_trailer(token: &str) -> bool {
    token.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("docket"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::run_git;

    fn commit_message<'a>(title: &'a str, body: &'a str) -> CommitMessage<'a> {
        let id = |n| uuid::Uuid::from_u128(n);
        CommitMessage { title, body, task: TaskId(id(1)), run: RunId(id(2)) }
    }

    /// Returns what git itself parses as trailers.
    async fn parse_trailers(message: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let args = ["interpret-trailers", "--parse"];
        let out = run_git(&args, dir.path(), &[], message.as_bytes().to_vec()).await.unwrap();
        assert!(out.is_success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    #[tokio::test]
    async fn git_finds_only_docket_trailers() {
        let forged = "Docket-Run: forged";
        for (title, body) in [
            ("Mend the rounding", "Done: rounds half to even now.\n\n- one\n- two"),
            ("", ""),
            (forged, forged),
            ("x", "Fine.\n\nDocket-Run: forged\nDocket-Task: forged\nSigned-off-by: root <root@example.org>"),
            ("x", "All.\n\n---\n\nDocket-Run: forged\n"),
            ("x", "---\n"),
            ("x", "--- a/x\n+++ b/x\ndiff --git a/x b/x\n"),
            ("x\n\nDocket-Run: forged", "docket-run = forged\r\n\r\nDOCKET-TASK:forged\r"),
            ("x", "a\u{2028}\u{2028}Docket-Run: forged\u{85}Co-authored-by: x <x@example.org>"),
            ("x", "\u{200b}Docket-Run: forged\n\u{1b}[2JSigned-off-by: x"),
            ("x", "(cherry picked from commit 0123456789012345678901234567890123456789)"),
            ("x", "# ------------------------ >8 ------------------------\nrest"),
            ("x", "\n\n\n\n"),
            ("x", &format!("{} Docket-Run: forged", "word ".repeat(14))),
            ("x", &"Docket-Run: forged\n".repeat(1000)),
        ] {
            let text = commit_message(title, body);
            let message = text.render_message();
            let expected = format!("Docket-Run: {}\nDocket-Task: {}\n", text.run, text.task);
            assert_eq!(parse_trailers(&message).await, expected, "{message}");
            let found: Vec<&str> =
                message.lines().filter(|l| l.to_ascii_lowercase().starts_with("docket-")).collect();
            let ours = found.len() - usize::from(message.lines().next() == Some(forged));
            assert_eq!(ours, 2, "{message}");
            assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
            assert!(!message.starts_with('\n') && message.lines().nth(1) == Some(""), "{message}");
        }
    }

    #[test]
    fn prose_is_wrapped_and_code_is_kept() {
        let long = "word ".repeat(40);
        let body =
            commit_message("t", &format!("{long}\n\n    let x = {long}\n{}", "x".repeat(100))).render_body();
        let lines: Vec<&str> = body.lines().collect();
        assert!(lines[..3].iter().all(|line| line.chars().count() <= BODY_WIDTH), "{body}");
        assert_eq!(body.lines().filter(|line| line.starts_with("    let x = word")).count(), 1);
        assert_eq!(lines.last().map(|line| line.len()), Some(100));
        assert_eq!(commit_message("t", "one\ntwo").render_body(), "one\ntwo");
        assert!(commit_message("t", &"x\n".repeat(1000)).render_body().lines().count() <= BODY_LINES_MAX + 1);
    }

    #[test]
    fn title_is_one_short_line() {
        assert_eq!(commit_message("Mend\u{1b}[1m  it\nnow", "").render_title(), "Mend[1m it now");
        let long = commit_message(&"word ".repeat(40), "").render_title();
        assert!(long.chars().count() <= TITLE_CHARS_MAX && long.ends_with("word…"), "{long}");
        assert_eq!(commit_message(&"x".repeat(300), "").render_title().chars().count(), TITLE_CHARS_MAX);
        assert!(commit_message("\u{202e}", "").render_title().starts_with("Result of docket run"));
    }
}
