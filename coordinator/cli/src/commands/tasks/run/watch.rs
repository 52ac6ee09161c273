//! Follows a task to its end: shows its runs, what it waits for, and outages of its model's
//! provider or the coordinator.

use crate::output::task_rows;
use std::time::{Duration, Instant};

use docket_schema::{
    event::TypedEvent as _,
    ids::{RunId, Seq, TaskId, Timestamp},
    run::RunEvent,
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;
use futures_util::StreamExt as _;

use crate::output::display::collapse_whitespace;
use crate::{
    commands::runs::follow,
    context::CliContext,
    output::{
        display::{format_duration, sanitize_line},
        error::{CliError, CliResult},
        event_format,
    },
    progress::ProgressDisplay,
};

/// Poll interval of the task's state while none of its runs is followed.
const STATE_POLL: Duration = Duration::from_millis(25);
/// Retry interval for a coordinator that does not respond.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How long a task may wait for a worker before that is reported.
const UNTAKEN_MAX: Duration = Duration::from_secs(2);

/// Who executes the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerLocation {
    /// This process.
    ThisProcess,
    /// Workers of the coordinator that has the task.
    Remote,
}

/// How following a task ended.
pub(super) enum WatchEnd {
    /// The task has ended, or waits for a person.
    Rested(Box<TaskRecord>),
    /// The user stopped following first.
    Stopped(Box<TaskRecord>),
    /// The user stopped following while no process served the home, so the state of the task is
    /// unknown.
    StoppedUnserved,
}

/// Follows the task's runs until it has ended or waits for a person, or until `stopped` resolves.
pub(super) async fn watch_task(
    cx: &CliContext,
    client: &CoordinatorClient,
    id: TaskId,
    stopped: impl Future<Output = ()>,
    workers: WorkerLocation,
) -> CliResult<WatchEnd> {
    let mut watch = TaskWatch {
        client,
        id,
        progress: ProgressDisplay::spinner(cx),
        untaken_since: (workers == WorkerLocation::Remote).then(Instant::now),
        followed: None,
        failing_since: None,
        told_outage: None,
    };
    tokio::select! {
        rested = watch.wait_until_rest() => Ok(WatchEnd::Rested(Box::new(rested?))),
        () = stopped => stopped_watch_end(client, id).await,
    }
}

/// Returns the end of a watch that the user stopped.
async fn stopped_watch_end(client: &CoordinatorClient, id: TaskId) -> CliResult<WatchEnd> {
    match client.get_task(id).await {
        // The task may have ended at the same moment.
        Ok(view) if view.task.state.is_ended() => Ok(WatchEnd::Rested(Box::new(view.task))),
        Ok(view) => Ok(WatchEnd::Stopped(Box::new(view.task))),
        Err(error) if client.is_home_client() && error.is_retryable() => Ok(WatchEnd::StoppedUnserved),
        Err(error) => Err(CliError::from(error)),
    }
}

struct TaskWatch<'a> {
    client: &'a CoordinatorClient,
    id: TaskId,
    progress: ProgressDisplay,
    /// When the task began to wait for a worker that may not exist; `None` once that was reported.
    untaken_since: Option<Instant>,
    /// The run that was shown, and the progress shown.
    followed: Option<(RunId, ShownProgress)>,
    /// When the current series of provider failures began.
    failing_since: Option<Timestamp>,
    /// The end of the outage pause that was last reported.
    told_outage: Option<Timestamp>,
}

/// How far a run was shown.
#[derive(Debug, Clone, Copy)]
struct ShownProgress {
    up_to: Seq,
    /// Whether the run may have more events later: it waits, or the coordinator went away.
    is_resting: bool,
}

