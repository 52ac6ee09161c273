//! Routes of tasks: submit, list, show, cancel, retry, pause, unpause.

use std::{collections::HashMap, sync::Arc};

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::TaskId,
    redact::Redactor,
    task::TaskSpec,
    wire::{
        ActRequest, PATTERN_BYTES_MAX, PauseRequest, ProblemCode, RetryRequest, SUBMIT_TASKS_MAX,
        SubmitRequest, SubmitResponse, Submitted, TaskPage, TaskQuery, TaskView,
    },
};

use super::{
    api::Api,
    call::{Call, json},
    commands,
    errors::Refusal,
};
use crate::{
    clock,
    decide::Dependencies,
    store::{AppendError, CommandBlobs, CommandError, Decide, NewTask},
    task_check::{check_base, checked_spec},
};

/// Tasks of a page where the query does not say.
const PAGE_TASKS: u32 = 100;
/// Most tasks of a page.
const PAGE_TASKS_MAX: u32 = 1000;
/// Longest reason of an act, in bytes: it stands in the log.
const REASON_BYTES_MAX: usize = 4096;

pub(super) type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn submit(api: Arc<Api>, call: Call) -> Answered {
    let request: SubmitRequest = call.json()?;
    let tasks = checked(request, &api.redactor)?;
    for (n, task) in tasks.iter().enumerate() {
        check_base(&*api.store, &task.spec).await?.map_err(|unsound| unsound.at(&format!("tasks[{n}]")))?;
    }
    let (any_now, any_later) =
        (tasks.iter().any(|task| task.spec.run_at.is_none()), tasks.iter().any(|t| t.spec.run_at.is_some()));
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let submitted = api.store.submit(tasks, call.caller.name(), api.clock.now()).await;
    let submitted = submitted.map_err(|error| refused_submit(error, &ids))?;
    if any_now || any_later {
        // One whose time has passed already is available as well.
        api.wakes.work();
    }
    if any_later {
        api.wakes.due();
    }
    let tasks = submitted.into_iter().map(|(id, duplicate)| Submitted { id, duplicate }).collect();
    json(&SubmitResponse { tasks })
}

/// The refusal of a whole submit; an id that is taken is named by its place.
fn refused_submit(error: AppendError, ids: &[TaskId]) -> Refusal {
    let taken = if let AppendError::IdTaken(taken) = &error { Some(taken.id) } else { None };
    let place = taken.and_then(|taken| ids.iter().position(|id| *id == taken));
    let refusal = Refusal::from(error);
    match place {
        Some(nth) => refusal.field(format!("ids[{nth}]")),
        None => refusal,
    }
}

/// Refuses an id that two tasks of a request have.
fn check_distinct(ids: &[TaskId], tasks: &[TaskSpec]) -> Result<(), Refusal> {
    let mut places = HashMap::with_capacity(ids.len());
    for (nth, id) in ids.iter().enumerate() {
        let Some(first) = places.insert(*id, nth) else { continue };
        let titles = [first, nth].map(|at| tasks[at].title.chars().take(60).collect::<String>());
        let detail = format!(
            "tasks {first} (`{}`) and {nth} (`{}`) have the same id {id}; give each an id of its own",
            titles[0], titles[1]
        );
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(format!("ids[{nth}]")));
    }
    Ok(())
}

fn checked(request: SubmitRequest, redactor: &Redactor) -> Result<Vec<NewTask>, Refusal> {
    let SubmitRequest { tasks, ids } = request;
    let wrong = |detail: String| Refusal::new(ProblemCode::InvalidRequest, detail);
    if tasks.is_empty() {
        return Err(wrong("a submit holds at least one task".to_owned()).field("tasks"));
    }
    if tasks.len() > SUBMIT_TASKS_MAX {
        let detail = format!("a submit holds at most {SUBMIT_TASKS_MAX} tasks; split it");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("tasks"));
    }
    let mut sound = Vec::with_capacity(tasks.len());
    for (n, spec) in tasks.into_iter().enumerate() {
        let spec = checked_spec(spec, redactor).map_err(|unsound| unsound.at(&format!("tasks[{n}]")))?;
        sound.push(spec);
    }
    let tasks = sound;
    let with = |id: TaskId, spec: TaskSpec| NewTask { id, spec, fork: None };
    match ids {
        None => Ok(tasks.into_iter().map(|spec| with(TaskId(clock::new_id()), spec)).collect()),
        Some(ids) if ids.len() == tasks.len() => {
            check_distinct(&ids, &tasks)?;
            Ok(ids.into_iter().zip(tasks).map(|(i, s)| with(i, s)).collect())
        }
        Some(ids) => {
            Err(wrong(format!("{} ids for {} tasks; give one each, or none", ids.len(), tasks.len()))
                .field("ids"))
        }
    }
}

