//! What a pane shows, as harmless lines: written once, then wrapped to the width there is. Pure.
//!
//! Model output, file names and tool output come from strangers. Whatever they wrote enters a [`Doc`]
//! through [`Writer`] alone, which shows what a terminal would obey; so nothing after it needs to care.

use docket_schema::content::{Content, WorkspacePath};
use unicode_width::UnicodeWidthChar as _;

use super::content_cache::{ContentCache, ContentRequest, LoadedContent};
use crate::output::display;

/// Blanks in place of a tab.
const TAB_BLANKS: &str = "    ";

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTone {
    /// As it is.
    Plain,
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
    /// Good, or added.
    Good,
    /// Bad, or removed.
    Bad,
    /// In need of a look.
    Warn,
}

/// One line, before it is wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaneLine {
    /// Harmless, without line feeds and tabs.
    pub(super) text: String,
    /// How it is meant.
    pub(super) tone: TextTone,
    /// The file it names, to be opened.
    pub(super) path: Option<WorkspacePath>,
    /// It says again what another pane says: a search passes it over.
    pub(super) repeated: bool,
}

/// The lines of a pane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaneText {
    /// In order.
    pub(super) lines: Vec<PaneLine>,
}

/// A row of a screen: a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrappedRow {
    /// The line.
    pub(super) line: usize,
    /// Where its piece begins, in bytes.
    pub(super) from: usize,
    /// Where its piece ends, in bytes.
    pub(super) to: usize,
}

impl PaneText {
    /// Cuts all lines to `columns`; a wide character stays whole.
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

/// Writes a [`Doc`], and notes what it lacks.
pub(super) struct PaneWriter<'a> {
    cache: &'a ContentCache,
    doc: PaneText,
    requests: Vec<ContentRequest>,
    repeated: bool,
}

impl<'a> PaneWriter<'a> {
    /// Contents out of line come from `shelf`.
    pub(super) fn new(shelf: &'a ContentCache) -> Self {
        Self { cache: shelf, doc: PaneText::default(), requests: Vec::new(), repeated: false }
    }

    /// What was written, and what is to be fetched so that it becomes whole.
    pub(super) fn finish(self) -> (PaneText, Vec<ContentRequest>) {
        (self.doc, self.requests)
    }

    /// Whether what follows says again what another pane says.
    pub(super) fn set_repeated(&mut self, echo: bool) {
        self.repeated = echo;
    }

    fn push(&mut self, tone: TextTone, text: String, path: Option<WorkspacePath>) {
        self.doc.lines.push(PaneLine { text, tone, path, repeated: self.repeated });
    }

    /// A line of anybody's words.
    pub(super) fn write_line(&mut self, tone: TextTone, text: &str) {
        self.push(tone, display::sanitize_line(text).into_owned(), None);
    }

    /// A line that names a file, which can be opened from it.
    pub(super) fn write_file_line(&mut self, tone: TextTone, text: &str, path: &WorkspacePath) {
        self.push(tone, display::sanitize_line(text).into_owned(), Some(path.clone()));
    }

    /// An empty line, unless nothing stands before it.
    pub(super) fn write_gap(&mut self) {
        if self.doc.lines.last().is_some_and(|line| !line.text.is_empty()) {
            self.push(TextTone::Plain, String::new(), None);
        }
    }

    /// A heading, with an empty line before it.
    pub(super) fn write_heading(&mut self, text: &str) {
        self.write_gap();
        self.write_line(TextTone::Bold, text);
    }

    /// A name and its value.
    pub(super) fn write_pair(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.write_line(TextTone::Plain, &format!("{name:>12}  {value}"));
        }
    }

    /// Anybody's text, line by line.
    pub(super) fn write_block(&mut self, tone: TextTone, indent: &str, text: &str) {
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line).replace('\t', TAB_BLANKS);
            let shown = format!("{indent}{}", display::sanitize_line(&line));
            self.push(tone, shown, None);
        }
    }

    /// A unified difference, coloured by what it does.
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

    /// A content: in place, or fetched.
    pub(super) fn write_content(&mut self, tone: TextTone, indent: &str, content: &Content) {
        match content {
            Content::Text(text) => self.write_block(tone, indent, text),
            Content::B64(_) => match content.inline_bytes() {
                Some(bytes) => self.write_bytes(tone, indent, &bytes),
                None => self.write_line(TextTone::Bad, &format!("{indent}(damaged: no base64)")),
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

    /// Bytes of a file or an output; what is no text is said to be none, with its first bytes.
    pub(super) fn write_bytes(&mut self, tone: TextTone, indent: &str, bytes: &[u8]) {
        if bytes.contains(&0) {
            self.write_line(
                TextTone::Dim,
                &format!("{indent}not text: {} bytes, the first of them are", bytes.len()),
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

    /// What `want` gave; where it is not there yet, or cannot be had, the doc says so.
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

/// Rows of sixteen bytes shown of what is no text.
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
                "not text: 5 bytes, the first of them are",
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
