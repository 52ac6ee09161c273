//! The overview drawn into a buffer of cells. Pure: the only clock is the overview's own `at`.

use docket_schema::{
    ids::Timestamp,
    task::TaskState,
    wire::{Overview, TaskBrief, WorkerView},
};
use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};
use unicode_width::UnicodeWidthStr as _;

use crate::output::display::{count, duration, fit, line};

/// Tasks of a list that are shown; the command that lists them all stands behind them.
const LIST_MAX: usize = 15;

/// Columns of a task's row beside its title: id, state, age before it, engine and model behind it.
const ROW_BESIDE_TITLE: usize = 2 + 10 + 11 + 9 + 30;
/// A title cut to a letter says nothing.
const TITLE_MIN: usize = 16;

/// What is drawn.
pub(super) struct Look<'a> {
    pub(super) overview: &'a Overview,
    /// Rows that have gone out at the top.
    pub(super) scrolled: u16,
    /// Why nothing newer came.
    pub(super) lost: Option<&'a str>,
    pub(super) colors: bool,
    /// Whether keys are told of.
    pub(super) keys: bool,
}

#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Bold,
    Dim,
    Warn,
    Bad,
}

type Rows = Vec<(Tone, String)>;

/// Draws it; how many rows it would take in all.
pub(super) fn draw(look: &Look<'_>, buffer: &mut Buffer) -> u16 {
    let columns = usize::from(buffer.area.width);
    let rows = rows(look, columns);
    let last = buffer.area.height.saturating_sub(u16::from(look.keys));
    for (nth, (tone, text)) in
        rows.iter().skip(usize::from(look.scrolled)).take(usize::from(last)).enumerate()
    {
        let y = u16::try_from(nth).unwrap_or(u16::MAX);
        buffer.set_stringn(0, y, fit(text, columns), columns, style(*tone, look.colors));
    }
    if look.keys {
        let keys = look.lost.map_or_else(
            || "q ends  ↑↓ scroll  docket step ID looks into a run".to_owned(),
            |why| format!("not connected, this is how it stood: {}", line(why)),
        );
        let tone = if look.lost.is_some() { Tone::Bad } else { Tone::Dim };
        buffer.set_stringn(0, last, fit(&keys, columns), columns, style(tone, look.colors));
    }
    u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(u16::from(look.keys))
}

/// All of it as lines, for where nobody watches: of so many columns, or as wide as what is in them.
pub(super) fn text(overview: &Overview, columns: Option<usize>) -> Vec<String> {
    let lists = [&overview.asks, &overview.discarded, &overview.running, &overview.ended];
    let titles = lists.into_iter().flatten().map(|task| line(&task.title).width());
    let columns_whole = ROW_BESIDE_TITLE + titles.max().unwrap_or(0);
    let look = Look { overview, scrolled: 0, lost: None, colors: false, keys: false };
    let rows = rows(&look, columns.unwrap_or(columns_whole));
    let fitted = |text: String| columns.map_or_else(|| text.clone(), |columns| fit(&text, columns));
    rows.into_iter().map(|(_, text)| fitted(text).trim_end().to_owned()).collect()
}

fn style(tone: Tone, colors: bool) -> Style {
    let colored = |color| if colors { Style::default().fg(color) } else { Style::default() };
    match tone {
        Tone::Plain => Style::default(),
        Tone::Bold => Style::default().add_modifier(Modifier::BOLD),
        Tone::Dim => Style::default().add_modifier(Modifier::DIM),
        Tone::Warn => colored(Color::Yellow),
        Tone::Bad => colored(Color::Red),
    }
}

