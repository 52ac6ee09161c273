//! Terminal output: sanitized text, tables that fit the terminal, colors if supported.
//!
//! Model output, file names and tool output are untrusted. All of it passes [`sanitize_line`] or
//! [`sanitize_text`] before it is printed, so that it cannot move the cursor, reorder or hide text. JSON
//! escapes the same characters ([`escape_json`]), so its meaning is unchanged and it is safe on a terminal too.
//! Patches and files are written exactly, unless the output is a terminal.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{IsTerminal as _, Write as _},
};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::output::error::ExitKind;

/// Width of excerpts when the output is not a terminal: wide enough for ids and titles, narrow enough for a
/// log. Tables are then as wide as their contents.
const COLUMNS_PIPED: usize = 160;
/// Minimum width; narrower tables are unreadable anyway.
const COLUMNS_MIN: usize = 40;

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Text styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    /// Headings and names.
    Bold,
    /// Less important text.
    Dim,
    Good,
    Bad,
    /// In progress, or needs attention.
    Warn,
}

impl TextStyle {
    const fn ansi_code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warn => "33",
        }
    }
}

/// Standard output: its width and whether colors are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputScreen {
    columns: usize,
    color: bool,
    /// Whether it is a terminal, so lines are limited to its width.
    is_terminal: bool,
}

impl OutputScreen {
    /// Detects the properties of standard output.
    pub(crate) fn for_stdout(choice: ColorChoice) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match choice {
            ColorChoice::Auto => terminal && !plain,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        let columns = if terminal { columns_of_stdout() } else { COLUMNS_PIPED };
        Self { columns: columns.max(COLUMNS_MIN), color, is_terminal: terminal }
    }

    /// A screen of a given width without colors, for tests.
    #[cfg(test)]
    pub(crate) const fn with_width(columns: usize) -> Self {
        Self { columns, color: false, is_terminal: true }
    }

    /// A pipe or file, for tests.
    #[cfg(test)]
    pub(crate) const fn for_pipe() -> Self {
        Self { columns: COLUMNS_PIPED, color: false, is_terminal: false }
    }

    pub(crate) const fn columns(self) -> usize {
        self.columns
    }

    /// The maximum line width; unlimited in a pipe or a file.
    pub(crate) const fn line_width(self) -> Option<usize> {
        if self.is_terminal { Some(self.columns) } else { None }
    }

    /// Wraps our own sentences at word boundaries; continuation lines keep the indentation of the first. The
    /// text must already be sanitized.
    pub(crate) fn wrap_prose(self, text: &str) -> String {
        let Some(columns) = self.line_width() else { return text.to_owned() };
        text.lines().map(|line| wrap_line(line, columns)).collect::<Vec<_>>().join("\n")
    }

    pub(crate) const fn has_colors(self) -> bool {
        self.color
    }

    /// Applies a style to `text`, which must already be sanitized.
    pub(crate) fn paint(self, style: TextStyle, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\u{1b}[{}m{text}\u{1b}[0m", style.ansi_code())
        } else {
            text.to_owned()
        }
    }
}

fn columns_of_stdout() -> usize {
    console::Term::stdout().size().1.into()
}

pub(crate) fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        exit_on_write_error(&error);
    }
}

/// Exits after a write error. A reader that closed the pipe (`docket ps | head`) ends the program quietly, as
/// in other tools. Any other cause, above all a full disk, is a failure: the output is incomplete.
fn exit_on_write_error(error: &std::io::Error) -> ! {
    let exit = if error.kind() == std::io::ErrorKind::BrokenPipe {
        ExitKind::Ok
    } else {
        print_note(&format!("error: cannot write to standard output: {error}"));
        ExitKind::Failed
    };
    std::process::exit(exit.code().into())
}

/// Formats a count: `1 task`, `3 tasks`.
pub(crate) fn format_count(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json<T: serde::Serialize>(value: &T) {
    print_line(&escape_json(&serde_json::to_string(value).expect("printed values have string keys only")));
}

/// Escapes unsafe characters in JSON. They only occur in strings, so the meaning is unchanged.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_harmful) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_harmful(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Prints output for programs, such as a patch: exactly into a pipe or a file, sanitized on a terminal.
pub(crate) fn print_exact(bytes: &[u8]) {
    if std::io::stdout().is_terminal() {
        print_line(&sanitize_text(&String::from_utf8_lossy(bytes)));
    } else {
        print_bytes(bytes);
    }
}

/// Prints bytes unchanged, on a terminal too.
pub(crate) fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        exit_on_write_error(&error);
    }
}

