//! `read_file`: numbered lines of a file, the middle of a long one summarized.

use docket_schema::{content::WorkPath, message::CallId, tool::LinesShown};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    contents::contents,
    huge::{self, Found, SCANNED_BYTES_MAX, Wanted},
};
use crate::calls::{call_of, work_path};
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{FILE_BYTES_MAX, load_opened, open, size_text},
        near,
    },
    text::{
        encoding::{Held, held, line_text, sniffed},
        output::{cut_line, visible},
    },
};

/// The name.
pub const NAME: &str = "read_file";
pub(crate) const DESCRIPTION: &str = "Reads a file of the workspace with line numbers. Files of more than 500 \
    lines are answered with their first and last 50 and a table of contents of what lies between; give start_line \
    and end_line to see that part. What was shown and has not changed is not shown again. A file must be read \
    before it is edited.";

/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 1000;
/// Characters of one answer: a file of few but long lines must not fill the context.
const ANSWER_CHARS_MAX: usize = 60_000;
/// Lines shown at each end of a long file.
const ENDS: u64 = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
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

pub(crate) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    read(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn read(context: ToolContext<'_>, args: &Args) -> Result<ToolOutcome, String> {
    if let Some(call) = call_of(&args.path) {
        return whole_output(context, args, &call);
    }
    let path = work_path(&args.path).map_err(|error| error.to_string())?;
    let (file, meta) = open(context.root, &path).map_err(|error| near::told(context.root, &error))?;
    if meta.len() > FILE_BYTES_MAX {
        return part_of_huge(context, args, &path, file, meta.len());
    }
    let loaded = load_opened(file, &meta, &path).map_err(|error| error.to_string())?;
    let (text, encoding) = match held(&loaded.bytes) {
        Held::Text(text, encoding) => (text, encoding),
        Held::Data(kind) => return Err(no_text(&path, kind, loaded.bytes.len() as u64)),
    };
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, last)) = span(args, lines.len() as u64)? else {
        return Ok(ToolOutcome::ok(format!("`{path}` is empty")).seen(path, loaded.hash));
    };
    let mut answer = Answer::new(&path, (first, last), lines.len() as u64, encoding.note());
    let whole = File { name: path.to_string(), text: &text, lines: &lines };
    whole.show(first, last, context.settings.read_lines_max, &mut answer);
    Ok(answer.outcome().seen(path, loaded.hash))
}

/// What an earlier call put out. Nothing enters the read set: it is no file.
fn whole_output(context: ToolContext<'_>, args: &Args, call: &CallId) -> Result<ToolOutcome, String> {
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
    let Some((first, last)) = span(args, lines.len() as u64)? else {
        return Ok(ToolOutcome::ok(format!("`{}` is empty", args.path)));
    };
    let mut answer = Answer::new(&args.path, (first, last), lines.len() as u64, None);
    let whole = File { name: args.path.clone(), text: &text, lines: &lines };
    whole.show(first, last, context.settings.read_lines_max, &mut answer);
    // Lines of a file are remembered as shown, and not shown again; these belong to none.
    answer.lines.clear();
    Ok(answer.outcome())
}

/// What is told of a file that is no text.
fn no_text(path: &WorkPath, kind: &str, bytes: u64) -> String {
    format!(
        "`{path}` is {kind} of {}, and is not shown as text: a command can look into it (file, strings, od, unzip -l)",
        size_text(bytes)
    )
}

