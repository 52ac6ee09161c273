//! `docket workers`: lists workers and their load; drains one.

use std::time::Duration;

use docket_schema::api::WorkerView;
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
        worker_faults,
    },
};

/// Poll interval of a drain.
const DRAIN_POLL: Duration = Duration::from_millis(250);

/// Command-line arguments of `docket workers`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Lists workers that hold leases or were seen within three lease durations. Below each worker are
faults that keep it from running some tasks; those tasks go to other workers, or wait. A drained
worker takes no new tasks, lets each run finish its turn, releases it, and exits, as it does on
SIGTERM.

Examples:
  docket workers
  docket workers drain builder-3 --wait
  docket workers --json | jq -r 'select(.room.full) | .name'"
)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    command: Option<WorkersCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum WorkersCommand {
    /// List workers (the default subcommand)
    #[command(after_help = "Examples:
  docket workers list
  docket workers list --json")]
    List,
    /// Make a worker stop taking tasks and exit
    #[command(after_help = "Examples:
  docket workers drain builder-3
  docket workers drain builder-3 --wait")]
    Drain {
        /// Name of the worker, or a prefix or suffix of its incarnation's ID
        worker: String,
        /// Wait until the worker holds no tasks
        #[arg(long)]
        wait: bool,
    },
}

pub(crate) async fn run_workers(cx: CliContext, args: WorkersArgs) -> CliResult {
    match args.command {
        None | Some(WorkersCommand::List) => {
            let access = Coordinator::connect(&cx, AccessMode::Read).await?;
            list_workers(&cx, &access).await?;
            access.close().await?;
        }
        Some(WorkersCommand::Drain { worker, wait }) => {
            let access = Coordinator::connect(&cx, AccessMode::Write).await?;
            drain_worker(&cx, &access.client, &worker, wait).await?;
            access.close().await?;
        }
    }
    Ok(ExitKind::Ok)
}

async fn list_workers(cx: &CliContext, access: &Coordinator) -> CliResult<()> {
    let workers = access.client.get_status().await?.workers;
    if cx.is_json() {
        workers.iter().for_each(display::print_json);
        return Ok(());
    }
    if workers.is_empty() {
        let starts = if access.is_local() { "docket up" } else { "docket worker" };
        display::print_note(&format!("no workers seen recently; start one with `{starts}`"));
        return Ok(());
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table =
        TextTable::new(&["NAME", "WORKER", "HOLDS", "SLOTS", "QUEUES", "LABELS", "LAST SEEN", "UNAVAILABLE"]);
    for worker in &workers {
        let dash = || "-".to_owned();
        let about = worker.about.as_ref();
        let queues = about.map_or_else(dash, |about| match about.queues.as_slice() {
            [] => "all".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        });
        table.add_row(vec![
            TableCell::new(&worker.name),
            TableCell::new(worker.incarnation.short()),
            TableCell::new(worker.held.to_string()),
            TableCell::new(worker.room.as_ref().map_or_else(dash, |room| room.slots.to_string())),
            TableCell::new(queues),
            TableCell::new(about.map_or_else(dash, |about| about.labels.to_string())),
            TableCell::new(format!("{} ago", display::format_duration(now.ms_since(worker.seen_at)))),
            TableCell::new(match worker.full_reason() {
                Some(_) if worker.is_draining() && worker.held == 0 => "exited".to_owned(),
                why => why.unwrap_or_else(dash),
            }),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
    let faults = worker_faults::describe_worker_faults(&workers);
    faults.iter().for_each(|line| display::print_line(line));
    Ok(())
}

async fn drain_worker(cx: &CliContext, client: &CoordinatorClient, named: &str, wait: bool) -> CliResult<()> {
    let workers = client.get_status().await?.workers;
    let is_meant = |worker: &&WorkerView| {
        let id = worker.incarnation.to_string();
        let digits = named.to_ascii_lowercase();
        worker.name == named || (!digits.is_empty() && (id.starts_with(&digits) || id.ends_with(&digits)))
    };
    let meant: Vec<&WorkerView> = workers.iter().filter(is_meant).collect();
    let [worker] = meant.as_slice() else {
        let message = match meant.len() {
            0 => format!("no worker `{named}` was seen recently; see `docket workers`"),
            several => {
                format!("`{named}` matches {several} workers; use more of the id shown by `docket workers`")
            }
        };
        return Err(CliError::new(ExitKind::NotFound, message));
    };
    client.drain_worker(worker.incarnation).await?;
    let mut held = worker.held;
    while wait && held > 0 {
        tokio::time::sleep(DRAIN_POLL).await;
        let now = client.get_status().await?.workers;
        held = now.iter().find(|now| now.incarnation == worker.incarnation).map_or(0, |now| now.held);
    }
    if cx.is_json() {
        let (incarnation, name) = (worker.incarnation, &worker.name);
        display::print_json(&serde_json::json!({ "incarnation": incarnation, "name": name, "held": held }));
    } else {
        display::print_line(&format!(
            "worker {} {} is draining; it holds {held} tasks",
            worker.name,
            worker.incarnation.short()
        ));
    }
    Ok(())
}
