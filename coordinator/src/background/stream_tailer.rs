//! Learns of tokens that other coordinators made or revoked, and of limits and budgets that they set.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain, system::FoldError};

/// How often the log is asked: how late a limit may hold at the runs of other coordinators. With the answer's own time it
/// bounds how long a token lives on at other coordinators after it was revoked: two seconds, while the store answers.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the shutdown.
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

/// Logs the first failure of several in a row: without the store no route does anything either.
fn log_once(contents: &str, read: Result<(), FoldError>, is_unread: &mut bool) {
    let was_unread = std::mem::replace(is_unread, read.is_err());
    if let Err(error) = read
        && !was_unread
    {
        tracing::error!("the log's {contents} are not read for now: {}", error_chain(&error));
    }
}
