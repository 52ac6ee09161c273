//! What stands in the pane that is looked at: prompt, decision, tool calls. Trees, ledger and the other run
//! have files of their own. Pure: the same run, shelf and choice give the same lines.

use docket_schema::{
    content::{Content, WorkPath},
    history::{FinalCheck, ToolCall, TurnDetail, TurnSummary},
    message::ToolUse,
    run::{RunOutcome, Verdict},
};
use serde_json::Value;

use super::{
    compare,
    doc::{Doc, Tone, Writer},
    files, ledger, remarks,
    run::Run,
    shelf::{Loaded, Place, Request, Shelf, Side, Want},
};
use crate::output::display::duration;

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
    let Some(row) = run.turns().get(choice.row) else {
        out.line(Tone::Dim, "the run has not started");
        return out.end();
    };
    match choice.pane {
        Pane::Prompt if choice.request => request(&mut out, run, row),
        Pane::Prompt => prompt(&mut out, run, choice.row, row),
        Pane::Decision => decision(&mut out, run, &run.history.detail(row)),
        Pane::Calls => calls(&mut out, &run.history.detail(row)),
        Pane::Diff => files::diff(&mut out, run, choice),
        Pane::Tree => files::tree(&mut out, run, choice.row, row),
        Pane::Ledger => ledger::ledger(&mut out, run, row),
        Pane::Runs => compare::runs(&mut out, subject, choice.row),
    }
    out.end()
}

/// What the model read for the first time when it made this turn's decision: the results of the turn
/// before, and what people and the runtime said since.
fn prompt(out: &mut Writer<'_>, run: &Run, at: usize, row: &TurnSummary) {
    let detail = run.history.detail(row);
    let Some(before) = at.checked_sub(1).and_then(|at| run.turns().get(at)) else {
        out.line(Tone::Dim, "before the first turn: what the run was given");
        return given(out, run, &detail);
    };
    let before = run.history.detail(before);
    for told in remarks::told(&before) {
        out.heading(&format!("{}:", told.by));
        out.content(Tone::Plain, "  ", &told.text);
    }
    out.echo(true);
    for call in &before.calls {
        let Some(result) = &call.result else { continue };
        let tone = if call.is_ok() { Tone::Bold } else { Tone::Warn };
        out.gap();
        let (tool, label) = (&call.tool, call.outcome_label());
        out.line(tone, &format!("result of {} {}: {label}", tool.call, tool.name));
        out.content(Tone::Plain, "  ", &result.content);
    }
    for check in before.checks.iter().filter(|check| check.outcome_label() == "failed") {
        out.gap();
        out.line(Tone::Warn, &format!("final check {} failed: {}", check.name(), check.command()));
        if let Some(result) = &check.result {
            out.content(Tone::Plain, "  ", &result.content);
        }
    }
    out.echo(false);
    for call in &detail.model_calls {
        if let Some(nudge) = &call.intent.nudge {
            out.heading("the runtime adds:");
            out.block(Tone::Plain, "  ", nudge);
        }
    }
    out.gap();
    match detail.model_calls.first() {
        Some(call) => {
            let bytes = call.intent.request_bytes;
            out.line(Tone::Dim, &format!("the whole request had {bytes} bytes; x shows it, byte for byte"));
        }
        None => out.line(Tone::Dim, "the model has not been asked in this turn"),
    }
}

fn given(out: &mut Writer<'_>, run: &Run, detail: &TurnDetail) {
    for told in remarks::told(detail) {
        out.heading(&format!("{}:", told.by));
        out.content(Tone::Plain, "  ", &told.text);
    }
    if let Some(pins) = run.history.pins() {
        out.heading("the system prompt:");
        out.content(Tone::Plain, "  ", &Content::Blob(pins.prompts.system));
    }
    notes(out, run, detail);
}

fn notes(out: &mut Writer<'_>, run: &Run, detail: &TurnDetail) {
    for note in remarks::notes(run, detail) {
        out.gap();
        out.line(Tone::Warn, &format!("{}:", note.by));
        out.content(Tone::Plain, "  ", &note.text);
    }
}

fn request(out: &mut Writer<'_>, run: &Run, row: &TurnSummary) {
    let detail = run.history.detail(row);
    let Some(call) = detail.model_calls.last() else {
        return out.line(Tone::Dim, "the model has not been asked in this turn");
    };
    out.line(
        Tone::Dim,
        &format!("the exact request to {}, rendered again from the log; x goes back", call.intent.model),
    );
    let Some(Loaded::Request(request)) = out.need(Want::Request(Side::This, call.place), "") else { return };
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

fn decision(out: &mut Writer<'_>, run: &Run, detail: &TurnDetail) {
    notes(out, run, detail);
    if detail.answers().next().is_none() {
        out.gap();
        out.line(Tone::Dim, "no answer of a model in this turn");
    }
    for text in detail.texts() {
        out.gap();
        out.content(Tone::Plain, "", text);
    }
    for call in &detail.calls {
        out.gap();
        made(out, &call.tool);
        out.echo(true);
        let tone = if call.is_ok() { Tone::Good } else { Tone::Warn };
        out.line(tone, &format!("  {}", call.outcome_label()));
        out.echo(false);
    }
    if let Some(end) = &detail.end {
        out.gap();
        let tone = if *end == RunOutcome::Succeeded { Tone::Good } else { Tone::Bad };
        out.line(tone, &format!("the run {end}"));
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

fn calls(out: &mut Writer<'_>, detail: &TurnDetail) {
    if detail.calls.is_empty() && detail.checks.is_empty() {
        out.line(Tone::Dim, "no call in this turn");
    }
    for call in &detail.calls {
        out.gap();
        one_call(out, call);
    }
    for check in &detail.checks {
        out.gap();
        one_check(out, check);
    }
}

fn one_call(out: &mut Writer<'_>, call: &ToolCall) {
    let took = call.result.as_ref().map_or_else(String::new, |e| format!(" in {}", duration(e.duration_ms)));
    let tone = if call.is_ok() { Tone::Good } else { Tone::Bad };
    let (tool, label) = (&call.tool, call.outcome_label());
    out.line(tone, &format!("{} {}: {label}{took}", tool.call, tool.name));
    out.echo(true);
    out.line(Tone::Dim, &format!("  {}", crate::output::events::call(tool)));
    out.echo(false);
    match call.intent.as_ref().map(|intent| &intent.policy) {
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
            out.content(Tone::Plain, "  ", &Content::Blob(full));
        }
        None => out.content(Tone::Plain, "  ", &result.content),
    }
}

fn one_check(out: &mut Writer<'_>, check: &FinalCheck) {
    let (tone, word) = match (check.passed(), check.outcome_label()) {
        (Some(true), word @ ("passed" | "mended")) => (Tone::Good, word),
        (Some(false), word @ "failed") => (Tone::Bad, word),
        (_, word) => (Tone::Warn, word),
    };
    let took = duration(check.duration_ms());
    out.line(tone, &format!("{} final check {} {word} in {took}", check.intent.call, check.name()));
    out.line(Tone::Dim, &format!("  {}", check.command()));
    if let Some(result) = &check.result {
        let whole = result.full.map(Content::Blob);
        out.content(Tone::Plain, "  ", whole.as_ref().unwrap_or(&result.content));
    }
}
