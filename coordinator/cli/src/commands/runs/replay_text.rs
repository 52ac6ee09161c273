//! Formats turns for people.

use docket_schema::{
    api::{ToolCallView, TurnView},
    ids::RunId,
    run::RunStarted,
};
use serde_json::Value;

use crate::{
    context::CliContext,
    output::display::{self, TextStyle, format_duration, format_money, render_excerpt, sanitize_line},
};

/// How much of long texts is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextLength {
    /// The first lines.
    Excerpt,
    /// The full text.
    Full,
}

impl TextLength {
    const fn max_lines(self, excerpt: usize) -> usize {
        match self {
            Self::Excerpt => excerpt,
            Self::Full => usize::MAX,
        }
    }
}

/// The kinds of replay that this command performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayKind {
    /// From the log alone.
    View,
    /// With the recorded calls run again.
    VerifyWithTools,
}

/// Prints the run and the kind of replay.
pub(crate) fn print_head(cx: &CliContext, kind: ReplayKind, run: RunId, pins: &RunStarted) {
    let (name, note) = match kind {
        ReplayKind::View => {
            ("view", "from the log alone; no model is called, nothing is run, no file is changed")
        }
        ReplayKind::VerifyWithTools => (
            "verify with tools",
            "recorded calls run again in a scratch workspace; no model is called, the log and every workspace \
             stay unchanged",
        ),
    };
    let title = format!("replay ({name}) of run {}", run.short());
    display::print_line(&format!(
        "{}: {} with {}",
        cx.screen.paint(TextStyle::Bold, &title),
        pins.engine,
        sanitize_line(&pins.models.to_string())
    ));
    display::print_line(&cx.screen.paint(TextStyle::Dim, note));
}

/// Prints a turn.
pub(crate) fn print_turn(cx: &CliContext, turn: &TurnView, length: TextLength) {
    let columns = cx.screen.columns();
    let phases = turn.phases.join(", ");
    let name =
        if turn.turn == 0 { "before the first turn".to_owned() } else { format!("turn {}", turn.turn) };
    let cost =
        if turn.cost_nusd == 0 { String::new() } else { format!(", {}", format_money(turn.cost_nusd)) };
    let tokens = if turn.output_tokens == 0 {
        String::new()
    } else {
        format!("  {} tokens in, {} out{cost}", turn.input_tokens, turn.output_tokens)
    };
    display::print_line("");
    display::print_line(&format!(
        "{}{}{}",
        cx.screen.paint(TextStyle::Bold, &name),
        if phases.is_empty() { String::new() } else { format!("  {phases}") },
        cx.screen.paint(TextStyle::Dim, &tokens)
    ));
    for note in &turn.notes {
        print_block(
            &cx.screen.paint(TextStyle::Warn, &render_excerpt(note, length.max_lines(2), "  ! ", columns)),
        );
    }
    for told in &turn.told {
        print_block(
            &cx.screen.paint(TextStyle::Dim, &render_excerpt(told, length.max_lines(6), "  > ", columns)),
        );
    }
    print_block(&render_excerpt(&turn.text, length.max_lines(8), "  ", columns));
    for call in &turn.tools {
        print_call(cx, call, length);
    }
    for change in &turn.changes {
        let path = sanitize_line(&change.path.to_string()).into_owned();
        let by = change
            .by_hand
            .as_ref()
            .map_or_else(String::new, |by| format!(" manually by {}", sanitize_line(by)));
        let by = cx.screen.paint(TextStyle::Warn, &by);
        display::print_line(&format!("  {} {path}{by}", cx.screen.paint(TextStyle::Good, &change.what)));
        if let Some(diff) = &change.diff {
            print_diff(cx, diff, length);
        }
    }
    for gate in &turn.gates {
        let (style, word) = match (gate.passed, gate.came_to.as_str()) {
            (Some(true), came_to @ ("passed" | "mended")) => (TextStyle::Good, came_to),
            (Some(false), came_to @ "failed") => (TextStyle::Bad, came_to),
            (_, came_to) => (TextStyle::Warn, came_to),
        };
        let command = sanitize_line(&gate.command).into_owned();
        display::print_line(&format!(
            "  final check {}: {command} {} in {}",
            sanitize_line(&gate.name),
            cx.screen.paint(style, word),
            format_duration(gate.duration_ms)
        ));
        if gate.passed != Some(true) {
            print_block(&render_excerpt(&gate.output, length.max_lines(8), "    ", columns));
        }
    }
    if let (Some(tree), TextLength::Full) = (&turn.tree, length) {
        display::print_line(&cx.screen.paint(TextStyle::Dim, &format!("  tree {tree}")));
    }
    if let Some(ended) = &turn.ended {
        let style = if ended == "succeeded" { TextStyle::Good } else { TextStyle::Bad };
        display::print_line(&format!(
            "  {}",
            cx.screen.paint(style, &sanitize_line(&format!("the run {ended}")))
        ));
    }
}

fn print_block(text: &str) {
    if !text.trim().is_empty() {
        display::print_line(text.trim_end_matches('\n'));
    }
}

fn print_call(cx: &CliContext, call: &ToolCallView, length: TextLength) {
    let columns = cx.screen.columns();
    let (style, word) = match &call.came_to {
        Some(word) if call.failed => (TextStyle::Warn, word.as_str()),
        Some(word) => (TextStyle::Good, word.as_str()),
        None => (TextStyle::Warn, "no result"),
    };
    let args = format_arguments(&call.args);
    let head = display::truncate_to_width(
        &sanitize_line(&format!("{} {args}", call.name)),
        columns.saturating_sub(24),
    );
    let took = format_duration(call.duration_ms);
    display::print_line(&format!(
        "  {} {head} {} {}",
        cx.screen.paint(TextStyle::Dim, "$"),
        cx.screen.paint(style, word),
        cx.screen.paint(TextStyle::Dim, &took)
    ));
    let lines = if call.failed { 6 } else { 3 };
    print_block(
        &cx.screen
            .paint(TextStyle::Dim, &render_excerpt(&call.result, length.max_lines(lines), "      ", columns)),
    );
}

/// Formats arguments briefly: a single text as is, long ones by size.
fn format_arguments(args: &Value) -> String {
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

fn print_diff(cx: &CliContext, diff: &str, length: TextLength) {
    let text = render_excerpt(diff, length.max_lines(14), "    ", cx.screen.columns());
    for shown in text.lines() {
        let style = match shown.trim_start().as_bytes().first() {
            Some(b'+') => TextStyle::Good,
            Some(b'-') => TextStyle::Bad,
            Some(_) | None => TextStyle::Dim,
        };
        display::print_line(&cx.screen.paint(style, shown));
    }
}
