//! Learns of tokens that other coordinators made or revoked.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::jittered;
use crate::{
    http::{TokenTable, error_chain},
    store::Store,
};

/// How often the log is asked. With the answer's own time it bounds how long a token lives on at other
/// coordinators after it was revoked: two seconds, while the store answers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until `shutdown`.
pub(crate) async fn follow_tokens(
    store: Arc<dyn Store>,
    table: Arc<TokenTable>,
    shutdown: CancellationToken,
) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(LOOK_EVERY)) => {}
        }
        match table.catch_up(&*store).await {
            Ok(()) => failing = false,
            Err(error) => {
                // Once, not each second: without the store no route does anything either.
                if !failing {
                    tracing::error!("the log's tokens are not read for now: {}", error_chain(&error));
                }
                failing = true;
            }
        }
    }
}
