//! `read_output`: reads the full output of an earlier call, window by window.
//!
//! A result that was shown in part, or compacted since, remains complete in the log; its call is its reference.
//! Readable are results of this run and of the history that it builds on: the run loop loads nothing else
//! ([`crate::calls::requested_full_output`]).

use docket_schema::message::CallId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::calls::parse_call_reference;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    text::output::{cut_line, escape_hidden},
};

pub(crate) const NAME: &str = "read_output";
pub(crate) const DESCRIPTION: &str = "Reads the whole output of an earlier call of this run, which its result showed \
    only in part: so many lines from a line on, or so many bytes from a byte on.";

const LINES_DEFAULT: u64 = 200;
/// Most characters shown per line.
const LINE_CHARS_MAX: usize = 2000;
/// Longest answer, in characters.
const ANSWER_CHARS_MAX: usize = 40_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadOutputArgs {
    /// The call, as a result names it: t3-0, or output:t3-0.
    call: String,
    /// The first line, from 1; with bytes the first byte, from 0. The begin where it is left out.
    #[serde(default)]
    from: Option<u64>,
    /// How many lines, 200 where neither this nor bytes is given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    lines: Option<u64>,
    /// In place of lines: how many bytes.
    #[serde(default)]
    #[schemars(range(min = 1, max = 40_000))]
    bytes: Option<u64>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &ReadOutputArgs) -> ToolOutcome {
    read_window(context, args).map_or_else(|text| ToolOutcome::error(NAME, text), ToolOutcome::ok)
}

fn read_window(context: ToolContext<'_>, args: &ReadOutputArgs) -> Result<String, String> {
    let call = parse_call_reference(&args.call);
    let whole = match context.outputs.get(&call) {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => return Err(format!("the output of {call} cannot be had now: {why}")),
        None => return Err(format!("there is no output of a call `{}` in this run", shorten_call_id(&call))),
    };
    match (args.lines, args.bytes) {
        (Some(_), Some(_)) => Err("`lines` and `bytes` were both given: give one of them".to_owned()),
        (lines, None) => format_lines(&call, whole, args.from.unwrap_or(1), lines.unwrap_or(LINES_DEFAULT)),
        (None, Some(bytes)) => format_bytes(&call, whole, args.from.unwrap_or(0), bytes),
    }
}

fn shorten_call_id(call: &CallId) -> String {
    call.0.chars().take(80).collect()
}

fn format_lines(call: &CallId, whole: &[u8], from: u64, count: u64) -> Result<String, String> {
    let text = String::from_utf8_lossy(whole);
    let lines: Vec<&str> = text.lines().collect();
    let total = lines.len() as u64;
    if total == 0 {
        return Ok(format!("the output of {call} is empty"));
    }
    if from == 0 || from > total {
        return Err(format!("`from` is {from}, but the output has the lines 1 to {total}"));
    }
    let mut out = String::new();
    let mut last = from - 1;
    let first = usize::try_from(from - 1).unwrap_or(usize::MAX);
    for line in lines.iter().skip(first).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if out.len() > ANSWER_CHARS_MAX {
            break;
        }
        out.push_str(&cut_line(&escape_hidden(line), LINE_CHARS_MAX));
        out.push('\n');
        last += 1;
    }
    let more = if last < total { format!(", go on with from = {}", last + 1) } else { String::new() };
    Ok(format!("output of {call}: lines {from} to {last} of {total}{more}\n{out}"))
}

fn format_bytes(call: &CallId, whole: &[u8], from: u64, count: u64) -> Result<String, String> {
    let total = whole.len();
    if total == 0 {
        return Ok(format!("the output of {call} is empty"));
    }
    let first = usize::try_from(from).unwrap_or(usize::MAX);
    if first >= total {
        return Err(format!("`from` is {from}, but the output has the bytes 0 to {}", total - 1));
    }
    let last = first.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)).min(total);
    let text = String::from_utf8_lossy(&whole[first..last]);
    let more = if last < total { format!(", go on with from = {last}") } else { String::new() };
    let head = format!("output of {call}: bytes {first} to {} of {total}{more}\n", last - 1);
    Ok(head + &text.split('\n').map(escape_hidden).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn output_is_read_in_windows_of_lines_or_bytes() {
        let mut w = TestWorkspace::new(&[]);
        let lines: String = (1..=900).map(|n| format!("said {n}\n")).collect();
        w.outputs.insert(CallId("t3-0".into()), Ok(lines.into()));
        let out = w.call_tool(NAME, json!({"call": "t3-0", "from": 400, "lines": 2}));
        assert_eq!(
            out.text(),
            "output of t3-0: lines 400 to 401 of 900, go on with from = 402\nsaid 400\nsaid 401\n"
        );
        let out = w.call_tool(NAME, json!({"call": "output:t3-0", "from": 899}));
        assert_eq!(out.text(), "output of t3-0: lines 899 to 900 of 900\nsaid 899\nsaid 900\n");
        assert!(
            w.call_tool(NAME, json!({"call": "t3-0"}))
                .text()
                .contains("lines 1 to 200 of 900, go on with from = 201")
        );
        let out = w.call_tool(NAME, json!({"call": "t3-0", "from": 5, "bytes": 4}));
        assert!(out.text().ends_with("bytes 5 to 8 of 7992, go on with from = 9\n1\nsa"), "{}", out.text());
        for (args, want) in [
            (json!({"call": "t3-0", "from": 901}), "the lines 1 to 900"),
            (json!({"call": "t3-0", "from": 0, "lines": 1}), "the lines 1 to 900"),
            (json!({"call": "t3-0", "from": 7992, "bytes": 1}), "the bytes 0 to 7991"),
            (json!({"call": "t3-0", "lines": 1, "bytes": 1}), "both given"),
            (json!({"call": "t9-0"}), "no output of a call `t9-0`"),
            (json!({"call": "../../etc/passwd"}), "no output of a call"),
            (json!({"call": "t3-0", "lines": 5000}), "at most 2000"),
        ] {
            let out = w.call_tool(NAME, args.clone());
            assert!(out.is_error && out.text().contains(want), "{args}: {}", out.text());
        }
    }

    #[test]
    fn answer_is_bounded_and_hidden_characters_are_escaped() {
        let mut w = TestWorkspace::new(&[]);
        w.outputs.insert(CallId("t1-0".into()), Ok("x".repeat(3_000_000).into()));
        w.outputs.insert(CallId("t1-1".into()), Ok("abcdefghi\n".repeat(50_000).into()));
        w.outputs.insert(CallId("t1-2".into()), Ok("a\u{202e}b\x1b[2J".into()));
        w.outputs.insert(CallId("t1-3".into()), Err("the coordinator is away".into()));
        assert!(w.call_tool(NAME, json!({"call": "t1-0"})).text().contains("more characters]"));
        assert!(
            w.call_tool(NAME, json!({"call": "t1-0", "bytes": 40_000, "from": 2_999_000})).content.len()
                < 2000
        );
        assert!(w.call_tool(NAME, json!({"call": "t1-1", "lines": 2000})).content.len() < 41_000);
        assert!(w.call_tool(NAME, json!({"call": "t1-2"})).text().ends_with("a\\u{202e}b\\u{1b}[2J\n"));
        assert!(w.call_tool(NAME, json!({"call": "t1-3"})).text().contains("the coordinator is away"));
    }
}
