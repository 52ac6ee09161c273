//! `docket batch`: shows the progress and budget of tasks that were submitted together.

mod budget;

use crate::connect::batch_lookup::resolve_batch;
use crate::output::task_rows;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    api::{BatchList, BatchView, BlockedCount, ProblemCode},
    task::{TaskBlockedReason, TaskState},
};
use docket_worker::client::CoordinatorClient;
use serde_json::json;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
        signals::StopSignals,
    },
    progress::ProgressDisplay,
};

/// Poll interval while waiting for a batch.
const WAIT_POLL: Duration = Duration::from_millis(500);
/// Maximum width of a message.
const MESSAGE_CHARS: usize = 160;

/// Command-line arguments of `docket batch`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a batch, lists the batches of the newest tasks. Name a batch as in
`docket import --batch`, or by its ID, in full or as shown in lists; the last part of the name is
enough if it is unique. With --wait the exit code is 0 if every task completed, and 1 if a task
did not complete or waits for a person.

Examples:
  docket batch
  docket batch shop/backlog.jsonl
  docket batch todo --wait && echo all done
  docket batch budget todo --usd 20
  docket ps --batch todo --state discarded && docket retry --batch todo --yes"
)]
pub(crate) struct BatchArgs {
    #[command(subcommand)]
    command: Option<BatchCommand>,
    /// Name or ID of the batch
    #[arg(value_name = "BATCH")]
    batch: Option<String>,
    /// Wait until every task has ended or waits for a person
    #[arg(long, requires = "batch")]
    wait: bool,
}

#[derive(Debug, clap::Subcommand)]
enum BatchCommand {
    /// Set the budget that the runs of a batch share
    Budget(budget::BatchBudgetArgs),
}

pub(crate) async fn run_batch(cx: CliContext, args: BatchArgs) -> CliResult {
    if let Some(BatchCommand::Budget(args)) = args.command {
        return budget::run_batch_budget(cx, args).await;
    }
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let exit = match &args.batch {
        None => {
            print_batches(&cx, &access.client.list_batches().await?);
            Ok(ExitKind::Ok)
        }
        Some(text) if args.wait => wait_for_batch(&cx, &access, text).await,
        Some(text) => {
            print_batch(&cx, &fetch_batch(&access.client, text).await?);
            Ok(ExitKind::Ok)
        }
    };
    access.close().await?;
    exit
}

async fn fetch_batch(client: &CoordinatorClient, text: &str) -> CliResult<BatchView> {
    let id = resolve_batch(client, text).await?;
    client.get_batch(id).await.map_err(|error| match error.problem_code() {
        Some(ProblemCode::NotFound) => CliError::new(
            ExitKind::NotFound,
            display::sanitize_line(&format!("there is no batch `{text}`; see `docket batch`")).into_owned(),
        ),
        Some(_) | None => error.into(),
    })
}

fn count_tasks(view: &BatchView, is: impl Fn(TaskState) -> bool) -> u64 {
    view.states.iter().filter(|count| is(count.state)).map(|count| count.count).sum()
}

/// Estimates the remaining time from the rate between the first and the last end.
fn remaining_ms(view: &BatchView) -> Option<u64> {
    let ended = count_tasks(view, TaskState::is_ended);
    let (from, to) = (view.first_ended_at?, view.last_ended_at?);
    let between = ended.checked_sub(1).filter(|between| *between > 0)?;
    // Waits for people cannot be estimated, so those tasks are excluded.
    let rest = (view.tasks - ended).saturating_sub(view.waiting_for_people());
    (rest > 0).then(|| to.ms_since(from).saturating_mul(rest) / between)
}

