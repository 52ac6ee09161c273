//! Routes of schedules: set, list, show, pause, unpause, remove, run now.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        ProblemCode, RunScheduleRequest, ScheduleActRequest, ScheduleList, ScheduleView, SetScheduleRequest,
    },
    event::TypedEvent as _,
    ids::{Seq, StreamId, TaskId},
    system::{
        FiringResult, SCHEDULES_MAX, ScheduleFired, ScheduleName, SchedulePaused, ScheduleRecord,
        ScheduleRemoved, ScheduleSet, SchedulesFold,
    },
    task::{TaskEvent, TaskSpec},
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};
use crate::{
    decide::CronTimetable,
    system::{next_firing, schedule_submitter},
    task_check::{check_and_redact_spec, check_base},
};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn list_schedules(api: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    api.schedules.fold.catch_up(&*api.store).await?;
    let views = |known: &SchedulesFold| known.all().map(|record| schedule_view(&api, record)).collect();
    json_response(&ScheduleList { schedules: api.schedules.fold.with_fold(views) })
}

pub(in crate::http) async fn show_schedule(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: ScheduleName = call.id()?;
    api.schedules.fold.catch_up(&*api.store).await?;
    json_response(
        &api.schedules
            .fold
            .with_fold(|known| require_schedule(known, &name).map(|record| schedule_view(&api, record)))?,
    )
}

pub(in crate::http) async fn set_schedule(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: ScheduleName = call.id()?;
    let SetScheduleRequest { mut schedule, replace } = call.json()?;
    let wrong = |field: &str, detail: String| {
        ApiError::new(ProblemCode::InvalidRequest, detail).with_field(format!("schedule.{field}"))
    };
    let timetable =
        CronTimetable::new(&schedule.cron, &schedule.tz).map_err(|error| wrong(error.field, error.detail))?;
    if timetable.next_after(api.clock.now()).is_none() {
        return Err(wrong("cron", format!("`{}` never fires", schedule.cron)));
    }
    if let Some((field, why)) = unsupported_field(&schedule.spec) {
        return Err(wrong(
            &format!("spec.{field}"),
            format!("a schedule's task cannot have `{field}`: {why}"),
        ));
    }
    schedule.spec = Box::new(
        check_and_redact_spec(*schedule.spec, &api.redactor)
            .map_err(|unsound| unsound.into_error_at("schedule.spec"))?,
    );
    let checked = check_base(&*api.store, &schedule.spec).await?;
    checked.map_err(|unsound| unsound.into_error_at("schedule.spec"))?;
    let set = ScheduleSet { name: name.clone(), schedule, by: call.caller.log_name() };
    let decide = |known: &SchedulesFold| match known.get(&name) {
        // A repeated request.
        Some(record) if record.set == set => Ok(None),
        Some(_) if !replace => {
            let detail = format!("schedule `{name}` already exists; replace it explicitly, or remove it");
            Err(ApiError::new(ProblemCode::WrongState, detail).with_field("replace"))
        }
        None if known.all().count() >= SCHEDULES_MAX => {
            let detail = format!("there are already {SCHEDULES_MAX} schedules; remove some");
            Err(ApiError::new(ProblemCode::TooLarge, detail))
        }
        Some(_) | None => Ok(Some(set.clone().into())),
    };
    let known = api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    api.wakeups.notify_schedules();
    json_response(&schedule_view(&api, require_schedule(&known, &name)?))
}

/// Returns a field that a recurring task cannot have, with the reason.
fn unsupported_field(spec: &TaskSpec) -> Option<(&'static str, &'static str)> {
    if spec.run_at.is_some() {
        return Some(("run_at", "the schedule sets the time"));
    }
    if spec.dedup_key.is_some() {
        return Some(("dedup_key", "`overlap` controls whether tasks may overlap"));
    }
    (!spec.conditions.after.is_empty())
        .then_some(("conditions.after", "every task would wait for the same one"))
}

pub(in crate::http) async fn pause_schedule(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    set_schedule_paused(&api, &call, true).await
}

