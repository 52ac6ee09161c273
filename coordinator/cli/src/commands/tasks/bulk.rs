//! Shared by `cancel`, `retry`, `pause`, `unpause` and `reprioritize`: selects one task, several,
//! or all that match a filter; takes a reason for the log; reports the outcome.

use crate::output::task_rows;
use std::io::{IsTerminal as _, Write as _};

use docket_schema::{
    api::{BULK_TASKS_MAX, BulkOperation, BulkRequest, BulkTaskResult, RetryRequest, TaskQuery, TaskStates},
    ids::{TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
        task_filter::TaskFilterArgs,
    },
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Maximum number of refusals that are listed.
const REFUSED_SHOWN_MAX: usize = 5;
/// Maximum number of titles shown before asking for confirmation.
const TITLES_SHOWN_MAX: usize = 5;

/// Selects tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskSelectionArgs {
    /// Task IDs, or IDs of their runs
    #[arg(value_name = "ID", conflicts_with = "TaskFilterArgs")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: TaskFilterArgs,
    /// With filters: show the matching tasks without changing them
    #[arg(long)]
    dry_run: bool,
    /// With filters: do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Arguments of an operation whose event records a reason.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskActionArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
    /// Reason to record in the log
    #[arg(long, default_value = "")]
    reason: String,
}

const fn act_word(act: BulkOperation) -> &'static str {
    match act {
        BulkOperation::Cancel => "cancel",
        BulkOperation::Retry | BulkOperation::RetryWithoutDependencies => "retry",
        BulkOperation::Pause => "pause",
        BulkOperation::Unpause => "unpause",
        BulkOperation::Reprioritize(_) => "reprioritize",
    }
}

/// Default states for a filter without --state: filtering by queue must not, for example, retry
/// completed tasks.
fn default_states(act: BulkOperation) -> Option<TaskStates> {
    let open = |state: &TaskState| !state.is_ended();
    let states: Vec<TaskState> = match act {
        BulkOperation::Cancel | BulkOperation::Reprioritize(_) => {
            TaskState::ALL.into_iter().filter(open).collect()
        }
        BulkOperation::Retry | BulkOperation::RetryWithoutDependencies => vec![TaskState::Discarded],
        BulkOperation::Pause => {
            vec![TaskState::Scheduled, TaskState::Available, TaskState::Retryable, TaskState::Running]
        }
        BulkOperation::Unpause => vec![TaskState::Blocked],
    };
    TaskStates::from_states(states)
}

/// Runs an operation that records a reason, and reports the new states of the tasks.
pub(crate) async fn run_action_with_reason(
    cx: CliContext,
    args: TaskActionArgs,
    act: BulkOperation,
) -> CliResult {
    run_action(cx, args.selection, act, args.reason).await
}

/// Runs an operation that records no reason, and reports the new states of the tasks.
pub(crate) async fn run_action(
    cx: CliContext,
    mut args: TaskSelectionArgs,
    act: BulkOperation,
    reason: String,
) -> CliResult {
    let looks = args.dry_run && args.ids.is_empty();
    if args.dry_run && !args.ids.is_empty() {
        return Err(CliError::new(
            ExitKind::Usage,
            "--dry-run requires filters; use `docket show ID` for one task",
        ));
    }
    if args.ids.is_empty() && args.filter == TaskFilterArgs::default() {
        return Err(CliError::new(
            ExitKind::Usage,
            "no tasks selected; specify IDs or a filter such as --batch, --queue or --state",
        ));
    }
    let access = Coordinator::connect(&cx, if looks { AccessMode::Read } else { AccessMode::Write }).await?;
    args.filter.resolve_batch(&access.client).await?;
    let exit = match args.ids.as_slice() {
        [] => {
            let now = docket_coordinator::clock::Clock::new().now();
            let asked = args.filter.to_query(now);
            // Tasks submitted while the user is asked are not included.
            let until = Some(asked.until.unwrap_or(now).min(Timestamp(now.0 + 1)));
            let state = asked.state.clone().or_else(|| default_states(act));
            let filter = TaskQuery { state, until, limit: Some(BULK_TASKS_MAX), ..asked };
            act_on_filtered(
                &cx,
                &access.client,
                BulkRequest { act, filter, tasks: Vec::new(), reason, dry_run: false },
                &args,
            )
            .await
        }
        [one] if !matches!(act, BulkOperation::Reprioritize(_)) => {
            act_on_one(&cx, &access, one, act, &reason).await
        }
        several => act_on_named(&cx, &access.client, several, act, reason).await,
    };
    if args.ids.is_empty() {
        args.filter.note_archived_tasks(&access.client).await;
    }
    access.close().await?;
    exit
}

