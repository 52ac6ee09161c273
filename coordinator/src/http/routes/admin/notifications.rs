//! Routes of notifications: list targets and deliveries; retry, drop and test them.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        DeliveryState, DropNotificationRequest, NOTIFICATIONS_DEFAULT, NOTIFICATIONS_MAX, NotificationList,
        NotificationQuery, NotificationView, ProblemCode, RetryNotificationRequest, TargetView,
        TestNotificationRequest,
    },
    ids::NotificationId,
    system::{
        AdminAct, DeliveryRecord, DeliveryStatus, NotificationContent, NotificationDropped,
        NotificationRaised, NotificationRecord, NotificationRetried, NotificationsFold, SystemEvent,
    },
};

use crate::clock;
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};

type HandlerResult = Result<Response<Body>, ApiError>;

/// Returns the targets in this coordinator's settings.
fn notification_targets(api: &ApiState) -> Vec<TargetView> {
    let targets = api.notifier.as_ref().map(|notifier| notifier.targets()).unwrap_or_default();
    targets.iter().map(|target| target.view.clone()).collect()
}

fn has_delivery_in(record: &NotificationRecord, state: DeliveryState) -> bool {
    record.deliveries.iter().any(|delivery| match delivery.status {
        DeliveryStatus::Due(_) => state == DeliveryState::Waiting,
        DeliveryStatus::Delivered => state == DeliveryState::Delivered,
        DeliveryStatus::Dead => state == DeliveryState::Dead,
        DeliveryStatus::Dropped => state == DeliveryState::Dropped,
    })
}

