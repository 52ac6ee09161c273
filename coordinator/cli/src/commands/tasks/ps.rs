//! `docket ps`: lists tasks, newest first.

use crate::output::task_rows;
use crate::output::task_rows::{TaskRow, state_label, state_style};
use std::{
    collections::{HashMap, HashSet},
    io::IsTerminal as _,
    time::Duration,
};

use docket_schema::{
    api::{ProblemCode, ProviderWait, TaskPage},
    ids::{Seq, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        task_filter::TaskFilterArgs,
    },
    context::CliContext,
    output::{
        display::{self, TableCell, TextStyle, TextTable},
        error::{CliResult, ExitKind},
        signals::StopSignals,
    },
};

/// Maximum number of tasks that are read for sorting.
const SORTED_MAX: u32 = 100_000;

/// Maximum number of questions shown, to keep the list on the screen.
const QUESTIONS_SHOWN_MAX: usize = 5;
/// Tasks per page of the list.
const PAGE_TASKS: u32 = 1000;
/// Lines shown per question; `docket show` prints all of it.
const QUESTION_LINES_MAX: usize = 3;

/// Command-line arguments of `docket ps`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns: task, run, state, runs, age, title, queue, priority, model, engine, batch, failures,
ended, message.

Examples:
  docket ps
  docket ps --state discarded --batch todo --columns task,failures,message
  docket ps --state running,blocked --watch
  docket ps --title '*rounding*' --since 2d --sort priority
  docket ps --json | jq -r 'select(.state == \"running\") | .id'"
)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    filter: TaskFilterArgs,
    /// Maximum number of rows to show
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Sort order, applied to all matching tasks
    #[arg(long, value_enum, default_value_t)]
    sort: TaskOrder,
    /// Columns to show, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "COLUMNS",
        hide_possible_values = true,
        default_value = "task,run,state,runs,age,title"
    )]
    columns: Vec<TaskColumn>,
    /// Refresh every second or at the given interval: the list on a terminal, otherwise only changes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// The sort order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum TaskOrder {
    /// Newest first
    #[default]
    Newest,
    /// Oldest first
    Oldest,
    /// Highest priority first
    Priority,
    /// By state
    State,
    /// By title
    Title,
    /// Most runs first
    Runs,
    /// Most recently ended first
    Ended,
}

impl TaskOrder {
    fn sort_tasks(self, tasks: &mut [TaskRecord]) {
        use std::cmp::Reverse;
        // Tasks arrive newest first, and sorting is stable.
        match self {
            Self::Newest => {}
            Self::Oldest => tasks.reverse(),
            Self::Priority => tasks.sort_by_key(|task| Reverse(task.spec.priority)),
            Self::State => tasks.sort_by_key(|task| task.state),
            Self::Title => tasks.sort_by(|a, b| a.spec.title.cmp(&b.spec.title)),
            Self::Runs => tasks.sort_by_key(|task| Reverse(task.runs)),
            Self::Ended => tasks.sort_by_key(|task| Reverse(task.ended_at)),
        }
    }
}

/// A column of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TaskColumn {
    Task,
    Run,
    State,
    Runs,
    Age,
    Title,
    Queue,
    Priority,
    Model,
    Engine,
    Batch,
    Failures,
    Ended,
    Message,
}

impl TaskColumn {
    const fn heading(self) -> &'static str {
        match self {
            Self::Task => "TASK",
            Self::Run => "RUN",
            Self::State => "STATE",
            Self::Runs => "RUNS",
            Self::Age => "AGE",
            Self::Title => "TITLE",
            Self::Queue => "QUEUE",
            Self::Priority => "PRIORITY",
            Self::Model => "MODEL",
            Self::Engine => "ENGINE",
            Self::Batch => "BATCH",
            Self::Failures => "FAILURES",
            Self::Ended => "ENDED",
            Self::Message => "MESSAGE",
        }
    }

    fn cell(self, task: &TaskRecord, now: Timestamp) -> TableCell {
        let none = || "-".to_owned();
        match self {
            Self::Task => TableCell::new(task.id.short()),
            Self::Run => TableCell::new(task.last_run.map_or_else(none, |run| run.short())),
            Self::State => TableCell::styled(state_label(task), state_style(task.state)),
            Self::Runs => TableCell::new(task.runs.to_string()),
            Self::Age => TableCell::new(display::format_duration(now.ms_since(task.submitted_at))),
            Self::Title => TableCell::new(&task.spec.title),
            Self::Queue => TableCell::new(task.spec.queue.as_str()),
            Self::Priority => TableCell::new(task.spec.priority.to_string()),
            Self::Model => TableCell::new(task.spec.model.to_string()),
            Self::Engine => TableCell::new(&task.spec.engine),
            Self::Batch => {
                let id = || task.spec.batch.map_or_else(none, |batch| batch.short());
                TableCell::new(task.spec.batch_name.clone().unwrap_or_else(id))
            }
            Self::Failures => TableCell::new(task.failures.to_string()),
            Self::Ended => TableCell::new(
                task.ended_at
                    .map_or_else(none, |at| format!("{} ago", display::format_duration(now.ms_since(at)))),
            ),
            Self::Message => {
                let message = task.message.as_deref().or(task.unverified.as_deref()).unwrap_or("-");
                TableCell::new(display::collapse_whitespace(message))
            }
        }
    }
}

