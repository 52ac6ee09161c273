//! Waiting for a fact.

use std::time::Duration;

use anyhow::{Result, bail};

/// How long a fact may take before a test gives up: far beyond anything seen on a loaded machine,
/// so that it is never what a test measures.
pub const WAIT_MAX: Duration = Duration::from_secs(90);

/// How often it is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Looks until `fact` has something.
///
/// # Errors
/// It has nothing within [`LONG`]; what it was is named.
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

/// [`until`] for a fact that needs no waiting to be looked at.
///
/// # Errors
/// As there.
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
