//! Routes of tasks: submit, list, show, cancel, retry, pause, unpause.

use std::{collections::HashMap, sync::Arc};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        CancelTaskRequest, PATTERN_BYTES_MAX, PauseRequest, ProblemCode, RetryRequest, SUBMIT_TASKS_MAX,
        SubmitRequest, SubmitResponse, SubmittedTask, TaskPage, TaskQuery, TaskView,
    },
    ids::TaskId,
    redact::Redactor,
    task::TaskSpec,
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::commands,
};
use crate::{
    clock,
    decide::DependencyRetry,
    store::{AppendError, CommandBlobs, CommandError, DecideFn, NewTask},
    task_check::{check_and_redact_spec, check_base},
};

/// Default number of tasks per page.
const PAGE_TASKS_DEFAULT: u32 = 100;
/// Maximum number of tasks per page.
const PAGE_TASKS_MAX: u32 = 1000;
/// Maximum length of a reason in bytes, because it is recorded in the log.
const REASON_BYTES_MAX: usize = 4096;

pub(in crate::http) type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn submit_tasks(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let request: SubmitRequest = call.json()?;
    let tasks = check_submit_request(request, &api.redactor)?;
    for (n, task) in tasks.iter().enumerate() {
        check_base(&*api.store, &task.spec)
            .await?
            .map_err(|unsound| unsound.into_error_at(&format!("tasks[{n}]")))?;
    }
    let (any_now, any_later) =
        (tasks.iter().any(|task| task.spec.run_at.is_none()), tasks.iter().any(|t| t.spec.run_at.is_some()));
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let submitted = api.store.submit(tasks, call.caller.log_name(), api.clock.now()).await;
    let submitted = submitted.map_err(|error| submit_error(error, &ids))?;
    if any_now || any_later {
        // A task whose scheduled time has passed is available as well.
        api.wakeups.notify_task_available();
    }
    if any_later {
        api.wakeups.notify_due_sooner();
    }
    let tasks = submitted.into_iter().map(|(id, duplicate)| SubmittedTask { id, duplicate }).collect();
    json_response(&SubmitResponse { tasks })
}

/// Converts the error of a submit; an ID that exists is identified by its place in the request.
fn submit_error(error: AppendError, ids: &[TaskId]) -> ApiError {
    let taken = if let AppendError::TaskIdConflict(taken) = &error { Some(taken.id) } else { None };
    let place = taken.and_then(|taken| ids.iter().position(|id| *id == taken));
    let refusal = ApiError::from(error);
    match place {
        Some(nth) => refusal.with_field(format!("ids[{nth}]")),
        None => refusal,
    }
}

/// Refuses requests in which two tasks have the same ID.
fn check_distinct_ids(ids: &[TaskId], tasks: &[TaskSpec]) -> Result<(), ApiError> {
    let mut places = HashMap::with_capacity(ids.len());
    for (nth, id) in ids.iter().enumerate() {
        let Some(first) = places.insert(*id, nth) else { continue };
        let titles = [first, nth].map(|at| tasks[at].title.chars().take(60).collect::<String>());
        let detail = format!(
            "tasks {first} (`{}`) and {nth} (`{}`) have the same id {id}; give each its own id",
            titles[0], titles[1]
        );
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(format!("ids[{nth}]")));
    }
    Ok(())
}

fn check_submit_request(request: SubmitRequest, redactor: &Redactor) -> Result<Vec<NewTask>, ApiError> {
    let SubmitRequest { tasks, ids } = request;
    let wrong = |detail: String| ApiError::new(ProblemCode::InvalidRequest, detail);
    if tasks.is_empty() {
        return Err(wrong("a submit must have at least one task".to_owned()).with_field("tasks"));
    }
    if tasks.len() > SUBMIT_TASKS_MAX {
        let detail = format!("a submit may have at most {SUBMIT_TASKS_MAX} tasks; split it");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("tasks"));
    }
    let mut sound = Vec::with_capacity(tasks.len());
    for (n, spec) in tasks.into_iter().enumerate() {
        let spec = check_and_redact_spec(spec, redactor)
            .map_err(|unsound| unsound.into_error_at(&format!("tasks[{n}]")))?;
        sound.push(spec);
    }
    let tasks = sound;
    let with = |id: TaskId, spec: TaskSpec| NewTask { id, spec, fork: None };
    match ids {
        None => Ok(tasks.into_iter().map(|spec| with(TaskId(clock::new_id()), spec)).collect()),
        Some(ids) if ids.len() == tasks.len() => {
            check_distinct_ids(&ids, &tasks)?;
            Ok(ids.into_iter().zip(tasks).map(|(i, s)| with(i, s)).collect())
        }
        Some(ids) => {
            Err(wrong(format!("{} ids for {} tasks; give one for each, or none", ids.len(), tasks.len()))
                .with_field("ids"))
        }
    }
}

