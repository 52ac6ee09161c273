//! Pages of the panes: prompt, decision, tool calls. Trees, ledger and comparison have their own files. Pure:
//! the same run, cache and selection give the same lines.

use docket_schema::{
    content::{Content, WorkspacePath},
    history::{FinalCheck, ToolCall, TurnDetail, TurnSummary},
    message::ToolUse,
    run::{PolicyVerdict, RunOutcome},
};
use serde_json::Value;

use super::{
    comparison,
    content_cache::{ContentCache, ContentRequest, LoadedContent, RebuiltRequest, RunSide, TreePosition},
    files, ledger,
    pane_text::{PaneText, PaneWriter, TextTone},
    run::Run,
    turn_messages,
};
use crate::output::display::format_duration;

/// The panes, in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PaneKind {
    /// New messages to the model.
    Prompt,
    /// The model's reply and its calls.
    Decision,
    /// Each call with its full output, and the final checks.
    Calls,
    /// The changes of the turn.
    Diff,
    /// The files after the turn.
    Tree,
    /// Tokens, cost, hashes, positions, times.
    Ledger,
    /// Comparison with another run.
    Runs,
}

impl PaneKind {
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

/// Selects a page: everything that its lines depend on, except the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageSelection {
    /// The row of the timeline.
    pub(super) row: usize,
    pub(super) pane: PaneKind,
    /// The row to compare with, in the diff pane.
    pub(super) compared_row: Option<usize>,
    /// Whether the exact request replaces the new messages.
    pub(super) request: bool,
    /// A file that replaces the pane.
    pub(super) file: Option<(TreePosition, WorkspacePath)>,
}

/// The runs that a page is rendered from.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRuns<'a> {
    /// The run being browsed.
    pub(super) run: &'a Run,
    /// The run it is compared with.
    pub(super) other: Option<&'a Run>,
}

/// Renders the page; returns it with the content that must be fetched to complete it.
pub(super) fn render_page(
    subject: PageRuns<'_>,
    choice: &PageSelection,
    shelf: &ContentCache,
) -> (PaneText, Vec<ContentRequest>) {
    let mut out = PaneWriter::new(shelf);
    let run = subject.run;
    if let Some((place, path)) = &choice.file {
        files::render_file(&mut out, *place, path);
        return out.finish();
    }
    let Some(row) = run.turns().get(choice.row) else {
        out.write_line(TextTone::Dim, "the run has not started");
        return out.finish();
    };
    match choice.pane {
        PaneKind::Prompt if choice.request => render_request(&mut out, run, row),
        PaneKind::Prompt => render_prompt(&mut out, run, choice.row, row),
        PaneKind::Decision => render_decision(&mut out, run, &run.history.turn_detail(row)),
        PaneKind::Calls => render_calls(&mut out, &run.history.turn_detail(row)),
        PaneKind::Diff => files::render_diff(&mut out, run, choice),
        PaneKind::Tree => files::render_tree(&mut out, run, choice.row, row),
        PaneKind::Ledger => ledger::render_ledger(&mut out, run, row),
        PaneKind::Runs => comparison::render_comparison(&mut out, subject, choice.row),
    }
    out.finish()
}

/// Renders what the model read for the first time before this turn's decision: the results of the previous
/// turn, and messages of people and the runtime since.
fn render_prompt(out: &mut PaneWriter<'_>, run: &Run, at: usize, row: &TurnSummary) {
    let detail = run.history.turn_detail(row);
    let Some(before) = at.checked_sub(1).and_then(|at| run.turns().get(at)) else {
        out.write_line(TextTone::Dim, "before the first turn: the run's input");
        return render_initial_prompt(out, run, &detail);
    };
    let before = run.history.turn_detail(before);
    for told in turn_messages::messages_to_model(&before) {
        out.write_heading(&format!("{}:", told.by));
        out.write_content(TextTone::Plain, "  ", &told.text);
    }
    out.set_repeated(true);
    for call in &before.calls {
        let Some(result) = &call.result else { continue };
        let tone = if call.is_ok() { TextTone::Bold } else { TextTone::Warn };
        out.write_gap();
        let (tool, label) = (&call.tool, call.outcome_label());
        out.write_line(tone, &format!("result of {} {}: {label}", tool.call, tool.name));
        out.write_content(TextTone::Plain, "  ", &result.content);
    }
    for check in before.checks.iter().filter(|check| check.outcome_label() == "failed") {
        out.write_gap();
        out.write_line(TextTone::Warn, &format!("final check {} failed: {}", check.name(), check.command()));
        if let Some(result) = &check.result {
            out.write_content(TextTone::Plain, "  ", &result.content);
        }
    }
    out.set_repeated(false);
    for call in &detail.model_calls {
        if let Some(nudge) = &call.intent.nudge {
            out.write_heading("the runtime adds:");
            out.write_block(TextTone::Plain, "  ", nudge);
        }
    }
    out.write_gap();
    match detail.model_calls.first() {
        Some(call) => {
            let bytes = call.intent.request_bytes;
            out.write_line(
                TextTone::Dim,
                &format!("the full request has {bytes} bytes; x shows it, byte for byte"),
            );
        }
        None => out.write_line(TextTone::Dim, "no model call in this turn yet"),
    }
}

