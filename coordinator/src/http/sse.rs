//! Following a run: its events as they are appended, as server-sent events.
//!
//! What is new comes from the run's relay, which all its followers share. What is older a follower reads from the log
//! itself, and holds one page of it at most, whatever the run writes: the next one is read when the client has taken
//! this one. It ends with `end` once the run's last event is out.

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

use super::{
    api_error::ApiError,
    api_state::ApiState,
    auth::Caller,
    request::ApiRequest,
    run_broadcast::{self, NextFrame, PAGE_EVENTS, RunSubscriber},
};
use crate::error_chain::error_chain;

/// A comment this often keeps proxies from ending an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn follow_run(api: Arc<ApiState>, call: ApiRequest) -> Result<Response<Body>, ApiError> {
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
        ApiError::new(ProblemCode::InvalidRequest, "`last-event-id` is the seq of the last event that came")
            .with_field("last-event-id")
    })
}

/// There may be thousands: what one holds while it waits is to be little.
struct RunFollower {
    api: Arc<ApiState>,
    caller: Caller,
    listener: RunSubscriber,
    after: Seq,
    /// What it read from the log itself and has not said.
    page: VecDeque<Envelope>,
    sent_at: Instant,
    /// Set anew when it fires, not at each event.
    keep_alive: Pin<Box<Sleep>>,
    is_over: bool,
}

impl RunFollower {
    /// The next piece of the stream; `None` once it is over.
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
                    // Its room is that of a page.
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
                // The client comes back by itself with the last id it has.
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

    /// The next page of the log; `None` where it cannot be read, or has nothing though the run went on: it was archived.
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
