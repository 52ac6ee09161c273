//! Routes of schedules: set, list, show, pause, unpause, remove, run now.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, TaskId},
    system::{
        Fired, SCHEDULES_MAX, ScheduleFired, ScheduleName, SchedulePaused, ScheduleRecord, ScheduleRemoved,
        ScheduleSet, Schedules,
    },
    task::{TaskEvent, TaskSpec},
    wire::{
        ProblemCode, RunScheduleRequest, ScheduleActRequest, ScheduleList, ScheduleView, SetScheduleRequest,
    },
};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    decide::Timetable,
    system::{next_of, submitter},
    task_check::{check_base, checked_spec},
};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    api.schedules.fold.catch_up(&*api.store).await?;
    let views = |known: &Schedules| known.all().map(|record| view(&api, record)).collect();
    json(&ScheduleList { schedules: api.schedules.fold.with(views) })
}

pub(super) async fn show(api: Arc<Api>, call: Call) -> Answered {
    let name: ScheduleName = call.id()?;
    api.schedules.fold.catch_up(&*api.store).await?;
    json(&api.schedules.fold.with(|known| existing(known, &name).map(|record| view(&api, record)))?)
}

pub(super) async fn set(api: Arc<Api>, call: Call) -> Answered {
    let name: ScheduleName = call.id()?;
    let SetScheduleRequest { mut schedule, replace } = call.json()?;
    let wrong = |field: &str, detail: String| {
        Refusal::new(ProblemCode::InvalidRequest, detail).field(format!("schedule.{field}"))
    };
    let timetable =
        Timetable::new(&schedule.cron, &schedule.tz).map_err(|error| wrong(error.field, error.detail))?;
    if timetable.next(api.clock.now()).is_none() {
        return Err(wrong("cron", format!("the times of `{}` never come", schedule.cron)));
    }
    if let Some((field, why)) = misfit(&schedule.spec) {
        return Err(wrong(&format!("spec.{field}"), format!("a schedule's task has no `{field}`: {why}")));
    }
    schedule.spec =
        Box::new(checked_spec(*schedule.spec, &api.redactor).map_err(|unsound| unsound.at("schedule.spec"))?);
    let checked = check_base(&*api.store, &schedule.spec).await?;
    checked.map_err(|unsound| unsound.at("schedule.spec"))?;
    let set = ScheduleSet { name: name.clone(), schedule, by: call.caller.name() };
    let decide = |known: &Schedules| match known.get(&name) {
        // Sent again.
        Some(record) if record.set == set => Ok(None),
        Some(_) if !replace => {
            let detail =
                format!("there is a schedule `{name}`; say that this one takes its place, or remove it");
            Err(Refusal::new(ProblemCode::WrongState, detail).field("replace"))
        }
        None if known.all().count() >= SCHEDULES_MAX => {
            let detail = format!("there are {SCHEDULES_MAX} schedules; remove some");
            Err(Refusal::new(ProblemCode::TooLarge, detail))
        }
        Some(_) | None => Ok(Some(set.clone().into())),
    };
    let known = api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    api.wakes.schedules();
    json(&view(&api, existing(&known, &name)?))
}

/// What a task that comes again and again cannot say.
fn misfit(spec: &TaskSpec) -> Option<(&'static str, &'static str)> {
    if spec.run_at.is_some() {
        return Some(("run_at", "the schedule says when"));
    }
    if spec.dedup_key.is_some() {
        return Some(("dedup_key", "`overlap` says whether one may come while another has not ended"));
    }
    (!spec.conditions.after.is_empty()).then_some(("conditions.after", "each would wait for the same task"))
}

pub(super) async fn pause(api: Arc<Api>, call: Call) -> Answered {
    rest(&api, &call, true).await
}

pub(super) async fn unpause(api: Arc<Api>, call: Call) -> Answered {
    rest(&api, &call, false).await
}

async fn rest(api: &Api, call: &Call, paused: bool) -> Answered {
    let name: ScheduleName = call.id()?;
    let ScheduleActRequest {} = call.json()?;
    let decide = |known: &Schedules| {
        let event = SchedulePaused { name: name.clone(), paused, by: call.caller.name() };
        Ok::<_, Refusal>((existing(known, &name)?.paused != paused).then(|| event.into()))
    };
    let known = api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    api.wakes.schedules();
    json(&view(api, existing(&known, &name)?))
}

pub(super) async fn remove(api: Arc<Api>, call: Call) -> Answered {
    let name: ScheduleName = call.id()?;
    let request: ScheduleActRequest = call.json()?;
    let decide = |known: &Schedules| {
        existing(known, &name)?;
        let event = ScheduleRemoved { name: name.clone(), by: call.caller.name() };
        Ok::<_, Refusal>(Some(event.into()))
    };
    api.schedules.change(&*api.store, api.clock.now(), decide).await?;
    json(&request)
}

pub(super) async fn run(api: Arc<Api>, call: Call) -> Answered {
    let name: ScheduleName = call.id()?;
    let RunScheduleRequest { task } = call.json()?;
    let now = api.clock.now();
    let is_there = is_own_task(&api, &name, task).await?;
    let decide = |known: &Schedules| {
        let record = existing(known, &name)?;
        let by = Some(call.caller.name());
        let fired = ScheduleFired { name: name.clone(), at: now, gave: Fired::Task(task), by };
        // Sent again.
        let again = record.task == Some(task) || is_there;
        Ok::<_, Refusal>((!again).then(|| fired.into()))
    };
    let known = api.schedules.change(&*api.store, now, decide).await?;
    let record = existing(&known, &name)?;
    if let Some(ScheduleFired { gave: Fired::Refused(why), .. }) = &record.fired {
        return Err(Refusal::new(ProblemCode::WrongState, format!("the task is refused: {why}")));
    }
    api.wakes.work();
    json(&view(&api, record))
}

/// Whether the task exists already as one of the schedule's.
///
/// # Errors
/// Its id is another task's.
async fn is_own_task(api: &Api, name: &ScheduleName, task: TaskId) -> Result<bool, Refusal> {
    let events = api.store.read(StreamId::Task(task), Seq(0), 1).await?;
    let Some(first) = events.first() else { return Ok(false) };
    let decoded = TaskEvent::decode(&first.kind, first.version, first.payload.as_str());
    let Ok(TaskEvent::TaskSubmitted(submitted)) = decoded else {
        tracing::error!(%task, "a task's stream does not begin with its submission");
        return Err(Refusal::new(ProblemCode::Corrupt, "the task's log cannot be read; run `docket verify`"));
    };
    if submitted.by == submitter(name) {
        return Ok(true);
    }
    let detail = format!(
        "task {task} exists already and is not of schedule `{name}`: it is `{}`, submitted by {}; choose another id",
        submitted.spec.title, submitted.by
    );
    Err(Refusal::new(ProblemCode::IdTaken, detail).field("task"))
}

fn existing<'a>(known: &'a Schedules, name: &ScheduleName) -> Result<&'a ScheduleRecord, Refusal> {
    known.get(name).ok_or_else(|| {
        let detail = format!("there is no schedule `{name}`; `docket schedule list` shows them");
        Refusal::new(ProblemCode::NotFound, detail).field("path")
    })
}

fn view(api: &Api, record: &ScheduleRecord) -> ScheduleView {
    ScheduleView {
        name: record.set.name.clone(),
        schedule: record.set.schedule.clone(),
        by: record.set.by.clone(),
        set_at: record.set_at,
        paused: record.paused,
        next_at: next_of(record, api.clock.now()),
        fired: record.fired.clone(),
        task: record.task,
    }
}
