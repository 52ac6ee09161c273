//! Draws the overview into a buffer of cells. Pure: its only clock is the overview's own `at`.

use docket_schema::{
    api::{OverviewResponse, TaskSummary, WorkerView},
    ids::Timestamp,
    task::TaskState,
};
use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};
use unicode_width::UnicodeWidthStr as _;

use crate::output::display::{format_count, format_duration, sanitize_line, truncate_to_width};

/// Maximum number of tasks shown per list; the command that lists them all is shown below.
const LIST_MAX: usize = 15;

/// Columns of a task's row without its title: id, state and age before it, engine and model after it.
const ROW_COLUMNS_WITHOUT_TITLE: usize = 2 + 10 + 11 + 9 + 30;
/// A title cut to one letter is useless.
const TITLE_COLUMNS_MIN: usize = 16;

/// What to draw.
pub(super) struct OverviewView<'a> {
    pub(super) overview: &'a OverviewResponse,
    /// Number of rows scrolled out at the top.
    pub(super) scrolled: u16,
    /// Why the overview is out of date.
    pub(super) connection_error: Option<&'a str>,
    pub(super) colors: bool,
    /// Whether to show the keys.
    pub(super) shows_keys: bool,
}

#[derive(Clone, Copy)]
enum RowTone {
    Plain,
    Bold,
    Dim,
    Warn,
    Bad,
}

type StyledRows = Vec<(RowTone, String)>;

/// Draws the overview; returns how many rows it needs in total.
pub(super) fn draw_overview(look: &OverviewView<'_>, buffer: &mut Buffer) -> u16 {
    let columns = usize::from(buffer.area.width);
    let rows = build_rows(look, columns);
    let last = buffer.area.height.saturating_sub(u16::from(look.shows_keys));
    for (nth, (tone, text)) in
        rows.iter().skip(usize::from(look.scrolled)).take(usize::from(last)).enumerate()
    {
        let y = u16::try_from(nth).unwrap_or(u16::MAX);
        buffer.set_stringn(0, y, truncate_to_width(text, columns), columns, row_style(*tone, look.colors));
    }
    if look.shows_keys {
        let keys = look.connection_error.map_or_else(
            || "q quit  ↑↓ scroll  docket step ID inspects a run".to_owned(),
            |why| format!("not connected; last known state: {}", sanitize_line(why)),
        );
        let tone = if look.connection_error.is_some() { RowTone::Bad } else { RowTone::Dim };
        buffer.set_stringn(0, last, truncate_to_width(&keys, columns), columns, row_style(tone, look.colors));
    }
    u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(u16::from(look.shows_keys))
}

/// Renders the overview as lines for non-interactive output, limited to `columns` or as wide as the contents.
pub(super) fn render_as_text(overview: &OverviewResponse, columns: Option<usize>) -> Vec<String> {
    let lists = [&overview.asks, &overview.discarded, &overview.running, &overview.ended];
    let titles = lists.into_iter().flatten().map(|task| sanitize_line(&task.title).width());
    let columns_whole = ROW_COLUMNS_WITHOUT_TITLE + titles.max().unwrap_or(0);
    let look =
        OverviewView { overview, scrolled: 0, connection_error: None, colors: false, shows_keys: false };
    let rows = build_rows(&look, columns.unwrap_or(columns_whole));
    let fitted =
        |text: String| columns.map_or_else(|| text.clone(), |columns| truncate_to_width(&text, columns));
    rows.into_iter().map(|(_, text)| fitted(text).trim_end().to_owned()).collect()
}

fn row_style(tone: RowTone, colors: bool) -> Style {
    let colored = |color| if colors { Style::default().fg(color) } else { Style::default() };
    match tone {
        RowTone::Plain => Style::default(),
        RowTone::Bold => Style::default().add_modifier(Modifier::BOLD),
        RowTone::Dim => Style::default().add_modifier(Modifier::DIM),
        RowTone::Warn => colored(Color::Yellow),
        RowTone::Bad => colored(Color::Red),
    }
}

