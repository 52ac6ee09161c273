//! Says in the log that the store's writer is stuck, what it waits for, and that it works again. `/readyz` says the
//! same to probes; neither changes anything.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, error_chain::error_chain, store::Store};

/// How often the writers are looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A stall that lasts is said again after so many looks.
const POLLS_PER_LOG_LINE: u32 = 60;

/// Watches the writers. Runs until the shutdown.
pub(crate) async fn watch_writers(app: Arc<AppState>) {
    let (mut stalled_looks, mut are_holders_named) = (0_u32, false);
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        match app.store.writer_stall() {
            Some(stall) => {
                if stalled_looks.is_multiple_of(POLLS_PER_LOG_LINE) {
                    tracing::error!("{stall}; requests that write are not answered until it works again");
                    are_holders_named = false;
                }
                // Between two tries the writer waits for none: the next look finds them.
                are_holders_named = are_holders_named || log_lock_holders(&*app.store).await;
                stalled_looks += 1;
            }
            None if stalled_looks > 0 => {
                stalled_looks = 0;
                tracing::warn!("the store's writer makes progress again");
            }
            None => {}
        }
    }
}

/// Whether there was a session to name.
async fn log_lock_holders(store: &dyn Store) -> bool {
    match store.lock_holders().await {
        Ok(holders) => {
            for holder in &holders {
                tracing::error!("{holder}");
            }
            !holders.is_empty()
        }
        Err(error) => {
            tracing::debug!("who holds a lock is not known: {}", error_chain(&error));
            false
        }
    }
}
