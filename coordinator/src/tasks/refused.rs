//! Writes down, now and then, which calls were refused.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::jittered;
use crate::http::{Api, error_chain, write_audit};

/// How often at most. With the events of one writing it bounds what a flood of wrong tokens writes.
const EVERY: Duration = Duration::from_secs(60);

/// Runs until `shutdown`, and once more then.
pub(crate) async fn write_refused(api: Arc<Api>, shutdown: CancellationToken) {
    loop {
        let over = tokio::select! {
            () = shutdown.cancelled() => true,
            () = tokio::time::sleep(jittered(EVERY)) => false,
        };
        let events = api.refused.take();
        if !events.is_empty() {
            tracing::warn!("calls were refused for their tokens; see `docket logs system/audit`");
            if let Err(error) = write_audit(&*api.store, events, api.clock.now()).await {
                tracing::error!("refused calls are not in the log: {}", error_chain(&error));
            }
        }
        if over {
            return;
        }
    }
}