fn render_initial_prompt(out: &mut PaneWriter<'_>, run: &Run, detail: &TurnDetail) {
    for told in turn_messages::messages_to_model(detail) {
        out.write_heading(&format!("{}:", told.by));
        out.write_content(TextTone::Plain, "  ", &told.text);
    }
    if let Some(pins) = run.history.pins() {
        out.write_heading("the system prompt:");
        out.write_content(TextTone::Plain, "  ", &Content::Blob(pins.prompts.system));
    }
    render_notes(out, run, detail);
}

fn render_notes(out: &mut PaneWriter<'_>, run: &Run, detail: &TurnDetail) {
    for note in turn_messages::other_events(run, detail) {
        out.write_gap();
        out.write_line(TextTone::Warn, &format!("{}:", note.by));
        out.write_content(TextTone::Plain, "  ", &note.text);
    }
}

fn render_request(out: &mut PaneWriter<'_>, run: &Run, row: &TurnSummary) {
    let detail = run.history.turn_detail(row);
    let Some(call) = detail.model_calls.last() else {
        return out.write_line(TextTone::Dim, "no model call in this turn yet");
    };
    out.write_line(
        TextTone::Dim,
        &format!("the exact request to {}, rebuilt from the log; press x to go back", call.intent.model),
    );
    let Some(LoadedContent::Request(request)) =
        out.require(ContentRequest::Request(RunSide::This, call.event_index), "")
    else {
        return;
    };
    let RebuiltRequest { body, hash, recorded } = &*request;
    if hash == recorded {
        out.write_line(
            TextTone::Good,
            &format!("{} bytes; their hash matches the recorded one: {hash}", body.len()),
        );
    } else {
        out.write_line(
            TextTone::Bad,
            &format!("its hash {hash} does NOT match the recorded one: {recorded}"),
        );
    }
    out.write_gap();
    match std::str::from_utf8(body) {
        Ok(text) => out.write_block(TextTone::Plain, "", &pretty_print_json(text)),
        Err(_) => out.write_bytes(TextTone::Plain, "", body),
    }
}

/// Adds line feeds and blanks between the tokens of JSON, keeping all its bytes in order.
fn pretty_print_json(json: &str) -> String {
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

fn render_decision(out: &mut PaneWriter<'_>, run: &Run, detail: &TurnDetail) {
    render_notes(out, run, detail);
    if detail.model_answers().next().is_none() {
        out.write_gap();
        out.write_line(TextTone::Dim, "no model reply in this turn");
    }
    for text in detail.answer_texts() {
        out.write_gap();
        out.write_content(TextTone::Plain, "", text);
    }
    for call in &detail.calls {
        out.write_gap();
        render_tool_call(out, &call.tool);
        out.set_repeated(true);
        let tone = if call.is_ok() { TextTone::Good } else { TextTone::Warn };
        out.write_line(tone, &format!("  {}", call.outcome_label()));
        out.set_repeated(false);
    }
    if let Some(end) = &detail.end {
        out.write_gap();
        let tone = if *end == RunOutcome::Succeeded { TextTone::Good } else { TextTone::Bad };
        out.write_line(tone, &format!("the run {end}"));
    }
}

/// Renders a call as the model made it.
fn render_tool_call(out: &mut PaneWriter<'_>, call: &ToolUse) {
    out.write_line(TextTone::Bold, &format!("{} {}", call.call, call.name));
    if let Some(raw) = &call.malformed {
        out.write_line(TextTone::Bad, "  the arguments were not a JSON object:");
        return out.write_block(TextTone::Plain, "  ", raw);
    }
    match &call.args {
        Value::Object(fields) => {
            for (name, value) in fields {
                render_argument(out, name, value);
            }
        }
        args @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            out.write_line(TextTone::Plain, &format!("  {args}"));
        }
    }
}

