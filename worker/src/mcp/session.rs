//! One session with a server: its process in the sandbox, from its start to its end.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use docket_sandbox::{CommandOutput, CommandSpec, Ended, Heard, HiddenEnv, Sandbox, SandboxError};
use docket_schema::{policy::AllowList, tool::NetworkSeen};
use futures_util::stream;
use rmcp::{Peer, RoleClient, ServiceExt as _};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, mpsc::error::TrySendError, oneshot, watch},
    time::timeout,
};
use tokio_util::io::StreamReader;

use super::McpServer;
use crate::tools;

/// Pieces of a server's answers, of up to 64 KiB each, that may wait to be read.
const PIECES_MAX: usize = 256;
/// Bytes of one message: what is larger is no answer to a model, and stands in memory until its end is there.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of all messages of a session: it asks one thing.
const SAID_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What is kept of what a server says beside the protocol.
const KEEP_BYTES_MAX: usize = 8 * 1024;
/// How long a server may take to end by itself once its input has ended, so that it can put down what it holds.
const END_GRACE: Duration = Duration::from_secs(2);
/// What is told of a server that is cut off.
const FLOODS: &str = "it says more than is read: 16 MiB in one message, 64 MiB in all";
/// Characters of an error that a server answers with which are told.
const WHAT_CHARS_MAX: usize = 2000;
/// Characters of its standard error that an error shows.
const SAID_CHARS_MAX: usize = 600;

/// The servers of a worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Servers {
    /// They, by name.
    pub(crate) all: BTreeMap<String, McpServer>,
    /// What they take of the worker's environment.
    pub(crate) given: HiddenEnv,
}

/// Why a session came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Its process cannot be started.
    #[error("it cannot be started: {0}")]
    Start(#[from] SandboxError),
    /// The worker lacks what it is to be given.
    #[error("it is given the variable `{name}` of the worker's environment, where it is not set")]
    NotSet {
        /// Its name.
        name: String,
    },
    /// The protocol broke.
    #[error("{what}{said}")]
    Broken {
        /// How.
        what: String,
        /// What the server said beside it.
        said: String,
    },
}

/// What came of a session.
pub(super) struct Held<T> {
    /// What was asked.
    pub(super) answer: Result<T, SessionError>,
    /// What its process did on the network, where it had it.
    pub(super) network: Option<NetworkSeen>,
    /// Protected paths that it changed, and that are as before again.
    pub(super) put_back: Vec<String>,
}

/// Starts a server, asks it, and sees to its end.
pub(super) async fn hold<T, F: Future<Output = Result<T, String>>>(
    sandbox: &Sandbox,
    (server, given): (&McpServer, &HiddenEnv),
    (time, network): (Duration, Option<Arc<AllowList>>),
    ask: impl FnOnce(Peer<RoleClient>) -> F,
) -> Held<T> {
    let env = match server.environment(given) {
        Ok(env) => env,
        Err(name) => {
            return Held { answer: Err(SessionError::NotSet { name }), network: None, put_back: Vec::new() };
        }
    };
    let (stdin, input) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    let (pieces, output) = mpsc::channel(PIECES_MAX);
    let floods = Arc::new(AtomicBool::new(false));
    let stdout = Some(listener(pieces, Arc::clone(&floods)));
    let heard = Heard { stdout, stdin: Some(stdin), stop: Some(stopped), ..Heard::default() };
    let mut spec = CommandSpec::new(server.argv());
    (spec.timeout, spec.keep_bytes_max, spec.network, spec.env) = (time, KEEP_BYTES_MAX, network, env);
    let mut process = pin!(sandbox.run_heard(spec, heard));
    let mut talk = pin!(talk(input, output, ask));
    let (answer, ended) = tokio::select! {
        answer = &mut talk => {
            // The end of its input was sent; whoever does not heed it is ended.
            let ended = match timeout(END_GRACE, &mut process).await {
                Ok(ended) => ended,
                Err(_) => {
                    let _ = stop.send(true);
                    process.await
                }
            };
            (answer, ended)
        }
        // What it said before its end is there to be read.
        ended = &mut process => (talk.await, ended),
    };
    match ended {
        Err(error) => Held { answer: Err(error.into()), network: None, put_back: Vec::new() },
        Ok(output) => {
            let floods = floods.load(Ordering::Relaxed);
            let answer = answer.map_err(|what| match floods {
                true => broken(FLOODS.to_owned(), &output, None),
                false => broken(in_short(&what) + hint(&output.ended, server), &output, Some(time)),
            });
            Held { answer, network: output.network, put_back: output.put_back }
        }
    }
}

