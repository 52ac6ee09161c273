//! Submits in pages: each all or none, and accepted once however often it is sent.

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

/// Tasks of a page: a transaction that others wait for is to be short, and the progress is to move.
const PAGE_TASKS: usize = 1000;
/// Bytes of a page.
const PAGE_BYTES: usize = BODY_BYTES_MAX / 4;
/// How long a page is tried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Tasks of a page of a list.
const LIST_PAGE_TASKS: u32 = 1000;

const _: () = assert!(PAGE_TASKS <= SUBMIT_TASKS_MAX, "a page is a submit");

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubmittedTask {
    pub(super) line: usize,
    pub(super) id: TaskId,
    pub(super) duplicate: bool,
}

/// The tasks of a batch by their keys, whatever became of them.
pub(super) async fn tasks_by_key(
    client: &CoordinatorClient,
    batch: BatchId,
) -> CliResult<HashMap<String, TaskId>> {
    let mut query = TaskQuery { batch: Some(batch), limit: Some(LIST_PAGE_TASKS), ..TaskQuery::default() };
    let mut known = HashMap::new();
    loop {
        let page = client.list_tasks(&query).await?;
        // The newest comes first, and is the one that is meant.
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
    // What was archived was done, or given up: it is no new work.
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

/// Tasks of a batch that failed and that others of it wait for still, by their keys: those are taken up again, for
/// whoever waits for one waits for no other in its place.
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

/// Retries them.
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
            let message = format!("task {} cannot be taken up again: {why}", task.id);
            return Err(CliError::new(ExitKind::Refused, message));
        }
    }
    Ok(())
}

/// Submits all of them.
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
    // Tasks that were there already, under another id than theirs: what waits for one waits for that.
    let mut renamed: HashMap<TaskId, TaskId> = HashMap::new();
    while let Some(mut task) = tasks.next() {
        for after in &mut task.spec.conditions.after {
            if let Some(there) = renamed.get(after) {
                *after = *there;
            }
        }
        size += serde_json::to_vec(&task.spec).map_or(PAGE_BYTES, |json| json.len());
        page.push(task);
        // A task that others wait for may be there already, under an id that only the answer tells.
        // One that is known by its content was looked for before.
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
            let error = failure
                .error
                .context(format!("{done} of {all} tasks were submitted; the same import goes on"));
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
        let message = "the coordinator answered with other tasks; check that its version is the same";
        return Err(CliError::new(ExitKind::Failed, message));
    }
    let done = lines.into_iter().zip(answer.tasks);
    Ok(done.map(|(line, task)| SubmittedTask { line, id: task.id, duplicate: task.duplicate }).collect())
}
