//! Ctrl-C and SIGTERM: the first requests an orderly shutdown, the second an immediate one.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::error::CliResult;

/// The two requests.
#[derive(Debug, Clone)]
pub(crate) struct StopSignals {
    /// Shut down in order: runs finish their turn.
    pub(crate) drain: CancellationToken,
    /// Stop immediately.
    pub(crate) abort: CancellationToken,
}

impl StopSignals {
    /// Starts listening.
    pub(crate) fn listen() -> CliResult<Self> {
        let stop = Self { drain: CancellationToken::new(), abort: CancellationToken::new() };
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let heard = stop.clone();
        // Lives as long as the process, and owns nothing that needs cleanup.
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupts.recv() => {}
                    _ = terminations.recv() => {}
                }
                if heard.drain.is_cancelled() {
                    heard.abort.cancel();
                } else {
                    heard.drain.cancel();
                }
            }
        });
        Ok(stop)
    }
}
