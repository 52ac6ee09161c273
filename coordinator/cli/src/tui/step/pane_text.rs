//! The text of a pane as sanitized lines: written once, then wrapped to the available width. Pure.
//!
//! Model output, file names and tool output are untrusted. All of it enters a [`PaneText`] through
//! [`PaneWriter`], which escapes control characters, so later code need not care.

use docket_schema::content::{Content, WorkspacePath};
use unicode_width::UnicodeWidthChar as _;

use super::content_cache::{ContentCache, ContentRequest, LoadedContent};
use crate::output::display;

/// Replaces a tab.
const TAB_BLANKS: &str = "    ";

/// The tone of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTone {
    Plain,
    /// Headings.
    Bold,
    /// Less important text.
    Dim,
    /// Good, or added.
    Good,
    /// Bad, or removed.
    Bad,
    /// Needs attention.
    Warn,
}

/// One line before wrapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaneLine {
    /// Sanitized, without line feeds and tabs.
    pub(super) text: String,
    pub(super) tone: TextTone,
    /// The file it names, which can be opened.
    pub(super) path: Option<WorkspacePath>,
    /// Whether it repeats another pane; searches skip it.
    pub(super) repeated: bool,
}

/// The lines of a pane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaneText {
    pub(super) lines: Vec<PaneLine>,
}

/// A row of a screen: a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrappedRow {
    /// The line.
    pub(super) line: usize,
    /// Start of the piece, in bytes.
    pub(super) from: usize,
    /// End of the piece, in bytes.
    pub(super) to: usize,
}

impl PaneText {
    /// Wraps all lines to `columns` without splitting wide characters.
    pub(super) fn wrap(&self, columns: usize) -> Vec<WrappedRow> {
        let columns = columns.max(2);
        let mut rows = Vec::with_capacity(self.lines.len());
        for (line, shown) in self.lines.iter().enumerate() {
            let (mut from, mut used) = (0, 0);
            for (at, c) in shown.text.char_indices() {
                let width = c.width().unwrap_or(0);
                if used + width > columns {
                    rows.push(WrappedRow { line, from, to: at });
                    (from, used) = (at, 0);
                }
                used += width;
            }
            rows.push(WrappedRow { line, from, to: shown.text.len() });
        }
        rows
    }
}

/// Writes a [`PaneText`] and records missing content.
pub(super) struct PaneWriter<'a> {
    cache: &'a ContentCache,
    doc: PaneText,
    requests: Vec<ContentRequest>,
    repeated: bool,
}

impl<'a> PaneWriter<'a> {
    /// Creates a writer that takes stored content from `cache`.
    pub(super) fn new(shelf: &'a ContentCache) -> Self {
        Self { cache: shelf, doc: PaneText::default(), requests: Vec::new(), repeated: false }
    }

    /// Returns the text and the content that must be fetched to complete it.
    pub(super) fn finish(self) -> (PaneText, Vec<ContentRequest>) {
        (self.doc, self.requests)
    }

    /// Sets whether the following lines repeat another pane.
    pub(super) fn set_repeated(&mut self, echo: bool) {
        self.repeated = echo;
    }

    fn push(&mut self, tone: TextTone, text: String, path: Option<WorkspacePath>) {
        self.doc.lines.push(PaneLine { text, tone, path, repeated: self.repeated });
    }

    /// Writes untrusted text as one line.
    pub(super) fn write_line(&mut self, tone: TextTone, text: &str) {
        self.push(tone, display::sanitize_line(text).into_owned(), None);
    }

    /// Writes a line that names a file, which can be opened from it.
    pub(super) fn write_file_line(&mut self, tone: TextTone, text: &str, path: &WorkspacePath) {
        self.push(tone, display::sanitize_line(text).into_owned(), Some(path.clone()));
    }

    /// Writes an empty line, unless the text is empty.
    pub(super) fn write_gap(&mut self) {
        if self.doc.lines.last().is_some_and(|line| !line.text.is_empty()) {
            self.push(TextTone::Plain, String::new(), None);
        }
    }

    /// Writes a heading, preceded by an empty line.
    pub(super) fn write_heading(&mut self, text: &str) {
        self.write_gap();
        self.write_line(TextTone::Bold, text);
    }

