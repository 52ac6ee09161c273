//! One session with a server: its process in the sandbox, from its start to its end.

use std::{future::Future, io, os::fd::OwnedFd, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use docket_schema::{policy::AllowList, tool::NetworkSeen};
use futures_util::stream;
use rmcp::{Peer, RoleClient, ServiceExt as _};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::io::StreamReader;

use super::McpServer;
use crate::{
    sandbox::{CommandOutput, CommandSpec, Ended, Heard, Sandbox, SandboxError},
    tools,
};

/// Pieces of a server's answers, of up to 64 KiB each, that may wait to be read: a message that is larger is no answer to
/// a model.
const PIECES_MAX: usize = 256;
/// What is kept of what a server says beside the protocol.
const KEEP_BYTES_MAX: usize = 8 * 1024;
/// How long a server may take to end by itself once its input has ended, so that it can put down what it holds.
const END_GRACE: Duration = Duration::from_secs(2);
/// Characters of its standard error that an error shows.
const SAID_CHARS_MAX: usize = 600;

/// Why a session came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Its process cannot be started.
    #[error("it cannot be started: {0}")]
    Start(#[from] SandboxError),
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
    server: &McpServer,
    (time, network): (Duration, Option<Arc<AllowList>>),
    ask: impl FnOnce(Peer<RoleClient>) -> F,
) -> Held<T> {
    let (stdin, input) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    let (pieces, output) = mpsc::channel(PIECES_MAX);
    let heard =
        Heard { stdout: Some(listener(pieces)), stdin: Some(stdin), stop: Some(stopped), ..Heard::default() };
    let mut spec = CommandSpec::new(server.command.iter().map(String::as_str));
    (spec.timeout, spec.keep_bytes_max, spec.network) = (time, KEEP_BYTES_MAX, network);
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
            let answer = answer.map_err(|what| broken(what, &output, time));
            Held { answer, network: output.network, put_back: output.put_back }
        }
    }
}

/// Hands on what a server says. One that says more than anybody reads is cut off there.
fn listener(pieces: mpsc::Sender<io::Result<Bytes>>) -> crate::sandbox::Listener {
    let mut pieces = Some(pieces);
    Box::new(move |piece: &[u8]| {
        let sent = pieces.as_ref().is_some_and(|to| to.try_send(Ok(Bytes::copy_from_slice(piece))).is_ok());
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

fn broken(what: String, output: &CommandOutput, time: Duration) -> SessionError {
    let what = match output.ended {
        Ended::TimedOut => format!("it did not answer within {:.1} s", time.as_secs_f64()),
        Ended::Exceeded(what) => format!("it was ended, for it used more {} than allowed", what.noun()),
        Ended::Exit(status) if status != 0 => format!("it ended with status {status}: {what}"),
        Ended::Exit(_) => what,
        Ended::Signal(signal) => format!("it was ended by signal {signal}: {what}"),
    };
    let said = tools::printable(&output.stderr.bytes);
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(SAID_CHARS_MAX);
    let last: String = said.chars().skip(skipped).collect();
    let said = if last.is_empty() { String::new() } else { format!("\nit said: {last}") };
    SessionError::Broken { what, said }
}
