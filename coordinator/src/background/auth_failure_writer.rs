//! Background job that periodically writes rejected requests to the audit log.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain, system::write_audit};

/// Shortest interval between two writes. With the limit on events per write it bounds what a flood of wrong
/// tokens can write.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// Writes the counts until shutdown, and once more at shutdown.
pub(crate) async fn write_auth_failures(app: Arc<AppState>) {
    loop {
        let over = tokio::select! {
            () = app.shutdown.cancelled() => true,
            () = tokio::time::sleep(jittered_interval(WRITE_INTERVAL)) => false,
        };
        let events = app.auth_failures.take_events();
        if !events.is_empty() {
            tracing::warn!("requests were rejected for their tokens; see `docket logs system/audit`");
            if let Err(error) = write_audit(&*app.store, events, app.clock.now()).await {
                tracing::error!("could not record rejected requests in the log: {}", error_chain(&error));
            }
        }
        if over {
            return;
        }
    }
}
