//! `docket ps`: tasks, newest first.

use crate::output::task_rows;
use crate::output::task_rows::{Row, style_of, word};
use std::{
    collections::{HashMap, HashSet},
    io::IsTerminal as _,
    time::Duration,
};

use docket_schema::{
    ids::{Seq, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
    wire::{ProblemCode, ProviderWait, TaskPage},
};
use docket_worker::client::Client;

use crate::{
    connect::{
        access::{Access, Need},
        filter::FilterArgs,
    },
    context::Context,
    output::{
        display::{self, Cell, Style, Table},
        fail::{Exit, Outcome},
        signals::Stop,
    },
};

/// Most tasks that are read to be sorted.
const SORTED_MAX: u32 = 100_000;

/// Questions that a list repeats: more would push the list off the screen.
const QUESTIONS_SHOWN_MAX: usize = 5;
/// Tasks of a page of the list.
const PAGE_TASKS: u32 = 1000;
/// Lines of each; `docket show` has the whole.
const QUESTION_LINES_MAX: usize = 3;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns: task, run, state, runs, age, title, queue, priority, model, engine, batch, failures, ended, message.

Examples:
  docket ps
  docket ps --state discarded --batch todo --columns task,failures,message
  docket ps --state running,blocked --watch
  docket ps --title '*rounding*' --since 2d --sort priority
  docket ps --json | jq -r 'select(.state == \"running\") | .id'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// The order, of all that the filters mean
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// What is shown, with commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "COLUMNS",
        hide_possible_values = true,
        default_value = "task,run,state,runs,age,title"
    )]
    columns: Vec<Column>,
    /// Look again and again, each second or as often as is said: on a terminal the list, else what changes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Sort {
    /// The newest first
    #[default]
    Newest,
    /// The oldest first
    Oldest,
    /// The highest priority first
    Priority,
    /// By state
    State,
    /// By title
    Title,
    /// Most runs first
    Runs,
    /// Those that ended last first
    Ended,
}

