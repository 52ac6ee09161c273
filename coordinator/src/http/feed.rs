//! Routes that read the log: one stream, or all of it in order of position.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::{Envelope, Payload},
    wire::{
        EventPage, EventsQuery, FeedQuery, PAGE_EVENTS_MAX, ProblemCode, StreamHead, StreamPage, StreamsQuery,
    },
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
    answer(&page(api.store.feed(query.after, limit).await?, limit))
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
    answer(&page(api.store.read(stream, query.after, limit).await?, limit))
}

pub(super) async fn streams(api: Arc<Api>, call: Call) -> Answered {
    let query: StreamsQuery = call.query()?;
    let page = api.store.streams(query.after, PAGE_EVENTS_MAX).await?;
    let more = page.len() >= PAGE_EVENTS_MAX as usize;
    let streams = page.into_iter().map(|(stream, head)| StreamHead { stream, head }).collect();
    json(&StreamPage { streams, more })
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

/// A page as an answer. A payload that is no JSON any more cannot stand in one: its place is named.
pub(super) fn answer(page: &EventPage) -> Answered {
    let altered = |event: &&Envelope| Payload::parse(event.payload.as_str().to_owned()).is_err();
    json(page).map_err(|refusal| match page.events.iter().find(altered) {
        None => refusal,
        Some(Envelope { stream, seq, .. }) => Refusal::new(
            ProblemCode::Corrupt,
            format!("{stream}: event {seq} was altered (its payload is no JSON); run `docket verify`"),
        ),
    })
}

/// A page of what a store answered to `limit`.
pub(super) fn page(events: Vec<Envelope>, limit: u32) -> EventPage {
    let more = events.len() >= limit as usize;
    EventPage { events, more }
}
