//! A synthetic model: OpenAI Chat Completions over HTTP on loopback, streamed, recording when each
//! request arrived and when the last byte of its response was sent.
//!
//! Every run has its own path, and with it a scenario: which tool is called at each turn, how often, and
//! where the model holds back its response until it is released.

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

/// Maximum size of a request.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Time limit for a request to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The tool that the model calls at each turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScenarioTool {
    /// Alternately `create_file` and `read_file`.
    Files,
    /// `run_command` with `true`.
    Command,
}

/// One run's conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelScenario {
    pub(crate) tool: ScenarioTool,
    /// Number of tool turns before the final message.
    pub(crate) turns: usize,
    /// The request (from 0) whose response is held back once.
    pub(crate) hold_at: Option<usize>,
}

/// A request and its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestMark {
    /// The requested turn, from 0.
    pub(crate) turn: usize,
    /// When its head was read.
    pub(crate) arrived_at: Instant,
    /// When the last piece of its response was handed to the connection.
    pub(crate) answered_at: Option<Instant>,
}

#[derive(Default)]
struct ScenarioRun {
    scenario: Option<ModelScenario>,
    marks: Vec<RequestMark>,
    is_held: bool,
}

struct ServerState {
    runs: Mutex<HashMap<String, ScenarioRun>>,
    arrivals: Notify,
    /// Held-back responses wait for a permit.
    release: Semaphore,
}

/// The server, which ends when dropped.
pub(crate) struct ModelServer {
    state: Arc<ServerState>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl ModelServer {
    /// Starts on a free port of loopback.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the synthetic model")?;
        let address = listener.local_addr()?;
        let listener = listener.tap_io(|stream| {
            // Without it, Nagle's algorithm would be measured instead of docket.
            drop(stream.set_nodelay(true));
        });
        let shared = Arc::new(ServerState {
            runs: Mutex::default(),
            arrivals: Notify::new(),
            release: Semaphore::new(0),
        });
        let router = Router::new()
            .route("/{run}/chat/completions", post(handle_request))
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It serves until it is aborted.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self { state: shared, address, serving })
    }

    /// Returns a model that plays `scenario`, under its own name.
    pub(crate) fn model_ref(&self, run: &str, scenario: ModelScenario) -> ModelRef {
        self.state
            .runs()
            .insert(run.to_owned(), ScenarioRun { scenario: Some(scenario), ..ScenarioRun::default() });
        ModelRef {
            provider: "openai".to_owned(),
            name: "bench".to_owned(),
            base_url: Some(format!("http://{}/{run}", self.address)),
        }
    }

    /// Waits until `count` requests of `run` have arrived; returns all of them.
    pub(crate) async fn wait_for_requests(
        &self,
        run: &str,
        count: usize,
    ) -> anyhow::Result<Vec<RequestMark>> {
        self.wait_for_requests_within(run, count, ARRIVAL_TIMEOUT).await
    }

    /// Like [`ModelServer::wait_for_requests`], with a longer time limit.
    pub(crate) async fn wait_for_requests_within(
        &self,
        run: &str,
        count: usize,
        timeout: Duration,
    ) -> anyhow::Result<Vec<RequestMark>> {
        let enough = async {
            loop {
                let news = self.state.arrivals.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                let marks = self.state.runs().get(run).map(|run| run.marks.clone()).unwrap_or_default();
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

    /// Returns all requests of `run` so far.
    pub(crate) fn marks(&self, run: &str) -> Vec<RequestMark> {
        self.state.runs().get(run).map(|run| run.marks.clone()).unwrap_or_default()
    }

    /// Releases the held-back response.
    pub(crate) fn release(&self) {
        self.state.release.add_permits(1);
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ServerState {
    fn runs(&self) -> MutexGuard<'_, HashMap<String, ScenarioRun>> {
        // No code panics while holding the lock, and marks are always consistent.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the request; returns the scenario, and whether its response is to be held back.
    fn record_arrival(&self, name: &str, turn: usize, came: Instant) -> Option<(ModelScenario, usize, bool)> {
        let mut runs = self.runs();
        let run = runs.get_mut(name)?;
        let scenario = run.scenario?;
        run.marks.push(RequestMark { turn, arrived_at: came, answered_at: None });
        let hold = scenario.hold_at == Some(turn) && !run.is_held;
        run.is_held |= hold;
        Some((scenario, run.marks.len() - 1, hold))
    }

    fn record_answer(&self, name: &str, mark: usize) {
        if let Some(mark) = self.runs().get_mut(name).and_then(|run| run.marks.get_mut(mark)) {
            mark.answered_at = Some(Instant::now());
        }
    }
}

#[derive(Deserialize)]
struct ChatRequest {
    messages: Vec<ChatMessage>,
}

#[derive(Deserialize)]
struct ChatMessage {
    role: String,
}

async fn handle_request(
    State(shared): State<Arc<ServerState>>,
    Path(run): Path<String>,
    request: Request,
) -> Response<Body> {
    let came = Instant::now();
    let Ok(body) = to_bytes(request.into_body(), REQUEST_BYTES_MAX).await else { return bad_request() };
    let Ok(asked) = serde_json::from_slice::<ChatRequest>(&body) else { return bad_request() };
    let turn = asked.messages.iter().filter(|message| message.role == "assistant").count();
    let Some((scenario, mark, hold)) = shared.record_arrival(&run, turn, came) else { return bad_request() };
    shared.arrivals.notify_waiters();
    if hold {
        // If the client disconnects, this is dropped and takes no permit.
        match shared.release.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return bad_request(),
        }
    }
    let pieces = response_chunks(scenario, turn);
    let last = pieces.len() - 1;
    let pieces = pieces.into_iter().enumerate().map(move |(at, piece)| {
        if at == last {
            shared.record_answer(&run, mark);
        }
        Ok::<_, Infallible>(Bytes::from(format!("data: {piece}\n\n")))
    });
    let mut response = Response::new(Body::from_stream(stream::iter(pieces)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn bad_request() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Returns the chunks of the response for `turn`.
fn response_chunks(scenario: ModelScenario, turn: usize) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "bench",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
    };
    let (delta, finish) = match scenario_call(scenario, turn) {
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

fn scenario_call(scenario: ModelScenario, turn: usize) -> Option<(&'static str, Value)> {
    if turn >= scenario.turns {
        return None;
    }
    Some(match scenario.tool {
        ScenarioTool::Command => ("run_command", json!({"command": "true"})),
        ScenarioTool::Files if creates_file(turn) => (
            "create_file",
            json!({"path": format!("notes_{turn}.txt"), "content": format!("Note {turn}.\n").repeat(40)}),
        ),
        ScenarioTool::Files => ("read_file", json!({"path": format!("notes_{}.txt", turn - 1)})),
    })
}

/// Returns whether the response for `turn` creates a file, with [`ScenarioTool::Files`].
pub(crate) const fn creates_file(turn: usize) -> bool {
    turn.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_calls_its_tool_each_turn_and_then_ends() {
        let scenario = ModelScenario { tool: ScenarioTool::Files, turns: 3, hold_at: None };
        let names: Vec<_> = (0..5).map(|turn| scenario_call(scenario, turn).map(|(name, _)| name)).collect();
        assert_eq!(names, [Some("create_file"), Some("read_file"), Some("create_file"), None, None]);
        let chunks = response_chunks(scenario, 3);
        assert!(chunks.iter().any(|chunk| chunk.contains(r#""finish_reason":"stop""#)));
        assert_eq!(chunks.last().map(String::as_str), Some("[DONE]"));
    }
}
