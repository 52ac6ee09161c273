//! Learns how fast model providers may be asked from what others set.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::jittered;
use crate::{
    http::{Api, error_chain},
    limits::LimitError,
};

/// How often the log is asked: how late a limit may hold at the runs of other coordinators.
const LOOK_EVERY: Duration = Duration::from_secs(1);

async fn look(api: &Api) -> Result<(), LimitError> {
    api.model_limits.catch_up(&*api.store).await?;
    api.budgets.store(api.store.has_budgets().await?, Ordering::Relaxed);
    Ok(())
}

/// Runs until `shutdown`.
pub(crate) async fn follow_limits(api: Arc<Api>, shutdown: CancellationToken) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(LOOK_EVERY)) => {}
        }
        match look(&api).await {
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
