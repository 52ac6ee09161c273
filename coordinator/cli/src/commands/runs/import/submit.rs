//! Submits tasks in pages. A page is all or nothing, and is accepted once however often it is sent.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use docket_schema::{
    api::{
        ArchivedTaskQuery, BODY_BYTES_MAX, BULK_TASKS_MAX, BulkOperation, BulkRequest, SUBMIT_TASKS_MAX,
        SubmitRequest, TaskQuery,
    },
    ids::{BatchId, TaskId},
    task::TaskState,
};
use docket_worker::client::{CoordinatorClient, retry_until};

use super::{
    backlog_args::BacklogImportArgs,
    task_specs::{CONTENT_KEY, UnpinnedTask},
};
use crate::{
    output::error::{CliError, CliResult, ExitKind},
    progress::ProgressDisplay,
};

/// Tasks per page: small enough for short transactions and visible progress.
const PAGE_TASKS: usize = 1000;
/// Maximum bytes per page.
const PAGE_BYTES: usize = BODY_BYTES_MAX / 4;
/// How long a page is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Tasks per page when listing.
const LIST_PAGE_TASKS: u32 = 1000;

const _: () = assert!(PAGE_TASKS <= SUBMIT_TASKS_MAX, "a page is a submit");

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubmittedTask {
    pub(super) line: usize,
    pub(super) id: TaskId,
    pub(super) duplicate: bool,
}

/// Returns the tasks of a batch by dedup key, in any state.
pub(super) async fn tasks_by_key(
    client: &CoordinatorClient,
    batch: BatchId,
) -> CliResult<HashMap<String, TaskId>> {
    let mut query = TaskQuery { batch: Some(batch), limit: Some(LIST_PAGE_TASKS), ..TaskQuery::default() };
    let mut known = HashMap::new();
    loop {
        let page = client.list_tasks(&query).await?;
        // The newest task comes first and is the one that counts.
        for task in page.tasks {
            if let Some(key) = task.spec.dedup_key {
                known.entry(key).or_insert(task.id);
            }
        }
        match page.next {
            None => break,
            next => query.before = next,
        }
    }
    // Archived tasks were completed or given up, so they are not new work.
    let mut query =
        ArchivedTaskQuery { batch: Some(batch), limit: Some(LIST_PAGE_TASKS), ..Default::default() };
    loop {
        let page = client.list_archived_tasks(&query).await?;
        for archived in page.tasks {
            if let Some(key) = archived.task.and_then(|task| task.dedup_key) {
                known.entry(key).or_insert(archived.id);
            }
        }
        match page.next {
            None => return Ok(known),
            next => query.before = next,
        }
    }
}

/// Returns failed tasks of a batch that other tasks of it still wait for, by key. They must be
/// retried, because a dependency cannot be moved to another task.
pub(super) async fn awaited_failures(
    client: &CoordinatorClient,
    batch: BatchId,
) -> CliResult<HashMap<String, TaskId>> {
    let mut query = TaskQuery { batch: Some(batch), limit: Some(LIST_PAGE_TASKS), ..TaskQuery::default() };
    let (mut failed, mut waited_for) = (HashMap::new(), HashSet::new());
    loop {
        let page = client.list_tasks(&query).await?;
        for task in page.tasks {
            waited_for.extend(task.waits_for);
            if let (TaskState::Cancelled | TaskState::Discarded, Some(key)) =
                (task.state, task.spec.dedup_key)
            {
                failed.entry(key).or_insert_with(Vec::new).push(task.id);
            }
        }
        match page.next {
            None => break,
            next => query.before = next,
        }
    }
    let awaited = failed.into_iter().filter_map(|(key, tasks)| {
        let task = tasks.into_iter().find(|task| waited_for.contains(task))?;
        Some((key, task))
    });
    Ok(awaited.collect())
}

