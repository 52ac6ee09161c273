//! Background job that logs when a store writer is stuck, what it waits for, and when it recovers. `/readyz`
//! reports the same to probes; neither changes anything.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, error_chain::error_chain, store::Store};

/// How often the writers are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A continuing stall is logged again after this many polls.
const POLLS_PER_LOG_LINE: u32 = 60;

/// Watches the writers until shutdown.
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
                    tracing::error!("{stall}; writes are blocked until it recovers");
                    are_holders_named = false;
                }
                // Between two tries the writer holds no lock request, so the holders may only be found at a
                // later poll.
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

/// Logs the sessions that hold the locks; returns whether there were any.
async fn log_lock_holders(store: &dyn Store) -> bool {
    match store.lock_holders().await {
        Ok(holders) => {
            for holder in &holders {
                tracing::error!("{holder}");
            }
            !holders.is_empty()
        }
        Err(error) => {
            tracing::debug!("cannot determine the lock holders: {}", error_chain(&error));
            false
        }
    }
}
