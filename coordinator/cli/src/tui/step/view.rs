//! The screen: a [`Model`] drawn into a buffer of cells. Pure.
//!
//! Sixteen colours at most, and none where none are wanted; what a colour says stands there in words as
//! well. All texts are harmless already, or are made so here.

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
    compare::Sameness,
    doc::Tone,
    keys::HELP,
    layout::{COLUMNS_MIN, Layout, ROWS_MIN},
    model::{Act, Focus, Input, Model, Overlay, What},
    page::Pane,
    shelf::{Loaded, Want},
};
use crate::output::display::{self, fit, money};

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// Sixteen.
    Colors,
    /// None: bold, dim and reverse alone.
    Plain,
}

impl Palette {
    fn of(self, tone: Tone) -> Style {
        let color = |color| match self {
            Self::Colors => Style::default().fg(color),
            Self::Plain => Style::default(),
        };
        match tone {
            Tone::Plain => Style::default(),
            Tone::Bold => Style::default().add_modifier(Modifier::BOLD),
            Tone::Dim => Style::default().add_modifier(Modifier::DIM),
            Tone::Good => color(Color::Green),
            Tone::Bad => color(Color::Red),
            Tone::Warn => color(Color::Yellow),
        }
    }
}

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Writes into a buffer and stays in it.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    palette: Palette,
}

impl Pen<'_> {
    /// Writes harmless text at (x, y), at most `width` columns of it; the column after it.
    fn put(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y >= area.bottom() || x >= area.right() {
            return x;
        }
        let width = width.min(area.right() - x);
        self.buffer.set_stringn(x, y, text, usize::from(width), style).0
    }

    fn line(&mut self, y: u16, text: &str, style: Style) {
        let columns = self.buffer.area.width;
        self.put(0, y, columns, &fit(text, usize::from(columns)), style);
    }

    fn fill(&mut self, y: u16, style: Style) {
        let area = Rect { x: 0, y, width: self.buffer.area.width, height: 1 };
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }
}

/// Draws the screen.
pub(super) fn draw(model: &Model, palette: Palette, buffer: &mut Buffer) {
    let layout = model.layout();
    let mut pen = Pen { buffer, palette };
    if !layout.fits() {
        let text = format!("too small: {COLUMNS_MIN}×{ROWS_MIN} at least");
        return pen.line(0, &text, Style::default());
    }
    header(&mut pen, model);
    let body = timeline(&mut pen, model, layout);
    tabs(&mut pen, model, body);
    pane(&mut pen, model, layout, body + 1);
    message(&mut pen, model, layout.rows - 1);
    match &model.overlay {
        Overlay::Help { top } => help(&mut pen, layout, *top),
        Overlay::Confirming(act) => confirm(&mut pen, model, *act, layout),
        Overlay::None | Overlay::Asking(_) => {}
    }
}

fn header(pen: &mut Pen<'_>, model: &Model) {
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
    let text = format!(" {}", fit(&display::line(&text), room.saturating_sub(1)));
    pen.fill(0, REVERSED);
    pen.put(0, 0, pen.buffer.area.width, &text, REVERSED);
    if room > kind.width() / 2 {
        let from = u16::try_from(columns.saturating_sub(kind.width())).unwrap_or(0);
        pen.put(from, 0, pen.buffer.area.width, kind, REVERSED);
    }
}

/// Widths of the timeline's columns: mark, turn, phase, outcome, cost; tools have the rest.
const TURN: usize = 5;
const PHASE: usize = 10;
const FATE: usize = 13;
const COST: usize = 9;

/// Draws the timeline; the row after it.
fn timeline(pen: &mut Pen<'_>, model: &Model, layout: Layout) -> u16 {
    let head = format!(
        "   {:>TURN$} {:<PHASE$} {:<FATE$} {:>COST$}  {}",
        "TURN", "PHASE", "OUTCOME", "COST", "TOOLS"
    );
    pen.line(1, &head, pen.palette.of(Tone::Dim));
    let same = match model.sameness_wanted().and_then(|want| model.shelf.get(&want)) {
        Some(Loaded::Sameness(same)) => Some(same),
        Some(_) | None => None,
    };
    for nth in 0..layout.timeline {
        let at = model.timeline_top + usize::from(nth);
        let Some(row) = model.run.turns().get(at) else { break };
        let same = same.as_ref().and_then(|same| same.get(at).copied());
        turn(pen, model, 2 + nth, (at, row), same);
    }
    2 + layout.timeline
}

