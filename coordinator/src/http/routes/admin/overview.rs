//! Routes of the overview: the current state, and daily costs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{CostDaysQuery, OverviewQuery, OverviewResponse},
    ids::Timestamp,
};

use super::queues::workers_seen_since;
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::runs::reports::report_error,
};
use crate::{error_chain::error_chain, reports};

/// Default period for recently ended tasks: a night and the day before it.
const RECENTLY_ENDED_US: i64 = 24 * 3_600_000_000;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn show_overview(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let OverviewQuery { since } = call.query()?;
    let at = api.clock.now();
    let since = since.unwrap_or(Timestamp(at.0.saturating_sub(RECENTLY_ENDED_US)));
    let rows = api.store.read_overview(at, since, workers_seen_since(&api)).await?;
    let notifications_dead = count_dead_notifications(&api).await;
    json_response(&OverviewResponse {
        at,
        since,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: api.store.backend().to_owned(),
        asks: rows.awaiting_person,
        blocked: rows.blocked,
        discarded: rows.discarded,
        discarded_count: rows.discarded_count,
        budgets: rows.budgets_near_limit,
        notifications_dead,
        running: rows.running,
        ended: rows.recently_ended,
        ended_counts: rows.ended_counts,
        tasks: rows.tasks,
        queues: rows.queues,
        queues_left_out: rows.queues_left_out,
        workers: rows.workers,
        hours: rows.ended_by_hour,
        submitted: rows.submitted_by_hour,
    })
}

/// Returns `None` if notifications cannot be read, because the rest of the overview matters even
/// more then.
async fn count_dead_notifications(api: &ApiState) -> Option<u64> {
    /// Whether the failure was logged already; pages poll every few seconds.
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    match api.notifications.catch_up(&*api.store).await {
        Ok(()) => {
            IS_LOGGED.store(false, Ordering::Relaxed);
            Some(api.notifications.with_fold(|known| known.delivery_counts().dead))
        }
        Err(error) => {
            if !IS_LOGGED.swap(true, Ordering::Relaxed) {
                tracing::warn!("the overview omits notifications: {}", error_chain(&error));
            }
            None
        }
    }
}

pub(in crate::http) async fn list_cost_days(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: CostDaysQuery = call.query()?;
    json_response(&reports::cost_by_day(&*api.store, &query).await.map_err(report_error)?)
}