/// Prints a line to standard error.
pub(crate) fn print_note(text: &str) {
    let mut out = std::io::stderr().lock();
    // If standard error is gone, there is nowhere to report it.
    drop(writeln!(out, "{text}"));
}

/// Whether a terminal interprets the character instead of showing it, or it is invisible.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180e}'
            // Zero width characters and direction marks.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Invisible operators, isolates.
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            // Tags: invisible copies of ASCII.
            | '\u{e0000}'..='\u{e0fff}')
}

fn escape_harmful(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| is_harmful(c) && !kept(c);
    if !text.chars().any(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if harmful(c) => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' if harmful(c) => out.push_str("\\t"),
            '\u{1b}' => out.push_str("\\e"),
            c if harmful(c) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Sanitizes untrusted text as one line.
pub(crate) fn sanitize_line(text: &str) -> Cow<'_, str> {
    escape_harmful(text, |_| false)
}

/// Sanitizes untrusted text, keeping its lines.
pub(crate) fn sanitize_text(text: &str) -> Cow<'_, str> {
    escape_harmful(text, |c| c == '\n' || c == '\t')
}

/// Truncates a sanitized line to a width, marking the cut with an ellipsis.
pub(crate) fn truncate_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > columns {
            break;
        }
        used += width;
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Wraps one line to at most `columns`. A word longer than a line is split at the end of the line, so nothing
/// is lost.
fn wrap_line(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = &line[..indent.min(columns / 2)];
    let mut lines: Vec<String> = Vec::new();
    let mut this = indent.to_owned();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let is_first = this.len() == indent.len();
        if !is_first && this.width() + 1 + word.width() <= columns {
            this.push(' ');
        } else if !is_first {
            lines.push(std::mem::replace(&mut this, indent.to_owned()));
        }
        for c in word.chars() {
            if this.width() + c.width().unwrap_or(0) > columns {
                lines.push(std::mem::replace(&mut this, indent.to_owned()));
            }
            this.push(c);
        }
    }
    lines.push(this);
    lines.join("\n")
}