fn turn(pen: &mut Pen<'_>, model: &Model, y: u16, (at, row): (usize, &TurnSummary), same: Option<Sameness>) {
    let here = at == model.row;
    let mark = if model.mark == Some(at) { "*" } else { " " };
    let same = same.map_or(" ", Sameness::mark);
    let phase = row.phase.map_or("", docket_schema::run::Phase::as_str);
    let text = format!(
        "{}{mark}{same}{:>TURN$} {phase:<PHASE$} ",
        if here { ">" } else { " " },
        row.turn.to_string()
    );
    let base = match (here, model.focus) {
        (true, Focus::Timeline) => REVERSED,
        (true, Focus::Pane) => pen.palette.of(Tone::Bold),
        (false, Focus::Timeline | Focus::Pane) => Style::default(),
    };
    if here {
        pen.fill(y, base);
    }
    let width = pen.buffer.area.width;
    let x = pen.put(0, y, width, &text, base);
    let tone = match row.outcome {
        TurnOutcome::Ok | TurnOutcome::Ended("succeeded") => Tone::Good,
        TurnOutcome::ToolFailed(_) | TurnOutcome::Blocked | TurnOutcome::UnderWay => Tone::Warn,
        TurnOutcome::CheckFailed | TurnOutcome::ModelFailed => Tone::Bad,
        TurnOutcome::Ended(word) => {
            if word == "failed" {
                Tone::Bad
            } else {
                Tone::Warn
            }
        }
    };
    let x =
        pen.put(x, y, width, &format!("{:<FATE$}", row.outcome.label()), base.patch(pen.palette.of(tone)));
    let tools: Vec<String> = row
        .tools
        .iter()
        .map(|(name, times)| if *times > 1 { format!("{name}×{times}") } else { name.clone() })
        .collect();
    let tools = if row.turn.0 == 0 { "(before the first turn)".to_owned() } else { tools.join(" ") };
    let rest = format!(" {:>COST$}  {}", money(row.cost.nusd), display::line(&tools));
    let room = usize::from(width.saturating_sub(x));
    pen.put(x, y, width, &fit(&rest, room), base);
}

fn tabs(pen: &mut Pen<'_>, model: &Model, y: u16) {
    pen.fill(y, pen.palette.of(Tone::Dim));
    let width = pen.buffer.area.width;
    let mut x = 0;
    for (nth, pane) in Pane::ALL.iter().enumerate() {
        if *pane == Pane::Runs && model.other.is_none() && model.pane != Pane::Runs {
            continue;
        }
        let style = match (*pane == model.pane, model.focus) {
            (true, Focus::Pane) => REVERSED,
            (true, Focus::Timeline) => pen.palette.of(Tone::Bold).add_modifier(Modifier::UNDERLINED),
            (false, Focus::Timeline | Focus::Pane) => pen.palette.of(Tone::Dim),
        };
        x = pen.put(x + 1, y, width, &format!("{}{}", nth + 1, pane.name()), style);
    }
    let what = match (&model.file, model.shown()) {
        (Some(path), Some(row)) => format!("{path} after turn {}", row.turn),
        (None, _) if model.comparing && model.pane == Pane::Diff => "compared with the mark".to_owned(),
        (None, _) if model.request && model.pane == Pane::Prompt => "the exact request".to_owned(),
        (Some(_) | None, _) => String::new(),
    };
    let end = place(model);
    let room = usize::from(width).saturating_sub(usize::from(x) + end.width() + 3);
    pen.put(x + 2, y, width, &fit(&display::line(&what), room), pen.palette.of(Tone::Bold));
    let from = width.saturating_sub(u16::try_from(end.width()).unwrap_or(width));
    pen.put(from, y, width, &end, pen.palette.of(Tone::Dim));
}

/// How much of the page is on the screen.
fn place(model: &Model) -> String {
    let rows = model.page.rows.len();
    let pane = usize::from(model.layout().pane);
    if rows <= pane {
        return String::new();
    }
    format!(" {}-{} of {rows}", model.scroll + 1, (model.scroll + pane).min(rows))
}

fn pane(pen: &mut Pen<'_>, model: &Model, layout: Layout, top: u16) {
    let query = model.hunt.query.as_deref();
    for nth in 0..layout.pane {
        let at = model.scroll + usize::from(nth);
        let Some(row) = model.page.rows.get(at) else { break };
        let Some(line) = model.page.doc.lines.get(row.line) else { break };
        let text = line.text.get(row.from..row.to).unwrap_or("");
        let (y, style) = (top + nth, pen.palette.of(line.tone));
        pen.put(0, y, layout.columns, text, style);
        if let Some(query) = query {
            highlight(pen, y, text, query);
        }
        if model.focus == Focus::Pane && at == model.cursor {
            pen.fill(y, REVERSED);
        } else if model.hunt.found == Some(row.line) {
            pen.fill(y, pen.palette.of(Tone::Bold));
        }
    }
}

