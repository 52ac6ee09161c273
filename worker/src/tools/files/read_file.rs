//! `read_file`: numbered lines of a file, with the middle of a long file summarized.

use docket_schema::{content::WorkspacePath, message::CallId, tool::LineRange};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    large_file::{self, LineSelection, SCANNED_BYTES_MAX, ScanResult},
    table_of_contents::format_contents,
};
use crate::calls::{parse_output_path, parse_workspace_path};
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{FILE_BYTES_MAX, format_size, load_opened_file, open_regular},
        path_suggestions,
    },
    text::{
        encoding::{FileContent, classify_content, decode_line, sniff_encoding},
        output::{cut_line, escape_hidden},
    },
};

pub const NAME: &str = "read_file";
pub(crate) const DESCRIPTION: &str = "Reads a file of the workspace with line numbers. Files of more than 500 \
    lines are answered with their first and last 50 and a table of contents of what lies between; give start_line \
    and end_line to see that part. What was shown and has not changed is not shown again. A file must be read \
    before it is edited.";

/// Most characters shown per line.
const LINE_CHARS_MAX: usize = 1000;
/// Longest answer, in characters: a file with few but long lines must not fill the context.
const ANSWER_CHARS_MAX: usize = 60_000;
/// Lines shown at each end of a long file.
const EDGE_LINES: u64 = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFileArgs {
    /// Path of the file, relative to the workspace; or the `output:…` that a result which was cut names.
    path: String,
    /// First line to show, from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// Last line to show, itself included.
    #[serde(default)]
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &ReadFileArgs) -> ToolOutcome {
    read_path(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn read_path(context: ToolContext<'_>, args: &ReadFileArgs) -> Result<ToolOutcome, String> {
    if let Some(call) = parse_output_path(&args.path) {
        return read_full_output(context, args, &call);
    }
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    let (file, meta) = open_regular(context.root, &path)
        .map_err(|error| path_suggestions::format_file_error(context.root, &error))?;
    if meta.len() > FILE_BYTES_MAX {
        return read_large_file_part(context, args, &path, file, meta.len());
    }
    let loaded = load_opened_file(file, &meta, &path).map_err(|error| error.to_string())?;
    let (text, encoding) = match classify_content(&loaded.bytes) {
        FileContent::Text(text, encoding) => (text, encoding),
        FileContent::Binary(kind) => return Err(not_text_error(&path, kind, loaded.bytes.len() as u64)),
    };
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, last)) = line_range(args, lines.len() as u64)? else {
        return Ok(ToolOutcome::ok(format!("`{path}` is empty")).with_seen_file(path, loaded.hash));
    };
    let mut answer =
        NumberedAnswer::new(&path, (first, last), lines.len() as u64, encoding.describe_for_model());
    let whole = ShownFile { name: path.to_string(), text: &text, lines: &lines };
    whole.append_range(first, last, context.settings.read_lines_max, &mut answer);
    Ok(answer.into_outcome().with_seen_file(path, loaded.hash))
}

/// Reads an earlier call's output. Nothing is added to the read set, because it is not a file.
fn read_full_output(
    context: ToolContext<'_>,
    args: &ReadFileArgs,
    call: &CallId,
) -> Result<ToolOutcome, String> {
    let bytes = match context.outputs.get(call) {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => return Err(format!("the whole output of {call} cannot be had now: {why}")),
        None => {
            return Err(format!(
                "no whole output is kept under `{}`: a result that shows a part names its own at its end",
                args.path
            ));
        }
    };
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, last)) = line_range(args, lines.len() as u64)? else {
        return Ok(ToolOutcome::ok(format!("`{}` is empty", args.path)));
    };
    let mut answer = NumberedAnswer::new(&args.path, (first, last), lines.len() as u64, None);
    let whole = ShownFile { name: args.path.clone(), text: &text, lines: &lines };
    whole.append_range(first, last, context.settings.read_lines_max, &mut answer);
    // Shown lines of a file are remembered and not shown again; these lines belong to no file.
    answer.shown_lines.clear();
    Ok(answer.into_outcome())
}

/// Formats the error for a file that is not text.
fn not_text_error(path: &WorkspacePath, kind: &str, bytes: u64) -> String {
    format!(
        "`{path}` is {kind} of {}, and is not shown as text: a command can look into it (file, strings, od, unzip -l)",
        format_size(bytes)
    )
}