impl Sort {
    fn order(self, tasks: &mut [TaskRecord]) {
        use std::cmp::Reverse;
        // They come newest first, and what is equal stays so.
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

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Column {
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

impl Column {
    const fn head(self) -> &'static str {
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

    fn cell(self, task: &TaskRecord, now: Timestamp) -> Cell {
        let none = || "-".to_owned();
        match self {
            Self::Task => Cell::new(task.id.short()),
            Self::Run => Cell::new(task.last_run.map_or_else(none, |run| run.short())),
            Self::State => Cell::styled(word(task), style_of(task.state)),
            Self::Runs => Cell::new(task.runs.to_string()),
            Self::Age => Cell::new(display::duration(now.ms_since(task.submitted_at))),
            Self::Title => Cell::new(&task.spec.title),
            Self::Queue => Cell::new(task.spec.queue.as_str()),
            Self::Priority => Cell::new(task.spec.priority.to_string()),
            Self::Model => Cell::new(task.spec.model.to_string()),
            Self::Engine => Cell::new(&task.spec.engine),
            Self::Batch => {
                let id = || task.spec.batch.map_or_else(none, |batch| batch.short());
                Cell::new(task.spec.batch_name.clone().unwrap_or_else(id))
            }
            Self::Failures => Cell::new(task.failures.to_string()),
            Self::Ended => Cell::new(
                task.ended_at.map_or_else(none, |at| format!("{} ago", display::duration(now.ms_since(at)))),
            ),
            Self::Message => {
                let message = task.message.as_deref().or(task.unverified.as_deref()).unwrap_or("-");
                Cell::new(display::in_one_line(message))
            }
        }
    }
}

/// What tasks ask of people, and how they are answered.
fn say_questions(cx: &Context, tasks: &[TaskRecord]) {
    let waiting: Vec<(&TaskRecord, String)> =
        tasks.iter().filter_map(|task| task_rows::how(task).map(|how| (task, how))).collect();
    for (task, how) in waiting.iter().take(QUESTIONS_SHOWN_MAX) {
        let asks = task.message.as_deref().unwrap_or("it does not say what");
        let verb = if task.is_undelivered() { "is not delivered" } else { "asks" };
        display::say(&format!("\n{} {verb}:", cx.screen.paint(Style::Bold, &task.id.short())));
        let excerpt = display::excerpt(asks, QUESTION_LINES_MAX, "  ", usize::MAX);
        display::say(&cx.screen.prose(&format!("{}\n  {how}", excerpt.trim_end())));
    }
    if let Some(more) = waiting.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said = format!("\n{more} more wait for an answer; `docket ps --state blocked` lists them");
        display::say(&cx.screen.prose(&said));
    }
    let troubled: Vec<&TaskRecord> =
        tasks.iter().filter(|task| task.state == TaskState::Completed && task.message.is_some()).collect();
    for task in troubled.iter().take(QUESTIONS_SHOWN_MAX) {
        let (id, message) = (task.id.short(), task.message.as_deref().unwrap_or_default());
        let said = format!(
            "\n{id}: {}; `docket apply {id}` or `docket push {id}` runs it again",
            display::line(&display::in_one_line(message))
        );
        display::say(&cx.screen.prose(&said));
    }
    if let Some(more) = troubled.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said = format!("\n{more} more hooks did not end well; `--columns task,message` shows them");
        display::say(&cx.screen.prose(&said));
    }
}

/// Lists tasks.
pub(crate) async fn run(cx: Context, mut args: Args) -> Outcome {
    if let Some(seconds) = args.watch {
        return watch(&cx, args, Duration::from_secs(seconds)).await;
    }
    let access = Access::open(&cx, Need::Read).await?;
    args.filter.find_batch(&access.client).await?;
    let streams = cx.json() && args.sort == Sort::Newest;
    let each = |page: &TaskPage| {
        if streams {
            page.tasks.iter().for_each(|task| display::say_json(&Row::with(task, &page.waits)));
        }
    };
    let Listed { tasks, waits, more } = read(&access.client, &args, each).await?;
    if !cx.json() {
        args.filter.tell_archived(&access.client).await;
    }
    access.close().await?;
    if cx.json() {
        if !streams {
            tasks.iter().for_each(|task| display::say_json(&Row::with(task, &waits)));
        }
        return Ok(Exit::Ok);
    }
    say_list(&cx, &args, &tasks, &waits);
    if more {
        let again = args.limit.saturating_mul(2).min(100_000);
        display::note(&format!("there are more; -n {again} shows more of them"));
    }
    Ok(Exit::Ok)
}

/// What a look at the tasks found.
struct Listed {
    tasks: Vec<TaskRecord>,
    waits: Vec<ProviderWait>,
    more: bool,
}

/// The first of the tasks that are meant, and whether there are more: page by page, the newest first; in another order,
/// all of them are read.
async fn read(client: &Client, args: &Args, mut each: impl FnMut(&TaskPage)) -> Outcome<Listed> {
    let mut query = args.filter.query(docket_coordinator::clock::Clock::new().now());
    let most = if args.sort == Sort::Newest { args.limit } else { SORTED_MAX };
    let (mut tasks, mut waits): (Vec<TaskRecord>, Vec<ProviderWait>) = (Vec::new(), Vec::new());
    let ordered = |mut tasks: Vec<TaskRecord>, waits: Vec<ProviderWait>, more: bool| {
        args.sort.order(&mut tasks);
        let more = more || tasks.len() > args.limit as usize;
        tasks.truncate(args.limit as usize);
        Listed { tasks, waits, more }
    };
    loop {
        let left = most - u32::try_from(tasks.len()).unwrap_or(most).min(most);
        query.limit = Some(left.clamp(1, PAGE_TASKS));
        let page = client.tasks(&query).await?;
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

fn say_list(cx: &Context, args: &Args, tasks: &[TaskRecord], waits: &[ProviderWait]) {
    if tasks.is_empty() {
        let any = args.filter.query(Timestamp(0)).has_filter();
        return display::note(if any {
            "no tasks like these"
        } else {
            "no tasks; `docket submit` adds one, `docket demo` shows how it works"
        });
    }
    display::say(&table(cx, args, tasks));
    say_questions(cx, tasks);
    for wait in waits.iter().take(QUESTIONS_SHOWN_MAX) {
        let (id, wait) = (wait.task.short(), wait.to_string());
        display::say(&cx.screen.prose(&format!("\n{id} runs: {}", display::line(&wait))));
    }
    if let Some(more) = waits.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        let said = format!("\n{more} more wait for a provider's limit; `docket limit list` shows them");
        display::say(&cx.screen.prose(&said));
    }
}

fn table(cx: &Context, args: &Args, tasks: &[TaskRecord]) -> String {
    let now = docket_coordinator::clock::Clock::new().now();
    let heads: Vec<&'static str> = args.columns.iter().map(|column| column.head()).collect();
    let mut table = Table::new(&heads);
    for task in tasks {
        table.row(args.columns.iter().map(|column| column.cell(task, now)).collect());
    }
    table.render(cx.screen)
}

/// Tasks that were listed, are not any more, and changed: as they stand now.
async fn left(
    client: &Client,
    seen: &HashMap<TaskId, Seq>,
    listed: &[TaskRecord],
) -> Outcome<Vec<TaskRecord>> {
    let listed: HashSet<TaskId> = listed.iter().map(|task| task.id).collect();
    let mut left = Vec::new();
    for (id, seq) in seen.iter().filter(|(id, _)| !listed.contains(id)) {
        match client.task(*id).await {
            Ok(view) => left.extend(Some(view.task).filter(|task| task.seq != *seq)),
            // It is in the archive by now.
            Err(error) if error.code() == Some(ProblemCode::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    left.sort_unstable_by_key(|task| std::cmp::Reverse(task.id));
    Ok(left)
}

/// As much of a list as a terminal's rows hold: its head and first rows are what is looked at.
fn say_screen(cx: &Context, args: &Args, tasks: &[TaskRecord], waits: &[ProviderWait]) {
    // The head, a line that says how many more there are, and the cursor's.
    let room = usize::from(console::Term::stdout().size().0).saturating_sub(3).max(1);
    if tasks.len() <= room / 2 {
        return say_list(cx, args, tasks, waits);
    }
    let shown = &tasks[..tasks.len().min(room)];
    display::say(&table(cx, args, shown));
    if tasks.len() > shown.len() {
        display::say(&format!("and {} more", tasks.len() - shown.len()));
    }
}

/// Looks again and again, until Ctrl-C or until nobody reads.
async fn watch(cx: &Context, mut args: Args, every: Duration) -> Outcome {
    let mut found = false;
    let stop = Stop::listen()?;
    let redraws = !cx.json() && std::io::stdout().is_terminal();
    let mut seen: HashMap<TaskId, Seq> = HashMap::new();
    loop {
        // A coordinator that comes and goes is found again each time.
        let access = Access::open(cx, Need::Read).await?;
        if !std::mem::replace(&mut found, true) {
            args.filter.find_batch(&access.client).await?;
        }
        let Listed { tasks, waits, .. } = read(&access.client, &args, |_| {}).await?;
        let left = if redraws { Vec::new() } else { left(&access.client, &seen, &tasks).await? };
        access.close().await?;
        if redraws {
            // The screen is emptied, and the list begins at its top.
            display::say_bytes(b"\x1b[2J\x1b[H");
            say_screen(cx, &args, &tasks, &waits);
        } else {
            let is_new = |task: &&TaskRecord| seen.get(&task.id) != Some(&task.seq);
            let changed: Vec<TaskRecord> =
                left.into_iter().chain(tasks.iter().filter(is_new).cloned()).collect();
            if cx.json() {
                changed.iter().for_each(|task| display::say_json(&Row::of(task)));
            } else if !changed.is_empty() {
                display::say(&table(cx, &args, &changed));
            }
            seen = tasks.iter().map(|task| (task.id, task.seq)).collect();
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stop.drain.cancelled() => return Ok(Exit::Ok),
        }
    }
}
