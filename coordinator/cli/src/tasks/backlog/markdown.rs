//! Markdown checklists: each open box is a task, with the text indented under it.
//!
//! Parsed line by line, as a person reads it: headings above a box are its context, a box nested in another's
//! text is part of that task, and code fences are text whatever they contain.

use docket_schema::task::TITLE_CHARS_MAX;

use super::{ParsedBacklog, line::BacklogLine};

/// Columns of a tab stop.
const TAB_COLUMNS: usize = 4;

/// The box being read.
struct ChecklistItem {
    line: usize,
    indent: usize,
    is_done: bool,
    text: String,
    /// The lines below its first line.
    body: Vec<String>,
    headings: Vec<String>,
}

/// An open code fence.
struct CodeFence {
    line: usize,
    mark: char,
    length: usize,
}

/// Reads the open boxes of a text.
pub(super) fn read_checklist(text: &str, read: &mut ParsedBacklog) {
    let mut reader =
        ChecklistReader { read, headings: Vec::new(), item: None, fence: None, is_comment: false };
    for (at, line) in text.lines().enumerate() {
        reader.read_line(at + 1, line);
    }
    reader.finish();
}

struct ChecklistReader<'a> {
    read: &'a mut ParsedBacklog,
    /// The current headings, with their levels.
    headings: Vec<(usize, String)>,
    item: Option<ChecklistItem>,
    fence: Option<CodeFence>,
    is_comment: bool,
}

impl ChecklistReader<'_> {
    fn read_line(&mut self, at: usize, line: &str) {
        let line = expand_tabs(line);
        let indent = line.len() - line.trim_start().len();
        if let Some(fence) = &self.fence {
            if is_fence_close(fence, line.trim()) {
                self.fence = None;
            }
            if let Some(item) = &mut self.item {
                item.body.push(line);
            }
            return;
        }
        let within = self.item.as_ref().is_some_and(|item| indent > item.indent);
        if line.trim().is_empty() {
            if let Some(item) = &mut self.item {
                item.body.push(String::new());
            }
            return;
        }
        if self.is_comment || (!within && line.trim_start().starts_with("<!--")) {
            self.is_comment = !line.contains("-->");
            if !within {
                self.close_item();
            }
            return;
        }
        if !within && let Some((level, heading)) = parse_heading(line.trim()) {
            self.close_item();
            self.headings.retain(|(of, _)| *of < level);
            self.headings.push((level, heading));
            return;
        }
        if let Some(fence) = parse_fence_open(line.trim(), at) {
            if !within {
                self.close_item();
            }
            self.fence = Some(fence);
        } else if !within {
            if let Some((is_done, text)) = parse_checkbox(line.trim()) {
                self.close_item();
                let headings = self.headings.iter().map(|(_, heading)| heading.clone()).collect();
                let text = text.to_owned();
                self.item =
                    Some(ChecklistItem { line: at, indent, is_done, text, body: Vec::new(), headings });
                return;
            }
            // A paragraph continues with lines that are not indented, up to a blank line or another list item.
            let goes_on =
                self.item.as_ref().is_some_and(|item| item.body.last().is_none_or(|last| !last.is_empty()))
                    && !is_list_item(line.trim());
            if !goes_on {
                return self.close_item();
            }
        }
        if let Some(item) = &mut self.item {
            item.body.push(line);
        }
    }

    fn finish(&mut self) {
        if let Some(fence) = self.fence.take() {
            let mark: String = std::iter::repeat_n(fence.mark, fence.length).collect();
            self.read
                .faults
                .add(fence.line, format!("the code block that begins with {mark} here is not closed"));
        }
        self.close_item();
    }

    fn close_item(&mut self) {
        let Some(item) = self.item.take() else { return };
        if item.is_done {
            self.read.skipped.done += 1;
            return self.read_nested_items(&item);
        }
        match item_to_line(&item) {
            Ok(task) => self.read.entries.push((item.line, task)),
            Err(why) => self.read.faults.add(item.line, why),
        }
    }
}

