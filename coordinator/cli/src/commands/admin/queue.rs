//! `docket queue`: how the queues stand; pause, open, limit, drain one.

use std::time::{Duration, Instant};

use docket_schema::{
    api::{QueueView, SetQueueRequest},
    ids::{QueueName, Timestamp},
    task::TaskState,
};
use docket_worker::client::CoordinatorClient;

use crate::{
    config::values::parse_duration_ms,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
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
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: Option<QueueCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum QueueCommand {
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
        #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
        timeout: Option<u64>,
    },
}

/// Does it.
pub(crate) async fn run_queue(cx: CliContext, args: QueueArgs) -> CliResult {
    let need = if matches!(args.command, None | Some(QueueCommand::List)) {
        AccessMode::Read
    } else {
        AccessMode::Write
    };
    let access = Coordinator::connect(&cx, need).await?;
    let set = async |name: &QueueName, paused, running_max| {
        let view = access.client.set_queue(name, &SetQueueRequest { paused, running_max }).await?;
        print_queue(&cx, &view);
        Ok::<_, CliError>(view)
    };
    match args.command {
        None | Some(QueueCommand::List) => print_queues(&cx, &access.client).await?,
        Some(QueueCommand::Pause { name }) => drop(set(&name, Some(true), None).await?),
        Some(QueueCommand::Unpause { name }) => drop(set(&name, Some(false), None).await?),
        Some(QueueCommand::Set { name, max }) => drop(set(&name, None, Some(max)).await?),
        Some(QueueCommand::Drain { name, timeout }) => {
            let until = timeout.map(|ms| Instant::now() + Duration::from_millis(ms));
            let mut view = set(&name, Some(true), None).await?;
            while view.count_in_state(TaskState::Running) > 0 {
                if until.is_some_and(|until| Instant::now() >= until) {
                    let running = view.count_in_state(TaskState::Running);
                    access.close().await?;
                    let message = format!("{running} tasks of queue {name} run still; it stays paused");
                    return Err(CliError::new(ExitKind::Failed, message));
                }
                tokio::time::sleep(DRAIN_POLL).await;
                view = find_queue(&access.client, &name)
                    .await?
                    .unwrap_or(QueueView { tasks: Vec::new(), ..view });
            }
            if !cx.is_json() {
                display::print_line(&format!("no task of queue {name} runs"));
            }
        }
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

async fn find_queue(client: &CoordinatorClient, name: &QueueName) -> CliResult<Option<QueueView>> {
    Ok(client.list_queues().await?.queues.into_iter().find(|queue| queue.name == *name))
}

fn print_queue(cx: &CliContext, view: &QueueView) {
    if cx.is_json() {
        display::print_json(view);
        return;
    }
    let paused = if view.settings.paused { "paused" } else { "open" };
    let max = view.settings.running_max.map_or(String::new(), |max| format!(", at most {max} run at a time"));
    let running = view.count_in_state(TaskState::Running);
    let run = if running == 1 { "runs" } else { "run" };
    display::print_line(&format!("queue {} is {paused}{max}; {running} of its tasks {run}", view.name));
    if view.tasks.is_empty() {
        display::print_note("it has no task that has not ended; `docket queue` lists those that have");
    }
}

async fn print_queues(cx: &CliContext, client: &CoordinatorClient) -> CliResult<()> {
    let queues = client.list_queues().await?.queues;
    if cx.is_json() {
        queues.iter().for_each(display::print_json);
        return Ok(());
    }
    if queues.is_empty() {
        display::print_note("no queue has tasks that have not ended, nor settings");
        return Ok(());
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table =
        TextTable::new(&["QUEUE", "STATE", "RUNNING", "MAX", "AVAILABLE", "WAITING", "BLOCKED", "OLDEST"]);
    for queue in &queues {
        let waiting = [TaskState::Pending, TaskState::Scheduled, TaskState::Retryable];
        let waiting: u64 = waiting.into_iter().map(|state| queue.count_in_state(state)).sum();
        table.add_row(vec![
            TableCell::new(queue.name.as_str()),
            TableCell::new(if queue.settings.paused { "paused" } else { "open" }),
            TableCell::new(queue.count_in_state(TaskState::Running).to_string()),
            TableCell::new(queue.settings.running_max.map_or_else(|| "-".to_owned(), |max| max.to_string())),
            TableCell::new(queue.count_in_state(TaskState::Available).to_string()),
            TableCell::new(waiting.to_string()),
            TableCell::new(queue.count_in_state(TaskState::Blocked).to_string()),
            TableCell::new(format_age(queue.oldest_available_at, now)),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
    Ok(())
}

/// For how long the oldest one could have been leased.
fn format_age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| display::format_duration(now.ms_since(at)))
}
