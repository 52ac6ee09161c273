//! Draws a [`StepperState`] into a buffer of cells. Pure.
//!
//! Uses at most sixteen colors, or none; everything that a color means is also written in words. All texts are
//! sanitized already, or here.

use docket_schema::{
    history::{HistoryStatus, TurnOutcome, TurnSummary},
    run::RunOutcome,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{
    comparison::TurnComparison,
    content_cache::{ContentRequest, LoadedContent},
    keys::KEY_HELP,
    layout::{COLUMNS_MIN, ROWS_MIN, ScreenLayout},
    page::PaneKind,
    pane_text::TextTone,
    state::{KeyFocus, PromptInput, PromptKind, RunAction, ScreenOverlay, StepperState},
};
use crate::output::display::{self, format_money, truncate_to_width};

/// Whether colors are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorPalette {
    /// Sixteen colors.
    Colors,
    /// No colors: only bold, dim and reverse.
    Plain,
}

impl ColorPalette {
    fn style_for(self, tone: TextTone) -> Style {
        let color = |color| match self {
            Self::Colors => Style::default().fg(color),
            Self::Plain => Style::default(),
        };
        match tone {
            TextTone::Plain => Style::default(),
            TextTone::Bold => Style::default().add_modifier(Modifier::BOLD),
            TextTone::Dim => Style::default().add_modifier(Modifier::DIM),
            TextTone::Good => color(Color::Green),
            TextTone::Bad => color(Color::Red),
            TextTone::Warn => color(Color::Yellow),
        }
    }
}

const REVERSED_STYLE: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Writes to a buffer without leaving it.
struct ScreenWriter<'a> {
    buffer: &'a mut Buffer,
    palette: ColorPalette,
}

impl ScreenWriter<'_> {
    /// Writes at most `width` columns of sanitized text at (x, y); returns the next column.
    fn write_at(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y >= area.bottom() || x >= area.right() {
            return x;
        }
        let width = width.min(area.right() - x);
        self.buffer.set_stringn(x, y, text, usize::from(width), style).0
    }

    fn write_line(&mut self, y: u16, text: &str, style: Style) {
        let columns = self.buffer.area.width;
        self.write_at(0, y, columns, &truncate_to_width(text, usize::from(columns)), style);
    }

    fn fill_row(&mut self, y: u16, style: Style) {
        let area = Rect { x: 0, y, width: self.buffer.area.width, height: 1 };
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }
}

/// Draws the screen.
pub(super) fn draw_screen(model: &StepperState, palette: ColorPalette, buffer: &mut Buffer) {
    let layout = model.layout();
    let mut pen = ScreenWriter { buffer, palette };
    if !layout.is_large_enough() {
        let text = format!("too small: at least {COLUMNS_MIN}×{ROWS_MIN}");
        return pen.write_line(0, &text, Style::default());
    }
    draw_header(&mut pen, model);
    let body = draw_timeline(&mut pen, model, layout);
    draw_tabs(&mut pen, model, body);
    draw_pane(&mut pen, model, layout, body + 1);
    draw_message(&mut pen, model, layout.rows - 1);
    match &model.overlay {
        ScreenOverlay::Help { top } => draw_help(&mut pen, layout, *top),
        ScreenOverlay::Confirm(act) => draw_confirmation(&mut pen, model, *act, layout),
        ScreenOverlay::None | ScreenOverlay::Prompt(_) => {}
    }
}

fn draw_header(pen: &mut ScreenWriter<'_>, model: &StepperState) {
    let run = &model.run;
    let mut text = format!("run {} {}", run.id.short(), run.history.status().label());
    if let Some(pins) = run.history.pins() {
        text.push_str(&format!(", {} with {}", pins.engine, pins.models));
    }
    if let HistoryStatus::Ended(RunOutcome::Failed { message, .. }) = run.history.status() {
        text.push_str(&format!(": {message}"));
    }
    let kind = " view: from the log alone ";
    let columns = usize::from(pen.buffer.area.width);
    let room = columns.saturating_sub(kind.width() + 1);
    let text = format!(" {}", truncate_to_width(&display::sanitize_line(&text), room.saturating_sub(1)));
    pen.fill_row(0, REVERSED_STYLE);
    pen.write_at(0, 0, pen.buffer.area.width, &text, REVERSED_STYLE);
    if room > kind.width() / 2 {
        let from = u16::try_from(columns.saturating_sub(kind.width())).unwrap_or(0);
        pen.write_at(from, 0, pen.buffer.area.width, kind, REVERSED_STYLE);
    }
}

