//! Submits in pages: each all or none, and accepted once however often it is sent.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use docket_schema::{
    ids::{BatchId, TaskId},
    wire::{BODY_BYTES_MAX, SUBMIT_TASKS_MAX, SubmitRequest, TaskQuery},
};
use docket_worker::client::{Client, patiently};
use indicatif::ProgressBar;

use super::specs::Ready;
use crate::fail::{Exit, Failure, Outcome};

/// Tasks of a page: a transaction that others wait for is to be short, and the progress is to move.
const PAGE_TASKS: usize = 1000;
/// Bytes of a page.
const PAGE_BYTES: usize = BODY_BYTES_MAX / 4;
/// How long a page is tried.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tasks of a page of a list.
const LISTED: u32 = 1000;

const _: () = assert!(PAGE_TASKS <= SUBMIT_TASKS_MAX, "a page is a submit");

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) line: usize,
    pub(super) id: TaskId,
    pub(super) duplicate: bool,
}

/// The tasks of a batch by their keys, whatever became of them.
pub(super) async fn known(client: &Client, batch: BatchId) -> Outcome<HashMap<String, TaskId>> {
    let mut query = TaskQuery { batch: Some(batch), limit: Some(LISTED), ..TaskQuery::default() };
    let mut known = HashMap::new();
    loop {
        let page = client.tasks(&query).await?;
        // The newest comes first, and is the one that is meant.
        for task in page.tasks {
            if let Some(key) = task.spec.dedup_key {
                known.entry(key).or_insert(task.id);
            }
        }
        match page.next {
            None => return Ok(known),
            next => query.before = next,
        }
    }
}

/// Submits all of them.
pub(super) async fn submit(client: &Client, tasks: Vec<Ready>, bar: &ProgressBar) -> Outcome<Vec<Sent>> {
    let mut sent = Vec::with_capacity(tasks.len());
    let all = tasks.len();
    let mut tasks = tasks.into_iter().peekable();
    let mut size = 0;
    let mut page: Vec<Ready> = Vec::new();
    while let Some(task) = tasks.next() {
        size += serde_json::to_vec(&task.spec).map_or(PAGE_BYTES, |json| json.len());
        page.push(task);
        if page.len() < PAGE_TASKS && size < PAGE_BYTES && tasks.peek().is_some() {
            continue;
        }
        let of_page = send(client, std::mem::take(&mut page)).await.map_err(|failure| {
            let done = sent.len();
            let error = failure
                .error
                .context(format!("{done} of {all} tasks were submitted; the same import goes on"));
            Failure { error, ..failure }
        })?;
        size = 0;
        bar.inc(of_page.len() as u64);
        sent.extend(of_page);
    }
    Ok(sent)
}

async fn send(client: &Client, page: Vec<Ready>) -> Outcome<Vec<Sent>> {
    let lines: Vec<usize> = page.iter().map(|task| task.line).collect();
    let ids = page.iter().map(|_| TaskId(docket_coordinator::clock::new_id())).collect();
    let request = SubmitRequest { tasks: page.into_iter().map(|task| task.spec).collect(), ids: Some(ids) };
    let answer = patiently(Instant::now() + PATIENCE, || client.submit(&request)).await?;
    if answer.tasks.len() != lines.len() {
        let message = "the coordinator answered with other tasks; check that its version is the same";
        return Err(Failure::new(Exit::Failed, message));
    }
    let done = lines.into_iter().zip(answer.tasks);
    Ok(done.map(|(line, task)| Sent { line, id: task.id, duplicate: task.duplicate }).collect())
}
