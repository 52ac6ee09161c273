//! Routes of what a person looks at first: how everything stands, and what days cost.

use std::sync::Arc;

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
use crate::reports;

/// How long tasks count as just ended, where the query does not say: a night, and the day before it.
const JUST_ENDED_US: i64 = 24 * 3_600_000_000;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn overview(api: Arc<Api>, call: Call) -> Answered {
    let OverviewQuery { since } = call.query()?;
    let at = api.clock.now();
    let since = since.unwrap_or(Timestamp(at.0.saturating_sub(JUST_ENDED_US)));
    let rows = api.store.overview(at, since, heard_since(&api)).await?;
    api.notifications.catch_up(&*api.store).await?;
    json(&Overview {
        at,
        since,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: api.store.backend().to_owned(),
        asks: rows.asks,
        blocked: rows.blocked,
        discarded: rows.discarded,
        budgets: rows.budgets,
        notifications_dead: api.notifications.with(|known| known.counts().dead),
        running: rows.running,
        ended: rows.ended,
        ended_counts: rows.ended_counts,
        tasks: rows.tasks,
        queues: rows.queues,
        workers: rows.workers,
        hours: rows.hours,
        submitted: rows.submitted,
    })
}

pub(super) async fn cost_days(api: Arc<Api>, call: Call) -> Answered {
    let query: CostDaysQuery = call.query()?;
    json(&reports::cost_days(&*api.store, &query).await.map_err(refusal)?)
}
