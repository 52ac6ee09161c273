//! Background job that tails system streams, to pick up tokens, limits and budgets set on other coordinators.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain, system::FoldError};

/// How often the log is polled. With the store's response time it bounds how long a revoked token stays valid
/// on other coordinators (two seconds while the store responds) and how late a limit applies there.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Tails the streams until shutdown.
pub(crate) async fn tail_streams(app: Arc<AppState>) {
    let (mut are_tokens_unread, mut are_limits_unread) = (false, false);
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered_interval(POLL_INTERVAL)) => {}
        }
        let (tokens, limits) = tokio::join!(app.tokens.fold.catch_up(&*app.store), read_limits(&app));
        log_once("tokens", tokens, &mut are_tokens_unread);
        log_once("limits", limits, &mut are_limits_unread);
    }
}

async fn read_limits(app: &AppState) -> Result<(), FoldError> {
    app.provider_limits.fold.catch_up(&*app.store).await?;
    app.has_budgets.store(app.store.has_budgets().await?, Ordering::Relaxed);
    Ok(())
}

/// Logs only the first of several consecutive failures: without the store no route works either.
fn log_once(contents: &str, read: Result<(), FoldError>, is_unread: &mut bool) {
    let was_unread = std::mem::replace(is_unread, read.is_err());
    if let Err(error) = read
        && !was_unread
    {
        tracing::error!("cannot read the log's {contents}: {}", error_chain(&error));
    }
}