/// Reads the requested part of a file that is too large to load.
fn read_large_file_part(
    context: ToolContext<'_>,
    args: &ReadFileArgs,
    path: &WorkspacePath,
    file: cap_std::fs::File,
    bytes: u64,
) -> Result<ToolOutcome, String> {
    if bytes > SCANNED_BYTES_MAX {
        return Err(format!(
            "`{path}` has {}, more than the {} of which read_file can show a part: a command can (head, tail, grep -n, sed -n 10,20p)",
            format_size(bytes),
            format_size(SCANNED_BYTES_MAX)
        ));
    }
    let ranged = args.start_line.is_some() || args.end_line.is_some();
    let first = args.start_line.unwrap_or(1);
    let asked = args.end_line.unwrap_or(u64::MAX);
    if asked < first {
        return Err(format!("`end_line` ({asked}) is before `start_line` ({first})"));
    }
    let count = (asked - first).saturating_add(1).min(context.settings.read_lines_max);
    let wanted = match ranged {
        true => LineSelection { first_line: first, count, tail_count: 0 },
        false => LineSelection { first_line: 1, count: EDGE_LINES, tail_count: 50 },
    };
    let found = large_file::scan_lines(file, wanted).map_err(|error| format!("`{path}`: {error}"))?;
    match sniff_encoding(&found.first_bytes) {
        Err(kind) => return Err(not_text_error(path, kind, bytes)),
        Ok(Some(_)) => {
            let kind = "a UTF-16 text, too large to be shown,";
            return Err(format!(
                "`{path}` is {kind} of {}: a command can convert it (iconv)",
                format_size(bytes)
            ));
        }
        Ok(None) => {}
    }
    if first > found.total_lines {
        return Err(beyond_end_error(first, found.total_lines));
    }
    let note = format!("{}: too large to be edited, and shown in parts", format_size(bytes));
    let last = if ranged { asked.min(found.total_lines) } else { found.total_lines };
    let mut answer = NumberedAnswer::new(&path, (first, last), found.total_lines, Some(&note));
    show_large_file_part(&found, first, last, &mut answer);
    let outcome = answer.into_outcome();
    Ok(match found.hash {
        Some(hash) => outcome.with_seen_file(path.clone(), hash),
        None => outcome,
    })
}

fn show_large_file_part(found: &ScanResult, first: u64, last: u64, answer: &mut NumberedAnswer) {
    let put =
        |lines: &mut dyn Iterator<Item = &large_file::LongLine>, from: u64, answer: &mut NumberedAnswer| {
            let mut next = from;
            for line in lines {
                let more = line.byte_len - line.prefix.len() as u64;
                let mut text = cut_line(&escape_hidden(&decode_line(&line.prefix)), LINE_CHARS_MAX);
                if more > 0 {
                    text.push_str(&format!(" [and {more} more bytes]"));
                    answer.has_cut_lines = true;
                }
                answer.push_line(next, &text);
                next += 1;
                if answer.is_full() {
                    break;
                }
            }
            answer.record_shown(from, next - 1);
            next
        };
    let next = put(&mut found.lines.iter(), first, answer);
    let tail_from = found.total_lines - found.tail.len() as u64 + 1;
    let upto = if found.tail.is_empty() { last } else { tail_from - 1 };
    if next <= upto {
        answer.push_gap(next, upto);
        answer.text.push_str(". Read them with start_line and end_line …]\n");
    }
    put(&mut found.tail.iter(), tail_from, answer);
}

fn beyond_end_error(first: u64, total: u64) -> String {
    format!("`start_line` is {first}, but the file has {total} lines")
}

fn line_range(args: &ReadFileArgs, total: u64) -> Result<Option<(u64, u64)>, String> {
    let first = args.start_line.unwrap_or(1);
    if total == 0 {
        return Ok(None);
    }
    if first > total {
        return Err(beyond_end_error(first, total));
    }
    let last = args.end_line.unwrap_or(total).min(total);
    if last < first {
        return Err(format!("`end_line` ({last}) is before `start_line` ({first})"));
    }
    Ok(Some((first, last)))
}

/// A loaded file.
struct ShownFile<'a> {
    name: String,
    text: &'a str,
    lines: &'a [&'a str],
}

