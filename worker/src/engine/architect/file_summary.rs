//! Summarizes the changes to a file in a few lines for the next change of it (D6). Pure.
//!
//! The text comes from the plan's step and from the patch itself: its lines, and the definitions among them. Nothing
//! comes from the coder, which replies with a patch alone, so nothing has to be requested or trusted.

use docket_schema::{content::Content, run::FinishedCall};

/// Most recent entries kept in a summary, and characters of one.
const ENTRIES_MAX: usize = 8;
const ENTRY_CHARS_MAX: usize = 240;
/// Definitions named by an entry, and characters of one.
const DEFINITIONS_MAX: usize = 4;
const DEFINITION_CHARS_MAX: usize = 60;

/// First words of lines that define something.
const DEFINITION_KEYWORDS: [&str; 20] = [
    "def",
    "class",
    "fn",
    "struct",
    "enum",
    "trait",
    "impl",
    "mod",
    "type",
    "const",
    "static",
    "let",
    "function",
    "interface",
    "func",
    "var",
    "module",
    "namespace",
    "void",
    "object",
];
/// Modifiers that may precede them.
const MODIFIER_KEYWORDS: [&str; 9] =
    ["pub", "async", "export", "default", "public", "private", "protected", "abstract", "final"];

/// Appends an entry for the patch that `done` applied to the summary.
pub(super) fn append_summary_entry(before: Option<&str>, step: &str, done: Option<&FinishedCall>) -> String {
    let entry = match done {
        Some(done) => format_entry(step, done),
        None => format!("- {step}"),
    };
    let earlier: Vec<&str> = before.unwrap_or_default().lines().collect();
    let kept = earlier.len().min(ENTRIES_MAX - 1);
    let mut lines: Vec<&str> = earlier[earlier.len() - kept..].to_vec();
    lines.push(&entry);
    lines.join("\n")
}

fn format_entry(step: &str, done: &FinishedCall) -> String {
    let step = step.lines().next().unwrap_or_default().trim();
    let (added, removed) = match (done.tool.args["content"].as_str(), &done.content) {
        (Some(content), _) => (content.lines().collect(), Vec::new()),
        (None, Content::Text(text)) => changed_lines(text),
        (None, Content::B64(_) | Content::Blob(_)) => (Vec::new(), Vec::new()),
    };
    let counts = match done.tool.args["content"].is_string() {
        true => format!("new file, {} lines", added.len()),
        false => format!("+{} −{}", added.len(), removed.len()),
    };
    let stays = |line: &&&str| !added.contains(line);
    let defined: Vec<String> =
        added.iter().filter_map(|line| definition_head(line)).take(DEFINITIONS_MAX).collect();
    let gone: Vec<String> =
        removed.iter().filter(stays).filter_map(|line| definition_head(line)).take(DEFINITIONS_MAX).collect();
    let mut text = format!("- {step} ({counts}");
    for (what, names) in [("with", defined), ("without", gone)] {
        if !names.is_empty() {
            text.push_str(&format!("; {what} {}", names.join(", ")));
        }
    }
    text.push(')');
    text.chars().take(ENTRY_CHARS_MAX).collect()
}

/// Returns the lines that a unified diff adds and removes, without the text around its hunks.
fn changed_lines(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (0_usize, 0_usize);
    for line in text.lines() {
        if old == 0 && new == 0 {
            (old, new) = parse_hunk_lengths(line).unwrap_or_default();
        } else if let Some(line) = line.strip_prefix('+') {
            new = new.saturating_sub(1);
            added.push(line);
        } else if let Some(line) = line.strip_prefix('-') {
            old = old.saturating_sub(1);
            removed.push(line);
        } else if !line.starts_with('\\') {
            (old, new) = (old.saturating_sub(1), new.saturating_sub(1));
        }
    }
    (added, removed)
}

/// Parses the line counts of a hunk header `@@ -1,2 +1,3 @@`.
fn parse_hunk_lengths(line: &str) -> Option<(usize, usize)> {
    let mut sides = line.strip_prefix("@@ -")?.split(" @@").next()?.split(" +");
    let mut length = || {
        let side = sides.next()?;
        side.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length()?, length()?))
}

/// Returns the head of a definition, without its body.
fn definition_head(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| MODIFIER_KEYWORDS.contains(word));
    let first = words.next()?;
    let name = words.next()?;
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    // Local variables of a body do not matter to others.
    let is_local = matches!(first, "let" | "var" | "const") && line.starts_with([' ', '\t']);
    if !DEFINITION_KEYWORDS.contains(&first) || !is_name || is_local {
        return None;
    }
    let head = line.trim().trim_end_matches(['{', ':', ';']).trim_end();
    Some(format!("`{}`", head.chars().take(DEFINITION_CHARS_MAX).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        message::{CallId, ToolUse},
        run::ToolStatus,
    };
    use serde_json::{Value, json};

    use super::*;

    fn finished_call(name: &str, args: Value, content: &str) -> FinishedCall {
        FinishedCall {
            tool: ToolUse { call: CallId::for_runtime(1), name: name.to_owned(), args, malformed: None },
            status: ToolStatus::Ok,
            exit: None,
            content: content.into(),
            has_findings: false,
            changes: None,
        }
    }

    #[test]
    fn summary_lists_step_text_and_patched_definitions() {
        let diff = "edited a.py (matched exactly)\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n-def f():\n-    return 1\n\
                    +def f(x):\n+    return x\n+def g(): return 2\n \n\nruff: 1 finding\n- a.py:1: x\n";
        let first = append_summary_entry(
            None,
            "take x\nand more",
            Some(&finished_call("edit_file", json!({}), diff)),
        );
        assert_eq!(first, "- take x (+3 −2; with `def f(x)`, `def g(): return 2`; without `def f()`)");
        let args = json!({ "content": "pub struct A {\n    x: u8,\n}\nlet y = 1;\n" });
        let second = append_summary_entry(
            Some(&first),
            "make it",
            Some(&finished_call("create_file", args, "created")),
        );
        assert_eq!(
            second,
            format!("{first}\n- make it (new file, 4 lines; with `pub struct A`, `let y = 1`)")
        );
    }

    #[test]
    fn summary_stays_short() {
        let mut text = String::new();
        for nth in 0..30 {
            text = append_summary_entry(
                Some(&text).filter(|text| !text.is_empty()).map(String::as_str),
                &format!("step {nth} {}", "x".repeat(500)),
                None,
            );
            let cut = text.lines().last().map(|line| line.chars().count());
            assert!(cut.is_some_and(|chars| chars < 600));
        }
        assert_eq!(text.lines().count(), ENTRIES_MAX);
        assert!(text.starts_with("- step 22 ") && text.contains("- step 29 "), "{text}");
    }
}