/// Underlines what is searched.
fn highlight(pen: &mut Pen<'_>, y: u16, text: &str, query: &str) {
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

fn message(pen: &mut Pen<'_>, model: &Model, y: u16) {
    if let Overlay::Asking(Input { what, text }) = &model.overlay {
        let asked = match what {
            What::Search => "search: ",
            What::Open => "open file: ",
            What::Beside => "other run: ",
        };
        // The end of what is typed stays in sight.
        let room = usize::from(pen.buffer.area.width).saturating_sub(asked.width() + 1);
        let text = display::line(text).into_owned();
        let from = text.char_indices().rev().take(room).last().map_or(0, |(at, _)| at);
        return pen.line(y, &format!("{asked}{}▏", &text[from..]), pen.palette.of(Tone::Bold));
    }
    match &model.message {
        Some((tone, text)) => pen.line(y, &display::line(text), pen.palette.of(*tone)),
        None => {
            let hints = match (&model.file, model.focus) {
                (Some(_), _) => "j/k scroll  [ ] turn before/after  / search  Esc back  ? help",
                (None, Focus::Pane) => {
                    "j/k line  Enter open file  [ ] turn  Tab pane  / search  Esc back  ? help"
                }
                (None, Focus::Timeline) => {
                    "j/k turn  Tab pane  Enter read it  e failure  / search  ? help  q quit"
                }
            };
            pen.line(y, hints, pen.palette.of(Tone::Dim));
        }
    }
}

/// Empties a box in the middle and gives its corner; its lines fit into `width`.
fn boxed(pen: &mut Pen<'_>, layout: Layout, title: &str, lines: &[(String, Style)]) {
    let widest = lines.iter().map(|(text, _)| text.width()).max().unwrap_or(0).max(title.width() + 4);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(layout.columns);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(layout.rows);
    let (x, y) = ((layout.columns - width) / 2, (layout.rows - height) / 2);
    let inner = usize::from(width.saturating_sub(2));
    let rule = "─".repeat(inner);
    let head = format!("┌─ {} {}", fit(title, inner.saturating_sub(3)), rule);
    let head: String = head.chars().take(inner + 1).collect();
    pen.put(x, y, width, &format!("{head}┐"), Style::default());
    for (nth, (text, style)) in lines.iter().take(usize::from(height.saturating_sub(2))).enumerate() {
        let row = y + 1 + u16::try_from(nth).unwrap_or(0);
        let blank = Rect { x, y: row, width, height: 1 }.intersection(pen.buffer.area);
        pen.buffer.set_style(blank, Style::reset());
        pen.put(x, row, width, &format!("│{}│", " ".repeat(inner)), Style::default());
        pen.put(x + 2, row, width.saturating_sub(4), &fit(text, inner.saturating_sub(2)), *style);
    }
    pen.put(x, y + height - 1, width, &format!("└{rule}┘"), Style::default());
}

fn help(pen: &mut Pen<'_>, layout: Layout, top: usize) {
    let room = usize::from(layout.rows.saturating_sub(4)).max(1);
    let shown = HELP.iter().skip(top).take(room);
    let lines: Vec<(String, Style)> = shown
        .map(|(keys, what)| match what.is_empty() {
            true => ((*keys).to_owned(), pen.palette.of(Tone::Bold)),
            false => (format!("  {keys:<20} {what}"), Style::default()),
        })
        .collect();
    let title =
        if HELP.len() > room { "keys (j/k scroll, any other key closes)" } else { "keys (any key closes)" };
    boxed(pen, layout, title, &lines);
}

fn confirm(pen: &mut Pen<'_>, model: &Model, act: Act, layout: Layout) {
    let plain = |text: &str| (text.to_owned(), Style::default());
    let run = model.run.id.short();
    let (title, what, command) = match act {
        Act::Fork(turn) => (
            "fork",
            format!("A new task goes on from the end of turn {turn}, with its files; this run stays."),
            format!("docket fork {run} --turn {turn}"),
        ),
        Act::Resume(turn) => (
            "resume",
            format!("A new run of this task goes on from the end of turn {turn}, with its files."),
            format!("docket resume {run} --turn {turn}"),
        ),
    };
    let mut lines = vec![plain(&what)];
    if let (Act::Resume(_), true) = (act, model.is_open()) {
        lines.push(plain("This run is fenced first and ends as superseded."));
    }
    lines.push(plain(""));
    lines.push((format!("  {command}"), pen.palette.of(Tone::Bold)));
    lines.push(plain(""));
    let last = match model.may(act) {
        Some(true) => plain("y does it now, n leaves it"),
        Some(false) => {
            let ends = match model.shelf.get(&Want::Ends(model.run.events().len())) {
                Some(Loaded::Ends(ends)) => ends.last().copied(),
                Some(_) | None => None,
            };
            let last = ends.map_or_else(String::new, |turn| format!("; the last one where it can is {turn}"));
            (
                format!("no run can go on from the end of turn {}{last}", act.turn()),
                pen.palette.of(Tone::Warn),
            )
        }
        None => plain("looking where turns end …"),
    };
    lines.push(last);
    boxed(pen, layout, title, &lines);
}
