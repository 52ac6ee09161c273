//! `docket batch`: tasks that were submitted together, how they stand, and what they may use.

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

/// How often a batch that is waited for is looked at.
const WAIT_POLL: Duration = Duration::from_millis(500);
/// How many columns a message may take.
const MESSAGE_CHARS: usize = 160;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a batch, those of the newest tasks are listed. A batch is named as `docket import --batch` did, or by
its id, whole or as lists show it; the last part of a name will do where no other ends so. With --wait the exit code says how it ended: 0 where every task was completed, 1 where one was
not, or waits for a person.

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
    /// The batch: its name, or its id
    #[arg(value_name = "BATCH")]
    batch: Option<String>,
    /// Until every task has ended, or waits for a person
    #[arg(long, requires = "batch")]
    wait: bool,
}

#[derive(Debug, clap::Subcommand)]
enum BatchCommand {
    /// Set what the runs of a batch may use together
    Budget(budget::BatchBudgetArgs),
}

/// Tells of batches.
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
            display::sanitize_line(&format!("there is no batch `{text}`; `docket batch` lists them"))
                .into_owned(),
        ),
        Some(_) | None => error.into(),
    })
}

fn count_tasks(view: &BatchView, is: impl Fn(TaskState) -> bool) -> u64 {
    view.states.iter().filter(|count| is(count.state)).map(|count| count.count).sum()
}

/// How long the rest takes if it goes on as it went: from the first end to the last.
fn remaining_ms(view: &BatchView) -> Option<u64> {
    let ended = count_tasks(view, TaskState::is_ended);
    let (from, to) = (view.first_ended_at?, view.last_ended_at?);
    let between = ended.checked_sub(1).filter(|between| *between > 0)?;
    // Nobody knows how long people take.
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
            let message = "nobody works here now; `docket up` starts workers, and then this waits for them";
            return Err(CliError::new(ExitKind::Failed, message));
        }
        tokio::select! {
            () = tokio::time::sleep(WAIT_POLL) => {}
            () = stop.drain.cancelled() => {
                return Err(CliError::new(ExitKind::Failed, "interrupted; the batch goes on"));
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
        display::print_note("no batches; `docket import` makes one");
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
        display::print_note("there are more, of older tasks");
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
            "{:>6}  {message}  (as task {})",
            said.count,
            said.task.short()
        )));
    }
}

/// What does not go on before somebody does something, and what helps.
fn blocked_lines(view: &BatchView) -> Vec<String> {
    let name = view.name.clone().unwrap_or_else(|| view.id.to_string());
    let mut lines = Vec::new();
    let of_budget = |blocked: &&BlockedCount| blocked.why == TaskBlockedReason::Budget;
    let rest: u64 = view.blocked.iter().filter(of_budget).map(|blocked| blocked.count).sum();
    if view.budget.spent.is_some() {
        let waiting_tasks = count_tasks(view, |state| state == TaskState::Available);
        lines.push(format!(
            "{rest} rest and {waiting_tasks} wait until it may use more: `docket batch budget '{name}'` raises that"
        ));
    }
    match view.behind_failed {
        0 => {}
        held => lines.push(format!(
            "{} for a task that failed: `docket retry --batch '{name}' --state discarded,cancelled` takes those up again",
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
    if count == 1 { "1 waits".to_owned() } else { format!("{count} wait") }
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