fn build_rows(look: &OverviewView<'_>, columns: usize) -> StyledRows {
    let of = look.overview;
    let mut rows = vec![(RowTone::Bold, format_summary(of))];
    let list = |rows: &mut StyledRows, title: &str, all: &[TaskSummary], more: &str, tone: RowTone| {
        if all.is_empty() {
            return;
        }
        rows.push((RowTone::Plain, String::new()));
        rows.push((RowTone::Bold, title.to_owned()));
        for task in all.iter().take(LIST_MAX) {
            rows.push((tone, task_row(task, of.at, columns)));
            if let Some(message) =
                task.message.as_ref().filter(|_| matches!(tone, RowTone::Warn | RowTone::Bad))
            {
                rows.push((RowTone::Dim, format!("            {}", sanitize_line(message))));
            }
        }
        if all.len() > LIST_MAX {
            rows.push((RowTone::Dim, format!("  … more: {more}")));
        }
    };
    list(&mut rows, "Needs you", &of.asks, "docket ps --state blocked", RowTone::Warn);
    // While the coordinator is still counting, there are at least as many as it lists.
    let discarded = of.discarded_count.max(of.discarded.len() as u64);
    let heading = format!("Discarded ({discarded})");
    list(&mut rows, &heading, &of.discarded, "docket ps --state discarded", RowTone::Bad);
    for near in &of.budgets {
        let spent = near.budget.spent.as_deref().unwrap_or("nearly spent");
        rows.push((
            RowTone::Warn,
            format!("  batch {}: its budget is {}", near.batch.short(), sanitize_line(spent)),
        ));
    }
    if let Some(dead) = of.notifications_dead.filter(|dead| *dead > 0) {
        let were = if dead == 1 { "was" } else { "were" };
        let told = format!("  {} {were} not delivered: docket notify", format_count(dead, "notification"));
        rows.push((RowTone::Bad, told));
    }
    list(&mut rows, "Running", &of.running, "docket ps --state running", RowTone::Plain);
    list(&mut rows, "Recently ended", &of.ended, "docket ps --state completed", RowTone::Dim);
    push_queue_rows(&mut rows, of);
    rows.push((RowTone::Plain, String::new()));
    rows.push((RowTone::Bold, "Workers".to_owned()));
    if of.workers.is_empty() {
        rows.push((RowTone::Warn, "  none: `docket up` or `docket worker` starts one".to_owned()));
    }
    rows.extend(of.workers.iter().map(|worker| worker_row(worker, of.at)));
    rows
}

fn format_summary(of: &OverviewResponse) -> String {
    let open = of.tasks.iter().filter(|one| !one.state.is_ended());
    let states: Vec<String> = open.map(|one| format!("{} {}", one.count, one.state)).collect();
    let states = if states.is_empty() { "nothing to do".to_owned() } else { states.join(", ") };
    let ended: u64 = of.ended_counts.iter().map(|one| one.count).sum();
    format!("docket {}  {states}; {} since yesterday", of.version, format_count(ended, "task") + " ended")
}

fn task_row(task: &TaskSummary, at: Timestamp, columns: usize) -> String {
    let since = match task.state {
        TaskState::Running => task.leased_at,
        _ if task.state.is_ended() => task.ended_at,
        _ => Some(task.submitted_at),
    };
    let age = since.map_or_else(String::new, |since| format_duration(at.ms_since(since)));
    let state = task.state.to_string();
    let about = format!("{} {}", task.engine, sanitize_line(&task.model.to_string()));
    let room = columns.saturating_sub(ROW_COLUMNS_WITHOUT_TITLE).max(TITLE_COLUMNS_MIN);
    let title = truncate_to_width(&sanitize_line(&task.title), room);
    let pad = " ".repeat(room - title.width());
    format!("  {:<9} {state:<10} {age:>8} {title}{pad} {about}", task.id.short())
}

fn push_queue_rows(rows: &mut StyledRows, of: &OverviewResponse) {
    // A single queue is covered by the first line.
    if of.queues.len() < 2 {
        return;
    }
    rows.push((RowTone::Plain, String::new()));
    rows.push((RowTone::Bold, "Queues".to_owned()));
    for queue in &of.queues {
        let (running, available) =
            (queue.count_in_state(TaskState::Running), queue.count_in_state(TaskState::Available));
        rows.push((RowTone::Plain, format!("  {:<20} {running} running, {available} available", queue.name)));
    }
}

