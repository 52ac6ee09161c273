//! Turns as people read them.

use docket_schema::{
    ids::RunId,
    run::RunStarted,
    wire::{CallView, TurnView},
};
use serde_json::Value;

use crate::{
    context::Context,
    output::display::{self, Style, duration, excerpt, line, money},
};

/// How much of long texts is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Their first lines.
    Excerpt,
    /// All.
    Whole,
}

impl Length {
    const fn lines(self, excerpt: usize) -> usize {
        match self {
            Self::Excerpt => excerpt,
            Self::Whole => usize::MAX,
        }
    }
}

/// The kinds of replay that are done here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The log alone.
    View,
    /// The calls run again.
    VerifyWithTools,
}

/// Says which run, and which kind of replay this is.
pub(crate) fn head(cx: &Context, kind: Kind, run: RunId, pins: &RunStarted) {
    let (name, note) = match kind {
        Kind::View => ("view", "from the log alone; no model is asked, nothing is run, no file is touched"),
        Kind::VerifyWithTools => (
            "verify with tools",
            "recorded calls run again in a scratch workspace; no model is asked, the log and every workspace \
             stay as they are",
        ),
    };
    let title = format!("replay ({name}) of run {}", run.short());
    display::say(&format!(
        "{}: {} with {}",
        cx.screen.paint(Style::Bold, &title),
        pins.engine,
        line(&pins.models.to_string())
    ));
    display::say(&cx.screen.paint(Style::Dim, note));
}

/// Prints a turn.
pub(crate) fn turn(cx: &Context, turn: &TurnView, length: Length) {
    let columns = cx.screen.columns();
    let phases = turn.phases.join(", ");
    let name =
        if turn.turn == 0 { "before the first turn".to_owned() } else { format!("turn {}", turn.turn) };
    let cost = if turn.cost_nusd == 0 { String::new() } else { format!(", {}", money(turn.cost_nusd)) };
    let tokens = if turn.output_tokens == 0 {
        String::new()
    } else {
        format!("  {} tokens in, {} out{cost}", turn.input_tokens, turn.output_tokens)
    };
    display::say("");
    display::say(&format!(
        "{}{}{}",
        cx.screen.paint(Style::Bold, &name),
        if phases.is_empty() { String::new() } else { format!("  {phases}") },
        cx.screen.paint(Style::Dim, &tokens)
    ));
    for note in &turn.notes {
        say_block(&cx.screen.paint(Style::Warn, &excerpt(note, length.lines(2), "  ! ", columns)));
    }
    for told in &turn.told {
        say_block(&cx.screen.paint(Style::Dim, &excerpt(told, length.lines(6), "  > ", columns)));
    }
    say_block(&excerpt(&turn.text, length.lines(8), "  ", columns));
    for call in &turn.tools {
        say_call(cx, call, length);
    }
    for change in &turn.changes {
        let path = line(&change.path.to_string()).into_owned();
        let by = change.by_hand.as_ref().map_or_else(String::new, |by| format!(" by hand: {}", line(by)));
        let by = cx.screen.paint(Style::Warn, &by);
        display::say(&format!("  {} {path}{by}", cx.screen.paint(Style::Good, &change.what)));
        if let Some(diff) = &change.diff {
            say_diff(cx, diff, length);
        }
    }
    for gate in &turn.gates {
        let (style, word) = match (gate.passed, gate.came_to.as_str()) {
            (Some(true), came_to @ ("passed" | "mended")) => (Style::Good, came_to),
            (Some(false), came_to @ "failed") => (Style::Bad, came_to),
            (_, came_to) => (Style::Warn, came_to),
        };
        let command = line(&gate.command).into_owned();
        display::say(&format!(
            "  final check {}: {command} {} in {}",
            line(&gate.name),
            cx.screen.paint(style, word),
            duration(gate.duration_ms)
        ));
        if gate.passed != Some(true) {
            say_block(&excerpt(&gate.output, length.lines(8), "    ", columns));
        }
    }
    if let (Some(tree), Length::Whole) = (&turn.tree, length) {
        display::say(&cx.screen.paint(Style::Dim, &format!("  tree {tree}")));
    }
    if let Some(ended) = &turn.ended {
        let style = if ended == "succeeded" { Style::Good } else { Style::Bad };
        display::say(&format!("  {}", cx.screen.paint(style, &line(&format!("the run {ended}")))));
    }
}

fn say_block(text: &str) {
    if !text.trim().is_empty() {
        display::say(text.trim_end_matches('\n'));
    }
}

fn say_call(cx: &Context, call: &CallView, length: Length) {
    let columns = cx.screen.columns();
    let (style, word) = match &call.came_to {
        Some(word) if call.failed => (Style::Warn, word.as_str()),
        Some(word) => (Style::Good, word.as_str()),
        None => (Style::Warn, "no result"),
    };
    let args = arguments(&call.args);
    let head = display::fit(&line(&format!("{} {args}", call.name)), columns.saturating_sub(24));
    let took = duration(call.duration_ms);
    display::say(&format!(
        "  {} {head} {} {}",
        cx.screen.paint(Style::Dim, "$"),
        cx.screen.paint(style, word),
        cx.screen.paint(Style::Dim, &took)
    ));
    let lines = if call.failed { 6 } else { 3 };
    say_block(&cx.screen.paint(Style::Dim, &excerpt(&call.result, length.lines(lines), "      ", columns)));
}

/// Arguments in few words: a lone text as it is, long ones by their size.
fn arguments(args: &Value) -> String {
    let Value::Object(fields) = args else { return args.to_string() };
    let mut shown = Vec::new();
    for (name, value) in fields {
        shown.push(match value {
            Value::String(text) if text.len() > 60 || text.contains('\n') => {
                format!("{name}=({} bytes)", text.len())
            }
            Value::String(text) => format!("{name}={text}"),
            Value::Array(items) => format!("{name}=({})", items.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => format!("{name}={value}"),
        });
    }
    shown.join(" ")
}

fn say_diff(cx: &Context, diff: &str, length: Length) {
    let text = excerpt(diff, length.lines(14), "    ", cx.screen.columns());
    for shown in text.lines() {
        let style = match shown.trim_start().as_bytes().first() {
            Some(b'+') => Style::Good,
            Some(b'-') => Style::Bad,
            Some(_) | None => Style::Dim,
        };
        display::say(&cx.screen.paint(style, shown));
    }
}
