//! `docket run`: runs one task from start to finish.
//!
//! In a home, this process executes the task with a worker that takes only this task, because its
//! queue has a unique name. Any number of runs share a home: one of its processes serves it, and
//! another takes over when that one ends ([`HomeMember`]). Progress is shown on standard error;
//! standard output is for the patch.

mod watch;

use crate::history::lineage;
use crate::output::task_rows;
use std::{io::IsTerminal as _, path::PathBuf, time::Duration};

use docket_schema::{
    api::LeaseRequest,
    ids::{IncarnationId, QueueName, RunId, TaskId},
    task::{DeliveryMode, TaskRecord, TaskState},
};
use docket_worker::{client::CoordinatorClient, supervisor::SupervisorConfig};
use futures_util::{FutureExt as _, future::FusedFuture as _};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        logging,
    },
    context::CliContext,
    delivery::{self, DeliveryReport, DeliveryRequest},
    home::handover::HandoverWatch,
    output::{
        display::{self, collapse_whitespace, format_duration, format_money, sanitize_line},
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
        worker_faults,
    },
    services::{
        home_member::{HomeMember, MemberKind, MemberRole},
        serve::{self, ServerArgs},
        worker_supervisor,
    },
    tasks::{
        task_args::{PreparedTask, TaskArgs},
        task_checks::check_own_worker,
    },
};
use watch::{WatchEnd, WorkerLocation, task_kept_note, unfinished_note, watch_task};

/// How long the worker may take to exit after its run has ended.
const WORKER_END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call waits for a coordinator that does not respond while it restarts or another
/// process takes over the home.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(60);

/// Command-line arguments of `docket run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Works on a copy: your work tree does not change. The patch is written to standard output (byte for
byte unless that is a terminal); with --branch the result becomes a branch instead. An unfinished
run prints its patch only to a terminal, so that a pipe to `git apply` never applies partial work;
`docket diff` shows it.

Ctrl-C stops the run after its turn; `docket up` continues it, immediately if one is running for
this home. `docket up` also continues the task of a killed run.

Any number of runs can share a home, also with a `docket up`: one of the processes serves it,
preferably `docket up`, and another takes over when it ends. If a model's provider does not
respond, the run waits for it. With a remote coordinator (--url), its workers execute the task:
Ctrl-C then only stops following it, and prints how to follow it again.

The exit code is 0 if the task completed, and 1 if it was cancelled or discarded, is blocked (it
waits for you), was not followed to its end, or cannot be executed here (an MCP server does not
start, a key is refused); the task is then kept. Checks that did not run (no pytest, a module that
does not import) verify nothing: the task is then blocked and unverified, and
`docket answer TASK accept` completes it as is. A task that completes unverified, because it has
no checks, you accepted it, or run.unverified is `complete`, exits with 0; the last lines and
`unverified` in --json say so.

Examples:
  docket run \"Fix the rounding in prices.py\" --repo . --tests \"pytest -q\" | git apply
  docket run \"Add a --json flag\" --repo . --branch feature/json --model openai:gpt-5.5"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    task: TaskArgs,
}

pub(crate) async fn run_run(cx: CliContext, args: RunArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let asked = args.task.check_flags(&cx)?;
    args.task.check_source(&cx).await?;
    let id = TaskId(docket_coordinator::clock::new_id());
    let stop = StopSignals::listen()?;
    let order = RunOrder { args: &args.task, asked, id, stop: &stop };
    match cx.url {
        Some(_) => Box::pin(run_elsewhere(&cx, order)).await,
        None => {
            check_own_worker(&cx, &args.task, &order.asked)?;
            Box::pin(run_in_home(cx, order)).await
        }
    }
}

/// What the user requested.
struct RunOrder<'a> {
    args: &'a TaskArgs,
    asked: PreparedTask,
    id: TaskId,
    stop: &'a StopSignals,
}

/// Lets the workers of a remote coordinator execute the task.
async fn run_elsewhere(cx: &CliContext, order: RunOrder<'_>) -> CliResult {
    let RunOrder { args, asked, id, stop } = order;
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let client = access.client.with_retry_timeout(COORDINATOR_TIMEOUT);
    let follower = TaskFollower { cx, args, stop, watching: client.clone(), finishing: client.clone() };
    let followed = async {
        let id = args.submit(cx, &client, asked, None, id).await?;
        follower.follow_to_end(id, WorkerLocation::Remote).await
    };
    let exit = tokio::select! {
        exit = followed => exit,
        () = stop.abort.cancelled() => Err(interrupted_error()),
    };
    access.close().await?;
    exit
}

