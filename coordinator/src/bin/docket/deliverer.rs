//! Branches made as tasks complete, while `docket up` runs on the machine that has their sources.
//!
//! Follows the log's feed from where it last stood, which it keeps in the home: what completed while
//! nobody was here is made good at the next start. Delivery is idempotent, so a cursor that was not
//! written costs nothing. A branch that cannot be made is told and left: `docket apply` makes it
//! once the cause is mended.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{
    ids::{Position, StreamId, TaskId},
    task::TaskRecord,
};
use docket_worker::client::{Client, ClientError};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, delivery, fail::Failure};

/// How often the feed is asked for more when it had none.
const POLL: Duration = Duration::from_millis(500);

/// File in the home that holds the position up to which everything is delivered.
const CURSOR: &str = "delivered.position";

/// Delivers until cancelled.
pub(crate) async fn run(cx: &Context, client: &Client, stop: CancellationToken) {
    let cursor = cx.home.path().join(CURSOR);
    let mut position = read_cursor(&cursor);
    while !stop.is_cancelled() {
        match follow(cx, client, position).await {
            Ok(next) if next != position => {
                position = next;
                if let Err(error) = std::fs::write(&cursor, position.to_string()) {
                    tracing::warn!(%error, "the delivery cursor cannot be written; deliveries are looked at again");
                }
                continue;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the feed cannot be read; it is asked again"),
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// A cursor that is missing or damaged begins again: deliveries are idempotent.
fn read_cursor(path: &Path) -> Position {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Position(text.trim().parse().unwrap_or(0))
}

async fn follow(cx: &Context, client: &Client, after: Position) -> Result<Position, ClientError> {
    let page = client.feed(after, None).await?;
    for event in &page.events {
        if let (StreamId::Task(id), "TaskCompleted") = (&event.stream, event.kind.as_str()) {
            completed(cx, client, *id).await?;
        }
    }
    Ok(page.events.last().map_or(after, |event| event.position))
}

async fn completed(cx: &Context, client: &Client, id: TaskId) -> Result<(), ClientError> {
    let task = client.task(id).await?.task;
    deliver(cx, client, &task).await;
    Ok(())
}

async fn deliver(cx: &Context, client: &Client, task: &TaskRecord) {
    let (Some(branch), Some(run)) = (&task.spec.branch, task.last_run) else { return };
    // A source that is not on this machine is somebody else's to deliver to.
    let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    let Some(repository) = source.filter(|folder| folder.is_dir()) else { return };
    let made: Result<String, Failure> = async {
        let (result, _) = delivery::result_of(cx, client, run).await?;
        delivery::deliver(&result, task, run, &repository, branch).await
    }
    .await;
    match made {
        Ok(commit) => tracing::info!(task = %task.id, %branch, %commit, "delivered"),
        Err(failure) => {
            tracing::warn!(task = %task.id, %branch, error = %failure.error, "not delivered; `docket apply` tries again");
        }
    }
}