async fn act_on_one(
    cx: &CliContext,
    access: &Coordinator,
    id: &str,
    act: BulkOperation,
    reason: &str,
) -> CliResult {
    let client = &access.client;
    let task = resolve::resolve_task(client, id).await?;
    let now: TaskRecord = match act {
        BulkOperation::Cancel => client.cancel(task, reason).await?,
        BulkOperation::Pause => client.pause(task).await?,
        BulkOperation::Unpause => client.unpause(task).await?,
        BulkOperation::Retry | BulkOperation::RetryWithoutDependencies | BulkOperation::Reprioritize(_) => {
            let without_dependencies = act == BulkOperation::RetryWithoutDependencies;
            client.retry(task, &RetryRequest { reason: reason.to_owned(), without_dependencies }).await?
        }
    };
    if cx.is_json() {
        display::print_json(&task_rows::TaskRow::from_task(&now));
        return Ok(ExitKind::Ok);
    }
    display::print_line(&match (act, now.state, now.run) {
        (BulkOperation::Pause, TaskState::Running, Some(run)) => {
            format!("pause requested; run {} of task {} pauses at its next turn", run.short(), task.short())
        }
        (..) => format!("task {} is {}", task.short(), task_rows::state_label(&now)),
    });
    if act == BulkOperation::Unpause && access.is_local() {
        display::print_note("no workers are running; start them with `docket up`");
    }
    Ok(ExitKind::Ok)
}

async fn act_on_named(
    cx: &CliContext,
    client: &CoordinatorClient,
    ids: &[String],
    act: BulkOperation,
    reason: String,
) -> CliResult {
    let mut tasks: Vec<TaskId> = Vec::new();
    for id in ids {
        let task = resolve::resolve_task(client, id).await?;
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    let mut told = BulkReport::new(cx, act);
    for page in tasks.chunks(BULK_TASKS_MAX as usize) {
        let request = BulkRequest {
            act,
            filter: TaskQuery::default(),
            tasks: page.to_vec(),
            reason: reason.clone(),
            dry_run: false,
        };
        told.add_page(client.apply_bulk_action(&request).await?.tasks);
    }
    Ok(told.finish())
}

/// Fetches every page of a request and passes each to `each`.
async fn for_each_page(
    client: &CoordinatorClient,
    mut request: BulkRequest,
    mut each: impl FnMut(Vec<BulkTaskResult>),
) -> CliResult<()> {
    loop {
        let page = client.apply_bulk_action(&request).await?;
        each(page.tasks);
        match page.next {
            None => return Ok(()),
            next => request.filter.before = next,
        }
    }
}

async fn act_on_filtered(
    cx: &CliContext,
    client: &CoordinatorClient,
    request: BulkRequest,
    args: &TaskSelectionArgs,
) -> CliResult {
    let act = act_word(request.act);
    let asks = !args.yes && !args.dry_run;
    if asks && (cx.is_json() || !std::io::stdin().is_terminal()) {
        let message =
            format!("to {act} all matching tasks without a prompt, add --yes; to list them, use --dry-run");
        return Err(CliError::new(ExitKind::Usage, message));
    }
    if args.dry_run {
        let look = BulkRequest { dry_run: true, ..request };
        let mut count = 0_usize;
        for_each_page(client, look, |page| {
            count += page.len();
            page.iter().for_each(|task| print_task(cx, task));
        })
        .await?;
        if !cx.is_json() {
            let are = if count == 1 { "1 task matches" } else { &format!("{count} tasks match") };
            display::print_line(&format!("{are}; nothing was changed"));
        }
        return Ok(ExitKind::Ok);
    }
    if asks {
        let look = BulkRequest { dry_run: true, ..request.clone() };
        let (mut count, mut titles) = (0_usize, Vec::new());
        for_each_page(client, look, |page| {
            count += page.len();
            let room = TITLES_SHOWN_MAX.saturating_sub(titles.len());
            titles.extend(page.into_iter().take(room));
        })
        .await?;
        if count == 0 {
            display::print_line("no tasks match; nothing was changed");
            return Ok(ExitKind::Ok);
        }
        titles.iter().for_each(|task| print_task(cx, task));
        if count > titles.len() {
            display::print_line(&format!("and {} more", count - titles.len()));
        }
        if !confirm_action(&format!("{act} {count} tasks? [y/N] "))? {
            return Err(CliError::new(ExitKind::Failed, "nothing was changed"));
        }
    }
    let progress = ProgressDisplay::counter(cx, "tasks");
    let mut told = BulkReport::new(cx, request.act);
    for_each_page(client, request, |page| {
        told.add_page(page);
        progress.set_position((told.done + told.refused) as u64);
    })
    .await?;
    drop(progress);
    Ok(told.finish())
}

fn confirm_action(question: &str) -> CliResult<bool> {
    let mut err = std::io::stderr().lock();
    // If the user cannot be asked, nothing is confirmed.
    let asked = write!(err, "{question}").and_then(|()| err.flush());
    drop(err);
    asked.fail_as(ExitKind::Failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).fail_as(ExitKind::Failed)?;
    parse_confirmation(&answer).ok_or_else(|| {
        let message =
            format!("`{}` is not a valid answer; answer y or n. Nothing was changed", answer.trim());
        CliError::new(ExitKind::Usage, message)
    })
}

/// Parses a confirmation that defaults to no. Returns `None` if it is neither yes nor no.
fn parse_confirmation(answer: &str) -> Option<bool> {
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "" | "n" | "no" => Some(false),
        _ => None,
    }
}