impl ShownFile<'_> {
    fn append_range(&self, first: u64, last: u64, whole_max: u64, answer: &mut NumberedAnswer) {
        if last - first < whole_max {
            return self.append_lines(first, last, ANSWER_CHARS_MAX, answer);
        }
        self.append_lines(first, first + EDGE_LINES - 1, ANSWER_CHARS_MAX / 2, answer);
        let (from, to) = (first + EDGE_LINES, last - EDGE_LINES);
        answer.push_gap(from, to);
        let (table, more) = format_contents(&self.name, self.text, self.lines, from, to);
        answer.text.push_str(". Read them with start_line and end_line");
        if table.is_empty() {
            answer.text.push_str(" …]\n");
        } else {
            let more = if more > 0 { format!(" ({more} more are left out)") } else { String::new() };
            answer.text.push_str(&format!(". They define{more}:\n{table}…]\n"));
        }
        self.append_lines(last - EDGE_LINES + 1, last, ANSWER_CHARS_MAX / 2, answer);
    }

    fn append_lines(&self, first: u64, last: u64, chars_max: usize, answer: &mut NumberedAnswer) {
        let limit = answer.text.len() + chars_max;
        for number in first..=last {
            let Some(line) = usize::try_from(number - 1).ok().and_then(|at| self.lines.get(at)) else {
                return;
            };
            let shown = escape_hidden(line);
            answer.has_cut_lines |= shown.chars().nth(LINE_CHARS_MAX).is_some();
            answer.push_line(number, &cut_line(&shown, LINE_CHARS_MAX));
            if answer.text.len() > limit && number < last {
                answer.record_shown(first, number);
                answer.text.push_str(&format!(
                    "[… cut after {chars_max} characters: read on with start_line {} …]\n",
                    number + 1
                ));
                return;
            }
        }
        answer.record_shown(first, last);
    }
}

/// An answer under construction.
struct NumberedAnswer {
    text: String,
    shown_lines: Vec<LineRange>,
    has_cut_lines: bool,
}

impl NumberedAnswer {
    fn new(path: &dyn std::fmt::Display, (first, last): (u64, u64), total: u64, note: Option<&str>) -> Self {
        let mut text = format!("{path}: lines {first} to {last} of {total}\n");
        if let Some(note) = note {
            text.push_str(&format!("({note})\n"));
        }
        Self { text, shown_lines: Vec::new(), has_cut_lines: false }
    }

    fn push_line(&mut self, number: u64, text: &str) {
        self.text.push_str(&format!("{number:>6}| {text}\n"));
    }

    fn record_shown(&mut self, first: u64, last: u64) {
        if first <= last {
            self.shown_lines.push(LineRange { first, last });
        }
    }

    fn push_gap(&mut self, from: u64, to: u64) {
        self.text.push_str(&format!("[… lines {from} to {to} are not shown: {} lines", to - from + 1));
    }

    fn is_full(&self) -> bool {
        self.text.len() > ANSWER_CHARS_MAX
    }