impl ChecklistReader<'_> {
    /// Open boxes under a checked box are still open: they become tasks, with the checked box as their heading.
    fn read_nested_items(&mut self, item: &ChecklistItem) {
        let is_open = |line: &String| parse_checkbox(line.trim()).is_some_and(|(is_done, _)| !is_done);
        if !item.body.iter().any(is_open) {
            return;
        }
        // Level 0, so that no heading of the body ends it.
        let above = item.headings.iter().cloned().chain([item.text.trim().to_owned()]);
        let headings = above.map(|heading| (0, heading)).collect();
        let mut reader =
            ChecklistReader { read: &mut *self.read, headings, item: None, fence: None, is_comment: false };
        for (n, line) in item.body.iter().enumerate() {
            reader.read_line(item.line + 1 + n, line);
        }
        reader.close_item();
    }
}

fn item_to_line(item: &ChecklistItem) -> Result<BacklogLine, String> {
    let asked = item.text.trim();
    if asked.is_empty() {
        return Err("the box has no text".to_owned());
    }
    let body = dedent(&item.body);
    let mut text = format!("{asked}\n");
    if !body.is_empty() {
        text.push('\n');
        text.push_str(&body);
        text.push('\n');
    }
    if !item.headings.is_empty() {
        text.push_str(&format!("\n(From the list under: {})\n", item.headings.join(" > ")));
    }
    let title = match item.headings.last() {
        Some(heading) => format!("{heading}: {asked}"),
        None => asked.to_owned(),
    };
    let mut title: String = title.chars().filter(|c| !c.is_control()).collect();
    if title.chars().count() > TITLE_CHARS_MAX {
        title = title.chars().take(TITLE_CHARS_MAX - 1).chain(['…']).collect();
    }
    let line = BacklogLine { text, title: Some(title), ..BacklogLine::default() };
    line.validate()?;
    Ok(line)
}

/// Removes the common indentation and the surrounding blank lines.
fn dedent(body: &[String]) -> String {
    let said = |line: &&String| !line.trim().is_empty();
    let indent = body.iter().filter(said).map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines: Vec<&str> = body.iter().map(|line| line.get(indent..).unwrap_or("").trim_end()).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Expands tabs in the indentation to blanks.
fn expand_tabs(line: &str) -> String {
    let (mut columns, mut bytes) = (0, 0);
    for c in line.chars() {
        match c {
            ' ' => columns += 1,
            '\t' => columns += TAB_COLUMNS - columns % TAB_COLUMNS,
            _ => break,
        }
        bytes += 1;
    }
    format!("{}{}", " ".repeat(columns), &line[bytes..])
}

fn parse_heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let rest = &line[level..];
    let legal = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with(' '));
    let text = rest.trim().trim_end_matches('#').trim();
    (legal && !text.is_empty()).then(|| (level, text.to_owned()))
}

/// Returns the text after a list marker.
fn strip_list_marker(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix(['-', '*', '+']) {
        return Some(rest);
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    if (1..=9).contains(&digits) { line[digits..].strip_prefix(['.', ')']) } else { None }
}

fn is_list_item(line: &str) -> bool {
    strip_list_marker(line).is_some_and(|rest| rest.starts_with(' '))
}

/// Returns whether the box is checked, and its text.
fn parse_checkbox(line: &str) -> Option<(bool, &str)> {
    let rest = strip_list_marker(line)?.strip_prefix(' ')?.trim_start();
    let (is_done, rest) = [("[ ]", false), ("[x]", true), ("[X]", true)]
        .into_iter()
        .find_map(|(mark, is_done)| rest.strip_prefix(mark).map(|rest| (is_done, rest)))?;
    (rest.is_empty() || rest.starts_with(' ')).then_some((is_done, rest))
}

fn parse_fence_open(line: &str, at: usize) -> Option<CodeFence> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == mark).count();
    let is_fence = length >= 3 && !(mark == '`' && line[length..].contains('`'));
    is_fence.then_some(CodeFence { line: at, mark, length })
}

fn is_fence_close(fence: &CodeFence, line: &str) -> bool {
    line.len() >= fence.length && line.chars().all(|c| c == fence.mark)
}
