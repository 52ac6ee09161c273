//! Routes of notifications: who is told, what became of it; once more; no more; for a try.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::NotificationId,
    system::{
        AdminAct, DeliveryRecord, Notice, NotificationDropped, NotificationRaised, NotificationRecord,
        NotificationRetried, Notifications, SystemEvent, Telling,
    },
    wire::{
        DeliveryState, DropNotificationRequest, NOTIFICATIONS_LISTED, NOTIFICATIONS_MAX, NotificationList,
        NotificationQuery, NotificationView, ProblemCode, RetryNotificationRequest, TargetView,
        TestNotificationRequest,
    },
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::clock;

type Answered = Result<Response<Body>, Refusal>;

/// Who is told, by this coordinator's settings.
fn targets(api: &Api) -> Vec<TargetView> {
    let targets = api.notifier.as_ref().map(|notifier| notifier.targets()).unwrap_or_default();
    targets.iter().map(|target| target.view.clone()).collect()
}

fn is_in(record: &NotificationRecord, state: DeliveryState) -> bool {
    record.deliveries.iter().any(|delivery| match delivery.telling {
        Telling::Due(_) => state == DeliveryState::Waiting,
        Telling::Delivered => state == DeliveryState::Delivered,
        Telling::Dead => state == DeliveryState::Dead,
        Telling::Dropped => state == DeliveryState::Dropped,
    })
}

