//! Follows a run: streams its events as they are recorded, over connections that may break.

use std::{collections::VecDeque, time::Duration};

use docket_schema::{
    event::Envelope,
    ids::{RunId, Seq},
};
use futures_util::{Stream, stream};
use reqwest::{Method, Response};

use crate::client::{ClientError, CoordinatorClient, retry::Backoff};
use crate::sse::{SseEvent, SseParser};

/// A stream that is silent for longer is dead: the coordinator sends a comment at least every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Consecutive attempts without an event: with the delays between them, about a minute.
const ATTEMPTS_MAX: u32 = 30;
/// The last SSE event: the run has ended and everything was sent.
const END_EVENT: &str = "end";

impl CoordinatorClient {
    /// Streams a run's events after `after`, as they are recorded. Broken connections are reopened after the
    /// last event seen, so that each event arrives exactly once, in order. Ends when the coordinator reports
    /// the end of the run; an error is the last item.
    pub fn follow_run(
        &self,
        run: RunId,
        after: Seq,
    ) -> impl Stream<Item = Result<Envelope, ClientError>> + Send + use<> {
        let start = RunFollower {
            client: self.clone(),
            run,
            after,
            connection: None,
            pending_events: VecDeque::new(),
            backoff: Backoff::default(),
            failures: 0,
            is_over: false,
        };
        stream::unfold(start, |mut following| async move {
            let item = following.next_event().await?;
            Some((item, following))
        })
    }
}

struct RunFollower {
    client: CoordinatorClient,
    run: RunId,
    after: Seq,
    connection: Option<(Response, SseParser)>,
    pending_events: VecDeque<SseEvent>,
    backoff: Backoff,
    failures: u32,
    is_over: bool,
}

impl RunFollower {
    async fn next_event(&mut self) -> Option<Result<Envelope, ClientError>> {
        loop {
            if self.is_over {
                return None;
            }
            if let Some(event) = self.pending_events.pop_front() {
                match self.accept_event(&event) {
                    Ok(Some(envelope)) => return Some(Ok(envelope)),
                    Ok(None) => continue,
                    Err(error) => return self.finish_with_error(error),
                }
            }
            if let Err(error) = self.receive_chunk().await {
                self.connection = None;
                self.failures += 1;
                if !error.is_retryable() || self.failures >= ATTEMPTS_MAX {
                    return self.finish_with_error(error);
                }
                tokio::time::sleep(self.backoff.next_pause(crate::clock::random_jitter())).await;
            }
        }
    }

    fn finish_with_error(&mut self, error: ClientError) -> Option<Result<Envelope, ClientError>> {
        self.is_over = true;
        Some(Err(error))
    }

    fn accept_event(&mut self, event: &SseEvent) -> Result<Option<Envelope>, ClientError> {
        if event.name == END_EVENT {
            self.is_over = true;
            return Ok(None);
        }
        if event.data.is_empty() {
            return Ok(None);
        }
        let envelope: Envelope = serde_json::from_str(&event.data).map_err(|error| {
            self.client
                .protocol_error("follow a run", format!("an event does not have the expected form ({error})"))
        })?;
        // A server that ignores Last-Event-ID sends known events again.
        if envelope.seq <= self.after {
            return Ok(None);
        }
        self.after = envelope.seq;
        self.failures = 0;
        self.backoff = Backoff::default();
        Ok(Some(envelope))
    }

    async fn receive_chunk(&mut self) -> Result<(), ClientError> {
        let doing = "follow a run";
        if self.connection.is_none() {
            let path = format!("/v1/runs/{}/follow", self.run);
            let call = self.client.build_call(doing, Method::GET, &path).with_query("after", self.after);
            self.connection = Some((call.open_event_stream(self.after.0).await?, SseParser::default()));
        }
        let (response, parser) = self.connection.as_mut().expect("opened above");
        let broken = |kind: std::io::ErrorKind| ClientError::Unreachable {
            doing,
            url: self.client.display_address(),
            source: Box::new(std::io::Error::from(kind)),
        };
        let chunk = tokio::time::timeout(SILENCE_MAX, response.chunk())
            .await
            .map_err(|_| broken(std::io::ErrorKind::TimedOut))?
            .map_err(|source| self.client.transport_error(doing, source))?
            .ok_or_else(|| broken(std::io::ErrorKind::UnexpectedEof))?;
        parser
            .push(&chunk, &mut |event| self.pending_events.push_back(event))
            .map_err(|_| self.client.protocol_error(doing, "a line of the stream is too long"))
    }
}
