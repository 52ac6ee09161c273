//! Says in the log that the store's writer is stuck, what it waits for, and that it works again. `/readyz` says the
//! same to probes; neither changes anything.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    http::error_chain,
    store::{Store, WriterStall},
};

/// How often the writers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A stall that lasts is said again after so many looks.
const LOOKS_PER_LINE: u32 = 60;

/// Watches the writers. Runs until `shutdown`.
pub(crate) async fn watch_writers(store: Arc<dyn Store>, shutdown: CancellationToken) {
    let mut stalled_looks = 0_u32;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        match store.writer_stall() {
            Some(stall) => {
                if stalled_looks.is_multiple_of(LOOKS_PER_LINE) {
                    log_stall(&*store, &stall).await;
                }
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

async fn log_stall(store: &dyn Store, stall: &WriterStall) {
    tracing::error!("{stall}; requests that write are not answered until it works again");
    match store.lock_holders().await {
        Ok(holders) => {
            for holder in holders {
                tracing::error!("{holder}");
            }
        }
        Err(error) => tracing::warn!("who holds a lock is not known: {}", error_chain(&error)),
    }
}
