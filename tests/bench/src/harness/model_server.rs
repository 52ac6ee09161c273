//! A model that thinks nothing: OpenAI Chat Completions over HTTP on loopback, streamed, with the
//! instants at which each request came and each answer's last byte went.
//!
//! Every run has a path of its own, and with it a scenario: which tool is called at each turn, how often,
//! and where the model holds its answer back until it is told to go on.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Request, State},
    http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE},
    routing::post,
    serve::ListenerExt as _,
};
use docket_schema::message::ModelRef;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
    task::JoinHandle,
};

/// Largest request that is read.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A request that does not come for so long will not come.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// What the model calls at each turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// By turns `create_file` and `read_file`.
    Files,
    /// `run_command` with `true`.
    Command,
}

/// One run's conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) tool: Tool,
    /// Tool turns before the last word.
    pub(crate) turns: usize,
    /// The request (from 0) whose answer is held back, once.
    pub(crate) hold_at: Option<usize>,
}

/// A request, and its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Which turn it asks for, from 0.
    pub(crate) turn: usize,
    /// Its head was read.
    pub(crate) came: Instant,
    /// The last piece of its answer was handed to the connection.
    pub(crate) answered: Option<Instant>,
}

#[derive(Default)]
struct Run {
    scenario: Option<Scenario>,
    marks: Vec<Mark>,
    held: bool,
}

struct Shared {
    runs: Mutex<HashMap<String, Run>>,
    news: Notify,
    /// Answers held back wait for a permit.
    release: Semaphore,
}