async fn wait_for_batch(cx: &CliContext, access: &Coordinator, text: &str) -> CliResult {
    let first = fetch_batch(&access.client, text).await?;
    let stop = StopSignals::listen()?;
    let progress = ProgressDisplay::spinner(cx);
    let began = Instant::now();
    let mut view = first;
    while !view.is_settled() {
        let left = remaining_ms(&view)
            .map(|ms| format!(", about {} left", display::format_duration(ms)))
            .unwrap_or_default();
        progress.set_message(format!(
            "{} of {} ended, {} running{left}",
            count_tasks(&view, TaskState::is_ended),
            view.tasks,
            count_tasks(&view, |state| state == TaskState::Running)
        ));
        if access.is_local() && began.elapsed() > WAIT_POLL * 2 {
            let message =
                "no workers are running; start them with `docket up` and this command waits for them";
            return Err(CliError::new(ExitKind::Failed, message));
        }
        tokio::select! {
            () = tokio::time::sleep(WAIT_POLL) => {}
            () = stop.drain.cancelled() => {
                return Err(CliError::new(ExitKind::Failed, "interrupted; the batch continues"));
            }
        }
        view = fetch_batch(&access.client, text).await?;
    }
    drop(progress);
    print_batch(cx, &view);
    let completed = count_tasks(&view, |state| state == TaskState::Completed);
    Ok(if completed == view.tasks { ExitKind::Ok } else { ExitKind::Failed })
}