    /// Writes a name and its value.
    pub(super) fn write_pair(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.write_line(TextTone::Plain, &format!("{name:>12}  {value}"));
        }
    }

    /// Writes untrusted text line by line.
    pub(super) fn write_block(&mut self, tone: TextTone, indent: &str, text: &str) {
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line).replace('\t', TAB_BLANKS);
            let shown = format!("{indent}{}", display::sanitize_line(&line));
            self.push(tone, shown, None);
        }
    }

    /// Writes a unified diff with colors.
    pub(super) fn write_diff(&mut self, text: &str) {
        for line in text.lines() {
            let tone = match line.as_bytes().first() {
                Some(b'+') => TextTone::Good,
                Some(b'-') => TextTone::Bad,
                Some(b'@') => TextTone::Dim,
                Some(_) | None => TextTone::Plain,
            };
            self.write_block(tone, "", line);
        }
    }

    /// Writes a content: inline, or fetched.
    pub(super) fn write_content(&mut self, tone: TextTone, indent: &str, content: &Content) {
        match content {
            Content::Text(text) => self.write_block(tone, indent, text),
            Content::B64(_) => match content.inline_bytes() {
                Some(bytes) => self.write_bytes(tone, indent, &bytes),
                None => self.write_line(TextTone::Bad, &format!("{indent}(damaged: not base64)")),
            },
            Content::Blob(blob) => {
                if let Some(loaded) = self.require(ContentRequest::Blob(*blob), indent)
                    && let LoadedContent::Bytes(bytes) = &loaded
                {
                    self.write_bytes(tone, indent, bytes);
                }
            }
        }
    }

    /// Writes bytes of a file or an output; binary data is shown as such, with its first bytes.
    pub(super) fn write_bytes(&mut self, tone: TextTone, indent: &str, bytes: &[u8]) {
        if bytes.contains(&0) {
            self.write_line(
                TextTone::Dim,
                &format!("{indent}not text: {} bytes, beginning with", bytes.len()),
            );
            for (at, row) in bytes.chunks(16).take(HEX_ROWS_MAX).enumerate() {
                let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
                let seen: String =
                    row.iter().map(|b| if b.is_ascii_graphic() { *b as char } else { '.' }).collect();
                self.write_line(tone, &format!("{indent}{:08x}  {:<47}  {seen}", at * 16, hex.join(" ")));
            }
            return;
        }
        self.write_block(tone, indent, &String::from_utf8_lossy(bytes));
    }

    /// Returns the content for `want`; if it is missing or failed, writes that.
    pub(super) fn require(&mut self, want: ContentRequest, indent: &str) -> Option<LoadedContent> {
        match self.cache.get(&want) {
            Some(LoadedContent::Failed(why)) => {
                let why = format!("{indent}cannot be read: {why}");
                self.write_line(TextTone::Bad, &why);
                self.requests.push(want);
                None
            }
            Some(loaded) => {
                self.requests.push(want);
                Some(loaded)
            }
            None => {
                self.write_line(TextTone::Dim, &format!("{indent}loading…"));
                self.requests.push(want);
                None
            }
        }
    }
}

/// Maximum rows of sixteen bytes shown of binary data.
const HEX_ROWS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped_and_complete() {
        let shelf = ContentCache::default();
        let mut writer = PaneWriter::new(&shelf);
        writer.write_block(TextTone::Plain, " ", "one\u{1b}[2J\r\n\ttwo\u{202e}\rthree\u{7}\n");
        writer.write_line(TextTone::Plain, "a\nb\u{9b}");
        writer.write_bytes(TextTone::Plain, "", b"\x1b]0;title\x07\xff");
        writer.write_bytes(TextTone::Plain, "", b"\0\x1b[2J");
        let (doc, wants) = writer.finish();
        let lines: Vec<&str> = doc.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            lines,
            [
                " one\\e[2J",
                "     two\\u{202e}\\rthree\\u{7}",
                "a\\nb\\u{9b}",
                "\\e]0;title\\u{7}\u{fffd}",
                "not text: 5 bytes, beginning with",
                "00000000  00 1b 5b 32 4a                                   ..[2J",
            ]
        );
        assert!(wants.is_empty());
    }

    #[test]
    fn wrapping_loses_nothing_and_keeps_wide_characters_intact() {
        let shelf = ContentCache::default();
        let mut writer = PaneWriter::new(&shelf);
        writer.write_block(TextTone::Plain, "", "abcdef\n\n漢字漢字");
        let (doc, _) = writer.finish();
        for columns in [0, 2, 3, 5, 80] {
            let rows = doc.wrap(columns);
            for (nth, line) in doc.lines.iter().enumerate() {
                let whole: String = rows
                    .iter()
                    .filter(|row| row.line == nth)
                    .map(|row| &line.text[row.from..row.to])
                    .collect();
                assert_eq!(whole, line.text, "{columns}");
            }
        }
        assert_eq!(doc.wrap(5).len(), 2 + 1 + 2);
    }
}