/// Widths of the timeline's columns: mark, turn, phase, outcome, cost; the tools take the rest.
const TURN: usize = 5;
const PHASE: usize = 10;
const FATE: usize = 13;
const COST: usize = 9;

/// Draws the timeline; returns the row after it.
fn draw_timeline(pen: &mut ScreenWriter<'_>, model: &StepperState, layout: ScreenLayout) -> u16 {
    let head = format!(
        "   {:>TURN$} {:<PHASE$} {:<FATE$} {:>COST$}  {}",
        "TURN", "PHASE", "OUTCOME", "COST", "TOOLS"
    );
    pen.write_line(1, &head, pen.palette.style_for(TextTone::Dim));
    let same = match model.comparison_request().and_then(|want| model.cache.get(&want)) {
        Some(LoadedContent::Comparison(same)) => Some(same),
        Some(_) | None => None,
    };
    for nth in 0..layout.timeline {
        let at = model.timeline_top + usize::from(nth);
        let Some(row) = model.run.turns().get(at) else { break };
        let same = same.as_ref().and_then(|same| same.get(at).copied());
        draw_turn(pen, model, 2 + nth, (at, row), same);
    }
    2 + layout.timeline
}

fn draw_turn(
    pen: &mut ScreenWriter<'_>,
    model: &StepperState,
    y: u16,
    (at, row): (usize, &TurnSummary),
    same: Option<TurnComparison>,
) {
    let here = at == model.row;
    let mark = if model.mark == Some(at) { "*" } else { " " };
    let same = same.map_or(" ", TurnComparison::symbol);
    let phase = row.phase.map_or("", docket_schema::run::RunPhase::as_str);
    let text = format!(
        "{}{mark}{same}{:>TURN$} {phase:<PHASE$} ",
        if here { ">" } else { " " },
        row.turn.to_string()
    );
    let base = match (here, model.focus) {
        (true, KeyFocus::Timeline) => REVERSED_STYLE,
        (true, KeyFocus::Pane) => pen.palette.style_for(TextTone::Bold),
        (false, KeyFocus::Timeline | KeyFocus::Pane) => Style::default(),
    };
    if here {
        pen.fill_row(y, base);
    }
    let width = pen.buffer.area.width;
    let x = pen.write_at(0, y, width, &text, base);
    let tone = match row.outcome {
        TurnOutcome::Ok | TurnOutcome::Ended("succeeded") => TextTone::Good,
        TurnOutcome::ToolFailed(_) | TurnOutcome::Blocked | TurnOutcome::InProgress => TextTone::Warn,
        TurnOutcome::CheckFailed | TurnOutcome::ModelFailed => TextTone::Bad,
        TurnOutcome::Ended(word) => {
            if word == "failed" {
                TextTone::Bad
            } else {
                TextTone::Warn
            }
        }
    };
    let x = pen.write_at(
        x,
        y,
        width,
        &format!("{:<FATE$}", row.outcome.label()),
        base.patch(pen.palette.style_for(tone)),
    );
    let tools: Vec<String> = row
        .tools
        .iter()
        .map(|(name, times)| if *times > 1 { format!("{name}×{times}") } else { name.clone() })
        .collect();
    let tools = if row.turn.0 == 0 { "(before the first turn)".to_owned() } else { tools.join(" ") };
    let rest = format!(" {:>COST$}  {}", format_money(row.cost.nusd), display::sanitize_line(&tools));
    let room = usize::from(width.saturating_sub(x));
    pen.write_at(x, y, width, &truncate_to_width(&rest, room), base);
}