fn print_batches(cx: &CliContext, list: &BatchList) {
    if cx.is_json() {
        list.batches.iter().for_each(display::print_json);
        return;
    }
    if list.batches.is_empty() {
        display::print_note("no batches; create one with `docket import`");
        return;
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = TextTable::new(&["BATCH", "TASKS", "ENDED", "AGE", "NAME"]);
    for batch in &list.batches {
        table.add_row(vec![
            TableCell::new(batch.id.short()),
            TableCell::new(batch.tasks.to_string()),
            TableCell::new(batch.ended.to_string()),
            TableCell::new(display::format_duration(now.ms_since(batch.last_submitted_at))),
            TableCell::new(batch.name.clone().unwrap_or_else(|| batch.id.to_string())),
        ]);
    }
    display::print_line(&table.render(cx.screen));
    if list.more {
        display::print_note("there are more batches of older tasks");
    }
}

fn print_batch(cx: &CliContext, view: &BatchView) {
    let now = docket_coordinator::clock::Clock::new().now();
    if cx.is_json() {
        let states: BTreeMap<&str, u64> =
            view.states.iter().map(|count| (count.state.as_str(), count.count)).collect();
        display::print_json(&json!({
            "batch": view.id, "name": view.name, "tasks": view.tasks, "archived": view.archived, "states": states, "runs": view.runs,
            "blocked": view.blocked, "behind_failed": view.behind_failed, "behind_blocked": view.behind_blocked,
            "behind_children": view.behind_children,
            "tokens": view.used.tokens, "cost_nusd": view.used.cost_nusd, "budget": view.budget,
            "failures": view.failures, "crashes": view.crashes, "messages": view.messages,
            "oldest_running": view.oldest_running, "first_submitted_at": view.first_submitted_at,
            "last_submitted_at": view.last_submitted_at, "first_ended_at": view.first_ended_at,
            "last_ended_at": view.last_ended_at, "rest_ms": remaining_ms(view),
        }));
        return;
    }
    let name = view.name.clone().map(|name| format!("{name}  ")).unwrap_or_default();
    let tell = |text: &str| display::print_line(&cx.screen.wrap_prose(text));
    tell(&display::sanitize_line(&format!("batch {name}{}", view.id)));
    let states: Vec<String> = view
        .states
        .iter()
        .map(|of| cx.screen.paint(task_rows::state_style(of.state), &format!("{} {}", of.count, of.state)))
        .collect();
    let archived = match view.archived {
        0 => String::new(),
        count => format!("; {count} of them archived"),
    };
    tell(&format!("{}: {}{archived}", display::format_count(view.tasks, "task"), states.join(", ")));
    tell(&format!(
        "{}, {} failed, {} crashed; {}",
        display::format_count(view.runs, "run"),
        view.failures,
        view.crashes,
        budget::format_used(&view.used)
    ));
    if !view.budget.is_none() {
        tell(&display::sanitize_line(&format!(
            "budget: {}",
            budget::format_budget_use(&view.budget, &view.used)
        )));
    }
    if let Some(oldest) = &view.oldest_running {
        let age = display::format_duration(now.ms_since(oldest.since));
        tell(&format!("running for the longest: task {}, {age}", oldest.task.short()));
    }
    if let Some(ms) = remaining_ms(view) {
        display::print_line(&format!("about {} left, at the rate so far", display::format_duration(ms)));
    }
    blocked_lines(view).iter().for_each(|line| tell(&display::sanitize_line(line)));
    for said in &view.messages {
        let message: String = said.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message: String = message.chars().take(MESSAGE_CHARS).collect();
        tell(&display::sanitize_line(&format!(
            "{:>6}  {message}  (e.g. task {})",
            said.count,
            said.task.short()
        )));
    }
}

/// Returns lines about tasks that need an action before they continue, and the command for it.
fn blocked_lines(view: &BatchView) -> Vec<String> {
    let name = view.name.clone().unwrap_or_else(|| view.id.to_string());
    let mut lines = Vec::new();
    let of_budget = |blocked: &&BlockedCount| blocked.why == TaskBlockedReason::Budget;
    let rest: u64 = view.blocked.iter().filter(of_budget).map(|blocked| blocked.count).sum();
    if view.budget.spent.is_some() {
        let waiting_tasks = count_tasks(view, |state| state == TaskState::Available);
        lines.push(format!(
            "{rest} paused and {waiting_tasks} waiting for budget: raise it with `docket batch budget '{name}'`"
        ));
    }
    match view.behind_failed {
        0 => {}
        held => lines.push(format!(
            "{} for a task that failed: retry those with `docket retry --batch '{name}' --state discarded,cancelled`",
            format_waiting(held)
        )),
    }
    match view.behind_blocked {
        0 => {}
        held => lines.push(format!(
            "{} for a task that waits for a person: `docket ps --batch '{name}' --state blocked`",
            format_waiting(held)
        )),
    }
    match view.behind_children {
        0 => {}
        held => lines.push(format!(
            "{} for a task that waits for its children: `docket ps --batch '{name}' --state blocked`",
            format_waiting(held)
        )),
    }
    lines
}

fn format_waiting(count: u64) -> String {
    if count == 1 { "1 is waiting".to_owned() } else { format!("{count} are waiting") }
}

#[cfg(test)]
mod tests {
    use docket_schema::{api::StateCount, ids::Timestamp};

    use super::*;
    use crate::connect::batch_lookup::batch_id_from_name;

    #[test]
    fn remaining_time_follows_the_completion_rate() {
        let state = |state, count| StateCount { state, count };
        let mut view = BatchView {
            id: batch_id_from_name("a"),
            name: None,
            tasks: 10,
            archived: 0,
            states: vec![
                state(TaskState::Completed, 4),
                state(TaskState::Discarded, 1),
                state(TaskState::Running, 5),
            ],
            blocked: Vec::new(),
            behind_failed: 0,
            behind_blocked: 0,
            behind_children: 0,
            budget: docket_schema::api::BatchBudget::default(),
            used: docket_schema::system::BatchSpending::default(),
            runs: 0,
            failures: 0,
            crashes: 0,
            messages: Vec::new(),
            oldest_running: None,
            first_submitted_at: Timestamp(0),
            last_submitted_at: Timestamp(0),
            first_ended_at: Some(Timestamp(1_000_000)),
            last_ended_at: Some(Timestamp(9_000_000)),
        };
        assert_eq!(remaining_ms(&view), Some(10_000), "five more, each two seconds");
        view.behind_failed = 2;
        assert_eq!(remaining_ms(&view), Some(6_000), "two of them wait for a person");
        view.behind_failed = 5;
        assert_eq!(remaining_ms(&view), None, "all of them do");
        view.behind_failed = 0;
        view.states = vec![state(TaskState::Completed, 10)];
        assert_eq!(remaining_ms(&view), None);
        view.states = vec![state(TaskState::Completed, 1), state(TaskState::Running, 9)];
        assert_eq!(remaining_ms(&view), None, "one end says nothing of a rate");
    }
}
