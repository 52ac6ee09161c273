//! `docket ps`: tasks, newest first.

use docket_schema::{
    ids::{QueueName, RunId, TaskId, Timestamp},
    task::{TaskBlockedWhy, TaskRecord, TaskState},
    wire::TaskQuery,
};
use serde::Serialize;

use crate::{
    access::{Access, Need},
    answer,
    context::Context,
    display::{self, Cell, Style, Table},
    fail::{Exit, Outcome},
};

/// Questions that a list repeats: more would push the list off the screen.
const QUESTIONS_SHOWN_MAX: usize = 5;
/// Lines of each; `docket show` has the whole.
const QUESTION_LINES_MAX: usize = 3;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket ps
  docket ps --state discarded
  docket ps --json | jq -r 'select(.state == \"running\") | .id'")]
pub(crate) struct Args {
    /// Only tasks in this state
    #[arg(long, value_parser = state)]
    state: Option<TaskState>,
    /// Only tasks of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

fn state(text: &str) -> Result<TaskState, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("it is one of {}", all.join(", "))
    })
}

/// A task as `--json` shows it: flat, and stable.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    id: TaskId,
    state: TaskState,
    /// For what a blocked task waits: `person`, `child`, `paused`, `provider`.
    blocked_why: Option<TaskBlockedWhy>,
    title: String,
    queue: QueueName,
    priority: i16,
    model: String,
    engine: String,
    runs: u32,
    failures: u32,
    crashes: u32,
    epoch: u64,
    run: Option<RunId>,
    submitted_at: Timestamp,
    available_at: Timestamp,
    ended_at: Option<Timestamp>,
    message: Option<String>,
}

impl Row {
    /// The row of a task.
    pub(crate) fn of(task: &TaskRecord) -> Self {
        Self {
            id: task.id,
            state: task.state,
            blocked_why: task.blocked_why,
            title: task.spec.title.clone(),
            queue: task.spec.queue.clone(),
            priority: task.spec.priority,
            model: task.spec.model.to_string(),
            engine: task.spec.engine.clone(),
            runs: task.runs,
            failures: task.failures,
            crashes: task.crashes,
            epoch: task.epoch.0,
            run: task.last_run,
            submitted_at: task.submitted_at,
            available_at: task.available_at,
            ended_at: task.ended_at,
            message: task.message.clone(),
        }
    }
}

/// A task's state, as people read it: a paused one is blocked, but waits for nothing else.
pub(crate) const fn word(task: &TaskRecord) -> &'static str {
    match task.blocked_why {
        Some(TaskBlockedWhy::Paused) => "paused",
        Some(
            TaskBlockedWhy::Person
            | TaskBlockedWhy::Child
            | TaskBlockedWhy::Provider
            | TaskBlockedWhy::Outage,
        )
        | None => task.state.as_str(),
    }
}

/// How a state looks.
pub(crate) const fn style_of(state: TaskState) -> Style {
    match state {
        TaskState::Completed => Style::Good,
        TaskState::Discarded => Style::Bad,
        TaskState::Running | TaskState::Retryable | TaskState::Blocked => Style::Warn,
        TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Cancelled => Style::Dim,
    }
}

/// What tasks ask of people, and how they are answered.
fn say_questions(cx: &Context, tasks: &[TaskRecord]) {
    let waiting: Vec<(&TaskRecord, String)> =
        tasks.iter().filter_map(|task| answer::how(task).map(|how| (task, how))).collect();
    for (task, how) in waiting.iter().take(QUESTIONS_SHOWN_MAX) {
        let asks = task.message.as_deref().unwrap_or("it does not say what");
        display::say(&format!("\n{} asks:", cx.screen.paint(Style::Bold, &task.id.short())));
        let excerpt = display::excerpt(asks, QUESTION_LINES_MAX, "  ", usize::MAX);
        display::say(&format!("{}\n  {how}", excerpt.trim_end()));
    }
    if let Some(more) = waiting.len().checked_sub(QUESTIONS_SHOWN_MAX).filter(|more| *more > 0) {
        display::say(&format!("\n{more} more wait for an answer; `docket ps --state blocked` lists them"));
    }
}

/// Lists tasks.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let query = TaskQuery {
        state: args.state.map(Into::into),
        queue: args.queue,
        limit: Some(args.limit),
        ..TaskQuery::default()
    };
    let page = access.client.tasks(&query).await?;
    access.close().await?;
    if cx.json() {
        page.tasks.iter().for_each(|task| display::say_json(&Row::of(task)));
        return Ok(Exit::Ok);
    }
    if page.tasks.is_empty() {
        display::note("no tasks; `docket submit` adds one, `docket demo` shows how it works");
        return Ok(Exit::Ok);
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = Table::new(&["TASK", "RUN", "STATE", "RUNS", "AGE", "TITLE"]);
    for task in &page.tasks {
        table.row(vec![
            Cell::new(task.id.short()),
            Cell::new(task.last_run.map_or_else(|| "-".to_owned(), |run| run.short())),
            Cell::styled(word(task), style_of(task.state)),
            Cell::new(task.runs.to_string()),
            Cell::new(display::duration(now.ms_since(task.submitted_at))),
            Cell::new(&task.spec.title),
        ]);
    }
    display::say(&table.render(cx.screen));
    say_questions(&cx, &page.tasks);
    if page.next.is_some() {
        display::note(&format!("there are more; -n {} shows more of them", (args.limit * 2).min(1000)));
    }
    Ok(Exit::Ok)
}
