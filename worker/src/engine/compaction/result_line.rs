//! The line that replaces a removed call and its result. Pure.

use docket_schema::{content::Content, message::ToolUse};
use serde_json::Value;

/// Formats what remains of a call and its result: the call, its outcome, and its size. If the content is already such
/// a line, returns that line: the original is no longer known here.
pub(super) fn format_result_line(tool: &ToolUse, content: Option<&Content>, is_error: bool) -> String {
    if let Some(line) = content.and_then(|content| cleared_line(tool, content)) {
        return line.to_owned();
    }
    let main = format_main_argument(tool);
    let status = if is_error { "failed" } else { "done" };
    let begin = match content {
        Some(Content::Text(text)) => truncate_bytes(text.lines().next().unwrap_or_default().trim(), 120),
        Some(Content::B64(_) | Content::Blob(_)) | None => String::new(),
    };
    let begin = if begin.is_empty() { begin } else { format!("; it began: {begin}") };
    let bytes = content.map_or(0, content_bytes);
    format!("{}{main}: {status}, {bytes} bytes{begin}", tool.name)
}

fn format_main_argument(tool: &ToolUse) -> String {
    let word = |name: &str| tool.args.get(name).and_then(Value::as_str);
    let main = ["command", "path", "test_path", "regex", "pattern"].iter().find_map(|name| word(name));
    main.map_or_else(String::new, |main| format!(" `{}`", truncate_bytes(&main.replace('\n', " "), 120)))
}

/// Returns the line of a result that an earlier compaction cleared.
pub(super) fn cleared_line<'a>(tool: &ToolUse, content: &'a Content) -> Option<&'a str> {
    let Content::Text(text) = content else { return None };
    let line = text.strip_prefix('[')?.strip_suffix(']')?;
    let begins = line.strip_prefix(&format!("{}{}: ", tool.name, format_main_argument(tool)));
    begins.is_some_and(|_| !line.contains('\n')).then_some(line)
}

pub(super) fn content_bytes(content: &Content) -> usize {
    match content {
        Content::Text(text) | Content::B64(text) => text.len(),
        Content::Blob(blob) => usize::try_from(blob.bytes).unwrap_or(usize::MAX),
    }
}

/// Returns the beginning of a text, at most `bytes_max` bytes.
pub(super) fn truncate_bytes(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}
