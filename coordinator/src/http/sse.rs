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
    event::Envelope,
    ids::{RunId, Seq, StreamId},
    wire::{FollowQuery, ProblemCode},
};
use futures_util::stream;
use tokio::time::{Instant, Sleep, sleep};

use super::{
    api::Api,
    auth::Caller,
    call::Call,
    errors::Refusal,
    relay::{self, Behind, Listener, PAGE_EVENTS},
};
use crate::error_chain::error_chain;

/// A comment this often keeps proxies from ending an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn follow(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let run: RunId = call.id()?;
    let query: FollowQuery = call.query()?;
    let after = last_event_id(&call)?.unwrap_or(query.after);
    let Some(view) = api.store.run(run).await? else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no run {run}")));
    };
    let follower = Follower {
        listener: api.relays.join(&api.app, &view),
        api,
        caller: call.caller,
        after,
        page: VecDeque::new(),
        said_at: Instant::now(),
        quiet: Box::pin(sleep(KEEP_ALIVE)),
        over: false,
    };
    let body = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, Infallible>(chunk), follower))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn last_event_id(call: &Call) -> Result<Option<Seq>, Refusal> {
    let Some(value) = call.headers.get("last-event-id") else { return Ok(None) };
    value.to_str().ok().and_then(|text| text.trim().parse().ok()).map(|seq| Some(Seq(seq))).ok_or_else(|| {
        Refusal::new(ProblemCode::InvalidRequest, "`last-event-id` is the seq of the last event that came")
            .field("last-event-id")
    })
}

/// There may be thousands: what one holds while it waits is to be little.
struct Follower {
    api: Arc<Api>,
    caller: Caller,
    listener: Listener,
    after: Seq,
    /// What it read from the log itself and has not said.
    page: VecDeque<Envelope>,
    said_at: Instant,
    /// Set anew when it fires, not at each event.
    quiet: Pin<Box<Sleep>>,
    over: bool,
}

impl Follower {
    /// The next piece of the stream; `None` once it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.over || self.api.shutdown.is_cancelled() || self.api.must_still_be(&self.caller).is_err()
            {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                if self.page.is_empty() {
                    // Its room is that of a page.
                    self.page = VecDeque::new();
                }
                return Some(self.say(event.seq, relay::frame(&event)));
            }
            match self.listener.behind(self.after) {
                Behind::Event(frame) => return Some(self.say(self.after.next(), frame)),
                Behind::End(bytes) => {
                    self.over = true;
                    return Some(bytes);
                }
                // The client comes back by itself with the last id it has.
                Behind::Broken => return None,
                Behind::Left => {
                    self.page = self.read().await?;
                    continue;
                }
                Behind::Nothing => {}
            }
            tokio::select! {
                () = self.listener.changed() => {}
                () = self.quiet.as_mut() => {
                    let (now, until) = (Instant::now(), self.said_at + KEEP_ALIVE);
                    if now < until {
                        self.quiet.as_mut().reset(until);
                        continue;
                    }
                    self.said_at = now;
                    self.quiet.as_mut().reset(now + KEEP_ALIVE);
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
    }

    fn say(&mut self, seq: Seq, frame: Bytes) -> Bytes {
        self.after = seq;
        self.said_at = Instant::now();
        frame
    }

    /// The next page of the log; `None` where it cannot be read, or has nothing though the run went on: it was archived.
    async fn read(&self) -> Option<VecDeque<Envelope>> {
        let run = self.listener.run();
        match self.api.store.read(StreamId::Run(run), self.after, PAGE_EVENTS).await {
            Ok(page) => Some(page).filter(|page| !page.is_empty()).map(VecDeque::from),
            Err(error) => {
                tracing::error!(%run, "following: {}", error_chain(&error));
                None
            }
        }
    }
}