/// Formats a count with an explicit plural: `1 path`, `2 paths`.
pub(crate) fn format_count_with_plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Joins the lines of a message: an escaped line feed reads badly in a sentence.
pub(crate) fn collapse_whitespace(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats untrusted text as at most `lines` indented lines, with a note of how many are left out.
pub(crate) fn render_excerpt(text: &str, lines: usize, indent: &str, columns: usize) -> String {
    let text = sanitize_text(text);
    let all: Vec<&str> = text.trim_end().lines().collect();
    let room = columns.saturating_sub(indent.width());
    let mut out = String::new();
    for shown in all.iter().take(lines) {
        let _ = writeln!(out, "{indent}{}", truncate_to_width(&shown.replace('\t', "    "), room));
    }
    if all.len() > lines {
        let more = format_count_with_plural((all.len() - lines) as u64, "line", "lines");
        let _ = writeln!(out, "{indent}… {}", more.replacen(' ', " more ", 1));
    }
    out
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableCell {
    text: String,
    style: Option<TextStyle>,
}

impl TableCell {
    /// A cell with untrusted or our own text.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: sanitize_line(text.as_ref()).into_owned(), style: None }
    }

    /// A cell with a style.
    pub(crate) fn styled(text: impl AsRef<str>, style: TextStyle) -> Self {
        Self { style: Some(style), ..Self::new(text) }
    }
}

/// A table without borders, as wide as its contents; on a terminal limited to its width, and truncated cells
/// end with `…`.
#[derive(Debug)]
pub(crate) struct TextTable {
    head: Vec<&'static str>,
    rows: Vec<Vec<TableCell>>,
}

impl TextTable {
    /// A table with these headings.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, one cell per heading.
    pub(crate) fn add_row(&mut self, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.head.len(), "one cell per heading");
        self.rows.push(cells);
    }

    /// Renders the table without a trailing line feed.
    pub(crate) fn render(&self, screen: OutputScreen) -> String {
        let last = self.head.len() - 1;
        let widths = self.column_widths(screen);
        let head: Vec<TableCell> =
            self.head.iter().map(|text| TableCell::styled(text, TextStyle::Bold)).collect();
        let lines = std::iter::once(&head).chain(&self.rows).map(|row| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let text = truncate_to_width(&cell.text, widths[at]);
                let pad = if at == last { 0 } else { widths[at] + COLUMN_GAP - text.width() };
                line.push_str(&cell.style.map_or_else(|| text.clone(), |style| screen.paint(style, &text)));
                line.push_str(&" ".repeat(pad));
            }
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Computes the column widths from the contents. If a terminal is too narrow, columns shrink in this order:
    /// the last column (a title or a reason), columns wider than an id, headings over narrower cells, the
    /// widest columns, and finally the ids of the first column.
    fn column_widths(&self, screen: OutputScreen) -> Vec<usize> {
        let last = self.head.len() - 1;
        let of_cells = |at: usize| self.rows.iter().map(|row| row[at].text.width()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..=last).map(|at| of_cells(at).max(self.head[at].width())).collect();
        let Some(columns) = screen.line_width() else { return widths };
        let room = columns.saturating_sub(COLUMN_GAP * last);
        shrink_widths(&mut widths, room, |at| if at == last { LAST_COLUMN_MIN } else { usize::MAX });
        shrink_widths(&mut widths, room, |at| if at == last { usize::MAX } else { ID_COLUMNS });
        shrink_widths(&mut widths, room, |at| {
            if at == last { usize::MAX } else { of_cells(at).clamp(HEADING_COLUMNS_MIN, ID_COLUMNS) }
        });
        shrink_widths(&mut widths, room, |at| if at == last { ID_COLUMNS } else { usize::MAX });
        shrink_widths(&mut widths, room, |at| if at == 0 { ID_COLUMNS } else { HEADING_COLUMNS_MIN });
        shrink_widths(&mut widths, room, |_| 1);
        widths
    }
}

/// Shrinks the widest columns (the last one first among equals) until all fit or none exceeds its minimum.
fn shrink_widths(widths: &mut [usize], room: usize, least: impl Fn(usize) -> usize) {
    while widths.iter().sum::<usize>() > room {
        let wide = widths.iter_mut().enumerate().filter(|(at, width)| **width > least(*at));
        let Some((_, widest)) = wide.max_by_key(|(at, width)| (**width, *at)) else { break };
        *widest -= 1;
    }
}

/// Blanks between columns.
const COLUMN_GAP: usize = 2;
/// The last column shrinks to this width first, and further only after all others: a title cut to one letter is
/// useless.
const LAST_COLUMN_MIN: usize = 16;
/// Width of an id in lists, which few numbers exceed.
const ID_COLUMNS: usize = 8;
/// Minimum width of a heading over narrower cells.
const HEADING_COLUMNS_MIN: usize = 3;

/// Formats a duration: `340ms`, `12.3s`, `4m05s`, `3h12m`, `5d`.
pub(crate) fn format_duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        3_600_000..172_800_000 => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{}d", ms / 86_400_000),
    }
}

