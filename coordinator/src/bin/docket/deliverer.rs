//! Results delivered as tasks complete, while `docket up` runs on the machine that has their sources.
//!
//! Follows the log's feed from where it last stood, which it keeps in the home: what completed while
//! nobody was here is made good at the next start. Delivery is idempotent, so a cursor that was not
//! written costs nothing. What fails for a while (a remote that is away) is tried again, and holds the cursor
//! back until it is done or given up; what a person must settle is told in the log and left.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{Position, RunId, StreamId, TaskId},
    task::{Delivery, DeliveryBlockedWhy, TaskEvent, TaskState},
    wire::DeliveryStep,
};
use docket_worker::client::{Client, ClientError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    delivery::{self, Ask},
    fail::Exit,
};

/// How often the feed is asked for more when it had none.
const POLL: Duration = Duration::from_millis(500);

/// How long after a failure it is tried again: twice as long each time, up to the longest.
const AGAIN: Duration = Duration::from_secs(10);
const AGAIN_MAX: Duration = Duration::from_secs(30 * 60);

/// Tries before it is left to a person: about five hours, longer than most outages of a remote.
const TRIES_MAX: u32 = 18;

/// Deliveries that wait for another try: more are left to a person, so that memory stays bounded.
const WAITING_MAX: usize = 1000;

/// File in the home that holds the position up to which everything is delivered.
const CURSOR: &str = "delivered.position";

/// A delivery that failed and is tried again.
struct Waiting {
    task: TaskId,
    run: RunId,
    /// Before the event that asks for it.
    after: Position,
    tries: u32,
    due: Instant,
}

/// What a try came to.
enum Tried {
    /// Done, or nothing to do, or a person's now.
    Over,
    /// It may work later. What was wrong.
    Failed(String),
}

/// Delivers until cancelled, and then at once no more: what was broken off is safe to repeat.
pub(crate) async fn run(cx: &Context, client: &Client, stop: CancellationToken) {
    stop.run_until_cancelled(deliver_on(cx, client)).await;
}

