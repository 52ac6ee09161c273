//! The line that stands for a call and its result where these go. Pure.

use docket_schema::{content::Content, message::ToolUse};
use serde_json::Value;

/// What is left of a call and its result: what ran, what came of it, and how much that was. Of what is such a line
/// already, that line: what stood there is no longer known here.
pub(super) fn line_of(tool: &ToolUse, content: Option<&Content>, is_error: bool) -> String {
    if let Some(line) = content.and_then(|content| cleared_line(tool, content)) {
        return line.to_owned();
    }
    let main = main_of(tool);
    let status = if is_error { "failed" } else { "done" };
    let begin = match content {
        Some(Content::Text(text)) => cut(text.lines().next().unwrap_or_default().trim(), 120),
        Some(Content::B64(_) | Content::Blob(_)) | None => String::new(),
    };
    let begin = if begin.is_empty() { begin } else { format!("; it began: {begin}") };
    let bytes = content.map_or(0, bytes_of);
    format!("{}{main}: {status}, {bytes} bytes{begin}", tool.name)
}

fn main_of(tool: &ToolUse) -> String {
    let word = |name: &str| tool.args.get(name).and_then(Value::as_str);
    let main = ["command", "path", "test_path", "regex", "pattern"].iter().find_map(|name| word(name));
    main.map_or_else(String::new, |main| format!(" `{}`", cut(&main.replace('\n', " "), 120)))
}

/// The line of a result that an earlier compaction cleared.
pub(super) fn cleared_line<'a>(tool: &ToolUse, content: &'a Content) -> Option<&'a str> {
    let Content::Text(text) = content else { return None };
    let line = text.strip_prefix('[')?.strip_suffix(']')?;
    let begins = line.strip_prefix(&format!("{}{}: ", tool.name, main_of(tool)));
    begins.is_some_and(|_| !line.contains('\n')).then_some(line)
}

pub(super) fn bytes_of(content: &Content) -> usize {
    match content {
        Content::Text(text) | Content::B64(text) => text.len(),
        Content::Blob(blob) => usize::try_from(blob.bytes).unwrap_or(usize::MAX),
    }
}

/// The beginning of a text, in so many bytes.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}
