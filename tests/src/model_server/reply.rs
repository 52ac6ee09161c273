//! Sends a reply: a refusal with its status, or a stream that may go wrong. Independent of wire
//! formats, which are in `anthropic`, `openai` and `responses`.

use std::{io, sync::Arc, time::Instant};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, Response, StatusCode},
};
use docket_worker::model::{FaultKind, ScriptedFault};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;

/// A refusal in the protocol's wire format.
#[derive(Debug)]
pub(super) struct RefusalReply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) retry_after_ms: Option<u64>,
}

impl RefusalReply {
    pub(super) fn into_response(self, request_id: &str) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body.to_string()));
        *response.status_mut() = StatusCode::from_u16(self.status).expect("a status of ours");
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.extend(request_id_headers(request_id));
        if let Some(ms) = self.retry_after_ms {
            // Whole seconds as Anthropic sends them; else milliseconds, as OpenAI does.
            let (name, value) =
                if ms % 1000 == 0 { ("retry-after", ms / 1000) } else { ("retry-after-ms", ms) };
            headers.insert(name, HeaderValue::from(value));
        }
        response
    }
}

fn request_id_headers(request_id: &str) -> Vec<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(request_id).expect("digits and letters");
    ["request-id", "x-request-id"].map(|name| (HeaderName::from_static(name), value.clone())).into()
}

/// The events of a stream, split so that faults can cut it.
#[derive(Debug)]
pub(super) struct StreamEvents {
    /// All events before the one with the stop reason.
    pub(super) before_stop: Vec<String>,
    /// The event with the stop reason, and the following ones.
    pub(super) stop: Vec<String>,
    /// An error event within a stream.
    pub(super) error: String,
}

/// Called when the last byte of a reply was handed to the network; see [`super::RecordedRequest`].
pub(super) type SentCallback = Arc<dyn Fn(Instant) + Send + Sync>;

/// Builds the response of a server that does not stream.
pub(super) fn json_response(body: &Value, request_id: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.extend(request_id_headers(request_id));
    response
}

/// Builds the streaming response.
pub(super) fn stream_response(
    events: StreamEvents,
    fault: Option<ScriptedFault>,
    request_id: &str,
    stopped: watch::Receiver<bool>,
    on_sent: SentCallback,
) -> Response<Body> {
    let body = Body::from_stream(stream_frames(events, fault, stopped, on_sent));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.extend(request_id_headers(request_id));
    response
}

type StreamFrame = Result<Bytes, io::Error>;

fn stream_frames(
    events: StreamEvents,
    fault: Option<ScriptedFault>,
    stopped: watch::Receiver<bool>,
    on_sent: SentCallback,
) -> impl Stream<Item = StreamFrame> + Send + 'static {
    let StreamEvents { before_stop, stop, error } = events;
    let half = before_stop.len().div_ceil(2);
    let kind = fault.map(|fault| fault.kind);
    let (said, end) = match kind {
        Some(FaultKind::CutStream) => (before_stop, StreamEnd::Complete),
        Some(FaultKind::Reset) => (before_stop.into_iter().take(half).collect(), StreamEnd::Reset),
        Some(FaultKind::Stall) => (before_stop.into_iter().take(half).collect(), StreamEnd::Stall),
        Some(FaultKind::ErrorInStream) => {
            (before_stop.into_iter().take(half).chain([error]).collect(), StreamEnd::Complete)
        }
        Some(
            FaultKind::RateLimited
            | FaultKind::Overloaded
            | FaultKind::ServerError
            | FaultKind::SpendLimit
            | FaultKind::Unauthorized
            | FaultKind::Forbidden
            | FaultKind::ContextTooLong
            | FaultKind::MalformedArguments
            | FaultKind::UnknownTool
            | FaultKind::Empty
            | FaultKind::OutputLimit
            | FaultKind::Unstreamed
            | FaultKind::Uncounted
            | FaultKind::Refusal
            | FaultKind::SlowFirstByte,
        )
        | None => (before_stop.into_iter().chain(stop).collect::<Vec<_>>(), StreamEnd::Complete),
    };
    let said = stream::iter(said.into_iter().map(|event| Ok(Bytes::from(event))));
    said.chain(stream::once(finish_stream(end, stopped, on_sent)).filter_map(|frame| async { frame }))
}

enum StreamEnd {
    Complete,
    Reset,
    Stall,
}

async fn finish_stream(
    end: StreamEnd,
    stopped: watch::Receiver<bool>,
    on_sent: SentCallback,
) -> Option<StreamFrame> {
    match end {
        StreamEnd::Complete => {
            on_sent(Instant::now());
            None
        }
        // Yielding first lets the data sent so far reach the client before the connection breaks.
        StreamEnd::Reset => {
            tokio::task::yield_now().await;
            Some(Err(io::Error::other("as the script says")))
        }
        StreamEnd::Stall => {
            wait_until_stopped(stopped).await;
            None
        }
    }
}

/// Waits until the server stops.
pub(super) async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the server is gone, which counts as a stop.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// Splits a text into at most three pieces at character boundaries, to stream it in pieces.
pub(super) fn split_text(text: &str) -> Vec<&str> {
    let third = text.len().div_ceil(3).max(1);
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let end = (third.min(rest.len())..=rest.len()).find(|at| rest.is_char_boundary(*at));
        let (piece, tail) = rest.split_at(end.unwrap_or(rest.len()));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}
