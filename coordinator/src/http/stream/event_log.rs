//! Routes that read the log: a single stream, or all streams in order of position.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        EventPage, EventsQuery, FeedQuery, PAGE_EVENTS_MAX, ProblemCode, StreamHead, StreamPage, StreamsQuery,
    },
    event::{Envelope, Payload},
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn read_feed(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: FeedQuery = call.query()?;
    let limit = check_page_limit(query.limit)?;
    event_page_response(&event_page(api.store.read_log(query.after, limit).await?, limit))
}

pub(in crate::http) async fn read_stream_events(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: EventsQuery = call.query()?;
    let limit = check_page_limit(query.limit)?;
    let wrong =
        |field: &str, detail: &str| Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field));
    let Some(stream) = query.stream else {
        return wrong("stream", "specify a stream: task/ID, run/ID, queue/NAME or system/TOPIC");
    };
    if query.lineage {
        return wrong("lineage", "`lineage` is only available at `/v1/runs/{id}/events`");
    }
    event_page_response(&event_page(api.store.read_events(stream, query.after, limit).await?, limit))
}

pub(in crate::http) async fn list_streams(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: StreamsQuery = call.query()?;
    let page = api.store.list_streams(query.after, PAGE_EVENTS_MAX).await?;
    let more = page.len() >= PAGE_EVENTS_MAX as usize;
    let streams = page.into_iter().map(|(stream, head)| StreamHead { stream, head }).collect();
    json_response(&StreamPage { streams, more })
}

/// Returns the page limit of the request, or the default.
pub(in crate::http) fn check_page_limit(asked: Option<u32>) -> Result<u32, ApiError> {
    let limit = asked.unwrap_or(PAGE_EVENTS_MAX);
    if limit == 0 || limit > PAGE_EVENTS_MAX {
        let detail = format!("`limit` must be within 1 and {PAGE_EVENTS_MAX}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("limit"));
    }
    Ok(limit)
}

/// Builds a response from a page. An altered payload that is not JSON cannot be included, so its
/// place is named in an error.
pub(in crate::http) fn event_page_response(page: &EventPage) -> HandlerResult {
    let altered = |event: &&Envelope| Payload::parse(event.payload.as_str().to_owned()).is_err();
    json_response(page).map_err(|refusal| match page.events.iter().find(altered) {
        None => refusal,
        Some(Envelope { stream, seq, .. }) => ApiError::new(
            ProblemCode::Corrupt,
            format!("{stream}: event {seq} was altered (its payload is not JSON); run `docket verify`"),
        ),
    })
}

/// Builds a page from the store's events for `limit`.
pub(in crate::http) fn event_page(events: Vec<Envelope>, limit: u32) -> EventPage {
    let more = events.len() >= limit as usize;
    EventPage { events, more }
}
