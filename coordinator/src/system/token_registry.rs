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
use tokio::{sync::watch, time::Instant};

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
    /// Told when the log had something on tokens.
    revised: watch::Sender<()>,
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
        let is = |of: &[u8; 32]| bool::from(of.ct_eq(hash));
        self.find_by(now, is).map(|(name, role, _)| (name, role))
    }

    /// Name, role and BLAKE3 of the token that `is` says it is, if it is good at `now`. It is asked of every one.
    pub(crate) fn find_by(
        &self,
        now: Timestamp,
        is: impl Fn(&[u8; 32]) -> bool,
    ) -> Option<(String, Role, [u8; 32])> {
        let mut found = None;
        for entry in &self.fixed {
            if is(&entry.hash) {
                found = Some((entry.name.clone(), entry.role, entry.hash));
            }
        }
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        for record in stored.all() {
            let same = is(&record.made.hash.0);
            if same && record.is_good(now) && !self.is_unread.load(Ordering::Relaxed) {
                found = Some((record.made.name.to_string(), record.made.role, record.made.hash.0));
            }
        }
        found
    }

    /// Changes whenever a token may have been made or revoked.
    pub(crate) fn revised(&self) -> watch::Receiver<()> {
        self.revised.subscribe()
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
        let (had, mut folded) = (stored.head(), Ok(()));
        for event in page {
            // Another may have read the same meanwhile.
            if folded.is_ok() && event.seq > stored.head() {
                folded = stored.apply(&event.by_ref());
            }
        }
        self.is_unread.store(folded.is_err(), Ordering::Relaxed);
        let is_revised = folded.is_err() || stored.head() > had;
        drop(stored);
        if is_revised {
            self.revised.send_replace(());
        }
        folded
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