/// Hands on what a server says. One that says more than anybody reads is cut off there, which `floods` tells.
fn listener(pieces: mpsc::Sender<io::Result<Bytes>>, floods: Arc<AtomicBool>) -> docket_sandbox::Listener {
    let (mut pieces, mut all, mut message) = (Some(pieces), 0_usize, 0_usize);
    Box::new(move |piece: &[u8]| {
        all = all.saturating_add(piece.len());
        // A message ends with its line.
        message = match piece.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => piece.len() - end - 1,
            None => message.saturating_add(piece.len()),
        };
        let Some(to) = &pieces else { return };
        let sent = match to.try_send(Ok(Bytes::copy_from_slice(piece))) {
            Ok(()) => message <= MESSAGE_BYTES_MAX && all <= SAID_BYTES_MAX,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Closed(_)) => return pieces = None,
        };
        if !sent {
            floods.store(true, Ordering::Relaxed);
        }
        // The empty piece is the end.
        if piece.is_empty() || !sent {
            pieces = None;
        }
    })
}

async fn talk<T, F: Future<Output = Result<T, String>>>(
    input: oneshot::Receiver<OwnedFd>,
    output: mpsc::Receiver<io::Result<Bytes>>,
    ask: impl FnOnce(Peer<RoleClient>) -> F,
) -> Result<T, String> {
    let input = input.await.map_err(|_| "it ended before it could be asked".to_owned())?;
    let input = pipe::Sender::from_owned_fd(input)
        .map_err(|error| format!("its input cannot be written: {error}"))?;
    let output = stream::unfold(output, |mut output| async { Some((output.recv().await?, output)) });
    let output = StreamReader::new(Box::pin(output));
    let client = ().serve((output, input)).await.map_err(|error| format!("it does not speak MCP: {error}"))?;
    let answer = ask(client.peer().clone()).await;
    // Closes its input.
    let _ = client.cancel().await;
    answer
}

/// What went wrong, in a server's words perhaps: of what is long the beginning.
fn in_short(what: &str) -> String {
    let what = tools::printable(what.as_bytes());
    let short: String = what.chars().take(WHAT_CHARS_MAX).collect();
    if short.len() < what.len() { short + " […]" } else { short }
}

/// What a server that ended by itself may lack.
const fn hint(ended: &Ended, server: &McpServer) -> &'static str {
    match ended {
        Ended::Exit(status) if *status != 0 => server.hint(),
        Ended::Exit(_) | Ended::Signal(_) | Ended::TimedOut | Ended::Exceeded(_) => "",
    }
}

/// How a session broke; `time` is how long it may have taken, where that can be why.
fn broken(what: String, output: &CommandOutput, time: Option<Duration>) -> SessionError {
    let Some(time) = time else { return SessionError::Broken { what, said: said(output) } };
    let what = match output.ended {
        Ended::TimedOut => format!("it did not answer within {:.1} s", time.as_secs_f64()),
        Ended::Exceeded(what) => format!("it was ended, for it used more {} than allowed", what.noun()),
        Ended::Exit(status) if status != 0 => format!("it ended with status {status}: {what}"),
        Ended::Exit(_) => what,
        Ended::Signal(signal) => format!("it was ended by signal {signal}: {what}"),
    };
    SessionError::Broken { what, said: said(output) }
}

/// The end of what a server said beside the protocol.
fn said(output: &CommandOutput) -> String {
    let said = tools::printable(&output.stderr.bytes);
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(SAID_CHARS_MAX);
    let last: String = said.chars().skip(skipped).collect();
    if last.is_empty() { String::new() } else { format!("\nit said: {last}") }
}
