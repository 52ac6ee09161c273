//! Learns how fast model providers may be asked from what others set.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::jittered;
use crate::http::{Api, error_chain};

/// How often the log is asked: how late a limit may hold at the runs of other coordinators.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until `shutdown`.
pub(crate) async fn follow_limits(api: Arc<Api>, shutdown: CancellationToken) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(LOOK_EVERY)) => {}
        }
        match api.model_limits.catch_up(&*api.store).await {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::error!("the log's limits are not read for now: {}", error_chain(&error));
                }
                failing = true;
            }
        }
    }
}
