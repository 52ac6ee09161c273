//! One session with an MCP server: its process in the sandbox, from start to exit.

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
use docket_sandbox::{CommandExit, CommandIo, CommandOutput, CommandSpec, Sandbox, SandboxError, SecretEnv};
use docket_schema::{policy::AllowList, tool::NetworkActivity};
use futures_util::stream;
use rmcp::{
    Peer, RoleClient, ServiceError, ServiceExt as _, service::ClientInitializeError,
    transport::DynamicTransportError,
};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, mpsc::error::TrySendError, oneshot, watch},
    time::timeout,
};
use tokio_util::io::StreamReader;

use super::McpServer;
use crate::tools;

/// Most chunks of server output, up to 64 KiB each, that may be queued.
const PENDING_CHUNKS_MAX: usize = 256;
/// Largest message, in bytes: anything larger is no use to a model, and is buffered until it is complete.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of all messages of a session, which makes a single request.
const SESSION_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of the server's stderr that are retained.
const STDERR_BYTES_MAX: usize = 8 * 1024;
/// How long a server may take to exit and save its state after its stdin is closed.
const END_GRACE: Duration = Duration::from_secs(2);
const FLOOD_ERROR: &str = "it says more than is read: 16 MiB in one message, 64 MiB in all";
/// Longest excerpt of an error that a server returns, in characters.
const ERROR_CHARS_MAX: usize = 2000;
/// Longest excerpt of stderr in an error, in characters.
const STDERR_CHARS_MAX: usize = 600;

#[derive(Debug, Clone, Default)]
pub(crate) struct McpServers {
    /// The servers by name.
    pub(crate) by_name: BTreeMap<String, McpServer>,
    /// Variables that they inherit from the worker's environment.
    pub(crate) inherited_env: SecretEnv,
}

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub enum McpSessionError {
    /// The process could not be started.
    #[error("it cannot be started: {0}")]
    Start(#[from] SandboxError),
    /// The worker lacks a variable that the server inherits.
    #[error("it is given the variable `{name}` of the worker's environment, where it is not set")]
    MissingVariable {
        /// The variable's name.
        name: String,
    },
    /// The protocol exchange failed.
    #[error("{what}{said}")]
    Broken {
        /// What failed.
        what: String,
        /// The end of the server's stderr, formatted for appending.
        said: String,
    },
}

/// Result of a session.
pub(super) struct McpSessionResult<T> {
    /// The server's reply.
    pub(super) reply: Result<T, McpSessionError>,
    /// The process's network activity, if it had the network.
    pub(super) network: Option<NetworkActivity>,
    /// Protected paths that the process changed and that were restored.
    pub(super) restored_paths: Vec<String>,
}

/// Starts a server, runs one exchange with it and waits for it to exit.
pub(super) async fn run_session<T, F: Future<Output = Result<T, String>>>(
    sandbox: &Sandbox,
    (server, given): (&McpServer, &SecretEnv),
    (time, network): (Duration, Option<Arc<AllowList>>),
    ask: impl FnOnce(Peer<RoleClient>) -> F,
) -> McpSessionResult<T> {
    let env = match server.resolve_env(given) {
        Ok(env) => env,
        Err(name) => {
            return McpSessionResult {
                reply: Err(McpSessionError::MissingVariable { name }),
                network: None,
                restored_paths: Vec::new(),
            };
        }
    };
    let (stdin, input) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    let (pieces, output) = mpsc::channel(PENDING_CHUNKS_MAX);
    let floods = Arc::new(AtomicBool::new(false));
    let stdout = Some(output_listener(pieces, Arc::clone(&floods)));
    let heard = CommandIo { stdout, stdin: Some(stdin), stop: Some(stopped), ..CommandIo::default() };
    let mut spec = CommandSpec::new(server.argv());
    (spec.timeout, spec.keep_bytes_max, spec.network, spec.env) = (time, STDERR_BYTES_MAX, network, env);
    let mut process = pin!(sandbox.run_with_io(spec, heard));
    let mut talk = pin!(exchange_messages(input, output, ask));
    let (answer, ended) = tokio::select! {
        answer = &mut talk => {
            // Its stdin was closed; a server that ignores that is killed.
            let ended = match timeout(END_GRACE, &mut process).await {
                Ok(ended) => ended,
                Err(_) => {
                    let _ = stop.send(true);
                    process.await
                }
            };
            (answer, ended)
        }
        // Output written before the exit can still be read.
        ended = &mut process => (talk.await, ended),
    };
    match ended {
        Err(error) => {
            McpSessionResult { reply: Err(error.into()), network: None, restored_paths: Vec::new() }
        }
        Ok(output) => {
            let floods = floods.load(Ordering::Relaxed);
            let answer = answer.map_err(|what| match floods {
                true => session_error(FLOOD_ERROR.to_owned(), &output, None),
                false => session_error(
                    truncate_error(&what) + exit_hint(&output.exit, server),
                    &output,
                    Some(time),
                ),
            });
            McpSessionResult { reply: answer, network: output.network, restored_paths: output.restored_paths }
        }
    }
}

/// Forwards a server's output. Output beyond the limits is cut off, and `floods` is set.
fn output_listener(
    pieces: mpsc::Sender<io::Result<Bytes>>,
    floods: Arc<AtomicBool>,
) -> docket_sandbox::OutputListener {
    let (mut pieces, mut all, mut message) = (Some(pieces), 0_usize, 0_usize);
    Box::new(move |piece: &[u8]| {
        all = all.saturating_add(piece.len());
        // A message ends at a newline.
        message = match piece.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => piece.len() - end - 1,
            None => message.saturating_add(piece.len()),
        };
        let Some(to) = &pieces else { return };
        let sent = match to.try_send(Ok(Bytes::copy_from_slice(piece))) {
            Ok(()) => message <= MESSAGE_BYTES_MAX && all <= SESSION_BYTES_MAX,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Closed(_)) => return pieces = None,
        };
        if !sent {
            floods.store(true, Ordering::Relaxed);
        }
        // An empty chunk marks the end.
        if piece.is_empty() || !sent {
            pieces = None;
        }
    })
}