fn worker_row(worker: &WorkerView, at: Timestamp) -> (RowTone, String) {
    let slots = worker.room.as_ref().map_or_else(String::new, |room| format!(" of {}", room.slots));
    let layers = worker.about.as_ref().map_or(0, |about| about.layers.len());
    let walls = if layers == 0 {
        String::new()
    } else {
        format!(", {}", format_count(layers as u64, "sandbox layer"))
    };
    let seen = format_duration(at.ms_since(worker.seen_at));
    let full = worker.full_reason().map_or_else(String::new, |why| format!("; {}", sanitize_line(&why)));
    let tone = if full.is_empty() { RowTone::Plain } else { RowTone::Warn };
    let name = sanitize_line(&worker.name);
    (tone, format!("  {name:<24} {}{slots} busy{walls}, last seen {seen} ago{full}", worker.held))
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        api::StateCount,
        ids::{IncarnationId, QueueName, TaskId},
        task::TaskBlockedReason,
    };

    use super::*;

    fn task_brief(n: u128, title: &str, state: TaskState) -> TaskSummary {
        TaskSummary {
            id: TaskId(uuid::Uuid::from_u128(n)),
            title: title.to_owned(),
            state,
            blocked_why: (state == TaskState::Blocked).then_some(TaskBlockedReason::Person),
            message: (state == TaskState::Blocked).then(|| "Which\ncolour?\u{1b}[31m".to_owned()),
            unverified: None,
            queue: QueueName::default(),
            engine: "react".to_owned(),
            model: "scripted:top".parse().expect("a model"),
            batch: None,
            forked_from: None,
            run: None,
            last_run: None,
            worker: None,
            submitted_at: Timestamp(0),
            leased_at: (state == TaskState::Running).then_some(Timestamp(60_000_000)),
            ended_at: None,
        }
    }

    fn sample_overview() -> OverviewResponse {
        OverviewResponse {
            at: Timestamp(125_000_000),
            since: Timestamp(0),
            version: "0.1.0".to_owned(),
            store: "sqlite".to_owned(),
            asks: vec![task_brief(1, "Paint the door", TaskState::Blocked)],
            blocked: Vec::new(),
            discarded: Vec::new(),
            discarded_count: 0,
            budgets: Vec::new(),
            notifications_dead: Some(2),
            running: (2..22)
                .map(|n| task_brief(n, "Mend the very long and winding road to the sea", TaskState::Running))
                .collect(),
            ended: Vec::new(),
            ended_counts: vec![StateCount { state: TaskState::Completed, count: 1 }],
            tasks: vec![
                StateCount { state: TaskState::Blocked, count: 1 },
                StateCount { state: TaskState::Running, count: 20 },
                StateCount { state: TaskState::Completed, count: 7 },
            ],
            queues: Vec::new(),
            queues_left_out: 0,
            workers: [("ada", 20, false), ("bob", 1, true)]
                .map(|(name, held, draining)| WorkerView {
                    incarnation: IncarnationId(uuid::Uuid::from_u128(9)),
                    name: name.to_owned(),
                    held,
                    seen_at: Timestamp(123_000_000),
                    about: None,
                    room: None,
                    draining,
                })
                .to_vec(),
            hours: Vec::new(),
            submitted: Vec::new(),
        }
    }

    fn draw_to_text(look: &OverviewView<'_>, size: (u16, u16)) -> (Vec<String>, u16) {
        let mut buffer = Buffer::empty(ratatui::layout::Rect { x: 0, y: 0, width: size.0, height: size.1 });
        let rows = draw_overview(look, &mut buffer);
        let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        (cells.chunks(usize::from(size.0)).map(|row| row.concat().trim_end().to_owned()).collect(), rows)
    }

    #[test]
    fn blocked_tasks_come_first_and_text_is_escaped() {
        let overview = sample_overview();
        let look = OverviewView {
            overview: &overview,
            scrolled: 0,
            connection_error: None,
            colors: false,
            shows_keys: true,
        };
        let (shown, rows) = draw_to_text(&look, (100, 40));
        insta::assert_snapshot!(shown.join("\n"));
        assert!(rows > 20 && !shown.concat().contains('\u{1b}'));
    }

    #[test]
    fn discarded_tasks_are_counted_and_dead_letters_shown_only_if_any() {
        let failed = task_brief(1, "Mend the roof", TaskState::Discarded);
        let of = |dead| OverviewResponse {
            discarded: vec![failed.clone()],
            discarded_count: 70,
            notifications_dead: dead,
            ..sample_overview()
        };
        let told = |dead| super::render_as_text(&of(dead), Some(100)).join("\n");
        assert!(told(Some(1)).contains("Discarded (70)\n"), "{}", told(Some(1)));
        assert!(
            told(Some(1)).contains("  1 notification was not delivered: docket notify"),
            "{}",
            told(Some(1))
        );
        for none in [None, Some(0)] {
            assert!(!told(none).contains("notification"), "{}", told(none));
        }
    }

    #[test]
    fn text_fits_the_terminal_and_is_complete_in_a_pipe() {
        let overview = sample_overview();
        for columns in [40, 60, 100] {
            let lines = super::render_as_text(&overview, Some(columns));
            assert!(lines.iter().all(|line| line.width() <= columns), "{lines:#?}");
        }
        let whole = super::render_as_text(&overview, None).join("\n");
        assert!(
            whole.contains("Mend the very long and winding road to the sea react scripted:top"),
            "{whole}"
        );
        assert!(whole.contains("  ada") && !whole.contains('\u{1b}'), "{whole}");
    }

    #[test]
    fn overview_scrolls_and_shows_stale_state_in_a_tiny_window() {
        let overview = sample_overview();
        let look = OverviewView {
            overview: &overview,
            scrolled: 3,
            connection_error: Some("the coordinator is unavailable"),
            colors: true,
            shows_keys: true,
        };
        let (shown, _) = draw_to_text(&look, (40, 4));
        assert_eq!(shown.len(), 4);
        assert!(shown[3].starts_with("not connected"), "{shown:?}");
        for size in [(1, 1), (5, 2), (300, 3)] {
            draw_to_text(&look, size);
        }
    }
}
