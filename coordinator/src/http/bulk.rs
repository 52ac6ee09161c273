//! The route that does one thing to many tasks.
//!
//! Each task's part is a command of its own: its events stand in its stream, the store commits those that
//! wait together, and no transaction holds more than it would for one. A page that is sent again finds done
//! what was done.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::TaskId,
    task::{TaskRecord, check_priority},
    wire::{BULK_TASKS_MAX, BulkAct, BulkDone, BulkRequest, BulkResponse, ProblemCode, TaskPage},
};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::{
    api::Api,
    call::{Call, json},
    commands,
    errors::Refusal,
    tasks::{checked_filter, for_the_log, reach_children},
};
use crate::{
    decide::Dependencies,
    store::{CommandBlobs, CommandError, Decide},
};

/// Commands of one request that wait at once: enough to share commits, few enough to leave room for others.
const AT_ONCE: usize = 64;

/// A task that is meant: as it was found, or by its name alone.
struct Meant {
    id: TaskId,
    found: Option<TaskRecord>,
}

pub(super) async fn bulk(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let request: BulkRequest = call.json()?;
    check(&request)?;
    let reason = for_the_log(&api, &request.reason)?;
    let by = call.caller.name();
    let (meant, next) = meant(&api, &request).await?;
    let act = request.act;
    let (api, reason, by) = (&api, &reason, &by);
    let tasks = futures_util::stream::iter(meant)
        .map(|task| async move {
            if request.dry_run { Ok(looked_at(task)) } else { done(api, task, act, by, reason).await }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    json(&BulkResponse { tasks, next })
}

fn check(request: &BulkRequest) -> Result<(), Refusal> {
    let wrong = |field, detail: String| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field));
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
    if let BulkAct::Reprioritize(priority) = request.act
        && let Err(error) = check_priority(priority)
    {
        return wrong("act", error.to_string());
    }
    checked_filter(&request.filter)
}

async fn meant(api: &Api, request: &BulkRequest) -> Result<(Vec<Meant>, Option<TaskId>), Refusal> {
    if request.tasks.is_empty() {
        let mut query = request.filter.clone();
        query.limit = Some(query.limit.unwrap_or(BULK_TASKS_MAX));
        let TaskPage { tasks, next, waits: _ } = api.store.tasks(query).await?;
        let meant = tasks.into_iter().map(|task| Meant { id: task.id, found: Some(task) });
        return Ok((meant.collect(), next));
    }
    let mut meant = Vec::with_capacity(request.tasks.len());
    for id in &request.tasks {
        meant.push(Meant { id: *id, found: api.store.task(*id).await?.map(|(task, _)| task) });
    }
    Ok((meant, None))
}

fn shown(record: &TaskRecord, refused: Option<String>) -> BulkDone {
    BulkDone {
        id: record.id,
        title: record.spec.title.clone(),
        state: Some(record.state),
        blocked_why: record.blocked_why,
        refused,
    }
}

fn nobody(id: TaskId) -> BulkDone {
    let refused = Some("there is no such task".to_owned());
    BulkDone { id, title: String::new(), state: None, blocked_why: None, refused }
}

fn looked_at(task: Meant) -> BulkDone {
    task.found.as_ref().map_or_else(|| nobody(task.id), |record| shown(record, None))
}

fn decision(act: BulkAct, by: &str, reason: &str) -> Decide {
    match act {
        BulkAct::Cancel => commands::cancel(by.to_owned(), reason.to_owned()),
        BulkAct::Retry => commands::retry(by.to_owned(), reason.to_owned(), Dependencies::Kept),
        BulkAct::RetryWithoutDependencies => {
            commands::retry(by.to_owned(), reason.to_owned(), Dependencies::Dropped)
        }
        BulkAct::Pause => commands::pause(by.to_owned()),
        BulkAct::Unpause => commands::unpause(by.to_owned()),
        BulkAct::Reprioritize(priority) => commands::reprioritize(priority),
    }
}

/// A task's refusal is its own; only a store that cannot ends the page.
async fn done(api: &Api, task: Meant, act: BulkAct, by: &str, reason: &str) -> Result<BulkDone, Refusal> {
    let Some(before) = task.found else { return Ok(nobody(task.id)) };
    let decide = decision(act, by, reason);
    match api.store.command(task.id, decide, CommandBlobs::default(), api.clock.now()).await {
        Ok((record, run)) => {
            api.announce(&record);
            if act == BulkAct::Cancel {
                api.wakes.leases();
            }
            if matches!(act, BulkAct::Pause | BulkAct::Unpause) {
                reach_children(api, task.id, || decision(act, by, reason)).await?;
            }
            // Whoever follows the run, or works at it, learns of what was written to it.
            if let (Some(of), Some(_)) = (before.run.or(record.run), run) {
                api.wakes.appended(of);
            }
            Ok(shown(&record, None))
        }
        Err(CommandError::NoTask(id)) => Ok(nobody(id)),
        Err(error @ (CommandError::Rejected(_) | CommandError::Append(_))) => {
            Ok(shown(&before, Some(Refusal::from(error).into_problem().detail)))
        }
        Err(error @ CommandError::Store(_)) => Err(error.into()),
    }
}