    fn into_outcome(mut self) -> ToolOutcome {
        if self.has_cut_lines {
            self.text.push_str("(lines were cut: a command can show a part of one, such as `sed -n 3p FILE | cut -c 1001-2000`)\n");
        }
        let mut outcome = ToolOutcome::ok(self.text);
        outcome.facts.shown = self.shown_lines;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn short_file_is_shown_in_full_and_enters_the_read_set() {
        let mut w = TestWorkspace::new(&[("a.py", "x = 1\ny = 2\n")]);
        let out = w.call_tool(NAME, json!({"path": "./a.py"}));
        assert_eq!(out.text(), "a.py: lines 1 to 2 of 2\n     1| x = 1\n     2| y = 2\n");
        assert_eq!(out.facts.read.len(), 1);
        let out = w.call_tool(NAME, json!({"path": "a.py", "start_line": 2, "end_line": 99}));
        assert_eq!(out.text(), "a.py: lines 2 to 2 of 2\n     2| y = 2\n");
    }

    #[test]
    fn full_output_of_a_call_is_shown_in_parts_and_is_not_a_file() {
        let mut w = TestWorkspace::new(&[("a.py", "x = 1\n")]);
        let lines: String = (1..=900).map(|n| format!("said {n}\n")).collect();
        w.outputs.insert(CallId("t3-0".into()), Ok(lines.into()));
        w.outputs.insert(CallId("t3-1".into()), Err("the coordinator is away".into()));
        let out = w.call_tool(NAME, json!({"path": "output:t3-0", "start_line": 400, "end_line": 401}));
        assert_eq!(out.text(), "output:t3-0: lines 400 to 401 of 900\n   400| said 400\n   401| said 401\n");
        assert_eq!((out.facts.read, out.facts.shown), (Vec::new(), Vec::new()));
        let out = w.call_tool(NAME, json!({"path": "output:t3-0"}));
        assert!(
            out.text().contains("[… lines 51 to 850 are not shown") && out.text().ends_with("said 900\n")
        );
        for (path, why) in
            [("output:t3-1", "the coordinator is away"), ("output:t9-0", "names its own at its end")]
        {
            let out = w.call_tool(NAME, json!({ "path": path }));
            assert!(out.is_error && out.text().contains(why), "{}", out.text());
        }
    }

    #[test]
    fn long_file_shows_both_ends_and_outlines_the_middle() {
        let text: String = (1..=600)
            .map(|n| {
                if n == 300 { "    pub async fn middle(x: u8) {\n".to_owned() } else { format!("line {n}\n") }
            })
            .collect();
        let mut w = TestWorkspace::new(&[("long.rs", &text)]);
        let out = w.call_tool(NAME, json!({"path": "long.rs"}));
        let text = out.text();
        assert!(text.contains(
            "    50| line 50\n[… lines 51 to 550 are not shown: 500 lines. Read them with start_line and end_line. They \
             define:\n   300|     pub async fn middle(x: u8) {\n…]\n   551| line 551\n"
        ));
        assert!(text.contains("   551| line 551\n") && !text.contains("line 51\n"));
        let out = w.call_tool(NAME, json!({"path": "long.rs", "start_line": 100, "end_line": 599}));
        assert_eq!(out.text().lines().count(), 501);
    }

    #[test]
    fn binary_file_is_reported() {
        let mut w = TestWorkspace::new(&[("empty", "")]);
        w.write_file("bin", b"ab\0cd");
        w.write_file("latin", b"caf\xe9\n");
        let out = w.call_tool(NAME, json!({"path": "bin"}));
        assert!(out.is_error && out.text().contains("a binary file of 5 B"), "{}", out.text());
        w.write_file("logo.txt", b"\x89PNG\r\n\x1a\n and more");
        let out = w.call_tool(NAME, json!({"path": "logo.txt"}));
        assert!(out.is_error && out.text().contains("`logo.txt` is a PNG image of 17 B"), "{}", out.text());
        assert!(out.text().contains("a command can look into it"));
        assert!(out.facts.read.is_empty() && out.facts.shown.is_empty(), "nothing was read");
        assert_eq!(w.call_tool(NAME, json!({"path": "empty"})).text(), "`empty` is empty");
        let one_line = "x".repeat(3_000_000);
        w.write_file("one", &one_line);
        let out = w.call_tool(NAME, json!({"path": "one"}));
        assert!(out.content.len() < 2000);
        assert!(
            out.text().contains("… [2999000 more characters]\n(lines were cut: a command"),
            "{}",
            out.text()
        );
    }

    #[test]
    fn text_is_shown_in_any_encoding() {
        let mut w = TestWorkspace::new(&[]);
        w.write_file("latin", b"caf\xe9\n");
        w.write_file("utf16", b"\xff\xfec\0a\0f\0\xe9\0\r\0\n\0x\0");
        w.write_file("bom", b"\xef\xbb\xbfcaf\xc3\xa9\n");
        w.write_file("broken", b"\xc3\xa9\xc3\xa9 \xff\n");
        w.write_file("mac", b"one\rtwo\x1b[2K\n");
        for (path, want) in [
            (
                "latin",
                "(not UTF-8: read as Windows-1252 (Latin-1), and edits are written in it)\n     1| caf\u{e9}\n",
            ),
            ("utf16", "(UTF-16, little-endian: edits are written in it)\n     1| caf\u{e9}\n     2| x\n"),
            ("bom", "(UTF-8 with a byte-order mark, which edits keep)\n     1| caf\u{e9}\n"),
            (
                "broken",
                "(not all of it is UTF-8: bytes that are not are shown as \u{fffd})\n     1| \u{e9}\u{e9} \u{fffd}\n",
            ),
            // Nothing in a file can hide the text before it.
            ("mac", "     1| one\\u{d}two\\u{1b}[2K\n"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path}));
            let text = out.text();
            assert_eq!((out.is_error, text.split_once('\n').expect("two lines").1), (false, want), "{path}");
        }
    }

    #[test]
    fn part_of_a_large_file_is_shown() {
        use std::io::Write as _;
        let mut w = TestWorkspace::new(&[]);
        let file = std::fs::File::create(w.full_path("big.log")).expect("creates");
        let mut file = std::io::BufWriter::new(file);
        for number in 1..=400_000 {
            writeln!(file, "line {number} of a very long log").expect("writes");
        }
        drop(file);
        let out = w.call_tool(NAME, json!({"path": "big.log"}));
        let text = out.text();
        assert!(
            text.starts_with("big.log: lines 1 to 400000 of 400000\n(11.")
                && text.contains(" MiB: too large to be edited, and shown in parts)\n     1| line 1 of"),
            "{text}"
        );
        assert!(text.contains("    50| line 50 of a very long log\n[… lines 51 to 399950 are not shown: 399900 lines. Read them with start_line and end_line …]\n399951| line 399951 of"), "{text}");
        assert!(text.ends_with("400000| line 400000 of a very long log\n"));
        let out = w.call_tool(NAME, json!({"path": "big.log", "start_line": 300_000, "end_line": 300_001}));
        let want = "300000| line 300000 of a very long log\n300001| line 300001 of a very long log\n";
        assert!(out.text().ends_with(want) && out.text().lines().count() == 4, "{}", out.text());
        assert_eq!(out.facts.shown, [LineRange { first: 300_000, last: 300_001 }]);
        let out = w.call_tool(NAME, json!({"path": "big.log", "start_line": 1000, "end_line": 2000}));
        assert_eq!(out.facts.shown, [LineRange { first: 1000, last: 1499 }]);
        assert!(out.text().contains("[… lines 1500 to 2000 are not shown: 501 lines"), "{}", out.text());
        let out = w.call_tool(NAME, json!({"path": "big.log", "start_line": 400_001}));
        assert!(out.is_error && out.text().contains("the file has 400000 lines"), "{}", out.text());
        let out = w.call_tool(
            "edit_file",
            json!({"path": "big.log", "edits": [{"search": "line 7", "replace": "x"}]}),
        );
        assert!(out.is_error && out.text().contains("change it by a command"), "{}", out.text());
        let sparse = std::fs::File::create(w.full_path("sparse")).expect("creates");
        sparse.set_len(SCANNED_BYTES_MAX + 1).expect("grows");
        let out = w.call_tool(NAME, json!({"path": "sparse"}));
        assert!(out.is_error && out.text().contains("sed -n 10,20p"), "{}", out.text());
    }

    #[test]
    fn non_files_are_reported_with_a_remedy() {
        let mut w = TestWorkspace::new(&[("d/a.py", "x\n")]);
        nix::unistd::mkfifo(&w.full_path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        let _socket = std::os::unix::net::UnixListener::bind(w.full_path("sock")).expect("binds");
        w.create_link("gone", "d/nothing");
        w.create_link("out", "/etc/hostname");
        w.create_link("loop", "loop");
        w.create_link("in", "d/a.py");
        for (path, want) in [
            ("d", "`d` is a folder, not a file: use list_files"),
            ("pipe", "`pipe` is a named pipe, not a file: nothing in it can be read again"),
            ("sock", "`sock` is a socket, not a file"),
            ("gone", "`gone` is a symbolic link to `d/nothing`, which does not exist"),
            ("out", "`out` is a symbolic link to `/etc/hostname`, which is not in the workspace"),
            ("loop", "`loop` is a symbolic link to `loop`"),
            ("d/b.py", "`d/b.py` does not exist: list_files shows what does"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert!(!w.call_tool(NAME, json!({"path": "in"})).is_error, "a link that stays inside is read");
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let mut w = TestWorkspace::new(&[("a", "1\n")]);
        for (args, want) in [
            (json!({}), "`path` is missing (string)"),
            (json!({"path": 3}), "`path` must be string, not number"),
            (json!({"path": "a", "start": 1}), "`start` is unknown (known: end_line, path, start_line)"),
            (json!({"path": "a", "start_line": 0}), "`start_line` must be at least 1"),
            (json!({"path": "a", "start_line": "one"}), "`start_line` must be integer, not string"),
            (json!({"path": "a", "start_line": 5}), "the file has 1 lines"),
            (json!({"path": "nope"}), "`nope` does not exist"),
            (json!({"path": "/etc/passwd"}), "not a path in the workspace"),
            (json!([1]), "the arguments must be object"),
        ] {
            let out = w.call_tool(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
        }
        assert!(w.read_set.is_empty());
    }
}
