//! `docket run`: one task from start to finish.
//!
//! Where nobody serves the home, it serves it for the duration, with one worker that takes this task
//! only: its queue has a name of its own. What the run does is shown on standard error; standard
//! output is for the patch.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use docket_schema::{
    event::TypedEvent as _,
    ids::{QueueName, RunId, Seq, TaskId},
    run::RunEvent,
    task::{Delivery, TaskBlockedWhy, TaskRecord, TaskState},
};
use docket_worker::client::Client;
use futures_util::{FutureExt as _, StreamExt as _, future::FusedFuture as _};

use crate::{
    access::{Access, Need},
    answer,
    context::Context,
    delivery::{self, Ask, Done},
    display::{self, duration, line, money},
    events,
    fail::{Exit, FailWith as _, Failure, Outcome},
    follow,
    home::Ownership,
    logging, predecessor,
    progress::Progress,
    ps,
    serve::{Served, ServerArgs},
    show,
    signals::Stop,
    submit::TaskArgs,
    supervise, worker_faults,
};

/// How often the task's state is looked at while no run of it is followed.
const LOOK: Duration = Duration::from_millis(25);
/// How long the worker may take to end after its only run has.
const WORKER_END: Duration = Duration::from_secs(10);
/// How long a task may wait for a worker before that is told.
const WAIT_TOLD: Duration = Duration::from_secs(2);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Works on a copy: your work tree stays as it is. The patch goes to standard output, byte for byte
unless that is a terminal, or with --branch the result becomes a branch. What did not complete gives a patch on a
terminal only, for `| git apply` would take it for done; `docket diff` shows it. Ctrl-C stops it after its turn;
`docket up` would go on with it. Where a coordinator serves the home already, or one is named, its workers do it: Ctrl-C
ends the watching only, and says how to look again.

Ends with 0 where the task completed, with 1 where it was cancelled or discarded, is blocked (it
waits for you), was not watched to its end, or cannot be carried out here (an MCP server does not
start, a key is refused): it is kept then.

Examples:
  docket run \"Mend the rounding in prices.py\" --repo . --tests \"pytest -q\" | git apply
  docket run \"Add a --json flag\" --repo . --branch feature/json --model openai:gpt-5.5"
)]
pub(crate) struct Args {
    #[command(flatten)]
    task: TaskArgs,
}

/// Does it.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose);
    let asked = args.task.check(&cx)?;
    let id = TaskId(docket_coordinator::clock::new_id());
    let stop = Stop::listen()?;
    if cx.url.is_some() || cx.home.ownership()? != Ownership::Free {
        let access = Access::open(&cx, Need::Write).await?;
        // A command that changed something in a moment is no server.
        if !access.is_alone() {
            let followed = async {
                let id = args.task.submit(&cx, &access.client, asked, None, id).await?;
                let ended =
                    watch(&cx, &access.client, id, stop.drain.cancelled(), Workers::Elsewhere).await?;
                finish(&cx, &access.client, &args.task, &ended, Workers::Elsewhere).await
            };
            let exit = tokio::select! {
                exit = followed => exit,
                () = stop.now.cancelled() => Err(Failure::new(Exit::Failed, "interrupted; `docket ps` tells what was submitted")),
            };
            access.close().await?;
            return exit;
        }
        access.close().await?;
    }
    let queue = QueueName::of_one(id);
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.slots = 1;
    cx.config.queues = vec![queue.clone()];
    // Who names the server is who owns this worker, and no other task comes to its queue.
    cx.config.base_urls.extend(args.task.base_url.clone());
    let served = Served::start(&mut cx, &ServerArgs::default()).await?;
    let token = cx.home.token()?;
    let client = Client::new(served.address(), token.clone())?;
    let job = supervise::Job::new(served.address(), token, "run".to_owned());
    predecessor::take_back(&cx.home, &client, job.incarnation()).await;
    let mut worker = Box::pin(supervise::start(&cx, job, &stop)?.fuse());
    let mut work = Box::pin(async {
        let id = args.task.submit(&cx, &client, asked, Some(queue), id).await?;
        let ended = tokio::select! {
            ended = watch(&cx, &client, id, stop.drain.cancelled(), Workers::Own) => ended?,
            // No other worker serves this task's queue.
            fault = worker_faults::wait_for_fault(&client, id) => match fault? {},
        };
        finish(&cx, &client, &args.task, &ended, Workers::Own).await
    });
    let exit = loop {
        tokio::select! {
            exit = &mut work => break exit,
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
    served.stop().await;
    exit
}

/// Who works on the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workers {
    /// This process.
    Own,
    /// Whoever works for the coordinator that serves.
    Elsewhere,
}

