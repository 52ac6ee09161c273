//! `docket queue`: shows queues; pauses, unpauses, limits and drains them.

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

/// Poll interval of a drain.
const DRAIN_POLL: Duration = Duration::from_millis(250);

/// Command-line arguments of `docket queue`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A paused queue starts no tasks; running tasks continue. `drain` pauses the queue and waits until
none of its tasks run; the exit code is 1 if the timeout passes first. A limit applies across all
workers and coordinators.

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
    /// List queues that have tasks or settings (the default subcommand)
    #[command(after_help = "Examples:
  docket queue list
  docket queue list --json")]
    List,
    /// Stop starting tasks from a queue
    #[command(after_help = "Examples:
  docket queue pause nightly")]
    Pause {
        /// Name of the queue
        name: QueueName,
    },
    /// Start tasks from a queue again
    #[command(after_help = "Examples:
  docket queue unpause nightly")]
    Unpause {
        /// Name of the queue
        name: QueueName,
    },
    /// Limit how many tasks of a queue run at once
    #[command(after_help = "Examples:
  docket queue set slow --max 3
  docket queue set slow --max 0")]
    Set {
        /// Name of the queue
        name: QueueName,
        /// Maximum number of running tasks; 0 removes the limit
        #[arg(long, value_name = "N")]
        max: u32,
    },
    /// Pause a queue and wait until none of its tasks run
    #[command(after_help = "Examples:
  docket queue drain default --timeout 30m")]
    Drain {
        /// Name of the queue
        name: QueueName,
        /// Maximum time to wait, e.g. 90s, 30m or 2h [default: no limit]
        #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
        timeout: Option<u64>,
    },
}

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
                    let message =
                        format!("{running} tasks of queue {name} are still running; the queue stays paused");
                    return Err(CliError::new(ExitKind::Failed, message));
                }
                tokio::time::sleep(DRAIN_POLL).await;
                view = find_queue(&access.client, &name)
                    .await?
                    .unwrap_or(QueueView { tasks: Vec::new(), ..view });
            }
            if !cx.is_json() {
                display::print_line(&format!("no tasks of queue {name} are running"));
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
        display::print_note("it has no active tasks; `docket queue` lists queues that do");
    }
}

async fn print_queues(cx: &CliContext, client: &CoordinatorClient) -> CliResult<()> {
    let queues = client.list_queues().await?.queues;
    if cx.is_json() {
        queues.iter().for_each(display::print_json);
        return Ok(());
    }
    if queues.is_empty() {
        display::print_note("no active or configured queues");
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

/// Formats how long the oldest task has been available.
fn format_age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| display::format_duration(now.ms_since(at)))
}