pub(super) async fn list(api: Arc<Api>, call: Call) -> Answered {
    let mut query: TaskQuery = call.query()?;
    let limit = query.limit.unwrap_or(PAGE_TASKS);
    if limit == 0 || limit > PAGE_TASKS_MAX {
        let detail = format!("`limit` must be within 1 and {PAGE_TASKS_MAX}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("limit"));
    }
    query.limit = Some(limit);
    checked_filter(&query)?;
    let mut page: TaskPage = api.store.tasks(query).await?;
    let now = api.clock.now();
    page.waits = page.tasks.iter().filter_map(|task| api.model_limits.waiters().wait_of(task, now)).collect();
    json(&page)
}

/// Refuses patterns that are no person's.
pub(super) fn checked_filter(query: &TaskQuery) -> Result<(), Refusal> {
    match query.too_long() {
        None => Ok(()),
        Some(field) => {
            let detail = format!("a pattern may have at most {PATTERN_BYTES_MAX} bytes");
            Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field))
        }
    }
}

pub(super) async fn show(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let Some((task, lease_expires_at)) = api.store.task(id).await? else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no task {id}")));
    };
    let runs = api.store.runs_of(id).await?;
    let waits = api.model_limits.waiters().wait_of(&task, api.clock.now());
    json(&TaskView { task, runs, lease_expires_at, waits })
}

pub(super) async fn cancel(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let reason = reason(&api, &call)?;
    let decide = commands::cancel(call.caller.name(), reason);
    let (record, run) = api.store.command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.announce(&record);
    // The worker that has it, if one has, learns it by its heartbeat's answer.
    api.wakes.leases();
    if let (Some(run), Some(_)) = (record.last_run, run) {
        api.wakes.appended(run);
    }
    json(&record)
}

pub(super) async fn retry(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let RetryRequest { reason, without_dependencies } = call.json()?;
    let reason = for_the_log(&api, &reason)?;
    let dependencies = if without_dependencies { Dependencies::Dropped } else { Dependencies::Kept };
    let before = api.store.task(id).await?.and_then(|(record, _)| record.run);
    let decide = commands::retry(call.caller.name(), reason, dependencies);
    let (record, run) = api.store.command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.announce(&record);
    if let (Some(ended), Some(_)) = (before, run) {
        api.wakes.appended(ended);
    }
    json(&record)
}

pub(super) async fn pause(api: Arc<Api>, call: Call) -> Answered {
    let PauseRequest {} = call.json()?;
    let by = call.caller.name();
    let answered = tell_run(&api, &call, commands::pause(by.clone()), CommandBlobs::default()).await?;
    reach_children(&api, call.id()?, || commands::pause(by.clone())).await?;
    Ok(answered)
}

pub(super) async fn unpause(api: Arc<Api>, call: Call) -> Answered {
    let PauseRequest {} = call.json()?;
    let by = call.caller.name();
    let answered = tell_run(&api, &call, commands::unpause(by.clone()), CommandBlobs::default()).await?;
    reach_children(&api, call.id()?, || commands::unpause(by.clone())).await?;
    Ok(answered)
}

/// Does the same to what the task's run gave away and waits for, and to what that gave away. What cannot be done to one
/// of them (it has ended, or rests for something else) is left; the whole can be asked for again.
pub(super) async fn reach_children(
    api: &Api,
    parent: TaskId,
    decide: impl Fn() -> Decide,
) -> Result<(), Refusal> {
    let mut parents = vec![parent];
    while let Some(parent) = parents.pop() {
        let Some((record, _)) = api.store.task(parent).await? else { continue };
        for child in record.waits_for {
            let Some((below, _)) = api.store.task(child).await? else { continue };
            if below.delegated_by.is_none_or(|by| by.task != parent) {
                continue;
            }
            match api.store.command(child, decide(), CommandBlobs::default(), api.clock.now()).await {
                Ok((record, _)) => {
                    api.announce(&record);
                    record.run.into_iter().for_each(|run| api.wakes.appended(run));
                }
                Err(CommandError::Rejected(_)) => {}
                Err(error) => return Err(error.into()),
            }
            parents.push(child);
        }
    }
    Ok(())
}

/// Runs a command on the call's task and wakes those who follow its run.
pub(super) async fn tell_run(api: &Api, call: &Call, decide: Decide, blobs: CommandBlobs) -> Answered {
    let id: TaskId = call.id()?;
    let (record, run) = api.store.command(id, decide, blobs, api.clock.now()).await?;
    api.announce(&record);
    if let (Some(of), Some(_)) = (record.run, run) {
        api.wakes.appended(of);
    }
    json(&record)
}

fn reason(api: &Api, call: &Call) -> Result<String, Refusal> {
    let ActRequest { reason } = call.json()?;
    for_the_log(api, &reason)
}

/// A reason as it may stand in the log.
pub(super) fn for_the_log(api: &Api, reason: &str) -> Result<String, Refusal> {
    if reason.len() > REASON_BYTES_MAX {
        let detail = format!("`reason` may have at most {REASON_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("reason"));
    }
    Ok(api.redactor.text(reason).into_owned())
}