/// Follows the task's runs until it has ended, or waits for somebody.
async fn watch(
    cx: &Context,
    client: &Client,
    id: TaskId,
    stopped: impl Future<Output = ()>,
    workers: Workers,
) -> Outcome<TaskRecord> {
    let progress = Progress::waiting(cx);
    let mut untold = (workers == Workers::Elsewhere).then(Instant::now);
    let mut stopped = std::pin::pin!(stopped);
    // The run that was shown, up to where, and whether it went on or ended there.
    let mut followed: Option<(RunId, Shown)> = None;
    loop {
        let task = client.task(id).await?.task;
        // Who paused it lets it go on, and a child ends by itself.
        let goes_on = matches!(task.blocked_why, Some(TaskBlockedWhy::Paused | TaskBlockedWhy::Child));
        let seen = followed.filter(|(run, _)| task.last_run == Some(*run)).map(|(_, shown)| shown);
        // What went on and ended within a look is shown as well.
        let moves = task.state == TaskState::Running || task.state.is_ended();
        let rests = seen.is_some_and(|shown| shown.rests) && !moves;
        match task.last_run.filter(|_| seen.is_none_or(|shown| shown.rests) && !rests) {
            // Also one that has ended before it was first seen.
            Some(run) => {
                let after = seen.map_or(Seq(0), |shown| shown.up_to);
                tokio::select! {
                    shown = show_run(client, run, after, &progress) => followed = Some((run, shown?)),
                    () = &mut stopped => {
                        return client.task(id).await.map(|view| view.task).map_err(Failure::from);
                    }
                }
            }
            None if task.state.is_ended() || (task.state == TaskState::Blocked && !goes_on) => {
                return Ok(task);
            }
            None => {
                progress.say(waiting_for(&task));
                if task.state == TaskState::Available
                    && task.last_run.is_none()
                    && untold.is_some_and(|since| since.elapsed() >= WAIT_TOLD)
                {
                    untold = None;
                    progress.note(&not_taken(&task));
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = &mut stopped => return Ok(task),
                }
            }
        }
    }
}

fn not_taken(task: &TaskRecord) -> String {
    let (id, queue) = (task.id.short(), &task.spec.queue);
    format!(
        "task {id} is available in queue {queue}; no worker has taken it yet; start one with `docket worker`, \
         beside its coordinator or with DOCKET_URL and DOCKET_TOKEN"
    )
}

/// Where a task is that is not watched to its end, and what goes on.
fn left(task: &TaskRecord, workers: Workers) -> String {
    let id = task.id.short();
    match (workers, task.state) {
        (Workers::Own, _) => {
            format!("stopped; task {id} goes on at the next `docket up` (`docket cancel {id}` ends it)")
        }
        (Workers::Elsewhere, TaskState::Running) => format!(
            "task {id} is running and goes on; `docket follow {id}` watches it again, `docket cancel {id}` ends it"
        ),
        (Workers::Elsewhere, state) => format!(
            "task {id} is {state} in queue {} and waits there for a worker; `docket show {id}` tells how it goes, \
             `docket cancel {id}` ends it",
            task.spec.queue
        ),
    }
}

/// The lines of a message behind one another: an escaped end of line reads badly in a sentence.
fn in_one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn waiting_for(task: &TaskRecord) -> String {
    match &task.message {
        Some(message) => line(&format!("{}: {}", ps::word(task), in_one_line(message))).into_owned(),
        None => format!("{} in queue {}", ps::word(task), task.spec.queue),
    }
}

/// How far a run was shown.
#[derive(Debug, Clone, Copy)]
struct Shown {
    up_to: Seq,
    /// It waits, and may go on from there.
    rests: bool,
}

async fn show_run(client: &Client, run: RunId, after: Seq, progress: &Progress) -> Outcome<Shown> {
    let mut stream = std::pin::pin!(client.follow(run, after));
    let mut phase = "";
    let mut shown = Shown { up_to: after, rests: false };
    while let Some(event) = stream.next().await {
        let event = event?;
        shown.up_to = event.seq;
        let Ok(typed) = RunEvent::decode(&event.kind, event.version, event.payload.as_str()) else {
            continue;
        };
        if let RunEvent::PhaseChanged(e) = &typed {
            phase = e.phase.as_str();
        }
        let (_, text) = follow::shown(&typed);
        let text = line(text.trim()).into_owned();
        if !text.is_empty() {
            progress.note(&format!("turn {:<3} {text}", event.turn));
            progress.say(format!("turn {} {phase}", event.turn));
        }
        if let RunEvent::ModelRequested(e) = &typed {
            progress.say(format!("turn {} {phase}: {} thinks", event.turn, line(&e.model.name)));
        }
        // It waits, and no event follows until it goes on.
        if matches!(typed, RunEvent::RunBlocked(_)) {
            shown.rests = true;
            break;
        }
    }
    Ok(shown)
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
        display::say_json(&ps::Row::of(task));
        return Ok(());
    }
    let state = show::fold(client, run).await?;
    let view = client.run(run).await?;
    let took = match (view.started_at, view.ended_at) {
        (Some(from), Some(to)) => format!(" in {}", duration(to.ms_since(from))),
        (Some(_) | None, None) | (None, Some(_)) => String::new(),
    };
    if let Some(text) = &state.last_text {
        display::note(&display::excerpt(&events::text_of(text), 20, "  ", cx.screen.columns()));
    }
    let message = task.message.as_deref().map(|message| format!(" ({})", in_one_line(message)));
    let message = message.unwrap_or_default();
    display::note(&line(&format!(
        "{}{message}: {} turns{took}, {} paths changed, cost {}",
        task.state,
        state.turn,
        state.overlay.len(),
        money(state.totals.cost_nusd)
    )));
    if let Some(how) = answer::how(task) {
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