/// Formats nano-dollars as money.
pub(crate) fn format_money(nusd: u64) -> String {
    if nusd == 0 {
        return "-".to_owned();
    }
    let micro = nusd / 1000;
    format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (given, shown) in [
            ("plain ünïcode 漢字", "plain ünïcode 漢字"),
            ("red \u{1b}[31m", "red \\e[31m"),
            ("bell\u{7}back\u{8}", "bell\\u{7}back\\u{8}"),
            ("c1 \u{9b}31m", "c1 \\u{9b}31m"),
            ("evil\u{202e}txt.exe", "evil\\u{202e}txt.exe"),
            ("iso\u{2066}late\u{2069}", "iso\\u{2066}late\\u{2069}"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
            ("two\nlines\r\tend", "two\\nlines\\r\\tend"),
            ("sep\u{2028}", "sep\\u{2028}"),
        ] {
            assert_eq!(sanitize_line(given), shown, "{given:?}");
        }
        assert_eq!(sanitize_text("two\nlines\r\n\tend\u{1b}"), "two\nlines\\r\n\tend\\e");
    }

    #[test]
    fn every_harmful_character_is_escaped() {
        for code in 0..0x11_0000 {
            let Some(c) = char::from_u32(code) else { continue };
            let text = c.to_string();
            let shown = sanitize_line(&text);
            assert!(!shown.chars().any(is_harmful), "U+{code:x}");
            assert!(!shown.is_empty(), "U+{code:x}");
        }
    }

    #[test]
    fn truncation_counts_columns() {
        assert_eq!(truncate_to_width("abcdef", 6), "abcdef");
        assert_eq!(truncate_to_width("abcdefg", 6), "abcde…");
        assert_eq!(truncate_to_width("漢字漢字", 5), "漢字…");
        assert_eq!(truncate_to_width("abc", 0), "");
    }

    #[test]
    fn table_fits_the_terminal_width() {
        let mut table = TextTable::new(&["id", "state", "title"]);
        table.add_row(vec![
            TableCell::new("1"),
            TableCell::styled("running", TextStyle::Warn),
            TableCell::new("a short one"),
        ]);
        table.add_row(vec![
            TableCell::new("22"),
            TableCell::new("done"),
            TableCell::new("x".repeat(80) + "\u{1b}"),
        ]);
        let text = table.render(OutputScreen::with_width(40));
        insta::assert_snapshot!(text, @r"
        id  state    title
        1   running  a short one
        22  done     xxxxxxxxxxxxxxxxxxxxxxxxxx…
        ");
        assert!(text.lines().all(|line| line.width() <= 40));
    }

    #[test]
    fn table_fits_any_width_and_is_complete_in_a_pipe() {
        let mut table = TextTable::new(&["TASK", "CALLS", "CACHE READ", "CACHE WRITE", "MODEL", "OF"]);
        let cells = ["3f9c01ab", "12", "1234", "0", "anthropic:claude-opus-5-5", "the last word of it all"];
        table.add_row(cells.iter().map(TableCell::new).collect());
        insta::assert_snapshot!(table.render(OutputScreen::with_width(60)), @r"
        TASK      CALLS  CACHE …  CACHE…  MODEL     OF
        3f9c01ab  12     1234     0       anthrop…  the last word o…
        ");
        for columns in [40, 60, 80, 100, 120] {
            let text = table.render(OutputScreen::with_width(columns));
            assert!(text.lines().all(|line| line.width() <= columns), "{columns}\n{text}");
            let whole = cells.iter().all(|cell| text.contains(cell));
            assert_eq!(whole, !text.contains('…'), "{columns}\n{text}");
            assert!(text.contains("3f9c01ab"), "{columns}\n{text}");
        }
        let piped = table.render(OutputScreen::for_pipe());
        assert!(cells.iter().all(|cell| piped.contains(cell)) && !piped.contains('…'), "{piped}");
        let mut wide = TextTable::new(&["ID", "TITLE"]);
        wide.add_row(vec![TableCell::new("1"), TableCell::new("漢".repeat(200))]);
        assert!(wide.render(OutputScreen::for_pipe()).contains(&"漢".repeat(200)));
        assert!(wide.render(OutputScreen::with_width(40)).lines().all(|line| line.width() <= 40));
    }

    #[test]
    fn prose_wraps_between_words() {
        let text = "  `docket answer 3f9c01ab TEXT` answers it, and the run continues";
        assert_eq!(
            OutputScreen::with_width(40).wrap_prose(text),
            "  `docket answer 3f9c01ab TEXT` answers\n  it, and the run continues"
        );
        assert_eq!(OutputScreen::for_pipe().wrap_prose(text), text);
        let long = OutputScreen::with_width(40).wrap_prose(&"漢".repeat(60));
        assert!(long.lines().all(|line| line.width() <= 40), "{long}");
        assert_eq!(long.replace('\n', ""), "漢".repeat(60));
        assert_eq!(OutputScreen::with_width(40).wrap_prose("one\n\ntwo"), "one\n\ntwo");
    }

    #[test]
    fn count_of_one_is_singular() {
        let said = [0, 1, 2].map(|count| format_count_with_plural(count, "path", "paths"));
        assert_eq!(said, ["0 paths", "1 path", "2 paths"]);
    }

    #[test]
    fn excerpt_notes_omitted_lines() {
        assert_eq!(render_excerpt("a\nb\nc\n", 2, "  ", 80), "  a\n  b\n  … 1 more line\n");
        assert_eq!(render_excerpt("", 2, "  ", 80), "");
    }

    #[test]
    fn durations_and_money_are_formatted() {
        for (ms, text) in
            [(7, "7ms"), (12_345, "12.3s"), (245_000, "4m05s"), (11_520_000, "3h12m"), (432_000_000, "5d")]
        {
            assert_eq!(format_duration(ms), text);
        }
        assert_eq!((format_money(0), format_money(1_234_500_000)), ("-".to_owned(), "$1.2345".to_owned()));
    }
}
