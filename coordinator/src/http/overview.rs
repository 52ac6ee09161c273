//! Routes of what a person looks at first: how everything stands, and what days cost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::Timestamp,
    wire::{CostDaysQuery, Overview, OverviewQuery},
};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
    queues::heard_since,
    reports::refusal,
};
use crate::{error_chain::error_chain, reports};

/// How long tasks count as just ended, where the query does not say: a night, and the day before it.
const JUST_ENDED_US: i64 = 24 * 3_600_000_000;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn overview(api: Arc<Api>, call: Call) -> Answered {
    let OverviewQuery { since } = call.query()?;
    let at = api.clock.now();
    let since = since.unwrap_or(Timestamp(at.0.saturating_sub(JUST_ENDED_US)));
    let rows = api.store.overview(at, since, heard_since(&api)).await?;
    let notifications_dead = notifications_dead(&api).await;
    json(&Overview {
        at,
        since,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: api.store.backend().to_owned(),
        asks: rows.asks,
        blocked: rows.blocked,
        discarded: rows.discarded,
        discarded_count: rows.discarded_count,
        budgets: rows.budgets,
        notifications_dead,
        running: rows.running,
        ended: rows.ended,
        ended_counts: rows.ended_counts,
        tasks: rows.tasks,
        queues: rows.queues,
        queues_left_out: rows.queues_left_out,
        workers: rows.workers,
        hours: rows.hours,
        submitted: rows.submitted,
    })
}

/// None where they cannot be read: of all the rest a person wants to know all the more then.
async fn notifications_dead(api: &Api) -> Option<u64> {
    /// Whether it was logged that they cannot be read: pages ask every few seconds.
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    match api.notifications.catch_up(&*api.store).await {
        Ok(()) => {
            IS_LOGGED.store(false, Ordering::Relaxed);
            Some(api.notifications.with(|known| known.counts().dead))
        }
        Err(error) => {
            if !IS_LOGGED.swap(true, Ordering::Relaxed) {
                tracing::warn!("the overview tells of no notifications: {}", error_chain(&error));
            }
            None
        }
    }
}

pub(super) async fn cost_days(api: Arc<Api>, call: Call) -> Answered {
    let query: CostDaysQuery = call.query()?;
    json(&reports::cost_days(&*api.store, &query).await.map_err(refusal)?)
}