fn draw_tabs(pen: &mut ScreenWriter<'_>, model: &StepperState, y: u16) {
    pen.fill_row(y, pen.palette.style_for(TextTone::Dim));
    let width = pen.buffer.area.width;
    let mut x = 0;
    for (nth, pane) in PaneKind::ALL.iter().enumerate() {
        if *pane == PaneKind::Runs && model.other.is_none() && model.pane != PaneKind::Runs {
            continue;
        }
        let style = match (*pane == model.pane, model.focus) {
            (true, KeyFocus::Pane) => REVERSED_STYLE,
            (true, KeyFocus::Timeline) => {
                pen.palette.style_for(TextTone::Bold).add_modifier(Modifier::UNDERLINED)
            }
            (false, KeyFocus::Timeline | KeyFocus::Pane) => pen.palette.style_for(TextTone::Dim),
        };
        x = pen.write_at(x + 1, y, width, &format!("{}{}", nth + 1, pane.name()), style);
    }
    let what = match (&model.file, model.current_turn()) {
        (Some(path), Some(row)) => format!("{path} after turn {}", row.turn),
        (None, _) if model.comparing && model.pane == PaneKind::Diff => "compared with the mark".to_owned(),
        (None, _) if model.shows_request && model.pane == PaneKind::Prompt => "the exact request".to_owned(),
        (Some(_) | None, _) => String::new(),
    };
    let end = format_scroll_position(model);
    let room = usize::from(width).saturating_sub(usize::from(x) + end.width() + 3);
    pen.write_at(
        x + 2,
        y,
        width,
        &truncate_to_width(&display::sanitize_line(&what), room),
        pen.palette.style_for(TextTone::Bold),
    );
    let from = width.saturating_sub(u16::try_from(end.width()).unwrap_or(width));
    pen.write_at(from, y, width, &end, pen.palette.style_for(TextTone::Dim));
}

/// Formats the visible part of the page.
fn format_scroll_position(model: &StepperState) -> String {
    let rows = model.page.rows.len();
    let pane = usize::from(model.layout().pane);
    if rows <= pane {
        return String::new();
    }
    format!(" {}-{} of {rows}", model.scroll + 1, (model.scroll + pane).min(rows))
}

fn draw_pane(pen: &mut ScreenWriter<'_>, model: &StepperState, layout: ScreenLayout, top: u16) {
    let query = model.search.query.as_deref();
    for nth in 0..layout.pane {
        let at = model.scroll + usize::from(nth);
        let Some(row) = model.page.rows.get(at) else { break };
        let Some(line) = model.page.doc.lines.get(row.line) else { break };
        let text = line.text.get(row.from..row.to).unwrap_or("");
        let (y, style) = (top + nth, pen.palette.style_for(line.tone));
        pen.write_at(0, y, layout.columns, text, style);
        if let Some(query) = query {
            highlight_matches(pen, y, text, query);
        }
        if model.focus == KeyFocus::Pane && at == model.cursor {
            pen.fill_row(y, REVERSED_STYLE);
        } else if model.search.match_line == Some(row.line) {
            pen.fill_row(y, pen.palette.style_for(TextTone::Bold));
        }
    }
}

/// Underlines search matches.
fn highlight_matches(pen: &mut ScreenWriter<'_>, y: u16, text: &str, query: &str) {
    let exact = query.chars().any(char::is_uppercase);
    let folded: Vec<(char, u16)> = text
        .chars()
        .map(|c| {
            let width = u16::try_from(c.width().unwrap_or(0)).unwrap_or(0);
            (if exact { c } else { c.to_lowercase().next().unwrap_or(c) }, width)
        })
        .collect();
    let query: Vec<char> = query.chars().collect();
    let mut x = 0;
    for (at, (_, width)) in folded.iter().enumerate() {
        let fits = folded.len() - at >= query.len()
            && folded[at..].iter().zip(&query).all(|((have, _), want)| have == want);
        if fits {
            let length: u16 = folded[at..at + query.len()].iter().map(|(_, width)| width).sum();
            let area = Rect { x, y, width: length, height: 1 };
            let style = Style::default().add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
            pen.buffer.set_style(area.intersection(pen.buffer.area), style);
        }
        x = x.saturating_add(*width);
    }
}

fn draw_message(pen: &mut ScreenWriter<'_>, model: &StepperState, y: u16) {
    if let ScreenOverlay::Prompt(PromptInput { kind: what, text }) = &model.overlay {
        let asked = match what {
            PromptKind::Search => "search: ",
            PromptKind::Open => "open file: ",
            PromptKind::OtherRun => "other run: ",
        };
        // The end of the typed text stays visible.
        let room = usize::from(pen.buffer.area.width).saturating_sub(asked.width() + 1);
        let text = display::sanitize_line(text).into_owned();
        let from = text.char_indices().rev().take(room).last().map_or(0, |(at, _)| at);
        return pen.write_line(
            y,
            &format!("{asked}{}▏", &text[from..]),
            pen.palette.style_for(TextTone::Bold),
        );
    }
    match &model.message {
        Some((tone, text)) => pen.write_line(y, &display::sanitize_line(text), pen.palette.style_for(*tone)),
        None => {
            let hints = match (&model.file, model.focus) {
                (Some(_), _) => "j/k scroll  [ ] turn before/after  / search  Esc back  ? help",
                (None, KeyFocus::Pane) => {
                    "j/k line  Enter open file  [ ] turn  Tab pane  / search  Esc back  ? help"
                }
                (None, KeyFocus::Timeline) => {
                    "j/k turn  Tab pane  Enter read it  e failure  / search  ? help  q quit"
                }
            };
            pen.write_line(y, hints, pen.palette.style_for(TextTone::Dim));
        }
    }
}

