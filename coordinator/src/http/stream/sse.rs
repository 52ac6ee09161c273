//! Follows a run with server-sent events.
//!
//! New events come from the run's broadcast, shared by all followers. Older events are read from
//! the log by each follower, which buffers at most one page and reads the next one when the client
//! has received it. The stream ends with `end` after the run's last event.

use std::{collections::VecDeque, convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    api::{FollowQuery, ProblemCode},
    event::Envelope,
    ids::{RunId, Seq, StreamId},
};
use futures_util::stream;
use tokio::time::{Instant, Sleep, sleep};

use crate::error_chain::error_chain;
use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    auth::Caller,
    request::ApiRequest,
    run_broadcast::{self, NextFrame, PAGE_EVENTS, RunSubscriber},
};

/// Interval of comments that keep proxies from closing an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(in crate::http) async fn follow_run(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let run: RunId = call.id()?;
    let query: FollowQuery = call.query()?;
    let after = last_event_id(&call)?.unwrap_or(query.after);
    let Some(view) = api.store.get_run(run).await? else {
        return Err(ApiError::new(ProblemCode::NotFound, format!("there is no run {run}")));
    };
    let follower = RunFollower {
        listener: api.broadcasts.subscribe(&api.app, &view),
        api,
        caller: call.caller,
        after,
        page: VecDeque::new(),
        sent_at: Instant::now(),
        keep_alive: Box::pin(sleep(KEEP_ALIVE)),
        is_over: false,
    };
    let body = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), follower))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn last_event_id(call: &ApiRequest) -> Result<Option<Seq>, ApiError> {
    let Some(value) = call.headers.get("last-event-id") else { return Ok(None) };
    value.to_str().ok().and_then(|text| text.trim().parse().ok()).map(|seq| Some(Seq(seq))).ok_or_else(|| {
        ApiError::new(
            ProblemCode::InvalidRequest,
            "`last-event-id` must be the seq of the last received event",
        )
        .with_field("last-event-id")
    })
}

/// There may be thousands of followers, so a waiting one must hold little memory.
struct RunFollower {
    api: Arc<ApiState>,
    caller: Caller,
    listener: RunSubscriber,
    after: Seq,
    /// Events read from the log that were not sent yet.
    page: VecDeque<Envelope>,
    sent_at: Instant,
    /// Reset when it fires, not at each event.
    keep_alive: Pin<Box<Sleep>>,
    is_over: bool,
}

impl RunFollower {
    /// Returns the next chunk of the stream, or `None` at its end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over
                || self.api.shutdown.is_cancelled()
                || self.api.check_still_authorized(&self.caller).is_err()
            {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                if self.page.is_empty() {
                    // Frees the capacity of the page.
                    self.page = VecDeque::new();
                }
                return Some(self.mark_sent(event.seq, run_broadcast::render_event_frame(&event)));
            }
            match self.listener.next_after(self.after) {
                NextFrame::Event(frame) => return Some(self.mark_sent(self.after.next(), frame)),
                NextFrame::End(bytes) => {
                    self.is_over = true;
                    return Some(bytes);
                }
                // The client reconnects with its last event ID.
                NextFrame::Broken => return None,
                NextFrame::OnlyInLog => {
                    self.page = self.read_page().await?;
                    continue;
                }
                NextFrame::Pending => {}
            }
            tokio::select! {
                () = self.listener.wait_for_change() => {}
                () = self.keep_alive.as_mut() => {
                    let (now, until) = (Instant::now(), self.sent_at + KEEP_ALIVE);
                    if now < until {
                        self.keep_alive.as_mut().reset(until);
                        continue;
                    }
                    self.sent_at = now;
                    self.keep_alive.as_mut().reset(now + KEEP_ALIVE);
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
    }

    fn mark_sent(&mut self, seq: Seq, frame: Bytes) -> Bytes {
        self.after = seq;
        self.sent_at = Instant::now();
        frame
    }

    /// Reads the next page of the log. Returns `None` if it cannot be read, or is empty although the
    /// run advanced (archived).
    async fn read_page(&self) -> Option<VecDeque<Envelope>> {
        let run = self.listener.run();
        match self.api.store.read_events(StreamId::Run(run), self.after, PAGE_EVENTS).await {
            Ok(page) => Some(page).filter(|page| !page.is_empty()).map(VecDeque::from),
            Err(error) => {
                tracing::error!(%run, "following: {}", error_chain(&error));
                None
            }
        }
    }
}