/// Prints the questions of tasks and how to answer them.
fn print_questions(cx: &CliContext, tasks: &[TaskRecord]) {
    let waiting: Vec<(&TaskRecord, String)> =
        tasks.iter().filter_map(|task| task_rows::unblock_hint(task).map(|how| (task, how))).collect();
    for (task, how) in waiting.iter().take(QUESTIONS_SHOWN_MAX) {
        let asks = task.message.as_deref().unwrap_or("(no question recorded)");
        let verb = if task.is_undelivered() { "is undelivered" } else { "asks" };
        display::print_line(&format!("\n{} {verb}:", cx.screen.paint(TextStyle::Bold, &task.id.short())));
        let excerpt = display::render_excerpt(asks, QUESTION_LINES_MAX, "  ", usize::MAX);
        display::print_line(&cx.screen.wrap_prose(&format!("{}\n  {how}", excerpt.trim_end())));
    }
    if let Some(more) = waiting.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said =
            format!("\n{more} more are waiting for an answer; list them with `docket ps --state blocked`");
        display::print_line(&cx.screen.wrap_prose(&said));
    }
    let troubled: Vec<&TaskRecord> =
        tasks.iter().filter(|task| task.state == TaskState::Completed && task.message.is_some()).collect();
    for task in troubled.iter().take(QUESTIONS_SHOWN_MAX) {
        let (id, message) = (task.id.short(), task.message.as_deref().unwrap_or_default());
        let said = format!(
            "\n{id}: {}; run it again with `docket apply {id}` or `docket push {id}`",
            display::sanitize_line(&display::collapse_whitespace(message))
        );
        display::print_line(&cx.screen.wrap_prose(&said));
    }
    if let Some(more) = troubled.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said = format!("\n{more} more hooks failed; show them with `--columns task,message`");
        display::print_line(&cx.screen.wrap_prose(&said));
    }
}

pub(crate) async fn run_ps(cx: CliContext, mut args: PsArgs) -> CliResult {
    if let Some(seconds) = args.watch {
        return watch_tasks(&cx, args, Duration::from_secs(seconds)).await;
    }
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    args.filter.resolve_batch(&access.client).await?;
    let streams = cx.is_json() && args.sort == TaskOrder::Newest;
    let each = |page: &TaskPage| {
        if streams {
            page.tasks
                .iter()
                .for_each(|task| display::print_json(&TaskRow::from_task_with_waits(task, &page.waits)));
        }
    };
    let TaskListing { tasks, waits, more } = fetch_tasks(&access.client, &args, each).await?;
    if !cx.is_json() {
        args.filter.note_archived_tasks(&access.client).await;
    }
    access.close().await?;
    if cx.is_json() {
        if !streams {
            tasks.iter().for_each(|task| display::print_json(&TaskRow::from_task_with_waits(task, &waits)));
        }
        return Ok(ExitKind::Ok);
    }
    print_list(&cx, &args, &tasks, &waits);
    if more {
        let again = args.limit.saturating_mul(2).min(100_000);
        display::print_note(&format!("more tasks match; use -n {again} to show more"));
    }
    Ok(ExitKind::Ok)
}

/// The result of listing tasks.
struct TaskListing {
    tasks: Vec<TaskRecord>,
    waits: Vec<ProviderWait>,
    more: bool,
}

/// Returns the first matching tasks and whether there are more. Newest first is read page by page;
/// other orders read all tasks.
async fn fetch_tasks(
    client: &CoordinatorClient,
    args: &PsArgs,
    mut each: impl FnMut(&TaskPage),
) -> CliResult<TaskListing> {
    let mut query = args.filter.to_query(docket_coordinator::clock::Clock::new().now());
    let most = if args.sort == TaskOrder::Newest { args.limit } else { SORTED_MAX };
    let (mut tasks, mut waits): (Vec<TaskRecord>, Vec<ProviderWait>) = (Vec::new(), Vec::new());
    let ordered = |mut tasks: Vec<TaskRecord>, waits: Vec<ProviderWait>, more: bool| {
        args.sort.sort_tasks(&mut tasks);
        let more = more || tasks.len() > args.limit as usize;
        tasks.truncate(args.limit as usize);
        TaskListing { tasks, waits, more }
    };
    loop {
        let left = most - u32::try_from(tasks.len()).unwrap_or(most).min(most);
        query.limit = Some(left.clamp(1, PAGE_TASKS));
        let page = client.list_tasks(&query).await?;
        each(&page);
        tasks.extend(page.tasks);
        waits.extend(page.waits);
        let is_full = tasks.len() >= most as usize;
        match page.next {
            None => return Ok(ordered(tasks, waits, false)),
            Some(_) if is_full => return Ok(ordered(tasks, waits, true)),
            next => query.before = next,
        }
    }
}

