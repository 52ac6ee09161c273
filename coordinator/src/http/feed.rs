//! Routes that read the log: one stream, or all of it in order of position.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::Envelope,
    wire::{EventPage, EventsQuery, FeedQuery, PAGE_EVENTS_MAX, ProblemCode},
};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn feed(api: Arc<Api>, call: Call) -> Answered {
    let query: FeedQuery = call.query()?;
    let limit = page_limit(query.limit)?;
    json(&page(api.store.feed(query.after, limit).await?, limit))
}

pub(super) async fn events(api: Arc<Api>, call: Call) -> Answered {
    let query: EventsQuery = call.query()?;
    let limit = page_limit(query.limit)?;
    let wrong =
        |field: &str, detail: &str| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field));
    let Some(stream) = query.stream else {
        return wrong("stream", "say which stream: task/ID, run/ID, queue/NAME or system/TOPIC");
    };
    if query.lineage {
        return wrong("lineage", "only `/v1/runs/{id}/events` knows a run's lineage");
    }
    json(&page(api.store.read(stream, query.after, limit).await?, limit))
}

/// A page's limit as asked for, or the default.
pub(super) fn page_limit(asked: Option<u32>) -> Result<u32, Refusal> {
    let limit = asked.unwrap_or(PAGE_EVENTS_MAX);
    if limit == 0 || limit > PAGE_EVENTS_MAX {
        let detail = format!("`limit` must be within 1 and {PAGE_EVENTS_MAX}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("limit"));
    }
    Ok(limit)
}

/// A page of what a store answered to `limit`.
pub(super) fn page(events: Vec<Envelope>, limit: u32) -> EventPage {
    let more = events.len() >= limit as usize;
    EventPage { events, more }
}