/// What can be shown of a file that is larger than what tools hold.
fn part_of_huge(
    context: ToolContext<'_>,
    args: &Args,
    path: &WorkPath,
    file: cap_std::fs::File,
    bytes: u64,
) -> Result<ToolOutcome, String> {
    if bytes > SCANNED_BYTES_MAX {
        return Err(format!(
            "`{path}` has {}, more than the {} of which read_file can show a part: a command can (head, tail, grep -n, sed -n 10,20p)",
            size_text(bytes),
            size_text(SCANNED_BYTES_MAX)
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
        true => Wanted { first, count, tail: 0 },
        false => Wanted { first: 1, count: ENDS, tail: 50 },
    };
    let found = huge::scan(file, wanted).map_err(|error| format!("`{path}`: {error}"))?;
    match sniffed(&found.begin) {
        Err(kind) => return Err(no_text(path, kind, bytes)),
        Ok(Some(_)) => {
            let kind = "a UTF-16 text, too large to be shown,";
            return Err(format!(
                "`{path}` is {kind} of {}: a command can convert it (iconv)",
                size_text(bytes)
            ));
        }
        Ok(None) => {}
    }
    if first > found.total {
        return Err(beyond(first, found.total));
    }
    let note = format!("{}: too large to be edited, and shown in parts", size_text(bytes));
    let last = if ranged { asked.min(found.total) } else { found.total };
    let mut answer = Answer::new(&path, (first, last), found.total, Some(&note));
    show_huge(&found, first, last, &mut answer);
    let outcome = answer.outcome();
    Ok(match found.hash {
        Some(hash) => outcome.seen(path.clone(), hash),
        None => outcome,
    })
}

fn show_huge(found: &Found, first: u64, last: u64, answer: &mut Answer) {
    let put = |lines: &mut dyn Iterator<Item = &huge::Line>, from: u64, answer: &mut Answer| {
        let mut next = from;
        for line in lines {
            let more = line.bytes - line.begin.len() as u64;
            let mut text = cut_line(&visible(&line_text(&line.begin)), LINE_CHARS_MAX);
            if more > 0 {
                text.push_str(&format!(" [and {more} more bytes]"));
                answer.long_lines = true;
            }
            answer.line(next, &text);
            next += 1;
            if answer.is_full() {
                break;
            }
        }
        answer.shown(from, next - 1);
        next
    };
    let next = put(&mut found.lines.iter(), first, answer);
    let tail_from = found.total - found.tail.len() as u64 + 1;
    let upto = if found.tail.is_empty() { last } else { tail_from - 1 };
    if next <= upto {
        answer.gap(next, upto);
        answer.text.push_str(". Read them with start_line and end_line …]\n");
    }
    put(&mut found.tail.iter(), tail_from, answer);
}

fn beyond(first: u64, total: u64) -> String {
    format!("`start_line` is {first}, but the file has {total} lines")
}

fn span(args: &Args, total: u64) -> Result<Option<(u64, u64)>, String> {
    let first = args.start_line.unwrap_or(1);
    if total == 0 {
        return Ok(None);
    }
    if first > total {
        return Err(beyond(first, total));
    }
    let last = args.end_line.unwrap_or(total).min(total);
    if last < first {
        return Err(format!("`end_line` ({last}) is before `start_line` ({first})"));
    }
    Ok(Some((first, last)))
}

/// A file as it is held.
struct File<'a> {
    name: String,
    text: &'a str,
    lines: &'a [&'a str],
}

impl File<'_> {
    fn show(&self, first: u64, last: u64, whole_max: u64, answer: &mut Answer) {
        if last - first < whole_max {
            return self.put(first, last, ANSWER_CHARS_MAX, answer);
        }
        self.put(first, first + ENDS - 1, ANSWER_CHARS_MAX / 2, answer);
        let (from, to) = (first + ENDS, last - ENDS);
        answer.gap(from, to);
        let (table, more) = contents(&self.name, self.text, self.lines, from, to);
        answer.text.push_str(". Read them with start_line and end_line");
        if table.is_empty() {
            answer.text.push_str(" …]\n");
        } else {
            let more = if more > 0 { format!(" ({more} more are left out)") } else { String::new() };
            answer.text.push_str(&format!(". They define{more}:\n{table}…]\n"));
        }
        self.put(last - ENDS + 1, last, ANSWER_CHARS_MAX / 2, answer);
    }

    fn put(&self, first: u64, last: u64, chars_max: usize, answer: &mut Answer) {
        let limit = answer.text.len() + chars_max;
        for number in first..=last {
            let Some(line) = usize::try_from(number - 1).ok().and_then(|at| self.lines.get(at)) else {
                return;
            };
            let shown = visible(line);
            answer.long_lines |= shown.chars().nth(LINE_CHARS_MAX).is_some();
            answer.line(number, &cut_line(&shown, LINE_CHARS_MAX));
            if answer.text.len() > limit && number < last {
                answer.shown(first, number);
                answer.text.push_str(&format!(
                    "[… cut after {chars_max} characters: read on with start_line {} …]\n",
                    number + 1
                ));
                return;
            }
        }
        answer.shown(first, last);
    }
}

/// An answer as it is written.
struct Answer {
    text: String,
    lines: Vec<LinesShown>,
    long_lines: bool,
}

impl Answer {
    fn new(path: &dyn std::fmt::Display, (first, last): (u64, u64), total: u64, note: Option<&str>) -> Self {
        let mut text = format!("{path}: lines {first} to {last} of {total}\n");
        if let Some(note) = note {
            text.push_str(&format!("({note})\n"));
        }
        Self { text, lines: Vec::new(), long_lines: false }
    }

    fn line(&mut self, number: u64, text: &str) {
        self.text.push_str(&format!("{number:>6}| {text}\n"));
    }

    fn shown(&mut self, first: u64, last: u64) {
        if first <= last {
            self.lines.push(LinesShown { first, last });
        }
    }

