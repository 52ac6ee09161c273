//! Writes down, now and then, which calls were refused.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain, system::write_audit};

/// How often at most. With the events of one writing it bounds what a flood of wrong tokens writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the shutdown, and once more then.
pub(crate) async fn write_auth_failures(app: Arc<AppState>) {
    loop {
        let over = tokio::select! {
            () = app.shutdown.cancelled() => true,
            () = tokio::time::sleep(jittered_interval(WRITE_INTERVAL)) => false,
        };
        let events = app.auth_failures.take_events();
        if !events.is_empty() {
            tracing::warn!("calls were refused for their tokens; see `docket logs system/audit`");
            if let Err(error) = write_audit(&*app.store, events, app.clock.now()).await {
                tracing::error!("refused calls are not in the log: {}", error_chain(&error));
            }
        }
        if over {
            return;
        }
    }
}
