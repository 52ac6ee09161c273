//! The route that does one thing to many tasks.
//!
//! Each task's part is a command of its own: its events stand in its stream, the store commits those that
//! wait together, and no transaction holds more than it would for one. A page that is sent again finds done
//! what was done.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{BULK_TASKS_MAX, BulkOperation, BulkRequest, BulkResponse, BulkTaskResult, ProblemCode, TaskPage},
    ids::TaskId,
    task::{TaskRecord, check_priority},
};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    commands,
    request::{ApiRequest, json_response},
    tasks::{apply_to_children, check_filter, check_reason},
};
use crate::{
    decide::DependencyRetry,
    store::{CommandBlobs, CommandError, DecideFn},
};

/// Commands of one request that wait at once: enough to share commits, few enough to leave room for others.
const CONCURRENT_COMMANDS: usize = 64;

/// A task that is meant: as it was found, or by its name alone.
struct SelectedTask {
    id: TaskId,
    record: Option<TaskRecord>,
}

pub(super) async fn run_bulk_act(api: Arc<ApiState>, call: ApiRequest) -> Result<Response<Body>, ApiError> {
    let request: BulkRequest = call.json()?;
    check_bulk_request(&request)?;
    let reason = check_reason(&api, &request.reason)?;
    let by = call.caller.log_name();
    let (meant, next) = select_tasks(&api, &request).await?;
    let act = request.act;
    let (api, reason, by) = (&api, &reason, &by);
    let tasks = futures_util::stream::iter(meant)
        .map(|task| async move {
            if request.dry_run {
                Ok(preview_task(task))
            } else {
                apply_to_task(api, task, act, by, reason).await
            }
        })
        .buffered(CONCURRENT_COMMANDS)
        .try_collect()
        .await?;
    json_response(&BulkResponse { tasks, next })
}

fn check_bulk_request(request: &BulkRequest) -> Result<(), ApiError> {
    let wrong =
        |field, detail: String| Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field));
    let limit = request.filter.limit.unwrap_or(BULK_TASKS_MAX);
    if limit == 0 || limit > BULK_TASKS_MAX {
        return wrong("filter.limit", format!("`limit` must be within 1 and {BULK_TASKS_MAX}"));
    }
    if request.tasks.len() > BULK_TASKS_MAX as usize {
        return wrong("tasks", format!("at most {BULK_TASKS_MAX} tasks are named at once; split them"));
    }
    match (request.tasks.is_empty(), request.filter.has_filter()) {
        (true, false) => return wrong("filter", "say which tasks: name them, or give a filter".to_owned()),
        (false, true) => return wrong("filter", "name tasks or give a filter, not both".to_owned()),
        (true, true) | (false, false) => {}
    }
    if let BulkOperation::Reprioritize(priority) = request.act
        && let Err(error) = check_priority(priority)
    {
        return wrong("act", error.to_string());
    }
    check_filter(&request.filter)
}

async fn select_tasks(
    api: &ApiState,
    request: &BulkRequest,
) -> Result<(Vec<SelectedTask>, Option<TaskId>), ApiError> {
    if request.tasks.is_empty() {
        let mut query = request.filter.clone();
        query.limit = Some(query.limit.unwrap_or(BULK_TASKS_MAX));
        let TaskPage { tasks, next, waits: _ } = api.store.list_tasks(query).await?;
        let meant = tasks.into_iter().map(|task| SelectedTask { id: task.id, record: Some(task) });
        return Ok((meant.collect(), next));
    }
    let mut meant = Vec::with_capacity(request.tasks.len());
    for id in &request.tasks {
        meant.push(SelectedTask { id: *id, record: api.store.get_task(*id).await?.map(|(task, _)| task) });
    }
    Ok((meant, None))
}

fn bulk_result(record: &TaskRecord, refused: Option<String>) -> BulkTaskResult {
    BulkTaskResult {
        id: record.id,
        title: record.spec.title.clone(),
        state: Some(record.state),
        blocked_why: record.blocked_why,
        refused,
    }
}

fn missing_task_result(id: TaskId) -> BulkTaskResult {
    let refused = Some("there is no such task".to_owned());
    BulkTaskResult { id, title: String::new(), state: None, blocked_why: None, refused }
}

fn preview_task(task: SelectedTask) -> BulkTaskResult {
    task.record.as_ref().map_or_else(|| missing_task_result(task.id), |record| bulk_result(record, None))
}

fn bulk_decision(act: BulkOperation, by: &str, reason: &str) -> DecideFn {
    match act {
        BulkOperation::Cancel => commands::cancel(by.to_owned(), reason.to_owned()),
        BulkOperation::Retry => commands::retry(by.to_owned(), reason.to_owned(), DependencyRetry::Kept),
        BulkOperation::RetryWithoutDependencies => {
            commands::retry(by.to_owned(), reason.to_owned(), DependencyRetry::Dropped)
        }
        BulkOperation::Pause => commands::pause(by.to_owned()),
        BulkOperation::Unpause => commands::unpause(by.to_owned()),
        BulkOperation::Reprioritize(priority) => commands::reprioritize(priority),
    }
}

/// A task's refusal is its own; only a store that cannot ends the page.
async fn apply_to_task(
    api: &ApiState,
    task: SelectedTask,
    act: BulkOperation,
    by: &str,
    reason: &str,
) -> Result<BulkTaskResult, ApiError> {
    let Some(before) = task.record else { return Ok(missing_task_result(task.id)) };
    let decide = bulk_decision(act, by, reason);
    match api.store.execute_command(task.id, decide, CommandBlobs::default(), api.clock.now()).await {
        Ok((record, run)) => {
            api.wake_waiters(&record);
            if act == BulkOperation::Cancel {
                api.wakeups.notify_lease_lost();
            }
            if matches!(act, BulkOperation::Pause | BulkOperation::Unpause) {
                apply_to_children(api, task.id, || bulk_decision(act, by, reason)).await?;
            }
            // Whoever follows the run, or works at it, learns of what was written to it.
            if let (Some(of), Some(_)) = (before.run.or(record.run), run) {
                api.wakeups.notify_append(of);
            }
            Ok(bulk_result(&record, None))
        }
        Err(CommandError::TaskNotFound(id)) => Ok(missing_task_result(id)),
        Err(error @ (CommandError::Rejected(_) | CommandError::Append(_))) => {
            Ok(bulk_result(&before, Some(ApiError::from(error).into_problem().detail)))
        }
        Err(error @ CommandError::Store(_)) => Err(error.into()),
    }
}
