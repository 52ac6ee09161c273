//! Waiting for a condition.

use std::time::Duration;

use anyhow::{Result, bail};

/// How long to wait before a test gives up: far longer than anything seen on a loaded machine, so
/// that no test measures it.
pub const WAIT_MAX: Duration = Duration::from_secs(90);

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls until `fact` returns a value.
///
/// # Errors
/// Returns an error that names `what` if there is none within [`WAIT_MAX`].
pub async fn wait_until<T>(what: &str, mut fact: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = fact().await {
            return Ok(found);
        }
        if tokio::time::Instant::now() >= deadline {
            bail!("waited in vain: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Like [`wait_until`], for a synchronous check.
///
/// # Errors
/// See [`wait_until`].
pub async fn poll_until<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = fact() {
            return Ok(found);
        }
        if tokio::time::Instant::now() >= deadline {
            bail!("waited in vain: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