pub(in crate::http) async fn list_tasks(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let mut query: TaskQuery = call.query()?;
    let limit = query.limit.unwrap_or(PAGE_TASKS_DEFAULT);
    if limit == 0 || limit > PAGE_TASKS_MAX {
        let detail = format!("`limit` must be within 1 and {PAGE_TASKS_MAX}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("limit"));
    }
    query.limit = Some(limit);
    check_filter(&query)?;
    let mut page: TaskPage = api.store.list_tasks(query).await?;
    let now = api.clock.now();
    page.waits =
        page.tasks.iter().filter_map(|task| api.provider_limits.waiters().find_wait(task, now)).collect();
    json_response(&page)
}

/// Refuses unreasonably long patterns.
pub(in crate::http) fn check_filter(query: &TaskQuery) -> Result<(), ApiError> {
    match query.overlong_pattern() {
        None => Ok(()),
        Some(field) => {
            let detail = format!("a pattern may have at most {PATTERN_BYTES_MAX} bytes");
            Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field))
        }
    }
}

pub(in crate::http) async fn show_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let Some((task, lease_expires_at)) = api.store.get_task(id).await? else {
        return Err(ApiError::new(ProblemCode::NotFound, format!("there is no task {id}")));
    };
    let runs = api.store.list_task_runs(id).await?;
    let waits = api.provider_limits.waiters().find_wait(&task, api.clock.now());
    json_response(&TaskView { task, runs, lease_expires_at, waits })
}

pub(in crate::http) async fn cancel_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let reason = read_reason(&api, &call)?;
    let decide = commands::cancel(call.caller.log_name(), reason);
    let (record, run) =
        api.store.execute_command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.wake_waiters(&record);
    // The worker that holds the task learns of this in its next heartbeat.
    api.wakeups.notify_lease_lost();
    if let (Some(run), Some(_)) = (record.last_run, run) {
        api.wakeups.notify_append(run);
    }
    json_response(&record)
}

pub(in crate::http) async fn retry_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let RetryRequest { reason, without_dependencies } = call.json()?;
    let reason = check_reason(&api, &reason)?;
    let dependencies = if without_dependencies { DependencyRetry::Dropped } else { DependencyRetry::Kept };
    let before = api.store.get_task(id).await?.and_then(|(record, _)| record.run);
    let decide = commands::retry(call.caller.log_name(), reason, dependencies);
    let (record, run) =
        api.store.execute_command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.wake_waiters(&record);
    if let (Some(ended), Some(_)) = (before, run) {
        api.wakeups.notify_append(ended);
    }
    json_response(&record)
}

pub(in crate::http) async fn pause_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let PauseRequest {} = call.json()?;
    let by = call.caller.log_name();
    let answered =
        execute_task_command(&api, &call, commands::pause(by.clone()), CommandBlobs::default()).await?;
    apply_to_children(&api, call.id()?, || commands::pause(by.clone())).await?;
    Ok(answered)
}

pub(in crate::http) async fn unpause_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let PauseRequest {} = call.json()?;
    let by = call.caller.log_name();
    let answered =
        execute_task_command(&api, &call, commands::unpause(by.clone()), CommandBlobs::default()).await?;
    apply_to_children(&api, call.id()?, || commands::unpause(by.clone())).await?;
    Ok(answered)
}

/// Applies the same command to the children that the task's run waits for, recursively. Children
/// that cannot change (ended, or waiting for something else) are skipped; the request can be
/// repeated.
pub(in crate::http) async fn apply_to_children(
    api: &ApiState,
    parent: TaskId,
    decide: impl Fn() -> DecideFn,
) -> Result<(), ApiError> {
    let mut parents = vec![parent];
    while let Some(parent) = parents.pop() {
        let Some((record, _)) = api.store.get_task(parent).await? else { continue };
        for child in record.waits_for {
            let Some((below, _)) = api.store.get_task(child).await? else { continue };
            if below.delegated_by.is_none_or(|by| by.task != parent) {
                continue;
            }
            match api.store.execute_command(child, decide(), CommandBlobs::default(), api.clock.now()).await {
                Ok((record, _)) => {
                    api.wake_waiters(&record);
                    record.run.into_iter().for_each(|run| api.wakeups.notify_append(run));
                }
                Err(CommandError::Rejected(_)) => {}
                Err(error) => return Err(error.into()),
            }
            parents.push(child);
        }
    }
    Ok(())
}

/// Runs a command on the task of the request and wakes the followers of its run.
pub(in crate::http) async fn execute_task_command(
    api: &ApiState,
    call: &ApiRequest,
    decide: DecideFn,
    blobs: CommandBlobs,
) -> HandlerResult {
    let id: TaskId = call.id()?;
    let (record, run) = api.store.execute_command(id, decide, blobs, api.clock.now()).await?;
    api.wake_waiters(&record);
    if let (Some(of), Some(_)) = (record.run, run) {
        api.wakeups.notify_append(of);
    }
    json_response(&record)
}

fn read_reason(api: &ApiState, call: &ApiRequest) -> Result<String, ApiError> {
    let CancelTaskRequest { reason } = call.json()?;
    check_reason(api, &reason)
}

/// Checks and redacts a reason for the log.
pub(in crate::http) fn check_reason(api: &ApiState, reason: &str) -> Result<String, ApiError> {
    if reason.len() > REASON_BYTES_MAX {
        let detail = format!("`reason` may have at most {REASON_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("reason"));
    }
    Ok(api.redactor.redact_text(reason).into_owned())
}
