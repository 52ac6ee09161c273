//! `docket run`: one task from start to finish.
//!
//! In a home it is carried out by this process, by a worker that takes this task only: its queue has a name of its
//! own. Any number of runs share a home, one of its processes serves it, and another takes over when that one ends
//! ([`HomeMember`]). What the run does is shown on standard error; standard output is for the patch.

mod watch;

use crate::history::lineage;
use crate::output::task_rows;
use std::{io::IsTerminal as _, path::PathBuf, time::Duration};

use docket_schema::{
    ids::{IncarnationId, QueueName, RunId, TaskId},
    task::{Delivery, TaskRecord, TaskState},
    wire::LeaseRequest,
};
use docket_worker::{client::Client, supervisor::SupervisorConfig};
use futures_util::{FutureExt as _, future::FusedFuture as _};

use crate::{
    connect::{
        access::{Access, Need},
        logging,
    },
    context::Context,
    delivery::{self, Ask, Done},
    home::handover::Yielding,
    output::{
        display::{self, duration, in_one_line, line, money},
        fail::{Exit, FailWith as _, Failure, Outcome},
        signals::Stop,
        worker_faults,
    },
    services::{
        home_member::{HomeMember, MemberKind, MemberRole},
        serve::{self, ServerArgs},
        supervise,
    },
    tasks::{
        task_args::{Asked, TaskArgs},
        task_checks::check_own_worker,
    },
};
use watch::{WatchEnd, Workers, kept, left, watch};

/// How long the worker may take to end after its only run has.
const WORKER_END: Duration = Duration::from_secs(10);
/// How long a call waits for a coordinator that does not answer: one that starts again, or the next process of the home.
const PATIENCE: Duration = Duration::from_secs(60);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Works on a copy: your work tree stays as it is. The patch goes to standard output, byte for byte
unless that is a terminal, or with --branch the result becomes a branch. What did not complete gives a patch on a
terminal only, for `| git apply` would take it for done; `docket diff` shows it.

Ctrl-C stops it after its turn; `docket up` continues it, at once where one works in this home.
`docket up` also continues the task of a run that was killed.

Any number of runs share a home, also with a `docket up`: one of the processes serves it, the
`docket up` where there is one, and another takes over when that one ends. A model's provider that does not answer is waited for.
Where a coordinator elsewhere is named (--url), its workers do it: Ctrl-C ends the watching only,
and says how to look again.

Ends with 0 where the task completed, with 1 where it was cancelled or discarded, is blocked (it waits for you), was
not watched to its end, or cannot be carried out here (an MCP server does not start, a key is refused): it is kept then.
Checks that did not run (no pytest, a module that does not import) verify nothing: the
task is then blocked and unverified, and `docket answer TASK accept` completes it as it is. A task that completes
unverified, because there are no checks, you accepted it or run.unverified is complete, ends with 0; the last lines and
`unverified` of --json say so.

Examples:
  docket run \"Mend the rounding in prices.py\" --repo . --tests \"pytest -q\" | git apply
  docket run \"Add a --json flag\" --repo . --branch feature/json --model openai:gpt-5.5"
)]
pub(crate) struct Args {
    #[command(flatten)]
    task: TaskArgs,
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose)?;
    let asked = args.task.check(&cx)?;
    args.task.check_source(&cx).await?;
    let id = TaskId(docket_coordinator::clock::new_id());
    let stop = Stop::listen()?;
    let order = RunOrder { args: &args.task, asked, id, stop: &stop };
    match cx.url {
        Some(_) => Box::pin(run_elsewhere(&cx, order)).await,
        None => {
            check_own_worker(&cx, &args.task, &order.asked)?;
            Box::pin(run_in_home(cx, order)).await
        }
    }
}

/// What a person wants.
struct RunOrder<'a> {
    args: &'a TaskArgs,
    asked: Asked,
    id: TaskId,
    stop: &'a Stop,
}

/// The workers of a coordinator elsewhere carry it out.
async fn run_elsewhere(cx: &Context, order: RunOrder<'_>) -> Outcome {
    let RunOrder { args, asked, id, stop } = order;
    let access = Access::open(cx, Need::Write).await?;
    let client = access.client.with_patience(PATIENCE);
    let follower = Follower { cx, args, stop, watching: client.clone(), finishing: client.clone() };
    let followed = async {
        let id = args.submit(cx, &client, asked, None, id).await?;
        follower.follow_to_end(id, Workers::Elsewhere).await
    };
    let exit = tokio::select! {
        exit = followed => exit,
        () = stop.now.cancelled() => Err(interrupted()),
    };
    access.close().await?;
    exit
}