fn print_list(cx: &CliContext, args: &PsArgs, tasks: &[TaskRecord], waits: &[ProviderWait]) {
    if tasks.is_empty() {
        let any = args.filter.to_query(Timestamp(0)).has_filter();
        return display::print_note(if any {
            "no matching tasks"
        } else {
            "no tasks; add one with `docket submit`, or try `docket demo`"
        });
    }
    display::print_line(&render_table(cx, args, tasks));
    print_questions(cx, tasks);
    for wait in waits.iter().take(QUESTIONS_SHOWN_MAX) {
        let (id, wait) = (wait.task.short(), wait.to_string());
        display::print_line(
            &cx.screen.wrap_prose(&format!("\n{id} is running: {}", display::sanitize_line(&wait))),
        );
    }
    if let Some(more) = waits.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said = format!("\n{more} more are waiting for a provider's rate limit; see `docket limit list`");
        display::print_line(&cx.screen.wrap_prose(&said));
    }
}

fn render_table(cx: &CliContext, args: &PsArgs, tasks: &[TaskRecord]) -> String {
    let now = docket_coordinator::clock::Clock::new().now();
    let heads: Vec<&'static str> = args.columns.iter().map(|column| column.heading()).collect();
    let mut table = TextTable::new(&heads);
    for task in tasks {
        table.add_row(args.columns.iter().map(|column| column.cell(task, now)).collect());
    }
    table.render(cx.screen)
}

/// Returns tasks that left the list, in their current state.
async fn fetch_departed(
    client: &CoordinatorClient,
    seen: &HashMap<TaskId, Seq>,
    listed: &[TaskRecord],
) -> CliResult<Vec<TaskRecord>> {
    let listed: HashSet<TaskId> = listed.iter().map(|task| task.id).collect();
    let mut left = Vec::new();
    for (id, seq) in seen.iter().filter(|(id, _)| !listed.contains(id)) {
        match client.get_task(*id).await {
            Ok(view) => left.extend(Some(view.task).filter(|task| task.seq != *seq)),
            // The task was archived meanwhile.
            Err(error) if error.problem_code() == Some(ProblemCode::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    left.sort_unstable_by_key(|task| std::cmp::Reverse(task.id));
    Ok(left)
}

/// Prints as many rows as fit on the terminal, from the top of the list.
fn print_screen(cx: &CliContext, args: &PsArgs, tasks: &[TaskRecord], waits: &[ProviderWait]) {
    // Leaves room for the header, the line with the number of further tasks, and the cursor.
    let room = usize::from(console::Term::stdout().size().0).saturating_sub(3).max(1);
    if tasks.len() <= room / 2 {
        return print_list(cx, args, tasks, waits);
    }
    let shown = &tasks[..tasks.len().min(room)];
    display::print_line(&render_table(cx, args, shown));
    if tasks.len() > shown.len() {
        display::print_line(&format!("and {} more", tasks.len() - shown.len()));
    }
}

/// Refreshes until Ctrl-C or until the output is closed.
async fn watch_tasks(cx: &CliContext, mut args: PsArgs, every: Duration) -> CliResult {
    let mut found = false;
    let stop = StopSignals::listen()?;
    let redraws = !cx.is_json() && std::io::stdout().is_terminal();
    let mut seen: HashMap<TaskId, Seq> = HashMap::new();
    loop {
        // Reconnects each time, so that the watch survives coordinator restarts.
        let access = Coordinator::connect(cx, AccessMode::Read).await?;
        if !std::mem::replace(&mut found, true) {
            args.filter.resolve_batch(&access.client).await?;
        }
        let TaskListing { tasks, waits, .. } = fetch_tasks(&access.client, &args, |_| {}).await?;
        let left = if redraws { Vec::new() } else { fetch_departed(&access.client, &seen, &tasks).await? };
        access.close().await?;
        if redraws {
            // Clears the screen and moves the cursor to the top.
            display::print_bytes(b"\x1b[2J\x1b[H");
            print_screen(cx, &args, &tasks, &waits);
        } else {
            let is_new = |task: &&TaskRecord| seen.get(&task.id) != Some(&task.seq);
            let changed: Vec<TaskRecord> =
                left.into_iter().chain(tasks.iter().filter(is_new).cloned()).collect();
            if cx.is_json() {
                changed.iter().for_each(|task| display::print_json(&TaskRow::from_task(task)));
            } else if !changed.is_empty() {
                display::print_line(&render_table(cx, &args, &changed));
            }
            seen = tasks.iter().map(|task| (task.id, task.seq)).collect();
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.drain.cancelled() => return Ok(ExitKind::Ok),
        }
    }
}