/// Executes the task in this process, as a member of its home.
async fn run_in_home(mut cx: CliContext, order: RunOrder<'_>) -> CliResult {
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.slots = 1;
    cx.config.queues = vec![QueueName::for_single_task(order.id)];
    // The person who chose this URL also owns the worker, and no other task reaches its queue.
    cx.config.trusted_base_urls.extend(order.args.base_url.clone());
    let kind = MemberKind::Run(HandoverWatch::default());
    let member = HomeMember::join(&cx, ServerArgs::default(), kind).await?;
    if let MemberRole::Joined(owner) = &*member.role().borrow() {
        let command = owner.command.map_or_else(|| "docket".to_owned(), |command| command.to_string());
        display::print_note(&format!(
            "`{command}` (process {}) serves this home; this run joins it",
            owner.pid
        ));
    }
    let exit = submit_and_work(&cx, &member, order).await;
    member.leave().await;
    exit
}

/// Submits the task and executes it with a worker of this process.
async fn submit_and_work(cx: &CliContext, member: &HomeMember, order: RunOrder<'_>) -> CliResult {
    let RunOrder { args, asked, id, stop } = order;
    let token = cx.home.load_or_create_token()?;
    let client = CoordinatorClient::new(member.address(), token.clone())?;
    let patient = client.with_retry_timeout(COORDINATOR_TIMEOUT);
    let follower = TaskFollower { cx, args, stop, watching: client, finishing: patient.clone() };
    // A task that needs a missing key was already refused, so the note about missing keys is redundant.
    let job = worker_supervisor::WorkerSpec::for_home(member.address(), token, "run".to_owned())
        .suppress_key_note(true);
    // Registers before the worker's own first request, which has more details and must arrive last.
    tokio::select! {
        claimed = claim_queue(cx, &patient, job.incarnation()) => claimed?,
        () = stop.drain.cancelled() => return Err(CliError::new(ExitKind::Failed, serve::STOPPED_EARLY)),
    }
    let mut worker = Box::pin(worker_supervisor::start_supervisor(cx, job, stop)?.fuse());
    let mut work = Box::pin(async {
        let submitted = args.submit(cx, &patient, asked, Some(QueueName::for_single_task(id)), id).await?;
        // A task with the same key belongs to another process.
        if submitted != id {
            return follower.follow_to_end(submitted, WorkerLocation::Remote).await;
        }
        tokio::select! {
            exit = follower.follow_to_end(submitted, WorkerLocation::ThisProcess) => exit,
            // No other worker serves this task's queue.
            fault = worker_faults::wait_for_fault(&patient, id) => match fault? {},
        }
    });
    let exit = loop {
        tokio::select! {
            exit = &mut work => break exit,
            () = stop.abort.cancelled() => break Err(interrupted_error()),
            ended = &mut worker, if !worker.is_terminated() => {
                // A worker that ends before it was asked to could not start.
                if !stop.drain.is_cancelled() {
                    break ended.and(Err(CliError::new(ExitKind::Failed, "the worker exited unexpectedly; run with -v for details")));
                }
            }
        }
    };
    stop.drain.cancel();
    if !worker.is_terminated() {
        // The result has been handed over, so further messages from the worker do not matter.
        drop(tokio::time::timeout(WORKER_END_TIMEOUT, worker).await);
    }
    exit
}

/// Registers this process's worker for the queue before the task exists. Otherwise a worker of all
/// queues would take the task first, with other keys and settings.
async fn claim_queue(
    cx: &CliContext,
    client: &CoordinatorClient,
    incarnation: IncarnationId,
) -> CliResult<()> {
    let request = LeaseRequest {
        incarnation,
        // Precedes the first request of the worker itself.
        number: 0,
        name: "run".to_owned(),
        queues: cx.config.queues.clone(),
        engines: SupervisorConfig::engines_of_this_build(),
        labels: cx.config.labels.clone(),
        layers: Vec::new(),
        room: None,
        faults: Vec::new(),
        max: 1,
        wait_ms: 0,
    };
    client.lease(&request).await?;
    Ok(())
}

/// Follows a task and delivers its result.
struct TaskFollower<'a> {
    cx: &'a CliContext,
    args: &'a TaskArgs,
    stop: &'a StopSignals,
    /// Client for following, which waits for a coordinator and reports that.
    watching: CoordinatorClient,
    /// Client for the result, whose calls wait for a coordinator.
    finishing: CoordinatorClient,
}

impl TaskFollower<'_> {
    async fn follow_to_end(&self, id: TaskId, workers: WorkerLocation) -> CliResult {
        let stopped = self.stop.drain.cancelled();
        match watch_task(self.cx, &self.watching, id, stopped, workers).await? {
            WatchEnd::Rested(task) => {
                hand_over_result(self.cx, &self.finishing, self.args, &task, workers).await
            }
            WatchEnd::Stopped(task) => Err(CliError::new(ExitKind::Failed, unfinished_note(&task, workers))),
            WatchEnd::StoppedUnserved => Err(CliError::new(ExitKind::Failed, task_kept_note(id))),
        }
    }
}

fn interrupted_error() -> CliError {
    CliError::new(
        ExitKind::Failed,
        "interrupted; see submitted tasks with `docket ps`, continue them with `docket up`",
    )
}