pub(in crate::http) async fn unpause_schedule(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    set_schedule_paused(&api, &call, false).await
}

async fn set_schedule_paused(api: &ApiState, call: &ApiRequest, paused: bool) -> HandlerResult {
    let name: ScheduleName = call.id()?;
    let ScheduleActRequest {} = call.json()?;
    let decide = |known: &SchedulesFold| {
        let event = SchedulePaused { name: name.clone(), paused, by: call.caller.log_name() };
        Ok::<_, ApiError>((require_schedule(known, &name)?.paused != paused).then(|| event.into()))
    };
    let known = api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    api.wakeups.notify_schedules();
    json_response(&schedule_view(api, require_schedule(&known, &name)?))
}

pub(in crate::http) async fn remove_schedule(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: ScheduleName = call.id()?;
    let request: ScheduleActRequest = call.json()?;
    let decide = |known: &SchedulesFold| {
        require_schedule(known, &name)?;
        let event = ScheduleRemoved { name: name.clone(), by: call.caller.log_name() };
        Ok::<_, ApiError>(Some(event.into()))
    };
    api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    json_response(&request)
}

pub(in crate::http) async fn run_schedule_now(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: ScheduleName = call.id()?;
    let RunScheduleRequest { task } = call.json()?;
    let now = api.clock.now();
    let is_there = is_own_task(&api, &name, task).await?;
    let decide = |known: &SchedulesFold| {
        let record = require_schedule(known, &name)?;
        let by = Some(call.caller.log_name());
        let fired = ScheduleFired { name: name.clone(), at: now, gave: FiringResult::Task(task), by };
        // A repeated request.
        let again = record.last_task == Some(task) || is_there;
        Ok::<_, ApiError>((!again).then(|| fired.into()))
    };
    let known = api.schedules.change(&*api.store, now, decide).await?;
    let record = require_schedule(&known, &name)?;
    if let Some(ScheduleFired { gave: FiringResult::Refused(why), .. }) = &record.last_firing {
        return Err(ApiError::new(ProblemCode::WrongState, format!("the task is refused: {why}")));
    }
    api.wakeups.notify_task_available();
    json_response(&schedule_view(&api, record))
}

/// Whether the task already exists as one of the schedule's.
///
/// # Errors
/// The ID belongs to another task.
async fn is_own_task(api: &ApiState, name: &ScheduleName, task: TaskId) -> Result<bool, ApiError> {
    let events = api.store.read_events(StreamId::Task(task), Seq(0), 1).await?;
    let Some(first) = events.first() else { return Ok(false) };
    let decoded = TaskEvent::decode(&first.kind, first.version, first.payload.as_str());
    let Ok(TaskEvent::TaskSubmitted(submitted)) = decoded else {
        tracing::error!(%task, "a task's stream does not begin with its submission");
        return Err(ApiError::new(ProblemCode::Corrupt, "cannot read the task's log; run `docket verify`"));
    };
    if submitted.by == schedule_submitter(name) {
        return Ok(true);
    }
    let detail = format!(
        "task {task} already exists and does not belong to schedule `{name}`: it is `{}`, submitted by {}; choose another id",
        submitted.spec.title, submitted.by
    );
    Err(ApiError::new(ProblemCode::IdTaken, detail).with_field("task"))
}

fn require_schedule<'a>(
    known: &'a SchedulesFold,
    name: &ScheduleName,
) -> Result<&'a ScheduleRecord, ApiError> {
    known.get(name).ok_or_else(|| {
        let detail = format!("there is no schedule `{name}`; see `docket schedule list`");
        ApiError::new(ProblemCode::NotFound, detail).with_field("path")
    })
}

fn schedule_view(api: &ApiState, record: &ScheduleRecord) -> ScheduleView {
    ScheduleView {
        name: record.set.name.clone(),
        schedule: record.set.schedule.clone(),
        by: record.set.by.clone(),
        set_at: record.set_at,
        paused: record.paused,
        next_at: next_firing(record, api.clock.now()),
        fired: record.last_firing.clone(),
        task: record.last_task,
    }
}