/// This process carries it out, as a member of its home.
async fn run_in_home(mut cx: Context, order: RunOrder<'_>) -> Outcome {
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.slots = 1;
    cx.config.queues = vec![QueueName::of_one(order.id)];
    // Who names the server is who owns this worker, and no other task comes to its queue.
    cx.config.base_urls.extend(order.args.base_url.clone());
    let kind = MemberKind::Run(Yielding::default());
    let member = HomeMember::join(&cx, ServerArgs::default(), kind).await?;
    if let MemberRole::Joined(owner) = &*member.role().borrow() {
        let command = owner.command.map_or_else(|| "docket".to_owned(), |command| command.to_string());
        display::note(&format!(
            "`{command}` (process {}) serves this home; this run works for it",
            owner.pid
        ));
    }
    let exit = work(&cx, &member, order).await;
    member.leave().await;
    exit
}

/// Submits the task and carries it out with a worker of this process.
async fn work(cx: &Context, member: &HomeMember, order: RunOrder<'_>) -> Outcome {
    let RunOrder { args, asked, id, stop } = order;
    let token = cx.home.token()?;
    let client = Client::new(member.address(), token.clone())?;
    let patient = client.with_patience(PATIENCE);
    let follower = Follower { cx, args, stop, watching: client, finishing: patient.clone() };
    // Where its own task needs a key it was refused without.
    let job = supervise::Job::of_home(member.address(), token, "run".to_owned()).without_key_note(true);
    // Before the worker's first request, which says more of it and must come last.
    tokio::select! {
        claimed = claim_queue(cx, &patient, job.incarnation()) => claimed?,
        () = stop.drain.cancelled() => return Err(Failure::new(Exit::Failed, serve::STOPPED_EARLY)),
    }
    let mut worker = Box::pin(supervise::start(cx, job, stop)?.fuse());
    let mut work = Box::pin(async {
        let submitted = args.submit(cx, &patient, asked, Some(QueueName::of_one(id)), id).await?;
        // A task with the same key is another process's to work on.
        if submitted != id {
            return follower.follow_to_end(submitted, Workers::Elsewhere).await;
        }
        tokio::select! {
            exit = follower.follow_to_end(submitted, Workers::Own) => exit,
            // No other worker serves this task's queue.
            fault = worker_faults::wait_for_fault(&patient, id) => match fault? {},
        }
    });
    let exit = loop {
        tokio::select! {
            exit = &mut work => break exit,
            () = stop.now.cancelled() => break Err(interrupted()),
            ended = &mut worker, if !worker.is_terminated() => {
                // One that ends before it is told to cannot start at all.
                if !stop.drain.is_cancelled() {
                    break ended.and(Err(Failure::new(Exit::Failed, "the worker ended early; run with -v")));
                }
            }
        }
    };
    stop.drain.cancel();
    if !worker.is_terminated() {
        // What it would still say changes nothing: the result is out.
        drop(tokio::time::timeout(WORKER_END, worker).await);
    }
    exit
}