/// Retries the tasks.
pub(super) async fn retry_tasks(client: &CoordinatorClient, tasks: &[TaskId]) -> CliResult<()> {
    for page in tasks.chunks(BULK_TASKS_MAX as usize) {
        let request = BulkRequest {
            act: BulkOperation::Retry,
            filter: TaskQuery::default(),
            tasks: page.to_vec(),
            reason: "imported again".to_owned(),
            dry_run: false,
        };
        let done = client.apply_bulk_action(&request).await?.tasks;
        if let Some((task, why)) = done.iter().find_map(|task| Some((task, task.refused.as_ref()?))) {
            let message = format!("cannot retry task {}: {why}", task.id);
            return Err(CliError::new(ExitKind::Refused, message));
        }
    }
    Ok(())
}

/// Submits all tasks.
pub(super) async fn submit_tasks(
    client: &CoordinatorClient,
    tasks: Vec<UnpinnedTask>,
    flags: &BacklogImportArgs,
    progress: &ProgressDisplay,
) -> CliResult<Vec<SubmittedTask>> {
    let mut sent = Vec::with_capacity(tasks.len());
    let all = tasks.len();
    let mut tasks = tasks.into_iter().peekable();
    let mut size = 0;
    let mut page: Vec<UnpinnedTask> = Vec::new();
    // Maps planned IDs to those of existing tasks, for the dependencies of later tasks.
    let mut renamed: HashMap<TaskId, TaskId> = HashMap::new();
    while let Some(mut task) = tasks.next() {
        for after in &mut task.spec.conditions.after {
            if let Some(there) = renamed.get(after) {
                *after = *there;
            }
        }
        size += serde_json::to_vec(&task.spec).map_or(PAGE_BYTES, |json| json.len());
        page.push(task);
        // A task that others wait for may exist under an ID that only the response reveals. Tasks
        // identified by content were looked up before.
        let by_content = |task: &UnpinnedTask| {
            task.spec.dedup_key.as_ref().is_some_and(|key| key.starts_with(CONTENT_KEY))
        };
        let is_awaited = |task: &UnpinnedTask| task.key.is_some() && (flags.again || !by_content(task));
        let breaks = tasks.peek().is_none_or(|next| {
            next.spec
                .conditions
                .after
                .iter()
                .any(|id| page.iter().any(|task| is_awaited(task) && task.id == *id))
        });
        if page.len() < PAGE_TASKS && size < PAGE_BYTES && !breaks {
            continue;
        }
        let own: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        let of_page = submit_page(client, std::mem::take(&mut page)).await.map_err(|failure| {
            let done = sent.len();
            let error = failure.error.context(format!(
                "{done} of {all} tasks were submitted; run the same import again to continue"
            ));
            CliError { error, ..failure }
        })?;
        size = 0;
        renamed.extend(
            own.iter()
                .zip(&of_page)
                .filter(|(own, sent)| **own != sent.id)
                .map(|(own, sent)| (*own, sent.id)),
        );
        progress.advance(of_page.len() as u64);
        sent.extend(of_page);
    }
    Ok(sent)
}

async fn submit_page(client: &CoordinatorClient, page: Vec<UnpinnedTask>) -> CliResult<Vec<SubmittedTask>> {
    let lines: Vec<usize> = page.iter().map(|task| task.line).collect();
    let ids = page.iter().map(|task| task.id).collect();
    let request = SubmitRequest { tasks: page.into_iter().map(|task| task.spec).collect(), ids: Some(ids) };
    let answer = retry_until(Instant::now() + RETRY_TIMEOUT, || client.submit(&request)).await?;
    if answer.tasks.len() != lines.len() {
        let message = "the coordinator returned different tasks; check that it runs the same version";
        return Err(CliError::new(ExitKind::Failed, message));
    }
    let done = lines.into_iter().zip(answer.tasks);
    Ok(done.map(|(line, task)| SubmittedTask { line, id: task.id, duplicate: task.duplicate }).collect())
}
