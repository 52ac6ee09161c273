//! What stands in the pane that is looked at: prompt, decision, tool calls. Trees, ledger and the other run
//! have files of their own. Pure: the same run, shelf and choice give the same lines.

use docket_schema::{content::WorkPath, message::ToolUse, run::Verdict};
use serde_json::Value;

use super::{
    compare,
    detail::{Call, Detail, Gate},
    doc::{Doc, Tone, Writer},
    files, ledger,
    shelf::{Loaded, Place, Request, Shelf, Side, Want},
    skeleton::{Row, Run},
};
use crate::display::duration;

/// The panes, in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pane {
    /// What the model was newly told.
    Prompt,
    /// What it said and called.
    Decision,
    /// Each call with its whole output, and the final checks.
    Calls,
    /// What the turn changed.
    Diff,
    /// The files as they were after the turn.
    Tree,
    /// Tokens, cost, hashes, places, times.
    Ledger,
    /// The other run beside this one.
    Runs,
}

impl Pane {
    /// All of them.
    pub(super) const ALL: [Self; 7] =
        [Self::Prompt, Self::Decision, Self::Calls, Self::Diff, Self::Tree, Self::Ledger, Self::Runs];

    /// Its name on the screen.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Decision => "decision",
            Self::Calls => "calls",
            Self::Diff => "diff",
            Self::Tree => "tree",
            Self::Ledger => "ledger",
            Self::Runs => "runs",
        }
    }
}

/// Which page is looked at: everything that its lines depend on, but the shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The row of the timeline.
    pub(super) row: usize,
    /// The pane.
    pub(super) pane: Pane,
    /// The row that it is compared with, in the pane of differences.
    pub(super) since: Option<usize>,
    /// The exact request in place of what was newly told.
    pub(super) request: bool,
    /// A file in place of the pane.
    pub(super) file: Option<(Place, WorkPath)>,
}

/// The runs that a page is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    /// The run that is stepped through.
    pub(super) run: &'a Run,
    /// The run it is compared with.
    pub(super) other: Option<&'a Run>,
}

/// The page, and what is to be fetched so that it becomes whole.
pub(super) fn page(subject: Subject<'_>, choice: &Choice, shelf: &Shelf) -> (Doc, Vec<Want>) {
    let mut out = Writer::new(shelf);
    let run = subject.run;
    if let Some((place, path)) = &choice.file {
        files::file(&mut out, *place, path);
        return out.end();
    }
    let Some(row) = run.rows.get(choice.row) else {
        out.line(Tone::Dim, "the run has not started");
        return out.end();
    };
    match choice.pane {
        Pane::Prompt if choice.request => request(&mut out, run, row),
        Pane::Prompt => prompt(&mut out, run, choice.row, row),
        Pane::Decision => decision(&mut out, &Detail::of(run, row)),
        Pane::Calls => calls(&mut out, &Detail::of(run, row)),
        Pane::Diff => files::diff(&mut out, run, choice),
        Pane::Tree => files::tree(&mut out, run, choice.row, row),
        Pane::Ledger => ledger::ledger(&mut out, run, row),
        Pane::Runs => compare::runs(&mut out, subject, choice.row),
    }
    out.end()
}

