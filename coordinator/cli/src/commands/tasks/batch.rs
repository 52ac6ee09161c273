//! `docket batch`: tasks that were submitted together, how they stand, and what they may use.

mod budget;

use crate::connect::batches::meant;
use crate::output::task_rows;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    task::{TaskBlockedWhy, TaskState},
    wire::{BatchList, BatchView, BlockedCount, ProblemCode},
};
use docket_worker::client::Client;
use serde_json::json;

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Failure, Outcome},
        signals::Stop,
    },
    progress::Progress,
};

/// How often a batch that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(500);
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
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The batch: its name, or its id
    #[arg(value_name = "BATCH")]
    batch: Option<String>,
    /// Until every task has ended, or waits for a person
    #[arg(long, requires = "batch")]
    wait: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Set what the runs of a batch may use together
    Budget(budget::Args),
}

/// Tells of batches.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if let Some(What::Budget(args)) = args.what {
        return budget::run(cx, args).await;
    }
    let access = Access::open(&cx, Need::Read).await?;
    let exit = match &args.batch {
        None => {
            list(&cx, &access.client.batches().await?);
            Ok(Exit::Ok)
        }
        Some(text) if args.wait => wait(&cx, &access, text).await,
        Some(text) => {
            show(&cx, &read(&access.client, text).await?);
            Ok(Exit::Ok)
        }
    };
    access.close().await?;
    exit
}

async fn read(client: &Client, text: &str) -> Outcome<BatchView> {
    let id = meant(client, text).await?;
    client.batch(id).await.map_err(|error| match error.code() {
        Some(ProblemCode::NotFound) => Failure::new(
            Exit::NotFound,
            display::line(&format!("there is no batch `{text}`; `docket batch` lists them")).into_owned(),
        ),
        Some(_) | None => error.into(),
    })
}

fn count(view: &BatchView, is: impl Fn(TaskState) -> bool) -> u64 {
    view.states.iter().filter(|count| is(count.state)).map(|count| count.count).sum()
}

/// How long the rest takes if it goes on as it went: from the first end to the last.
fn rest_ms(view: &BatchView) -> Option<u64> {
    let ended = count(view, TaskState::is_ended);
    let (from, to) = (view.first_ended_at?, view.last_ended_at?);
    let between = ended.checked_sub(1).filter(|between| *between > 0)?;
    // Nobody knows how long people take.
    let rest = (view.tasks - ended).saturating_sub(view.waiting_for_people());
    (rest > 0).then(|| to.ms_since(from).saturating_mul(rest) / between)
}

async fn wait(cx: &Context, access: &Access, text: &str) -> Outcome {
    let first = read(&access.client, text).await?;
    let stop = Stop::listen()?;
    let progress = Progress::waiting(cx);
    let began = Instant::now();
    let mut view = first;
    while !view.is_settled() {
        let left =
            rest_ms(&view).map(|ms| format!(", about {} left", display::duration(ms))).unwrap_or_default();
        progress.say(format!(
            "{} of {} ended, {} running{left}",
            count(&view, TaskState::is_ended),
            view.tasks,
            count(&view, |state| state == TaskState::Running)
        ));
        if access.is_alone() && began.elapsed() > LOOK * 2 {
            let message = "nobody works here now; `docket up` starts workers, and then this waits for them";
            return Err(Failure::new(Exit::Failed, message));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.drain.cancelled() => {
                return Err(Failure::new(Exit::Failed, "interrupted; the batch goes on"));
            }
        }
        view = read(&access.client, text).await?;
    }
    drop(progress);
    show(cx, &view);
    let completed = count(&view, |state| state == TaskState::Completed);
    Ok(if completed == view.tasks { Exit::Ok } else { Exit::Failed })
}

