//! The route that applies one operation to many tasks.
//!
//! Each task gets its own command, so its events are in its own stream. The store commits waiting
//! commands together, and no transaction is larger than for a single task. Sending a page again has
//! no further effect.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{BULK_TASKS_MAX, BulkOperation, BulkRequest, BulkResponse, BulkTaskResult, ProblemCode, TaskPage},
    ids::TaskId,
    task::{TaskRecord, check_priority},
};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::submissions::{apply_to_children, check_filter, check_reason};
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::commands,
};
use crate::{
    decide::DependencyRetry,
    store::{CommandBlobs, CommandError, DecideFn},
};

/// Concurrent commands per request: enough to share commits, few enough to leave room for others.
const CONCURRENT_COMMANDS: usize = 64;

/// A selected task, as found by a filter or named by ID.
struct SelectedTask {
    id: TaskId,
    record: Option<TaskRecord>,
}

pub(in crate::http) async fn run_bulk_act(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
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
        (true, false) => return wrong("filter", "select tasks by id or by a filter".to_owned()),
        (false, true) => return wrong("filter", "select tasks by id or by a filter, not both".to_owned()),
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
    let refused = Some("no such task".to_owned());
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

/// Applies the operation to a task. A refusal affects only that task; only a store failure ends the
/// page.
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
            // Wakes followers of the run and the worker that executes it.
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
