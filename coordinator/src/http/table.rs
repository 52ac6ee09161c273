//! The API tokens that a coordinator accepts: those of its configuration, and those of the log.
//!
//! Invariants: no token is kept in clear; every entry is compared, each in constant time, so that the time
//! says nothing; a token that is revoked or has expired is not found; where the log goes on with something
//! that cannot be read, none of its tokens is.

use std::{
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docket_schema::{
    event::Envelope,
    ids::{Seq, StreamId, SystemTopic, Timestamp},
    system::{Role, Tokens, TokensError},
    wire::PAGE_EVENTS_MAX,
};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::auth::ApiToken;
use crate::store::{Store, StoreError};

/// The stream that holds them.
pub(crate) const STREAM: StreamId = StreamId::System(SystemTopic::Tokens);

/// The least time between two looks for tokens that are not known.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Reading the log's tokens failed.
#[derive(Debug, thiserror::Error)]
pub enum TokensUnread {
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds does not fold.
    #[error("the log's tokens cannot be read; `docket verify` says more, a newer docket may know them")]
    Log(#[from] TokensError),
}

/// See the module.
#[derive(Debug, Default)]
pub struct TokenTable {
    fixed: Vec<ApiToken>,
    stored: RwLock<Tokens>,
    /// The log goes on with what this build cannot read, which may revoke any of those it could.
    is_unread: AtomicBool,
    /// When the log was last read for a token that was not known.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

impl TokenTable {
    /// A table of these, as far as the log has not been read.
    pub fn new(fixed: Vec<ApiToken>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// Name and role of whoever holds the token of this BLAKE3 at `now`.
    pub fn find(&self, hash: &[u8; 32], now: Timestamp) -> Option<(String, Role)> {
        let mut found = None;
        for entry in &self.fixed {
            if bool::from(entry.hash.ct_eq(hash)) {
                found = Some((entry.name.clone(), entry.role));
            }
        }
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        for record in stored.all() {
            let same = bool::from(record.made.hash.0.ct_eq(hash));
            if same && record.is_good(now) && !self.is_unread.load(Ordering::Relaxed) {
                found = Some((record.made.name.to_string(), record.made.role));
            }
        }
        found
    }

    /// Whether the configuration has a token of this name.
    pub(crate) fn is_fixed(&self, name: &str) -> bool {
        self.fixed.iter().any(|entry| entry.name == name)
    }

    /// The log's tokens, as far as they were read.
    pub(crate) fn stored(&self) -> Tokens {
        self.stored.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn head(&self) -> Seq {
        self.stored.read().unwrap_or_else(PoisonError::into_inner).head()
    }

    /// Reads what the log has that the table lacks. Any number of callers may do so at once.
    pub(crate) async fn catch_up(&self, store: &dyn Store) -> Result<(), TokensUnread> {
        loop {
            let page = store.read(STREAM, self.head(), PAGE_EVENTS_MAX).await?;
            let is_last = page.len() < PAGE_EVENTS_MAX as usize;
            self.fold(&page)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Catches up for somebody whose token is not known. However many ask, the log is read at most once in
    /// [`LOOK_AGAIN`], and whoever asks is answered by a look that began after: those who wait share it.
    pub(crate) async fn look_again(&self, store: &dyn Store) -> Result<(), TokensUnread> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if let Some(at) = *looked {
            if at >= asked {
                return Ok(());
            }
            tokio::time::sleep_until(at + LOOK_AGAIN).await;
        }
        *looked = Some(Instant::now());
        self.catch_up(store).await
    }

    fn fold(&self, page: &[Envelope]) -> Result<(), TokensError> {
        let mut stored = self.stored.write().unwrap_or_else(PoisonError::into_inner);
        for event in page {
            // Another may have read the same meanwhile.
            if event.seq > stored.head() {
                stored
                    .apply(&event.by_ref())
                    .inspect_err(|_| self.is_unread.store(true, Ordering::Relaxed))?;
            }
        }
        self.is_unread.store(false, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_its_tokens_and_no_other() {
        let table = TokenTable::new(vec![
            ApiToken::of("ann", Role::Admin, "one"),
            ApiToken::of("bob", Role::Read, "two"),
        ]);
        let now = Timestamp(0);
        let find = |token: &str| table.find(blake3::hash(token.as_bytes()).as_bytes(), now);
        assert_eq!(find("two"), Some(("bob".to_owned(), Role::Read)));
        assert!(find("").is_none() && find("three").is_none());
        assert!(table.is_fixed("ann") && !table.is_fixed("one"));
    }
}