/// Clears a box in the middle and returns its corner; its lines fit into `width`.
fn draw_box(pen: &mut ScreenWriter<'_>, layout: ScreenLayout, title: &str, lines: &[(String, Style)]) {
    let widest = lines.iter().map(|(text, _)| text.width()).max().unwrap_or(0).max(title.width() + 4);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(layout.columns);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(layout.rows);
    let (x, y) = ((layout.columns - width) / 2, (layout.rows - height) / 2);
    let inner = usize::from(width.saturating_sub(2));
    let rule = "─".repeat(inner);
    let head = format!("┌─ {} {}", truncate_to_width(title, inner.saturating_sub(3)), rule);
    let head: String = head.chars().take(inner + 1).collect();
    pen.write_at(x, y, width, &format!("{head}┐"), Style::default());
    for (nth, (text, style)) in lines.iter().take(usize::from(height.saturating_sub(2))).enumerate() {
        let row = y + 1 + u16::try_from(nth).unwrap_or(0);
        let blank = Rect { x, y: row, width, height: 1 }.intersection(pen.buffer.area);
        pen.buffer.set_style(blank, Style::reset());
        pen.write_at(x, row, width, &format!("│{}│", " ".repeat(inner)), Style::default());
        pen.write_at(
            x + 2,
            row,
            width.saturating_sub(4),
            &truncate_to_width(text, inner.saturating_sub(2)),
            *style,
        );
    }
    pen.write_at(x, y + height - 1, width, &format!("└{rule}┘"), Style::default());
}

fn draw_help(pen: &mut ScreenWriter<'_>, layout: ScreenLayout, top: usize) {
    let room = usize::from(layout.rows.saturating_sub(4)).max(1);
    let shown = KEY_HELP.iter().skip(top).take(room);
    let lines: Vec<(String, Style)> = shown
        .map(|(keys, what)| match what.is_empty() {
            true => ((*keys).to_owned(), pen.palette.style_for(TextTone::Bold)),
            false => (format!("  {keys:<20} {what}"), Style::default()),
        })
        .collect();
    let title = if KEY_HELP.len() > room {
        "keys (j/k scroll, any other key closes)"
    } else {
        "keys (any key closes)"
    };
    draw_box(pen, layout, title, &lines);
}

fn draw_confirmation(pen: &mut ScreenWriter<'_>, model: &StepperState, act: RunAction, layout: ScreenLayout) {
    let plain = |text: &str| (text.to_owned(), Style::default());
    let run = model.run.id.short();
    let (title, what, command) = match act {
        RunAction::Fork(turn) => (
            "fork",
            format!("A new task continues at the end of turn {turn}, with its files; this run stays."),
            format!("docket fork {run} --turn {turn}"),
        ),
        RunAction::Resume(turn) => (
            "resume",
            format!("A new run of this task continues at the end of turn {turn}, with its files."),
            format!("docket resume {run} --turn {turn}"),
        ),
    };
    let mut lines = vec![plain(&what)];
    if let (RunAction::Resume(_), true) = (act, model.is_open()) {
        lines.push(plain("This run is fenced first and ends as superseded."));
    }
    lines.push(plain(""));
    lines.push((format!("  {command}"), pen.palette.style_for(TextTone::Bold)));
    lines.push(plain(""));
    let last = match model.can_perform(act) {
        Some(true) => plain("y confirms, n cancels"),
        Some(false) => {
            let ends = match model.cache.get(&ContentRequest::TurnEnds(model.run.events().len())) {
                Some(LoadedContent::TurnEnds(ends)) => ends.last().copied(),
                Some(_) | None => None,
            };
            let last = ends.map_or_else(String::new, |turn| format!("; the last possible turn is {turn}"));
            (
                format!("no run can continue from the end of turn {}{last}", act.turn()),
                pen.palette.style_for(TextTone::Warn),
            )
        }
        None => plain("finding the ends of turns …"),
    };
    lines.push(last);
    draw_box(pen, layout, title, &lines);
}