fn rows(look: &Look<'_>, columns: usize) -> Rows {
    let of = look.overview;
    let mut rows = vec![(Tone::Bold, tally(of))];
    let list = |rows: &mut Rows, title: &str, all: &[TaskBrief], more: &str, tone: Tone| {
        if all.is_empty() {
            return;
        }
        rows.push((Tone::Plain, String::new()));
        rows.push((Tone::Bold, title.to_owned()));
        for task in all.iter().take(LIST_MAX) {
            rows.push((tone, task_row(task, of.at, columns)));
            if let Some(message) = task.message.as_ref().filter(|_| matches!(tone, Tone::Warn | Tone::Bad)) {
                rows.push((Tone::Dim, format!("            {}", line(message))));
            }
        }
        if all.len() > LIST_MAX {
            rows.push((Tone::Dim, format!("  … and more: {more}")));
        }
    };
    list(&mut rows, "Needs you", &of.asks, "docket ps --state blocked", Tone::Warn);
    // One that does not count them all yet has at least those that it tells.
    let discarded = of.discarded_count.max(of.discarded.len() as u64);
    let heading = format!("Discarded ({discarded})");
    list(&mut rows, &heading, &of.discarded, "docket ps --state discarded", Tone::Bad);
    for near in &of.budgets {
        let spent = near.budget.spent.as_deref().unwrap_or("nearly spent");
        rows.push((Tone::Warn, format!("  batch {}: its budget is {}", near.batch.short(), line(spent))));
    }
    if let Some(dead) = of.notifications_dead.filter(|dead| *dead > 0) {
        let were = if dead == 1 { "was" } else { "were" };
        let told = format!("  {} {were} not taken: docket notify", count(dead, "notification"));
        rows.push((Tone::Bad, told));
    }
    list(&mut rows, "Running", &of.running, "docket ps --state running", Tone::Plain);
    list(&mut rows, "Ended lately", &of.ended, "docket ps --state completed", Tone::Dim);
    queues(&mut rows, of);
    rows.push((Tone::Plain, String::new()));
    rows.push((Tone::Bold, "Workers".to_owned()));
    if of.workers.is_empty() {
        rows.push((Tone::Warn, "  none: `docket up` or `docket worker` starts one".to_owned()));
    }
    rows.extend(of.workers.iter().map(|worker| worker_row(worker, of.at)));
    rows
}

fn tally(of: &Overview) -> String {
    let open = of.tasks.iter().filter(|one| !one.state.is_ended());
    let states: Vec<String> = open.map(|one| format!("{} {}", one.count, one.state)).collect();
    let states = if states.is_empty() { "nothing to do".to_owned() } else { states.join(", ") };
    let ended: u64 = of.ended_counts.iter().map(|one| one.count).sum();
    format!("docket {}  {states}; {} since yesterday", of.version, count(ended, "task") + " ended")
}

fn task_row(task: &TaskBrief, at: Timestamp, columns: usize) -> String {
    let since = match task.state {
        TaskState::Running => task.leased_at,
        _ if task.state.is_ended() => task.ended_at,
        _ => Some(task.submitted_at),
    };
    let age = since.map_or_else(String::new, |since| duration(at.ms_since(since)));
    let state = task.state.to_string();
    let about = format!("{} {}", task.engine, line(&task.model.to_string()));
    let room = columns.saturating_sub(ROW_BESIDE_TITLE).max(TITLE_MIN);
    let title = fit(&line(&task.title), room);
    let pad = " ".repeat(room - title.width());
    format!("  {:<9} {state:<10} {age:>8} {title}{pad} {about}", task.id.short())
}

fn queues(rows: &mut Rows, of: &Overview) {
    // One queue alone is what the first line tells.
    if of.queues.len() < 2 {
        return;
    }
    rows.push((Tone::Plain, String::new()));
    rows.push((Tone::Bold, "Queues".to_owned()));
    for queue in &of.queues {
        let (running, available) = (queue.count(TaskState::Running), queue.count(TaskState::Available));
        rows.push((Tone::Plain, format!("  {:<20} {running} running, {available} could run", queue.name)));
    }
}

