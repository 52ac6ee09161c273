//! `read_file`: numbered lines of a file, the middle of a long one summarized.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    context::{ToolContext, ToolOutcome},
    files::{load, work_path},
    output::{cut_line, printable},
};

pub(super) const NAME: &str = "read_file";
pub(super) const DESCRIPTION: &str = "Reads a file of the workspace with line numbers. Files of more than 500 \
    lines are answered with their first and last 50 and a summary of what lies between; give start_line and \
    end_line to see that part. A file must be read before it is edited.";

/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 1000;
/// Characters of one answer: a file of few but long lines must not fill the context.
const ANSWER_CHARS_MAX: usize = 60_000;
/// Lines shown at each end of a long file.
const ENDS: u64 = 50;
/// Names of definitions that a summary lists.
const DEFINITIONS_MAX: usize = 60;
/// Bytes that are looked at to tell text from data.
const SNIFFED_BYTES: usize = 8 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Path of the file, relative to the workspace.
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

pub(super) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    let fail = |text: String| ToolOutcome::error(NAME, text);
    let path = match work_path(&args.path) {
        Ok(path) => path,
        Err(error) => return fail(error.to_string()),
    };
    let loaded = match load(context.root, &path) {
        Ok(loaded) => loaded,
        Err(error) => return fail(error.to_string()),
    };
    if let Some(kind) = binary_kind(&loaded.bytes) {
        return fail(format!("`{path}` is {kind} of {} bytes and is not shown as text", loaded.bytes.len()));
    }
    let valid = std::str::from_utf8(&loaded.bytes).is_ok();
    let text = String::from_utf8_lossy(&loaded.bytes);
    let lines: Vec<&str> = text.lines().collect();
    let total = lines.len() as u64;
    let outcome = match span(args, total) {
        Err(text) => return fail(text),
        Ok(None) => ToolOutcome::ok(format!("`{path}` is empty")),
        Ok(Some((first, last))) => {
            let mut out = format!("{path}: lines {first} to {last} of {total}\n");
            if !valid {
                out.push_str("(not all of it is UTF-8: bytes that are not are shown as \u{fffd})\n");
            }
            show(&lines, first, last, context.settings.read_lines_max, &mut out);
            ToolOutcome::ok(out)
        }
    };
    outcome.seen(path, loaded.hash)
}

fn span(args: &Args, total: u64) -> Result<Option<(u64, u64)>, String> {
    let first = args.start_line.unwrap_or(1);
    if total == 0 {
        return Ok(None);
    }
    if first > total {
        return Err(format!("`start_line` is {first}, but the file has {total} lines"));
    }
    let last = args.end_line.unwrap_or(total).min(total);
    if last < first {
        return Err(format!("`end_line` ({last}) is before `start_line` ({first})"));
    }
    Ok(Some((first, last)))
}

fn show(lines: &[&str], first: u64, last: u64, whole_max: u64, out: &mut String) {
    if last - first < whole_max {
        return put(lines, first, last, ANSWER_CHARS_MAX, out);
    }
    put(lines, first, first + ENDS - 1, ANSWER_CHARS_MAX / 2, out);
    let (from, to) = (first + ENDS, last - ENDS);
    out.push_str(&format!("[… lines {from} to {to} are not shown: {} lines", to - from + 1));
    let found = definitions(lines, from, to);
    if found.is_empty() {
        out.push_str(". Read them with start_line and end_line …]\n");
    } else {
        let more = if found.len() > DEFINITIONS_MAX { ", and more" } else { "" };
        let shown: Vec<&str> = found.iter().take(DEFINITIONS_MAX).map(String::as_str).collect();
        out.push_str(&format!(
            ". They define: {}{more}. Read them with start_line and end_line …]\n",
            shown.join(", ")
        ));
    }
    put(lines, last - ENDS + 1, last, ANSWER_CHARS_MAX / 2, out);
}

fn put(lines: &[&str], first: u64, last: u64, chars_max: usize, out: &mut String) {
    let limit = out.len() + chars_max;
    for number in first..=last {
        let Some(line) = usize::try_from(number - 1).ok().and_then(|at| lines.get(at)) else { return };
        out.push_str(&format!("{number:>6}| {}\n", cut_line(&printable(line.as_bytes()), LINE_CHARS_MAX)));
        if out.len() > limit && number < last {
            out.push_str(&format!(
                "[… cut after {chars_max} characters: read on with start_line {} …]\n",
                number + 1
            ));
            return;
        }
    }
}

fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Some("a UTF-16 file");
    }
    bytes.iter().take(SNIFFED_BYTES).any(|b| *b == 0).then_some("a binary file")
}

/// Names that lines define, with their line, by the look of the line alone.
fn definitions(lines: &[&str], from: u64, to: u64) -> Vec<String> {
    (from..=to)
        .filter_map(|number| {
            let line = lines.get(usize::try_from(number - 1).ok()?)?;
            definition(line).map(|name| format!("{name} ({number})"))
        })
        .take(DEFINITIONS_MAX + 1)
        .collect()
}

fn definition(line: &str) -> Option<&str> {
    let indent = line.len() - line.trim_start().len();
    if indent > 8 {
        return None;
    }
    let mut words = line.trim_start().split(|c: char| c.is_whitespace() || c == '(').peekable();
    while words.next_if(|word| word.starts_with("pub") || QUALIFIERS.contains(word)).is_some() {}
    let keyword = words.next()?;
    if !KEYWORDS.contains(&keyword) {
        return None;
    }
    let name = words.find(|word| !word.is_empty() && *word != "*")?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

const QUALIFIERS: [&str; 13] = [
    "export",
    "default",
    "async",
    "unsafe",
    "static",
    "public",
    "private",
    "protected",
    "abstract",
    "final",
    "override",
    "declare",
    "extern",
];
const KEYWORDS: [&str; 13] = [
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "impl",
    "function",
    "func",
    "interface",
    "type",
    "mod",
    "namespace",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::Workspace, *};

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
            "    50| line 50\n[… lines 51 to 550 are not shown: 500 lines. They define: middle (300)"
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
        assert!(out.is_error && out.text().contains("binary file of 5 bytes"), "{}", out.text());
        let out = w.call(NAME, json!({"path": "latin"}));
        assert!(
            !out.is_error
                && out.text().contains("not all of it is UTF-8")
                && out.text().contains("caf\u{fffd}")
        );
        assert_eq!(w.call(NAME, json!({"path": "empty"})).text(), "`empty` is empty");
        let big = std::fs::File::create(w.path("big")).expect("creates");
        big.set_len(super::super::files::FILE_BYTES_MAX + 1).expect("grows");
        assert!(w.call(NAME, json!({"path": "big"})).text().contains("more than the"));
        let one_line = "x".repeat(3_000_000);
        w.write("one", &one_line);
        assert!(w.call(NAME, json!({"path": "one"})).content.len() < 2000);
    }

    #[test]
    fn mistakes_are_named() {
        let mut w = Workspace::new(&[("a", "1\n")]);
        for (args, want) in [
            (json!({}), "`path` is missing (string)"),
            (json!({"path": 3}), "`path` must be string, not number"),
            (json!({"path": "a", "start": 1}), "`start` is unknown (known: end_line, path, start_line)"),
            (json!({"path": "a", "start_line": 0}), "`start_line` must be at least 1"),
            (json!({"path": "a", "start_line": "1"}), "`start_line` must be integer, not string"),
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