/// What the model read for the first time when it made this turn's decision: the results of the turn
/// before, and what people and the runtime said since.
fn prompt(out: &mut Writer<'_>, run: &Run, at: usize, row: &Row) {
    let detail = Detail::of(run, row);
    let Some(before) = at.checked_sub(1).and_then(|at| run.rows.get(at)) else {
        out.line(Tone::Dim, "before the first turn: what the run was given");
        return given(out, run, &detail);
    };
    let before = Detail::of(run, before);
    for told in &before.told {
        out.heading(&format!("{}:", told.by));
        out.content(Tone::Plain, "  ", &told.text);
    }
    out.echo(true);
    for call in &before.calls {
        let Some(result) = &call.result else { continue };
        let tone = if call.is_ok() { Tone::Bold } else { Tone::Warn };
        out.gap();
        out.line(tone, &format!("result of {} {}: {}", call.made.call, call.made.name, call.word()));
        out.content(Tone::Plain, "  ", &result.content);
    }
    for gate in before.gates.iter().filter(|gate| gate.came_to == "failed") {
        out.gap();
        out.line(Tone::Warn, &format!("final check {} failed: {}", gate.spec.name, gate.spec.command));
        if let Some(content) = &gate.content {
            out.content(Tone::Plain, "  ", content);
        }
    }
    out.echo(false);
    for (_, asked) in &detail.asked {
        if let Some(nudge) = &asked.nudge {
            out.heading("the runtime adds:");
            out.block(Tone::Plain, "  ", nudge);
        }
    }
    out.gap();
    match detail.asked.first() {
        Some((_, asked)) => out.line(
            Tone::Dim,
            &format!("the whole request had {} bytes; x shows it, byte for byte", asked.request_bytes),
        ),
        None => out.line(Tone::Dim, "the model has not been asked in this turn"),
    }
}

fn given(out: &mut Writer<'_>, run: &Run, detail: &Detail) {
    for told in &detail.told {
        out.heading(&format!("{}:", told.by));
        out.content(Tone::Plain, "  ", &told.text);
    }
    if let Some(pins) = &run.pins {
        out.heading("the system prompt:");
        out.content(Tone::Plain, "  ", &docket_schema::content::Content::Blob(pins.prompts.system));
    }
    notes(out, detail);
}

fn notes(out: &mut Writer<'_>, detail: &Detail) {
    for note in &detail.notes {
        out.gap();
        out.line(Tone::Warn, &format!("{}:", note.by));
        out.content(Tone::Plain, "  ", &note.text);
    }
}

fn request(out: &mut Writer<'_>, run: &Run, row: &Row) {
    let detail = Detail::of(run, row);
    let Some((place, asked)) = detail.asked.last() else {
        return out.line(Tone::Dim, "the model has not been asked in this turn");
    };
    out.line(
        Tone::Dim,
        &format!("the exact request to {}, rendered again from the log; x goes back", asked.model),
    );
    let Some(Loaded::Request(request)) = out.need(Want::Request(Side::This, *place), "") else { return };
    let Request { body, hash, recorded } = &*request;
    if hash == recorded {
        out.line(Tone::Good, &format!("{} bytes; their hash is the recorded one: {hash}", body.len()));
    } else {
        out.line(Tone::Bad, &format!("its hash {hash} is NOT the recorded one: {recorded}"));
    }
    out.gap();
    match std::str::from_utf8(body) {
        Ok(text) => out.block(Tone::Plain, "", &laid_out(text)),
        Err(_) => out.bytes(Tone::Plain, "", body),
    }
}