async fn deliver_on(cx: &Context, client: &Client) {
    let cursor = cx.home.path().join(CURSOR);
    let mut position = read_cursor(&cursor);
    let mut written = position;
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let before = position;
        match follow(cx, client, position, &mut waiting).await {
            Ok(next) => position = next,
            Err(error) => tracing::debug!(%error, "the feed cannot be read; it is asked again"),
        }
        try_again(cx, client, &mut waiting).await;
        let safe = waiting.iter().map(|one| one.after).min().unwrap_or(position).min(position);
        if safe != written {
            match std::fs::write(&cursor, safe.to_string()) {
                Ok(()) => written = safe,
                Err(error) => {
                    tracing::warn!(%error, "the delivery cursor cannot be written; deliveries are looked at again");
                }
            }
        }
        if position != before {
            continue;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A cursor that is missing or damaged begins again: deliveries are idempotent.
fn read_cursor(path: &Path) -> Position {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Position(text.trim().parse().unwrap_or(0))
}

async fn follow(
    cx: &Context,
    client: &Client,
    after: Position,
    waiting: &mut Vec<Waiting>,
) -> Result<Position, ClientError> {
    let page = client.feed(after, None).await?;
    let mut at = after;
    for event in &page.events {
        if let Some((task, run)) = completed(event) {
            match deliver(cx, client, task, run).await? {
                Tried::Over => {}
                // A page that was cut short is read again.
                Tried::Failed(_) if waiting.iter().any(|one| (one.task, one.run) == (task, run)) => {}
                Tried::Failed(_) if waiting.len() < WAITING_MAX => {
                    waiting.push(Waiting { task, run, after: at, tries: 1, due: Instant::now() + AGAIN });
                }
                Tried::Failed(_) => {
                    tracing::warn!(%task, "not delivered, as too many others; `docket apply` tries again");
                }
            }
        }
        at = event.position;
    }
    Ok(at)
}

async fn try_again(cx: &Context, client: &Client, waiting: &mut Vec<Waiting>) {
    let now = Instant::now();
    for one in waiting.iter_mut().filter(|one| one.due <= now) {
        let failed = match deliver(cx, client, one.task, one.run).await {
            Ok(Tried::Over) => None,
            Ok(Tried::Failed(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        one.tries = if failed.is_some() { one.tries + 1 } else { u32::MAX };
        let wait = AGAIN.saturating_mul(1 << one.tries.min(12)).min(AGAIN_MAX);
        one.due = Instant::now() + wait;
        if let Some(why) = failed.filter(|_| one.tries > TRIES_MAX) {
            give_up(client, one, why).await;
        }
    }
    waiting.retain(|one| one.tries <= TRIES_MAX);
}

/// Leaves it to a person: its task is undelivered.
async fn give_up(client: &Client, one: &Waiting, message: String) {
    tracing::warn!(task = %one.task, "not delivered and not tried again; `docket push` does");
    let told = async {
        let branch = client.task(one.task).await?.task.spec.branch_of(one.task);
        let (why, paths, kept) = (DeliveryBlockedWhy::Remote, Vec::new(), None);
        client.delivery(one.task, one.run, DeliveryStep::Blocked { branch, why, paths, kept, message }).await
    };
    if let Err(error) = told.await {
        tracing::warn!(task = %one.task, %error, "the log does not say so");
    }
}

/// The task and the run, of the event that says that it is done.
fn completed(event: &Envelope) -> Option<(TaskId, RunId)> {
    let (StreamId::Task(task), "TaskCompleted") = (&event.stream, event.kind.as_str()) else { return None };
    match TaskEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(TaskEvent::TaskCompleted(done)) => Some((*task, done.run)),
        Ok(_) | Err(_) => None,
    }
}

async fn deliver(cx: &Context, client: &Client, id: TaskId, run: RunId) -> Result<Tried, ClientError> {
    let task = client.task(id).await?.task;
    // One that was rejected or begun anew since gives what its next run comes to.
    let is_done = task.state == TaskState::Completed || task.is_undelivered();
    if !is_done || task.last_run != Some(run) {
        return Ok(Tried::Over);
    }
    let push = match task.spec.delivery() {
        Delivery::Patch => return Ok(Tried::Over),
        Delivery::Branch => None,
        Delivery::Push => Some(cx.config.delivery.remote.as_str()),
    };
    // A source that is not on this machine is somebody else's to deliver to.
    let Some(repository): Option<PathBuf> = delivery::source_of(&task) else { return Ok(Tried::Over) };
    let ask = Ask { push, ..Ask::of(&task, run, &repository) };
    if is_delivered(cx, client, &ask).await {
        return Ok(Tried::Over);
    }
    match Box::pin(delivery::deliver(cx, client, &ask)).await {
        Ok(done) => {
            tracing::info!(task = %id, branch = %done.branch, commit = %done.commit, "delivered");
            Ok(Tried::Over)
        }
        Err(failure) => {
            tracing::warn!(task = %id, branch = %ask.branch, error = %failure.error, "not delivered; `docket apply` tries again");
            let may_work_later = matches!(failure.exit, Exit::Failed | Exit::Unreachable);
            Ok(if may_work_later { Tried::Failed(failure.error.to_string()) } else { Tried::Over })
        }
    }
}

/// Whether the log says so. A branch that was deleted since, as one that was merged, is not made again.
async fn is_delivered(cx: &Context, client: &Client, ask: &Ask<'_>) -> bool {
    let Ok(found) = delivery::deliveries(client, ask.task.id).await else { return false };
    let done = found
        .delivered
        .iter()
        .rfind(|one| one.run == ask.run && one.branch == ask.branch && one.remote.as_deref() == ask.push);
    let hooked = |commit: &str| found.hook.as_ref().is_some_and(|hook| hook.commit == commit);
    done.is_some_and(|done| cx.config.delivery.hook.is_none() || hooked(&done.commit))
}