pub(in crate::http) async fn list_notifications(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let NotificationQuery { state, limit } = call.query()?;
    let limit = limit.unwrap_or(NOTIFICATIONS_DEFAULT);
    if !(1..=NOTIFICATIONS_MAX).contains(&limit) {
        let detail = format!("`limit` must be within 1 and {NOTIFICATIONS_MAX}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("limit"));
    }
    api.notifications.catch_up(&*api.store).await?;
    let list = api.notifications.with_fold(|known| {
        let meant = |record: &&NotificationRecord| state.is_none_or(|state| has_delivery_in(record, state));
        let mut found = known.all().rev().filter(meant);
        let notifications = found.by_ref().take(limit as usize).map(NotificationView::from_record).collect();
        let counts = known.delivery_counts();
        NotificationList {
            targets: notification_targets(&api),
            notifications,
            waiting: counts.due,
            dead: counts.dead,
            more: found.next().is_some(),
        }
    });
    json_response(&list)
}

pub(in crate::http) async fn retry_notification(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let RetryNotificationRequest { target } = call.json()?;
    let id = parse_notification_id(&call)?;
    let known_targets = notification_targets(&api);
    api.notifications.catch_up(&*api.store).await?;
    let decide = |known: &NotificationsFold| targets_to_retry(known, id, target.as_deref(), &known_targets);
    // Checked before the request is recorded.
    api.notifications.with_fold(decide)?;
    audit::record_admin_act(&api, &call, AdminAct::RetryNotification { id }).await?;
    let by = call.caller.log_name();
    let retried = |target: String| SystemEvent::from(NotificationRetried { id, target, by: by.clone() });
    let change = |known: &NotificationsFold| decide(known).map(|targets| targets.into_iter().map(retried));
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    notification_response(&api, id)
}

pub(in crate::http) async fn drop_notification(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let DropNotificationRequest { target } = call.json()?;
    let id = parse_notification_id(&call)?;
    api.notifications.catch_up(&*api.store).await?;
    let decide = |known: &NotificationsFold| {
        let left = |one: &DeliveryRecord| matches!(one.status, DeliveryStatus::Due(_) | DeliveryStatus::Dead);
        open_targets(known, id, target.as_deref(), left)
    };
    api.notifications.with_fold(decide)?;
    audit::record_admin_act(&api, &call, AdminAct::DropNotification { id }).await?;
    let by = call.caller.log_name();
    let dropped = |target: String| SystemEvent::from(NotificationDropped { id, target, by: by.clone() });
    let change = |known: &NotificationsFold| decide(known).map(|targets| targets.into_iter().map(dropped));
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    notification_response(&api, id)
}

fn parse_notification_id(call: &ApiRequest) -> Result<NotificationId, ApiError> {
    call.path_param.parse().map_err(|error: docket_schema::ids::ParseIdError| {
        let detail = format!("{error}; see `docket notify`, or `docket notify --json` for full ids");
        ApiError::new(ProblemCode::InvalidRequest, detail).with_field("path")
    })
}

/// Returns the targets to retry: those of the notification that exist in the settings.
fn targets_to_retry(
    known: &NotificationsFold,
    id: NotificationId,
    target: Option<&str>,
    targets: &[TargetView],
) -> Result<Vec<String>, ApiError> {
    // Waiting deliveries are sent at once; delivered ones are not repeated; dropped ones only if named.
    let again = |one: &DeliveryRecord| match one.status {
        DeliveryStatus::Due(_) | DeliveryStatus::Dead => true,
        DeliveryStatus::Dropped => target.is_some(),
        DeliveryStatus::Delivered => false,
    };
    let open = open_targets(known, id, target, again)?;
    let (here, gone): (Vec<String>, Vec<String>) =
        open.into_iter().partition(|name| targets.iter().any(|target| target.name == *name));
    if here.is_empty() {
        let detail = format!(
            "this coordinator has no target {}; add a [[notify]] of that name to its docket.toml, \
             select another target, or use `docket notify drop`",
            gone.join(", ")
        );
        return Err(ApiError::new(ProblemCode::WrongState, detail).with_field("target"));
    }
    Ok(here)
}

/// Returns the unsettled deliveries of a notification.
fn open_targets(
    known: &NotificationsFold,
    id: NotificationId,
    target: Option<&str>,
    is_open: impl Fn(&DeliveryRecord) -> bool,
) -> Result<Vec<String>, ApiError> {
    let record = known.get(id).ok_or_else(|| {
        let detail = format!("there is no open notification {id}; see `docket notify`");
        ApiError::new(ProblemCode::NotFound, detail).with_field("path")
    })?;
    let meant = record.deliveries.iter().filter(|one| target.is_none_or(|target| one.target == target));
    let open: Vec<String> = meant.filter(|one| is_open(one)).map(|one| one.target.clone()).collect();
    if open.is_empty() {
        let detail = match target {
            Some(target) if record.delivery_to(target).is_none() => {
                return Err(ApiError::new(
                    ProblemCode::NotFound,
                    format!("notification {id} is not for `{target}`; see `docket notify` for its targets"),
                )
                .with_field("target"));
            }
            Some(target) => format!("notification {id} was already delivered to `{target}` or dropped"),
            None => format!("all deliveries of notification {id} were made or dropped"),
        };
        return Err(ApiError::new(ProblemCode::WrongState, detail));
    }
    Ok(open)
}

pub(in crate::http) async fn send_test_notification(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let TestNotificationRequest { target } = call.json()?;
    let names: Vec<String> = notification_targets(&api).into_iter().map(|target| target.name).collect();
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
                "no notification targets: add a [[notify]] section to the coordinator's docket.toml and restart \
                 it"
                    .to_owned(),
            ),
        };
        return Err(ApiError::new(code, detail).with_field("target"));
    }
    audit::record_admin_act(&api, &call, AdminAct::TestNotification { target }).await?;
    let id = NotificationId(clock::new_id());
    let notice = NotificationContent::Test { by: call.caller.log_name() };
    let raised = NotificationRaised { id, source: None, position: None, notice, targets: meant };
    let change = |_: &NotificationsFold| Ok::<_, ApiError>([SystemEvent::from(raised.clone())]);
    api.notifications.change(&*api.store, api.clock.now(), change).await?;
    notification_response(&api, id)
}

fn notification_response(api: &ApiState, id: NotificationId) -> HandlerResult {
    let view = api.notifications.with_fold(|known| known.get(id).map(NotificationView::from_record));
    json_response(&view.ok_or_else(|| {
        let detail = format!("notification {id} was settled meanwhile; see `docket notify`");
        ApiError::new(ProblemCode::NotFound, detail).with_field("path")
    })?)
}
