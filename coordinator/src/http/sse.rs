//! Following a run: its events as they are appended, as server-sent events.
//!
//! A follower holds one page of events at most, whatever the run writes: the next page is read
//! when the client has taken this one. It ends with `end` once the run's last event is out.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    event::Envelope,
    ids::{RunId, Seq, StreamId},
    wire::{FollowQuery, ProblemCode, RunView},
};
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use super::{
    api::Api,
    auth::Caller,
    call::Call,
    errors::{Refusal, error_chain},
};
use crate::tasks::{FollowerGuard, jittered};

/// Events a follower holds at most.
const PAGE_EVENTS: u32 = 100;
/// Longest time until a follower sees what another coordinator wrote.
const FOLLOW_POLL: Duration = Duration::from_secs(1);
/// A comment this often keeps proxies from ending an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn follow(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let run: RunId = call.id()?;
    let query: FollowQuery = call.query()?;
    let after = last_event_id(&call)?.unwrap_or(query.after);
    if api.store.run(run).await?.is_none() {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no run {run}")));
    }
    let watch = api.wakes.follow(run);
    let follower = Follower {
        api,
        caller: call.caller,
        run,
        watch,
        after,
        page: VecDeque::new(),
        said_at: Instant::now(),
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

struct Follower {
    api: Arc<Api>,
    caller: Caller,
    run: RunId,
    watch: FollowerGuard,
    after: Seq,
    page: VecDeque<Envelope>,
    said_at: Instant,
    over: bool,
}

impl Follower {
    /// The next piece of the stream; `None` once it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                return Some(self.say(&event));
            }
            if self.api.shutdown.is_cancelled() || self.api.must_still_be(&self.caller).is_err() {
                return None;
            }
            let waited_until = self.said_at + KEEP_ALIVE;
            let look = waited_until.min(Instant::now() + jittered(FOLLOW_POLL));
            let api = Arc::clone(&self.api);
            let grown = self.watch.grown();
            match read(&api, self.run, self.after).await {
                Ok(Found::Events(page)) => {
                    self.page = page;
                    continue;
                }
                Ok(Found::Over(view)) => {
                    drop(grown);
                    self.over = true;
                    return Some(end(&view));
                }
                Ok(Found::Nothing) => {}
                // The client comes back by itself with the last id it has.
                Err(()) => return None,
            }
            tokio::select! {
                () = grown => {}
                () = sleep_until(look) => {}
                () = api.shutdown.cancelled() => {}
            }
            if Instant::now() >= waited_until {
                self.said_at = Instant::now();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    fn say(&mut self, event: &Envelope) -> Bytes {
        self.after = event.seq;
        self.said_at = Instant::now();
        let json = serde_json::to_string(event).unwrap_or_else(|error| {
            tracing::error!(run = %self.run, seq = event.seq.0, "an event cannot be written: {error}");
            "null".to_owned()
        });
        let mut text = format!("id: {}\n", event.seq);
        // A payload's text may hold line breaks where another build wrote it; to a reader they
        // are white space between tokens.
        for line in json.split(['\n', '\r']) {
            text.push_str("data: ");
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
        text.into()
    }
}

enum Found {
    Events(VecDeque<Envelope>),
    Nothing,
    Over(RunView),
}

async fn read(api: &Api, run: RunId, after: Seq) -> Result<Found, ()> {
    let failed = |error| tracing::error!(%run, "following: {}", error_chain(&error));
    let page = api.store.read(StreamId::Run(run), after, PAGE_EVENTS).await.map_err(failed)?;
    if !page.is_empty() {
        return Ok(Found::Events(page.into()));
    }
    let view = api.store.run(run).await.map_err(failed)?;
    // Only where all of it is out: an event may have come between the two reads.
    let over = view.filter(|view| view.ended_at.is_some() && view.head.seq <= after);
    Ok(over.map_or(Found::Nothing, Found::Over))
}

fn end(view: &RunView) -> Bytes {
    let data = serde_json::json!({ "run": view.id, "status": view.status, "seq": view.head.seq });
    format!("event: end\ndata: {data}\n\n").into()
}