impl TaskWatch<'_> {
    async fn wait_until_rest(&mut self) -> CliResult<TaskRecord> {
        loop {
            let task = self.fetch_task().await?;
            let seen = self.followed.filter(|(run, _)| task.last_run == Some(*run)).map(|(_, shown)| shown);
            // A run that continued and ended between two polls is shown as well.
            let moves = task.state == TaskState::Running || task.state.is_ended();
            let rests = seen.is_some_and(|shown| shown.is_resting) && !moves;
            match task.last_run.filter(|_| seen.is_none_or(|shown| shown.is_resting) && !rests) {
                // Includes a run that had ended when it was first seen.
                Some(run) => {
                    let after = seen.map_or(Seq(0), |shown| shown.up_to);
                    let shown = self.show_run(run, after).await?;
                    self.followed = Some((run, shown));
                }
                None if task.state.is_ended() => return Ok(task),
                None if task.state == TaskState::Blocked && !continues_by_itself(&task) => return Ok(task),
                None => {
                    self.print_wait_reason(&task);
                    tokio::time::sleep(STATE_POLL).await;
                }
            }
        }
    }

    /// Returns the current task. The coordinator of this home may go away; another process or this one
    /// takes over.
    async fn fetch_task(&self) -> CliResult<TaskRecord> {
        loop {
            match self.client.get_task(self.id).await {
                Ok(view) => return Ok(view.task),
                Err(error) if self.client.is_home_client() && error.is_retryable() => {
                    self.progress
                        .set_message("the coordinator of this home does not respond; waiting for it");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(CliError::from(error)),
            }
        }
    }

    async fn show_run(&mut self, run: RunId, after: Seq) -> CliResult<ShownProgress> {
        let mut stream = std::pin::pin!(self.client.follow_run(run, after));
        let mut phase = "";
        let mut shown = ShownProgress { up_to: after, is_resting: false };
        let mut checks = follow::CheckNames::default();
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(event) => event,
                // Events are shown from this position once a coordinator responds.
                Err(error) if self.client.is_home_client() && error.is_retryable() => {
                    shown.is_resting = true;
                    break;
                }
                Err(error) => return Err(CliError::from(error)),
            };
            shown.up_to = event.seq;
            let Ok(typed) = RunEvent::decode(&event.kind, event.version, event.payload.as_str()) else {
                continue;
            };
            if let RunEvent::PhaseChanged(e) = &typed {
                phase = e.phase.as_str();
            }
            let (_, text) = follow::describe_event(&typed, &mut checks);
            let text = sanitize_line(text.trim()).into_owned();
            if !text.is_empty() {
                self.progress.print_note(&format!("turn {:<3} {text}", event.turn));
                self.progress.set_message(format!("turn {} {phase}", event.turn));
            }
            if let RunEvent::ModelRequested(e) = &typed {
                self.progress.set_message(format!(
                    "turn {} {phase}: {} thinks",
                    event.turn,
                    sanitize_line(&e.model.name)
                ));
            }
            if let RunEvent::ModelFailed(_) = &typed {
                self.failing_since.get_or_insert(event.recorded_at);
            }
            if let RunEvent::ModelAnswered(_) = &typed {
                (self.failing_since, self.told_outage) = (None, None);
            }
            // A blocked run has no further events until it continues.
            if matches!(typed, RunEvent::RunBlocked(_)) {
                shown.is_resting = true;
                break;
            }
        }
        Ok(shown)
    }

    fn print_wait_reason(&mut self, task: &TaskRecord) {
        if task.blocked_why == Some(TaskBlockedReason::Outage) {
            let now = docket_coordinator::clock::Clock::new().now();
            self.progress.set_message(describe_outage(task, self.failing_since, now));
            if self.told_outage.replace(task.available_at) != Some(task.available_at) {
                let id = task.id.short();
                self.progress.print_note(&format!(
                    "{}; Ctrl-C keeps task {id}, and `docket up` continues it",
                    describe_outage(task, self.failing_since, now)
                ));
            }
            return;
        }
        self.progress.set_message(describe_wait(task));
        if task.state == TaskState::Available
            && task.last_run.is_none()
            && self.untaken_since.is_some_and(|since| since.elapsed() >= UNTAKEN_MAX)
        {
            self.untaken_since = None;
            self.progress.print_note(&no_worker_note(task));
        }
    }
}