fn list(cx: &Context, list: &BatchList) {
    if cx.json() {
        list.batches.iter().for_each(display::say_json);
        return;
    }
    if list.batches.is_empty() {
        display::note("no batches; `docket import` makes one");
        return;
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = Table::new(&["BATCH", "TASKS", "ENDED", "AGE", "NAME"]);
    for batch in &list.batches {
        table.row(vec![
            Cell::new(batch.id.short()),
            Cell::new(batch.tasks.to_string()),
            Cell::new(batch.ended.to_string()),
            Cell::new(display::duration(now.ms_since(batch.last_submitted_at))),
            Cell::new(batch.name.clone().unwrap_or_else(|| batch.id.to_string())),
        ]);
    }
    display::say(&table.render(cx.screen));
    if list.more {
        display::note("there are more, of older tasks");
    }
}

fn show(cx: &Context, view: &BatchView) {
    let now = docket_coordinator::clock::Clock::new().now();
    if cx.json() {
        let states: BTreeMap<&str, u64> =
            view.states.iter().map(|count| (count.state.as_str(), count.count)).collect();
        display::say_json(&json!({
            "batch": view.id, "name": view.name, "tasks": view.tasks, "archived": view.archived, "states": states, "runs": view.runs,
            "blocked": view.blocked, "behind_failed": view.behind_failed, "behind_blocked": view.behind_blocked,
            "behind_children": view.behind_children,
            "tokens": view.used.tokens, "cost_nusd": view.used.cost_nusd, "budget": view.budget,
            "failures": view.failures, "crashes": view.crashes, "messages": view.messages,
            "oldest_running": view.oldest_running, "first_submitted_at": view.first_submitted_at,
            "last_submitted_at": view.last_submitted_at, "first_ended_at": view.first_ended_at,
            "last_ended_at": view.last_ended_at, "rest_ms": rest_ms(view),
        }));
        return;
    }
    let name = view.name.clone().map(|name| format!("{name}  ")).unwrap_or_default();
    let tell = |text: &str| display::say(&cx.screen.prose(text));
    tell(&display::line(&format!("batch {name}{}", view.id)));
    let states: Vec<String> = view
        .states
        .iter()
        .map(|of| cx.screen.paint(task_rows::style_of(of.state), &format!("{} {}", of.count, of.state)))
        .collect();
    let archived = match view.archived {
        0 => String::new(),
        count => format!("; {count} of them archived"),
    };
    tell(&format!("{}: {}{archived}", display::count(view.tasks, "task"), states.join(", ")));
    tell(&format!(
        "{}, {} failed, {} crashed; {}",
        display::count(view.runs, "run"),
        view.failures,
        view.crashes,
        budget::used_words(&view.used)
    ));
    if !view.budget.is_none() {
        tell(&display::line(&format!("budget: {}", budget::words(&view.budget, &view.used))));
    }
    if let Some(oldest) = &view.oldest_running {
        let age = display::duration(now.ms_since(oldest.since));
        tell(&format!("running for the longest: task {}, {age}", oldest.task.short()));
    }
    if let Some(ms) = rest_ms(view) {
        display::say(&format!("about {} left, at the rate so far", display::duration(ms)));
    }
    waits(view).iter().for_each(|line| tell(&display::line(line)));
    for said in &view.messages {
        let message: String = said.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message: String = message.chars().take(MESSAGE_CHARS).collect();
        tell(&display::line(&format!("{:>6}  {message}  (as task {})", said.count, said.task.short())));
    }
}

/// What does not go on before somebody does something, and what helps.
fn waits(view: &BatchView) -> Vec<String> {
    let name = view.name.clone().unwrap_or_else(|| view.id.to_string());
    let mut lines = Vec::new();
    let of_budget = |blocked: &&BlockedCount| blocked.why == TaskBlockedWhy::Budget;
    let rest: u64 = view.blocked.iter().filter(of_budget).map(|blocked| blocked.count).sum();
    if view.budget.spent.is_some() {
        let waiting_tasks = count(view, |state| state == TaskState::Available);
        lines.push(format!(
            "{rest} rest and {waiting_tasks} wait until it may use more: `docket batch budget '{name}'` raises that"
        ));
    }
    match view.behind_failed {
        0 => {}
        held => lines.push(format!(
            "{} for a task that failed: `docket retry --batch '{name}' --state discarded,cancelled` takes those up again",
            waiting(held)
        )),
    }
    match view.behind_blocked {
        0 => {}
        held => lines.push(format!(
            "{} for a task that waits for a person: `docket ps --batch '{name}' --state blocked`",
            waiting(held)
        )),
    }
    match view.behind_children {
        0 => {}
        held => lines.push(format!(
            "{} for a task that waits for its children: `docket ps --batch '{name}' --state blocked`",
            waiting(held)
        )),
    }
    lines
}

fn waiting(count: u64) -> String {
    if count == 1 { "1 waits".to_owned() } else { format!("{count} wait") }
}

#[cfg(test)]
mod tests {
    use docket_schema::{ids::Timestamp, wire::StateCount};

    use super::*;
    use crate::connect::batches::id_of;

    #[test]
    fn the_rest_is_told_by_the_rate() {
        let state = |state, count| StateCount { state, count };
        let mut view = BatchView {
            id: id_of("a"),
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
            budget: docket_schema::wire::BatchBudget::default(),
            used: docket_schema::system::Spending::default(),
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
        assert_eq!(rest_ms(&view), Some(10_000), "five more, each two seconds");
        view.behind_failed = 2;
        assert_eq!(rest_ms(&view), Some(6_000), "two of them wait for a person");
        view.behind_failed = 5;
        assert_eq!(rest_ms(&view), None, "all of them do");
        view.behind_failed = 0;
        view.states = vec![state(TaskState::Completed, 10)];
        assert_eq!(rest_ms(&view), None);
        view.states = vec![state(TaskState::Completed, 1), state(TaskState::Running, 9)];
        assert_eq!(rest_ms(&view), None, "one end says nothing of a rate");
    }
}