pub(super) async fn list(api: Arc<Api>, call: Call) -> Answered {
    let NotificationQuery { state, limit } = call.query()?;
    let limit = limit.unwrap_or(NOTIFICATIONS_LISTED);
    if !(1..=NOTIFICATIONS_MAX).contains(&limit) {
        let detail = format!("`limit` must be within 1 and {NOTIFICATIONS_MAX}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("limit"));
    }
    api.notifications.catch_up(&*api.store).await?;
    let list = api.notifications.with(|known| {
        let meant = |record: &&NotificationRecord| state.is_none_or(|state| is_in(record, state));
        let mut found = known.all().rev().filter(meant);
        let notifications = found.by_ref().take(limit as usize).map(NotificationView::of).collect();
        let counts = known.counts();
        NotificationList {
            targets: targets(&api),
            notifications,
            waiting: counts.due,
            dead: counts.dead,
            more: found.next().is_some(),
        }
    });
    json(&list)
}

pub(super) async fn retry(api: Arc<Api>, call: Call) -> Answered {
    let RetryNotificationRequest { target } = call.json()?;
    let id = id_of(&call)?;
    let known_targets = targets(&api);
    api.notifications.catch_up(&*api.store).await?;
    let decide = |known: &Notifications| to_retry(known, id, target.as_deref(), &known_targets);
    // Refused before it is recorded as asked for.
    api.notifications.with(decide)?;
    audit::record(&api, &call, AdminAct::RetryNotification { id }).await?;
    let by = call.caller.name();
    let retried = |target: String| SystemEvent::from(NotificationRetried { id, target, by: by.clone() });
    let change = |known: &Notifications| decide(known).map(|targets| targets.into_iter().map(retried));
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    shown(&api, id)
}

pub(super) async fn drop_one(api: Arc<Api>, call: Call) -> Answered {
    let DropNotificationRequest { target } = call.json()?;
    let id = id_of(&call)?;
    api.notifications.catch_up(&*api.store).await?;
    let decide = |known: &Notifications| {
        let left = |one: &DeliveryRecord| matches!(one.telling, Telling::Due(_) | Telling::Dead);
        open(known, id, target.as_deref(), left)
    };
    api.notifications.with(decide)?;
    audit::record(&api, &call, AdminAct::DropNotification { id }).await?;
    let by = call.caller.name();
    let dropped = |target: String| SystemEvent::from(NotificationDropped { id, target, by: by.clone() });
    let change = |known: &Notifications| decide(known).map(|targets| targets.into_iter().map(dropped));
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    shown(&api, id)
}

fn id_of(call: &Call) -> Result<NotificationId, Refusal> {
    call.param.parse().map_err(|error: docket_schema::ids::ParseIdError| {
        let detail = format!("{error}; `docket notify` lists them, and `--json` their whole ids");
        Refusal::new(ProblemCode::InvalidRequest, detail).field("path")
    })
}

/// At whom it is tried again: of all, those that the settings know.
fn to_retry(
    known: &Notifications,
    id: NotificationId,
    target: Option<&str>,
    targets: &[TargetView],
) -> Result<Vec<String>, Refusal> {
    // One that waits is made at once; one that was taken is not made again, and one that was dropped if it is named.
    let again = |one: &DeliveryRecord| match one.telling {
        Telling::Due(_) | Telling::Dead => true,
        Telling::Dropped => target.is_some(),
        Telling::Delivered => false,
    };
    let open = open(known, id, target, again)?;
    let (here, gone): (Vec<String>, Vec<String>) =
        open.into_iter().partition(|name| targets.iter().any(|target| target.name == *name));
    if here.is_empty() {
        let detail = format!(
            "the settings of this coordinator have no target {}; add a [[notify]] of that name to its docket.toml, \
             name another target, or `docket notify drop` it",
            gone.join(", ")
        );
        return Err(Refusal::new(ProblemCode::WrongState, detail).field("target"));
    }
    Ok(here)
}

/// The deliveries of a notification that are in question.
fn open(
    known: &Notifications,
    id: NotificationId,
    target: Option<&str>,
    is_open: impl Fn(&DeliveryRecord) -> bool,
) -> Result<Vec<String>, Refusal> {
    let record = known.get(id).ok_or_else(|| {
        let detail = format!("there is no notification {id}, or it is long done; `docket notify` lists them");
        Refusal::new(ProblemCode::NotFound, detail).field("path")
    })?;
    let meant = record.deliveries.iter().filter(|one| target.is_none_or(|target| one.target == target));
    let open: Vec<String> = meant.filter(|one| is_open(one)).map(|one| one.target.clone()).collect();
    if open.is_empty() {
        let detail = match target {
            Some(target) if record.to(target).is_none() => {
                return Err(Refusal::new(
                    ProblemCode::NotFound,
                    format!("notification {id} is not for `{target}`; `docket notify` says for whom it is"),
                )
                .field("target"));
            }
            Some(target) => format!("`{target}` took notification {id}, or need not"),
            None => format!("all took notification {id}, or need not"),
        };
        return Err(Refusal::new(ProblemCode::WrongState, detail));
    }
    Ok(open)
}

pub(super) async fn test(api: Arc<Api>, call: Call) -> Answered {
    let TestNotificationRequest { target } = call.json()?;
    let names: Vec<String> = targets(&api).into_iter().map(|target| target.name).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let meant: Vec<String> =
        names.into_iter().filter(|name| target.as_ref().is_none_or(|target| target == name)).collect();
    if meant.is_empty() {
        let (code, detail) = match &target {
            Some(target) => (
                ProblemCode::NotFound,
                format!("there is no target `{target}`; this coordinator has {known}"),
            ),
            None => (
                ProblemCode::WrongState,
                "nobody is told of anything: add a [[notify]] to the coordinator's docket.toml and start it \
                 again"
                    .to_owned(),
            ),
        };
        return Err(Refusal::new(code, detail).field("target"));
    }
    audit::record(&api, &call, AdminAct::TestNotification { target }).await?;
    let id = NotificationId(clock::new_id());
    let notice = Notice::Test { by: call.caller.name() };
    let raised = NotificationRaised { id, source: None, position: None, notice, targets: meant };
    let change = |_: &Notifications| Ok::<_, Refusal>([SystemEvent::from(raised.clone())]);
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    shown(&api, id)
}

fn shown(api: &Api, id: NotificationId) -> Answered {
    let view = api.notifications.with(|known| known.get(id).map(NotificationView::of));
    json(&view.ok_or_else(|| {
        let detail =
            format!("notification {id} was settled among many others meanwhile; see `docket notify`");
        Refusal::new(ProblemCode::NotFound, detail).field("path")
    })?)
}