/// Whether a blocked task continues without the user: it is unpaused, a child ends, or the provider
/// recovers.
fn continues_by_itself(task: &TaskRecord) -> bool {
    match task.blocked_why {
        Some(TaskBlockedReason::Paused | TaskBlockedReason::Child | TaskBlockedReason::Outage) => true,
        Some(
            TaskBlockedReason::Person
            | TaskBlockedReason::Provider
            | TaskBlockedReason::Budget
            | TaskBlockedReason::WorkerFault,
        )
        | None => false,
    }
}

/// Describes an outage: since when, until when, and why.
fn describe_outage(task: &TaskRecord, since: Option<Timestamp>, now: Timestamp) -> String {
    let at = |at: Timestamp| event_format::format_time_of_day(at).chars().take(8).collect::<String>();
    let since = since.map_or_else(String::new, |since| format!(" since {} UTC", at(since)));
    let next = format!(
        "next try at {} UTC, in {}",
        at(task.available_at),
        format_duration(task.available_at.ms_since(now))
    );
    let why = task
        .message
        .as_deref()
        .map_or_else(String::new, |message| format!(" ({})", collapse_whitespace(message)));
    sanitize_line(&format!("waiting for the model's provider{since}: {next}{why}")).into_owned()
}

fn no_worker_note(task: &TaskRecord) -> String {
    let (id, queue) = (task.id.short(), &task.spec.queue);
    format!(
        "task {id} is available in queue {queue}; no worker has taken it yet; start one with `docket worker` \
         on the coordinator's machine, or with DOCKET_URL and DOCKET_TOKEN"
    )
}

fn describe_wait(task: &TaskRecord) -> String {
    match &task.message {
        Some(message) => {
            sanitize_line(&format!("{}: {}", task_rows::state_label(task), collapse_whitespace(message)))
                .into_owned()
        }
        None => format!("{} in queue {}", task_rows::state_label(task), task.spec.queue),
    }
}

/// Note for a user who stops following a task of this home.
pub(super) fn task_kept_note(task: TaskId) -> String {
    let id = task.short();
    format!(
        "stopped; task {id} keeps its progress: `docket up` continues it, immediately if one is running for this home \
         (`docket cancel {id}` ends it)"
    )
}

/// Describes where a task is that was not followed to its end, and how it continues.
pub(super) fn unfinished_note(task: &TaskRecord, workers: WorkerLocation) -> String {
    let id = task.id.short();
    match (workers, task.state) {
        (WorkerLocation::ThisProcess, _) => task_kept_note(task.id),
        (WorkerLocation::Remote, TaskState::Running) => format!(
            "task {id} keeps running; follow it with `docket follow {id}`, end it with `docket cancel {id}`"
        ),
        (WorkerLocation::Remote, state) => format!(
            "task {id} is {state} in queue {} and waits for a worker; see its progress with `docket show {id}`, \
             end it with `docket cancel {id}`",
            task.spec.queue
        ),
    }
}

#[cfg(test)]
mod tests {
    use docket_worker::{client::home_address, secret::Secret};

    use super::*;

    #[tokio::test]
    async fn stopped_watch_without_coordinator_says_the_task_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = home_address(&folder.path().join("docket.lock")).expect("an address");
        let token = || Secret::new("dkt_test").expect("a token");
        let id = TaskId(docket_coordinator::clock::new_id());
        let client = CoordinatorClient::new(&address, token()).expect("a client");
        assert!(matches!(stopped_watch_end(&client, id).await, Ok(WatchEnd::StoppedUnserved)));
        assert!(task_kept_note(id).contains("keeps its progress"));
        // A remote coordinator that does not respond is an error: its tasks do not belong to this home.
        let elsewhere = CoordinatorClient::new("http://127.0.0.1:1", token()).expect("a client");
        assert!(stopped_watch_end(&elsewhere, id).await.is_err());
    }
}