fn print_task(cx: &CliContext, task: &BulkTaskResult) {
    if cx.is_json() {
        return display::print_json(task);
    }
    let state = task.state.map_or("-", TaskState::as_str);
    display::print_line(&display::sanitize_line(&format!("{}  {state:<9}  {}", task.id.short(), task.title)));
}

/// Counts and prints the outcomes.
struct BulkReport<'a> {
    cx: &'a CliContext,
    act: BulkOperation,
    done: usize,
    refused: usize,
    reasons: Vec<BulkTaskResult>,
}

impl<'a> BulkReport<'a> {
    const fn new(cx: &'a CliContext, act: BulkOperation) -> Self {
        Self { cx, act, done: 0, refused: 0, reasons: Vec::new() }
    }

    fn add_page(&mut self, page: Vec<BulkTaskResult>) {
        for task in page {
            if self.cx.is_json() {
                display::print_json(&task);
            }
            if task.refused.is_none() {
                self.done += 1;
                continue;
            }
            self.refused += 1;
            if self.reasons.len() < REFUSED_SHOWN_MAX {
                self.reasons.push(task);
            }
        }
    }

    fn finish(self) -> ExitKind {
        if !self.cx.is_json() {
            let past = match self.act {
                BulkOperation::Cancel => "cancelled",
                BulkOperation::Retry | BulkOperation::RetryWithoutDependencies => "put back in the queue",
                BulkOperation::Pause => "paused or will pause at their next turn",
                BulkOperation::Unpause => "unpaused",
                BulkOperation::Reprioritize(_) => "reprioritized",
            };
            let were = if self.done == 1 { "1 task was" } else { &format!("{} tasks were", self.done) };
            let past = if self.done == 1 { past.replace("their", "its") } else { past.to_owned() };
            display::print_line(&format!("{were} {past}, {} refused", self.refused));
        }
        for task in &self.reasons {
            let why = task.refused.as_deref().unwrap_or_default();
            display::print_note(&display::sanitize_line(&format!(
                "{} ({}): {why}",
                task.id.short(),
                task.title
            )));
        }
        if self.refused > 0 { ExitKind::Refused } else { ExitKind::Ok }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_confirmation;

    #[test]
    fn confirmation_accepts_only_yes_or_no() {
        for (answer, agreed) in [
            ("y\n", Some(true)),
            (" YES ", Some(true)),
            ("n", Some(false)),
            ("No\n", Some(false)),
            ("\n", Some(false)),
            ("", Some(false)),
            ("yess", None),
            ("ok", None),
            ("maybe", None),
        ] {
            assert_eq!(parse_confirmation(answer), agreed, "{answer:?}");
        }
    }
}