/// Delivers the result and prints the summary.
async fn hand_over_result(
    cx: &CliContext,
    client: &CoordinatorClient,
    asked: &TaskArgs,
    task: &TaskRecord,
    workers: WorkerLocation,
) -> CliResult {
    let exit = match task.state {
        TaskState::Completed => ExitKind::Ok,
        TaskState::Cancelled | TaskState::Discarded | TaskState::Blocked => ExitKind::Failed,
        TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Available
        | TaskState::Running
        | TaskState::Retryable => {
            return Err(CliError::new(ExitKind::Failed, unfinished_note(task, workers)));
        }
    };
    let Some(run) = task.last_run else {
        return Err(CliError::new(
            ExitKind::Failed,
            format!("task {} is {} and never ran", task.id.short(), task.state),
        ));
    };
    let has_repository = task.spec.base.git.is_some();
    // A pipe takes any patch for the result, whatever the exit code is later.
    let gives_patch = !cx.is_json() && (exit == ExitKind::Ok || std::io::stdout().is_terminal());
    let mut branch = None;
    if has_repository {
        let push =
            (task.spec.delivery_mode() == DeliveryMode::Push).then_some(cx.config.delivery.remote.as_str());
        match (task.spec.delivery_mode(), exit) {
            (DeliveryMode::Branch | DeliveryMode::Push, ExitKind::Ok) => {
                let repository = asked.repo.clone().unwrap_or_else(|| PathBuf::from("."));
                let ask = DeliveryRequest { push, ..DeliveryRequest::new(task, run, &repository) };
                branch = Some(Box::pin(delivery::deliver_or_wait(cx, client, &ask)).await?);
            }
            (DeliveryMode::Patch | DeliveryMode::Branch | DeliveryMode::Push, _) if gives_patch => {
                let (result, _) = delivery::build_run_result(cx, client, run).await?;
                display::print_exact(&result.to_patch().await.fail_as(ExitKind::Failed)?);
            }
            (DeliveryMode::Patch | DeliveryMode::Branch | DeliveryMode::Push, _) => {}
        }
    }
    print_summary(cx, client, task, run, workers, branch).await?;
    if has_repository && !gives_patch && !cx.is_json() {
        display::print_note(&no_patch_note(task, run));
    }
    Ok(exit)
}

/// Explains where to find the changes of a task that did not complete.
fn no_patch_note(task: &TaskRecord, run: RunId) -> String {
    let (state, run) = (task.state, run.short());
    format!(
        "no patch was written because the task is {state}; see the run's changes with `docket diff {run}`"
    )
}

async fn print_summary(
    cx: &CliContext,
    client: &CoordinatorClient,
    task: &TaskRecord,
    run: RunId,
    workers: WorkerLocation,
    branch: Option<DeliveryReport>,
) -> CliResult<()> {
    if cx.is_json() {
        display::print_json(&task_rows::TaskRow::from_task(task));
        return Ok(());
    }
    let state = lineage::fold_run(client, run).await?;
    let view = client.get_run(run).await?;
    let took = match (view.started_at, view.ended_at) {
        (Some(from), Some(to)) => format!(" in {}", format_duration(to.ms_since(from))),
        (Some(_) | None, None) | (None, Some(_)) => String::new(),
    };
    if let Some(text) = &state.last_text {
        display::print_note(&display::render_excerpt(&text.text_or_size(), 20, "  ", cx.screen.columns()));
    }
    // A question was already shown when the run asked it.
    let message = task.message.as_deref().filter(|_| task.state != TaskState::Blocked);
    let message = message.map(|message| format!(" ({})", collapse_whitespace(message)));
    let message = message.unwrap_or_default();
    display::print_note(&sanitize_line(&format!(
        "{}{message}: {}{took}, {} changed, cost {}",
        task_rows::state_label(task),
        display::format_count_with_plural(u64::from(state.turn.0), "turn", "turns"),
        display::format_count_with_plural(state.overlay.len() as u64, "path", "paths"),
        format_money(state.totals.cost_nusd)
    )));
    if let Some(why) = task.unverified.as_deref().filter(|_| task.state == TaskState::Completed) {
        display::print_note(&sanitize_line(&format!(
            "this result is unverified: {}",
            collapse_whitespace(why)
        )));
    }
    if let Some(how) = task_rows::unblock_hint(task) {
        let next = match workers {
            WorkerLocation::ThisProcess => ", and `docket up` then continues this run",
            WorkerLocation::Remote => "",
        };
        display::print_note(&format!("{how}{next}"));
    }
    if let Some(done) = branch {
        display::print_note(&done.describe());
    }
    display::print_note(&format!("view it turn by turn with `docket replay {}`", run.short()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiline_message_is_shown_on_one_line() {
        let told = collapse_whitespace(
            "run_command has failed alike 3 times:\n\nexit status 1\n  no rule to make it\n",
        );
        assert_eq!(told, "run_command has failed alike 3 times: exit status 1 no rule to make it");
    }
}