/// The server. Ends when dropped.
pub(crate) struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl ModelServer {
    /// Starts on a free port of loopback.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the made-up model")?;
        let address = listener.local_addr()?;
        let listener = listener.tap_io(|stream| {
            // Without it Nagle's algorithm, not docket, would be measured.
            drop(stream.set_nodelay(true));
        });
        let shared =
            Arc::new(Shared { runs: Mutex::default(), news: Notify::new(), release: Semaphore::new(0) });
        let router =
            Router::new().route("/{run}/chat/completions", post(answer)).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It serves until it is aborted.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self { shared, address, serving })
    }

    /// A model that plays `scenario`, under a name of its own.
    pub(crate) fn model(&self, run: &str, scenario: Scenario) -> ModelRef {
        self.shared.runs().insert(run.to_owned(), Run { scenario: Some(scenario), ..Run::default() });
        ModelRef {
            provider: "openai".to_owned(),
            name: "bench".to_owned(),
            base_url: Some(format!("http://{}/{run}", self.address)),
        }
    }

    /// Waits until `count` requests of `run` have come; all of them.
    pub(crate) async fn requests(&self, run: &str, count: usize) -> anyhow::Result<Vec<Mark>> {
        self.requests_within(run, count, ARRIVAL_TIMEOUT).await
    }

    /// As [`ModelServer::requests`], where they take longer.
    pub(crate) async fn requests_within(
        &self,
        run: &str,
        count: usize,
        timeout: Duration,
    ) -> anyhow::Result<Vec<Mark>> {
        let enough = async {
            loop {
                let news = self.shared.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                let marks = self.shared.runs().get(run).map(|run| run.marks.clone()).unwrap_or_default();
                if marks.len() >= count {
                    return marks;
                }
                news.await;
            }
        };
        match tokio::time::timeout(timeout, enough).await {
            Ok(marks) => Ok(marks),
            Err(_) => bail!("the run's request {count} to its model did not come within {timeout:?}"),
        }
    }

    /// All requests of `run` so far.
    pub(crate) fn marks(&self, run: &str) -> Vec<Mark> {
        self.shared.runs().get(run).map(|run| run.marks.clone()).unwrap_or_default()
    }

    /// Lets the answer that is held back go.
    pub(crate) fn release(&self) {
        self.shared.release.add_permits(1);
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn runs(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        // Nothing panics under the lock, and marks are whole at any moment.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the request; the scenario, and whether its answer is to be held back.
    fn came(&self, name: &str, turn: usize, came: Instant) -> Option<(Scenario, usize, bool)> {
        let mut runs = self.runs();
        let run = runs.get_mut(name)?;
        let scenario = run.scenario?;
        run.marks.push(Mark { turn, came, answered: None });
        let hold = scenario.hold_at == Some(turn) && !run.held;
        run.held |= hold;
        Some((scenario, run.marks.len() - 1, hold))
    }

    fn answered(&self, name: &str, mark: usize) {
        if let Some(mark) = self.runs().get_mut(name).and_then(|run| run.marks.get_mut(mark)) {
            mark.answered = Some(Instant::now());
        }
    }
}

#[derive(Deserialize)]
struct Asked {
    messages: Vec<AskedMessage>,
}

#[derive(Deserialize)]
struct AskedMessage {
    role: String,
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(run): Path<String>,
    request: Request,
) -> Response<Body> {
    let came = Instant::now();
    let Ok(body) = to_bytes(request.into_body(), REQUEST_BYTES_MAX).await else { return refused() };
    let Ok(asked) = serde_json::from_slice::<Asked>(&body) else { return refused() };
    let turn = asked.messages.iter().filter(|message| message.role == "assistant").count();
    let Some((scenario, mark, hold)) = shared.came(&run, turn, came) else { return refused() };
    shared.news.notify_waiters();
    if hold {
        // A client that goes away drops this and takes no permit.
        match shared.release.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return refused(),
        }
    }
    let pieces = said(scenario, turn);
    let last = pieces.len() - 1;
    let pieces = pieces.into_iter().enumerate().map(move |(at, piece)| {
        if at == last {
            shared.answered(&run, mark);
        }
        Ok::<_, Infallible>(Bytes::from(format!("data: {piece}\n\n")))
    });
    let mut response = Response::new(Body::from_stream(stream::iter(pieces)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn refused() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// The chunks of the answer to the request for `turn`.
fn said(scenario: Scenario, turn: usize) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "bench",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
    };
    let (delta, finish) = match call(scenario, turn) {
        Some((name, args)) => {
            let function = json!({"name": name, "arguments": args.to_string()});
            let call =
                json!({"index": 0, "id": format!("call_{turn}"), "type": "function", "function": function});
            (json!({"role": "assistant", "content": "Next.", "tool_calls": [call]}), "tool_calls")
        }
        None => (json!({"role": "assistant", "content": "All of it is done."}), "stop"),
    };
    let usage = json!({"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "bench", "choices": [],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}});
    vec![chunk(delta, Value::Null), chunk(json!({}), json!(finish)), usage.to_string(), "[DONE]".to_owned()]
}

fn call(scenario: Scenario, turn: usize) -> Option<(&'static str, Value)> {
    if turn >= scenario.turns {
        return None;
    }
    Some(match scenario.tool {
        Tool::Command => ("run_command", json!({"command": "true"})),
        Tool::Files if makes_file(turn) => (
            "create_file",
            json!({"path": format!("notes_{turn}.txt"), "content": format!("Note {turn}.\n").repeat(40)}),
        ),
        Tool::Files => ("read_file", json!({"path": format!("notes_{}.txt", turn - 1)})),
    })
}

/// Whether the answer to the request for `turn` makes a file, under [`Tool::Files`].
pub(crate) const fn makes_file(turn: usize) -> bool {
    turn.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_calls_its_tool_so_often_and_then_ends() {
        let scenario = Scenario { tool: Tool::Files, turns: 3, hold_at: None };
        let names: Vec<_> = (0..5).map(|turn| call(scenario, turn).map(|(name, _)| name)).collect();
        assert_eq!(names, [Some("create_file"), Some("read_file"), Some("create_file"), None, None]);
        let chunks = said(scenario, 3);
        assert!(chunks.iter().any(|chunk| chunk.contains(r#""finish_reason":"stop""#)));
        assert_eq!(chunks.last().map(String::as_str), Some("[DONE]"));
    }
}