fn worker_row(worker: &WorkerView, at: Timestamp) -> (Tone, String) {
    let slots = worker.room.as_ref().map_or_else(String::new, |room| format!(" of {}", room.slots));
    let layers = worker.about.as_ref().map_or(0, |about| about.layers.len());
    let walls =
        if layers == 0 { String::new() } else { format!(", {}", count(layers as u64, "sandbox layer")) };
    let seen = duration(at.ms_since(worker.seen_at));
    let full = worker.takes_no_more().map_or_else(String::new, |why| format!("; {}", line(&why)));
    let tone = if full.is_empty() { Tone::Plain } else { Tone::Warn };
    let name = line(&worker.name);
    (tone, format!("  {name:<24} {}{slots} busy{walls}, heard of {seen} ago{full}", worker.held))
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::{IncarnationId, QueueName, TaskId},
        task::TaskBlockedWhy,
        wire::StateCount,
    };

    use super::*;

    fn brief(n: u128, title: &str, state: TaskState) -> TaskBrief {
        TaskBrief {
            id: TaskId(uuid::Uuid::from_u128(n)),
            title: title.to_owned(),
            state,
            blocked_why: (state == TaskState::Blocked).then_some(TaskBlockedWhy::Person),
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

    fn overview() -> Overview {
        Overview {
            at: Timestamp(125_000_000),
            since: Timestamp(0),
            version: "0.1.0".to_owned(),
            store: "sqlite".to_owned(),
            asks: vec![brief(1, "Paint the door", TaskState::Blocked)],
            blocked: Vec::new(),
            discarded: Vec::new(),
            discarded_count: 0,
            budgets: Vec::new(),
            notifications_dead: Some(2),
            running: (2..22)
                .map(|n| brief(n, "Mend the very long and winding road to the sea", TaskState::Running))
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

    fn text(look: &Look<'_>, size: (u16, u16)) -> (Vec<String>, u16) {
        let mut buffer = Buffer::empty(ratatui::layout::Rect { x: 0, y: 0, width: size.0, height: size.1 });
        let rows = draw(look, &mut buffer);
        let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        (cells.chunks(usize::from(size.0)).map(|row| row.concat().trim_end().to_owned()).collect(), rows)
    }

    #[test]
    fn what_needs_a_person_stands_first_and_nothing_escapes() {
        let overview = overview();
        let look = Look { overview: &overview, scrolled: 0, lost: None, colors: false, keys: true };
        let (shown, rows) = text(&look, (100, 40));
        insta::assert_snapshot!(shown.join("\n"));
        assert!(rows > 20 && !shown.concat().contains('\u{1b}'));
    }

    #[test]
    fn what_was_discarded_is_counted_and_letters_are_told_of_only_where_there_are_some() {
        let failed = brief(1, "Mend the roof", TaskState::Discarded);
        let of = |dead| Overview {
            discarded: vec![failed.clone()],
            discarded_count: 70,
            notifications_dead: dead,
            ..overview()
        };
        let told = |dead| super::text(&of(dead), Some(100)).join("\n");
        assert!(told(Some(1)).contains("Discarded (70)\n"), "{}", told(Some(1)));
        assert!(told(Some(1)).contains("  1 notification was not taken: docket notify"), "{}", told(Some(1)));
        for none in [None, Some(0)] {
            assert!(!told(none).contains("notification"), "{}", told(none));
        }
    }

    #[test]
    fn as_text_it_fits_a_terminal_and_is_whole_in_a_pipe() {
        let overview = overview();
        for columns in [40, 60, 100] {
            let lines = super::text(&overview, Some(columns));
            assert!(lines.iter().all(|line| line.width() <= columns), "{lines:#?}");
        }
        let whole = super::text(&overview, None).join("\n");
        assert!(
            whole.contains("Mend the very long and winding road to the sea react scripted:top"),
            "{whole}"
        );
        assert!(whole.contains("  ada") && !whole.contains('\u{1b}'), "{whole}");
    }

    #[test]
    fn it_scrolls_and_says_that_it_is_old_in_the_smallest_window() {
        let overview = overview();
        let look = Look {
            overview: &overview,
            scrolled: 3,
            lost: Some("the coordinator is away"),
            colors: true,
            keys: true,
        };
        let (shown, _) = text(&look, (40, 4));
        assert_eq!(shown.len(), 4);
        assert!(shown[3].starts_with("not connected"), "{shown:?}");
        for size in [(1, 1), (5, 2), (300, 3)] {
            text(&look, size);
        }
    }
}