/// Tells the coordinator that this process has a worker for the task's queue, before the task is there: a worker of
/// all queues would take it first, with other keys and settings.
async fn claim_queue(cx: &Context, client: &Client, incarnation: IncarnationId) -> Outcome<()> {
    let request = LeaseRequest {
        incarnation,
        // Before the first request of the worker itself.
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

/// Watches a task and hands its result over.
struct Follower<'a> {
    cx: &'a Context,
    args: &'a TaskArgs,
    stop: &'a Stop,
    /// For watching, which waits for a coordinator by itself and says so.
    watching: Client,
    /// For the result: its calls wait for a coordinator.
    finishing: Client,
}

impl Follower<'_> {
    async fn follow_to_end(&self, id: TaskId, workers: Workers) -> Outcome {
        let stopped = self.stop.drain.cancelled();
        match watch(self.cx, &self.watching, id, stopped, workers).await? {
            WatchEnd::Rested(task) => finish(self.cx, &self.finishing, self.args, &task, workers).await,
            WatchEnd::Stopped(task) => Err(Failure::new(Exit::Failed, left(&task, workers))),
            WatchEnd::StoppedUnserved => Err(Failure::new(Exit::Failed, kept(id))),
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(Exit::Failed, "interrupted; `docket ps` tells what was submitted, `docket up` continues it")
}

/// Hands over the result, and says how it went.
async fn finish(
    cx: &Context,
    client: &Client,
    asked: &TaskArgs,
    task: &TaskRecord,
    workers: Workers,
) -> Outcome {
    let exit = match task.state {
        TaskState::Completed => Exit::Ok,
        TaskState::Cancelled | TaskState::Discarded | TaskState::Blocked => Exit::Failed,
        TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Available
        | TaskState::Running
        | TaskState::Retryable => return Err(Failure::new(Exit::Failed, left(task, workers))),
    };
    let Some(run) = task.last_run else {
        return Err(Failure::new(
            Exit::Failed,
            format!("task {} is {} and was never run", task.id.short(), task.state),
        ));
    };
    let has_repository = task.spec.base.git.is_some();
    // What reads a pipe takes a patch for the result, whatever the exit code is by then.
    let gives_patch = !cx.json() && (exit == Exit::Ok || std::io::stdout().is_terminal());
    let mut branch = None;
    if has_repository {
        let push = (task.spec.delivery() == Delivery::Push).then_some(cx.config.delivery.remote.as_str());
        match (task.spec.delivery(), exit) {
            (Delivery::Branch | Delivery::Push, Exit::Ok) => {
                let repository = asked.repo.clone().unwrap_or_else(|| PathBuf::from("."));
                let ask = Ask { push, ..Ask::of(task, run, &repository) };
                branch = Some(Box::pin(delivery::deliver_now(cx, client, &ask)).await?);
            }
            (Delivery::Patch | Delivery::Branch | Delivery::Push, _) if gives_patch => {
                let (result, _) = delivery::result_of(cx, client, run).await?;
                display::say_exact(&result.patch().await.fail_as(Exit::Failed)?);
            }
            (Delivery::Patch | Delivery::Branch | Delivery::Push, _) => {}
        }
    }
    summary(cx, client, task, run, workers, branch).await?;
    if has_repository && !gives_patch && !cx.json() {
        display::note(&no_patch(task, run));
    }
    Ok(exit)
}

/// Where the difference is of what did not complete.
fn no_patch(task: &TaskRecord, run: RunId) -> String {
    let (state, run) = (task.state, run.short());
    format!("no patch was written, for the task is {state}; `docket diff {run}` shows what the run changed")
}

async fn summary(
    cx: &Context,
    client: &Client,
    task: &TaskRecord,
    run: RunId,
    workers: Workers,
    branch: Option<Done>,
) -> Outcome<()> {
    if cx.json() {
        display::say_json(&task_rows::Row::of(task));
        return Ok(());
    }
    let state = lineage::fold(client, run).await?;
    let view = client.run(run).await?;
    let took = match (view.started_at, view.ended_at) {
        (Some(from), Some(to)) => format!(" in {}", duration(to.ms_since(from))),
        (Some(_) | None, None) | (None, Some(_)) => String::new(),
    };
    if let Some(text) = &state.last_text {
        display::note(&display::excerpt(&text.text_or_size(), 20, "  ", cx.screen.columns()));
    }
    // What a run asks was shown as it asked.
    let message = task.message.as_deref().filter(|_| task.state != TaskState::Blocked);
    let message = message.map(|message| format!(" ({})", in_one_line(message)));
    let message = message.unwrap_or_default();
    display::note(&line(&format!(
        "{}{message}: {}{took}, {} changed, cost {}",
        task_rows::word(task),
        display::counted(u64::from(state.turn.0), "turn", "turns"),
        display::counted(state.overlay.len() as u64, "path", "paths"),
        money(state.totals.cost_nusd)
    )));
    if let Some(why) = task.unverified.as_deref().filter(|_| task.state == TaskState::Completed) {
        display::note(&line(&format!("nothing verified this result: {}", in_one_line(why))));
    }
    if let Some(how) = task_rows::how(task) {
        let next = match workers {
            Workers::Own => ", and `docket up` then goes on with this run",
            Workers::Elsewhere => "",
        };
        display::note(&format!("{how}{next}"));
    }
    if let Some(done) = branch {
        display::note(&done.text());
    }
    display::note(&format!("docket replay {} shows it turn by turn", run.short()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_is_told_in_one() {
        let told =
            in_one_line("run_command has failed alike 3 times:\n\nexit status 1\n  no rule to make it\n");
        assert_eq!(told, "run_command has failed alike 3 times: exit status 1 no rule to make it");
    }
}