fn render_argument(out: &mut PaneWriter<'_>, name: &str, value: &Value) {
    match value {
        Value::String(text) if text.contains('\n') => {
            out.write_line(TextTone::Dim, &format!("  {name}:"));
            out.write_block(TextTone::Plain, "    ", text);
        }
        Value::String(text) => match WorkspacePath::new(text.as_bytes()) {
            Some(path) if name == "path" || name == "test_path" => {
                out.write_file_line(TextTone::Plain, &format!("  {name}: {text}"), &path);
            }
            Some(_) | None => out.write_block(TextTone::Plain, "  ", &format!("{name}: {text}")),
        },
        Value::Array(_) | Value::Object(_) => {
            out.write_line(TextTone::Dim, &format!("  {name}:"));
            let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
            out.write_block(TextTone::Plain, "    ", &pretty);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            out.write_line(TextTone::Plain, &format!("  {name}: {value}"));
        }
    }
}

fn render_calls(out: &mut PaneWriter<'_>, detail: &TurnDetail) {
    if detail.calls.is_empty() && detail.checks.is_empty() {
        out.write_line(TextTone::Dim, "no call in this turn");
    }
    for call in &detail.calls {
        out.write_gap();
        render_call(out, call);
    }
    for check in &detail.checks {
        out.write_gap();
        render_check(out, check);
    }
}

fn render_call(out: &mut PaneWriter<'_>, call: &ToolCall) {
    let took =
        call.result.as_ref().map_or_else(String::new, |e| format!(" in {}", format_duration(e.duration_ms)));
    let tone = if call.is_ok() { TextTone::Good } else { TextTone::Bad };
    let (tool, label) = (&call.tool, call.outcome_label());
    out.write_line(tone, &format!("{} {}: {label}{took}", tool.call, tool.name));
    out.set_repeated(true);
    out.write_line(TextTone::Dim, &format!("  {}", crate::output::event_format::format_tool_call(tool)));
    out.set_repeated(false);
    match call.intent.as_ref().map(|intent| &intent.policy) {
        Some(PolicyVerdict::Deny { rule, reason }) => {
            out.write_line(TextTone::Warn, &format!("  refused by rule {rule}: {reason}"));
        }
        Some(PolicyVerdict::Ask { rule, question }) => {
            out.write_line(TextTone::Warn, &format!("  rule {rule} asks a person: {question}"));
        }
        Some(PolicyVerdict::Allow { .. }) | None => {}
    }
    let Some(result) = &call.result else {
        return out.write_line(TextTone::Warn, "  no result in the log");
    };
    match result.full {
        // The full output contains what the model read and what was cut.
        Some(full) => {
            out.write_line(
                TextTone::Dim,
                &format!("  the full output, {} bytes; the model read it shortened", full.bytes),
            );
            out.write_content(TextTone::Plain, "  ", &Content::Blob(full));
        }
        None => out.write_content(TextTone::Plain, "  ", &result.content),
    }
}

fn render_check(out: &mut PaneWriter<'_>, check: &FinalCheck) {
    let (tone, word) = match (check.passed(), check.outcome_label()) {
        (Some(true), word @ ("passed" | "mended")) => (TextTone::Good, word),
        (Some(false), word @ "failed") => (TextTone::Bad, word),
        (_, word) => (TextTone::Warn, word),
    };
    let took = format_duration(check.duration_ms());
    out.write_line(tone, &format!("{} final check {} {word} in {took}", check.intent.call, check.name()));
    out.write_line(TextTone::Dim, &format!("  {}", check.command()));
    if let Some(result) = &check.result {
        let whole = result.full.map(Content::Blob);
        out.write_content(TextTone::Plain, "  ", whole.as_ref().unwrap_or(&result.content));
    }
}
