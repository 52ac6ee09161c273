//! `docket queue`: how the queues stand; pause, open, limit, drain one.

use std::time::{Duration, Instant};

use docket_schema::{
    ids::{QueueName, Timestamp},
    task::TaskState,
    wire::{QueueView, SetQueueRequest},
};
use docket_worker::client::Client;

use crate::{
    config::values::period,
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Failure, Outcome},
    },
};

/// How often a drain looks whether anything runs still.
const DRAIN_POLL: Duration = Duration::from_millis(250);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A paused queue gives out no tasks; those that run go on. `drain` pauses and waits until none runs: exit code 1
if the time is over first. A limit holds over all workers and coordinators.

Examples:
  docket queue
  docket queue set slow --max 3
  docket queue pause nightly && docket queue unpause nightly
  docket queue drain default --timeout 30m"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Every queue with tasks or settings (as without a subcommand)
    #[command(after_help = "Examples:
  docket queue list
  docket queue list --json")]
    List,
    /// Give out no more of its tasks
    #[command(after_help = "Examples:
  docket queue pause nightly")]
    Pause {
        /// The queue
        name: QueueName,
    },
    /// Give its tasks out again
    #[command(after_help = "Examples:
  docket queue unpause nightly")]
    Unpause {
        /// The queue
        name: QueueName,
    },
    /// Limit how many of its tasks run at a time
    #[command(after_help = "Examples:
  docket queue set slow --max 3
  docket queue set slow --max 0")]
    Set {
        /// The queue
        name: QueueName,
        /// At most so many; 0 = as many as there are workers for
        #[arg(long, value_name = "N")]
        max: u32,
    },
    /// Pause it, and wait until none of its tasks runs
    #[command(after_help = "Examples:
  docket queue drain default --timeout 30m")]
    Drain {
        /// The queue
        name: QueueName,
        /// How long to wait at most, as 90s, 30m or 2h [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = period)]
        timeout: Option<u64>,
    },
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let need = if matches!(args.what, None | Some(What::List)) { Need::Read } else { Need::Write };
    let access = Access::open(&cx, need).await?;
    let set = async |name: &QueueName, paused, running_max| {
        let view = access.client.set_queue(name, &SetQueueRequest { paused, running_max }).await?;
        said(&cx, &view);
        Ok::<_, Failure>(view)
    };
    match args.what {
        None | Some(What::List) => list(&cx, &access.client).await?,
        Some(What::Pause { name }) => drop(set(&name, Some(true), None).await?),
        Some(What::Unpause { name }) => drop(set(&name, Some(false), None).await?),
        Some(What::Set { name, max }) => drop(set(&name, None, Some(max)).await?),
        Some(What::Drain { name, timeout }) => {
            let until = timeout.map(|ms| Instant::now() + Duration::from_millis(ms));
            let mut view = set(&name, Some(true), None).await?;
            while view.count(TaskState::Running) > 0 {
                if until.is_some_and(|until| Instant::now() >= until) {
                    let running = view.count(TaskState::Running);
                    access.close().await?;
                    let message = format!("{running} tasks of queue {name} run still; it stays paused");
                    return Err(Failure::new(Exit::Failed, message));
                }
                tokio::time::sleep(DRAIN_POLL).await;
                view = one(&access.client, &name).await?.unwrap_or(QueueView { tasks: Vec::new(), ..view });
            }
            if !cx.json() {
                display::say(&format!("no task of queue {name} runs"));
            }
        }
    }
    access.close().await?;
    Ok(Exit::Ok)
}

async fn one(client: &Client, name: &QueueName) -> Outcome<Option<QueueView>> {
    Ok(client.queues().await?.queues.into_iter().find(|queue| queue.name == *name))
}

fn said(cx: &Context, view: &QueueView) {
    if cx.json() {
        display::say_json(view);
        return;
    }
    let paused = if view.settings.paused { "paused" } else { "open" };
    let max = view.settings.running_max.map_or(String::new(), |max| format!(", at most {max} run at a time"));
    let running = view.count(TaskState::Running);
    let run = if running == 1 { "runs" } else { "run" };
    display::say(&format!("queue {} is {paused}{max}; {running} of its tasks {run}", view.name));
    if view.tasks.is_empty() {
        display::note("it has no task that has not ended; `docket queue` lists those that have");
    }
}

async fn list(cx: &Context, client: &Client) -> Outcome<()> {
    let queues = client.queues().await?.queues;
    if cx.json() {
        queues.iter().for_each(display::say_json);
        return Ok(());
    }
    if queues.is_empty() {
        display::note("no queue has tasks that have not ended, nor settings");
        return Ok(());
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table =
        Table::new(&["QUEUE", "STATE", "RUNNING", "MAX", "AVAILABLE", "WAITING", "BLOCKED", "OLDEST"]);
    for queue in &queues {
        let waiting = [TaskState::Pending, TaskState::Scheduled, TaskState::Retryable];
        let waiting: u64 = waiting.into_iter().map(|state| queue.count(state)).sum();
        table.row(vec![
            Cell::new(queue.name.as_str()),
            Cell::new(if queue.settings.paused { "paused" } else { "open" }),
            Cell::new(queue.count(TaskState::Running).to_string()),
            Cell::new(queue.settings.running_max.map_or_else(|| "-".to_owned(), |max| max.to_string())),
            Cell::new(queue.count(TaskState::Available).to_string()),
            Cell::new(waiting.to_string()),
            Cell::new(queue.count(TaskState::Blocked).to_string()),
            Cell::new(age(queue.oldest_available_at, now)),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
    Ok(())
}

/// For how long the oldest one could have been leased.
fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| display::duration(now.ms_since(at)))
}