/// JSON with line feeds and blanks between its tokens: every byte of it stands there, in its order.
fn laid_out(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let feed = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if quoted {
            out.push(c);
            (quoted, escaped) = (c != '"' || escaped, c == '\\' && !escaped);
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                depth += 1;
                if !matches!(chars.peek(), Some('}' | ']')) {
                    feed(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !out.ends_with(['{', '[']) {
                    feed(&mut out, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                feed(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                quoted = true;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn decision(out: &mut Writer<'_>, detail: &Detail) {
    notes(out, detail);
    if detail.answered.is_empty() {
        out.gap();
        out.line(Tone::Dim, "no answer of a model in this turn");
    }
    for text in detail.texts() {
        out.gap();
        out.content(Tone::Plain, "", text);
    }
    for call in &detail.calls {
        out.gap();
        made(out, &call.made);
        out.echo(true);
        let tone = if call.is_ok() { Tone::Good } else { Tone::Warn };
        out.line(tone, &format!("  {}", call.word()));
        out.echo(false);
    }
    if let Some(ended) = &detail.ended {
        out.gap();
        out.line(if ended == "succeeded" { Tone::Good } else { Tone::Bad }, &format!("the run {ended}"));
    }
}

/// A call as the model made it.
fn made(out: &mut Writer<'_>, call: &ToolUse) {
    out.line(Tone::Bold, &format!("{} {}", call.call, call.name));
    if let Some(raw) = &call.malformed {
        out.line(Tone::Bad, "  the arguments were no JSON object:");
        return out.block(Tone::Plain, "  ", raw);
    }
    match &call.args {
        Value::Object(fields) => {
            for (name, value) in fields {
                argument(out, name, value);
            }
        }
        args @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            out.line(Tone::Plain, &format!("  {args}"));
        }
    }
}

fn argument(out: &mut Writer<'_>, name: &str, value: &Value) {
    match value {
        Value::String(text) if text.contains('\n') => {
            out.line(Tone::Dim, &format!("  {name}:"));
            out.block(Tone::Plain, "    ", text);
        }
        Value::String(text) => match WorkPath::new(text.as_bytes()) {
            Some(path) if name == "path" || name == "test_path" => {
                out.file(Tone::Plain, &format!("  {name}: {text}"), &path);
            }
            Some(_) | None => out.block(Tone::Plain, "  ", &format!("{name}: {text}")),
        },
        Value::Array(_) | Value::Object(_) => {
            out.line(Tone::Dim, &format!("  {name}:"));
            let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
            out.block(Tone::Plain, "    ", &pretty);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            out.line(Tone::Plain, &format!("  {name}: {value}"));
        }
    }
}

fn calls(out: &mut Writer<'_>, detail: &Detail) {
    if detail.calls.is_empty() && detail.gates.is_empty() {
        out.line(Tone::Dim, "no call in this turn");
    }
    for call in &detail.calls {
        out.gap();
        one_call(out, call);
    }
    for gate in &detail.gates {
        out.gap();
        one_gate(out, gate);
    }
}

fn one_call(out: &mut Writer<'_>, call: &Call) {
    let took = call.result.as_ref().map_or_else(String::new, |e| format!(" in {}", duration(e.duration_ms)));
    let tone = if call.is_ok() { Tone::Good } else { Tone::Bad };
    out.line(tone, &format!("{} {}: {}{took}", call.made.call, call.made.name, call.word()));
    out.echo(true);
    out.line(Tone::Dim, &format!("  {}", crate::events::call(&call.made)));
    out.echo(false);
    match call.wanted.as_ref().map(|wanted| &wanted.policy) {
        Some(Verdict::Deny { rule, reason }) => {
            out.line(Tone::Warn, &format!("  refused by rule {rule}: {reason}"));
        }
        Some(Verdict::Ask { rule, question }) => {
            out.line(Tone::Warn, &format!("  rule {rule} asks a person: {question}"));
        }
        Some(Verdict::Allow { .. }) | None => {}
    }
    let Some(result) = &call.result else {
        return out.line(Tone::Warn, "  no result is in the log");
    };
    match result.full {
        // The whole output holds what the model read of it, and what was cut.
        Some(full) => {
            out.line(Tone::Dim, &format!("  the whole output, {} bytes; the model read it cut", full.bytes));
            out.content(Tone::Plain, "  ", &docket_schema::content::Content::Blob(full));
        }
        None => out.content(Tone::Plain, "  ", &result.content),
    }
}

fn one_gate(out: &mut Writer<'_>, gate: &Gate) {
    let (tone, word) = match (gate.passed, gate.came_to) {
        (Some(true), "passed" | "mended") => (Tone::Good, gate.came_to),
        (Some(false), "failed") => (Tone::Bad, gate.came_to),
        (_, came_to) => (Tone::Warn, came_to),
    };
    let took = duration(gate.duration_ms);
    out.line(tone, &format!("{} final check {} {word} in {took}", gate.call, gate.spec.name));
    out.line(Tone::Dim, &format!("  {}", gate.spec.command));
    match (&gate.full, &gate.content) {
        (Some(full), _) => {
            out.content(Tone::Plain, "  ", &docket_schema::content::Content::Blob(*full));
        }
        (None, Some(content)) => out.content(Tone::Plain, "  ", content),
        (None, None) => {}
    }
}
