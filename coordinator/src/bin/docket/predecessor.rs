//! What a `docket up` or `docket run` that was killed left leased: given back at the next start instead of waited for.
//!
//! Whoever holds the home's lock knows that the worker inside the last holder is dead, and its run
//! processes with it: they die with their supervisor. Nothing is counted, and the fence holds all
//! the same should one of them still twitch.

use docket_schema::{
    ids::IncarnationId,
    task::TaskState,
    wire::{ReleaseReason, ReleaseRequest, TaskQuery},
};
use docket_worker::client::Client;

use crate::home::Home;

/// File in the home that names the worker inside the last `docket up` or `docket run`: they hold its lock.
const NAMED_IN: &str = "worker.incarnation";

/// Most leases that are given back: more than a machine runs at once.
const LEASES_MAX: u32 = 1000;

/// Gives back what the worker before held, and names the one that begins. Whatever fails here is
/// told and left to the lease's end.
pub(crate) async fn take_back(home: &Home, client: &Client, begins: IncarnationId) {
    let path = home.path().join(NAMED_IN);
    let before = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    if let Some(before) = before {
        give_back(client, before).await;
    }
    if let Err(error) = std::fs::write(&path, begins.to_string()) {
        tracing::warn!(%error, "the worker cannot be named in the home; after a crash its leases run out by themselves");
    }
}

async fn give_back(client: &Client, before: IncarnationId) {
    let query =
        TaskQuery { state: Some(TaskState::Running.into()), limit: Some(LEASES_MAX), ..TaskQuery::default() };
    let tasks = match client.tasks(&query).await {
        Ok(page) => page.tasks,
        Err(error) => return tracing::warn!(%error, "running tasks cannot be listed"),
    };
    for task in tasks.into_iter().filter(|task| task.worker == Some(before)) {
        let request = ReleaseRequest { epoch: task.epoch, why: ReleaseReason::Drained };
        match client.release(task.id, &request).await {
            Ok(_) => tracing::info!(task = %task.id, "taken back from a worker that was killed"),
            Err(error) => tracing::warn!(task = %task.id, %error, "not taken back; its lease runs out"),
        }
    }
}