async fn exchange_messages<T, F: Future<Output = Result<T, String>>>(
    input: oneshot::Receiver<OwnedFd>,
    output: mpsc::Receiver<io::Result<Bytes>>,
    ask: impl FnOnce(Peer<RoleClient>) -> F,
) -> Result<T, String> {
    let input = input.await.map_err(|_| "it ended before it could be asked".to_owned())?;
    let input = pipe::Sender::from_owned_fd(input)
        .map_err(|error| format!("its input cannot be written: {error}"))?;
    let output = stream::unfold(output, |mut output| async { Some((output.recv().await?, output)) });
    let output = StreamReader::new(Box::pin(output));
    let client = ().serve((output, input)).await.map_err(describe_start_error)?;
    let answer = ask(client.peer().clone()).await;
    // Closes the server's stdin.
    let _ = client.cancel().await;
    answer
}

/// Describes why a session did not begin.
fn describe_start_error(error: ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => describe_closed_input(&error),
        other => format!("it does not speak MCP: {other}"),
    }
}

/// Describes why a request failed.
pub(super) fn describe_request_error(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => describe_closed_input(error),
        other => other.to_string(),
    }
}

/// The library's own text contains the names of our types, which are so long that nothing of the server's
/// stderr would remain in an excerpt.
fn describe_closed_input(error: &DynamicTransportError) -> String {
    format!("it does not read its input: {}", error.error)
}

/// Returns the printable beginning of an error, which may quote the server.
fn truncate_error(what: &str) -> String {
    let what = tools::printable_text(what.as_bytes());
    let short: String = what.chars().take(ERROR_CHARS_MAX).collect();
    if short.len() < what.len() { short + " […]" } else { short }
}

/// A likely reason why a server exited by itself.
const fn exit_hint(ended: &CommandExit, server: &McpServer) -> &'static str {
    match ended {
        CommandExit::Exit(status) if *status != 0 => server.start_hint(),
        CommandExit::Exit(_) | CommandExit::Signal(_) | CommandExit::TimedOut | CommandExit::Exceeded(_) => {
            ""
        }
    }
}

/// Builds the error of a broken session; `time` is the time limit, if it can be the cause.
fn session_error(what: String, output: &CommandOutput, time: Option<Duration>) -> McpSessionError {
    let Some(time) = time else { return McpSessionError::Broken { what, said: stderr_tail(output) } };
    let what = match output.exit {
        CommandExit::TimedOut => format!("it did not answer within {:.1} s", time.as_secs_f64()),
        CommandExit::Exceeded(what) => {
            format!("it was ended, for it used more {} than allowed", what.as_noun())
        }
        CommandExit::Exit(status) if status != 0 => format!("it ended with status {status}: {what}"),
        CommandExit::Exit(_) => what,
        CommandExit::Signal(signal) => format!("it was ended by signal {signal}: {what}"),
    };
    McpSessionError::Broken { what, said: stderr_tail(output) }
}

/// Formats the end of the server's stderr.
fn stderr_tail(output: &CommandOutput) -> String {
    let said = tools::printable_text(&output.stderr.bytes);
    let said = said.trim();
    let skipped = said.chars().count().saturating_sub(STDERR_CHARS_MAX);
    let last: String = said.chars().skip(skipped).collect();
    if last.is_empty() { String::new() } else { format!("\nit said: {last}") }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use super::*;

    #[test]
    fn closed_input_is_described_without_type_names() {
        let transport = || {
            let closed = io::Error::from(io::ErrorKind::BrokenPipe);
            DynamicTransportError::from_parts("long::Type<Name>", TypeId::of::<()>(), Box::new(closed))
        };
        let start =
            ClientInitializeError::TransportError { error: transport(), context: "send initialize".into() };
        let text = "it does not read its input: broken pipe";
        assert_eq!(describe_start_error(start), text);
        assert_eq!(describe_request_error(&ServiceError::TransportSend(transport())), text);
    }
}
