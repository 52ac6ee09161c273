//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second for one at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::error::CliResult;

/// The two wishes.
#[derive(Debug, Clone)]
pub(crate) struct StopSignals {
    /// End in order: runs finish their turn.
    pub(crate) drain: CancellationToken,
    /// End at once.
    pub(crate) abort: CancellationToken,
}

impl StopSignals {
    /// Listens from here on.
    pub(crate) fn listen() -> CliResult<Self> {
        let stop = Self { drain: CancellationToken::new(), abort: CancellationToken::new() };
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let heard = stop.clone();
        // Lives as long as the process: it owns nothing that would have to be put away.
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