    fn gap(&mut self, from: u64, to: u64) {
        self.text.push_str(&format!("[… lines {from} to {to} are not shown: {} lines", to - from + 1));
    }

    fn is_full(&self) -> bool {
        self.text.len() > ANSWER_CHARS_MAX
    }

    fn outcome(mut self) -> ToolOutcome {
        if self.long_lines {
            self.text.push_str("(lines were cut: a command can show a part of one, such as `sed -n 3p FILE | cut -c 1001-2000`)\n");
        }
        let mut outcome = ToolOutcome::ok(self.text);
        outcome.facts.shown = self.lines;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::Workspace;

    #[test]
    fn a_short_file_is_shown_whole_and_enters_the_read_set() {
        let mut w = Workspace::new(&[("a.py", "x = 1\ny = 2\n")]);
        let out = w.call(NAME, json!({"path": "./a.py"}));
        assert_eq!(out.text(), "a.py: lines 1 to 2 of 2\n     1| x = 1\n     2| y = 2\n");
        assert_eq!(out.facts.read.len(), 1);
        let out = w.call(NAME, json!({"path": "a.py", "start_line": 2, "end_line": 99}));
        assert_eq!(out.text(), "a.py: lines 2 to 2 of 2\n     2| y = 2\n");
    }

    #[test]
    fn the_whole_output_of_a_call_is_shown_in_parts_and_is_no_file() {
        let mut w = Workspace::new(&[("a.py", "x = 1\n")]);
        let lines: String = (1..=900).map(|n| format!("said {n}\n")).collect();
        w.outputs.insert(CallId("t3-0".into()), Ok(lines.into()));
        w.outputs.insert(CallId("t3-1".into()), Err("the coordinator is away".into()));
        let out = w.call(NAME, json!({"path": "output:t3-0", "start_line": 400, "end_line": 401}));
        assert_eq!(out.text(), "output:t3-0: lines 400 to 401 of 900\n   400| said 400\n   401| said 401\n");
        assert_eq!((out.facts.read, out.facts.shown), (Vec::new(), Vec::new()));
        let out = w.call(NAME, json!({"path": "output:t3-0"}));
        assert!(
            out.text().contains("[… lines 51 to 850 are not shown") && out.text().ends_with("said 900\n")
        );
        for (path, why) in
            [("output:t3-1", "the coordinator is away"), ("output:t9-0", "names its own at its end")]
        {
            let out = w.call(NAME, json!({ "path": path }));
            assert!(out.is_error && out.text().contains(why), "{}", out.text());
        }
    }

    #[test]
    fn a_long_file_shows_its_ends_and_names_what_lies_between() {
        let text: String = (1..=600)
            .map(|n| {
                if n == 300 { "    pub async fn middle(x: u8) {\n".to_owned() } else { format!("line {n}\n") }
            })
            .collect();
        let mut w = Workspace::new(&[("long.rs", &text)]);
        let out = w.call(NAME, json!({"path": "long.rs"}));
        let text = out.text();
        assert!(text.contains(
            "    50| line 50\n[… lines 51 to 550 are not shown: 500 lines. Read them with start_line and end_line. They \
             define:\n   300|     pub async fn middle(x: u8) {\n…]\n   551| line 551\n"
        ));
        assert!(text.contains("   551| line 551\n") && !text.contains("line 51\n"));
        let out = w.call(NAME, json!({"path": "long.rs", "start_line": 100, "end_line": 599}));
        assert_eq!(out.text().lines().count(), 501);
    }

    #[test]
    fn what_is_no_text_is_told() {
        let mut w = Workspace::new(&[("empty", "")]);
        w.write("bin", b"ab\0cd");
        w.write("latin", b"caf\xe9\n");
        let out = w.call(NAME, json!({"path": "bin"}));
        assert!(out.is_error && out.text().contains("a binary file of 5 B"), "{}", out.text());
        w.write("logo.txt", b"\x89PNG\r\n\x1a\n and more");
        let out = w.call(NAME, json!({"path": "logo.txt"}));
        assert!(out.is_error && out.text().contains("`logo.txt` is a PNG image of 17 B"), "{}", out.text());
        assert!(out.text().contains("a command can look into it"));
        assert!(out.facts.read.is_empty() && out.facts.shown.is_empty(), "nothing was read");
        assert_eq!(w.call(NAME, json!({"path": "empty"})).text(), "`empty` is empty");
        let one_line = "x".repeat(3_000_000);
        w.write("one", &one_line);
        let out = w.call(NAME, json!({"path": "one"}));
        assert!(out.content.len() < 2000);
        assert!(
            out.text().contains("… [2999000 more characters]\n(lines were cut: a command"),
            "{}",
            out.text()
        );
    }

    #[test]
    fn a_text_is_shown_whatever_it_is_written_in() {
        let mut w = Workspace::new(&[]);
        w.write("latin", b"caf\xe9\n");
        w.write("utf16", b"\xff\xfec\0a\0f\0\xe9\0\r\0\n\0x\0");
        w.write("bom", b"\xef\xbb\xbfcaf\xc3\xa9\n");
        w.write("broken", b"\xc3\xa9\xc3\xa9 \xff\n");
        w.write("mac", b"one\rtwo\x1b[2K\n");
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
            // Nothing in a file hides what stands before it.
            ("mac", "     1| one\\u{d}two\\u{1b}[2K\n"),
        ] {
            let out = w.call(NAME, json!({"path": path}));
            let text = out.text();
            assert_eq!((out.is_error, text.split_once('\n').expect("two lines").1), (false, want), "{path}");
        }
    }

