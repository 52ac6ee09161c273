//! The API tokens that a coordinator accepts: those of its configuration, and those of the log.
//!
//! Invariants: no token is kept in clear; every entry is compared, each in constant time, so that the time
//! says nothing; a token that is revoked or has expired is not found; where the log continues with an event
//! that cannot be read, none of its tokens is found, for that event may revoke any of them.

use std::time::Duration;

use docket_schema::{
    ids::Timestamp,
    system::{Role, Tokens},
};
use subtle::ConstantTimeEq as _;
use tokio::{sync::Mutex, time::Instant};

use super::{CachedFold, FoldError, TailedFold};
use crate::store::Store;

/// What every API token begins with: by it secrets are known where they do not belong.
pub(crate) const API_TOKEN_PREFIX: &str = "dkt_";

/// The least time between two looks for tokens that are not known.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl CachedFold for Tokens {
    const UNREADABLE: &'static str =
        "the log's tokens cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many tokens are made or revoked at once; try again";
}

/// An API token that the configuration names: that of the coordinator's home. Others are in the log.
#[derive(Debug, Clone)]
pub struct ApiToken {
    /// Whose it is: stands in the log as who submitted, told or cancelled.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// BLAKE3 of the token.
    pub hash: [u8; 32],
}

impl ApiToken {
    /// The entry of a token given in clear, which is forgotten.
    pub fn of(name: impl Into<String>, role: Role, token: &str) -> Self {
        Self { name: name.into(), role, hash: *blake3::hash(token.as_bytes()).as_bytes() }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct TokenRegistry {
    fixed: Vec<ApiToken>,
    /// The log's tokens.
    pub fold: TailedFold<Tokens>,
    /// When the log was last read for a token that was not known.
    looked: Mutex<Option<Instant>>,
}

impl TokenRegistry {
    /// With the tokens of the configuration; those of the log are not read yet.
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
        let is_stuck = self.fold.progress().is_stuck;
        self.fold.with(|tokens| {
            for record in tokens.all() {
                let same = is(&record.made.hash.0);
                if same && record.is_good(now) && !is_stuck {
                    found = Some((record.made.name.to_string(), record.made.role, record.made.hash.0));
                }
            }
        });
        found
    }

    /// Whether the configuration has a token of this name.
    pub(crate) fn is_fixed(&self, name: &str) -> bool {
        self.fixed.iter().any(|entry| entry.name == name)
    }

    /// Catches up for somebody whose token is not known. However many ask, the log is read at most once in
    /// [`LOOK_AGAIN`], and whoever asks is answered by a look that began after: those who wait share it.
    pub(crate) async fn look_again(&self, store: &dyn Store) -> Result<(), FoldError> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if let Some(at) = *looked {
            if at >= asked {
                return Ok(());
            }
            tokio::time::sleep_until(at + LOOK_AGAIN).await;
        }
        *looked = Some(Instant::now());
        self.fold.catch_up(store).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_its_tokens_and_no_other() {
        let table = TokenRegistry::new(vec![
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