    #[test]
    fn a_part_of_a_huge_file_is_shown() {
        use std::io::Write as _;
        let mut w = Workspace::new(&[]);
        let file = std::fs::File::create(w.path("big.log")).expect("creates");
        let mut file = std::io::BufWriter::new(file);
        for number in 1..=400_000 {
            writeln!(file, "line {number} of a very long log").expect("writes");
        }
        drop(file);
        let out = w.call(NAME, json!({"path": "big.log"}));
        let text = out.text();
        assert!(
            text.starts_with("big.log: lines 1 to 400000 of 400000\n(11.")
                && text.contains(" MiB: too large to be edited, and shown in parts)\n     1| line 1 of"),
            "{text}"
        );
        assert!(text.contains("    50| line 50 of a very long log\n[… lines 51 to 399950 are not shown: 399900 lines. Read them with start_line and end_line …]\n399951| line 399951 of"), "{text}");
        assert!(text.ends_with("400000| line 400000 of a very long log\n"));
        let out = w.call(NAME, json!({"path": "big.log", "start_line": 300_000, "end_line": 300_001}));
        let want = "300000| line 300000 of a very long log\n300001| line 300001 of a very long log\n";
        assert!(out.text().ends_with(want) && out.text().lines().count() == 4, "{}", out.text());
        assert_eq!(out.facts.shown, [LinesShown { first: 300_000, last: 300_001 }]);
        let out = w.call(NAME, json!({"path": "big.log", "start_line": 1000, "end_line": 2000}));
        assert_eq!(out.facts.shown, [LinesShown { first: 1000, last: 1499 }]);
        assert!(out.text().contains("[… lines 1500 to 2000 are not shown: 501 lines"), "{}", out.text());
        let out = w.call(NAME, json!({"path": "big.log", "start_line": 400_001}));
        assert!(out.is_error && out.text().contains("the file has 400000 lines"), "{}", out.text());
        let out =
            w.call("edit_file", json!({"path": "big.log", "edits": [{"search": "line 7", "replace": "x"}]}));
        assert!(out.is_error && out.text().contains("change it by a command"), "{}", out.text());
        let sparse = std::fs::File::create(w.path("sparse")).expect("creates");
        sparse.set_len(SCANNED_BYTES_MAX + 1).expect("grows");
        let out = w.call(NAME, json!({"path": "sparse"}));
        assert!(out.is_error && out.text().contains("sed -n 10,20p"), "{}", out.text());
    }

    #[test]
    fn what_is_no_file_is_told_with_what_to_do() {
        let mut w = Workspace::new(&[("d/a.py", "x\n")]);
        nix::unistd::mkfifo(&w.path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        let _socket = std::os::unix::net::UnixListener::bind(w.path("sock")).expect("binds");
        w.link("gone", "d/nothing");
        w.link("out", "/etc/hostname");
        w.link("loop", "loop");
        w.link("in", "d/a.py");
        for (path, want) in [
            ("d", "`d` is a folder, not a file: use list_files"),
            ("pipe", "`pipe` is a named pipe, not a file: nothing in it can be read again"),
            ("sock", "`sock` is a socket, not a file"),
            ("gone", "`gone` is a symbolic link to `d/nothing`, which does not exist"),
            ("out", "`out` is a symbolic link to `/etc/hostname`, which is not in the workspace"),
            ("loop", "`loop` is a symbolic link to `loop`"),
            ("d/b.py", "`d/b.py` does not exist: list_files shows what does"),
        ] {
            let out = w.call(NAME, json!({"path": path}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert!(!w.call(NAME, json!({"path": "in"})).is_error, "a link that stays inside is read");
    }

    #[test]
    fn mistakes_are_named() {
        let mut w = Workspace::new(&[("a", "1\n")]);
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
            let out = w.call(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
        }
        assert!(w.read_set.is_empty());
    }
}
